"""Tests of the loop rule, which counts how long agents have answered each other automatically."""

from typing import Any

import pytest

from tests.core.doubles import content
from tieline.contract.identifiers import MessageId
from tieline.contract.limits import Limits
from tieline.contract.message import Kind
from tieline.core.loops import Judgement, Loops

LIMITS = Limits(hop_ms_min=250, reply_window_ms=60_000)
STEP_MS = 1000
"""Time that an agent in these tests takes to answer."""


class Talk:
    """Test helper for a conversation that only the loop rule checks, without a broker."""

    def __init__(self) -> None:
        self.loops = Loops(LIMITS, [])
        self.now_ms = 0
        self.count = 0

    def say(
        self,
        sender: str,
        target: str,
        *,
        agent: bool = True,
        after_ms: int = STEP_MS,
        offered: bool = True,
        seen: bool = True,
        to: tuple[str, ...] = (),
        **fields: Any,
    ) -> Judgement:
        """Send a message `after_ms` after the last one. Return the judgement of the loop rule.

        `agent`: the sender is an agent. `offered` and `seen`: the recipients get the message and see it at once. `to`
        are the recipients, if they do not follow from the target.
        """
        self.now_ms += after_ms
        self.count += 1
        said = content(target, **fields)
        judgement = self.loops.judge(said, sender, self.now_ms, counts=agent)
        self.loops.note(self.last_id, self.count, said, sender, judgement, self.now_ms)
        everybody = sorted({"a", "b", "c"} - {sender})
        for name in to or ([target[1:]] if target[0] == "@" else everybody):
            if offered:
                self.loops.reached(name, self.count, self.now_ms, seen=False)
            if seen:
                self.loops.reached(name, self.count, self.now_ms, seen=True)
        return judgement

    @property
    def last_id(self) -> MessageId:
        return MessageId(f"m{self.count}")

    def hops(self, sender: str, target: str, **fields: Any) -> int:
        return self.say(sender, target, **fields).hops


PAIR = [("a", "@b"), ("b", "@a")]
RING = [("a", "@b"), ("b", "@c"), ("c", "@a")]


# The cause.


def test_agents_that_answer_each_other_are_counted() -> None:
    talk = Talk()
    assert [talk.hops(*PAIR[turn % 2]) for turn in range(6)] == [0, 1, 2, 3, 4, 5]


def test_a_message_names_its_cause_and_its_chain() -> None:
    talk = Talk()
    talk.say("a", "@b")
    talk.say("b", "@a")
    judgement = talk.say("a", "@b")
    assert (judgement.cause, judgement.chain) == (MessageId("m2"), MessageId("m1"))


def test_a_received_message_causes_one_message_at_most() -> None:
    talk = Talk()
    talk.say("a", "@b")
    assert [talk.hops("b", "@a") for _ in range(5)] == [1, 0, 0, 0, 0]


def test_a_message_that_several_explicitly_reply_to_causes_one_of_each_member() -> None:
    talk = Talk()
    talk.say("a", "#x")
    root = talk.last_id
    said = [talk.hops(name, "@a", reply_to=root) for name in ("b", "b", "c", "c")]
    assert said == [1, 0, 1, 0]


def test_what_was_offered_and_not_read_causes_nothing() -> None:
    talk = Talk()
    assert [talk.hops(*PAIR[turn % 2], seen=False) for turn in range(20)] == [0] * 20


def test_what_is_read_only_after_the_answer_did_not_cause_it() -> None:
    talk = Talk()
    talk.say("a", "@b", seen=False)
    assert talk.hops("b", "@a") == 0
    talk.loops.reached("b", 1, talk.now_ms, seen=True)
    assert talk.hops("b", "@a") == 1


def test_where_nothing_shows_what_was_read_an_explicit_reply_counts() -> None:
    talk = Talk()
    talk.say("a", "@b", seen=False)
    assert talk.hops("b", "@a", seen=False, reply_to=talk.last_id) == 1
    assert talk.hops("a", "@b", seen=False, reply_to=talk.last_id) == 2


def test_two_streams_side_by_side_are_no_chain() -> None:
    talk = Talk()
    for _ in range(500):
        assert [talk.hops("a", "@b", after_ms=1), talk.hops("b", "@a", after_ms=1)] == [0, 0]


def test_one_who_says_two_things_a_turn_does_not_hide_a_loop() -> None:
    talk = Talk()
    hops = 0
    for _ in range(10):
        talk.say("a", "@b")
        talk.say("a", "@b", after_ms=1)
        hops = talk.hops("b", "@a")
    assert hops == 19


def test_ten_reports_to_one_request_in_a_channel_are_one_hop() -> None:
    talk = Talk()
    names = tuple(f"w{number}" for number in range(10))
    for turn in range(5):
        assert talk.hops("lead", "#work", to=names) <= 2 * turn
        for name in names:
            assert talk.hops(name, "#work", to=("lead", *names)) <= 2 * turn + 2


def test_a_bystander_in_a_channel_does_not_end_a_loop_of_others() -> None:
    talk = Talk()
    hops = 0
    for turn in range(10):
        talk.hops("crier", "#dev", to=("a", "b"))
        hops = talk.hops("ab"[turn % 2], "#dev", to=("ab"[1 - turn % 2],))
    assert hops >= 9


def test_threads_are_counted_apart_even_between_the_same_two() -> None:
    talk = Talk()
    for turn in range(4):
        talk.hops(*(("a", "#x") if turn % 2 == 0 else ("b", "#x")), thread="one")
    assert talk.hops("b", "#y", thread="two") == 0
    assert talk.hops("a", "#x", thread="one") == 4


def test_what_was_said_in_an_objective_is_answered_there() -> None:
    talk = Talk()
    for turn in range(4):
        talk.say(*PAIR[turn % 2], thread="obj:1")
    assert talk.hops("a", "@b") == 0
    assert talk.hops("a", "@b", thread="obj:1") == 4


def test_a_thread_for_each_message_does_not_hide_a_loop() -> None:
    talk = Talk()
    assert [talk.hops(*PAIR[turn % 2], thread=f"{turn}") for turn in range(6)] == [0, 1, 2, 3, 4, 5]


def test_a_coordinator_has_a_chain_with_each_of_its_workers_even_in_one_thread() -> None:
    talk = Talk()
    for turn in range(4):
        for number in range(10):
            assert talk.hops("lead", f"@w{number}", thread="work") <= 2 * turn
            assert talk.hops(f"w{number}", "@lead", thread="work") <= 2 * turn + 1


def test_a_reply_to_what_nobody_remembers_does_not_hide_a_loop() -> None:
    talk = Talk()
    talk.say("a", "@b")
    assert talk.hops("b", "@a", reply_to=MessageId("unheard-of")) == 1


def test_replying_to_oneself_is_no_loop() -> None:
    talk = Talk()
    for _ in range(20):
        assert talk.hops("a", "@b", seen=False, reply_to=talk.last_id) == 0


# The count.


def test_an_answer_counts_from_the_pace_of_agents_to_the_end_of_the_window() -> None:
    for after_ms, hops in ((0, 0), (249, 0), (250, 1), (60_000, 1), (60_001, 0)):
        talk = Talk()
        talk.say("a", "@b")
        assert talk.hops("b", "@a", after_ms=after_ms) == hops, after_ms


def test_programs_that_alternate_in_milliseconds_are_not_counted_however_long_they_do() -> None:
    talk = Talk()
    assert {talk.hops(*PAIR[turn % 2], after_ms=5) for turn in range(10_000)} == {0}


def test_a_slow_moment_of_a_quick_program_is_no_chain() -> None:
    talk = Talk()
    assert max(talk.hops(*PAIR[turn % 2], after_ms=300 if turn % 7 == 0 else 5) for turn in range(1000)) == 1


def test_the_pace_runs_from_when_a_message_reached_its_recipient() -> None:
    talk = Talk()
    talk.say("a", "@b", offered=False, seen=False)
    talk.now_ms += 100_000
    talk.loops.reached("b", 1, talk.now_ms, seen=False)
    talk.now_ms += 10_000
    talk.loops.reached("b", 1, talk.now_ms, seen=True)
    assert talk.hops("b", "@a", after_ms=1) == 1


def test_what_a_person_or_a_script_says_starts_at_zero() -> None:
    talk = Talk()
    for turn in range(4):
        talk.hops(*PAIR[turn % 2])
    assert talk.hops("a", "@b", agent=False) == 0
    assert talk.hops("b", "@a") == 1


def test_scripts_that_alternate_at_the_pace_of_agents_are_not_counted() -> None:
    talk = Talk()
    assert {talk.hops(*PAIR[turn % 2], agent=False) for turn in range(1000)} == {0}


@pytest.mark.parametrize("kind", [Kind.STATUS, Kind.EVENT])
def test_status_and_event_traffic_is_exempt(kind: Kind) -> None:
    talk = Talk()
    assert {talk.hops(*PAIR[turn % 2], kind=kind) for turn in range(20)} == {0}


# Rings.


def test_a_ring_of_three_is_counted_when_each_writes_a_message_of_its_own() -> None:
    talk = Talk()
    said = [talk.say(*RING[turn % 3]) for turn in range(9)]
    assert [one.hops for one in said] == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    assert {one.chain for one in said[3:]} == {MessageId("m1")}


def test_a_ring_of_three_is_counted_when_one_of_them_replies_and_the_others_do_not() -> None:
    talk = Talk()
    said = [talk.hops(*RING[turn % 3], reply_to=talk.last_id if turn % 3 == 2 else None) for turn in range(30)]
    assert said[-1] >= 20


@pytest.mark.parametrize(("size", "counted"), [(16, True), (17, False)])
def test_a_ring_is_counted_up_to_sixteen_members(size: int, *, counted: bool) -> None:
    talk = Talk()
    rounds = [talk.hops(f"m{turn % size}", f"@m{(turn + 1) % size}") for turn in range(2 * size)]
    assert rounds[:size] == [0] * size
    assert any(rounds[size:]) is counted


def test_a_ring_is_counted_step_by_step_when_each_names_what_it_passes_on() -> None:
    talk = Talk()
    said = [talk.hops(*RING[turn % 3], reply_to=talk.last_id if turn else None) for turn in range(6)]
    assert said == [0, 1, 2, 3, 4, 5]


def test_a_ring_in_a_thread_is_counted_whatever_else_its_members_hear() -> None:
    talk = Talk()
    said = []
    for turn in range(9):
        said.append(talk.hops(*RING[turn % 3], thread="t"))
        talk.say("crier", f"@{'bca'[turn % 3]}")
    assert said == [0, 0, 0, 3, 3, 3, 6, 6, 6]


def test_a_ring_over_channels_is_counted() -> None:
    talk = Talk()
    ring = [("a", "#x", ("b",)), ("b", "#y", ("c",)), ("c", "#z", ("a",))]
    said = [talk.hops(sender, target, to=to) for sender, target, to in ring * 3]
    assert said == [0, 0, 0, 3, 3, 3, 6, 6, 6]


def test_a_slow_step_or_a_quick_one_in_a_ring_starts_the_count_anew() -> None:
    for after_ms in (60_001, 5):
        talk = Talk()
        for _ in range(5):
            said = [talk.hops(*RING[turn % 3], after_ms=STEP_MS if turn else after_ms) for turn in range(3)]
            assert said == [0, 0, 0]


def test_a_person_in_a_ring_starts_the_count_anew() -> None:
    talk = Talk()
    for _ in range(5):
        assert [talk.hops(*RING[turn % 3], agent=turn != 1) for turn in range(3)] == [0, 0, 0]


def test_work_handed_out_to_one_after_the_other_is_no_ring_in_whatever_order() -> None:
    talk = Talk()
    for turn in range(40):
        for number in range(3):
            assert talk.hops("lead", f"@w{number}") <= 2 * turn
            assert talk.hops(f"w{number}", "@lead") <= 2 * turn + 1


def test_work_handed_out_again_after_the_window_is_no_ring() -> None:
    talk = Talk()
    for _ in range(40):
        for number in range(4):
            assert talk.hops("lead", f"@w{number}", after_ms=20_000) == 0
            assert talk.hops(f"w{number}", "@lead", after_ms=20_000) == 1


def test_reports_on_what_many_members_said_are_no_ring() -> None:
    talk = Talk()
    talk.say("boss", "@lead")
    for number in range(50):
        assert talk.hops("lead", f"@w{number}") <= 1
    for number in range(50):
        assert talk.hops(f"w{number}", "@lead") <= 2
        assert talk.hops("lead", "@reporter") == 0


# Memory.


def test_a_forgotten_conversation_starts_anew_and_others_do_not() -> None:
    talk = Talk()
    for turn in range(4):
        talk.say(*PAIR[turn % 2])
        talk.say(*PAIR[turn % 2], thread="t")
    talk.loops.forget("@a+@b")
    assert talk.hops("b", "@a", reply_to=MessageId("m1")) == 0
    assert talk.hops("a", "@b") == 1
    assert talk.hops("a", "@b", thread="t") == 4


def test_a_forgotten_ring_starts_anew() -> None:
    talk = Talk()
    for turn in range(6):
        talk.say(*RING[turn % 3])
    talk.loops.forget("@a+@b")
    assert [talk.hops(*RING[turn % 3]) for turn in range(6)] == [0, 0, 0, 3, 3, 3]


def test_memory_is_bounded_and_the_oldest_is_forgotten_first() -> None:
    loops = Loops(Limits(loop_memory_max=2), [])
    for offset, name in enumerate(("a", "b", "c")):
        loops.note(MessageId(f"from-{name}"), offset, content("@x"), name, Judgement(7, None, chain=MessageId("m")), 0)
        loops.reached("x", offset, 0, seen=True)
    first = loops.judge(content("@a"), "x", 1000, counts=True)
    last = loops.judge(content("@c"), "x", 1000, counts=True)
    assert (first.hops, last.hops) == (0, 8)
