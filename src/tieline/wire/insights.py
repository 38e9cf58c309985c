"""The stored report of the pipeline, which the console shows: its check, its file in the hub's home, and its address.

Used by: the hub, for reports that come over HTTP, and a pipeline on the hub's machine, which stores its report itself,
so that it also does that while no hub runs. The lake (the pipeline's tables) may be anywhere. A report is stored as it
came, and only whole: a new report replaces the stored one, unless the stored one is newer.
"""

import threading
import time
from http import HTTPStatus
from pathlib import Path

import msgspec
from msgspec import Struct

from tieline.wire.home import write_private
from tieline.wire.json_text import has_many_values
from tieline.wire.report_parts import Report

PATH = "/api/insights"
FILE = "insights.json"
"""Name of the file in the hub's home that has the last report."""
BYTES_MAX = 16 * 1024 * 1024
"""Size limit of a report. Its lists have at most 2000 rows, so a report has a few megabytes, which a browser can hold.
"""
_VALUES_MAX = 500_000
"""Most JSON values in a report. It takes about a tenth of a second to decode this many, on a thread."""
_AHEAD_MS_MAX = 24 * 60 * 60 * 1000
"""Most milliseconds by which the time of a report may be ahead of the clock. A report of next year would be the newest
for a year, and no other report could replace it."""


class Rejected(Struct, frozen=True):
    """The answer to a report that is not stored: the status of an HTTP answer, a code for programs, and a sentence."""

    status: HTTPStatus
    code: str
    text: str


class _Age(Struct):
    refreshed_at_ms: int = 0


_decoder = msgspec.json.Decoder(Report)
_age_decoder = msgspec.json.Decoder(_Age)


class StoredReport:
    """The file with the pipeline's last report, in the folder of a hub or room."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._writing = threading.Lock()

    def put(self, body: bytes) -> Rejected | None:
        """Check a report and store it. Return a rejection if it is no report, too large, or older than the last one."""
        if len(body) > BYTES_MAX or has_many_values(body, _VALUES_MAX):
            text = f"a report has at most {BYTES_MAX} bytes and {_VALUES_MAX} values"
            return Rejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "report_too_large", text)
        try:
            report = _decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _invalid(f"this is no report of the pipeline: {error}")
        if report.refreshed_at_ms > time.time_ns() // 1_000_000 + _AHEAD_MS_MAX:
            text = "the report's refreshed_at_ms is more than a day ahead; set the clock of the pipeline's machine"
            return _invalid(text)
        with self._writing:
            known = self._refreshed_at_ms()
            if known is not None and report.refreshed_at_ms < known:
                text = f"the stored report is newer: its refreshed_at_ms is {known}, not {report.refreshed_at_ms}"
                return Rejected(HTTPStatus.CONFLICT, "outdated_report", text)
            write_private(self._path, body)
        return None

    def read(self) -> bytes | None:
        """Return the last report as JSON; `None` if there is none."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def stored_at_ms(self) -> int | None:
        """Return the time at which the last report was stored; `None` if there is none."""
        try:
            return self._path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def _refreshed_at_ms(self) -> int | None:
        """Return the time of the stored report; `None` if there is none, or if the file is damaged."""
        try:
            return _age_decoder.decode(self.read() or b"").refreshed_at_ms
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None


def _invalid(text: str) -> Rejected:
    return Rejected(HTTPStatus.BAD_REQUEST, "invalid_report", text)
