"""Files over HTTP: finds the viewer of a request, uploads and downloads in parts, and turns refusals into answers.

Used by: routes for uploads and downloads. Uses: `files`, and the interface `contract.hub`, which knows the members of
channels and objectives. This module does not know the format in which an entry is shown.
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
"""Maximum number of channels and objectives that are checked for one request. The check finds out if the member belongs
to them. The hub expects that no file is shared with more channels and objectives than this."""
_UPLOADS_MAX = 64
_MEMBER_UPLOADS_MAX = 8
"""Maximum number of uploads of one member at the same time. `_UPLOADS_MAX` is the limit for all members together."""
_IDLE_SECONDS = 30.0
_UPLOAD_SECONDS_MAX = 600.0
"""Longest time of a whole upload, in seconds: enough for the largest file at 350 kbit/s. `_IDLE_SECONDS` is the longest
time without new bytes."""
_INLINE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
"""Media types of images that a browser may show in a page. None of them can run a script."""
_Done = TypeVar("_Done")


class Transfers:
    """Service for uploads and downloads of files over HTTP.

    The number of uploads at the same time is limited, per member and in total.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        # Number of running uploads by member.
        self._uploads: Counter[MemberName] = Counter()

    async def upload(self, call: Call, path: str) -> Written:
        """Store the body of an HTTP request as a file at a path. Return the entry of the new file.

        The query of the request may have `mime` (the file's type) and `collide` (the action if there is already a file
        at the path).
        """
        body = _Body(call)
        try:
            return await self._write(call, path, body)
        except Refused as refusal:
            if not body.ended:
                # Most clients read no answer before they have sent everything.
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
        """Return the content of the file at a path, as the answer to an HTTP request."""
        viewer = await viewer_of(call, self._files, [path])
        reading = given(await reached(self._files.read(path, viewer)))
        return Download(reading_headers(reading.entry), aiter(reading))

    async def attached(self, call: Call, paths: Sequence[str]) -> tuple[Attachment, ...]:
        """Return the files at these paths as attachments for a message, with the stored name, size and type."""
        if not paths:
            return ()
        viewer = await viewer_of(call, self._files, paths)
        return given(await reached(self._files.attach(paths, viewer)))

    async def viewer(self, call: Call, *paths: str) -> Viewer:
        """Return the member who makes the request `call`, with the rights that decide about access to `paths`.

        The rights are the member's channels and objectives that may read at least one of the paths.
        """
        return await viewer_of(call, self._files, paths)


def reading_headers(entry: FileEntry) -> dict[str, str]:
    """Return the HTTP headers for a download of the file `entry`.

    They prevent a browser from running a member's file as a page of the hub.
    """
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
    """Return the member who makes the request `call`, with the rights that decide about access to `paths`.

    The rights are the member's channels and objectives that may read at least one of the paths.
    """
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
    """True if a member is assignee, originator or watcher of an objective."""
    return member in (objective.assignee, objective.originator, *objective.watchers)


# Bodies and answers.


class _Body:
    """Reader for the body of an upload. It yields the body in parts, and has time limits."""

    def __init__(self, call: Call) -> None:
        declared = call.header(b"content-length")
        self.declared = int(declared) if declared is not None and declared.isdecimal() else None
        self.ended = False
        self._receive = call.receive
        self._late = asyncio.get_running_loop().time() + _UPLOAD_SECONDS_MAX

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the body as they arrive. Raise `Refused` after a timeout or when the connection breaks."""
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
    """Wait for the disk operation `doing` and return its result. Raise `Refused` with status 503 if the disk fails."""
    try:
        return await doing
    except (OSError, CatalogueError) as error:
        raise Refused(no(503, f"the disk refused: {error}")) from error


def given(result: _Done | FileRefusal) -> _Done:
    """Return the result of a file operation. Raise `Refused` if the operation was refused."""
    if isinstance(result, FileRefusal):
        raise Refused(no(result.status, result.message, result.code.value))
    return result
