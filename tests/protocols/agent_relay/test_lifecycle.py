"""Tests of a client's life cycle without input and output: each rule by exact numbers, with fake random numbers."""

import random
from typing import Any

import pytest

from tieline.protocols.agent_relay.codec import Envelope
from tieline.protocols.agent_relay.lifecycle import (
    ANSWERS_MAX,
    TRANSITIONS,
    Accepted,
    Answer,
    Beat,
    Expected,
    Lifecycle,
    Memory,
    Novelty,
    Pause,
    Payload,
    RelayClosed,
    RelayRefused,
    Request,
    Requests,
    Silence,
    State,
)
from tieline.wire.backoff import Backoff


class Chance(random.Random):
    """Test double: a random generator with a constant result: 0 is the lowest, 0.5 the middle, 1 the highest."""

    def __init__(self, drawn: float) -> None:
        super().__init__()
        self._drawn = drawn

    def random(self) -> float:
        return self._drawn


def waits(drawn: float, backoff: Backoff | None = None) -> list[float]:
    """Return the waiting times of a client that never connects, until it gives up.

    `drawn` is the fake random number.
    """
    life = Lifecycle(backoff or Backoff(), Chance(drawn))
    life.to(State.CONNECTING)
    found: list[float] = []
    while (wait := life.lost()) is not None:
        assert life.state is State.BACKOFF
        found.append(wait)
        life.to(State.CONNECTING)
    assert life.state is State.DISCONNECTED
    return found


# Backoff


def test_ten_attempts_are_made_after_a_hundred_milliseconds_and_twice_as_long_each_time_up_to_thirty_seconds() -> None:
    assert waits(0.5) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]


def test_jitter_is_fifteen_percent_either_way_and_never_beyond_the_maximum() -> None:
    nominal = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert waits(0) == pytest.approx([wait * 0.85 for wait in nominal])
    assert waits(1) == pytest.approx([*(wait * 1.15 for wait in nominal[:-1]), 30.0])


def test_every_draw_of_real_chance_is_within_the_jitter() -> None:
    backoff, chance = Backoff(), random.Random(7)
    drawn = [backoff.wait_seconds(3, chance.random) for _ in range(1000)]
    assert 0.68 <= min(drawn) < 0.70
    assert 0.90 < max(drawn) <= 0.92


def test_attempts_start_anew_once_it_was_ready() -> None:
    life = Lifecycle(Backoff(), Chance(0.5))
    life.to(State.CONNECTING)
    assert [life.lost(), life.attempts] == [0.1, 1]
    life.to(State.CONNECTING)
    assert [life.lost(), life.attempts] == [0.2, 2]
    life.to(State.CONNECTING)
    life.to(State.HANDSHAKING)
    life.to(State.READY)
    assert life.attempts == 0
    assert life.lost() == 0.1


def test_a_handshake_that_fails_does_not_start_the_attempts_anew() -> None:
    life = Lifecycle(Backoff(attempts_max=2), Chance(0.5))
    found = []
    for _ in range(3):
        life.to(State.CONNECTING)
        life.to(State.HANDSHAKING)
        found.append(life.lost())
    assert found == [0.1, 0.2, None]


def test_without_attempts_it_gives_up_at_once() -> None:
    assert waits(0.5, Backoff(attempts_max=0)) == []


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("following", list(State))
def test_a_state_is_followed_by_those_of_the_table_alone(state: State, following: State) -> None:
    life = Lifecycle(Backoff(), Chance(0.5))
    life.state = state
    if following in TRANSITIONS[state]:
        life.to(following)
        assert life.state is following
    else:
        with pytest.raises(AssertionError, match=f"{following.name} does not follow {state.name}"):
            life.to(following)


def test_every_state_can_be_reached_and_left() -> None:
    assert {following for all_following in TRANSITIONS.values() for following in all_following} == set(State)
    assert set(TRANSITIONS) == set(State)
    assert all(State.DISCONNECTED in TRANSITIONS[state] for state in State if state is not State.DISCONNECTED)


# BUSY


def test_busy_pauses_for_what_the_hub_asks_and_twice_as_long_while_it_goes_on_asking() -> None:
    pause = Pause(Chance(0))
    now, lengths = 100.0, []
    for _ in range(8):
        until = pause.busy(now, 50)
        lengths.append(until - now)
        now = until + 1
    assert lengths == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


def test_a_pause_is_never_shorter_than_asked_and_up_to_fifteen_percent_longer() -> None:
    assert Pause(Chance(0)).busy(0, 50) == pytest.approx(0.05)
    assert Pause(Chance(1)).busy(0, 50) == pytest.approx(0.0575)


def test_after_a_calm_the_first_busy_is_short_again() -> None:
    pause = Pause(Chance(0))
    until = pause.busy(pause.busy(0, 50), 50)
    assert pause.busy(until + 2.01, 50) == pytest.approx(until + 2.01 + 0.05)


def test_a_busy_during_a_pause_does_not_shorten_it() -> None:
    pause = Pause(Chance(0))
    assert pause.busy(0, 1000) == 1
    assert pause.busy(0.1, 1) == 1


def test_a_hub_that_is_busy_for_ever_pauses_for_two_seconds_at_most() -> None:
    pause, now = Pause(Chance(1)), 0.0
    for _ in range(3000):
        until = pause.busy(now, 50)
        assert until - now <= 2.000001
        now = until


# Silence


def test_a_hub_that_is_silent_for_one_and_a_half_heartbeats_is_asked_and_after_two_it_is_dead() -> None:
    silence = Silence()
    assert Silence.seconds(5000) == 1.25
    assert [silence.beat() for _ in range(8)] == [*[Beat.FINE] * 5, Beat.ASK, Beat.FINE, Beat.DEAD]


def test_anything_heard_is_a_sign_of_life() -> None:
    silence = Silence()
    for _ in range(20):
        assert Beat.DEAD not in [silence.beat() for _ in range(7)]
        silence.heard()


# Requests


class RequestsHarness:
    """Test helper: requests of a client, with their results."""

    def __init__(self) -> None:
        self.requests = Requests()
        self.outcomes: dict[str, Any] = {}

    def ask(self, name: str, expected: Expected = Expected.ACCEPTANCE) -> Request:
        request = Request(name, name.encode(), expected, lambda outcome: self.outcomes.update({name: outcome}))
        self.requests.add(request)
        return request

    def written(self) -> list[bytes]:
        frames = []
        while (frame := self.requests.next_frame()) is not None:
            frames.append(frame)
        return frames

    def hear(self, kind: str, payload: Payload, **fields: Any) -> bool:
        return self.requests.receive(Envelope(kind, payload=payload, **fields))


def test_requests_are_written_once_in_order_and_again_in_order_on_the_next_connection() -> None:
    harness = RequestsHarness()
    for name in "abc":
        harness.ask(name)
    assert harness.written() == [b"a", b"b", b"c"]
    assert harness.written() == []
    harness.hear("ACK", {"ack_id": "b", "message_id": "m"})
    harness.ask("d")
    harness.requests.rewind()
    assert harness.written() == [b"a", b"c", b"d"]


def test_a_request_that_nobody_waits_for_is_not_written() -> None:
    harness = RequestsHarness()
    dropped = harness.ask("a")
    harness.ask("b")
    harness.requests.drop(dropped)
    assert harness.written() == [b"b"]
    harness.requests.rewind()
    assert harness.written() == [b"b"]


def test_dropping_an_old_request_leaves_a_new_one_under_its_id() -> None:
    harness = RequestsHarness()
    old = harness.ask("a")
    harness.requests.drop(old)
    harness.ask("a")
    harness.requests.drop(old)
    assert "a" in harness.requests
    assert harness.written() == [b"a"]


def test_a_message_is_accepted_by_the_hubs_ack_and_refused_by_its_nack() -> None:
    harness = RequestsHarness()
    harness.ask("a")
    harness.ask("b")
    assert harness.hear("ACK", {"ack_id": "a", "message_id": "m-1"})
    assert harness.hear("NACK", {"ack_id": "b", "code": "NOT_FOUND", "message": "nobody"})
    assert harness.outcomes["a"] == Accepted("a", "m-1")
    refused = harness.outcomes["b"]
    assert isinstance(refused, RelayRefused)
    assert (refused.code, refused.message) == ("NOT_FOUND", "nobody")


def test_a_question_to_an_agent_is_not_answered_by_the_hubs_ack_but_by_the_agents() -> None:
    harness = RequestsHarness()
    harness.ask("a", Expected.ANSWER)
    assert not harness.hear("ACK", {"ack_id": "a", "message_id": "m-1"})
    assert "a" in harness.requests
    payload = {"ack_id": "d-1", "correlationId": "a", "response": True, "responseData": {"x": 1}}
    assert harness.hear("ACK", payload, sender="bob")
    assert harness.outcomes["a"] == Answer("bob", True, {"x": 1})


def test_a_question_to_an_agent_ends_with_the_error_of_its_correlation_id() -> None:
    harness = RequestsHarness()
    harness.ask("a", Expected.ANSWER)
    assert harness.hear("ERROR", {"code": "TIMEOUT", "message": "late", "correlationId": "a"}, id="h-1")
    assert harness.outcomes["a"].code == "TIMEOUT"


def test_a_question_to_the_hub_is_answered_by_any_frame_under_its_id() -> None:
    harness = RequestsHarness()
    harness.ask("a", Expected.REPLY)
    assert harness.hear("STATUS_RESPONSE", {"version": "1"}, id="a")
    assert harness.outcomes["a"] == {"version": "1"}


def test_what_answers_nothing_is_not_taken_for_an_answer() -> None:
    harness = RequestsHarness()
    harness.ask("a")
    for kind, payload in (
        ("ACK", {}),
        ("ACK", {"ack_id": None}),
        ("ACK", {"ack_id": ["a"]}),
        ("NACK", {}),
        ("ERROR", {"code": "X"}),
        ("STATUS_RESPONSE", {}),
    ):
        assert not harness.hear(kind, payload, id="other")
    assert not harness.hear("STATUS_RESPONSE", {}, id="a")
    assert harness.outcomes == {}


def test_all_who_wait_hear_that_there_will_be_no_answers() -> None:
    harness = RequestsHarness()
    for name in "ab":
        harness.ask(name)
    end = RelayClosed("closed")
    harness.requests.fail(end)
    assert harness.outcomes == {"a": end, "b": end}
    assert harness.written() == []


# Memory


def test_a_delivery_is_new_once_then_held_then_done() -> None:
    memory = Memory()
    assert memory.receive("d-1", "default", "alice", 1) is Novelty.NEW
    assert memory.receive("d-1", "default", "alice", 1) is Novelty.HELD
    assert memory.mark_acked("d-1")
    assert memory.receive("d-1", "default", "alice", 1) is Novelty.DONE
    assert not memory.mark_acked("d-1")


def test_a_delivery_that_was_not_taken_is_new_again() -> None:
    memory = Memory()
    memory.receive("d-1", "default", "alice", 1)
    assert memory.release("d-1")
    assert not memory.release("d-1")
    assert not memory.mark_acked("d-1")
    assert memory.receive("d-1", "default", "alice", 1) is Novelty.NEW


def test_positions_are_said_by_topic_and_peer_and_never_go_back() -> None:
    memory = Memory()
    memory.open("s-1", "t-1")
    for number, (topic, peer, seq) in enumerate(
        [("chat", "alice", 1), ("chat", "bob", 7), ("default", "alice", 3), ("chat", "alice", 2), ("chat", "bob", 4)]
    ):
        memory.receive(f"d-{number}", topic, peer, seq)
    expected = {"chat": {"peers": {"alice": 2, "bob": 7}}, "default": {"peers": {"alice": 3}}}
    assert memory.streams() == expected
    memory.open("s-1", "t-2")
    assert (memory.resume_token, memory.streams()) == ("t-2", expected)


def test_another_session_begins_without_positions_but_what_was_received_stays_known() -> None:
    memory = Memory()
    memory.open("s-1", "t-1")
    memory.receive("d-1", "chat", "alice", 1)
    memory.mark_acked("d-1")
    memory.receive("d-2", "chat", "alice", 2)
    memory.forget_session()
    assert (memory.session_id, memory.resume_token) == (None, None)
    memory.open("s-2", None)
    assert memory.streams() == {}
    assert memory.receive("d-1", "chat", "alice", 1) is Novelty.DONE
    assert memory.receive("d-2", "chat", "alice", 2) is Novelty.HELD


def test_what_is_remembered_is_bounded_and_the_newest_half_stays() -> None:
    memory = Memory(known_max=100, positions_max=10)
    for number in range(1000):
        memory.receive(f"d-{number}", f"t-{number}", "alice", 1)
        memory.mark_acked(f"d-{number}", {"answer": number})
        assert len(memory._done) <= 100
        assert len(memory._positions) <= 10
        assert len(memory._answers) <= ANSWERS_MAX
    for number in range(950, 1000):
        assert memory.receive(f"d-{number}", "x", "alice", 1) is Novelty.DONE
    assert memory.receive("d-1", "x", "alice", 1) is Novelty.NEW
    assert list(memory.streams())[-1] == "x"


def test_what_is_not_settled_is_never_forgotten() -> None:
    memory = Memory(known_max=10)
    memory.receive("held", "default", "alice", 1)
    for number in range(100):
        memory.receive(f"d-{number}", "default", "alice", number)
        memory.mark_acked(f"d-{number}")
    assert memory.receive("held", "default", "alice", 1) is Novelty.HELD


def test_an_answer_is_remembered_to_be_given_again() -> None:
    memory = Memory()
    memory.receive("d-1", "default", "alice", 1)
    memory.mark_acked("d-1", {"correlationId": "c", "response": True})
    assert memory.answer("d-1") == {"correlationId": "c", "response": True}
    assert memory.answer("d-2") is None
