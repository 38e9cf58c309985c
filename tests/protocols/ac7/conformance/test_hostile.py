"""Tests of hostile requests: each answer names the mistake, and none causes an error in the hub's log."""

import json
import logging
from typing import Any

import pytest

from tests.protocols.ac7.teams import Team

DEEP = "[" * 5000 + "]" * 5000
REFUSED: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/push", b'{"body":"\\ud800"}'),
    ("POST", "/push", b'{"body":"x","data":{"\\ud800":1}}'),
    ("POST", "/push", b'{"body":"\xff"}'),
    ("POST", "/push", b'\xef\xbb\xbf{"body":"x"}'),
    ("POST", "/push", b'{"body":"x","data":{"a":1e400}}'),
    ("POST", "/push", b'{"body":"x","data":{"a":NaN}}'),
    ("POST", "/push", f'{{"body":"x","data":{{"a":{DEEP}}}}}'.encode()),
    ("POST", "/push", {"body": "x", "data": {"thread": ["chan:general"]}}),
    ("POST", "/push", {"body": "x", "data": {"thread": "chan:" + "a" * 5000}}),
    ("POST", "/push", {"body": "x", "data": {"a": "y" * 2_000_000}}),
    ("POST", "/push", {"body": "x", "to": "ac7"}),
    ("GET", "/objectives/%ff%fe", None),
    ("GET", "/channels/%00", None),
    ("GET", "/history?channel=%ed%a0%80", None),
    ("GET", "/history?with=%00", None),
    ("GET", "/history?" + "&".join(f"k{number}=1" for number in range(200)), None),
    ("PATCH", "/members/%F0%9F%92%A9", {"instructions": "x"}),
    ("POST", "/objectives", {"title": " ", "outcome": "o", "assignee": "ann"}),
    ("POST", "/objectives", b'{"title":"\\ud800","outcome":"o","assignee":"ann"}'),
    ("POST", "/members/ann/activity", b'{"events":[{"kind":"objective_open","ts":1,"objectiveId":"\\ud800"}]}'),
    ("POST", "/members/ann/activity", b'{"events":[{"kind":"objective_open","ts":1,"objectiveId":"a","x":1e400}]}'),
    (
        "POST",
        "/members/ann/activity",
        f'{{"events":[{{"kind":"objective_open","ts":1,"objectiveId":"a","x":{DEEP}}}]}}'.encode(),
    ),
    ("POST", "/otlp/v1/logs", b'{"resourceLogs":5}'),
    ("POST", "/otlp/v1/traces", b"\x00"),
    ("POST", "/session/totp", b'{"code":"123456","member":"\\ud800"}'),
    ("POST", "/enroll/poll", b'{"deviceCode":"\\ud800"}'),
    ("POST", "/members/ann/tokens", {"expiresAt": 1}),
    ("POST", "/channels", {"slug": "a--b"}),
    ("POST", "/fs/write?path=/ann/a&mime=text/plain%0d%0ax:y", b"x"),
    ("POST", "/fs/write?path=/ann/%ff", b"x"),
)
ODD: tuple[Any, ...] = (
    {"body": "\u0000"},
    {"body": "x", "data": {"a": json.loads("[" * 60 + "]" * 60)}},
    {"body": "x", "data": {"event": {"kind": "completed", "objectiveId": "obj-1-1"}, "kind": "objective"}},
    {"body": ": not a comment\n\ndata: {}\r\n\r\nevent: x", "title": "a\nb"},
    {"body": "\u2028\u2029\x85"},
)
"""Bodies of `POST /push` with unusual messages that are allowed."""


async def test_whatever_is_wrong_is_answered_with_what_is_wrong_and_is_no_error_in_the_log(
    crew: Team, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    ann = await crew.seat("ann", "members.manage", "objectives.create")
    for method, path, body in REFUSED:
        reply = await ann.ask(method, path, body)
        assert 400 <= reply.status < 500, (method, path, body, reply)
    assert await ann.said() == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert "Traceback" not in capfd.readouterr().err


async def test_what_is_odd_and_allowed_arrives_as_it_was_said(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    streams = [await crew.open(bob, "sse"), await crew.open(ann, "websocket")]
    for form in ODD:
        pushed = (await ann.push(**form, to="bob"))["message"]
        assert (pushed["body"], pushed["data"]) == (form["body"], form.get("data", {}))
        for stream in streams:
            assert await stream.next() == pushed
        assert (await bob.history("?limit=1"))[-1] == pushed
