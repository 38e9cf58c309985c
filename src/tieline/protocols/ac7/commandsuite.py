"""CommandSuite, the successor of ac7: requests and events that only clients of CommandSuite send.

Used by: the routes of this folder. A client of CommandSuite identifies itself by a header. It uses most of ac7's routes
unchanged, so there is no second server. Where the two protocols differ, a route calls `speaks`. CommandSuite has no
written specification. The facts in this module come from its source code, version 0.7.1.
"""

from typing import Annotated, Any, Literal, get_args

from msgspec import UNSET, Meta, UnsetType

from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.trace import Count, LlmExchange, ObjectiveClose, ObjectiveOpen
from tieline.wire.route import Call

HEADER = b"x-csuite-protocol"
"""Header that every client of CommandSuite sends. Its value is the version of the protocol, which is 2."""
DEVICE_PREFIX = "csuite-dc_"
"""Prefix by which clients of CommandSuite recognize a device code. A device fetches its token with its device code."""

Word = Annotated[str, Meta(min_length=1)]


def speaks(call: Call) -> bool:
    """True if a client of CommandSuite sent the request."""
    return call.header(HEADER) is not None


class InstructionsResponse(s.Briefing, frozen=True, kw_only=True):
    """Briefing of a member, with the tools of other systems that it may use. This hub has none."""

    tool_sources: tuple[()] = ()


class PresenceActivity(s.Shape, frozen=True, kw_only=True):
    """State of an agent."""

    state: Literal["idle", "working", "blocked"]
    busy: bool | None = None

    @property
    def is_busy(self) -> bool:
        """True if the agent is busy.

        If the report has no `busy`, every state except `idle` counts as busy. A blocked agent is busy, because it waits
        in the middle of a turn.
        """
        return self.state != "idle" if self.busy is None else self.busy


# Events of an agent. A key that may be missing is left out of the event, never null.


class SessionStart(s.Shape, frozen=True, kw_only=True, tag_field="kind", tag="session_start"):
    """A runner started its agent."""

    ts: Count
    runner: Word
    runner_version: str | UnsetType = UNSET
    capture_tier: Any = UNSET


class SessionEnd(s.Shape, frozen=True, kw_only=True, tag_field="kind", tag="session_end"):
    """The agent of a runner ended."""

    ts: Count
    runner: Word
    reason: Word
    duration_ms: Count
    exit_code: int | UnsetType = UNSET
    agent_session_id: str | UnsetType = UNSET
    capture: dict[str, Any] | UnsetType = UNSET


class ToolAction(s.Shape, frozen=True, kw_only=True, tag_field="kind", tag="tool_action"):
    """The agent used a tool."""

    ts: Count
    tool_name: str
    duration_ms: float | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    query_source: str | UnsetType = UNSET
    input: Any = UNSET
    result: Any = UNSET
    is_error: bool | UnsetType = UNSET
    source: str | UnsetType = UNSET
    tool_use_id: str | UnsetType = UNSET


class UserPrompt(s.Shape, frozen=True, kw_only=True, tag_field="kind", tag="user_prompt"):
    """A person or a runner gave the agent a prompt."""

    ts: Count
    text: str
    prompt_id: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    query_source: str | UnsetType = UNSET


class ContextControl(s.Shape, frozen=True, kw_only=True, tag_field="kind", tag="context_control"):
    """Somebody asked for the agent's context to be compacted or cleared."""

    ts: Count
    request_id: str
    verb: Literal["compact", "clear"]
    outcome: Literal["applied", "declined", "unsupported", "failed"]
    requested_by: str
    detail: str | UnsetType = UNSET
    tokens: Any = UNSET


Event = SessionStart | SessionEnd | ToolAction | UserPrompt | ContextControl
"""Kinds of activity events that only CommandSuite has, and not ac7."""

KINDS = tuple(kind.__struct_config__.tag for kind in (ObjectiveOpen, ObjectiveClose, LlmExchange, *get_args(Event)))
"""Kinds of events that clients of CommandSuite know. The clients reject a list with any other kind, such as
`opaque_http`."""
