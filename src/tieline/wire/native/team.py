"""The team in the hub's own protocol: members, their tokens, what is said about them; and the contract of that."""

from typing import assert_never

from msgspec import Struct, field

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import Member, MemberKind, TokenView
from tieline.contract.reach import Reach
from tieline.contract.team import Team
from tieline.wire.native.frame import Frame, Number

# What a client says.


class UpdateMember(Frame, frozen=True, omit_defaults=True, tag="update_member"):
    """Change what a member may do and what it is told; what is left out stays. Answered by `member`."""

    n: int
    name: str
    permissions: tuple[str, ...] | None = None
    title: str | None = None
    description: str | None = None
    instructions: str | None = None
    kind: MemberKind | None = None


class SetReach(Frame, frozen=True, omit_defaults=True, tag="reach"):
    """Say in which ways a member is to be reached, or ask, by leaving `reach` out. Answered by `reached_by`."""

    n: int
    name: str
    reach: Reach | None = None


class SetBusy(Frame, frozen=True, omit_defaults=True, tag="busy"):
    """Say that the member is at work, which counts for a while, or is not. Answered by `done`."""

    n: int
    busy: bool = True


class IssueToken(Frame, frozen=True, omit_defaults=True, tag="issue_token"):
    """Give a member one more token. Answered by `token_issued`."""

    n: int
    name: str
    label: str = ""
    expires_at_ms: Number | None = None
    token: str | None = None


class ListTokens(Frame, frozen=True, omit_defaults=True, tag="tokens"):
    """Answered by `token_list`."""

    n: int
    name: str


class RevokeToken(Frame, frozen=True, omit_defaults=True, tag="revoke_token"):
    """Void one token. Answered by `done`."""

    n: int
    name: str
    id: str


class ReadTeam(Frame, frozen=True, omit_defaults=True, tag="read_team"):
    """Answered by `team`."""

    n: int


class UpdateTeam(Frame, frozen=True, omit_defaults=True, tag="update_team"):
    """Change what is said about the team; what is left out stays. Answered by `team`."""

    n: int
    name: str | None = None
    directive: str | None = None
    context: str | None = None
    presets: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    aliases: dict[str, str | None] = field(default_factory=dict)
    """Other names for members, by alias; `null` forgets one."""


class ListPauses(Frame, frozen=True, omit_defaults=True, tag="pauses"):
    """Answered by `pause_list`."""

    n: int


class AllowThread(Frame, frozen=True, omit_defaults=True, tag="allow_thread"):
    """Lift the limits of the loop rule for a conversation for a while, and end its pause. Answered by `done`."""

    n: int
    thread: str
    for_ms: Number | None = None
    """Two hours, unless the hub's configuration says something else."""


Request = (
    UpdateMember
    | SetReach
    | SetBusy
    | IssueToken
    | ListTokens
    | RevokeToken
    | ReadTeam
    | UpdateTeam
    | ListPauses
    | AllowThread
)


# What the hub says.


class MemberFile(Struct, frozen=True):
    """What is known of a member, to those who manage members."""

    name: str
    kind: str
    permissions: tuple[str, ...]
    title: str
    description: str
    instructions: str
    created_at_ms: int


class MemberState(Frame, frozen=True, omit_defaults=True, tag="member"):
    """A member as it is after what was asked."""

    n: int
    member: MemberFile


class ReachState(Frame, frozen=True, omit_defaults=True, tag="reached_by"):
    """In which ways a member is to be reached."""

    n: int
    member: str
    reach: Reach


class TokenIssued(Frame, frozen=True, omit_defaults=True, tag="token_issued"):
    """One more token, shown this once."""

    n: int
    member: str
    token: str
    view: TokenView


class TokenList(Frame, frozen=True, omit_defaults=True, tag="token_list"):
    """Tokens of a member, oldest first."""

    n: int
    tokens: tuple[TokenView, ...]


class TeamView(Struct, frozen=True):
    """What is said about the team."""

    name: str
    directive: str
    context: str
    presets: dict[str, tuple[str, ...]]
    aliases: dict[str, str] = field(default_factory=dict)


class TeamState(Frame, frozen=True, omit_defaults=True, tag="team"):
    """The team as it is after what was asked."""

    n: int
    team: TeamView


class PauseView(Struct, frozen=True):
    """A conversation that is paused, or whose limits are lifted."""

    thread: str
    until_ms: int
    """When it ends; of one that the hub held for its hops, when the next message passes."""
    by: str = ""
    """Who said so; empty if the hub did."""
    held: int = 0
    """Deliveries that wait for its end."""
    reason: str = ""
    allowed: bool = False
    """Whether its limits are lifted, and nothing is held."""


class PauseList(Frame, frozen=True, omit_defaults=True, tag="pause_list"):
    """Conversations that are paused, or whose limits are lifted."""

    n: int
    pauses: tuple[PauseView, ...]


Answer = MemberState | ReachState | TokenIssued | TokenList | TeamState | PauseList


# Between both and the contract.


def command_of(frame: Request, session: SessionId) -> c.Command:
    """What a frame asks of the hub."""
    match frame:
        case UpdateMember():
            about = (frame.permissions, frame.title, frame.description, frame.instructions, frame.kind)
            return c.UpdateMember(session, MemberName(frame.name), *about)
        case SetReach():
            return c.SetReach(session, MemberName(frame.name), frame.reach)
        case SetBusy():
            return c.SetBusy(session, frame.busy)
        case ListPauses():
            return c.ListPauses(session)
        case AllowThread():
            return c.AllowThread(session, frame.thread, frame.for_ms)
        case IssueToken():
            name = MemberName(frame.name)
            return c.IssueToken(session, name, frame.label, frame.expires_at_ms, frame.token)
        case ListTokens():
            return c.ListTokens(session, MemberName(frame.name))
        case RevokeToken():
            return c.RevokeToken(session, MemberName(frame.name), frame.id)
        case ReadTeam():
            return c.ReadTeam(session)
        case UpdateTeam():
            return c.UpdateTeam(session, frame.name, frame.directive, frame.context, frame.presets, frame.aliases)
        case _:
            assert_never(frame)


def answer_of(
    n: int, reply: r.MemberState | r.ReachState | r.TokenIssued | r.Tokens | r.TeamState | r.Pauses
) -> Answer:
    """What the hub answers."""
    match reply:
        case r.MemberState():
            return MemberState(n, _file(reply.member))
        case r.ReachState():
            return ReachState(n, reply.member, reply.reach)
        case r.TokenIssued():
            return TokenIssued(n, reply.member, reply.token, reply.view)
        case r.Tokens():
            return TokenList(n, reply.tokens)
        case r.TeamState():
            return TeamState(n, _view(reply.team))
        case r.Pauses():
            views = (
                PauseView(each.conversation, each.until_ms, each.by, each.held, each.reason, each.allowed)
                for each in reply.pauses
            )
            return PauseList(n, tuple(views))
        case _:
            assert_never(reply)


def _file(member: Member) -> MemberFile:
    about = (member.title, member.description, member.instructions)
    return MemberFile(member.name, member.kind.value, member.permissions, *about, member.created_at_ms)


def _view(team: Team) -> TeamView:
    return TeamView(team.name, team.directive, team.context, team.presets, team.aliases)
