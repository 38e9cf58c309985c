"""Refusals: every "no" of the hub, with a stable code and a sentence.

A refusal is a value, not an exception. A rule returns it, and it becomes the reply to the command. Each protocol
translates the code to its own wire format. Exceptions are only for bugs and I/O errors.
"""

from enum import StrEnum

from msgspec import Struct


class Code(StrEnum):
    """Code of a refusal, for programs. The meaning of a code never changes; a new situation gets a new code."""

    INVALID_NAME = "invalid_name"
    RESERVED_NAME = "reserved_name"
    NAME_TAKEN = "name_taken"
    UNKNOWN_MEMBER = "unknown_member"
    UNKNOWN_CHANNEL = "unknown_channel"
    UNKNOWN_MESSAGE = "unknown_message"
    UNKNOWN_SESSION = "unknown_session"
    UNKNOWN_OBJECTIVE = "unknown_objective"
    UNKNOWN_LOG = "unknown_log"
    UNKNOWN_TOKEN = "unknown_token"
    UNKNOWN_INVITATION = "unknown_invitation"
    UNKNOWN_READER = "unknown_reader"
    INVALID_TARGET = "invalid_target"
    INVALID_MESSAGE = "invalid_message"
    INVALID_REQUEST = "invalid_request"
    MESSAGE_TOO_LARGE = "message_too_large"
    NO_RECIPIENTS = "no_recipients"
    TOO_MANY_RECIPIENTS = "too_many_recipients"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    WIRE_ID_REUSED = "wire_id_reused"
    LOOP_DETECTED = "loop_detected"
    THREAD_PAUSED = "thread_paused"
    BACKLOG_FULL = "backlog_full"
    TOO_MANY_STREAMS = "too_many_streams"
    TOO_MANY_FOLLOWED = "too_many_followed"
    TOO_MANY_OBJECTIVES = "too_many_objectives"
    TOO_MANY_CHANNELS = "too_many_channels"
    TOO_MANY_TOKENS = "too_many_tokens"
    TOO_MANY_INVITATIONS = "too_many_invitations"
    TOO_MANY_READERS = "too_many_readers"
    WRONG_EPOCH = "wrong_epoch"
    OBJECTIVE_ENDED = "objective_ended"
    CHANNEL_ARCHIVED = "channel_archived"
    LAST_MANAGER = "last_manager"
    ACTIVITY_FULL = "activity_full"
    TAKEN_OVER = "taken_over"
    RESUME_REFUSED = "resume_refused"
    NEVER_ACKNOWLEDGED = "never_acknowledged"
    CANNOT_SIGN = "cannot_sign"
    STORE_FAILED = "store_failed"
    INTERNAL_ERROR = "internal_error"
    SHUTTING_DOWN = "shutting_down"


MEANINGS: dict[Code, str] = {
    Code.INVALID_NAME: "The name does not follow the rule for names.",
    Code.RESERVED_NAME: "The name is kept for the hub itself.",
    Code.NAME_TAKEN: "The name, or one that differs only in case, belongs to another credential.",
    Code.UNKNOWN_MEMBER: "No member has this name; the nearest names are suggested.",
    Code.UNKNOWN_CHANNEL: "No channel has this name; the nearest names are suggested.",
    Code.UNKNOWN_MESSAGE: "No message with this id is known to this member.",
    Code.UNKNOWN_SESSION: "The session has ended or never was.",
    Code.UNKNOWN_OBJECTIVE: "No objective with this id is known to this member.",
    Code.UNKNOWN_LOG: "There is no log of this name.",
    Code.UNKNOWN_TOKEN: "The member has no token with this id.",
    Code.UNKNOWN_INVITATION: "There is no invitation with this id.",
    Code.UNKNOWN_READER: "No reader of the logs has this name.",
    Code.INVALID_TARGET: "The target is none of @member, #channel, * and obj:<id>.",
    Code.INVALID_MESSAGE: "A field of the message is missing, of the wrong type or out of its range.",
    Code.INVALID_REQUEST: "The request is malformed or out of order.",
    Code.MESSAGE_TOO_LARGE: "The message is larger than the hub accepts.",
    Code.NO_RECIPIENTS: "The channel has no other subscribers: nothing would be delivered.",
    Code.TOO_MANY_RECIPIENTS: "The message would go to more members than the limit.",
    Code.UNAUTHORIZED: "The credential is missing, wrong, expired or revoked.",
    Code.FORBIDDEN: "The member may not do this.",
    Code.WIRE_ID_REUSED: "The sender used this wire id before, for other content.",
    Code.LOOP_DETECTED: "Not given any more: a chain of answers past the limit is held, and its messages are kept.",
    Code.THREAD_PAUSED: "Not given any more: what is said in a paused conversation is held, and delivered later.",
    Code.BACKLOG_FULL: "A recipient has too many unsettled deliveries.",
    Code.TOO_MANY_STREAMS: "A recipient has too many streams: use fewer topics.",
    Code.TOO_MANY_FOLLOWED: "Too many unsettled messages are followed.",
    Code.TOO_MANY_OBJECTIVES: "Too many objectives are open; complete or cancel some first.",
    Code.TOO_MANY_CHANNELS: "There are too many channels; archived ones count.",
    Code.TOO_MANY_TOKENS: "The member has too many tokens; revoke some first.",
    Code.TOO_MANY_INVITATIONS: "There are too many invitations; revoke some first.",
    Code.TOO_MANY_READERS: "There are too many readers of the log; forget one first.",
    Code.WRONG_EPOCH: "The log has another epoch than the reader knows: its offsets mean other rows.",
    Code.OBJECTIVE_ENDED: "The objective is done or cancelled, and changes no more.",
    Code.CHANNEL_ARCHIVED: "The channel is archived: it can be read and not written to.",
    Code.LAST_MANAGER: "Nobody else may manage members, so this one must stay able to.",
    Code.ACTIVITY_FULL: "Too much activity waits to be written; upload it again later.",
    Code.TAKEN_OVER: "A newer session of the same member took this one's place.",
    Code.RESUME_REFUSED: "The session cannot be resumed: its token is unknown, expired, used before or another's.",
    Code.NEVER_ACKNOWLEDGED: "The recipient is connected only through wires that have no acknowledgement.",
    Code.CANNOT_SIGN: "The recipient's wire takes signed messages only, and the hub has no secret to sign with.",
    Code.STORE_FAILED: "The store could not make the change durable; nothing was accepted.",
    Code.INTERNAL_ERROR: "The hub failed at this command, and took it back; nothing was accepted.",
    Code.SHUTTING_DOWN: "The hub is stopping; send again after it is back.",
}
"""One sentence for each code. The reference in the documentation is made from these sentences."""

FATAL = frozenset({Code.UNAUTHORIZED, Code.UNKNOWN_SESSION, Code.TAKEN_OVER, Code.SHUTTING_DOWN})
"""Codes of refusals after which a session cannot continue."""


class Refusal(Struct, frozen=True):
    """A refusal of the hub: a code for programs, and a sentence for people."""

    code: Code
    message: str
    near: tuple[str, ...] = ()
    """Names that the sender may have meant."""

    @property
    def hint(self) -> str:
        """Text that suggests similar names; empty if there are none. Protocols with their own texts append the hint."""
        return f"; did you mean {' or '.join(self.near)}?" if self.near else ""

    @property
    def fatal(self) -> bool:
        """True if the session that sent the refused command cannot continue."""
        return self.code in FATAL
