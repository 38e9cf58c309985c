"""Strict decoder of answers, like the protocol's existing clients: no key may be missing, and none may be added.

The shapes do not use the hub's own types. `shapes` has the keys that clients expect, so that a renamed or missing key
of the hub fails here. `read` checks every answer that a test gets.
"""

import re
from typing import Any

import msgspec

from tests.protocols.ac7.conformance.shapes.activity import ActivityList, ActivityRow, Uploaded
from tests.protocols.ac7.conformance.shapes.channels import Channel, ChannelAnswer, ChannelList
from tests.protocols.ac7.conformance.shapes.closed import Failure, Health
from tests.protocols.ac7.conformance.shapes.files import Entries, EntryAnswer, Written
from tests.protocols.ac7.conformance.shapes.logins import Approved, Login, Pending, Polled, Secret, Started
from tests.protocols.ac7.conformance.shapes.members import (
    CreatedMember,
    CreatedToken,
    DeletedPreset,
    Member,
    MemberList,
    NewToken,
    PresetAnswer,
    Presets,
    Roster,
    TeamAnswer,
    TokenList,
)
from tests.protocols.ac7.conformance.shapes.messages import History, Message, Pushed
from tests.protocols.ac7.conformance.shapes.objectives import Briefing, Objective, ObjectiveAnswer, ObjectiveList


class _Anything:
    """Marker for an answer whose form is not checked here, because another document describes it."""


ANYTHING = _Anything
NOTHING = None

SHAPES: dict[tuple[str, str], Any] = {
    ("POST", "/push"): Pushed,
    ("GET", "/history"): History,
    ("GET", "/roster"): Roster,
    ("GET", "/briefing"): Briefing,
    ("GET", "/instructions"): ANYTHING,
    ("POST", "/presence/busy"): NOTHING,
    ("POST", "/presence/activity"): NOTHING,
    ("GET", "/members"): MemberList,
    ("POST", "/members"): CreatedMember,
    ("PATCH", "/members/{name}"): Member,
    ("DELETE", "/members/{name}"): NOTHING,
    ("POST", "/members/{name}/rotate-token"): NewToken,
    ("GET", "/members/{name}/tokens"): TokenList,
    ("POST", "/members/{name}/tokens"): CreatedToken,
    ("DELETE", "/members/{name}/tokens/{id}"): NOTHING,
    ("POST", "/members/{name}/activity"): Uploaded,
    ("GET", "/members/{name}/activity"): ActivityList,
    ("POST", "/members/{name}/enroll-totp"): Secret,
    ("GET", "/fs/ls"): Entries,
    ("GET", "/fs/stat"): EntryAnswer,
    ("GET", "/fs/read/{path}"): ANYTHING,
    ("POST", "/fs/write"): Written,
    ("POST", "/fs/mkdir"): EntryAnswer,
    ("DELETE", "/fs/rm"): NOTHING,
    ("POST", "/fs/mv"): EntryAnswer,
    ("GET", "/fs/shared"): Entries,
    ("GET", "/fs/all"): Entries,
    ("POST", "/enroll"): Started,
    ("GET", "/enroll"): ANYTHING,
    ("POST", "/enroll/poll"): Polled,
    ("GET", "/enroll/pending"): Pending,
    ("POST", "/enroll/approve"): Approved,
    ("POST", "/enroll/reject"): NOTHING,
    ("POST", "/session/totp"): Login,
    ("GET", "/session"): Login,
    ("POST", "/session/logout"): NOTHING,
    ("GET", "/team"): TeamAnswer,
    ("PATCH", "/team"): TeamAnswer,
    ("GET", "/team/presets"): Presets,
    ("PUT", "/team/presets/{name}"): PresetAnswer,
    ("DELETE", "/team/presets/{name}"): DeletedPreset,
    ("GET", "/channels"): ChannelList,
    ("POST", "/channels"): Channel,
    ("GET", "/channels/{slug}"): ChannelAnswer,
    ("PATCH", "/channels/{slug}"): Channel,
    ("DELETE", "/channels/{slug}"): Channel,
    ("POST", "/channels/{slug}/members"): ChannelAnswer,
    ("DELETE", "/channels/{slug}/members/{name}"): ChannelAnswer,
    ("GET", "/objectives"): ObjectiveList,
    ("POST", "/objectives"): Objective,
    ("GET", "/objectives/{id}"): ObjectiveAnswer,
    ("PATCH", "/objectives/{id}"): Objective,
    ("POST", "/objectives/{id}/complete"): Objective,
    ("POST", "/objectives/{id}/cancel"): Objective,
    ("POST", "/objectives/{id}/reassign"): Objective,
    ("POST", "/objectives/{id}/watchers"): Objective,
    ("POST", "/objectives/{id}/discuss"): Message,
    ("POST", "/otlp/v1/logs"): ANYTHING,
    ("POST", "/otlp/v1/traces"): ANYTHING,
    ("GET", "/healthz"): Health,
}
"""Expected shape of the answer of each route."""

_OPEN = [
    (method, re.compile(re.sub(r"\{\w+\}", "[^/]+", path) + r"\Z"), shape) for (method, path), shape in SHAPES.items()
]
_REFUSAL = 400
_NOT_FOUND = "404 Not Found"
_TELEMETRY = "/otlp/"
"""Beginning of the paths of OpenTelemetry, which describes their answers itself."""


def read(method: str, target: str, status: int, text: str) -> None:
    """Check that clients can decode an answer to a request. `target` is the path with its query."""
    path = target.partition("?")[0]
    if path.startswith(_TELEMETRY):
        return
    if status >= _REFUSAL:
        if text != _NOT_FOUND:
            msgspec.json.decode(text, type=Failure)
        return
    for known, pattern, shape in _OPEN:
        if known == method and pattern.match(path):
            if shape is NOTHING:
                assert not text, (method, path, text)
            elif shape is not ANYTHING:
                msgspec.json.decode(text, type=shape)
            return


def read_message(text: str | bytes) -> None:
    """Check that the data of a stream's event is a valid message."""
    msgspec.json.decode(text, type=Message)


def read_activity(text: str | bytes) -> None:
    """Check that the data of an activity stream's event is a valid row."""
    msgspec.json.decode(text, type=ActivityRow)
