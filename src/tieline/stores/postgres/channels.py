"""Channels in the PostgreSQL store: implements `ChannelStore`, and writes in the transactions of the store."""

import msgspec

from tieline.contract.channel import ChannelId, Role
from tieline.contract.identifiers import ChannelName
from tieline.core.store import ChannelRow, Span, Subscription
from tieline.stores.postgres.connection import PostgresConnection

_spans_decoder = msgspec.json.Decoder(tuple[Span, ...])


class PostgresChannels:
    """Implementation of `ChannelStore`: stores the channels in the database of the store."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def save(self, row: ChannelRow) -> None:
        """Store a new or changed channel. See `ChannelStore.save`."""
        spans = msgspec.json.encode(row.spans)
        values = (row.id, row.name, row.created_by, row.created_at_ms, row.archived_at_ms, spans)
        self._connection.write("replace_channel", values)

    def drop(self, channel_id: ChannelId) -> None:
        """Delete a channel and its members. See `ChannelStore.drop`."""
        self._connection.write("delete_channel_members", (channel_id,))
        self._connection.write("delete_channel", (channel_id,))

    def join(self, subscription: Subscription) -> None:
        """Store that a member is in a channel, with its role. See `ChannelStore.join`."""
        one = subscription
        self._connection.write("replace_channel_member", (one.channel, one.number, one.role.value, one.joined_at_ms))

    def leave(self, channel_id: ChannelId, number: int) -> None:
        """Store that the member with this number left a channel. See `ChannelStore.leave`."""
        self._connection.write("delete_channel_member", (channel_id, number))

    def rows(self) -> list[ChannelRow]:
        """Return all stored channels."""
        return [
            ChannelRow(
                ChannelId(channel_id), ChannelName(name), by, made_at_ms, archived_at_ms, _spans_decoder.decode(spans)
            )
            for channel_id, name, by, made_at_ms, archived_at_ms, spans in self._connection.select("channels")
        ]

    def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions of all channels. A subscription is one member in one channel, with its role."""
        return [
            Subscription(ChannelId(channel_id), number, Role(role), joined_at_ms)
            for channel_id, number, role, joined_at_ms in self._connection.select("channel_members")
        ]
