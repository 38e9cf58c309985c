"""The loop rule: agents that answer each other without end are stopped, and nobody else is."""

from typing import Any

import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import Desk, content
from tieline.contract import command as c
from tieline.contract.event import Paused, Resumed
from tieline.contract.identifiers import MessageId
from tieline.contract.limits import Limits
from tieline.contract.member import MemberKind
from tieline.contract.message import Kind
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Done
from tieline.core.loops import Judgement, Loop, Loops

LIMITS = Limits(hops_max=4, reply_window_ms=1000, pause_ms=10_000)


class Talk:
    """A conversation under the rule alone."""

    def __init__(self) -> None:
        self.loops = Loops(LIMITS)
        self.now_ms = 0
        self.count = 0

    def say(
        self,
        sender: str,
        target: str,
        *,
        human: bool = False,
        after_ms: int = 1,
        shown: bool = True,
        **fields: Any,
    ) -> Judgement | Refusal:
        self.now_ms += after_ms
        self.count += 1
        said = content(target, **fields)
        judgement = self.loops.judge(said, sender, self.now_ms, human=human)
        if isinstance(judgement, Loop):
            return judgement.refusal
        if isinstance(judgement, Judgement):
            self.loops.note(self.last_id, self.count, said, sender, judgement, self.now_ms)
            if shown:
                for name in {"a", "b", "c", target.removeprefix("@")} - {sender} if target[0] in "#*" else [target[1:]]:
                    self.loops.offered(name, self.count)
        return judgement

    @property
    def last_id(self) -> MessageId:
        return MessageId(f"m{self.count}")

    def hops(self, sender: str, target: str, **fields: Any) -> int:
        judgement = self.say(sender, target, **fields)
        assert isinstance(judgement, Judgement), judgement
        return judgement.hops


def test_quick_replies_between_two_are_counted() -> None:
    talk = Talk()
    assert [talk.hops("a", "@b"), talk.hops("b", "@a"), talk.hops("a", "@b"), talk.hops("b", "@a")] == [0, 1, 2, 3]


def test_a_reply_names_its_cause() -> None:
    talk = Talk()
    talk.say("a", "@b")
    assert talk.say("b", "@a") == Judgement(1, MessageId("m1"), MessageId("m1"))


def test_one_quick_reply_past_the_limit_is_refused() -> None:
    talk = Talk()
    for turn in range(5):
        assert talk.hops(*(("a", "@b") if turn % 2 == 0 else ("b", "@a"))) == turn
    refusal = talk.say("b", "@a")
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.LOOP_DETECTED


def test_many_messages_without_an_answer_are_no_loop() -> None:
    talk = Talk()
    assert [talk.hops("a", "@b") for _ in range(20)] == [0] * 20


def test_a_human_starts_the_count_anew() -> None:
    talk = Talk()
    for turn in range(4):
        talk.hops(*(("a", "@b") if turn % 2 == 0 else ("b", "@a")))
    assert talk.hops("a", "@b", human=True) == 0
    assert talk.hops("b", "@a") == 1


def test_a_reply_at_the_edge_of_the_window_counts_and_a_later_one_does_not() -> None:
    talk = Talk()
    talk.say("a", "@b")
    assert talk.hops("b", "@a", after_ms=1000) == 1
    assert talk.hops("a", "@b", after_ms=1001) == 0


def test_threads_are_counted_apart_even_between_the_same_two() -> None:
    talk = Talk()
    for turn in range(4):
        talk.hops(*(("a", "#x") if turn % 2 == 0 else ("b", "#x")), thread="one")
    assert talk.hops("b", "#y", thread="two") == 0
    assert talk.hops("a", "#x", thread="one") == 4


def test_in_a_channel_an_answer_to_somebody_else_counts() -> None:
    talk = Talk()
    assert [talk.hops("a", "#dev"), talk.hops("b", "#dev"), talk.hops("c", "#dev")] == [0, 1, 2]


def test_agents_that_send_two_messages_a_turn_into_a_channel_are_stopped_too() -> None:
    talk = Talk()
    for turn in range(4 * LIMITS.hops_max):
        for _ in range(2):
            if isinstance(talk.say("ab"[turn % 2], "#dev"), Refusal):
                return
    pytest.fail("the loop went on")


def test_an_explicit_reply_is_caused_by_what_it_names() -> None:
    talk = Talk()
    talk.say("a", "@b")
    root = talk.last_id
    talk.say("b", "@a")
    talk.say("a", "@b")
    assert talk.say("c", "@b", reply_to=root) == Judgement(1, root, root)


def test_a_ring_of_three_is_stopped_when_it_shares_a_thread() -> None:
    talk = Talk()
    ring = [("a", "@b"), ("b", "@c"), ("c", "@a")]
    said = [talk.say(*ring[turn % 3], thread="t") for turn in range(6)]
    assert [isinstance(judgement, Refusal) for judgement in said] == [False] * 5 + [True]


def test_a_ring_of_three_is_stopped_when_each_names_what_it_passes_on() -> None:
    talk = Talk()
    ring = [("a", "@b"), ("b", "@c"), ("c", "@a")]
    said = [talk.say("a", "@b")]
    said += [talk.say(*ring[turn % 3], reply_to=talk.last_id) for turn in range(1, 6)]
    assert [isinstance(judgement, Refusal) for judgement in said] == [False] * 5 + [True]


RING = [("a", "@b"), ("b", "@c"), ("c", "@a")]


def test_a_ring_of_three_is_stopped_when_each_writes_a_message_of_its_own() -> None:
    talk = Talk()
    said = [talk.say(*RING[turn % 3]) for turn in range(7)]
    assert [one.hops for one in said if isinstance(one, Judgement)] == [0, 0, 0, 3, 3, 3]
    assert isinstance(said[6], Refusal)
    assert said[6].code is Code.LOOP_DETECTED


def test_a_ring_of_three_is_stopped_when_one_of_them_answers_and_the_others_do_not() -> None:
    talk = Talk()
    for turn in range(20):
        if isinstance(talk.say(*RING[turn % 3], reply_to=talk.last_id if turn % 3 == 2 else None), Refusal):
            return
    pytest.fail("the loop went on")


def test_a_ring_over_channels_is_stopped() -> None:
    loops = Loops(LIMITS)
    for turn in range(7):
        sender, target, hears = [("a", "#x", "b"), ("b", "#y", "c"), ("c", "#z", "a")][turn % 3]
        judgement = loops.judge(content(target), sender, turn, human=False)
        if isinstance(judgement, Loop):
            assert (turn, judgement.conversation) == (6, "#x")
            return
        assert isinstance(judgement, Judgement)
        loops.note(MessageId(f"m{turn}"), turn, content(target), sender, judgement, turn)
        loops.offered(hears, turn)
    pytest.fail("the loop went on")


def test_a_ring_pauses_one_conversation_and_leaves_the_others() -> None:
    talk = Talk()
    for turn in range(6):
        talk.say(*RING[turn % 3])
    judgement = talk.loops.judge(content("@b"), "a", talk.now_ms, human=False)
    assert isinstance(judgement, Loop)
    assert (judgement.conversation, judgement.last) == ("@a+@b", "c")
    talk.loops.pause(judgement.conversation, talk.now_ms)
    assert isinstance(talk.say("a", "@b"), Refusal)
    assert talk.hops("a", "@d") == 0
    assert talk.hops("b", "@d") == 0


def test_a_slow_step_in_a_ring_starts_the_count_anew() -> None:
    talk = Talk()
    for _ in range(5):
        assert [talk.hops(*RING[turn % 3], after_ms=1 if turn else 1001) for turn in range(3)] == [0, 0, 0]


def test_a_human_in_a_ring_starts_the_count_anew() -> None:
    talk = Talk()
    for _ in range(5):
        assert [talk.hops(*RING[turn % 3], human=turn == 1) for turn in range(3)] == [0, 0, 0]


def test_a_resumed_ring_has_its_whole_allowance_again() -> None:
    talk = Talk()
    for turn in range(6):
        talk.say(*RING[turn % 3])
    assert isinstance(talk.say("a", "@b"), Refusal)
    talk.loops.pause("@a+@b", talk.now_ms)
    assert talk.loops.resume("@a+@b")
    assert [talk.hops(*RING[turn % 3]) for turn in range(6)] == [0, 0, 0, 3, 3, 3]


def test_work_handed_out_to_one_after_the_other_is_no_loop() -> None:
    talk = Talk()
    talk.say("lead", "@w0")
    for number in range(50):
        assert talk.hops(f"w{number}", "@lead") <= 1
        assert talk.hops("lead", f"@w{number + 1}") == 0


def test_reports_on_what_many_members_said_are_no_loop() -> None:
    talk = Talk()
    talk.say("boss", "@lead")
    for number in range(50):
        assert talk.hops("lead", f"@w{number}") == 0
    for number in range(50):
        assert talk.hops(f"w{number}", "@lead") == 1
        assert talk.hops("lead", "@reporter") == 0


def test_a_reply_to_what_nobody_remembers_does_not_hide_a_loop() -> None:
    talk = Talk()
    talk.say("a", "@b")
    assert talk.hops("b", "@a", reply_to=MessageId("unheard-of")) == 1


@pytest.mark.parametrize("kind", [Kind.STATUS, Kind.EVENT])
def test_status_and_event_traffic_is_exempt(kind: Kind) -> None:
    talk = Talk()
    for turn in range(20):
        assert talk.hops(*(("a", "@b") if turn % 2 == 0 else ("b", "@a")), kind=kind) == 0


def test_what_was_never_offered_causes_nothing() -> None:
    talk = Talk()
    said = [talk.hops(*(("a", "@b") if turn % 2 == 0 else ("b", "@a")), shown=False) for turn in range(20)]
    assert said == [0] * 20


def test_replying_to_oneself_is_no_loop_and_pauses_nobody_else() -> None:
    talk = Talk()
    for _ in range(20):
        assert talk.hops("a", "@b", shown=False, reply_to=talk.last_id) == 0


def test_a_loop_pauses_the_conversation_it_ran_in_and_not_where_it_is_carried_to() -> None:
    talk = Talk()
    for turn in range(5):
        talk.hops(*(("a", "@b") if turn % 2 == 0 else ("b", "@a")))
    judgement = talk.loops.judge(content("#dev", reply_to=talk.last_id), "b", talk.now_ms, human=False)
    assert isinstance(judgement, Loop)
    assert judgement.conversation == "@a+@b"


def test_memory_is_bounded_and_the_oldest_is_forgotten_first() -> None:
    loops = Loops(Limits(loop_memory_max=2))
    for offset, name in enumerate(("a", "b", "c")):
        loops.note(MessageId(f"from-{name}"), offset, content("@x"), name, Judgement(7, None), 0)
        loops.offered("x", offset)
    first = loops.judge(content("@a"), "x", 1, human=False)
    last = loops.judge(content("@c"), "x", 1, human=False)
    assert isinstance(first, Judgement)
    assert isinstance(last, Judgement)
    assert (first.hops, last.hops) == (0, 8)


# With the broker.


@pytest.fixture
def looped(make_desk: MakeDesk) -> Desk:
    """A desk where ada and bob have just been stopped."""
    desk = make_desk(LIMITS)
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.join("cy")
    for turn in range(5):
        desk.send(*((ada, "@bob") if turn % 2 == 0 else (bob, "@ada")))
        desk.offered(bob if turn % 2 == 0 else ada, turn // 2 + 1)
    assert desk.refused(c.Send(bob, content("@ada"))).code is Code.LOOP_DETECTED
    return desk


def test_a_looping_conversation_is_paused_and_the_log_says_so(looped: Desk) -> None:
    for speaker, target in (("ada", "@bob"), ("bob", "@ada")):
        refusal = looped.refused(c.Send(looped.attach(speaker), content(target)))
        assert refusal.code is Code.THREAD_PAUSED
    assert any(isinstance(event, Paused) for event in looped.events())


def test_only_the_looping_conversation_is_paused(looped: Desk) -> None:
    looped.send(looped.attach("ada"), "@cy")
    looped.send(looped.attach("cy"), "@bob")
    looped.send(looped.attach("ada"), "@bob", thread="another")
    looped.send(looped.attach("ada"), "*")


def test_a_human_and_a_status_get_through_a_pause(looped: Desk) -> None:
    looped.send(looped.attach("ada"), "@bob", kind=Kind.STATUS)
    human = looped.join("hana", kind=MemberKind.HUMAN)
    looped.send(human, "@bob")


def test_a_pause_ends_by_itself(looped: Desk) -> None:
    looped.pass_ms(LIMITS.pause_ms - 1)
    assert looped.refused(c.Send(looped.attach("ada"), content("@bob"))).code is Code.THREAD_PAUSED
    looped.pass_ms(1)
    looped.send(looped.attach("ada"), "@bob")


def paused_name(desk: Desk) -> str:
    return next(event.thread for event in desk.events() if isinstance(event, Paused))


def test_a_human_resumes_a_paused_conversation_and_its_count_starts_anew(looped: Desk) -> None:
    human = looped.join("hana", kind=MemberKind.HUMAN)
    looped.expect(Done, c.ResumeThread(human, paused_name(looped)))
    sessions = [looped.attach("ada"), looped.attach("bob")]
    for turn in range(5):
        looped.send(sessions[turn % 2], ["@bob", "@ada"][turn % 2])
    assert [event.by for event in looped.events() if isinstance(event, Resumed)] == ["hana"]


def test_after_a_resume_an_explicit_reply_starts_anew_too(looped: Desk) -> None:
    looped.expect(Done, c.ResumeThread(looped.operator, paused_name(looped)))
    bob = looped.attach("bob")
    last = looped.fetch(bob)[-1].message
    looped.send(bob, "@ada", reply_to=last.id)


def test_a_human_pauses_a_conversation_in_which_only_people_speak_then(desk: Desk) -> None:
    human, ada = desk.join("hana", kind=MemberKind.HUMAN), desk.join("ada")
    desk.join("bob")
    desk.expect(Done, c.PauseThread(human, "@bob+@ada"))
    assert desk.refused(c.Send(ada, content("@bob"))).code is Code.THREAD_PAUSED
    desk.send(ada, "@hana")
    assert [(event.thread, event.by) for event in desk.events() if isinstance(event, Paused)] == [("@ada+@bob", "hana")]
    desk.expect(Done, c.ResumeThread(human, "@ada+@bob"))
    desk.send(ada, "@bob")


def test_only_stewards_pause_and_only_what_is_a_conversation(desk: Desk) -> None:
    assert desk.refused(c.PauseThread(desk.join("ada"), "@ada+@bob")).code is Code.FORBIDDEN
    for name in ("", "ada", "@ada", "@+@bob", "#" + "x" * 1000):
        assert desk.refused(c.PauseThread(desk.operator, name)).code is Code.INVALID_REQUEST
    for name in ("*", "#dev", "obj:obj-1", "thread:t-1"):
        desk.expect(Done, c.PauseThread(desk.operator, name))


def test_an_agent_cannot_resume_its_own_loop(looped: Desk) -> None:
    refusal = looped.refused(c.ResumeThread(looped.attach("ada"), paused_name(looped)))
    assert refusal.code is Code.FORBIDDEN
    assert looped.refused(c.Send(looped.attach("ada"), content("@bob"))).code is Code.THREAD_PAUSED


def test_resuming_what_is_not_paused_is_no_error_and_leaves_no_trace(desk: Desk) -> None:
    desk.expect(Done, c.ResumeThread(desk.operator, "thread:nothing"))
    assert not any(isinstance(event, Resumed) for event in desk.events())


def test_a_message_says_how_many_hops_led_to_it(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    first = desk.send(ada, "@bob")
    desk.offered(bob, 1)
    desk.send(bob, "@ada")
    message = desk.fetch(ada)[0].message
    assert (message.hops, message.cause) == (1, first.message_id)


def test_a_refused_message_leaves_nothing_in_the_inbox(looped: Desk) -> None:
    ada = looped.attach("ada")
    before = looped.bodies(ada)
    reply = looped.ask(c.Send(looped.attach("bob"), content("@ada", "again")))
    assert not isinstance(reply, Accepted)
    assert looped.bodies(ada) == before
