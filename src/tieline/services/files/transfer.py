"""Files over HTTP: who asks, uploads and downloads in pieces, and a "no" as an answer.

Above: routes that take and give files. Below: `files`, and the Hub port, which knows who is in a channel or has a part
in an objective. It refuses to know the form in which an entry is shown.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.file import CatalogueError, FileEntry
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.message import Attachment
from tieline.contract.objective import Objective, ObjectiveId
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.services.files.files import Files
from tieline.services.files.tree import Collide, FileRefusal, Viewer, Written
from tieline.wire.http import discard, failure
from tieline.wire.route import Call, Download, Refused, fail, no

_GROUPS_MAX = 100
"""Channels and objectives that are asked about for one request: more than one file is ever shown in."""
_UPLOADS_MAX = 64
_MEMBER_UPLOADS_MAX = 8
"""Uploads at the same time, of all and of one member: each may have a file of the largest size on disk."""
_IDLE_SECONDS = 30.0
_UPLOAD_SECONDS_MAX = 600.0
"""The longest rest of an upload between two pieces, and its longest time: the largest file passes 350 kbit/s."""
_INLINE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
"""Media types that a browser may show in place. Nothing that could run a script is among them."""
_Done = TypeVar("_Done")


class Transfers:
    """Uploads and downloads of all members, within their limits."""

    def __init__(self, files: Files) -> None:
        self._files = files
        # How many uploads there are, by member.
        self._uploads: Counter[MemberName] = Counter()

    async def upload(self, call: Call, path: str) -> Written:
        """Keep the body of a request as a file. Its query may have `mime` and `collide`."""
        body = _Body(call)
        try:
            return await self._write(call, path, body)
        except Refused as refusal:
            if not body.ended:
                # Most clients hear no answer before they have sent everything.
                await discard(call.receive)
                raise Refused(replace(refusal.reply, close=True)) from None
            raise

    async def _write(self, call: Call, path: str, body: "_Body") -> Written:
        if not path:
            raise Refused(no(400, "path is required"))
        wanted = call.query.get("collide", Collide.ERROR.value)
        if wanted not in {one.value for one in Collide}:
            raise Refused(no(400, f"collide is none of {', '.join(one.value for one in Collide)}"))
        viewer = await viewer_of(call, self._files, [path])
        if self._uploads[call.member] >= _MEMBER_UPLOADS_MAX or self._uploads.total() >= _UPLOADS_MAX:
            raise Refused(no(429, "too many uploads at once; try again"))
        self._uploads[call.member] += 1
        try:
            writing = self._files.write(
                path,
                viewer,
                body.pieces(),
                media_type=call.query.get("mime", ""),
                collide=Collide(wanted),
                declared_bytes=body.declared,
            )
            return given(await reached(writing))
        finally:
            self._uploads[call.member] -= 1
            self._uploads += Counter()

    async def download(self, call: Call, path: str) -> Download:
        """The content of a file."""
        viewer = await viewer_of(call, self._files, [path])
        reading = given(await reached(self._files.read(path, viewer)))
        return Download(reading_headers(reading.entry), aiter(reading))

    async def attached(self, call: Call, paths: Sequence[str]) -> tuple[Attachment, ...]:
        """Files that the member wants to attach, as they are known here."""
        if not paths:
            return ()
        viewer = await viewer_of(call, self._files, paths)
        return given(await reached(self._files.attach(paths, viewer)))

    async def viewer(self, call: Call, *paths: str) -> Viewer:
        """The member that asks, with the groups that matter for these paths."""
        return await viewer_of(call, self._files, paths)


def reading_headers(entry: FileEntry) -> dict[str, str]:
    """The headers of an answer with a file's content: what members wrote must not act as the hub's own pages."""
    kind = "inline" if entry.media_type in _INLINE else "attachment"
    return {
        "content-type": entry.media_type or "application/octet-stream",
        "content-length": str(entry.size or 0),
        "content-disposition": f"{kind}; filename*=UTF-8''{quote(entry.name, safe='')}; filename=\"{entry.name}\"",
        "content-security-policy": "sandbox; default-src 'none'",
        "x-content-type-options": "nosniff",
        "cache-control": "private, no-cache",
        "etag": f'"{entry.digest}"',
    }


async def viewer_of(call: Call, files: Files, paths: Sequence[str]) -> Viewer:
    """The member that asks, with the groups that matter for these paths."""
    member = call.member
    foreign = [path for path in paths if path.split("/", 2)[1:2] != [member]]
    groups = (await reached(files.groups(foreign)))[:_GROUPS_MAX] if foreign else []
    replies = await call.ask(
        lambda session: (c.ListMembers(session, name=member), *(_question(session, group) for group in groups))
    )
    match replies[0]:
        case r.Roster(members=(presence,)):
            manages = MEMBERS_MANAGE in presence.member.permissions
            own = [group for group, reply in zip(groups, replies[1:], strict=True) if _in_group(member, reply)]
            return Viewer(member, manages, frozenset(own))
        case _:
            raise fail(replies)


def _question(session: SessionId, group: str) -> c.Command:
    kind, _, key = group.partition(":")
    return (
        c.ViewObjective(session, objective_id=ObjectiveId(key))
        if kind == "obj"
        else c.ViewChannel(session, channel=key)
    )


def _in_group(member: MemberName, reply: r.Reply) -> bool:
    match reply:
        case r.ChannelState(channel):
            return member in channel.subscribers
        case r.ObjectiveView(objective):
            return takes_part(member, objective)
        case _:
            return False


def takes_part(member: MemberName, objective: Objective) -> bool:
    """True if a member has a part in an objective."""
    return member in (objective.assignee, objective.originator, *objective.watchers)


# Bodies and answers.


class _Body:
    """The body of an upload."""

    def __init__(self, call: Call) -> None:
        declared = call.header(b"content-length")
        self.declared = int(declared) if declared is not None and declared.isdecimal() else None
        self.ended = False
        self._receive = call.receive
        self._late = asyncio.get_running_loop().time() + _UPLOAD_SECONDS_MAX

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its bytes, as they come."""
        while not self.ended:
            try:
                late = min(self._late, asyncio.get_running_loop().time() + _IDLE_SECONDS)
                async with asyncio.timeout_at(late):
                    message = await self._receive()
            except TimeoutError:
                self.ended = True
                raise Refused(failure(408, "the upload takes too long", close=True)) from None
            if message["type"] == "http.disconnect":
                self.ended = True
                raise Refused(failure(400, "the request ended early", close=True))
            self.ended = not message.get("more_body", False)
            yield message.get("body", b"")


async def reached(doing: Awaitable[_Done]) -> _Done:
    """The result of something that needs the disk."""
    try:
        return await doing
    except (OSError, CatalogueError) as error:
        raise Refused(no(503, f"the disk refused: {error}")) from error


def given(result: _Done | FileRefusal) -> _Done:
    """A result that is no refusal; a refusal ends the request."""
    if isinstance(result, FileRefusal):
        raise Refused(no(result.status, result.message, result.code.value))
    return result
