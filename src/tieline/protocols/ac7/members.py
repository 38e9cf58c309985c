"""Members: routes for the members of the team, their presence, their permissions and their tokens.

Above: the server. Below: the Hub port, which checks permissions. The hub has its own permissions besides ac7's seven.
These routes never show the hub's own permissions, and keep them unchanged when the seven change.
"""

from collections.abc import Callable

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import Member
from tieline.contract.objective import Status
from tieline.contract.permission import MEMBERS_MANAGE, TEAM_PERMISSIONS
from tieline.protocols.ac7 import codec
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.streams import Streams
from tieline.wire.route import EXCERPT, NO_CONTENT, Call, Refused, Route, fail, no


class Members:
    """The operations on members."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def routes(self) -> list[Route]:
        """Return the routes for members."""
        return [
            Route("GET", "/roster", self.roster),
            Route("GET", "/briefing", briefing),
            Route("POST", "/presence/busy", busy, status=NO_CONTENT, bearer_only=True),
            Route("GET", "/members", listing),
            Route("POST", "/members", create, errors=(409,)),
            Route("PATCH", "/members/{name}", update, errors=(404, 409)),
            Route("DELETE", "/members/{name}", remove, status=NO_CONTENT, errors=(404, 409)),
            *_token_routes(),
        ]

    async def roster(self, call: Call, _: None) -> s.RosterResponse:
        """Who is on the team, and who is there."""
        members = (await call.get(c.ListMembers, r.Roster)).members
        teammates = [codec.teammate(presence.member) for presence in members]
        live = self._streams.live
        return s.RosterResponse(
            teammates, [codec.connected(presence, live(presence.member.name)) for presence in members]
        )


def _token_routes() -> list[Route]:
    return [
        Route("POST", "/members/{name}/rotate-token", rotate, errors=(404,)),
        Route("GET", "/members/{name}/tokens", tokens, errors=(404,)),
        Route("POST", "/members/{name}/tokens", issue, status=201, errors=(404, 409)),
        Route("DELETE", "/members/{name}/tokens/{id}", revoke, status=NO_CONTENT, errors=(404,)),
    ]


async def briefing(call: Call, _: None) -> s.Briefing:
    """What the member is told when it starts."""
    replies = await call.ask(
        lambda session: (
            c.ListMembers(session),
            c.ReadTeam(session),
            c.ListObjectives(session, statuses=(Status.ACTIVE, Status.BLOCKED), assignee=call.member),
        )
    )
    match replies:
        case (r.Roster(members), r.TeamState(team), r.ObjectiveList(objectives)):
            own = next(presence.member for presence in members if presence.member.name == call.member)
            others = [presence.member for presence in members if presence.member is not own]
            shown = codec.member(own)
            # Active objectives come before blocked ones; within each group, the order of the list stays.
            ordered = sorted(objectives, key=lambda objective: objective.status is Status.BLOCKED)
            return s.Briefing(
                name=shown.name,
                role=shown.role,
                permissions=shown.permissions,
                instructions=codec.instructions(own, team, others, len(ordered)),
                team=codec.team(team),
                teammates=[codec.teammate(presence.member) for presence in members],
                open_objectives=[codec.objective(objective) for objective in ordered],
            )
        case _:
            raise fail(replies)


async def busy(call: Call, form: s.BusyRequest) -> None:
    """Say that one is at work, which counts for half a minute, or that one is not."""
    await _done(call, lambda session: c.SetBusy(session, busy=form.busy))


async def listing(call: Call, _: None) -> s.MemberList:
    """All members, by name."""
    kept = [presence.member for presence in (await call.get(c.ListMembers, r.Roster)).members]
    manager = any(member.name == call.member and MEMBERS_MANAGE in member.permissions for member in kept)
    return s.MemberList([codec.listed(member, whole=manager or member.name == call.member) for member in kept])


async def create(call: Call, form: s.CreateMember) -> s.CreatedMember:
    """Make a member; needs members.manage."""
    permissions = await resolve_permissions(call, form.permissions)
    name = MemberName(form.name)
    replies = await call.ask(
        lambda session: (
            adding(session, name, permissions, form.role, form.instructions),
            c.ListMembers(session, name=name),
        )
    )
    match replies:
        case (r.Issued(_, token), r.Roster(members=(presence,))):
            return s.CreatedMember(codec.member(presence.member), token)
        case _:
            raise fail(replies)


async def update(call: Call, form: s.UpdateMember) -> s.MemberShape:
    """Change what a member may do and is told; needs members.manage."""
    wanted = _name(call)
    permissions = None
    if form.permissions is not None:
        kept = await _member(call, wanted)
        own = tuple(word for word in kept.permissions if word not in TEAM_PERMISSIONS) if kept is not None else ()
        permissions = (*own, *await resolve_permissions(call, form.permissions))
    role = form.role
    title, description = (role.title, role.description) if role is not None else (None, None)
    changed = await call.get(
        lambda session: c.UpdateMember(
            session,
            name=wanted,
            permissions=permissions,
            title=title,
            description=description,
            instructions=form.instructions,
        ),
        r.MemberState,
        wanted,
    )
    return codec.member(changed.member)


async def remove(call: Call, _: None) -> None:
    """Remove a member; needs members.manage."""
    await _done(call, lambda session: c.RemoveMember(session, name=_name(call)))


async def rotate(call: Call, _: None) -> s.RotatedToken:
    """Replace all tokens of a member by a new one; for itself, or with members.manage."""
    name = _name(call)
    issued = await call.get(lambda session: c.RotateToken(session, name=name), r.Issued, name)
    call.leave()
    return s.RotatedToken(issued.token)


async def tokens(call: Call, _: None) -> s.TokenList:
    """A member's tokens that are still good; for itself, or with members.manage."""
    name = _name(call)
    found = await call.get(lambda session: c.ListTokens(session, name=name), r.Tokens, name)
    return s.TokenList([codec.token(name, token) for token in found.tokens])


async def issue(call: Call, form: s.CreateToken | None) -> s.CreatedToken:
    """Give a member one more token; for itself, or with members.manage."""
    form = form or s.CreateToken()
    label, expires = form.label, form.expires_at
    name = _name(call)
    issued = await call.get(
        lambda session: c.IssueToken(session, name=name, label=label, expires_at_ms=expires), r.TokenIssued, name
    )
    return s.CreatedToken(issued.token, codec.token(name, issued.view))


async def revoke(call: Call, _: None) -> None:
    """Void a token; sessions that it opened end."""
    await _done(call, lambda session: c.RevokeToken(session, name=_name(call), token_id=call.params["id"]))
    call.leave()


# Helpers.


def _name(call: Call) -> MemberName:
    return MemberName(call.params["name"])


async def _done(call: Call, make: Callable[[SessionId], c.Command]) -> None:
    await call.get(make, r.Done, call.params.get("name", ""))


async def _member(call: Call, wanted: MemberName) -> Member | None:
    roster = await call.get(lambda session: c.ListMembers(session, name=wanted), r.Roster)
    return next((presence.member for presence in roster.members if presence.member.name == wanted), None)


def adding(
    session: SessionId, name: MemberName, permissions: tuple[str, ...], role: s.Role, instructions: str
) -> c.AddMember:
    """Return the command that creates a member with these details."""
    return c.AddMember(
        session,
        name=name,
        permissions=permissions,
        title=role.title,
        description=role.description,
        instructions=instructions,
    )


async def resolve_permissions(call: Call, given: tuple[str, ...] | str) -> tuple[str, ...]:
    """Return the permissions for these words. A word is a permission or the name of a preset."""
    words = (given,) if isinstance(given, str) else given
    if all(word in TEAM_PERMISSIONS for word in words):
        return words
    presets = (await call.get(c.ReadTeam, r.TeamState)).team.presets
    unknown = next((word for word in words if word not in TEAM_PERMISSIONS and word not in presets), None)
    if unknown is not None:
        raise Refused(no(400, f"there is no permission or preset {unknown[:EXCERPT]!r}"))
    found = [one for word in words for one in presets.get(word, (word,))]
    return tuple(dict.fromkeys(word for word in found if word in TEAM_PERMISSIONS))
