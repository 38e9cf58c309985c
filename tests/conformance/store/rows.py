"""Test helpers that make small rows of every kind, and compare two stored states."""

from typing import Any

from tieline.contract import objective as o
from tieline.contract.channel import ChannelId, Role
from tieline.contract.identifiers import ChannelName, MemberName
from tieline.contract.member import Member
from tieline.core.inbox import Image
from tieline.core.store import (
    ChannelRow,
    DeliveryRoute,
    MemberImage,
    MemberRow,
    ObjectiveRow,
    Span,
    StoredState,
    Subscription,
    TokenRow,
)


def member(number: int, name: str, **fields: Any) -> MemberRow:
    return MemberRow(number, Member(MemberName(name), **fields))


def token(mark: int, number: int) -> TokenRow:
    return TokenRow(bytes([mark]) * 32, number, 5, id=f"token-{mark}")


def channel(channel_id: str, name: str, archived_at_ms: int | None = None) -> ChannelRow:
    return ChannelRow(ChannelId(channel_id), ChannelName(name), "ada", 5, archived_at_ms, (Span(f"#{name}", 3),))


def subscription(channel_id: str, number: int, role: Role = Role.MEMBER) -> Subscription:
    return Subscription(ChannelId(channel_id), number, role, 8)


def objective(serial: int, *parties: int, status: o.Status = o.Status.ACTIVE, **fields: Any) -> ObjectiveRow:
    made = o.Objective(
        id=o.ObjectiveId(f"obj-{serial}"),
        title="title",
        outcome="outcome",
        assignee=MemberName("bob"),
        originator=MemberName("ada"),
        created_at_ms=1,
        updated_at_ms=2,
        status=status,
        **fields,
    )
    return ObjectiveRow(serial, made, parties or (2, 1))


def image(number: int, base: int = 1, streams: dict[str, int] | None = None) -> MemberImage:
    inbox = Image(base, b"\x01" * 16, b"\x02" * 16, b"\x00\x02")
    return MemberImage(number, inbox, streams or {"ada\x1f": 2}, last_seen_ms=77)


def same(stored_state: StoredState) -> dict[str, Any]:
    """Return a stored state with its rows sorted, so that the order does not matter in a comparison."""
    return {
        "members": sorted(stored_state.members, key=lambda row: row.number),
        "tokens": sorted(stored_state.tokens, key=lambda row: row.digest),
        "settings": stored_state.settings,
        "channels": sorted(stored_state.channels, key=lambda row: row.id),
        "subscriptions": sorted(stored_state.subscriptions, key=lambda one: (one.channel, one.number)),
        "objectives": sorted(stored_state.objectives, key=lambda row: row.serial),
        "images": sorted(stored_state.images, key=lambda row: row.number),
        "rest": (
            stored_state.snapshot_end,
            stored_state.log_end,
            stored_state.log_head,
            stored_state.next_number,
            stored_state.next_serial,
        ),
    }


def route_of(route: DeliveryRoute) -> tuple[list[int], list[int], list[int]]:
    return list(route.numbers), list(route.keys), list(route.stream_seqs)
