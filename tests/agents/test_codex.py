"""Tests of the protocol with Codex's app-server, without a process: turns are started and steered, messages are seen.

The tests set the time themselves, so nothing waits.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.agents import codex
from tieline.agents.codex import AppServerProtocol

SOON = codex.BUNDLE_SECONDS + 0.001


class Server:
    """Test double for Codex's app-server. It sends what a test wants, and collects requests and events in lists."""

    def __init__(self, **options: Any) -> None:
        self.protocol = AppServerProtocol(version="0", cwd="/there", **options)
        self.now = 100.0
        self.events: list[codex.Event] = []
        self.asked: list[dict[str, Any]] = []
        self._collect()

    def _collect(self) -> None:
        self.asked += [json.loads(line) for line in self.protocol.next_lines()]
        self.events += self.protocol.next_events()

    def say(self, **message: Any) -> None:
        self.protocol.receive_line(json.dumps(message).encode(), self.now)
        self._collect()

    def notify(self, method: str, **params: Any) -> None:
        self.say(method=method, params={"threadId": "thr", **params})

    def answer(self, **message: Any) -> None:
        """Answer the last request that the client made."""
        self.say(id=self.asked[-1]["id"], **message)

    def open(self) -> "Server":
        self.answer(result={"userAgent": "x"})
        self.answer(result={"thread": {"id": "thr"}})
        return self

    def offer(self, key: int, text: str = "") -> None:
        self.protocol.offer(key, text or f"<{key}>", self.now)
        self._collect()

    def wait(self, seconds: float = SOON) -> None:
        self.now += seconds
        self.protocol.advance(self.now)
        self._collect()

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.asked if "method" in message]

    def texts(self) -> list[str]:
        """Return the texts that the client sent to Codex as input for the model."""
        return [one["params"]["input"][0]["text"] for one in self.asked if "input" in one.get("params", {})]

    def of(self, kind: type[codex.Event]) -> list[codex.Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def show(self, text: str, **more: Any) -> None:
        """Send the notification that Codex shows a text to the model."""
        self.notify("item/started", item={"type": "userMessage", "content": [{"type": "text", "text": text}]}, **more)

    def make(self, kind: str = "agentMessage", **more: Any) -> None:
        """Send the notification that the model has made an item, such as a message."""
        self.notify("item/started", item={"type": kind}, **more)

    def turn_is_running(self, turn: str = "t1") -> None:
        """Offer a first message, and report that Codex has started a turn for it."""
        self.offer(1)
        self.wait()
        self.answer(result={"turn": {"id": turn, "status": "inProgress"}})
        self.notify("turn/started", turn={"id": turn})


@pytest.fixture
def server() -> Server:
    return Server().open()


def test_it_greets_and_opens_a_thread_before_anything_else() -> None:
    server = Server(instructions="be brief")
    server.offer(1)
    server.wait()
    assert server.methods == ["initialize"]
    server.open()
    assert server.methods[:3] == ["initialize", "initialized", "thread/start"]
    assert server.asked[2]["params"] == {"cwd": "/there", "developerInstructions": "be brief"}
    assert server.events[0] == codex.Ready("thr")
    assert "jsonrpc" not in server.asked[0]
    # A message that came before the thread was ready is handed over now.
    assert server.texts() == ["<1>"]


def test_a_thread_is_resumed_by_its_id() -> None:
    server = Server(resume="old").open()
    assert server.methods[2] == "thread/resume"
    assert server.asked[2]["params"]["threadId"] == "old"


@pytest.mark.parametrize("step", [0, 1])
def test_a_server_that_will_not_be_spoken_with_is_a_failure_with_its_reason(step: int) -> None:
    server = Server()
    if step:
        server.answer(result={})
    server.answer(error={"code": -1, "message": "log in first"})
    (failed,) = server.events
    assert isinstance(failed, codex.Failed)
    assert "log in first" in failed.reason


def test_an_idle_thread_gets_turn_start(server: Server) -> None:
    server.offer(1, "hello")
    server.wait()
    assert server.asked[-1]["method"] == "turn/start"
    assert server.asked[-1]["params"] == {"threadId": "thr", "input": [{"type": "text", "text": "hello"}]}


def test_an_active_turn_gets_turn_steer(server: Server) -> None:
    server.turn_is_running()
    server.offer(2, "more")
    server.wait()
    assert server.asked[-1]["method"] == "turn/steer"
    assert server.asked[-1]["params"]["expectedTurnId"] == "t1"
    server.answer(result={"turnId": "t1"})
    for text in ("<1>", "more"):
        server.show(text)
        server.make()
    assert server.of(codex.Seen) == [codex.Seen((1,)), codex.Seen((2,))]


def test_what_arrives_within_the_bundle_time_goes_together_and_in_order(server: Server) -> None:
    for key in (1, 2, 3):
        server.offer(key)
        server.wait(0.05)
    assert server.texts() == []
    assert server.protocol.next_timeout(server.now) == pytest.approx(0.05)
    server.wait(0.06)
    server.offer(4)
    assert server.texts() == ["<1>\n<2>\n<3>"]
    server.answer(result={"turn": {"id": "t1", "status": "inProgress"}})
    server.wait()
    assert server.texts()[1:] == ["<4>"]


def test_the_first_message_waits_until_our_tools_are_loaded(server: Server) -> None:
    server.notify("mcpServer/startupStatus/updated", name="tieline", status="starting")
    server.offer(1)
    server.wait()
    assert server.texts() == []
    server.notify("mcpServer/startupStatus/updated", name="another", status="ready")
    assert server.texts() == []
    server.notify("mcpServer/startupStatus/updated", name="tieline", status="ready")
    assert server.texts() == ["<1>"]


def test_tools_that_never_load_do_not_hold_messages_up_forever(server: Server) -> None:
    server.notify("mcpServer/startupStatus/updated", name="tieline", status="starting")
    server.offer(1)
    assert server.protocol.next_timeout(server.now) == codex.TOOLS_SECONDS
    server.wait(codex.TOOLS_SECONDS)
    assert server.texts() == ["<1>"]


def test_one_bundle_is_under_way_at_a_time_and_no_larger_than_its_limit(server: Server) -> None:
    for key in range(1, codex.BUNDLE_MAX + 3):
        server.offer(key)
    server.wait()
    server.wait(100)
    assert len(server.texts()) == 1
    assert server.texts()[0].count("\n") == codex.BUNDLE_MAX - 1
    server.answer(result={"turn": {"id": "t1", "status": "inProgress"}})
    assert server.texts()[1].count("\n") == 1


def test_a_message_is_seen_when_the_model_answers_and_settled_by_the_end_of_its_turn(server: Server) -> None:
    server.offer(1)
    server.wait()
    server.answer(result={"turn": {"id": "t1", "status": "inProgress"}})
    assert server.of(codex.Seen) == [], "the program has it, and no model was asked"
    server.show("<1>")
    assert server.of(codex.Seen) == []
    server.make("reasoning")
    assert server.of(codex.Seen) == [codex.Seen((1,))]
    assert server.of(codex.Finished) == []
    server.notify("turn/completed", turn={"id": "t1", "status": "completed"})
    assert server.of(codex.Finished) == [codex.Finished((1,))]


def test_a_steered_message_is_not_seen_by_what_the_model_made_before_it_was_shown(server: Server) -> None:
    server.turn_is_running()
    server.offer(2)
    server.wait()
    server.answer(result={"turnId": "t1"})
    server.show("<1>")
    server.make("commandExecution")
    server.notify("item/completed", item={"type": "commandExecution"})
    assert server.of(codex.Seen) == [codex.Seen((1,))]
    server.show("<2>")
    server.notify("item/completed", item={"type": "commandExecution"})
    server.make("contextCompaction")
    server.make(threadId="other")
    assert server.of(codex.Seen) == [codex.Seen((1,))]
    server.make("mcpToolCall")
    assert server.of(codex.Seen) == [codex.Seen((1,)), codex.Seen((2,))]


def test_a_message_of_a_turn_without_an_answer_is_seen_in_a_later_turn(server: Server) -> None:
    server.turn_is_running()
    server.show("<1>")
    server.notify("turn/completed", turn={"id": "t1", "status": "completed"})
    assert server.of(codex.Seen) == server.of(codex.Finished) == []
    server.make(turnId="t2")
    assert server.of(codex.Seen) == [codex.Seen((1,))]
    assert server.of(codex.Finished) == [codex.Finished((1,))]


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_turn_that_did_not_end_as_it_should_settles_nothing(server: Server, status: str) -> None:
    server.turn_is_running()
    server.notify("turn/completed", turn={"id": "t1", "status": status})
    assert server.of(codex.Finished) == []
    server.offer(2)
    server.wait()
    assert server.asked[-1]["method"] == "turn/start"


def test_a_steer_falls_back_to_a_start_when_the_turn_ended_in_between(server: Server) -> None:
    server.turn_is_running()
    server.offer(2)
    server.wait()
    server.answer(error={"code": -32600, "message": "no active turn to steer"})
    assert server.asked[-1]["method"] == "turn/start"
    assert server.texts()[-2:] == ["<2>", "<2>"]
    server.answer(result={"turn": {"id": "t2", "status": "inProgress"}})
    server.show("<2>")
    server.make()
    assert server.of(codex.Seen) == [codex.Seen((2,))]


def test_a_steer_follows_the_turn_that_runs_now(server: Server) -> None:
    server.turn_is_running()
    server.offer(2)
    server.wait()
    server.answer(error={"code": -32600, "message": "expected active turn id `t1` but found `t7`"})
    assert (server.asked[-1]["method"], server.asked[-1]["params"]["expectedTurnId"]) == ("turn/steer", "t7")
    for turn in ("t8", "t9"):
        server.answer(error={"code": -32600, "message": f"expected active turn id x but found {turn}"})
    # A thread that changes its turn faster than it can be steered is not asked forever.
    assert server.asked[-1]["method"] == "turn/start"


def test_a_turn_that_takes_no_input_is_waited_for(server: Server) -> None:
    server.turn_is_running()
    server.offer(2)
    server.wait()
    info = {"codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": "review"}}}
    server.answer(error={"code": -32600, "message": "cannot steer a review", "data": info})
    server.wait(60)
    assert server.protocol.next_timeout(server.now) is None
    assert server.asked[-1]["method"] == "turn/steer"
    server.notify("turn/completed", turn={"id": "t1", "status": "completed"})
    assert server.asked[-1]["method"] == "turn/start"


def test_a_server_that_is_overloaded_is_asked_again_later_and_given_up_in_the_end(server: Server) -> None:
    server.offer(1)
    server.wait()
    for pause in codex.RETRY_SECONDS:
        asked = len(server.asked)
        server.answer(error={"code": -32001, "message": "Server overloaded; retry later."})
        server.wait(pause - 0.01)
        assert len(server.asked) == asked
        server.wait(0.02)
        assert len(server.asked) == asked + 1
    server.answer(error={"code": -32001, "message": "Server overloaded; retry later."})
    assert server.of(codex.GivenUp) == [codex.GivenUp((1,), "Server overloaded; retry later.")]
    server.offer(2)
    server.wait()
    assert server.texts()[-1] == "<2>"


def test_a_turn_that_ended_before_its_answer_came_is_not_taken_for_active(server: Server) -> None:
    server.offer(1)
    server.wait()
    server.notify("turn/started", turn={"id": "t1"})
    server.show("<1>")
    server.make()
    server.notify("turn/completed", turn={"id": "t1", "status": "completed"})
    server.answer(result={"turn": {"id": "t1", "status": "inProgress"}})
    assert server.of(codex.Finished) == [codex.Finished((1,))]
    server.offer(2)
    server.wait()
    assert server.asked[-1]["method"] == "turn/start"


def test_a_turn_that_failed_before_its_answer_came_settles_nothing(server: Server) -> None:
    server.offer(1)
    server.wait()
    server.notify("turn/started", turn={"id": "t1"})
    server.notify("turn/completed", turn={"id": "t1", "status": "failed"})
    server.answer(result={"turn": {"id": "t1", "status": "inProgress"}})
    assert not server.of(codex.Seen)
    assert not server.of(codex.Finished)


def test_what_happens_in_other_threads_is_not_about_ours(server: Server) -> None:
    server.say(method="turn/started", params={"threadId": "other", "turn": {"id": "x"}})
    server.offer(1)
    server.wait()
    assert server.asked[-1]["method"] == "turn/start"


@pytest.mark.parametrize(
    ("method", "no", "yes"),
    [
        ("item/commandExecution/requestApproval", {"decision": "decline"}, {"decision": "accept"}),
        ("item/fileChange/requestApproval", {"decision": "decline"}, {"decision": "accept"}),
        ("execCommandApproval", {"decision": "denied"}, {"decision": "approved"}),
        ("applyPatchApproval", {"decision": "denied"}, {"decision": "approved"}),
        (
            "item/permissions/requestApproval",
            {"permissions": {}, "scope": "turn"},
            {"permissions": {"network": True}, "scope": "turn"},
        ),
    ],
)
def test_what_the_server_asks_for_is_declined_unless_its_owner_approved(
    method: str, no: dict[str, Any], yes: dict[str, Any]
) -> None:
    for approve, expected in ((False, no), (True, yes)):
        server = Server(approve=approve).open()
        server.say(method=method, id="q1", params={"command": "rm -rf x", "permissions": {"network": True}})
        assert server.asked[-1] == {"id": "q1", "result": expected}
        (asked,) = server.of(codex.Asked)
        assert isinstance(asked, codex.Asked)
        assert (asked.what, asked.granted) == ("to run 'rm -rf x'", approve)


def test_calls_of_our_own_tools_are_let_through_and_no_others(server: Server) -> None:
    for name, action in (("tieline", "accept"), ("evil", "decline")):
        params = {"serverName": name, "_meta": {"codex_approval_kind": "mcp_tool_call"}, "message": "may I"}
        server.say(method="mcpServer/elicitation/request", id=5, params=params)
        assert server.asked[-1]["result"]["action"] == action
    server.say(method="mcpServer/elicitation/request", id=6, params={"serverName": "tieline", "message": "your name?"})
    assert server.asked[-1]["result"]["action"] == "decline"


def test_a_question_that_nobody_knows_gets_an_error_not_silence(server: Server) -> None:
    server.say(method="something/new", id=9)
    assert server.asked[-1]["error"]["code"] == -32601


def test_what_the_agent_says_and_uses_is_told(server: Server) -> None:
    server.notify("item/completed", item={"type": "agentMessage", "text": "done"})
    server.notify("thread/tokenUsage/updated", turnId="t1", tokenUsage={"last": {"inputTokens": 7}})
    server.notify("error", error={"message": "usage limit"})
    assert server.events[1:] == [codex.Said("done"), codex.Used({"inputTokens": 7}, "t1"), codex.Trouble("usage limit")]


def test_an_interrupt_names_the_turn(server: Server) -> None:
    server.protocol.interrupt()
    assert server.protocol.next_lines() == []
    server.turn_is_running()
    server.protocol.interrupt()
    (line,) = server.protocol.next_lines()
    assert json.loads(line)["params"] == {"threadId": "thr", "turnId": "t1"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["thr", "t1", "turn/started", "completed", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "method", "params", "result", "error", "turn", "item", "type", "status", "message"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.binary(max_size=40) | _JSON.map(lambda value: json.dumps(value).encode()), max_size=12))
def test_no_line_is_an_error_of_ours(lines: list[bytes]) -> None:
    server = Server().open()
    for key, line in enumerate(lines, start=1):
        server.offer(key)
        server.protocol.receive_line(line, server.now)
        server.wait()
