"""Tests of holds: messages in long chains of automatic replies are slowed down, and then held.

Held messages are stored, and released in order.
"""

import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness, content
from tests.core.held_rooms import LIMITS, STEP_MS, Room, bodies
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Allowed, Paused, Resumed
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import MemberKind
from tieline.contract.message import Kind
from tieline.contract.objective import Complete, Watch
from tieline.contract.permission import OBJECTIVES_CREATE
from tieline.contract.reach import Leg, Reach, Way
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, Claimed, Done, History, ObjectiveState, Pauses, Receipts

# Slowed.


def test_acknowledging_with_an_open_end_hides_nothing_from_the_rule(room: Room) -> None:
    held = []
    for turn in range(LIMITS.hops_max + 2):
        speaker, hearer = ("ada", "bob") if turn % 2 == 0 else ("bob", "ada")
        held.append(room.say(speaker, f"@{hearer}", f"{turn}").held)
        room.harness.pass_ms(LIMITS.space_ms_max)
        room.harness.expect(Done, c.Advance(room.sessions[hearer], ranges=((1, 10**9),), state=State.ACKED))
        room.harness.pass_ms(STEP_MS)
    assert held[-1]


def test_a_chain_past_the_soft_limit_is_spaced_more_and_more_and_people_are_told_once(room: Room) -> None:
    harness = room.harness
    waits = []
    for turn in range(LIMITS.hops_max + 1):
        speaker, hearer = ("ada", "bob") if turn % 2 == 0 else ("bob", "ada")
        accepted = room.say(speaker, f"@{hearer}", f"{turn}")
        before = harness.clock_and_ids.time_ms
        room.wait_for(hearer)
        waits.append(harness.clock_and_ids.time_ms - before)
        assert bool(accepted.held) == bool(waits[-1])
        harness.pass_ms(STEP_MS)
    assert waits == [0] * 5 + [4000, 9000, 14_000, 19_000]
    assert room.notices("hana") == ["slowed"]
    assert room.notices("ada") == room.notices("bob") == []


def test_a_slowed_message_says_why_and_names_the_setting_and_the_command(room: Room) -> None:
    room.alternate("ada", "bob", 5)
    accepted = room.say("bob", "@ada")
    receipt = room.harness.receipts(room.sessions["bob"], accepted.message_id)["ada"]
    assert receipt.state is State.PENDING
    assert receipt.held == accepted.held == receipt.steps[-1].evidence
    assert "hops_soft = 4" in receipt.held
    assert "tieline allow @ada+@bob" in receipt.held
    room.wait_for("ada")
    receipt = room.harness.receipts(room.sessions["bob"], accepted.message_id)["ada"]
    assert (receipt.held, receipt.state) == ("", State.ACKED)


def test_a_chain_that_is_slower_than_its_spacing_is_not_delayed(room: Room) -> None:
    for turn in range(LIMITS.hops_max):
        speaker, hearer = ("ada", "bob") if turn % 2 == 0 else ("bob", "ada")
        assert not room.say(speaker, f"@{hearer}").held
        room.read(hearer)
        room.harness.pass_ms(LIMITS.space_ms_max)


# Held.


def test_past_the_hard_limit_a_message_is_accepted_and_held_and_people_and_agents_are_told_once(stuck: Room) -> None:
    said = [stuck.say("bob", "@ada", f"held {number}") for number in range(1, 4)]
    assert all("hops_max = 8" in accepted.held for accepted in said)
    assert stuck.read("ada") == []
    assert stuck.harness.state(said[-1].message_id, "ada") is State.PENDING
    assert stuck.notices("hana") == ["slowed", "held"]
    assert stuck.notices("ada") == stuck.notices("bob") == ["held"]
    assert stuck.notices("cy") == []
    body = stuck.harness.fetch(stuck.sessions["hana"])[-1].message.content.body
    assert "hops_max = 8" in body
    assert "tieline resume @ada+@bob" in body


def test_resuming_delivers_what_is_held_in_order_and_the_chain_starts_anew(stuck: Room) -> None:
    for number in range(1, 5):
        stuck.say("bob", "@ada", f"held {number}")
    stuck.harness.expect(Done, c.ResumeThread(stuck.sessions["hana"], thread="@bob+@ada"))
    assert [len(keys) for keys in stuck.harness.outcome.released.values()] == [5]
    assert stuck.read("ada") == bodies(5)
    stuck.harness.pass_ms(STEP_MS)
    assert not any(accepted.held for accepted in stuck.alternate("ada", "bob", 4))
    assert [event.by for event in stuck.harness.events() if isinstance(event, Resumed)] == ["hana"]


def test_a_hold_that_cools_down_lets_one_message_pass_at_a_time_and_ends_when_none_is_left(stuck: Room) -> None:
    stuck.say("bob", "@ada", "held 1")
    stuck.harness.pass_ms(LIMITS.pause_ms - 1)
    assert stuck.read("ada") == []
    stuck.harness.pass_ms(1)
    assert stuck.read("ada") == ["held 0"]
    stuck.harness.pass_ms(STEP_MS)
    # The agent answers, and so it goes on: the storm costs a message in ten minutes.
    assert stuck.say("ada", "@bob", "again").held
    stuck.harness.pass_ms(LIMITS.pause_ms)
    assert (stuck.read("ada"), stuck.read("bob")) == (["held 1"], [])
    stuck.harness.pass_ms(LIMITS.pause_ms)
    assert (stuck.read("ada"), stuck.read("bob")) == ([], ["again"])
    stuck.harness.pass_ms(LIMITS.pause_ms)
    assert not stuck.say("bob", "@ada").held


def test_only_the_conversation_that_looped_is_held(stuck: Room) -> None:
    assert not stuck.say("ada", "@cy").held
    assert not stuck.say("cy", "@bob").held
    assert not stuck.say("hana", "@ada").held
    # To where nothing is held, also in another thread.
    assert not stuck.say("ada", "@bob", thread="another").held


def test_people_and_scripts_are_never_held_for_hops(room: Room) -> None:
    room.join("cron", kind=MemberKind.SCRIPT)
    for one, other in (("hana", "ada"), ("cron", "ada"), ("cron", "hana")):
        assert not any(accepted.held for accepted in room.alternate(one, other, 40))


def test_a_channel_held_for_agents_still_takes_what_scripts_and_people_say(room: Room) -> None:
    room.join("cron", kind=MemberKind.SCRIPT)
    for name in room.sessions:
        room.harness.subscribe(room.sessions[name], "dev")
    held = ""
    for turn in range(LIMITS.hops_max + 2):
        held = room.say("ada" if turn % 2 == 0 else "bob", "#dev", f"{turn}").held
        room.read("ada")
        room.read("bob")
        room.harness.pass_ms(LIMITS.space_ms_max)
    assert "hops_max" in held
    assert not room.say("cron", "#dev").held
    assert not room.say("hana", "#dev").held
    assert room.say("cy", "#dev").held


# Order.


def test_behind_a_held_message_everything_of_its_stream_is_held_and_nothing_of_others(stuck: Room) -> None:
    status = stuck.say("bob", "@ada", "held 1", kind=Kind.STATUS)
    aside = stuck.say("bob", "@ada", "held 2", thread="another")
    assert "an earlier message" in status.held
    assert "an earlier message" in aside.held
    assert not stuck.say("bob", "@ada", "other stream", topic="topic", thread="another").held
    assert not stuck.say("bob", "@cy").held
    assert stuck.read("ada") == ["other stream"]
    stuck.harness.expect(Done, c.ResumeThread(stuck.harness.operator, thread="@ada+@bob"))
    assert stuck.read("ada") == bodies(3)


def test_a_stream_waits_for_each_of_its_pauses_in_turn(room: Room) -> None:
    for thread in ("one", "two"):
        room.harness.expect(Done, c.PauseThread(room.harness.operator, thread=f"thread:{thread}"))
    for number, thread in enumerate(("one", "two", "", "one")):
        assert room.say("ada", "@bob", f"held {number}", thread=thread or None).held
    room.harness.expect(Done, c.ResumeThread(room.harness.operator, thread="thread:two"))
    assert room.read("bob") == []
    room.harness.expect(Done, c.ResumeThread(room.harness.operator, thread="thread:one"))
    assert room.read("bob") == bodies(4)


def test_a_hold_that_cools_down_passes_no_message_that_stands_behind_another_hold(room: Room) -> None:
    harness = room.harness
    room.alternate("ada", "bob", LIMITS.hops_max + 1, thread="t")
    assert room.say("bob", "@ada", "first of the thread", thread="t").held
    harness.pass_ms(LIMITS.pause_ms)
    assert room.read("ada") == ["first of the thread"]
    room.alternate("ada", "bob", LIMITS.hops_max + 1)
    assert room.say("bob", "@ada", "held").held
    assert room.say("bob", "@ada", "second of the thread", thread="t").held
    until = {
        pause.conversation: pause.until_ms for pause in harness.expect(Pauses, c.ListPauses(harness.operator)).pauses
    }
    assert until["thread:t"] < until["@ada+@bob"]
    harness.pass_ms(until["thread:t"] - harness.clock_and_ids.time_ms)
    assert room.read("ada") == []
    harness.pass_ms(until["@ada+@bob"] - harness.clock_and_ids.time_ms)
    assert room.read("ada") == ["held"]
    harness.pass_ms(LIMITS.pause_ms)
    assert room.read("ada") == ["second of the thread"]


def test_a_message_in_a_channel_waits_for_those_alone_whose_stream_is_held(stuck: Room) -> None:
    for name in ("ada", "cy", "bob"):
        stuck.harness.subscribe(stuck.sessions[name], "dev")
    accepted = stuck.say("bob", "#dev", "held 1")
    assert stuck.read("cy") == ["held 1"]
    receipts = stuck.harness.receipts(stuck.sessions["bob"], accepted.message_id)
    assert (bool(receipts["ada"].held), bool(receipts["cy"].held)) == (True, False)


# Properties of a held delivery.


def test_a_held_delivery_cannot_be_read_claimed_or_acknowledged(stuck: Room) -> None:
    harness, ada = stuck.harness, stuck.sessions["ada"]
    held = stuck.say("bob", "@ada", "held 1").message_id
    key = harness.receipts(stuck.sessions["bob"], held)["ada"].key
    assert harness.claim(ada, held) is None
    harness.advance(ada, key)
    harness.advance(ada, key, State.SEEN)
    harness.offered(ada, 1, key)
    harness.expect(Done, c.AcknowledgeIds(ada, message_ids=(held,)))
    assert harness.state(held, "ada") is State.PENDING
    assert key not in [delivery.key for delivery in harness.fetch(ada)]
    harness.expect(Done, c.ResumeThread(harness.operator, thread="@ada+@bob"))
    assert harness.expect(Claimed, c.Claim(ada, message_id=held)).delivery is not None


def test_held_messages_count_in_the_backlog_and_past_it_the_usual_refusal_comes(make_harness: MakeHarness) -> None:
    room = Room(make_harness(Limits(backlog_max=3)))
    room.join("ada", "bob")
    room.harness.expect(Done, c.PauseThread(room.harness.operator, thread="@ada+@bob"))
    for _ in range(3):
        assert room.say("ada", "@bob").held
    presence = room.harness.roster()["bob"]
    assert (presence.backlog, presence.held) == (3, 3)
    refusal = room.harness.refused(c.Send(room.sessions["ada"], content=content("@bob")))
    assert refusal.code is Code.BACKLOG_FULL


def test_a_held_message_is_in_no_page_of_history_that_its_recipient_is_shown(room: Room) -> None:
    harness, bob = room.harness, room.sessions["bob"]
    harness.expect(Done, c.PauseThread(harness.operator, thread="@ada+@bob"))
    assert room.say("ada", "@bob", "held").held

    def shown(session: SessionId) -> list[str]:
        page = harness.expect(History, c.ReadHistory(session, peer="ada", offers=True))
        return [message.content.body for message in page.messages]

    assert shown(bob) == []
    assert [one.content.body for one in harness.expect(History, c.ReadHistory(bob, peer="ada")).messages] == ["held"]
    harness.expect(Done, c.ResumeThread(harness.operator, thread="@ada+@bob"))
    assert shown(bob) == ["held"]


def test_a_time_to_live_runs_on_while_held_and_what_stands_behind_goes_on(room: Room) -> None:
    room.harness.expect(Done, c.PauseThread(room.harness.operator, thread="thread:t"))
    mortal = room.say("ada", "@bob", "mortal", thread="t", ttl_ms=5000)
    assert room.say("ada", "@bob", "behind").held
    room.harness.pass_ms(5000)
    receipt = room.harness.receipts(room.sessions["ada"], mortal.message_id)["bob"]
    assert (receipt.state, receipt.held) == (State.EXPIRED, "")
    assert receipt.steps[-1].evidence == "time to live passed while it was held"
    assert room.read("bob") == ["behind"]


def test_a_removed_member_takes_its_held_deliveries_along(stuck: Room) -> None:
    held = stuck.say("bob", "@ada").message_id
    stuck.harness.remove("ada")
    assert stuck.harness.receipts(stuck.sessions["bob"], held)["ada"].state is State.DEAD
    stuck.harness.pass_ms(2 * LIMITS.pause_ms)
    stuck.harness.pass_ms(2 * LIMITS.pause_ms)
    assert not stuck.harness.broker.holds.any


def test_a_held_delivery_is_escalated_only_after_it_was_released(stuck: Room) -> None:
    harness = stuck.harness
    ways = Reach((Leg(Way.PUSH, 1000), Leg(Way.NOTIFY, 1000)), notify="hana")
    harness.ask(c.SetReach(harness.operator, name=stuck.harness.roster()["ada"].member.name, reach=ways))
    stuck.say("bob", "@ada")
    harness.pass_ms(10_000)
    harness.pass_ms(10_000)
    assert "unseen" not in stuck.notices("hana")
    harness.expect(Done, c.ResumeThread(harness.operator, thread="@ada+@bob"))
    harness.pass_ms(10_000)
    harness.pass_ms(10_000)
    assert "unseen" in stuck.notices("hana")


def test_who_follows_a_message_is_told_at_once_that_it_is_held(stuck: Room) -> None:
    held = stuck.say("bob", "@ada").message_id
    receipts = stuck.harness.expect(Receipts, c.Follow(stuck.sessions["bob"], message_id=held)).receipts
    assert [bool(receipt.held) for receipt in receipts] == [True]


def test_after_its_release_a_receipt_says_that_a_message_was_held_and_names_no_command(stuck: Room) -> None:
    held = stuck.say("bob", "@ada").message_id
    assert "tieline allow" in stuck.harness.receipts(stuck.sessions["bob"], held)["ada"].steps[-1].evidence
    stuck.harness.expect(Done, c.ResumeThread(stuck.sessions["hana"], thread="@ada+@bob"))
    receipt = stuck.harness.receipts(stuck.sessions["bob"], held)["ada"]
    assert (receipt.state, receipt.held) == (State.PENDING, "")
    assert receipt.steps[-1].evidence.startswith("was held: agents answered each other")
    assert "tieline" not in receipt.steps[-1].evidence


def test_an_acknowledgement_over_a_held_message_is_told_to_nobody_who_follows_it(room: Room) -> None:
    harness, ada, bob = room.harness, room.sessions["ada"], room.sessions["bob"]
    harness.expect(Done, c.PauseThread(room.sessions["hana"], thread="@ada+@bob"))
    held = room.say("ada", "@bob", "held 0").message_id
    room.say("cy", "@bob", "passes")
    harness.expect(Receipts, c.Follow(ada, message_id=held))
    harness.expect(Done, c.Advance(bob, ranges=((1, 2),), state=State.ACKED))
    assert harness.outcome.progress == []
    harness.expect(Done, c.ResumeThread(harness.operator, thread="@ada+@bob"))
    harness.advance(bob, 1)
    assert [(session, step.state) for session, step in harness.outcome.progress] == [(ada, State.ACKED)]


# Stewards.


def test_a_pause_by_hand_holds_what_agents_and_scripts_say_and_ends_by_itself(room: Room) -> None:
    room.join("cron", kind=MemberKind.SCRIPT)
    room.harness.expect(Done, c.PauseThread(room.sessions["hana"], thread="#dev"))
    for name in ("ada", "bob", "cron", "hana"):
        room.harness.subscribe(room.sessions[name], "dev")
    assert "hana paused #dev" in room.say("ada", "#dev", "0").held
    assert room.say("cron", "#dev", "1").held
    assert not room.say("hana", "#dev", "2").held
    assert not room.say("ada", "@bob", "3", topic="t").held
    room.harness.pass_ms(LIMITS.pause_ms)
    assert room.read("bob") == ["0", "1", "2", "3"]
    events = room.harness.events()
    assert [(event.thread, event.by) for event in events if isinstance(event, Paused)] == [("#dev", "hana")]
    assert [event.by for event in events if isinstance(event, Resumed)] == [""]
    assert not room.say("ada", "#dev").held


def test_a_pause_after_a_pause_that_was_ended_lasts_its_own_time(room: Room) -> None:
    harness = room.harness
    for word in (c.PauseThread, c.ResumeThread):
        harness.expect(Done, word(harness.operator, thread="@ada+@bob"))
    harness.pass_ms(1000)
    harness.expect(Done, c.PauseThread(harness.operator, thread="@ada+@bob"))
    room.say("bob", "@ada", "held")
    harness.pass_ms(LIMITS.pause_ms - 1)
    assert room.read("ada") == []
    harness.pass_ms(1)
    assert room.read("ada") == ["held"]


def test_allowing_a_conversation_lifts_its_limits_for_a_while_and_delivers_what_is_held(stuck: Room) -> None:
    stuck.harness.expect(Done, c.AllowThread(stuck.sessions["hana"], thread="@bob+@ada", for_ms=100_000))
    assert stuck.read("ada") == ["held 0"]
    stuck.harness.pass_ms(STEP_MS)
    assert not any(accepted.held for accepted in stuck.alternate("ada", "bob", 50))
    assert [event.thread for event in stuck.harness.events() if isinstance(event, Allowed)] == ["@ada+@bob"]
    stuck.harness.pass_ms(100_000)
    assert any(accepted.held for accepted in stuck.alternate("ada", "bob", LIMITS.hops_soft + 2))


def test_the_limits_are_higher_inside_an_open_objective_for_those_with_a_part_in_it(stuck: Room) -> None:
    harness = stuck.harness
    harness.expect(Done, c.ResumeThread(harness.operator, thread="@ada+@bob"))
    stuck.read("ada")
    lead = harness.join("lead", OBJECTIVES_CREATE)
    create = c.CreateObjective(session=lead, title="t", outcome="o", assignee=MemberName("ada"))
    objective = harness.expect(ObjectiveState, create).objective
    thread = f"obj:{objective.id}"
    # To name an objective is not to have a part in it.
    assert any(accepted.held for accepted in stuck.alternate("bob", "cy", 6, thread=thread))
    harness.expect(ObjectiveState, c.ChangeObjective(lead, objective_id=objective.id, change=Watch(add=("bob",))))
    harness.pass_ms(LIMITS.reply_window_ms)
    assert not any(accepted.held for accepted in stuck.alternate("ada", "bob", 20, thread=thread))
    harness.pass_ms(LIMITS.reply_window_ms)
    harness.expect(
        ObjectiveState, c.ChangeObjective(stuck.sessions["ada"], objective_id=objective.id, change=Complete("done"))
    )
    stuck.read("bob")
    for name in (thread, "obj:nothing"):
        assert any(accepted.held for accepted in stuck.alternate("ada", "bob", 6, thread=name))
        harness.pass_ms(LIMITS.reply_window_ms)


def test_only_stewards_pause_resume_and_allow_and_only_what_is_a_conversation(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    for make in (c.PauseThread, c.ResumeThread, c.AllowThread):
        assert harness.refused(make(ada, thread="@ada+@bob")).code is Code.FORBIDDEN
        for name in ("", "ada", "@ada", "@+@bob", "#" + "x" * 1000):
            assert harness.refused(make(harness.operator, thread=name)).code is Code.INVALID_REQUEST
        for name in ("*", "#dev", "obj:obj-1", "thread:t-1"):
            harness.expect(Done, make(harness.operator, thread=name))
    for for_ms in (0, -1, harness.limits.ttl_ms_max + 1):
        assert harness.refused(c.AllowThread(harness.operator, thread="*", for_ms=for_ms)).code is Code.INVALID_REQUEST


def test_resuming_what_is_not_paused_is_no_error_and_leaves_no_trace(harness: BrokerHarness) -> None:
    harness.expect(Done, c.ResumeThread(harness.operator, thread="thread:nothing"))
    assert not any(isinstance(event, Resumed) for event in harness.events())


def test_pauses_are_listed_with_their_end_their_reason_and_how_much_waits(stuck: Room) -> None:
    stuck.say("bob", "@ada")
    stuck.harness.expect(Done, c.PauseThread(stuck.sessions["hana"], thread="#dev"))
    stuck.harness.expect(Done, c.AllowThread(stuck.sessions["hana"], thread="#ops"))
    listed = stuck.harness.expect(Pauses, c.ListPauses(stuck.sessions["hana"])).pauses
    assert [(pause.conversation, pause.by, pause.held, pause.allowed) for pause in listed] == [
        ("@ada+@bob", "", 2, False),
        ("#dev", "hana", 0, False),
        ("#ops", "hana", 0, True),
    ]
    assert "hops_max = 8" in listed[0].reason


def test_past_their_limit_the_pauses_that_end_first_are_let_go(make_harness: MakeHarness) -> None:
    room = Room(make_harness(Limits(holds_max=2)))
    room.join("ada", "bob")
    for thread in ("one", "two", "three"):
        room.harness.expect(Done, c.PauseThread(room.harness.operator, thread=f"thread:{thread}"))
        assert room.say("ada", "@bob", thread, thread=thread).held
        room.harness.pass_ms(1)
    assert room.read("bob") == ["one"]


# The whole.


def test_a_coordinator_with_ten_workers_is_slowed_at_most(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits())
    room = Room(harness)
    workers = [f"w{number}" for number in range(10)]
    room.join("lead", *workers)
    rounds = dict.fromkeys(workers, 0)
    # Messages to come (time, speaker, hearer): a member answers one second after a delivery.
    due = [(harness.clock_and_ids.time_ms, "lead", name) for name in workers]
    slowed = False
    for _ in range(10_000):
        if not due and not any(presence.backlog for presence in harness.roster().values()):
            break
        for at_ms, speaker, hearer in [entry for entry in due if entry[0] <= harness.clock_and_ids.time_ms]:
            due.remove((at_ms, speaker, hearer))
            slowed |= "hops_soft" in room.say(speaker, f"@{hearer}", speaker).held
            if speaker == "lead":
                rounds[hearer] += 1
        for name in (*workers, "lead"):
            answered = [sender for sender in room.read(name) if name != "lead" or rounds[sender] < 40]
            due += [(harness.clock_and_ids.time_ms + STEP_MS, name, sender) for sender in answered]
        harness.pass_ms(STEP_MS)
    assert rounds == dict.fromkeys(workers, 40)
    assert (len(room.given["lead"]), slowed) == (400, True)
    assert not any(isinstance(event, Paused) for event in harness.events())


def test_a_ring_is_slowed_then_held_and_resumed_in_order(room: Room) -> None:
    ring = ["ada", "bob", "cy"]
    said: list[str] = []
    while not said or "hops_max" not in said[-1]:
        if said:
            room.wait_for(ring[len(said) % 3])
            room.harness.pass_ms(STEP_MS)
        turn = len(said)
        said.append(room.say(ring[turn % 3], f"@{ring[(turn + 1) % 3]}", f"{turn}").held)
        assert turn < 100
    assert any("hops_soft" in held for held in said)
    assert room.notices("hana") == ["slowed", "held"]
    pause = room.harness.expect(Pauses, c.ListPauses(room.harness.operator)).pauses[0]
    room.harness.expect(Done, c.ResumeThread(room.harness.operator, thread=pause.conversation))
    assert room.read(ring[len(said) % 3]) == [f"{len(said) - 1}"]
    given = [body for bodies in room.given.values() for body in bodies]
    assert sorted(given, key=int) == [f"{number}" for number in range(len(said))]


def test_a_message_says_how_many_hops_led_to_it(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    first = harness.send(ada, "@bob")
    harness.advance(bob, 1)
    harness.pass_ms(STEP_MS)
    harness.send(bob, "@ada")
    message = harness.fetch(ada)[0].message
    assert (message.hops, message.cause) == (1, first.message_id)


@pytest.mark.slow
def test_two_programs_that_alternate_ten_thousand_times_are_never_held(harness: BrokerHarness) -> None:
    sessions = [harness.join("ada"), harness.join("bob")]
    keys = [0, 0]
    for turn in range(10_000):
        speaker, hearer = turn % 2, 1 - turn % 2
        keys[hearer] += 1
        (accepted, *_) = harness.decide(
            c.Send(sessions[speaker], content=content(("@bob", "@ada")[speaker])),
            c.Offered(sessions[hearer], first=keys[hearer], last=keys[hearer]),
            c.Advance(sessions[hearer], ranges=((keys[hearer], keys[hearer]),)),
        )
        assert isinstance(accepted, Accepted)
        assert not accepted.held
        harness.clock_and_ids.time_ms += 2
    harness.broker.commit()
    assert {presence.backlog for presence in harness.roster().values()} == {0}


def test_scripts_that_alternate_a_step_a_second_are_never_held(harness: BrokerHarness) -> None:
    room = Room(harness)
    room.join("ada", "bob", kind=MemberKind.SCRIPT)
    assert not any(accepted.held for accepted in room.alternate("ada", "bob", 500))


def test_a_kind_can_be_declared_later(stuck: Room) -> None:
    harness = stuck.harness
    for name in ("ada", "bob"):
        harness.ask(c.UpdateMember(harness.operator, name=harness.roster()[name].member.name, kind=MemberKind.SCRIPT))
    harness.expect(Done, c.ResumeThread(harness.operator, thread="@ada+@bob"))
    harness.restart()
    stuck.attach()
    assert harness.roster()["ada"].member.kind is MemberKind.SCRIPT
    stuck.read("ada")
    assert not any(accepted.held for accepted in stuck.alternate("ada", "bob", 40))
