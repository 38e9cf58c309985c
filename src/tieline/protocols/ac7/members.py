"""Members: routes for the members of the team, their presence, their permissions and their tokens.

Used by: the server. Uses: the interface `contract.hub`, which checks permissions. The hub has its own permissions
besides ac7's seven. These routes never show the hub's own permissions, and leave them unchanged when a request changes
ac7's seven.
"""

from collections.abc import Callable

from msgspec import structs

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import Member
from tieline.contract.objective import Status
from tieline.contract.permission import MEMBERS_MANAGE, TEAM_PERMISSIONS
from tieline.protocols.ac7 import codec, commandsuite
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.briefing import OPEN
from tieline.protocols.ac7.briefing import instructions as composed
from tieline.protocols.ac7.streams import Streams
from tieline.wire.route import EXCERPT, NO_CONTENT, Call, Refused, Route, fail, no


class Members:
    """The HTTP operations on members."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def routes(self) -> list[Route]:
        """Return the routes for members."""
        return [
            Route("GET", "/roster", self.roster),
            Route("GET", "/briefing", briefing),
            Route("GET", "/instructions", instructions),
            Route("POST", "/presence/busy", busy, status=NO_CONTENT, bearer_only=True),
            Route("POST", "/presence/activity", presence, status=NO_CONTENT, bearer_only=True),
            Route("GET", "/members", listing),
            Route("POST", "/members", create, errors=(409,)),
            Route("PATCH", "/members/{name}", update, errors=(404, 409)),
            Route("DELETE", "/members/{name}", remove, status=NO_CONTENT, errors=(404, 409)),
            *_token_routes(),
        ]

    async def roster(self, call: Call, _: None) -> s.RosterResponse:
        """List the members of the team, and their presence."""
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
    """Read everything that the member needs to know when it starts."""
    replies = await call.ask(
        lambda session: (
            c.ListMembers(session),
            c.ReadTeam(session),
            c.ListObjectives(session, statuses=OPEN, assignee=call.member),
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
                instructions=composed(own, team, others, len(ordered)),
                team=codec.team(team),
                teammates=[codec.teammate(presence.member) for presence in members],
                open_objectives=[codec.objective(objective) for objective in ordered],
            )
        case _:
            raise fail(replies)


async def instructions(call: Call, _: None) -> commandsuite.InstructionsResponse:
    """Return the briefing of the member, for clients of CommandSuite."""
    return commandsuite.InstructionsResponse(**structs.asdict(await briefing(call, None)))


async def presence(call: Call, form: commandsuite.PresenceActivity) -> None:
    """Report the state of the member's agent, for clients of CommandSuite. The state is shown for half a minute."""
    await _done(call, lambda session: c.SetBusy(session, busy=form.is_busy))


async def busy(call: Call, form: s.BusyRequest) -> None:
    """Report that the member is busy, or not any more. A busy report expires after half a minute."""
    await _done(call, lambda session: c.SetBusy(session, busy=form.busy))


async def listing(call: Call, _: None) -> s.MemberList:
    """List all members, by name."""
    kept = [presence.member for presence in (await call.get(c.ListMembers, r.Roster)).members]
    manager = any(member.name == call.member and MEMBERS_MANAGE in member.permissions for member in kept)
    return s.MemberList([codec.listed(member, whole=manager or member.name == call.member) for member in kept])


async def create(call: Call, form: s.CreateMember) -> s.CreatedMember:
    """Create a member. Needs members.manage."""
    permissions = await permission_words(call, form.permissions)
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
    """Change a member's permissions, role or instructions. Needs members.manage."""
    wanted = _name(call)
    permissions = None
    if form.permissions is not None:
        permissions = await permission_words(call, form.permissions, await _member(call, wanted))
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
    """Remove a member. Needs members.manage."""
    await _done(call, lambda session: c.RemoveMember(session, name=_name(call)))


async def rotate(call: Call, _: None) -> s.RotatedToken:
    """Replace all tokens of a member with a new one. Allowed for the member itself, and with members.manage."""
    name = _name(call)
    issued = await call.get(lambda session: c.RotateToken(session, name=name), r.Issued, name)
    kept = await _tokens(call, name)
    call.leave()
    return s.RotatedToken(issued.token, kept[0])


async def tokens(call: Call, _: None) -> s.TokenList:
    """List a member's valid tokens. Allowed for the member itself, and with members.manage."""
    return s.TokenList(await _tokens(call, _name(call)))


async def issue(call: Call, form: s.CreateToken | None) -> s.CreatedToken:
    """Issue one more token for a member. Allowed for the member itself, and with members.manage."""
    form = form or s.CreateToken()
    label, expires = form.label, form.expires_at
    name = _name(call)
    replies = await call.ask(
        lambda session: (
            c.IssueToken(session, name=name, label=label, expires_at_ms=expires),
            c.ListMembers(session, name=name),
        )
    )
    match replies:
        case (r.TokenIssued(_, token, kept), r.Roster(members=(presence,))):
            return s.CreatedToken(token, codec.token(presence.member, kept))
        case _:
            raise fail(replies, name)


async def revoke(call: Call, _: None) -> None:
    """Revoke a token, and close the sessions that were opened with it."""
    await _done(call, lambda session: c.RevokeToken(session, name=_name(call), token_id=call.params["id"]))
    call.leave()


# Helpers.


def _name(call: Call) -> MemberName:
    return MemberName(call.params["name"])


async def _done(call: Call, make: Callable[[SessionId], c.Command]) -> None:
    await call.get(make, r.Done, call.params.get("name", ""))


async def _tokens(call: Call, name: MemberName) -> list[s.TokenShape]:
    replies = await call.ask(lambda session: (c.ListTokens(session, name=name), c.ListMembers(session, name=name)))
    match replies:
        case (r.Tokens(kept), r.Roster(members=(presence,))):
            return codec.tokens(presence.member, kept)
        case _:
            raise fail(replies, name)


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


async def permission_words(call: Call, given: tuple[str, ...] | str, kept: Member | None = None) -> tuple[str, ...]:
    """Check the permissions and preset names in `given`. Return all words that the member's record will have.

    Raises `Refused` if a word is neither an ac7 permission nor a preset. `kept` is the member that the request changes,
    or `None` for a new member. The member's own permissions that only the hub knows are added to the result, so that
    the request does not remove them. Permissions that the member has through a preset are not added.
    """
    words = (given,) if isinstance(given, str) else given
    if kept is None and all(word in TEAM_PERMISSIONS for word in words):
        return words
    team = (await call.get(c.ReadTeam, r.TeamState)).team
    unknown = next((word for word in words if word not in TEAM_PERMISSIONS and word not in team.presets), None)
    if unknown is not None:
        raise Refused(no(400, f"there is no permission or preset {unknown[:EXCERPT]!r}"))
    if kept is None:
        return words
    by_preset = team.permissions_of(kept.presets)
    own = (word for word in kept.permissions if word not in TEAM_PERMISSIONS and word not in by_preset)
    return (*own, *words)
