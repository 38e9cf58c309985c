"""Attachments: files that a message or an objective refers to, and the read access that this gives.

Above: routes that send messages and make objectives. Below: `files`. The sender's description of a file is ignored:
name, size and type come from the store. A grant is made before its message is sent, because an accepted message must be
readable. If the message is refused, the grant is removed. A grant is for a member, for everybody, or for all members of
a channel or objective. So members who join later can read the files that they find in the history.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence

from tieline.contract import reply as r
from tieline.contract.message import Attachment
from tieline.contract.refusal import Refusal
from tieline.services.files.files import Files
from tieline.services.files.tree import OBJECTIVES, FileRefusal, Viewer

_KEEPER = Viewer("", manages=True)


class Attachments:
    """Gives read access to files to the recipients of a message or objective."""

    def __init__(self, files: Files) -> None:
        self._files = files

    async def show(
        self, attached: Sequence[Attachment], viewer: str, ask: Callable[[], Awaitable[Sequence[r.Reply]]]
    ) -> Sequence[r.Reply]:
        """Give a viewer access to files, and ask the hub to send. If the hub refuses, remove the access."""
        if not attached:
            return await ask()
        via = secrets.token_hex(16)
        await self._files.share([one.path for one in attached], [viewer], via)
        replies = await ask()
        if isinstance(replies[0], Refusal):
            await self._files.unshare(via, viewer)
        else:
            await self._files.settle(via, viewer)
        return replies

    async def copy(
        self,
        paths: Sequence[str],
        viewer: Viewer,
        names: Sequence[str],
        ask: Callable[[tuple[Attachment, ...]], Awaitable[Sequence[r.Reply]]],
    ) -> Sequence[r.Reply] | FileRefusal:
        """Copy files for a new objective, and ask the hub to make it. If the hub refuses, the copies are removed.

        The copies stay when the original files are removed. `names` are the members who take part in the objective.
        They can read the copies at once, and later for as long as they take part.
        """
        if not paths:
            return await ask(())
        folder = secrets.token_hex(16)
        copies = await self._files.mirror(paths, folder, viewer)
        if isinstance(copies, FileRefusal):
            return copies
        via = secrets.token_hex(16)
        kept = [one.path for one in copies]
        await self._files.share(kept, names, via)
        replies = await ask(copies)
        match replies:
            case (r.ObjectiveState(objective), *_):
                await self._files.share(kept, [f"obj:{objective.id}"], via)
                for name in names:
                    await self._files.unshare(via, name)
            case _:
                await self._files.remove(f"/{OBJECTIVES}/{folder}", _KEEPER, recursive=True)
        return replies
