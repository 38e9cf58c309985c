"""Checks of the members of a running hub: their connections, and waiting messages that nobody reads.

Used by: `doctor`. Uses: an operator's session, which asks and changes nothing.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tieline.cli.doctor_finding import DoctorFinding, note, well, wrong
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.member import ROOM_INVITATION
from tieline.contract.reach import Way

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tieline.client import InvitationView, MemberView, Reach

_PATIENCE_MS = 3600 * 1000
"""Milliseconds for which an agent with waiting messages may be disconnected before the doctor reports it."""
_NEARLY_FULL = 0.9


def look_at_members(
    members: "tuple[MemberView, ...]", backlog_max: int = DEFAULT_LIMITS.backlog_max
) -> Iterator[DoctorFinding]:
    """Yield findings about members with too many waiting messages, and members who are away while messages wait.

    A member has too many if the number of its waiting messages is near `backlog_max`, the limit of the hub.
    """
    now_ms = time.time_ns() // 1_000_000
    connected = sum(bool(member.sessions) for member in members)
    yield well("members", f"{len(members)} {'member' if len(members) == 1 else 'members'}, {connected} connected")
    for member in members:
        here = f"tieline inbox --as {member.name}"
        away_ms = now_ms - (member.last_seen_ms or member.created_at_ms)
        if member.backlog >= _NEARLY_FULL * backlog_max:
            what = f"{member.backlog} messages wait for {member.name}, and {backlog_max} is the limit"
            why = "above the limit, messages to it are refused"
            yield wrong("members", what, why, f"tieline drain --as {member.name}, or {here} to look first")
        elif member.backlog and not member.sessions and away_ms > _PATIENCE_MS:
            many = "message waits" if member.backlog == 1 else "messages wait"
            seen = "was never here" if member.last_seen_ms is None else f"was last here {_ago(away_ms)} ago"
            what = f"{member.backlog} {many} for {member.name}, who is not connected and {seen}"
            why = "nobody reads them, and the senders do not know that"
            do = f"{here}; start its agent, or 'tieline member remove {member.name}' if it is gone for good"
            yield wrong("members", what, why, do)


def look_at_invitations(invitations: "Sequence[InvitationView]") -> Iterator[DoctorFinding]:
    """Yield a note about invitations that never expire: whoever learns such an invitation can join at any time."""
    # Every hub has a room token, so it needs no advice.
    if any(one.id == ROOM_INVITATION for one in invitations):
        yield well("members", "whoever knows the room token can join; 'tieline invite rotate' replaces it")
    endless = [one.id for one in invitations if one.expires_at_ms is None and one.id != ROOM_INVITATION]
    if endless:
        what = "1 invitation has no end" if len(endless) == 1 else f"{len(endless)} invitations have no end"
        yield note("members", f"{what}: {', '.join(endless)}", "tieline invite list, then tieline invite revoke ID")


def look_at_ways(reaches: "Mapping[str, Reach]", *, notifies: bool) -> Iterator[DoctorFinding]:
    """Yield findings about members whom `notify` (a command for a human) should reach, if no command is configured.

    `reaches` has the ways (methods to show a message) of each member. `notifies` is true if a command is configured.
    """
    for name, reach in reaches.items():
        if any(leg.way is Way.NOTIFY for leg in reach.legs) and not reach.notify and not notifies:
            what = f"{name} is to be reached by notify, but the hub has no command for that any more"
            why = "no human is notified of messages that it does not see"
            do = f"name one under [notify] in tieline.toml, or a member: 'tieline member reach {name} --help'"
            yield wrong("members", what, why, do)


def ways(members: "tuple[MemberView, ...]", reaches: "Mapping[str, Reach]") -> Iterator[DoctorFinding]:
    """Yield a finding for each member: its connections, and the ways (push, hook…) by which messages reach it."""
    for member in members:
        legs = [f"{leg.way.value} ({leg.wait_ms / 1000:g} s)" for leg in reaches[member.name].legs]
        if not member.sessions and not legs:
            continue
        by = f"connected by {', '.join(sorted(set(member.sessions)))}" if member.sessions else "not connected"
        yield well("members", f"{member.name}: {by}{'; reached by ' if legs else ''}{', then '.join(legs)}")


def _ago(away_ms: int) -> str:
    hours = away_ms // 3_600_000
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"  # noqa: PLR2004 - two days
