"""`tieline demo`: the command that runs the demo.

Used by: a person who wants to see Tieline at work, and `make run`. Uses: `stage` and `script`. The exit code is 0 only
if every statement of the demo is true.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import print_json
from tieline.cli.session import JsonOption, ended_by

if TYPE_CHECKING:
    import asyncio

    from tieline.cli.demo.outcome import Ending
    from tieline.cli.demo.script import Show
    from tieline.cli.demo.stage import Stage
    from tieline.cli.demo.transcript import Transcript
    from tieline.cli.demo.verdict import Verdict

_INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended, as in a shell."""


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Do not pause for a reader.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the hub's home, to look at it afterwards.")] = False,
    json: JsonOption = False,
) -> None:
    """Watch five agents on five protocols finish a piece of work together, on a temporary hub.

    It takes less than 15 seconds, needs no network and leaves nothing behind. Exit code 0 if everything happened as the
    demo claims; else 1, with what was expected and what was found.
    """
    import asyncio

    ended_by(lambda: asyncio.run(_demo(fast=fast, keep=keep, json=json)), json=json)


async def _demo(*, fast: bool, keep: bool, json: bool) -> None:
    import asyncio

    from tieline.cli.demo.transcript import Transcript
    from tieline.cli.demo.verdict import Verdict

    transcript, verdict = Transcript(fast=fast, silent=json), Verdict()
    show = asyncio.create_task(_show(transcript, verdict, keep=keep))
    _stop_by_signal(show)
    try:
        found = await show
    except asyncio.CancelledError:
        transcript.remark("Stopped." if keep else "Stopped. Nothing of it is left.")
        raise typer.Exit(_INTERRUPTED) from None
    seconds = round(transcript.seconds, 2)
    if json:
        from tieline.cli.demo.outcome import CheckedClaim, Outcome
        from tieline.cli.documents import fill

        checks = [fill(CheckedClaim, check) for check in verdict.checks]
        told = {"holds": verdict.holds, "seconds": seconds, "checks": checks, "transcript": transcript.lines}
        print_json(fill(Outcome, found, **told))
    else:
        _print_verdict(transcript, verdict, seconds, "" if keep else " Nothing of it is left.")
    if not verdict.holds:
        first = verdict.failed[0]
        raise Failure(Exit.FAILED, f"not everything happened as claimed: {first.claim}: found {first.found!r}")


def _stop_by_signal(show: "asyncio.Task[Ending]") -> None:
    """Stop the demo cleanly at the first signal (Ctrl-C, SIGTERM, SIGHUP). Ignore further signals."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop() -> None:
        for number in numbers:
            loop.add_signal_handler(number, lambda: None)
        show.cancel()

    for number in numbers:
        loop.add_signal_handler(number, stop)


async def _show(transcript: "Transcript", verdict: "Verdict", *, keep: bool) -> "Ending":
    from tieline.cli.demo.outcome import Ending
    from tieline.cli.demo.script import Show, players
    from tieline.cli.demo.stage import Broken, Stage
    from tieline.client import HubError

    found = Ending()
    transcript.remark("A hub and five agents are starting, each a process of its own…")
    stage = Stage(players(), keep=keep)
    try:
        async with stage:
            transcript.remark(f"The hub is running as process {stage.hub_pid}, in {stage.home}, for this alone.")
            show = Show(stage, transcript, verdict)
            await show.play()
            found = await _epilogue(show, stage, transcript)
    except (Broken, HubError, OSError) as error:
        verdict.check("the show goes on to its end", "it does", str(error))
    if keep:
        found.home = str(stage.home)
        transcript.remark(f"Kept: tieline serve --home {stage.home}")
    return found


async def _epilogue(show: "Show", stage: "Stage", transcript: "Transcript") -> "Ending":
    from tieline.cli.demo import epilogue
    from tieline.cli.demo.outcome import Ending

    await transcript.scene("Receipts: ✓ acknowledged, ○ offered on a wire without acknowledgement; after so many ms")
    receipts = await epilogue.receipts(show)
    events = await epilogue.log_events(show, len(receipts))
    show.check("the hub stops cleanly", 0, await stage.stop_hub())
    rows = epilogue.audit(show, stage.home)
    await transcript.scene("What the pipeline would see")
    transcript.remark(f"{rows} events: " + ", ".join(f"{count} {kind}" for kind, count in events.items()))
    return Ending(receipts, events, rows)


def _print_verdict(transcript: "Transcript", verdict: "Verdict", seconds: float, end: str) -> None:
    transcript.remark("")
    for check in verdict.failed:
        transcript.remark(f"NOT SO: {check.claim}: expected {check.expected!r}, found {check.found!r}")
    kept = len(verdict.checks) - len(verdict.failed)
    transcript.remark(f"{kept} of {len(verdict.checks)} claims hold, in {seconds:.1f} s.{end}")
