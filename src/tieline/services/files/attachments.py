"""Attachments: files that a message or an objective refers to, and who may read them because of that.

Above: whoever sends messages and gives work. Below: `files`. What a sender says of a file counts for nothing: name,
size and type are the store's. A grant comes before the message that it is for, because a message that was accepted must
be readable; it is taken back when the message is refused. It is for a member, for everybody, or for whoever is in the
channel or thread, so that who comes later can read what it finds in the history.
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
    """Shows files to those who receive what they are attached to."""

    def __init__(self, files: Files) -> None:
        self._files = files

    async def show(
        self, attached: Sequence[Attachment], viewer: str, ask: Callable[[], Awaitable[Sequence[r.Reply]]]
    ) -> Sequence[r.Reply]:
        """Show files to a viewer and ask the hub to send; if it refuses, show them no more."""
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
        """Copy files for a new objective and ask the hub to make it; if it refuses, the copies go.

        Copies stay when the files themselves go. `names` are those who take part: they can read the copies at once,
        and afterwards for as long as they take part.
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
