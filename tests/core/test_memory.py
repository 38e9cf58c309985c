"""Tests of the broker's memory: a command that raises changes nothing, and a failed commit ends no session."""

from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from tests.core.doubles import BrokerHarness, content
from tests.core.lives import HOME_KEY, Bug, Walk, open_harness, store_of, work
from tests.core.test_external_inboxes import BOB, Shop
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MemberName
from tieline.contract.keys import Ranges
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey, ByToken
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, Done, History
from tieline.core.directory import Account
from tieline.core.external_inboxes import ExternalInboxes
from tieline.core.store import DiskError, StoreError
from tieline.stores.sqlite.store import MAIN_FILE


@pytest.fixture
def faulty(tmp_path: Path) -> BrokerHarness:
    """Fixture: a broker harness with a `FaultyStore`, in which a test can let calls raise."""
    return open_harness(tmp_path / "faulty")


@pytest.mark.parametrize("seed", range(12))
def test_a_life_with_commands_that_raise_is_the_life_without_them(seed: int, tmp_path: Path) -> None:
    calm, troubled = (Walk(open_harness(tmp_path / where), seed) for where in ("a", "b"))
    for _ in range(14):
        calm.batch(poisoned=False)
        troubled.batch(poisoned=True)
        assert troubled.replies == calm.replies
        assert troubled.told == calm.told
        assert troubled.state() == calm.state()
    for walk in (calm, troubled):
        walk.harness.broker.commit()
    assert troubled.log() == calm.log()
    before = troubled.state()
    troubled.harness.crash()
    after = troubled.state()
    for part in (
        "inboxes",
        "next keys",
        "backlogs",
        "streams",
        "tokens",
        "channels",
        "team",
        "objectives",
        "deadlines",
    ):
        assert after[part] == before[part], f"the store keeps the same {part}"


@pytest.mark.parametrize("seed", range(6))
def test_a_life_with_commits_that_fail_is_the_life_without_what_they_held(seed: int, tmp_path: Path) -> None:
    calm, troubled = (Walk(open_harness(tmp_path / where), seed) for where in ("a", "b"))
    for _ in range(14):
        commands = [troubled.command() for _ in range(5)]
        troubled.harness.broker.handle(commands)
        store_of(troubled.harness).full = True
        with pytest.raises(DiskError):
            troubled.harness.broker.commit()
        store_of(troubled.harness).full = False
        troubled.harness.broker.roll_back()
        for _ in range(5):
            calm.command()
        calm.batch(poisoned=False)
        troubled.batch(poisoned=False)
        assert troubled.replies == calm.replies
        assert troubled.state() == calm.state()


# A bad command is refused alone.


@pytest.mark.parametrize("field", ["after", "before"])
@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**80, -(2**63) - 1])
def test_a_position_beyond_every_log_is_an_empty_page_or_all_of_it(
    harness: BrokerHarness, field: str, number: int
) -> None:
    alice = harness.join("alice")
    harness.send(alice, "@alice")
    for forward in (True, False):
        command = c.ReadHistory(alice, forward=forward)
        found = harness.expect(History, replace(command, **{field: number})).messages
        everything = (number > 0) == (field == "before")
        assert len(found) == everything


def test_a_token_that_would_expire_after_the_end_of_time_is_refused(harness: BrokerHarness) -> None:
    alice = harness.join("alice")
    refusal = harness.refused(c.IssueToken(alice, name=MemberName("alice"), expires_at_ms=2**63))
    assert refusal.code is Code.INVALID_REQUEST


def test_a_read_that_raises_costs_no_rollback(faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = faulty.join("alice")
    monkeypatch.setattr(faulty.broker, "roll_back", lambda: pytest.fail("nothing had changed"))
    store_of(faulty).left = 1
    first, second = work(faulty, (c.ReadHistory(alice), c.Send(alice, content=content("@alice")))).replies
    assert isinstance(first, Refusal)
    assert first.code is Code.INTERNAL_ERROR
    assert isinstance(second, Accepted)


def test_an_expiry_that_raises_keeps_nobody_from_being_served(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    shop = Shop()
    faulty.set_external_inbox(BOB, shop)
    stuck = faulty.send(alice, "@bob", "stuck", ttl_ms=10).message_id
    monkeypatch.setattr(ExternalInboxes, "reserve", lambda *_: 1 / 0)
    faulty.clock_and_ids.time_ms += 20
    for _ in range(3):
        faulty.expect(Accepted, c.Send(alice, content=content("@alice")))
    assert [fault.what for fault in faulty.broker.faults] == ["Tick"]
    assert faulty.state(stuck, "bob") is State.PENDING
    assert faulty.bodies(bob) == ["stuck"]


def test_an_expiry_that_failed_once_comes_later_and_costs_one_rollback(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = faulty.join("alice")
    faulty.add("bob")
    shop = Shop()
    faulty.set_external_inbox(BOB, shop)
    said = [faulty.send(alice, "@bob", ttl_ms=10).message_id for _ in range(5)]
    with monkeypatch.context() as patch:
        patch.setattr(ExternalInboxes, "reserve", lambda *_: 1 / 0)
        faulty.pass_ms(20)
        faulty.pass_ms(1000)
        assert len(faulty.broker.faults) == 1
    faulty.pass_ms(60_000)
    assert [faulty.state(each, "bob") for each in said] == [State.PENDING] + 4 * [State.EXPIRED]
    faulty.pass_ms(60_000)
    assert faulty.state(said[0], "bob") is State.EXPIRED
    assert len(faulty.broker.faults) == 1


def test_a_delivery_that_never_expires_is_tried_ever_less_and_the_others_expire(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = faulty.join("alice")
    faulty.add("bob")
    shop = Shop()
    faulty.set_external_inbox(BOB, shop)
    tried: list[int] = []

    def fail(_: object, account: Account, ranges: Ranges, *__: object) -> tuple[Ranges, Ranges]:
        if account.name != BOB:
            return ranges, ()
        tried.append(1)
        raise Bug

    faulty.send(alice, "@bob", ttl_ms=10)
    monkeypatch.setattr(ExternalInboxes, "reserve", fail)
    for _ in range(300):
        faulty.pass_ms(60_000)
    assert len(tried) == 1 + 5 + 3, "after 2, 4, 8, 16 and 32 minutes, and then each hour"
    other = faulty.send(alice, "@alice", ttl_ms=10).message_id
    faulty.pass_ms(60_000)
    assert faulty.state(other, "alice") is State.EXPIRED


def test_a_chore_that_raises_rests_and_the_others_are_done(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def fail(*_: object) -> None:
        tried.append(1)
        raise Bug

    monkeypatch.setattr("tieline.core.retention.Retention.work", fail)
    for _ in range(5):
        assert work(faulty, (c.Tick(),)).replies
        faulty.clock_and_ids.time_ms += 1000
    assert tried == [1]


# Answered work survives a failed commit.


def test_an_acknowledgement_that_was_answered_survives_a_commit_that_fails(faulty: BrokerHarness) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    first, second = faulty.send(alice, "@bob", "1").message_id, faulty.send(alice, "@bob", "2").message_id
    work(faulty, (c.Offered(bob, first=1, last=2), c.Advance(bob, ranges=((1, 1),)), c.Detach(bob)))
    fill(faulty, c.Send(alice, content=content("@bob", "lost")))
    assert faulty.bodies(faulty.attach("bob")) == ["2"]
    faulty.broker.commit()
    faulty.crash()
    assert faulty.state(first, "bob") is State.ACKED
    assert faulty.state(second, "bob") is State.OFFERED
    assert faulty.bodies(faulty.attach("bob")) == ["2"]


def fill(harness: BrokerHarness, *commands: c.Command) -> None:
    """Handle commands, let the commit fail because the disk is full, and roll back."""
    harness.handle(commands)
    store_of(harness).full = True
    with pytest.raises(DiskError):
        harness.commit()
    store_of(harness).full = False
    harness.roll_back()


def test_a_published_right_to_take_up_a_session_needs_no_disk_to_roll_back(tmp_path: Path) -> None:
    harness = open_harness(tmp_path)
    harness.add("alice", token="a token of twenty characters")
    hello = c.Attach(protocol="hub", credential=ByToken("a token of twenty characters"), resumable=True)
    first = harness.expect(Attached, hello)
    second = harness.expect(Attached, replace(hello, resume_token=first.resume_token))
    store_of(harness)._main.set_busy_timeout(0)
    work(harness, (c.Confirm(second.session),))
    blocker = apsw.Connection(str(tmp_path / MAIN_FILE))
    harness.broker.handle((c.Send(second.session, content=content("@alice")),))
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError):
        harness.broker.commit()
    harness.broker.roll_back()
    blocker.execute("ROLLBACK")
    blocker.close()
    store_of(harness).retry()
    harness.broker.commit()
    harness.crash()
    assert harness.refused(replace(hello, resume_token=first.resume_token)).code is Code.RESUME_REFUSED
    assert harness.expect(Attached, replace(hello, resume_token=second.resume_token)).resumed


def test_a_right_of_a_removed_member_is_not_kept(faulty: BrokerHarness) -> None:
    token = faulty.add("alice")
    resumable = c.Attach(protocol="hub", credential=ByToken(token), resumable=True)
    work(faulty, (resumable, c.RemoveMember(faulty.operator, name=MemberName("alice"))))
    assert faulty.store.restore().grants == []


def test_keys_of_a_batch_that_failed_are_given_again(faulty: BrokerHarness) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    fill(
        faulty,
        c.Send(alice, content=content("@bob", "lost"), wire_id="w1"),
        c.Send(alice, content=content("@bob", "lost"), wire_id="w2"),
    )
    kept = faulty.send(alice, "@bob", "kept", wire_id="w1")
    assert [(item.key, item.stream_seq) for item in faulty.fetch(bob)] == [(1, 1)]
    assert not kept.duplicate


def test_sessions_that_a_failed_batch_opened_or_ended_are_as_they_were(faulty: BrokerHarness) -> None:
    token = faulty.add("alice")
    alice = faulty.attach_by_token(token)
    fill(faulty, c.RotateToken(faulty.operator, name=MemberName("alice")))
    assert faulty.outcome is not None
    faulty.expect(Accepted, c.Send(alice, content=content("@alice")))
    assert faulty.roster()["alice"].sessions == ("hub",)
    attach = c.Attach(protocol="x", credential=ByHomeKey(HOME_KEY), member=MemberName("alice"))
    fill(faulty, attach)
    assert faulty.roster()["alice"].sessions == ("hub",)


def test_who_follows_a_message_hears_of_a_step_that_failed_once(faulty: BrokerHarness) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    said = faulty.send(alice, "@bob")
    faulty.ask(c.Follow(alice, message_id=said.message_id))
    fill(faulty, c.Claim(bob, message_id=said.message_id))
    outcome = work(faulty, (c.Claim(bob, message_id=said.message_id),))
    assert [(session, step.state) for session, step in outcome.progress] == [(alice, State.ACKED)]


def test_who_leaves_in_a_batch_that_failed_hears_on_of_what_it_follows(faulty: BrokerHarness) -> None:
    token = faulty.add("alice")
    first, second, bob = faulty.attach_by_token(token), faulty.attach("alice"), faulty.join("bob")
    said = faulty.send(first, "@bob").message_id
    for session in (first, second):
        faulty.ask(c.Follow(session, message_id=said))
    fill(faulty, c.RotateToken(faulty.operator, name=MemberName("alice")))
    outcome = work(faulty, (c.Advance(bob, ranges=((1, 1),), state=State.SEEN),))
    assert {session for session, _ in outcome.progress} == {first, second}
    faulty.ask(c.Detach(first))
    outcome = work(faulty, (c.Claim(bob, message_id=said),))
    assert [(session, step.state) for session, step in outcome.progress] == [(second, State.ACKED)]


def test_what_was_reserved_for_a_failed_commit_is_given_back_and_can_be_reserved_again(
    faulty: BrokerHarness,
) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    shop = Shop()
    faulty.set_external_inbox(BOB, shop)
    said = faulty.send(alice, "@bob").message_id
    fill(faulty, c.Claim(bob, message_id=said))
    assert (shop.given_back, shop.finished) == ([1], [])
    assert faulty.claim(bob, said) is not None
    assert shop.finished == [1]


def test_what_was_reserved_for_an_answered_acknowledgement_is_not_given_back(faulty: BrokerHarness) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    shop = Shop()
    faulty.set_external_inbox(BOB, shop)
    faulty.send(alice, "@bob")
    work(faulty, (c.Advance(bob, ranges=((1, 1),)),))
    fill(faulty, c.Send(alice, content=content("@alice")))
    assert (shop.given_back, shop.finished) == ([], [])
    faulty.commit()
    assert shop.finished == [1]


def test_a_rollback_after_a_rollback_replays_little(tmp_path: Path) -> None:
    harness = open_harness(tmp_path, Limits(snapshot_rows=100_000))
    alice = harness.join("alice")
    for _ in range(5):
        harness.ask_all(*(c.Send(alice, content=content("@alice")) for _ in range(1000)))
    fill(harness, c.Send(alice, content=content("@alice")))
    harness.send(alice, "@alice")
    replayed = list(harness.store.replay(harness.store.restore().snapshot_end))
    assert len(replayed) < 2000
    harness.broker.roll_back()
    harness.expect(Done, c.Advance(alice, ranges=((1, 5001),)))
    assert harness.fetch(alice) == ()


def test_a_failing_look_ahead_for_wire_ids_costs_nobody_anything(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = faulty.join("ada"), faulty.join("bob")

    def fail(_: object) -> None:
        raise DiskError("disk I/O error")

    monkeypatch.setattr(faulty.broker.store, "prefetch", fail)
    sends = [c.Send(ada, content=content("@bob"), wire_id="one"), c.Send(bob, content=content("@ada"), wire_id="two")]
    assert [type(reply) for reply in faulty.ask_all(*sends)] == [Accepted, Accepted]
    assert [str(fault.error) for fault in faulty.broker.faults] == ["disk I/O error"]
    assert [getattr(reply, "duplicate", None) for reply in faulty.ask_all(*sends)] == [True, True]


def test_a_look_ahead_that_ends_the_transaction_loses_nothing_that_was_answered(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = faulty.join("ada"), faulty.join("bob")
    faulty.send(ada, "@bob", "zero")
    work(faulty, (c.Advance(bob, ranges=((1, 1),)),))
    store = store_of(faulty)

    def fail(_: object) -> None:
        # After some errors, the database ends the transaction by itself, with the acknowledgement in it.
        store._flush()
        store._main.execute("ROLLBACK")
        raise DiskError("disk I/O error")

    monkeypatch.setattr(store, "prefetch", fail)
    sends = [c.Send(ada, content=content("@bob", body), wire_id=body) for body in ("one", "two")]
    assert [type(reply) for reply in faulty.ask_all(*sends)] == [Accepted, Accepted]
    faulty.crash()
    assert faulty.bodies(faulty.attach("bob")) == ["one", "two"]
