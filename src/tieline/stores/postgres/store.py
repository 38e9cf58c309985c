"""The PostgreSQL store: buffered writes, with one transaction and usually one round trip per commit.

The broker (the hub's decision logic) uses this store, on one thread. The SQL statements are in `queries.sql`, and the
schema is in `schema/`. Only one hub writes at a time. It has a lease, and each commit checks that the hub still has it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any

import msgspec

from tieline.contract.chain import GENESIS, digest
from tieline.contract.delivery import Fall, State, Step
from tieline.contract.event import Fell, Held, LogRow, Moved
from tieline.contract.identifiers import MessageId
from tieline.contract.keys import Ranges
from tieline.contract.message import Message
from tieline.core import ledger
from tieline.core.ladder import STATES
from tieline.core.outage import OnOutage, OutOfDate
from tieline.core.readers import Cutoff
from tieline.core.store import (
    MAIN,
    ROUTE_BYTES,
    DeliveryRoute,
    DiskError,
    Grant,
    HistoryQuery,
    KnownMessage,
    MemberImage,
    MemberRow,
    MovedReplay,
    Received,
    ReceivedPage,
    Replay,
    SentReplay,
    StoredState,
    StoreError,
    TokenRow,
)
from tieline.stores.postgres.channels import PostgresChannels
from tieline.stores.postgres.columns import Bigints, Blobs, Booleans, Texts
from tieline.stores.postgres.connection import PostgresConnection, Row, explain
from tieline.stores.postgres.history import PostgresHistory
from tieline.stores.postgres.lease import OTHER_KEY, WAIT_SECONDS, Lease
from tieline.stores.postgres.objectives import PostgresObjectives
from tieline.stores.postgres.readers import PostgresReaders
from tieline.stores.postgres.stored_message import decode_said
from tieline.stores.postgres.writer import Writer
from tieline.stores.rows import CONTENT, content_decoder, member_image, member_row, page_bytes

_NESTED = 256
"""Largest number of stored key ranges that one query reads to find those with a given delivery. Ranges may overlap."""
_FALLS = 8
"""Upper limit for the number of escalations (falls) of one delivery. A member has fewer ways to be reached."""
_REPLAY_ROWS = 10_000
"""Number of log rows that a start reads at once: a few megabytes."""

_COLUMNS: dict[str, Sequence[Callable[[Sequence[Any]], object]]] = {
    "append_log": (Bigints, Bigints, Blobs, Blobs),
    "insert_message": (
        *(Bigints, Texts, Texts, Texts, Blobs, Texts, Bigints, Bigints, Booleans, Bigints),
        *(Texts, Blobs, Blobs, Texts, Booleans),
    ),
    "insert_step": (Bigints,) * 5,
    "insert_fall": (Bigints,) * 4,
    "replace_grant": (Texts, Bigints, Blobs, Blobs, Bigints),
}
"""Statements that insert many rows, with the types of their columns, in the order in which they are sent."""

_encode = msgspec.json.encode


class PostgresStore:
    """The `Store` of a hub: members, messages, deliveries, channels, objectives and the main log, in one schema.

    `hub` is a name for this hub. If somebody starts another hub on the same database, the error shows this name.
    `address` is where other hubs of the team reach this one. Raise `LeaseHeld` if another hub has the lease for
    `wait_seconds`; with `anyway`, take the lease from it.
    """

    def __init__(
        self,
        url: str,
        schema: str,
        hub: str,
        *,
        address: str = "",
        wait_seconds: float = WAIT_SECONDS,
        anyway: bool = False,
    ) -> None:
        self.lease = Lease(url, schema, hub, address)
        self._connection = PostgresConnection(url, schema, "main", reopens=False, guard=self.lease)
        try:
            self.lease.take(self._connection, wait_seconds, anyway=anyway)
            self._writer = Writer(self._connection, self.lease)
        except BaseException:
            self.lease.stop()
            self._connection.close()
            raise
        # Called while the server does not answer; see `core.outage`.
        self.on_outage: OnOutage | None = None
        self._connection.recover = self._recover
        # Rows that the next flush inserts, by statement, in log order.
        self._rows: dict[str, list[Row]] = {name: [] for name in _COLUMNS}
        # Changed grants, by id, because one statement may name a row only once.
        self._grants: dict[str, Grant] = {}
        # Buffered messages by wire id, because a sender may repeat a message within one batch.
        self._fresh_wire_ids: dict[tuple[str, str, str], KnownMessage] = {}
        # Result of `prefetch`: the stored messages by wire id, `None` for an id that is not stored.
        self._prefetched: dict[tuple[str, str, str], KnownMessage | None] = {}
        # Offset that the next log row must have, and the offset after the last committed row.
        self._log_end = 0
        self._committed_end = 0
        # True if buffered rows were dropped since the last `restore`.
        self._abandoned = False
        self._closed = False
        self._history = PostgresHistory(self._connection)
        self.channels = PostgresChannels(self._connection)
        self.objectives = PostgresObjectives(self._connection, self.record, self._flush)
        self.readers = PostgresReaders(MAIN, self._connection)

    def join_cluster(self, home_key: bytes, address: str) -> str:
        """Return the key of links between the hubs of a team, and note that this hub is one of them.

        `home_key` is the hash of the key in this hub's home. `address` is where the other hubs reach this one.

        Raise `StoreError` if the other hubs have another key in their homes.
        """
        link_key, known = self._connection.one("join_cluster", (home_key,))
        if known != home_key:
            raise StoreError(*OTHER_KEY)
        self._connection.select("see_hub", (address, self.lease.hub))
        return str(link_key)

    # Writes.

    def accept(self, row: LogRow, message: Message, content: bytes, route: bytes, shared_id: bool = False) -> None:
        """Buffer a new message with its deliveries and its log row. See `Store.accept`."""
        self._append(row)
        said, wire_id = message.content, message.wire_id
        self._rows["insert_message"].append(
            (
                message.offset,
                message.id,
                message.sender,
                message.protocol,
                None if wire_id is None else wire_id.encode(),
                str(said.target),
                message.sent_at_ms,
                None if said.ttl_ms is None else message.sent_at_ms + said.ttl_ms,
                message.verified,
                message.hops,
                message.cause,
                content,
                route,
                message.signature,
                shared_id,
            )
        )
        if wire_id is not None:
            self._fresh_wire_ids["" if shared_id else message.sender, message.protocol, wire_id] = KnownMessage(
                message.id, message.offset, digest(content), len(route) // ROUTE_BYTES
            )

    def advance(self, row: LogRow, number: int, state: State, ranges: Ranges) -> None:
        """Buffer a status change of deliveries of the member `number`, with its log row. See `Store.advance`."""
        self._append(row)
        self._rows["insert_step"].extend((number, int(state), last, first, row.offset) for first, last in ranges)

    def fall(self, row: LogRow, number: int, ranges: Ranges) -> None:
        """Buffer an escalation of deliveries of the member `number`, with its log row. See `Store.fall`."""
        self._append(row)
        self._rows["insert_fall"].extend((number, last, first, row.offset) for first, last in ranges)

    def record(self, row: LogRow) -> None:
        """Buffer a log row that belongs to no message and to no status change of deliveries. See `Store.record`."""
        self._append(row)

    def _append(self, row: LogRow) -> None:
        if row.offset != self._log_end:
            self._abandon()
            raise StoreError(f"the log is at {self._log_end}, a row for {row.offset} does not fit")
        self._log_end += 1
        self._rows["append_log"].append((row.offset, row.at_ms, row.event, bytes.fromhex(row.hash)))

    def save_member(self, row: MemberRow) -> None:
        """Store a new or changed member. See `Store.save_member`."""
        member = row.member
        values = (row.number, member.name, member.kind.value, _encode(member.permissions), member.origin.value)
        about = (member.title.encode(), member.description.encode(), member.instructions.encode())
        self._write("insert_member", (*values, member.created_at_ms, row.since, *about))

    def drop_member(self, number: int, at_ms: int) -> None:
        """Remove the member with this number, with its tokens and subscriptions. See `Store.drop_member`."""
        self._prefetched.clear()
        self._flush()
        self._write("remove_member", (at_ms, number))
        for statement in (
            "forget_wire_ids",
            "delete_tokens",
            "delete_grants",
            "delete_owner",
            "delete_subscriptions",
            "delete_image",
        ):
            self._write(statement, (number,))

    def save_token(self, row: TokenRow) -> None:
        """Store a token, in addition to other tokens of its member. See `Store.save_token`."""
        times = (row.created_at_ms, row.expires_at_ms)
        values = (row.digest, row.number, *times, row.id, row.label.encode(), row.created_by.encode())
        self._write("insert_token", values)

    def drop_token(self, digest: bytes) -> None:
        """Delete the token whose hash is `digest`. See `Store.drop_token`."""
        self._write("delete_token", (digest,))

    def save_setting(self, key: str, value: bytes) -> None:
        """Store a small value under a key. See `Store.save_setting`."""
        self._write("replace_setting", (key, value))

    def save_owner(self, number: int, digest: bytes) -> None:
        """Store the hash of the shared token that owns a member's name. See `Store.save_owner`."""
        self._write("insert_owner", (number, digest))

    def save_grant(self, grant: Grant) -> None:
        """Buffer a new or changed grant (the right to resume a session). See `Store.save_grant`."""
        self._grants[grant.id] = grant

    def save_snapshot(self, images: Sequence[MemberImage], end: int) -> None:
        """Store the inboxes and streams of members as of the log offset `end`. See `Store.save_snapshot`."""
        for image in images:
            inbox = image.inbox
            arrays = (inbox.base, inbox.offsets, inbox.stream_seqs, inbox.rungs)
            self._write("replace_image", (image.number, *arrays, _encode(image.streams), image.last_seen_ms))
        self._write("set_snapshot_end", (end,))

    def prune(self, start: int, cutoff: Cutoff, keep: frozenset[int], limit: int) -> tuple[Sequence[int], int | None]:
        """Delete old messages, and return their offsets and the offset to continue from. See `Store.prune`."""
        self._prefetched.clear()
        self._flush()
        looked = self._select("by_age", (start, limit))
        old = list(takewhile(lambda row: cutoff.deletes(row[0], row[1]), looked))
        deleted = [row[0] for row in old if row[0] not in keep]
        if deleted:
            routes = [DeliveryRoute.unpack(row[2]) for row in old if row[0] not in keep]
            numbers = Bigints([number for route in routes for number in route.numbers])
            keys = Bigints([key for route in routes for key in route.keys])
            self._write("delete_messages", (Bigints(deleted),))
            self._write("delete_steps", (numbers, keys))
            self._write("delete_falls", (numbers, keys))
            self._write("main_set_kept_from", (deleted[-1] + 1,))
        return deleted, looked[-1][0] + 1 if len(old) == limit else None

    def redact(self, row: LogRow, offset: int, content: bytes) -> None:
        """Replace the content of a stored message. See `Store.redact`.

        PostgreSQL keeps the old version of the row until it vacuums the table, and its own write-ahead log.
        """
        self._prefetched.clear()
        self._append(row)
        self._flush()
        self._write("redact_message", (content, offset))
        # The old words leave the search index at once, and the index takes in the new ones later.
        self._write("forget_said", (offset,))
        self._write("search_again", (offset,))

    def commit(self) -> None:
        """Make all buffered writes durable, or none of them. See `Store.commit`."""
        with self._abandoning():
            self._gather()
            if self._connection.commit():
                self._writer.committed()
        self._committed_end = self._log_end
        self._fresh_wire_ids.clear()
        self._prefetched.clear()

    @property
    def commits(self) -> int:
        """Number of commits since the database was made."""
        return self._writer.commits

    @property
    def intact(self) -> bool:
        """True if all buffered writes are still there. See `Store.intact`."""
        return not self._abandoned and self._connection.intact

    @property
    def trouble(self) -> str:
        """Empty text: PostgreSQL does its background work by itself. See `Store.trouble`."""
        return ""

    def explain(self, error: Exception) -> Exception:
        """Return an error of the database as a `StoreError`. See `Store.explain`."""
        return explain(error, self._connection.place)

    def retry(self) -> None:
        """Check that the database accepts writes again. Raise if it does not. See `Store.retry`."""
        assert not self._connection.buffers, "nothing is buffered"
        with self._abandoning():
            self._writer.check()

    def _recover(self, error: DiskError, commits: bool) -> bool:
        """Wait until the database answers again, and become its writer again.

        `commits` is true if a commit was interrupted. Return true if this commit is stored. Raise the error if the hub
        does not want to wait (`on_outage`).
        """
        self._connection.recover = None
        try:
            while self.on_outage is not None and self.on_outage(error):
                try:
                    self._connection.reopen()
                    arrived = self._writer.resume()
                except DiskError as again:
                    error = again
                except OutOfDate as lost:
                    self.lease.lose(lost)
                    raise
                else:
                    assert commits or not arrived, "a commit that nobody asked for"
                    return arrived
            raise error
        finally:
            self._connection.recover = self._recover

    def _write(self, statement: str, values: Row) -> None:
        self._connection.write(statement, values)

    def _gather(self) -> None:
        """Buffer the collected rows of all tables as writes of the connection, one for each table."""
        if self._grants:
            self._rows["replace_grant"] = [
                (one.id, one.number, one.digest, one.previous, one.expires_at_ms) for one in self._grants.values()
            ]
            self._grants.clear()
        for name, rows in self._rows.items():
            if rows:
                columns = zip(*rows, strict=True)
                values = tuple(kind(values) for kind, values in zip(_COLUMNS[name], columns, strict=True))
                self._write(name, (*values, self.lease.term) if name == "append_log" else values)
                rows.clear()

    def _flush(self) -> None:
        """Send all buffered writes into the open transaction, so that reads see them."""
        with self._abandoning():
            self._gather()
            self._connection.flush()

    @contextmanager
    def _abandoning(self) -> Iterator[None]:
        """If the database raises an error, drop all buffered writes and raise a `StoreError` with the cause."""
        try:
            yield
        except Exception as error:
            self._abandon()
            if isinstance(error, OutOfDate):
                self.lease.lose(error)
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self._connection.place} refused a batch: {error}") from error

    def _abandon(self) -> None:
        for rows in self._rows.values():
            rows.clear()
        self._grants.clear()
        self._fresh_wire_ids.clear()
        self._prefetched.clear()
        self._abandoned = True
        self._connection.roll_back()

    # Reads.

    def restore(self) -> StoredState:
        """Drop buffered writes, and return the committed state. See `Store.restore`."""
        self._abandon()
        self._abandoned = False
        select, one = self._connection.select, self._connection.one
        tail = select("log_tail")
        self._log_end = self._committed_end = tail[0][0] + 1 if tail else 0
        return StoredState(
            members=[_member_row(row) for row in select("members")],
            tokens=[_token_row(row) for row in select("tokens")],
            channels=self.channels.rows(),
            subscriptions=self.channels.subscriptions(),
            grants=[Grant(*row) for row in select("grants")],
            owners=[(row[0], row[1]) for row in select("owners")],
            settings=dict(select("settings")),
            objectives=self.objectives.open_rows(),
            next_serial=one("next_serial")[0],
            images=[member_image(row) for row in select("images")],
            snapshot_end=one("snapshot_end")[0],
            log_end=self._log_end,
            log_head=tail[0][1].hex() if tail else GENESIS,
            next_number=one("next_number")[0],
        )

    def replay(self, start: int) -> Iterator[Replay]:
        """Yield the messages and status changes in the log from offset `start` on. See `Store.replay`."""
        while rows := self._select("replay", (start, _REPLAY_ROWS)):
            for offset, event_bytes, sender, content, route in rows:
                if route is not None:
                    yield SentReplay(offset, sender, content_decoder.decode(content).topic, DeliveryRoute.unpack(route))
                    continue
                event = ledger.decode_event(event_bytes)
                if isinstance(event, Moved):
                    held = isinstance(event, Held)
                    yield MovedReplay(event.number, event.keys, STATES[type(event)], event.ackless, held)
            start = rows[-1][0] + 1

    def expiring(self) -> Iterator[tuple[int, DeliveryRoute]]:
        """Yield the deadline and the deliveries of messages with a time to live. See `Store.expiring`."""
        for deadline_ms, route in self._select("expiring"):
            yield deadline_ms, DeliveryRoute.unpack(route)

    def prefetch(self, wire_keys: Sequence[tuple[str, str, str]]) -> None:
        """Look up many wire ids (ids that senders gave to their messages) with few queries.

        Then `find_wire_id` needs no query of its own.
        """
        self._prefetched = {}
        prefetched: dict[tuple[str, str, str], KnownMessage | None] = dict.fromkeys(wire_keys)
        groups: dict[tuple[str, str], list[str]] = {}
        for sender, protocol, wire_id in wire_keys:
            groups.setdefault((sender, protocol), []).append(wire_id)
        for (sender, protocol), wire_ids in groups.items():
            prefetched.update(self._known(sender, protocol, wire_ids))
        self._prefetched = prefetched

    def _known(
        self, sender: str, protocol: str, wire_ids: Sequence[str]
    ) -> Iterator[tuple[tuple[str, str, str], KnownMessage]]:
        """Yield the messages that have one of these wire ids, by sender, protocol and wire id."""
        asked = Blobs([wire_id.encode() for wire_id in wire_ids])
        if sender:
            rows = self._select("known_wire_ids", (sender, protocol, asked))
        else:
            rows = self._select("known_shared_ids", (protocol, asked))
        for wire_id, message_id, offset, content, recipients in rows:
            yield (sender, protocol, wire_id.decode()), KnownMessage(message_id, offset, digest(content), recipients)

    def find_wire_id(self, sender: str, protocol: str, wire_id: str) -> KnownMessage | None:
        """Find a message by its wire id, also in buffered writes. See `Store.find_wire_id`."""
        wire_key = (sender, protocol, wire_id)
        fresh = self._fresh_wire_ids.get(wire_key)
        if fresh is not None:
            return fresh
        if wire_key in self._prefetched:
            return self._prefetched[wire_key]
        return dict(self._known(sender, protocol, [wire_id])).get(wire_key)

    def messages(self, offsets: Sequence[int], bytes_max: int) -> tuple[dict[int, Message], int]:
        """Return the messages at these log offsets, and how many offsets were considered. See `Store.messages`."""
        self._flush()
        found: dict[int, Message] = {}
        total = 0
        for place, *row in self._select("messages_at", (Bigints(offsets), bytes_max)):
            total += 0 if row[CONTENT] is None else page_bytes(row[CONTENT])
            if row[CONTENT] is None or (found and total > bytes_max):
                return found, place - 1
            found[row[0]] = decode_said(row)
        return found, len(offsets)

    def received(self, number: int, name: str, peer: str, before: int | None, limit: int) -> ReceivedPage:
        """Return a page of deliveries to a member from a peer, newest first. See `Store.received`."""
        self._flush()
        end = self._log_end if before is None else before
        offsets = self._history.received(name, peer, end, limit)
        found = []
        for offset, sender, content, packed in self._select("sent_at", (Bigints(offsets),)):
            route = DeliveryRoute.unpack(packed)
            if number in route.numbers and (sender == peer or sender.endswith(peer)):
                index = route.numbers.index(number)
                topic = content_decoder.decode(content).topic
                found.append(Received(offset, sender, topic, route.keys[index], route.stream_seqs[index]))
        return ReceivedPage(found, len(offsets), offsets[-1] if len(offsets) == limit else None)

    def find_message(self, message_id: MessageId) -> tuple[Message, DeliveryRoute] | None:
        """Return the message with this id and its deliveries, or `None`. See `Store.find_message`."""
        self._flush()
        rows = self._select("message_by_id", (message_id,))
        return (decode_said(rows[0][:-1]), DeliveryRoute.unpack(rows[0][-1])) if rows else None

    def steps(self, number: int, key: int) -> Sequence[Step]:
        """Return the states that the delivery `key` of the member `number` reached. See `Store.steps`."""
        self._flush()
        nested = Bigints([_NESTED if state is State.OFFERED else 1 for state in State])
        steps = []
        for state, at_ms, event_bytes in self._select(
            "steps_of", (number, key, Bigints(list(map(int, State))), nested)
        ):
            event = ledger.decode_event(event_bytes)
            assert isinstance(event, Moved), "a step points at the event that made it"
            steps.append(Step(State(state), at_ms, event.session, event.protocol, event.evidence))
        return steps

    def falls(self, number: int, first: int, last: int) -> Sequence[Fall]:
        """Return the escalations of a member's deliveries with keys `first` to `last`. See `Store.falls`."""
        self._flush()
        falls = []
        values = (number, first, _NESTED + (last - first) * _FALLS, last)
        for fell_first, fell_last, at_ms, event_bytes in self._select("falls_of", values):
            event = ledger.decode_event(event_bytes)
            assert isinstance(event, Fell), "a fall points at the event that says so"
            falls.append(Fall(fell_first, fell_last, at_ms, event.way, event.after))
        return falls

    def names(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the names of the members with these numbers, by number. Removed members are included.

        See `Store.names`.
        """
        self._flush()
        return dict(self._select("names", (Bigints(numbers),)))

    def history(self, history_query: HistoryQuery) -> Sequence[Message]:
        """Return a page of messages that match a query. See `Store.history`."""
        self._flush()
        before = self._log_end if history_query.before is None else min(history_query.before, self._log_end)
        offsets = self._history.offsets(history_query, before)
        return list(self.messages(offsets, history_query.bytes_max)[0].values())

    def read_log(self, start: int, limit: int) -> tuple[Sequence[LogRow], int]:
        """Return at most `limit` committed rows of the main log from offset `start` on.

        Also return the offset that the next new row will get. See `Store.read_log`.
        """
        # Rows of the open transaction are not committed yet. A reader of the log must never see them.
        limit = min(limit, max(0, self._committed_end - start))
        rows = self._select("read_main", (start, limit))
        found = [
            LogRow(offset=offset, at_ms=at_ms, event=event, hash=hash_bytes.hex())
            for offset, at_ms, event, hash_bytes in rows
        ]
        return found, self._committed_end

    def _select(self, statement: str, values: Row = ()) -> list[Row]:
        return self._connection.select(statement, values)

    def close(self) -> None:
        """Close the connection. Buffered writes are lost. See `Store.close`."""
        if self._closed:
            return
        self._closed = True
        self._abandon()
        with suppress(StoreError):
            self.lease.release(self._connection)
        self._connection.close()


def _member_row(row: Row) -> MemberRow:
    *fields, title, description, instructions = row
    return member_row((*fields, title.decode(), description.decode(), instructions.decode()))


def _token_row(row: Row) -> TokenRow:
    digest, number, created_at_ms, expires_at_ms, token_id, label, created_by = row
    return TokenRow(digest, number, created_at_ms, expires_at_ms, token_id, label.decode(), created_by.decode())
