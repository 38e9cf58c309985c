"""The epilogue: after the last scene of the demo, checks the hub's receipts, its log and its audit chain.

Used by: `command`. Uses: the SDK, and the files of the hub's home once the hub has stopped.
"""

import contextlib
from collections import Counter
from pathlib import Path

import msgspec

from tieline.cli.demo.outcome import SentMessage
from tieline.cli.demo.script import CAST, YOU, Show
from tieline.cli.demo.stage import soon
from tieline.cli.documents import fill
from tieline.client import Client, Message, ReceiptView
from tieline.protocols import named

_Found = list[tuple[Message, tuple[ReceiptView, ...]]]

_PAGE = 1000
_ALL = (*(name for name, _, _ in CAST), YOU)
SIGNS = {"acked": "✓", "offered": "○"}


async def receipts(show: Show) -> list[SentMessage]:
    """Check that every message of the demo has arrived at every recipient. Print and return the receipts."""
    # On a wire without acknowledgement a message stays at `offered`.
    best = {name: "acked" if named(protocol).puppet().acknowledges else "offered" for name, protocol, _ in CAST}
    best[YOU] = "acked"

    def wrong(found: _Found) -> list[str]:
        receipts = [receipt for _, of_one in found for receipt in of_one]
        return [f"{one.member}: {one.state}" for one in receipts if one.state != best[one.member]]

    # The last acknowledgements may still be on their way.
    found = await soon(lambda: _receipts(show.operator), lambda found: not wrong(found))
    claim = "every delivery is acknowledged, or offered where the wire has no acknowledgement"
    show.check(claim, [], wrong(found))
    shown = [(message, of_one) for message, of_one in found if of_one]
    show.transcript.table(("message", *_ALL), [_row(message, of_one) for message, of_one in shown])
    return [fill(SentMessage, message, receipts=of_one) for message, of_one in shown]


async def _receipts(operator: Client) -> _Found:
    said = sorted(await operator.history(limit=_PAGE, everything=True), key=lambda message: message.offset)
    return [(message, await operator.receipts(message.id)) for message in said]


def _row(message: Message, of_one: tuple[ReceiptView, ...]) -> list[str]:
    reached = {receipt.member: _state(receipt) for receipt in of_one}
    target = "obj" if message.target.startswith("obj:") else message.target
    # The name of a sender without identity ends with its place, which is the target, so the place is left out.
    label, at, _ = message.sender.partition("@")
    return [f"{label}{'@…' if at else ''} → {target}", *(reached.get(name, "") for name in _ALL)]


def _state(receipt: ReceiptView) -> str:
    return f"{SIGNS.get(receipt.state, receipt.state)} {receipt.steps[-1].at_ms - receipt.steps[0].at_ms}"


async def log_events(show: Show, messages: int) -> dict[str, int]:
    """Count the events of each kind in the hub's main log, and return the counts.

    Check that the log has as many sent messages as `messages`.
    """
    counts: Counter[str] = Counter()
    start = 0
    while True:
        page = await show.operator.read_log("main", start, _PAGE)
        counts.update(msgspec.json.decode(row.event)["event"] for row in page.rows)
        if not page.rows:
            break
        start = page.next
    show.check("every message has its row in the log", messages, counts["send"])
    return dict(counts.most_common())


def audit(show: Show, home: Path) -> int:
    """Check the hub's audit chain from the files on disk, without the hub. Return the number of its rows."""
    from tieline.core.audit import verify
    from tieline.stores.sqlite.inspection import open_inspection

    with contextlib.closing(open_inspection(home)) as inspection:
        report = verify(inspection)
    show.check("the audit chain is intact", [], [finding.what for finding in report.findings])
    return report.rows
