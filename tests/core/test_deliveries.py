"""Deliveries after sending: the ladder, claims, expiry, receipts, following."""

import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import START_MS, Desk, content
from tieline.contract import command as c
from tieline.contract.delivery import State, Step
from tieline.contract.event import Acknowledged, Claimed, Delivered, Expired, Seen
from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.limits import Limits
from tieline.contract.member import Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Fetched, Progress, Receipts
from tieline.contract.reply import Claimed as ClaimedReply

# The ladder


def test_a_delivery_moves_up_the_ladder_and_the_sender_sees_each_rung_with_its_evidence(desk: Desk) -> None:
    ada = desk.join("ada")
    bob = desk.attach_by_token(desk.add("bob"), "backchannel")
    sent = desk.send(ada, "@bob")
    desk.clock_and_ids.time_ms += 10
    desk.offered(bob, 1)
    desk.clock_and_ids.time_ms += 10
    desk.advance(bob, 1, State.SEEN, "a tool call")
    desk.clock_and_ids.time_ms += 10
    desk.advance(bob, 1, State.ACKED, "ack")
    receipt = desk.receipts(ada, sent.message_id)["bob"]
    assert (receipt.key, receipt.state) == (1, State.ACKED)
    assert receipt.steps == (
        Step(State.PENDING, START_MS, protocol="hub"),
        Step(State.OFFERED, START_MS + 10, bob, "backchannel"),
        Step(State.SEEN, START_MS + 20, bob, "backchannel", "a tool call"),
        Step(State.ACKED, START_MS + 30, bob, "backchannel", "ack"),
    )
    kinds = [type(event) for event in desk.events() if isinstance(event, Delivered | Seen | Acknowledged)]
    assert kinds == [Delivered, Seen, Acknowledged]


def test_receipts_say_what_was_decided_before_it_is_committed(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    advance = c.Advance(bob, ranges=((1, 1),), state=State.SEEN)
    _, receipts = desk.decide(advance, c.ReadReceipts(ada, message_id=sent.message_id))
    assert isinstance(receipts, Receipts)
    assert receipts.receipts[0].state is State.SEEN


def test_moving_twice_is_moving_once(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.advance(bob, 1, evidence="first")
    rows = len(desk.log())
    desk.advance(bob, 1, evidence="second")
    desk.offered(bob, 1)
    assert len(desk.log()) == rows
    assert desk.receipts(ada, sent.message_id)["bob"].steps[-1].evidence == "first"


def test_unknown_keys_are_ignored(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.ask(c.Advance(bob, ranges=((-5, 0), (2, 10**12))))
    assert desk.state(sent.message_id, "bob") is State.PENDING
    desk.ask(c.Advance(bob, ranges=((-5, 10**12),)))
    assert desk.state(sent.message_id, "bob") is State.ACKED


def test_one_row_of_the_log_covers_a_range_of_acknowledgements(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    for _ in range(10):
        desk.send(ada, "@bob")
    before = len(desk.log())
    desk.ask_all(*(c.Advance(bob, ranges=((key, key),)) for key in range(1, 11)))
    rows = desk.events()[before:]
    assert [event.keys for event in rows if isinstance(event, Acknowledged)] == [((1, 10),)]


def test_a_member_moves_its_own_deliveries_only(desk: Desk) -> None:
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    sent = desk.send(ada, "@bob")
    desk.advance(cy, 1)
    desk.advance(ada, 1)
    assert desk.state(sent.message_id, "bob") is State.PENDING
    assert len(desk.fetch(bob)) == 1


@pytest.mark.parametrize("state", [State.PENDING, State.OFFERED, State.EXPIRED])
def test_a_session_cannot_declare_what_only_the_hub_knows(desk: Desk, state: State) -> None:
    bob = desk.join("bob")
    assert desk.refused(c.Advance(bob, ranges=((1, 1),), state=state)).code is Code.INVALID_REQUEST


@pytest.mark.parametrize(("state", "evidence"), [(State.SEEN, "claim"), (State.DEAD, "claim"), (State.ACKED, "claim")])
def test_whatever_the_evidence_is_called_the_rung_is_the_same_after_a_crash(
    desk: Desk, state: State, evidence: str
) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.advance(bob, 1, state, evidence)
    assert desk.state(sent.message_id, "bob") is state
    waiting = len(desk.fetch(bob))
    desk.crash()
    assert desk.state(sent.message_id, "bob") is state
    assert len(desk.fetch(desk.attach("bob"))) == waiting


def test_a_delivery_that_cannot_fit_its_wire_is_dead_with_the_reason(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.advance(bob, 1, State.DEAD, "too_large")
    receipt = desk.receipts(ada, sent.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence) == (State.DEAD, "too_large")
    assert desk.fetch(bob) == ()


def test_deliveries_belong_to_the_member_and_not_to_one_session(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob")
    desk.offered(bob, 1)
    desk.ask(c.Detach(bob))
    other = desk.attach("bob", "peerbus")
    assert [delivery.state for delivery in desk.fetch(other)] == [State.OFFERED]
    desk.advance(other, 1)
    assert desk.fetch(desk.attach("bob")) == ()


# Reading


def test_fetching_goes_page_by_page_and_says_when_it_is_complete(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    for number in range(5):
        desk.send(ada, "@bob", str(number))
    desk.advance(bob, 2)
    pages = []
    after, complete = 0, False
    while not complete:
        page = desk.expect(Fetched, c.Fetch(bob, after=after, limit=2))
        pages.append([delivery.message.content.body for delivery in page.deliveries])
        after, complete = page.through, page.complete
    assert pages == [["0", "2"], ["3", "4"]]
    assert after == 5


def test_an_empty_inbox_is_complete(desk: Desk) -> None:
    assert desk.expect(Fetched, c.Fetch(desk.join("ada"))) == Fetched(deliveries=(), through=0, complete=True)


def test_only_what_was_not_offered_yet_is_read_when_asked_so(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    for body in ("one", "two", "three"):
        desk.send(ada, "@bob", body)
    desk.offered(bob, 1, 2)
    assert [item.message.content.body for item in desk.fetch(bob, unoffered_until=4)] == ["three"]


def test_a_page_is_never_larger_than_the_limit(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(read_max=2))
    ada, bob = desk.join("ada"), desk.join("bob")
    for _ in range(3):
        desk.send(ada, "@bob")
    assert len(desk.fetch(bob, limit=100)) == 2
    assert len(desk.fetch(bob, limit=0)) == 1


# Claims


def test_exactly_one_session_wins_a_claim(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.add("bob")
    sessions = [desk.attach("bob") for _ in range(4)]
    sent = desk.send(ada, "@bob", "take me")
    replies = desk.ask_all(*(c.Claim(session, message_id=sent.message_id) for session in sessions))
    won = [reply.delivery for reply in replies if isinstance(reply, ClaimedReply) and reply.delivery]
    assert len(won) == 1
    assert won[0].message.content.body == "take me"
    assert [reply for reply in replies if reply == ClaimedReply(None)] == replies[1:]
    assert desk.outcome.urgent, "a claim is answered once it is durable"


def test_a_claim_settles_the_delivery_and_the_log_calls_it_a_claim(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    assert desk.claim(bob, sent.message_id) is not None
    receipt = desk.receipts(ada, sent.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].session) == (State.ACKED, bob)
    assert [event.keys for event in desk.events() if isinstance(event, Claimed)] == [((1, 1),)]
    assert desk.roster()["bob"].backlog == 0


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_claimed_delivery_stays_claimed_when_the_hub_comes_back(desk: Desk, how: str) -> None:
    desk.add("ada")
    desk.add("bob")
    sent = desk.send(desk.attach("ada"), "@bob")
    assert desk.claim(desk.attach("bob"), sent.message_id) is not None
    getattr(desk, how)()
    assert desk.claim(desk.attach("bob"), sent.message_id) is None


def test_a_claim_that_was_never_committed_can_be_made_again(desk: Desk) -> None:
    desk.add("ada")
    desk.add("bob")
    sent = desk.send(desk.attach("ada"), "@bob")
    desk.decide(c.Claim(desk.attach("bob"), message_id=sent.message_id))
    desk.crash()
    assert desk.claim(desk.attach("bob"), sent.message_id) is not None


def test_what_is_acknowledged_cannot_be_claimed(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.advance(bob, 1)
    assert desk.claim(bob, sent.message_id) is None


def test_what_was_offered_or_seen_can_still_be_claimed(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.offered(bob, 1)
    desk.advance(bob, 1, State.SEEN)
    delivery = desk.claim(bob, sent.message_id)
    assert delivery is not None
    assert delivery.key == 1


def test_a_member_cannot_claim_what_was_sent_to_another(desk: Desk) -> None:
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    sent = desk.send(ada, "@bob")
    desk.send(ada, "@cy")
    assert desk.claim(cy, sent.message_id) is None
    assert desk.claim(ada, sent.message_id) is None
    assert desk.claim(bob, sent.message_id) is not None


def test_each_recipient_claims_its_own_delivery_of_a_broadcast(desk: Desk) -> None:
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    sent = desk.send(ada, "*")
    assert desk.claim(bob, sent.message_id) is not None
    assert desk.claim(cy, sent.message_id) is not None


def test_a_message_that_never_was_cannot_be_claimed(desk: Desk) -> None:
    assert desk.claim(desk.join("ada"), MessageId("no such message")) is None


def test_one_without_an_identity_has_no_inbox_to_read_or_to_claim_from(desk: Desk) -> None:
    client = desk.expect(Attached, c.Attach(protocol="agent-channels", credential=Unnamed("client-1", "dev"))).session
    for command in (c.Claim(client, message_id=MessageId("m")), c.Fetch(client), c.Advance(client, ranges=((1, 1),))):
        assert desk.refused(command).code is Code.INVALID_REQUEST


# Time to live


def test_a_delivery_expires_at_its_deadline_and_not_before(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob", ttl_ms=1000)
    desk.pass_ms(999)
    assert desk.state(sent.message_id, "bob") is State.PENDING
    desk.pass_ms(1)
    receipt = desk.receipts(ada, sent.message_id)["bob"]
    assert receipt.state is State.EXPIRED
    assert receipt.steps[-1].at_ms == START_MS + 1000
    assert receipt.steps[-1].evidence
    assert desk.fetch(bob) == ()
    assert desk.roster()["bob"].backlog == 0
    assert [event.keys for event in desk.events() if isinstance(event, Expired)] == [((1, 1),)]


def test_no_command_of_the_same_instant_finds_what_expires_in_it(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob", ttl_ms=1000)
    desk.clock_and_ids.time_ms += 1000
    assert desk.claim(bob, sent.message_id) is None


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_deadlines_are_kept_when_the_hub_comes_back(desk: Desk, how: str) -> None:
    desk.add("ada")
    desk.add("bob")
    short = desk.send(desk.attach("ada"), "@bob", ttl_ms=1000)
    long = desk.send(desk.attach("ada"), "@bob", ttl_ms=5000)
    desk.clock_and_ids.time_ms += 500
    getattr(desk, how)()
    desk.pass_ms(499)
    assert desk.state(short.message_id, "bob") is State.PENDING
    desk.pass_ms(1)
    assert desk.state(short.message_id, "bob") is State.EXPIRED
    assert desk.state(long.message_id, "bob") is State.PENDING


def test_a_deadline_that_passed_while_the_hub_was_down_is_honoured_at_once(desk: Desk) -> None:
    desk.add("ada")
    desk.add("bob")
    desk.send(desk.attach("ada"), "@bob", ttl_ms=1000)
    desk.broker.close()
    desk.clock_and_ids.time_ms += 2000
    desk.open()
    assert desk.fetch(desk.attach("bob")) == ()


def test_what_was_acknowledged_in_time_does_not_expire(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob", ttl_ms=1000)
    desk.advance(bob, 1)
    desk.pass_ms(1000)
    assert desk.state(sent.message_id, "bob") is State.ACKED


def test_a_broadcast_expires_for_those_who_did_not_settle_it(desk: Desk) -> None:
    ada, bob, _ = desk.join("ada"), desk.join("bob"), desk.join("cy")
    sent = desk.send(ada, "*", ttl_ms=1000)
    desk.advance(bob, 1)
    desk.pass_ms(1000)
    assert desk.state(sent.message_id, "bob") is State.ACKED
    assert desk.state(sent.message_id, "cy") is State.EXPIRED


# Wires without acknowledgement


def test_what_went_out_on_a_wire_without_acknowledgement_is_readable_but_no_backlog(desk: Desk) -> None:
    ada, _ = desk.join("ada"), desk.add("bob")
    ackless = desk.attach("bob", "agent-channels", acknowledges=False)
    desk.send(ada, "@bob")
    assert desk.roster()["bob"].backlog == 1
    desk.offered(ackless, 1)
    for _ in range(2):
        assert desk.roster()["bob"].backlog == 0
        assert desk.bodies(desk.attach("bob")) == ["hello"]
        desk.crash()


# Receipts and following


def test_receipts_are_for_the_sender_and_the_recipients_alone(desk: Desk) -> None:
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    sent = desk.send(ada, "@bob")
    assert desk.receipts(ada, sent.message_id).keys() == {"bob"}
    assert desk.receipts(bob, sent.message_id).keys() == {"bob"}
    for command in (c.ReadReceipts(cy, message_id=sent.message_id), c.Follow(cy, message_id=sent.message_id)):
        stranger = desk.refused(command)
        assert stranger.code is Code.UNKNOWN_MESSAGE
    unknown = desk.refused(c.ReadReceipts(cy, message_id=MessageId("nothing")))
    known = desk.refused(c.ReadReceipts(cy, message_id=sent.message_id))
    assert unknown.message == known.message.replace(sent.message_id, "nothing"), "a stranger cannot tell them apart"


def test_receipts_are_in_order_of_the_recipients_names(desk: Desk) -> None:
    ada = desk.join("ada")
    for name in ("zoe", "bob", "max"):
        desk.add(name)
    sent = desk.send(ada, "*")
    reply = desk.expect(Receipts, c.ReadReceipts(ada, message_id=sent.message_id))
    assert [receipt.member for receipt in reply.receipts] == ["bob", "max", "zoe"]


def progress(desk: Desk) -> list[tuple[str, str, State]]:
    return [(session, step.member, step.state) for session, step in desk.outcome.progress]


def test_a_follower_hears_of_each_step_as_it_happens(desk: Desk) -> None:
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    sent = desk.send(ada, "*")
    now = desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    assert [receipt.state for receipt in now.receipts] == [State.PENDING, State.PENDING]
    desk.offered(bob, 1)
    assert progress(desk) == [(ada, "bob", State.OFFERED)]
    desk.advance(bob, 1)
    step = Progress(message_id=sent.message_id, member=MemberName("bob"), state=State.ACKED, at_ms=START_MS)
    assert desk.outcome.progress == [(ada, step)]
    desk.advance(bob, 1)
    assert progress(desk) == []
    assert desk.claim(cy, sent.message_id) is not None
    assert progress(desk) == [(ada, "cy", State.ACKED)]


def test_a_follower_hears_of_expiry_and_removal(desk: Desk) -> None:
    ada, _, _ = desk.join("ada"), desk.add("bob"), desk.add("cy")
    sent = desk.send(ada, "*", ttl_ms=1000)
    desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    desk.remove("bob")
    assert progress(desk) == [(ada, "bob", State.DEAD)]
    desk.pass_ms(1000)
    assert progress(desk) == [(ada, "cy", State.EXPIRED)]


def test_other_messages_are_not_told_to_a_follower(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.expect(Receipts, c.Follow(ada, message_id=desk.send(ada, "@bob", "followed").message_id))
    desk.send(ada, "@bob", "not followed")
    desk.advance(bob, 2)
    assert progress(desk) == []


def test_following_twice_is_following_once(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    desk.advance(bob, 1)
    assert progress(desk) == [(ada, "bob", State.ACKED)]


@pytest.mark.parametrize("times", [1, 2])
def test_an_ended_session_is_told_nothing_more(desk: Desk, times: int) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    for _ in range(times):
        desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    desk.ask(c.Detach(ada))
    desk.advance(bob, 1)
    assert progress(desk) == []


def test_a_removed_members_session_is_told_nothing_more(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    desk.remove("ada")
    desk.advance(bob, 1)
    assert progress(desk) == []


@pytest.mark.parametrize("until", [State.SEEN, State.ACKED])
def test_waiting_for_what_can_never_come_is_refused_at_once_with_the_reason(desk: Desk, until: State) -> None:
    ada, _ = desk.join("ada"), desk.add("bob")
    desk.attach("bob", "agent-channels", acknowledges=False)
    sent = desk.send(ada, "@bob")
    refusal = desk.refused(c.Follow(ada, message_id=sent.message_id, until=until))
    assert refusal.code is Code.NEVER_ACKNOWLEDGED
    assert "bob" in refusal.message
    assert "agent-channels" in refusal.message


def test_one_session_that_acknowledges_is_enough_to_wait_for(desk: Desk) -> None:
    ada, _ = desk.join("ada"), desk.add("bob")
    desk.attach("bob", "agent-channels", acknowledges=False)
    desk.attach("bob", "peerbus")
    desk.expect(Receipts, c.Follow(ada, message_id=desk.send(ada, "@bob").message_id))


def test_a_member_that_is_away_may_come_back_with_acknowledgements(desk: Desk) -> None:
    ada, _ = desk.join("ada"), desk.add("bob")
    desk.expect(Receipts, c.Follow(ada, message_id=desk.send(ada, "@bob").message_id))


def test_waiting_for_an_offer_is_possible_on_any_wire(desk: Desk) -> None:
    ada, _ = desk.join("ada"), desk.add("bob")
    desk.attach("bob", "agent-channels", acknowledges=False)
    desk.expect(Receipts, c.Follow(ada, message_id=desk.send(ada, "@bob").message_id, until=State.OFFERED))


def test_what_was_acknowledged_before_can_be_followed_whatever_wire_is_left(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.advance(bob, 1)
    desk.ask(c.Detach(bob))
    desk.attach("bob", "agent-channels", acknowledges=False)
    reply = desk.ask(c.Follow(ada, message_id=sent.message_id, until=State.ACKED))
    assert not isinstance(reply, Refusal), reply


def test_an_accepted_message_asks_for_a_commit_and_an_acknowledgement_does_not_hurry_it(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    assert not desk.broker.dirty
    desk.decide(c.Send(ada, content=content("@bob")))
    assert desk.broker.dirty
    assert desk.outcome.urgent
    desk.broker.commit()
    assert not desk.broker.dirty
    desk.decide(c.Advance(bob, ranges=((1, 1),)))
    assert desk.broker.dirty
    assert not desk.outcome.urgent


def test_receipts_of_many_recipients_come_in_pages_by_name(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(receipts_max=2))
    ada = desk.join("ada")
    for name in ("eve", "bob", "cy", "dan", "flo"):
        desk.join(name)
    sent = desk.send(ada, "*")
    desk.remove("cy")
    seen: list[str] = []
    more = True
    while more:
        page = desk.expect(Receipts, c.ReadReceipts(ada, message_id=sent.message_id, after=seen[-1] if seen else ""))
        assert len(page.receipts) <= 2
        seen += [receipt.member for receipt in page.receipts]
        more = page.more
    assert seen == ["bob", "cy", "dan", "eve", "flo"]
    only = desk.expect(Receipts, c.ReadReceipts(ada, message_id=sent.message_id, members=("flo", "nobody"))).receipts
    assert [receipt.member for receipt in only] == ["flo"]
