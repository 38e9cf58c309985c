"""Tests that a store stores members, tokens, settings, channels and subscriptions."""

from tests.conformance.store.rows import channel, image, member, subscription, token
from tests.conformance.store.writer import Writer
from tieline.contract.channel import ChannelId, Role
from tieline.contract.identifiers import ChannelName
from tieline.contract.member import MemberKind, Origin
from tieline.core.store import (
    ChannelRow,
    Span,
    TokenRow,
)


def test_a_member_is_kept_with_all_its_fields(writer: Writer) -> None:
    row = member(4, "ada", kind=MemberKind.HUMAN, permissions=("log.read", "x"), origin=Origin.LOCAL, created_at_ms=99)
    writer.store.save_member(row)
    writer.store.commit()
    stored_state = writer.crash()
    assert list(stored_state.members) == [row]
    assert stored_state.next_number == 5


def test_a_member_saved_again_belongs_to_the_credential_that_it_then_has(writer: Writer) -> None:
    local = member(4, "ada", kind=MemberKind.HUMAN, origin=Origin.LOCAL, created_at_ms=99)
    writer.store.save_member(local)
    writer.store.commit()
    owned = member(4, "ada", kind=MemberKind.HUMAN, origin=Origin.TOKEN, created_at_ms=99)
    writer.store.save_member(owned)
    assert list(writer.crash().members) == [local]
    writer.store.save_member(owned)
    writer.store.commit()
    assert list(writer.crash().members) == [owned]


def test_a_dropped_member_loses_its_name_tokens_and_subscriptions_but_not_its_number(writer: Writer) -> None:
    store = writer.store
    store.channels.save(channel("c", "dev"))
    for number, name in ((1, "ada"), (2, "bob")):
        store.save_member(member(number, name))
        store.save_token(token(number, number))
        store.channels.join(subscription("c", number))
    store.save_snapshot([image(1), image(2)], 0)
    store.commit()
    store.drop_member(2, 9)
    store.commit()
    stored_state = writer.crash()
    assert [row.number for row in stored_state.members] == [1]
    assert [row.number for row in stored_state.tokens] == [1]
    assert list(stored_state.subscriptions) == [subscription("c", 1)]
    assert [row.number for row in stored_state.images] == [1]
    assert stored_state.next_number == 3
    assert writer.store.names([1, 2]) == {1: "ada", 2: "bob"}
    writer.store.save_member(member(3, "BOB"))
    writer.store.commit()
    assert [row.member.name for row in writer.crash().members] == ["ada", "BOB"]


def test_a_member_may_have_several_tokens_and_each_is_dropped_alone(writer: Writer) -> None:
    store = writer.store
    for number, name in ((1, "ada"), (2, "bob")):
        store.save_member(member(number, name))
        store.save_token(token(number, number))
    more = TokenRow(b"n" * 32, 1, 6, 70, "token-3", "laptop", "bob")
    store.save_token(more)
    store.commit()
    kept = sorted(writer.crash().tokens, key=lambda row: row.id)
    assert kept == [token(1, 1), token(2, 2), more]
    writer.store.drop_token(token(1, 1).digest)
    writer.store.commit()
    assert sorted(writer.crash().tokens, key=lambda row: row.id) == [token(2, 2), more]


def test_a_setting_is_what_was_kept_last_under_its_key(writer: Writer) -> None:
    writer.store.save_setting("team", b"one")
    writer.store.save_setting("team", b"two")
    writer.store.save_setting("other", b"three")
    writer.store.commit()
    assert writer.crash().settings == {"team": b"two", "other": b"three"}


def test_a_member_is_kept_as_it_was_saved_last(writer: Writer) -> None:
    writer.store.save_member(member(1, "ada"))
    about = {"title": "lead", "description": "leads", "instructions": "lead!"}
    changed = member(1, "ada", permissions=("members.manage",), **about)
    writer.store.save_member(changed)
    writer.store.commit()
    assert list(writer.crash().members) == [changed]


def test_a_channel_is_kept_as_it_was_saved_last_and_dropped_with_its_members(writer: Writer) -> None:
    store = writer.store
    store.save_member(member(1, "ada"))
    store.channels.save(channel("c", "dev"))
    store.channels.save(channel("d", "ops"))
    for one in ("c", "d"):
        store.channels.join(subscription(one, 1))
    store.commit()
    spans = (Span("#dev", 0, 5), Span("#design", 5))
    renamed = ChannelRow(ChannelId("c"), ChannelName("design"), "ada", 5, 7, spans)
    writer.crash()
    writer.store.channels.save(renamed)
    writer.store.channels.drop(ChannelId("d"))
    writer.store.commit()
    stored_state = writer.crash()
    assert list(stored_state.channels) == [renamed]
    assert list(stored_state.subscriptions) == [subscription("c", 1)]


def test_an_archived_channel_leaves_its_name_to_another(writer: Writer) -> None:
    store = writer.store
    store.channels.save(channel("c", "dev", archived_at_ms=9))
    store.channels.save(channel("d", "dev"))
    store.commit()
    assert {row.id for row in writer.crash().channels} == {"c", "d"}


def test_a_subscription_is_one_for_each_channel_and_member(writer: Writer) -> None:
    store = writer.store
    store.save_member(member(1, "ada"))
    store.channels.save(channel("c", "dev"))
    store.channels.save(channel("d", "ops"))
    for role in (Role.MEMBER, Role.ADMIN, Role.MEMBER):
        store.channels.join(subscription("c", 1, role))
    store.channels.join(subscription("d", 1, Role.ADMIN))
    store.commit()
    kept = sorted(writer.crash().subscriptions, key=lambda one: one.channel)
    assert kept == [subscription("c", 1), subscription("d", 1, Role.ADMIN)]
    for _ in range(2):
        writer.store.channels.leave(ChannelId("c"), 1)
    writer.store.commit()
    assert list(writer.crash().subscriptions) == [subscription("d", 1, Role.ADMIN)]
