"""Process that a fault test kills: a broker that works without end.

Start it with `python -m tests.faults.log_victim FOLDER`. It sends messages, moves a reader of the log, lets retention
delete rows, and gives free space back. It prints a line when a new position of the reader is committed, and a dot
before each step, so that a kill can hit any step.
"""

import sys
from pathlib import Path

from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.limits import Limits
from tieline.contract.reply import ReaderState
from tieline.stores.sqlite import SqliteStore

DAY_MS = 24 * 3600 * 1000
BODY = "x" * 80_000


def main() -> None:
    """Repeat all steps until the process is killed."""
    folder = Path(sys.argv[1])
    limits = Limits(retention_ms=DAY_MS, reader_wait_ms=DAY_MS)
    harness = BrokerHarness(lambda: SqliteStore(folder), limits)
    harness.clock_and_ids.time_ms += harness.broker.ledger.end * DAY_MS
    ada, bob = (harness.attach(name) if name in harness.roster() else harness.join(name) for name in ("ada", "bob"))
    rounds = 0

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    while True:
        harness.ask_all(*(c.Send(ada, content=content("@bob", BODY)) for _ in range(40)))
        keys = [delivery.key for delivery in harness.fetch(bob)]
        harness.ask(c.Advance(bob, ranges=((keys[0], keys[-1]),)))
        rounds += 1
        if rounds % 3:
            # Every third round the reader sleeps, and retention passes it.
            position = harness.broker.ledger.end - 5
            say(".")
            harness.expect(ReaderState, c.AdvanceReader(harness.operator, name="lake", position=position))
            say(str(position))
        harness.clock_and_ids.time_ms += 3 * DAY_MS
        for _ in range(8):
            say(".")
            harness.ask(c.Tick())


if __name__ == "__main__":
    main()
