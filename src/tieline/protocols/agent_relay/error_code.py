"""The codes of ERROR and NACK frames, and a table that translates the hub's refusals to these codes."""

from enum import StrEnum

from tieline.contract.refusal import Code


class ErrorCode(StrEnum):
    """The codes that an ERROR or NACK frame from the hub can have."""

    # gap 3: the specification has only STALE (spec 8); the SDK knows some of the others.
    BAD_REQUEST = "BAD_REQUEST"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    CONFLICT = "CONFLICT"
    TOO_LARGE = "TOO_LARGE"
    BUSY = "BUSY"
    LOOP = "LOOP"
    HELD = "HELD"
    STALE = "STALE"
    TIMEOUT = "TIMEOUT"
    RESUME_TOO_OLD = "RESUME_TOO_OLD"
    DUPLICATE_CONNECTION = "DUPLICATE_CONNECTION"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    INTERNAL = "INTERNAL"


ERROR_CODES: dict[Code, ErrorCode] = {
    Code.INVALID_NAME: ErrorCode.BAD_REQUEST,
    Code.RESERVED_NAME: ErrorCode.FORBIDDEN,
    Code.NAME_TAKEN: ErrorCode.UNAUTHORIZED,
    Code.UNKNOWN_MEMBER: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_CHANNEL: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_MESSAGE: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_SESSION: ErrorCode.UNAUTHORIZED,
    Code.UNKNOWN_OBJECTIVE: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_LOG: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_TOKEN: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_INVITATION: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_READER: ErrorCode.NOT_FOUND,
    Code.INVALID_TARGET: ErrorCode.BAD_REQUEST,
    Code.INVALID_MESSAGE: ErrorCode.BAD_REQUEST,
    Code.INVALID_REQUEST: ErrorCode.BAD_REQUEST,
    Code.MESSAGE_TOO_LARGE: ErrorCode.TOO_LARGE,
    Code.NO_RECIPIENTS: ErrorCode.NOT_FOUND,
    Code.TOO_MANY_RECIPIENTS: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_STREAMS: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_FOLLOWED: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_OBJECTIVES: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_CHANNELS: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_TOKENS: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_INVITATIONS: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_READERS: ErrorCode.TOO_LARGE,
    Code.WRONG_EPOCH: ErrorCode.CONFLICT,
    Code.OBJECTIVE_ENDED: ErrorCode.CONFLICT,
    Code.CHANNEL_ARCHIVED: ErrorCode.NOT_FOUND,
    Code.LAST_MANAGER: ErrorCode.CONFLICT,
    Code.ACTIVITY_FULL: ErrorCode.BUSY,
    Code.UNAUTHORIZED: ErrorCode.UNAUTHORIZED,
    Code.FORBIDDEN: ErrorCode.FORBIDDEN,
    Code.WIRE_ID_REUSED: ErrorCode.CONFLICT,
    Code.LOOP_DETECTED: ErrorCode.LOOP,
    Code.THREAD_PAUSED: ErrorCode.LOOP,
    Code.BACKLOG_FULL: ErrorCode.BUSY,
    Code.TAKEN_OVER: ErrorCode.DUPLICATE_CONNECTION,
    Code.RESUME_REFUSED: ErrorCode.RESUME_TOO_OLD,
    Code.NEVER_ACKNOWLEDGED: ErrorCode.FORBIDDEN,
    Code.CANNOT_SIGN: ErrorCode.FORBIDDEN,
    Code.STORE_FAILED: ErrorCode.INTERNAL,
    Code.INTERNAL_ERROR: ErrorCode.INTERNAL,
    Code.SHUTTING_DOWN: ErrorCode.SHUTTING_DOWN,
}
"""For each code of the hub's refusals, the code of the ERROR or NACK frame that the client gets."""
