"""The briefing: the texts by which an agent learns how to work with its team.

Used by: the routes and streams, which send these texts. An agent gets the instructions when it starts, and a notice
each time its stream opens. The instructions are written for a model, because the agent's runner puts them into the
agent's prompt.
"""

from collections.abc import Sequence

from tieline.contract.member import Member
from tieline.contract.objective import Status
from tieline.contract.team import Team
from tieline.protocols.ac7 import codec

NOTICE_TITLE = "ac7 session online"
"""Title of the message by which the hub tells a member that its stream is open. Clients recognize the message by this
title."""
OPEN = (Status.ACTIVE, Status.BLOCKED)
"""Statuses of open objectives: work that is neither done nor cancelled."""

# spec, The <channel> framing: the briefing tells an agent to react to such content at once, as to a prompt.
# spec, Self-echo suppression: chat from oneself does not come back, events of objectives do.
_MANNERS = """\
How messages reach you. Text inside <channel> is a message from your team. It is pushed to you as it happens: take \
it as new input and act on it at once, as on a prompt. There is no inbox. `recent` shows what was said before, or \
while nobody listened for you.

How to answer. What you print reaches nobody; only tools do. Answer on the thread that the message came on:
- dm: `send` to the member in `from`. Only the two of you see it.
- general (or primary): `broadcast`. The whole team reads it, so use `send` for what concerns one member.
- chan:<id> (or channel): `channels_post` to that channel. `channels_list` has the names.
- obj:<id>, or any message with an objective_id: `objectives_discuss` with that id. Only those who take part read \
it.
Your own messages are not shown to you again: the answer of the tool says that a message was sent. Changes of \
objectives are shown to you, also your own. Answer when somebody needs it, and not to thanks, to acknowledgements \
or to ac7, which is the hub.

How objectives go. An objective is work with an outcome, for one member, the assignee. objective_event says what \
happened to it. When you are assigned one, call `objectives_view` first: it has the whole text; its files are in \
/objectives/<id>/. Work until the outcome is true. Tell the others in its thread what they must know. If you cannot \
go on, call `objectives_update` with the status blocked and the reason, and with active when you can again. When \
the outcome is true, call `objectives_complete` with a result that says how to check it. That ends the objective \
for everybody. If it is cancelled, or reassigned to another, stop. `objectives_list` has your open objectives at \
any time, also after your context was shortened."""


def instructions(kept: Member, about: Team, teammates: Sequence[Member], open_count: int) -> str:
    """Return the instructions that a member gets at its start, as one text for its prompt.

    `kept` is the member, `about` is its team, and `teammates` are the other members. `open_count` is the number of the
    member's objectives that are not done.
    """
    shown = codec.team(about)
    others = "\n".join(
        f"- {other.name}: {codec.role(other).title}{f' ({other.description})' if other.description else ''}"
        for other in teammates
    )
    parts = [
        f"You are {kept.name}, {codec.role(kept).title} on the team {shown.name}.",
        kept.description,
        f"Directive: {shown.directive}",
        shown.context,
        f"Your team:\n{others}" if others else "",
        f"You have {_count(open_count, 'open objective')}." if open_count else "",
        _MANNERS,
        kept.instructions,
    ]
    return "\n\n".join(part for part in parts if part)


def notice(member: str, open_count: int, missed: int) -> str:
    """Return the text of the notice that a member's stream is open.

    `open_count` is the number of the member's objectives that are not done. `missed` is the number of messages that
    were never shown to the member.
    """
    shows = f"; `recent` shows {'it' if missed == 1 else 'them'}" if missed else ""
    parts = [
        f"{member} is connected. This is a notice of the hub: it needs no answer.",
        f"You have {_count(open_count, 'open objective')}.",
        f"{_count(missed, 'message').capitalize()} came while nobody listened{shows}.",
    ]
    return " ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
