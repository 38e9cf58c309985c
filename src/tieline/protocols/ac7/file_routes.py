"""Files over HTTP: members' homes, what others showed them, and the bytes, which pass through in pieces.

Above: the server. Below: `files`, and the Hub port, which knows who is in a channel or has a part in an objective.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.file import CatalogueError, FileEntry
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.objective import Objective, ObjectiveId
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.files import EntryView, Files, Reading, reading_headers, view
from tieline.protocols.ac7.route import NO_CONTENT, Call, Download, Query, Refused, Route, fail, no
from tieline.protocols.ac7.threads import objectives_of
from tieline.protocols.ac7.tree import Collide, FileRefusal, Viewer, Written
from tieline.wire.http import discard, failure

_GROUPS_MAX = 100
"""Channels and objectives that are asked about for one request: more than one file is ever shown in."""
_UPLOADS_MAX = 64
_MEMBER_UPLOADS_MAX = 8
"""Uploads at the same time, of all and of one member: each may have a file of the largest size on disk."""
_IDLE_SECONDS = 30.0
_UPLOAD_SECONDS_MAX = 600.0
"""How long an upload may rest between two pieces, and take in all: the largest file passes a line of 350 kbit/s."""
_ANY = "application/octet-stream"
_PATH = Query("path", "Absolute, as `/<member>/…`.", required=True)
_Done = TypeVar("_Done")


class EntryList(s.Shape, frozen=True):
    """Entries."""

    entries: list[EntryView]


class EntryResponse(s.Shape, frozen=True):
    """An entry."""

    entry: EntryView


class WrittenResponse(s.Shape, frozen=True):
    """A file that was written, and whether it got another name than was asked for."""

    entry: EntryView
    renamed: bool


class MakeFolder(s.Shape, frozen=True):
    """A folder, and whether those above it are made too."""

    path: s.FilePath
    recursive: bool = False


class MoveEntry(s.Shape, frozen=True):
    """From where to where."""

    from_: s.FilePath
    to: s.FilePath


class FileRoutes:
    """The operations on files."""

    def __init__(self, files: Files) -> None:
        self._files = files
        # How many there are, by member.
        self._uploads: Counter[MemberName] = Counter()

    def routes(self) -> list[Route]:
        """The operations."""
        return [*self._reading(), *self._writing()]

    def _reading(self) -> list[Route]:
        return [
            Route(
                "GET",
                "/fs/ls",
                self.listing,
                query=(Query("path", "Absolute; the root shows the homes that one may list."),),
                errors=(409,),
            ),
            Route("GET", "/fs/stat", self.stat, query=(_PATH,), errors=(404,)),
            Route("GET", "/fs/read/{path}", self.read, gives=(_ANY,), errors=(404, 409)),
            Route("GET", "/fs/shared", self.shared),
            Route("GET", "/fs/all", self.everything),
        ]

    def _writing(self) -> list[Route]:
        flag = {"type": "boolean"}
        collisions = {"type": "string", "enum": [one.value for one in Collide]}
        return [
            Route(
                "POST",
                "/fs/write",
                self.write,
                takes=(_ANY,),
                in_pieces=True,
                query=(
                    _PATH,
                    Query("mime", "Its media type."),
                    Query("collide", "What to do when a file is there already; an error unless told.", collisions),
                ),
                errors=(409, 429),
            ),
            Route("POST", "/fs/mkdir", self.make_folder, invalid="invalid mkdir payload", errors=(404, 409)),
            Route(
                "DELETE",
                "/fs/rm",
                self.remove,
                status=NO_CONTENT,
                query=(_PATH, Query("recursive", "Whether a folder may hold something.", flag)),
                errors=(404, 409),
            ),
            Route("POST", "/fs/mv", self.move, invalid="invalid move payload", errors=(404, 409, 413)),
        ]

    # Requests.

    async def listing(self, call: Call, _: None) -> EntryList:
        """What is in a folder."""
        path = call.query.get("path", "/")
        await self._make_home(call, path)
        return _entries(await reached(self._files.listing(path, await self._viewer(call, path))))

    async def stat(self, call: Call, _: None) -> EntryResponse:
        """What is at a path."""
        path = _path(call)
        await self._make_home(call, path)
        return EntryResponse(view(_given(await reached(self._files.stat(path, await self._viewer(call, path))))))

    async def read(self, call: Call, _: None) -> Download:
        """The content of a file."""
        path = "/" + call.params["path"]
        reading: Reading = _given(await reached(self._files.read(path, await self._viewer(call, path))))
        return Download(reading_headers(reading.entry), aiter(reading))

    async def write(self, call: Call, _: None) -> WrittenResponse:
        """Keep the body as a file; the folders above it are made."""
        body = _Body(call)
        try:
            written = await self._write(call, body)
        except Refused as refusal:
            if not body.ended:
                # Most clients hear no answer before they have sent everything.
                await discard(call.receive)
                raise Refused(replace(refusal.reply, close=True)) from None
            raise
        return WrittenResponse(view(written.entry), written.renamed)

    async def _write(self, call: Call, body: "_Body") -> Written:
        path = _path(call)
        wanted = call.query.get("collide", Collide.ERROR.value)
        if wanted not in {one.value for one in Collide}:
            raise Refused(no(400, f"collide is none of {', '.join(one.value for one in Collide)}"))
        viewer = await self._viewer(call, path)
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
            return _given(await reached(writing))
        finally:
            self._uploads[call.member] -= 1
            self._uploads += Counter()

    async def make_folder(self, call: Call, form: MakeFolder) -> EntryResponse:
        """Make a folder; one that is there already is fine."""
        viewer = await self._viewer(call, form.path)
        return EntryResponse(
            view(_given(await reached(self._files.make_folder(form.path, viewer, recursive=form.recursive))))
        )

    async def remove(self, call: Call, _: None) -> None:
        """Remove a file, or a folder with all that is in it."""
        path = _path(call)
        recursive = call.query.get("recursive") in ("true", "1")
        viewer = await self._viewer(call, path)
        _given(await reached(self._files.remove(path, viewer, recursive=recursive)))

    async def move(self, call: Call, form: MoveEntry) -> EntryResponse:
        """Give a file or folder another path; whoever was shown it still is."""
        viewer = await self._viewer(call, form.from_, form.to)
        return EntryResponse(view(_given(await reached(self._files.move(form.from_, form.to, viewer)))))

    async def shared(self, call: Call, _: None) -> EntryList:
        """What others showed to the member, newest first."""
        objectives = await objectives_of(call)
        match await call.ask(lambda session: (c.ListChannels(session),)):
            case (r.Channels(channels),):
                own = [f"chan:{channel.id}" for channel in channels if call.member in channel.subscribers]
                own += [f"obj:{objective.id}" for objective in objectives if _takes_part(call.member, objective)]
                return _entries(await reached(self._files.shared(Viewer(call.member, groups=frozenset(own)))))
            case replies:
                raise fail(replies)

    async def everything(self, call: Call, _: None) -> EntryList:
        """The files of all homes, newest first; needs members.manage."""
        return _entries(await reached(self._files.everything(await self._viewer(call))))

    async def _make_home(self, call: Call, path: str) -> None:
        """A member has a home as soon as it looks for it."""
        home = f"/{call.member}"
        if path in ("/", home):
            await reached(self._files.make_folder(home, Viewer(call.member)))

    async def _viewer(self, call: Call, *paths: str) -> Viewer:
        return await viewer_of(call, self._files, paths)


async def viewer_of(call: Call, files: Files, paths: Sequence[str]) -> Viewer:
    """Who asks, with the groups that matter for these paths."""
    member = call.member
    foreign = [path for path in paths if path.split("/", 2)[1:2] != [member]]
    groups = (await reached(files.groups(foreign)))[:_GROUPS_MAX] if foreign else []
    replies = await call.ask(
        lambda session: (c.ListMembers(session, member), *(_question(session, group) for group in groups))
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
    return c.ViewObjective(session, ObjectiveId(key)) if kind == "obj" else c.ViewChannel(session, key)


def _in_group(member: MemberName, reply: r.Reply) -> bool:
    match reply:
        case r.ChannelState(channel):
            return member in channel.subscribers
        case r.ObjectiveView(objective):
            return _takes_part(member, objective)
        case _:
            return False


def _takes_part(member: MemberName, objective: Objective) -> bool:
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
    """What comes of an errand to the disk."""
    try:
        return await doing
    except (OSError, CatalogueError) as error:
        raise Refused(no(503, f"the disk refused: {error}")) from error


def _given(result: _Done | FileRefusal) -> _Done:
    if isinstance(result, FileRefusal):
        raise Refused(no(result.status, result.message, result.code.value))
    return result


def _entries(result: Sequence[FileEntry] | FileRefusal) -> EntryList:
    return EntryList([view(entry) for entry in _given(result)])


def _path(call: Call) -> str:
    path = call.query.get("path")
    if not path:
        raise Refused(no(400, "path is required"))
    return path
