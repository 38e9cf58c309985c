"""Attachments: files that a message or an objective refers to. The recipients get permission to read the files.

Used by: routes that send messages and create objectives. Uses: `files`. The sender's description of a file is ignored:
name, size and type come from the store. A grant (permission to read a file) is made before its message is sent, so that
a recipient can read the files as soon as the message is accepted. If the message is refused, the grant is removed. A
grant is for one member, for everybody, or for all members of a channel or objective. So members who join later can read
the files that they find in the history.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence

from tieline.contract import reply as r
from tieline.contract.message import Attachment
from tieline.contract.objective import ObjectiveId, base36
from tieline.contract.refusal import Refusal
from tieline.services.files.files import Files
from tieline.services.files.tree import OBJECTIVES, FileRefusal, Viewer

_KEEPER = Viewer("", manages=True)
_NUMBER_DIGITS = 12  # no number of an objective that the hub counts has so many, so no id is given twice


class Attachments:
    """Service for files of messages and objectives: gives the recipients the right to read the files."""

    def __init__(self, files: Files, now_ms: Callable[[], int]) -> None:
        self._files = files
        self._now_ms = now_ms

    async def show(
        self, attached: Sequence[Attachment], viewer: str, ask: Callable[[], Awaitable[Sequence[r.Reply]]]
    ) -> Sequence[r.Reply]:
        """Let `viewer` read the attached files, then call `ask`, which sends the message. Return the hub's replies.

        `viewer` is a member's name, `*` (everybody), or a group such as `chan:<id>`. If the hub refuses the message,
        `viewer` loses the right to read the files.
        """
        if not attached:
            return await ask()
        via = secrets.token_hex(16)
        await self._files.share([one.path for one in attached], [viewer], via)
        replies = await ask()
        if isinstance(replies[0], Refusal):
            await self._files.unshare(via, viewer)
        else:
            await self._files.make_permanent(via, viewer)
        return replies

    async def copy(
        self,
        paths: Sequence[str],
        viewer: Viewer,
        names: Sequence[str],
        ask: Callable[[tuple[Attachment, ...], ObjectiveId | None], Awaitable[Sequence[r.Reply]]],
    ) -> Sequence[r.Reply] | FileRefusal:
        """Copy files for a new objective, then call `ask`, which creates the objective. Return the hub's replies.

        `paths` are the original files. `ask` gets the copies, and the id that the objective must have, because agents
        look for the files in a folder with this id. If the hub refuses the objective, the copies are removed. The
        copies stay when the original files are removed. `viewer` is the member who creates the objective. `names` are
        the members who take part in the objective. These members can read the copies at once, and for as long as they
        take part.
        """
        if not paths:
            return await ask((), None)
        folder = ObjectiveId(f"obj-{base36(self._now_ms())}-{secrets.randbelow(10**_NUMBER_DIGITS):0{_NUMBER_DIGITS}}")
        copies = await self._files.mirror(paths, folder, viewer)
        if isinstance(copies, FileRefusal):
            return copies
        via = secrets.token_hex(16)
        kept = [one.path for one in copies]
        await self._files.share(kept, names, via)
        replies = await ask(copies, folder)
        match replies:
            case (r.ObjectiveState(objective), *_):
                await self._files.share(kept, [f"obj:{objective.id}"], via)
                for name in names:
                    await self._files.unshare(via, name)
            case _:
                await self._files.remove(f"/{OBJECTIVES}/{folder}", _KEEPER, recursive=True)
        return replies
