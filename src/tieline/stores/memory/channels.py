"""Channels in the memory store: the part of the Store port that is about them, within the store's transactions."""

from collections.abc import Callable

from tieline.contract.channel import ChannelId
from tieline.core.store import ChannelRow, Subscription


class MemoryChannels:
    """See `ChannelStore`."""

    def __init__(self, keep: Callable[[object, str, object], None]) -> None:
        # Changes an attribute in a way that can be taken back; the store's own.
        self._keep = keep
        self.rows: dict[ChannelId, ChannelRow] = {}
        self.subscriptions: dict[tuple[ChannelId, int], Subscription] = {}

    def save(self, row: ChannelRow) -> None:
        """See `ChannelStore.save`."""
        self._keep(self, "rows", {**self.rows, row.id: row})

    def drop(self, channel_id: ChannelId) -> None:
        """See `ChannelStore.drop`."""
        self._keep(self, "rows", {other: row for other, row in self.rows.items() if other != channel_id})
        left = {key: one for key, one in self.subscriptions.items() if one.channel != channel_id}
        self._keep(self, "subscriptions", left)

    def join(self, subscription: Subscription) -> None:
        """See `ChannelStore.join`."""
        key = (subscription.channel, subscription.number)
        self._keep(self, "subscriptions", {**self.subscriptions, key: subscription})

    def leave(self, channel_id: ChannelId, number: int) -> None:
        """See `ChannelStore.leave`."""
        left = {key: one for key, one in self.subscriptions.items() if key != (channel_id, number)}
        self._keep(self, "subscriptions", left)

    def drop_member(self, number: int) -> None:
        """Take a removed member out of all channels."""
        left = {key: one for key, one in self.subscriptions.items() if one.number != number}
        self._keep(self, "subscriptions", left)
