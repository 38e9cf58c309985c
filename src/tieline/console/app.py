"""Routes of the console in addition to the hub's own protocol: files, messages and objectives with files, devices.

Used by: the console's web page. Uses: the hub's services. A request carries a member's bearer token, or the cookie of a
login session, and has the rights of that member. JSON keys have the same names as in the hub's own protocol.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct
from starlette.types import Receive, Scope, Send

from tieline.console import reads
from tieline.contract import command as c
from tieline.contract import message as m
from tieline.contract import reply as r
from tieline.contract.file import EVERYBODY
from tieline.contract.hub import Hub
from tieline.contract.identifiers import GENERAL, MemberName, MessageId
from tieline.contract.objective import ObjectiveId
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Refusal
from tieline.contract.target import Target, TargetKind, parse_target
from tieline.services import totp
from tieline.services.assembly import Services
from tieline.services.devices import Approved
from tieline.services.enrolments import EnrolmentRefusal, PollError
from tieline.services.files.transfer import given, reached
from tieline.services.files.tree import Collide
from tieline.wire.http import Answer, Bodies, answer, foreign, respond
from tieline.wire.openapi import document
from tieline.wire.route import (
    NO_CONTENT,
    Call,
    Download,
    Failure,
    Query,
    Refused,
    Route,
    fail,
    later,
    no,
    refused,
    require,
)
from tieline.wire.route_app import RouteApp
from tieline.wire.sessions import Sessions
from tieline.wire.unfinished import Unfinished

_PROTOCOL = "tieline"
_ANY = "application/octet-stream"
_ROOTS = ("/api/files/", "/api/tokens/", "/api/members/", "/api/objectives/")
DOCUMENT_PATH = "/api/openapi.json"

FilePath = Annotated[str, Meta(min_length=1, max_length=1024)]
FilePaths = Annotated[tuple[FilePath, ...], Meta(max_length=64)]
UserCode = Annotated[str, Meta(max_length=64)]


class SendForm(Struct, frozen=True, kw_only=True):
    """JSON input of `POST /api/messages`: a message with files, which are given by their paths."""

    target: Annotated[str, Meta(max_length=256)]
    body: str
    files: FilePaths
    urgent: bool = False
    reply_to: str | None = None
    thread: str | None = None


class SentView(Struct, frozen=True):
    """Answer to `POST /api/messages`: the id of the accepted message, and the number of recipients."""

    id: str
    recipients: int


class WorkForm(Struct, frozen=True, kw_only=True):
    """JSON input of `POST /api/objectives`: an objective with files, which are given by their paths."""

    title: str
    outcome: str
    assignee: str
    body: str = ""
    watchers: tuple[str, ...] = ()
    files: FilePaths


class WorkView(Struct, frozen=True):
    """Answer to `POST /api/objectives`: the id of the created objective."""

    id: str


class DeviceForm(Struct, frozen=True):
    """JSON input of `POST /api/devices`: a device's request for a token.

    The label is for the person who approves the request.
    """

    label: Annotated[str, Meta(max_length=64)] = ""


class DeviceStarted(Struct, frozen=True):
    """Answer to `POST /api/devices`: the codes for the device.

    `expires_in` is the seconds until the codes expire. `interval` is the seconds between two polls.
    """

    device_code: str
    user_code: str
    expires_in: int
    interval: int


class PollForm(Struct, frozen=True):
    """JSON input of `POST /api/devices/poll`: the device asks if its request was approved."""

    device_code: Annotated[str, Meta(max_length=128)]


class DeviceToken(Struct, frozen=True):
    """Answer to `POST /api/devices/poll` after the approval: the device's token and its member.

    It is shown only once.
    """

    token: str
    token_id: str
    member: str


class DeviceView(Struct, frozen=True):
    """One device's request for a token that waits for approval."""

    user_code: str
    label: str
    source: str | None
    agent: str | None
    created_at_ms: int
    expires_at_ms: int


class DeviceList(Struct, frozen=True):
    """Answer to `GET /api/devices`: the requests that wait for approval, oldest first."""

    devices: list[DeviceView]


class ApproveForm(Struct, frozen=True):
    """JSON input of `POST /api/devices/approve`: approve the device with this user code, for this member."""

    user_code: UserCode
    member: str


class RejectForm(Struct, frozen=True):
    """JSON input of `POST /api/devices/reject`: reject the device with this user code."""

    user_code: UserCode
    reason: Annotated[str, Meta(max_length=256)] = ""


class Authenticator(Struct, frozen=True):
    """Answer to `POST /api/members/{name}/authenticator`: the secret for an authenticator app.

    It is shown only once.
    """

    secret: str
    uri: str


class ConsoleApp(RouteApp):
    """HTTP application with the console's routes for files, messages, objectives and devices.

    It also serves an OpenAPI document of its own routes and of `others`, which are further routes of the hub.
    """

    def __init__(self, hub: Hub, services: Services, unfinished: Unfinished, others: Sequence[Route] = ()) -> None:
        self._services = services
        table = (*reads.ROUTES, *self._file_routes(), *self._device_routes())
        sessions = Sessions(hub, _PROTOCOL, acknowledges=False)
        super().__init__(hub, sessions, table, Bodies(unfinished), check=_check)
        self._paths = {DOCUMENT_PATH, *(route.path for route in table)}
        self._others = others

    @cached_property
    def _description(self) -> Answer:
        """Answer with the OpenAPI document. It is made at the first request, so that the hub starts faster."""
        tables = (*self.table, *self._others)
        described = document(tables, "tieline", "HTTP routes of a hub in addition to its own protocol.")
        return Answer(200, msgspec.json.encode(described))

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """Return true if the request is for a path of this application."""
        return scope["type"] == "http" and (scope["path"] in self._paths or scope["path"].startswith(_ROOTS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["path"] == DOCUMENT_PATH and scope["method"] == "GET":
            await respond(send, self._description)
        else:
            await super().__call__(scope, receive, send)

    def _file_routes(self) -> list[Route]:
        collisions = {"type": "string", "enum": [one.value for one in Collide]}
        query = (
            Query("path", "Absolute path: `/<member>/…`.", required=True),
            Query("mime", "Media type of the file."),
            Query("collide", "Action if the file exists already. The default is an error.", collisions),
        )
        return [
            Route("GET", "/api/files/{path}", self.download, gives=(_ANY,), errors=(404, 409)),
            Route("POST", "/api/files", self.upload, takes=(_ANY,), in_pieces=True, query=query, errors=(409, 429)),
            Route("POST", "/api/messages", self.send, errors=(404, 409, 410, 429)),
            Route("POST", "/api/objectives", self.give_work, errors=(404, 409, 429)),
        ]

    def _device_routes(self) -> list[Route]:
        return [
            Route("GET", "/api/devices", self.pending),
            Route("POST", "/api/devices", self.start, open=True, errors=(429,)),
            Route("POST", "/api/devices/poll", self.poll, open=True),
            Route("POST", "/api/devices/approve", self.approve, status=NO_CONTENT, errors=(404, 409)),
            Route("POST", "/api/devices/reject", self.reject, status=NO_CONTENT, errors=(404, 409)),
            Route("DELETE", "/api/tokens/{id}", self.revoke, status=NO_CONTENT),
            Route("POST", "/api/members/{name}/authenticator", self.enrol, errors=(404, 409)),
        ]

    # Files, and messages and objectives with files.

    async def download(self, call: Call, _: None) -> Download:
        """Download the content of a file."""
        return await self._services.transfers.download(call, "/" + call.params["path"])

    async def upload(self, call: Call, _: None) -> m.Attachment:
        """Store the body as a file. The folders above it are created."""
        entry = (await self._services.transfers.upload(call, call.query.get("path", ""))).entry
        return m.Attachment(entry.path, entry.name, entry.size or 0, entry.media_type or "")

    async def send(self, call: Call, form: SendForm) -> SentView:
        """Send a message with files. Its recipients can read the files."""
        target = parse_target(form.target)
        if isinstance(target, Refusal):
            raise Refused(refused(target))
        content = m.Content(
            target=target,
            body=form.body,
            priority=m.Priority.URGENT if form.urgent else m.Priority.NORMAL,
            reply_to=MessageId(form.reply_to) if form.reply_to is not None else None,
            thread=form.thread,
            attachments=await self._services.transfers.attached(call, form.files),
        )
        viewer = await _viewer_of(call, target)

        async def ask() -> Sequence[r.Reply]:
            return await call.ask(lambda session: (c.Send(session, content=content),))

        match await reached(self._services.attachments.show(content.attachments, viewer, ask)):
            case (r.Accepted() as accepted,):
                return SentView(accepted.message_id, accepted.recipients)
            case replies:
                raise fail(replies)

    async def give_work(self, call: Call, form: WorkForm) -> WorkView:
        """Create an objective with files. The files are copied, and everybody in its thread can read the copies."""
        viewer = await self._services.transfers.viewer(call, *form.files)
        names = [call.member, form.assignee, *form.watchers]

        async def ask(attached: tuple[m.Attachment, ...], objective_id: ObjectiveId | None) -> Sequence[r.Reply]:
            return await call.ask(
                lambda session: (
                    c.CreateObjective(
                        session=session,
                        title=form.title,
                        outcome=form.outcome,
                        body=form.body,
                        assignee=MemberName(form.assignee),
                        watchers=tuple(MemberName(name) for name in form.watchers),
                        attachments=attached,
                        objective_id=objective_id,
                    ),
                )
            )

        match given(await reached(self._services.attachments.copy(form.files, viewer, names, ask))):
            case (r.ObjectiveState(objective),):
                return WorkView(objective.id)
            case replies:
                raise fail(replies)

    # Devices.

    async def start(self, call: Call, form: DeviceForm) -> DeviceStarted:
        """Request a token. A person must approve the user code."""
        client = call.scope.get("client")
        source = str(client[0]) if client else None
        asked = self._services.devices.start(source, call.header(b"user-agent"), form.label)
        if isinstance(asked, EnrolmentRefusal):
            raise _refused(asked)
        return DeviceStarted(asked.device_code, asked.user_code, asked.expires_in, asked.interval)

    async def poll(self, _: Call, form: PollForm) -> DeviceToken:
        """Ask if the request was approved. The token is shown only once."""
        fetched = await self._services.devices.poll(form.device_code)
        if isinstance(fetched, PollError):
            said = Failure(fetched.error, error_description=fetched.error_description or UNSET)
            raise Refused(answer(said, 400))
        return DeviceToken(fetched.token, fetched.token_id, fetched.member.name)

    async def pending(self, call: Call, _: None) -> DeviceList:
        """List requests that wait for approval, oldest first. Needs members.manage."""
        await require(call, MEMBERS_MANAGE)
        return DeviceList(
            [
                DeviceView(one.user_code, one.label_hint, one.source, one.agent, one.created_at_ms, one.expires_at_ms)
                for one in self._services.devices.pending()
            ]
        )

    async def approve(self, call: Call, form: ApproveForm) -> None:
        """Approve a device: give it a token of a member. Needs members.manage."""
        await require(call, MEMBERS_MANAGE)
        name = MemberName(form.member)

        async def make() -> Approved:
            replies = await call.ask(
                lambda session: (c.IssueToken(session, name=name, label=""), c.ListMembers(session, name=name))
            )
            match replies:
                case (r.TokenIssued(_, token, kept), r.Roster(members=(presence,))):
                    return Approved(token, kept, presence.member)
                case _:
                    raise fail(replies, form.member)

        approved = await self._services.devices.approve(form.user_code, make)
        if isinstance(approved, EnrolmentRefusal):
            raise _refused(approved)

    async def reject(self, call: Call, form: RejectForm) -> None:
        """Reject a device. Needs members.manage."""
        await require(call, MEMBERS_MANAGE)
        refusal = self._services.devices.reject(form.user_code, form.reason)
        if refusal is not None:
            raise _refused(refusal)

    async def revoke(self, call: Call, _: None) -> None:
        """Revoke one of the member's own tokens, such as that of a device that does not need it any more."""
        await call.get(lambda session: c.RevokeToken(session, name=call.member, token_id=call.params["id"]), r.Done)
        call.leave()

    async def enrol(self, call: Call, _: None) -> Authenticator:
        """Create a secret for a member's authenticator app. Allowed for the member itself, and with members.manage."""
        name = MemberName(call.params["name"])
        secret = await self._services.logins.enrol(name, call.ask)
        if isinstance(secret, Refusal):
            raise Refused(refused(secret))
        return Authenticator(secret, totp.otpauth_uri(secret, totp.ISSUER, name))


def _check(scope: Scope) -> None:
    if foreign(scope):
        raise Refused(no(403, "this request comes from a page of another site"))


async def _viewer_of(call: Call, target: Target) -> str:
    """Return the name of those who may read the files of a message to `target`.

    The name is a member, a channel as `chan:<id>`, an objective as `obj:<id>`, or `*` (everybody).
    """
    match target.kind:
        case TargetKind.MEMBER:
            return target.name
        case TargetKind.OBJECTIVE:
            return str(target)
        case TargetKind.CHANNEL if target.name != GENERAL:
            channel = (
                await call.get(lambda session: c.ViewChannel(session, channel=target.name), r.ChannelState)
            ).channel
            return f"chan:{channel.id}"
        case _:
            return EVERYBODY


def _refused(refusal: EnrolmentRefusal) -> Refused:
    if refusal.retry_after is not None:
        return Refused(later(refusal.error, refusal.retry_after))
    return Refused(no(refusal.status, refusal.error))
