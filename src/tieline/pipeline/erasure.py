"""Erasure: removes from a lake the activity that the hub erased because a message was redacted.

Used by: a run, after it has read the row of a redaction. Uses: the files of bronze, and the activity log of the hub.
The lake has no texts of messages, but it has the events of activity as agents reported them. Such an event may quote a
message. The hub has replaced such events by a note. Here, an event loses all its texts. It keeps the numbers and names
that the tables count, so that tokens and cost stay the same. A lake keeps rows that the hub has deleted because of
their age, and nothing tells if such a row quoted the message. So these rows lose their texts too, if they are from the
time between a day before the message and a day after its redaction.
"""

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import hexdigits
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from tieline.pipeline.row import ACTIVITY, SCHEMA
from tieline.pipeline.source import Options
from tieline.pipeline.storage import DataFile, NewFile, Storage, told
from tieline.pipeline.table import DAY_MS

REDACT = "redact"
"""Kind of the log row about a redaction."""
_SETTLED_SECONDS = 5.0  # the hub needs much less
_PAGE_ROWS = 8192
"""Rows that are compared with the log at once. An event may be long, and texts of a page must not exceed 2 GiB."""
_DIGEST = re.compile("[0-9a-f]{32}")
_NAME_CHARS_MAX = 128  # as long as the name of a model or an objective may be
_HUB_KEYS = {"kind", "ts", "redacted"}
"""Keys of an event that the hub has erased."""
_NUMBER, _NAME, _ERROR = object(), object(), object()
_USAGE = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
_KEPT: Mapping[str, Any] = {
    "duration": _NUMBER,
    "objectiveId": _NAME,
    "entry": {
        "provider": _NAME,
        "request": {"model": _NAME},
        "response": {
            "model": _NAME,
            "status": _NUMBER,
            "error": _ERROR,
            "usage": dict.fromkeys(_USAGE, _NUMBER),
        },
    },
}
"""Fields of an event that stay: all that the tables read (`tables/activity.py`). An error stays without its text."""


class _Redaction(msgspec.Struct, frozen=True):
    """The fields of a redaction's event that are needed to find quotes of the redacted message."""

    id: str


def deleted_windows(redactions: Iterable[tuple[int, str]]) -> list[tuple[int, int]]:
    """Return a time span for each redaction, as its first and last time.

    A row of this time that the hub has deleted loses its texts. `redactions` are rows of the main log, as time and
    event. If one of them is very new, wait a moment, because the hub erases activity shortly afterwards.
    """
    rows = [(at_ms, msgspec.json.decode(event, type=_Redaction)) for at_ms, event in redactions]
    newest = max((at_ms for at_ms, _ in rows), default=0)
    # The hub erases activity right after it has stored the row of the redaction.
    time.sleep(min(max(0.0, newest / 1000 + _SETTLED_SECONDS - time.time()), _SETTLED_SECONDS))
    return [(_sent_ms(said.id) - DAY_MS, at_ms + DAY_MS) for at_ms, said in rows]


def _sent_ms(message_id: str) -> int:
    """Return the time with which a message's id begins. If the id has no time, return the earliest time."""
    digits = message_id.replace("-", "")[:12]
    return int(digits, 16) if set(digits) <= set(hexdigits) else DAY_MS


@dataclass(frozen=True)
class Eraser:
    """Task of Spark that writes files of bronze anew, if they have events to erase.

    The note of each written file has the number of the file that it replaces.
    """

    storage: Storage
    where: Mapping[str, str]
    """Options of the `tieline` source."""
    table: str
    number: int
    """Number of the batch."""
    files: Sequence[DataFile]
    windows: Sequence[tuple[int, int]]
    """Times of the rows that lose their texts if the hub has deleted them."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Erase in the files whose numbers are in `batches`. Yield one row for each written file, for the driver."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from told(self.table, self._write(number))

    def _write(self, number: int) -> Iterator[DataFile]:
        path, day = self.files[number].path, self.files[number].day
        if not any(changed for _, changed in self._pages(path)):
            return
        made = NewFile(self.storage, self.table, self.number, SCHEMA, day)
        for page, _ in self._pages(path):
            made.add(page)
        yield made.close(str(number))

    def _pages(self, path: str) -> Iterator[tuple[pa.Table, bool]]:
        """Yield the rows of a file in pages, without the erased texts.

        Each page comes with true if one of its rows has changed, else false.
        """
        with self.storage.filesystem().open_input_file(path) as source:
            for batch in parquet.ParquetFile(source).iter_batches(_PAGE_ROWS, columns=SCHEMA.names):
                page = pa.Table.from_batches([batch]).cast(SCHEMA)
                yield self._erased(page)

    def _erased(self, page: pa.Table) -> tuple[pa.Table, bool]:
        mine = pc.equal(page["log"], ACTIVITY)
        offsets = page["offset"].filter(mine)
        if not len(offsets):
            return page, False
        gone = self._gone(page.filter(mine))
        events = page["event"].to_pylist()
        new = [
            without_text(event) if log == ACTIVITY and offset in gone else event
            for log, offset, event in zip(page["log"].to_pylist(), page["offset"].to_pylist(), events, strict=True)
        ]
        index = SCHEMA.get_field_index("event")
        return page.set_column(index, SCHEMA.field("event"), pa.array(new, pa.string())), new != events

    def _gone(self, activity: pa.Table) -> set[int]:
        """Return the offsets of the rows of activity whose texts must go."""
        ends = pc.min_max(activity["offset"]).as_py()
        known, gone = set[int](), set[int]()
        for page in Options(self.where).log().read(ACTIVITY, ends["min"], ends["max"] + 1):
            known.update(page.column("offset").to_pylist())
            marked = page.filter(pc.match_substring(page.column("event"), '"redacted":'))
            pairs = zip(marked.column("offset").to_pylist(), marked.column("event").to_pylist(), strict=True)
            gone.update(offset for offset, event in pairs if _is_note(event))
        for offset, at_ms in zip(activity["offset"].to_pylist(), activity["at_ms"].to_pylist(), strict=True):
            if offset not in known and any(first <= at_ms <= last for first, last in self.windows):
                gone.add(offset)
        return gone


def _is_note(event: str) -> bool:
    """True if the hub has erased an event of activity, and `event` is the note in its place."""
    try:
        said = msgspec.json.decode(event)
    except msgspec.MsgspecError:
        return False
    return isinstance(said, dict) and set(said) == _HUB_KEYS


def without_text(event: str) -> str:
    """Return an event of activity without its texts. A second call changes nothing.

    The result has a hash of the old event. So two events that differ only in their texts stay different.
    """
    try:
        said = msgspec.json.decode(event)
    except (msgspec.MsgspecError, RecursionError):
        said = None
    kept = _kept(said, _KEPT) if isinstance(said, dict) else {}
    known = said.get("digest") if isinstance(said, dict) else None
    if isinstance(known, str) and _DIGEST.fullmatch(known) and _encoded(known, kept) == event:
        return event
    return _encoded(hashlib.blake2b(event.encode(errors="replace"), digest_size=16).hexdigest(), kept)


def _encoded(digest: str, kept: Mapping[str, Any]) -> str:
    return msgspec.json.encode({"redacted": True, "digest": digest, **kept}).decode()


def _kept(said: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of an event that `fields` names, as far as they have the right types."""
    found: dict[str, Any] = {}
    for name, kind in fields.items():
        value = said.get(name)
        if kind is _ERROR and value is not None:
            found[name] = "redacted"
        elif isinstance(kind, Mapping) and isinstance(value, dict):
            found[name] = _kept(value, kind)
        elif (kind is _NUMBER and isinstance(value, int | float)) or (
            kind is _NAME and isinstance(value, str) and len(value) <= _NAME_CHARS_MAX
        ):
            found[name] = value
    return found
