"""Tests of streams: messages from one sender to one recipient on one topic are numbered 1, 2, 3 and stay in order."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.member import Unnamed
from tieline.contract.message import Kind
from tieline.contract.refusal import Code
from tieline.contract.reply import Attached
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.database import IN_MEMORY


def seqs(harness: BrokerHarness, name: str) -> list[tuple[str, str, int]]:
    return [
        (delivery.message.sender, delivery.message.content.topic, delivery.stream_seq)
        for delivery in harness.fetch(harness.attach(name))
    ]


def test_each_topic_of_each_pair_counts_for_itself(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.add("cy")
    harness.send(ada, "@cy")
    harness.send(ada, "@cy", topic="build")
    harness.send(bob, "@cy")
    harness.send(ada, "@cy")
    harness.send(ada, "@bob")
    harness.send(ada, "*", topic="build")
    assert seqs(harness, "cy") == [
        ("ada", "", 1),
        ("ada", "build", 1),
        ("bob", "", 1),
        ("ada", "", 2),
        ("ada", "build", 2),
    ]
    assert seqs(harness, "bob") == [("ada", "", 1), ("ada", "build", 1)]


def test_streams_go_on_after_a_restart_and_after_a_crash(harness: BrokerHarness) -> None:
    harness.add("ada")
    harness.add("bob")
    for again in (harness.restart, harness.crash, harness.crash, harness.restart):
        harness.send(harness.attach("ada"), "@bob")
        again()
    assert [seq for _, _, seq in seqs(harness, "bob")] == [1, 2, 3, 4]
    assert [delivery.key for delivery in harness.fetch(harness.attach("bob"))] == [1, 2, 3, 4]


def test_a_refused_message_leaves_no_gap_in_its_stream(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    harness.send(ada, "@bob", wire_id="1")
    harness.ask(c.Send(ada, content=harness.fetch(harness.attach("bob"))[0].message.content, wire_id="1"))
    harness.send(ada, "@bob", wire_id="2")
    assert [seq for _, _, seq in seqs(harness, "bob")] == [1, 2]


def test_only_a_member_has_streams(harness: BrokerHarness) -> None:
    refusal = harness.refused(c.ReadStreams(harness.operator))
    assert (refusal.code, refusal.message) == (Code.INVALID_REQUEST, "only a member has streams")


def test_those_without_an_identity_share_one_stream_per_place(harness: BrokerHarness) -> None:
    harness.add("ada")
    for label, place in (("client-1", "dev"), ("client-2", "dev"), ("client-1", "ops")):
        attach = c.Attach(protocol="agent-channels", credential=Unnamed(label, place))
        harness.send(harness.expect(Attached, attach).session, "@ada")
    assert [seq for _, _, seq in seqs(harness, "ada")] == [1, 2, 1]


senders = st.sampled_from(["ada", "bob", "cy"])
targets = st.sampled_from(["@ada", "@bob", "@cy", "*"])
topics = st.sampled_from(["", "build"])


@given(st.lists(st.lists(st.tuples(senders, targets, topics), max_size=5), max_size=5))
def test_what_one_sender_says_arrives_in_the_order_in_which_it_was_said(
    batches: list[list[tuple[str, str, str]]],
) -> None:
    harness = BrokerHarness(lambda: SqliteStore(IN_MEMORY))
    sessions = {name: harness.join(name) for name in ("ada", "bob", "cy")}
    expected: dict[str, list[tuple[str, str, str]]] = {name: [] for name in sessions}
    count = 0
    for batch in batches:
        commands: list[c.Command] = []
        for sender, target, topic in batch:
            count += 1
            # A status, because the loop rule is not the subject.
            commands.append(
                c.Send(sessions[sender], content=content(target, str(count), topic=topic, kind=Kind.STATUS))
            )
            for name in sessions:
                if target == f"@{name}" or (target == "*" and name != sender):
                    expected[name].append((sender, topic, str(count)))
        harness.ask_all(*commands)
    for name, session in sessions.items():
        deliveries = harness.fetch(session, limit=1000)
        got = [(item.message.sender, item.message.content.topic, item.message.content.body) for item in deliveries]
        assert got == expected[name]
        assert [item.key for item in deliveries] == list(range(1, len(got) + 1))
        for stream in {(sender, topic) for sender, topic, _ in got}:
            counted = [item.stream_seq for item, said in zip(deliveries, got, strict=True) if said[:2] == stream]
            assert counted == list(range(1, len(counted) + 1))
