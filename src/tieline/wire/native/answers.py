"""Answers of the hub's own protocol, and how they are made from replies."""

# Made from tieline.contract by `make derive` (scripts/derive.py). Do not edit.

from collections.abc import Callable
from typing import Any

from tieline.contract import reply as r
from tieline.contract.member import TokenView
from tieline.contract.reach import Reach
from tieline.contract.reader import LogState, Reader
from tieline.wire.native import views as v
from tieline.wire.native.frame import Frame


class Accepted(Frame, frozen=True, omit_defaults=True, tag="accepted"):
    """The message was accepted and is stored durably."""

    n: int
    id: str
    offset: int
    recipients: int
    duplicate: bool = False
    held: str = ""


def _accepted(n: int, reply: r.Accepted) -> Accepted:
    return Accepted(n, reply.message_id, reply.offset, reply.recipients, reply.duplicate, reply.held)


class Claimed(Frame, frozen=True, omit_defaults=True, tag="claimed"):
    """The claimed delivery; none if another session was first."""

    n: int
    item: v.Item | None = None


def _claimed(n: int, reply: r.Claimed) -> Claimed:
    return Claimed(n, v.view_delivery(reply.delivery) if reply.delivery is not None else None)


class Inbox(Frame, frozen=True, omit_defaults=True, tag="inbox"):
    """A page of the inbox."""

    n: int
    items: tuple[v.Item, ...]
    through: int
    complete: bool
    held: int = 0
    held_in: tuple[str, ...] = ()


def _inbox(n: int, reply: r.Fetched) -> Inbox:
    return Inbox(
        n, tuple(map(v.view_delivery, reply.deliveries)), reply.through, reply.complete, reply.held, reply.held_in
    )


class Receipts(Frame, frozen=True, omit_defaults=True, tag="receipts"):
    """Receipts of a message, one per recipient, sorted by name."""

    n: int
    id: str
    receipts: tuple[v.ReceiptView, ...]
    more: bool = False


def _receipts(n: int, reply: r.Receipts) -> Receipts:
    return Receipts(n, reply.message_id, tuple(map(v.view_receipt, reply.receipts)), reply.more)


class Issued(Frame, frozen=True, omit_defaults=True, tag="issued"):
    """A new token, shown only once."""

    n: int
    member: str
    token: str


def _issued(n: int, reply: r.Issued) -> Issued:
    return Issued(n, reply.member, reply.token)


class Roster(Frame, frozen=True, omit_defaults=True, tag="roster"):
    """All members, by name."""

    n: int
    members: tuple[v.MemberView, ...]


def _roster(n: int, reply: r.Roster) -> Roster:
    return Roster(n, tuple(map(v.view_presence, reply.members)))


class History(Frame, frozen=True, omit_defaults=True, tag="history"):
    """Messages, newest first."""

    n: int
    messages: tuple[v.Message, ...]


def _history(n: int, reply: r.History) -> History:
    return History(n, tuple(map(v.view_message, reply.messages)))


class Log(Frame, frozen=True, omit_defaults=True, tag="log"):
    """Consecutive rows of a log. The next read starts at `next`."""

    n: int
    rows: tuple[v.LogRowView, ...]
    next: int
    epoch: str = ""
    kept_from: int = 0


def _log(n: int, reply: r.LogRows) -> Log:
    return Log(n, tuple(map(v.view_log_row, reply.rows)), reply.next, reply.epoch, reply.kept_from)


class Readers(Frame, frozen=True, omit_defaults=True, tag="readers"):
    """The logs, and the readers for which the hub keeps their rows."""

    n: int
    logs: tuple[LogState, ...]
    readers: tuple[Reader, ...]


def _readers(n: int, reply: r.Readers) -> Readers:
    return Readers(n, reply.logs, reply.readers)


class ReaderState(Frame, frozen=True, omit_defaults=True, tag="reader_state"):
    """A reader of a log after a change, and the log."""

    n: int
    reader: Reader
    log: LogState


def _reader_state(n: int, reply: r.ReaderState) -> ReaderState:
    return ReaderState(n, reply.reader, reply.log)


class Done(Frame, frozen=True, omit_defaults=True, tag="done"):
    """The command was carried out."""

    n: int


def _done(n: int, reply: r.Done) -> Done:
    return Done(n)


class ChannelList(Frame, frozen=True, omit_defaults=True, tag="channel_list"):
    """All channels, by name."""

    n: int
    channels: tuple[v.ChannelView, ...]


def _channel_list(n: int, reply: r.Channels) -> ChannelList:
    return ChannelList(n, tuple(map(v.view_channel_view, reply.channels)))


class Channel(Frame, frozen=True, omit_defaults=True, tag="channel"):
    """A channel, as it is after the command."""

    n: int
    channel: v.ChannelView


def _channel(n: int, reply: r.ChannelState) -> Channel:
    return Channel(n, v.view_channel_view(reply.channel))


class Objective(Frame, frozen=True, omit_defaults=True, tag="objective"):
    """An objective, as it is after the command."""

    n: int
    objective: v.ObjectiveView


def _objective(n: int, reply: r.ObjectiveState) -> Objective:
    return Objective(n, v.view_seen_objective(reply.objective))


class ObjectiveList(Frame, frozen=True, omit_defaults=True, tag="objective_list"):
    """Objectives, newest first."""

    n: int
    objectives: tuple[v.ObjectiveView, ...]
    complete: bool


def _objective_list(n: int, reply: r.ObjectiveList) -> ObjectiveList:
    return ObjectiveList(n, tuple(map(v.view_seen_objective, reply.objectives)), reply.complete)


class ObjectiveStory(Frame, frozen=True, omit_defaults=True, tag="objective_view"):
    """An objective with its event log, oldest first."""

    n: int
    objective: v.ObjectiveView
    events: tuple[v.ObjectiveEventView, ...]
    complete: bool


def _objective_story(n: int, reply: r.ObjectiveView) -> ObjectiveStory:
    return ObjectiveStory(
        n, v.view_seen_objective(reply.objective), tuple(map(v.view_objective_event, reply.events)), reply.complete
    )


class MemberState(Frame, frozen=True, omit_defaults=True, tag="member"):
    """A member, as it is after the command."""

    n: int
    member: v.MemberFile


def _member_state(n: int, reply: r.MemberState) -> MemberState:
    return MemberState(n, v.view_member(reply.member))


class ReachState(Frame, frozen=True, omit_defaults=True, tag="reached_by"):
    """The ways to reach a member, after the command."""

    n: int
    member: str
    reach: Reach


def _reach_state(n: int, reply: r.ReachState) -> ReachState:
    return ReachState(n, reply.member, reply.reach)


class TokenIssued(Frame, frozen=True, omit_defaults=True, tag="token_issued"):
    """One more token, shown only once."""

    n: int
    member: str
    token: str
    view: TokenView


def _token_issued(n: int, reply: r.TokenIssued) -> TokenIssued:
    return TokenIssued(n, reply.member, reply.token, reply.view)


class TokenList(Frame, frozen=True, omit_defaults=True, tag="token_list"):
    """Tokens of a member, oldest first."""

    n: int
    tokens: tuple[TokenView, ...]


def _token_list(n: int, reply: r.Tokens) -> TokenList:
    return TokenList(n, reply.tokens)


class TeamState(Frame, frozen=True, omit_defaults=True, tag="team"):
    """The team, as it is after the command."""

    n: int
    team: v.TeamView


def _team_state(n: int, reply: r.TeamState) -> TeamState:
    return TeamState(n, v.view_team(reply.team))


class PauseList(Frame, frozen=True, omit_defaults=True, tag="pause_list"):
    """Conversations that are paused, or in which agents may answer each other without limit."""

    n: int
    pauses: tuple[v.PauseView, ...]


def _pause_list(n: int, reply: r.Pauses) -> PauseList:
    return PauseList(n, tuple(map(v.view_pause, reply.pauses)))


class Recorded(Frame, frozen=True, omit_defaults=True, tag="recorded"):
    """The activity is stored durably; `count` is the number of its events."""

    n: int
    count: int


def _recorded(n: int, reply: r.Recorded) -> Recorded:
    return Recorded(n, reply.count)


AnyAnswer = (
    Accepted
    | Claimed
    | Inbox
    | Receipts
    | Issued
    | Roster
    | History
    | Log
    | Readers
    | ReaderState
    | Done
    | ChannelList
    | Channel
    | Objective
    | ObjectiveList
    | ObjectiveStory
    | MemberState
    | ReachState
    | TokenIssued
    | TokenList
    | TeamState
    | PauseList
    | Recorded
)


ANSWERS: dict[type, Callable[[int, Any], AnyAnswer]] = {
    r.Accepted: _accepted,
    r.Claimed: _claimed,
    r.Fetched: _inbox,
    r.Receipts: _receipts,
    r.Issued: _issued,
    r.Roster: _roster,
    r.History: _history,
    r.LogRows: _log,
    r.Readers: _readers,
    r.ReaderState: _reader_state,
    r.Done: _done,
    r.Channels: _channel_list,
    r.ChannelState: _channel,
    r.ObjectiveState: _objective,
    r.ObjectiveList: _objective_list,
    r.ObjectiveView: _objective_story,
    r.MemberState: _member_state,
    r.ReachState: _reach_state,
    r.TokenIssued: _token_issued,
    r.Tokens: _token_list,
    r.TeamState: _team_state,
    r.Pauses: _pause_list,
    r.Recorded: _recorded,
}
"""Makes the answer with a number from a reply."""
