"""Exceptions: differences between the hub's own protocol and the contract, which `scripts.derive` cannot infer.

Everything else follows rules in `scripts.derive`. A new command or field needs a row here only if it is an exception.
"""

from msgspec import Struct

from tieline.contract import activity, delivery, event, member, message, objective, team
from tieline.contract import command as c
from tieline.contract import reply as r

RENAMED = {
    "message_id": "id",
    "objective_id": "id",
    "token_id": "id",
    "invitation_id": "id",
    "ranges": "keys",
    "stream_seq": "seq",
    "conversation": "thread",
    "delivery": "item",
    "deliveries": "items",
    "end": "next",
}
"""Fields of the contract that have another name in frames."""

ON_THE_WIRE = {"sender": "from"}
"""Fields whose name on the wire is not allowed as a field name in Python."""


class Asked(Struct, frozen=True):
    """Exceptions of one request."""

    tag: str | None = None
    answered: str = ""
    """Text after `Answered by …` in the request's description."""
    order: tuple[str, ...] = ()
    """Names of fields on the wire in this order; others follow. Keeps the bytes of existing clients the same."""
    without: tuple[str, ...] = ()
    computed: dict[str, str] = {}
    """Values of fields that are not on the wire."""
    method: str | None = None
    """Name of the SDK's method; empty if the method is written by hand."""
    positional: int = 0
    """Number of parameters that the method takes by position, if more than those without a default."""
    returns: str | None = None
    """The field of the answer that the method returns."""


_SAID = (
    "target",
    "body",
    "data",
    "title",
    "level",
    "priority",
    "kind",
    "topic",
    "scope",
    "thread",
    "reply_to",
    "refs",
    "attachments",
    "ttl_ms",
)

REQUESTS: dict[type[Struct], Asked] = {
    # Only the hub writes notes: they name what it could not translate.
    c.Send: Asked(answered=" once it is durable", order=(*_SAID, "wire_id", "allow_empty"), without=("notes",)),
    c.Discard: Asked(method=""),
    c.Fetch: Asked(method="inbox"),
    c.Follow: Asked(answered=", then `progress` frames", method=""),
    c.Subscribe: Asked(tag="sub"),
    c.Unsubscribe: Asked(tag="unsub"),
    c.ReadReceipts: Asked(method=""),
    c.ReadHistory: Asked(positional=1),
    c.ReadLog: Asked(method="read_log"),
    c.SetReach: Asked(method="reach", returns="reach"),
    # `size` is nearly the size on the wire; the wire itself counts whole batches.
    c.RecordActivity: Asked(tag="activity", computed={"size": "len(msgspec.json.encode(self.events))"}, method=""),
    c.FollowActivity: Asked(answered=", then `did` frames"),
}

ANSWERS: dict[type[Struct], tuple[str, str]] = {
    r.Fetched: ("Inbox", "inbox"),
    r.LogRows: ("Log", "log"),
    r.Channels: ("ChannelList", "channel_list"),
    r.ChannelState: ("Channel", "channel"),
    r.ObjectiveState: ("Objective", "objective"),
    r.ObjectiveView: ("ObjectiveStory", "objective_view"),
    r.MemberState: ("MemberState", "member"),
    r.ReachState: ("ReachState", "reached_by"),
    r.Tokens: ("TokenList", "token_list"),
    r.Invitations: ("InvitationList", "invitation_list"),
    r.TeamState: ("TeamState", "team"),
    r.Pauses: ("PauseList", "pause_list"),
    r.Stuck: ("StuckList", "stuck_list"),
    r.Activity: ("ActivityRows", "activity_rows"),
}
"""Names and tags of answers that differ from those of their replies."""

ANSWERED_BY_HAND = {r.Activity}
"""Answers written by hand, in `wire/native/activity.py`: events are sent as they are stored, without decoding."""


class Shown(Struct, frozen=True):
    """A part of a reply that frames show in another form. Parts without a row are shown unchanged."""

    name: str
    doc: str
    order: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    """Fields that are always written, although they have a default."""
    whole: bool = False
    """True if all fields are always written."""
    without: tuple[str, ...] = ()
    flat: str = ""
    """A field that is replaced by its own fields."""


_MEMBER = ("name", "kind", "permissions")
_MESSAGE = (
    "id",
    "offset",
    "sender",
    "target",
    "body",
    "sent_at_ms",
    "protocol",
    *_SAID[2:],
    "wire_id",
    "notes",
    "verified",
    "hops",
    "cause",
    "signature",
)
_PRESENCE = (*_MEMBER, "sessions", "backlog", "created_at_ms", "last_seen_ms")
_FILE = (*_MEMBER, "title", "description", "instructions", "created_at_ms")
_OBJECTIVE = (
    "id",
    "title",
    "outcome",
    "body",
    "status",
    "assignee",
    "originator",
    "watchers",
    "created_at_ms",
    "updated_at_ms",
    "completed_at_ms",
    "result",
    "block_reason",
    "attachments",
)

VIEWS: dict[type[Struct], Shown] = {
    message.Message: Shown("Message", "A message as clients see it.", order=_MESSAGE, flat="content"),
    delivery.Delivery: Shown("Item", "One unsettled delivery of an inbox."),
    delivery.Step: Shown("StepView", "A state that a delivery reached, with its evidence."),
    delivery.Receipt: Shown("ReceiptView", "State and steps of a message for one recipient."),
    member.Presence: Shown(
        "MemberView",
        "A member with its current state: sessions, backlog, busy or not.",
        order=_PRESENCE,
        required=_PRESENCE,
        without=("instructions",),
        flat="member",
    ),
    event.LogRow: Shown("LogRowView", "One row of a log; `event` is the text that was hashed."),
    r.ChannelView: Shown("ChannelView", "A channel, its subscribers and their roles."),
    r.SeenObjective: Shown(
        "ObjectiveView", "An objective in its current state.", order=_OBJECTIVE, required=_OBJECTIVE, whole=True
    ),
    objective.ObjectiveEvent: Shown(
        "ObjectiveEventView",
        "One entry of an objective's event log; `kind` in `what` says what happened.",
        whole=True,
    ),
    member.Member: Shown(
        "MemberFile",
        "A member with its instructions, for those who manage members.",
        order=_FILE,
        required=_FILE,
        whole=True,
    ),
    team.Team: Shown(
        "TeamView",
        "The team: its name, directive, context, presets and aliases.",
        required=("name", "directive", "context", "presets"),
        whole=True,
    ),
    # Written by hand, like the answer that holds it.
    activity.ActivityRow: Shown("ActivityView", "One activity event of a member."),
    r.Pause: Shown("PauseView", "A conversation that is paused, or whose limits are lifted.", whole=True),
    r.StuckDelivery: Shown("StuckView", "A delivery that nobody saw for a while, or that died."),
}
