"""The SQLite store: buffered writes, with one transaction and one disk sync per commit.

The broker (the hub's decision logic) uses this store, on one thread. The data are in `tieline.db`. The activity log has
its own file and its own writer. The SQL statements are in `queries.sql`, and the schema is in `schema/`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tieline.contract.chain import GENESIS, digest
from tieline.contract.delivery import Fall, State, Step
from tieline.contract.event import AnyEvent, Fell, Held, LogRow, Moved
from tieline.contract.identifiers import MessageId
from tieline.contract.keys import Ranges
from tieline.contract.message import Message
from tieline.core import ledger
from tieline.core.ladder import STATES
from tieline.core.readers import Cutoff
from tieline.core.store import (
    MAIN,
    ROUTE_BYTES,
    DeliveryRoute,
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
from tieline.stores.rows import (
    CONTENT,
    content_decoder,
    decode_message,
    member_image,
    member_row,
    page_bytes,
)
from tieline.stores.sqlite.channels import SqliteChannels
from tieline.stores.sqlite.database import explain, open_database, write_nothing
from tieline.stores.sqlite.history import SqliteHistory
from tieline.stores.sqlite.objectives import SqliteObjectives
from tieline.stores.sqlite.readers import SqliteReaders
from tieline.stores.sqlite.statements import QUERIES, repeat
from tieline.stores.sqlite.trail import Trail
from tieline.stores.sqlite.words import Words
from tieline.stores.sqlite.write_ahead_log import WriteAheadLog

MAIN_FILE = "tieline.db"

_INSERT_MANY = {
    name: [(rows, repeat(statement, rows)) for rows in (25, 5, 1)]
    for name, statement in QUERIES.items()
    if name
    in {"insert_word", "append_log", "insert_message", "insert_step", "insert_fall", "replace_grant", "insert_trail"}
}
"""Statements that insert several rows, by the name of the statement for one row, with their numbers of rows, largest
first. Each statement has a fixed cost, and lets other threads run, so that the broker's thread must wait for them."""

_NESTED = 256
"""Largest number of stored key ranges that one query reads to find those with a given delivery. Ranges may overlap."""
_FALLS = 8
"""Upper limit for the number of escalations (falls) of one delivery. A member has fewer ways to be reached."""

_json = msgspec.json
_Row = tuple[Any, ...]


class SqliteStore:
    """The `Store` of a hub: members, messages, deliveries, channels, objectives and the main log, in `tieline.db`."""

    def __init__(self, folder: Path, *, synchronous: str = "FULL", vfs: str | None = None) -> None:
        self._path = folder / MAIN_FILE
        self._write_ahead_log = WriteAheadLog(self._path, synchronous)
        self._main = open_database(self._path, "main", synchronous=synchronous, vfs=vfs)
        self._write_ahead_log.follow(self._main)
        # Rows that the next commit inserts, by table, in log order.
        self._log_rows: list[_Row] = []
        self._message_rows: list[_Row] = []
        self._step_rows: list[_Row] = []
        self._fall_rows: list[_Row] = []
        self._grant_rows: list[_Row] = []
        # Buffered messages by wire id, because a sender may repeat a message within one batch.
        self._fresh_wire_ids: dict[tuple[str, str, str], KnownMessage] = {}
        # Result of `prefetch`: the stored messages by wire id, `None` for an id that is not stored.
        self._prefetched: dict[tuple[str, str, str], KnownMessage | None] = {}
        # Offset that the next log row must have, and the offset after the last committed row.
        self._log_end = 0
        self._committed_end = 0
        self._in_transaction = False
        self._closed = False
        # True if buffered rows were dropped since the last `restore`.
        self._abandoned = False
        self._words = Words(self._main)
        self._trail = Trail(self._select)
        self._history = SqliteHistory(self._select, self._trail)
        self.channels = SqliteChannels(self._write, self._select)
        self.objectives = SqliteObjectives(self.record, self._write, self._select)
        self.readers = SqliteReaders(MAIN, self._main, self._write, self._select)
        # Number of commits. Each needs a disk sync.
        self.commits = 0

    # Writes.

    def accept(self, row: LogRow, message: Message, content: bytes, route: bytes, shared_id: bool = False) -> None:
        """Buffer a new message with its deliveries and its log row. See `Store.accept`."""
        self._append(row)
        said, target = message.content, str(message.content.target)
        self._message_rows.append(
            (
                message.offset,
                message.id,
                message.sender,
                message.protocol,
                message.wire_id,
                target,
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
        self._trail.note(message.sender, target, message.offset)
        if message.wire_id is not None:
            self._fresh_wire_ids["" if shared_id else message.sender, message.protocol, message.wire_id] = KnownMessage(
                message.id, message.offset, digest(content), len(route) // ROUTE_BYTES
            )

    def advance(self, row: LogRow, number: int, state: State, ranges: Ranges) -> None:
        """Buffer a status change of deliveries of the member `number`, with its log row. See `Store.advance`."""
        self._append(row)
        self._step_rows.extend((number, int(state), first, last, row.offset) for first, last in ranges)

    def fall(self, row: LogRow, number: int, ranges: Ranges) -> None:
        """Buffer an escalation of deliveries of the member `number`, with its log row. See `Store.fall`."""
        self._append(row)
        self._fall_rows.extend((number, last, first, row.offset) for first, last in ranges)

    def record(self, row: LogRow) -> None:
        """Buffer a log row that belongs to no message and to no status change of deliveries. See `Store.record`."""
        self._append(row)

    def _append(self, row: LogRow) -> None:
        if row.offset != self._log_end:
            self._abandon()
            raise StoreError(f"the log is at {self._log_end}, a row for {row.offset} does not fit")
        self._log_end += 1
        self._log_rows.append((row.offset, row.at_ms, self._words.pack(row.event), bytes.fromhex(row.hash)))

    def save_member(self, row: MemberRow) -> None:
        """Store a new or changed member. See `Store.save_member`."""
        member = row.member
        values = (row.number, member.name, member.kind, _json.encode(member.permissions), member.origin)
        about = (member.title, member.description, member.instructions)
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
        values = (row.digest, row.number, row.created_at_ms, row.expires_at_ms, row.id, row.label, row.created_by)
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
        self._grant_rows.append((grant.id, grant.number, grant.digest, grant.previous, grant.expires_at_ms))

    def save_snapshot(self, images: Sequence[MemberImage], end: int) -> None:
        """Store the inboxes and streams of members as of the log offset `end`. See `Store.save_snapshot`."""
        for image in images:
            inbox = image.inbox
            arrays = (inbox.base, inbox.offsets, inbox.stream_seqs, inbox.rungs)
            self._write("replace_image", (image.number, *arrays, _json.encode(image.streams), image.last_seen_ms))
        self._write("set_snapshot_end", (end,))

    def prune(self, start: int, cutoff: Cutoff, keep: frozenset[int], limit: int) -> tuple[Sequence[int], int | None]:
        """Delete old messages, and return their offsets and the offset to continue from. See `Store.prune`."""
        self._prefetched.clear()
        self._flush()
        looked = list(self._select("by_age", (start, limit)))
        old = list(takewhile(lambda row: cutoff.deletes(row[0], row[1]), looked))
        deleted = [row for row in old if row[0] not in keep]
        fell = bool(self._main.execute(QUERIES["has_falls"]).get)
        self._trail.drop([(sender, target, offset) for offset, _, _, sender, target in deleted], self._write)
        for offset, _, packed, _, _ in deleted:
            self._write("delete_message", (offset,))
            route = DeliveryRoute.unpack(packed)
            for number, key in zip(route.numbers, route.keys, strict=True):
                # A range that also covers other deliveries stays, because those may be kept.
                self._write("delete_steps", (number, key, key))
                if fell:
                    self._write("delete_falls", (number, key, key))
        if deleted:
            self._write("set_kept_from", (deleted[-1][0] + 1,))
        return [row[0] for row in deleted], looked[-1][0] + 1 if len(old) == limit else None

    def redact(self, row: LogRow, offset: int, content: bytes) -> None:
        """Replace the content of a stored message, and erase the old one from the disk. See `Store.redact`."""
        self._prefetched.clear()
        self._append(row)
        self._flush()
        self._main.pragma("secure_delete", True)
        try:
            self._write("redact_message", (content, offset))
            # The search index compares this with the redaction that it knows.
            self._write("note_redaction", (str(row.offset).encode(),))
        finally:
            self._main.pragma("secure_delete", False)
        self._write_ahead_log.erases = True

    def commit(self) -> None:
        """Make all buffered writes durable, or none of them. See `Store.commit`."""
        with self._abandoning():
            self._flush()
            if self._in_transaction:
                trailed = self._trail.due
                if trailed:
                    self._bring_in_trail()
                self._main.execute("COMMIT")
                self._in_transaction = False
                self.commits += 1
                if trailed:
                    self._trail.clear()
        self._committed_end = self._log_end
        self._fresh_wire_ids.clear()
        self._prefetched.clear()
        self._write_ahead_log.after_commit()

    @property
    def intact(self) -> bool:
        """True if all buffered writes are still there. After some errors, SQLite itself ends the transaction."""
        return not self._abandoned and not (self._in_transaction and self._main.get_autocommit())

    def _bring_in_trail(self) -> None:
        self._insert("insert_trail", list(self._trail.rows()))
        self._main.execute(QUERIES["set_trail_end"], (self._log_end,))

    @contextmanager
    def _abandoning(self) -> Iterator[None]:
        """If the database raises an error, drop all buffered writes and raise a `StoreError` with the cause."""
        try:
            yield
        except Exception as error:
            failed_commit = self._in_transaction
            self._abandon()
            if failed_commit and isinstance(error, apsw.IOError):
                self._overwrite()
            explained = self.explain(error)
            if not isinstance(explained, StoreError):
                explained = StoreError(f"the database refused a batch: {error}")
            raise explained from error

    def _overwrite(self) -> None:
        """Overwrite the pages that a failed commit wrote. Otherwise the next start could read them as committed."""
        with suppress(apsw.Error):
            write_nothing(self._main)

    def explain(self, error: Exception) -> Exception:
        """Return an error of the database as a `StoreError`. See `Store.explain`."""
        return explain(error, self._path)

    def retry(self) -> None:
        """Check that the database accepts writes again. Raise if it does not. See `Store.retry`."""
        assert not self._in_transaction, "nothing is buffered"
        try:
            write_nothing(self._main)
        except apsw.Error as error:
            raise self.explain(error) from error
        if self.trouble:
            self._write_ahead_log.checkpoint()

    @property
    def trouble(self) -> str:
        """Error of the last checkpoint of the write-ahead log; empty if it succeeded. See `Store.trouble`."""
        return self._write_ahead_log.trouble

    def _begin(self) -> None:
        if not self._in_transaction:
            self._main.execute("BEGIN IMMEDIATE")
            self._in_transaction = True

    def _write(self, statement: str, values: _Row) -> None:
        with self._abandoning():
            self._begin()
            self._main.execute(QUERIES[statement], values).fetchall()

    def _flush(self) -> None:
        """Write buffered rows into the open transaction, so that reads see them."""
        if not (self._log_rows or self._grant_rows):
            return
        with self._abandoning():
            self._begin()
            for name, rows in (
                ("insert_word", self._words.fresh),
                ("append_log", self._log_rows),
                ("insert_message", self._message_rows),
                ("insert_step", self._step_rows),
                ("insert_fall", self._fall_rows),
                ("replace_grant", self._grant_rows),
            ):
                self._insert(name, rows)
                rows.clear()

    def _insert(self, name: str, rows: Sequence[_Row]) -> None:
        start = 0
        for count, statement in _INSERT_MANY[name]:
            while len(rows) - start >= count:
                self._main.execute(statement, tuple(chain.from_iterable(rows[start : start + count])))
                start += count

    def _abandon(self) -> None:
        for rows in (self._log_rows, self._message_rows, self._step_rows, self._fall_rows, self._grant_rows):
            rows.clear()
        self._words.forget()
        self._fresh_wire_ids.clear()
        self._prefetched.clear()
        self._abandoned = True
        if not self._main.get_autocommit():
            self._main.execute("ROLLBACK")
        self._in_transaction = False

    # Reads.

    def restore(self) -> StoredState:
        """Drop buffered writes, and return the committed state. See `Store.restore`."""
        self._abandon()
        self._abandoned = False
        main = self._main
        tail = main.execute(QUERIES["log_tail"]).fetchone()
        self._log_end = self._committed_end = tail[0] + 1 if tail else 0
        self._trail.restore()
        if self._trail.due:
            # A database of an older program has no trail, so all messages are added now. If that fails, for example
            # because the disk is full, reading must still work.
            with suppress(apsw.Error):
                with main:
                    self._bring_in_trail()
                self._trail.clear()
        return StoredState(
            members=[member_row(row) for row in main.execute(QUERIES["members"])],
            tokens=[TokenRow(*row) for row in main.execute(QUERIES["tokens"])],
            channels=self.channels.rows(),
            subscriptions=self.channels.subscriptions(),
            grants=[Grant(*row) for row in main.execute(QUERIES["grants"])],
            owners=[(row[0], row[1]) for row in main.execute(QUERIES["owners"])],
            settings=dict(main.execute(QUERIES["settings"])),
            objectives=self.objectives.open_rows(),
            next_serial=main.execute(QUERIES["next_serial"]).get,
            images=[member_image(row) for row in main.execute(QUERIES["images"])],
            snapshot_end=main.execute(QUERIES["snapshot_end"]).get,
            log_end=self._log_end,
            log_head=tail[1].hex() if tail else GENESIS,
            next_number=main.execute(QUERIES["next_number"]).get,
        )

    def replay(self, start: int) -> Iterator[Replay]:
        """Yield the messages and status changes in the log from offset `start` on. See `Store.replay`."""
        for offset, event_bytes, sender, content, route in self._main.execute(QUERIES["replay"], (start,)):
            if route is not None:
                yield SentReplay(offset, sender, content_decoder.decode(content).topic, DeliveryRoute.unpack(route))
                continue
            event = self._event(event_bytes)
            if isinstance(event, Moved):
                held = isinstance(event, Held)
                yield MovedReplay(event.number, event.keys, STATES[type(event)], event.ackless, held)

    def expiring(self) -> Iterator[tuple[int, DeliveryRoute]]:
        """Yield the deadline and the deliveries of messages with a time to live. See `Store.expiring`."""
        for deadline_ms, route in self._main.execute(QUERIES["expiring"]):
            yield deadline_ms, DeliveryRoute.unpack(route)

    def prefetch(self, wire_keys: Sequence[tuple[str, str, str]]) -> None:
        """Look up many wire ids (ids that senders gave to their messages) with few queries.

        Then `find_wire_id` needs no query of its own. One query for each wire id would be slower, because other threads
        may run at each query.
        """
        self._prefetched = {}
        prefetched: dict[tuple[str, str, str], KnownMessage | None] = dict.fromkeys(wire_keys)
        groups: dict[tuple[str, str], list[str]] = {}
        for sender, protocol, wire_id in wire_keys:
            groups.setdefault((sender, protocol), []).append(wire_id)
        for (sender, protocol), wire_ids in groups.items():
            asked = _json.encode(wire_ids).decode()
            if sender:
                rows = self._main.execute(QUERIES["known_wire_ids"], (sender, protocol, asked))
            else:
                rows = self._main.execute(QUERIES["known_shared_ids"], (protocol, asked))
            for wire_id, message_id, offset, content, recipients in rows:
                known = KnownMessage(message_id, offset, digest(content), recipients)
                prefetched[sender, protocol, wire_id] = known
        self._prefetched = prefetched

    def find_wire_id(self, sender: str, protocol: str, wire_id: str) -> KnownMessage | None:
        """Find a message by its wire id, also in buffered writes. See `Store.find_wire_id`."""
        wire_key = (sender, protocol, wire_id)
        fresh = self._fresh_wire_ids.get(wire_key)
        if fresh is not None:
            return fresh
        if wire_key in self._prefetched:
            return self._prefetched[wire_key]
        if sender:
            row = self._main.execute(QUERIES["known_wire_id"], (sender, protocol, wire_id)).fetchone()
        else:
            row = self._main.execute(QUERIES["known_shared_id"], (protocol, wire_id)).fetchone()
        return KnownMessage(row[0], row[1], digest(row[2]), row[3]) if row else None

    def messages(self, offsets: Sequence[int], bytes_max: int) -> tuple[dict[int, Message], int]:
        """Return the messages at these log offsets, and how many offsets were considered. See `Store.messages`."""
        self._flush()
        found: dict[int, Message] = {}
        total = 0
        for considered, offset in enumerate(offsets):
            row = self._main.execute(QUERIES["message_at"], (offset,)).fetchone()
            if row is None:
                continue
            total += page_bytes(row[CONTENT])
            if found and total > bytes_max:
                return found, considered
            found[offset] = decode_message(row)
        return found, len(offsets)

    def received(self, number: int, name: str, peer: str, before: int | None, limit: int) -> ReceivedPage:
        """Return a page of deliveries to a member from a peer, newest first. See `Store.received`."""
        self._flush()
        end = self._log_end if before is None else before
        offsets = list(islice(self._history.received(name, peer, end), limit))
        found = []
        for offset in offsets:
            sender, content, packed = self._main.execute(QUERIES["sent_at"], (offset,)).get
            route = DeliveryRoute.unpack(packed)
            if number in route.numbers and (sender == peer or sender.endswith(peer)):
                index = route.numbers.index(number)
                topic = content_decoder.decode(content).topic
                found.append(Received(offset, sender, topic, route.keys[index], route.stream_seqs[index]))
        return ReceivedPage(found, len(offsets), offsets[-1] if len(offsets) == limit else None)

    def find_message(self, message_id: MessageId) -> tuple[Message, DeliveryRoute] | None:
        """Return the message with this id and its deliveries, or `None`. See `Store.find_message`."""
        self._flush()
        row = self._main.execute(QUERIES["message_by_id"], (message_id,)).fetchone()
        return (decode_message(row[:-1]), DeliveryRoute.unpack(row[-1])) if row else None

    def steps(self, number: int, key: int) -> Sequence[Step]:
        """Return the states that the delivery `key` of the member `number` reached. See `Store.steps`."""
        self._flush()
        steps = []
        for state in State:
            nested = _NESTED if state is State.OFFERED else 1
            row = self._main.execute(QUERIES["step_of"], (number, int(state), key, nested, key)).fetchone()
            if row is not None:
                event = self._event(row[1])
                assert isinstance(event, Moved), "a step points at the event that made it"
                steps.append(Step(state, row[0], event.session, event.protocol, event.evidence))
        return steps

    def falls(self, number: int, first: int, last: int) -> Sequence[Fall]:
        """Return the escalations of a member's deliveries with keys `first` to `last`. See `Store.falls`."""
        self._flush()
        falls = []
        values = (number, first, _NESTED + (last - first) * _FALLS, last)
        for fell_first, fell_last, at_ms, event_bytes in self._select("falls_of", values):
            event = self._event(event_bytes)
            assert isinstance(event, Fell), "a fall points at the event that says so"
            falls.append(Fall(fell_first, fell_last, at_ms, event.way, event.after))
        return falls

    def names(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the names of the members with these numbers, by number. Removed members are included.

        See `Store.names`.
        """
        return {number: self._main.execute(QUERIES["name_of"], (number,)).get for number in set(numbers)}

    def history(self, history_query: HistoryQuery) -> Sequence[Message]:
        """Return a page of messages that match a query. See `Store.history`."""
        self._flush()
        before = self._log_end if history_query.before is None else min(history_query.before, self._log_end)
        found: list[Message] = []
        total = 0
        for offset in islice(self._history.offsets(history_query, before), history_query.limit):
            row = self._main.execute(QUERIES["message_at"], (offset,)).get
            total += page_bytes(row[CONTENT])
            if found and total > history_query.bytes_max:
                break
            found.append(decode_message(row))
        return found

    def _event(self, packed: bytes) -> AnyEvent:
        return ledger.decode_event(self._words.unpack(packed))

    def _select(self, statement: str, values: _Row) -> Iterator[_Row]:
        return iter(self._main.execute(QUERIES[statement], values))

    def read_log(self, start: int, limit: int) -> tuple[Sequence[LogRow], int]:
        """Return at most `limit` committed rows of the main log from offset `start` on.

        Also return the offset that the next new row will get. See `Store.read_log`.
        """
        # Rows of the open transaction are not committed yet. A reader of the log must never see them.
        limit = min(limit, max(0, self._committed_end - start))
        rows = self._main.execute(QUERIES["read_main"], (start, limit))
        found = [
            LogRow(offset=offset, at_ms=at_ms, event=self._words.unpack(event), hash=hash_bytes.hex())
            for offset, at_ms, event, hash_bytes in rows
        ]
        return found, self._committed_end

    def close(self) -> None:
        """Close the database. Buffered writes are lost. See `Store.close`."""
        if self._closed:
            return
        self._closed = True
        try:
            self._abandon()
        finally:
            self._main.close()
