"""`tieline pipeline verify`: checks the audit chain, and compares the stored data with it, on Spark.

Used by: `main`. Uses: `tieline.pipeline.verify`, which is imported only when the command runs.
"""

import contextlib
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tieline.cli.audit import CheckpointOption, HomeOption
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, print_json, say, warn
from tieline.cli.pipeline import (
    EngineOption,
    HubOption,
    JsonOption,
    MasterOption,
    TokenOption,
    is_little,
    log_options,
    pipeline_app,
    require_extra,
    spark_master,
    spark_session,
    told_failures,
)
from tieline.cli.session import ended_by
from tieline.protocols import protocols

if TYPE_CHECKING:
    from tieline.pipeline.verify_report import VerifyReport

_FINDINGS_SHOWN = 10
_SIGNED = {each.name: each.signatures.variable for each in protocols() if each.signatures is not None}
"""Names of the environment variables with the secrets for message signatures, by protocol."""
_VERIFY_HELP = "\n\n".join(
    (
        "Check the audit chain and the stored data against it, in parallel.",
        textwrap.fill(
            "Checkpoints, in the home or kept elsewhere, show if the end of the chain was cut off. "
            + "".join(
                f"With {variable} set, the signatures of {name} messages are checked too. "
                for name, variable in _SIGNED.items()
            )
            + "Exit codes: 0 intact, 1 broken, 2 could not be checked, 3 refused, 4 hub not reachable.",
            116,
        ),
    )
)


@pipeline_app.command("verify", help=_VERIFY_HELP)
def verify(
    home: HomeOption = None,
    hub: HubOption = None,
    token: TokenOption = None,
    master: MasterOption = None,
    engine: EngineOption = None,
    checkpoint: CheckpointOption = None,
    json: JsonOption = False,
) -> None:
    """Check the audit chain and the stored data against it, in parallel."""
    ended_by(
        lambda: _verify(log_options(home, hub, token), spark_master(master, engine), checkpoint or [], json=json),
        json=json,
    )


def _verify(where: dict[str, str], master: str, kept: list[Path], *, json: bool) -> None:
    import msgspec

    from tieline.cli.checkpoints import Checkpoints, read_checkpoints

    require_extra()
    if "home" in where:
        checkpoints, problems = Checkpoints(Path(where["home"])).read(kept)
    else:
        # There is no signing key here, because the key does not leave the hub's home. Only the given files are read.
        checkpoints, problems = [one for path in kept for one in read_checkpoints(path)], []
    with _checked():
        from tieline.pipeline.row import MAIN
        from tieline.pipeline.source import Options

        rows = Options(where).log().end(MAIN)
        with spark_session(master, brief=is_little(rows)) as spark:
            from tieline.pipeline.verify import verify
            from tieline.pipeline.verify_report import VerifyFinding

            report = verify(spark, where, checkpoints)
    wrong = [VerifyFinding(report.verified_rows, "checkpoint", problem) for problem in problems]
    report = msgspec.structs.replace(report, findings=(*report.findings, *wrong))
    if json:
        from tieline.cli.documents import LogVerdict, fill

        print_json(fill(LogVerdict, report))
    elif report.intact:
        say(f"Intact: {report.verified_rows:,} rows, {report.messages:,} messages.")
        if report.times_from:
            say(f"The chain covers times from row {report.times_from} on; earlier rows were written without that.")
    if report.signatures_unchecked and not json:
        how = "run this on the hub's machine" if "url" in where else f"set {' and '.join(_SIGNED.values())}"
        signed = f"{report.signatures_unchecked:,} {' and '.join(_SIGNED)} messages"
        say(f"The signatures of {signed} were not checked: {how} for that.")
    if not report.intact:
        raise _broken(report)


@contextlib.contextmanager
def _checked() -> Iterator[None]:
    """Raise `Failure` with exit code 2 if an error in the `with` block prevents the check.

    Exit code 1 is reserved for a broken log.
    """
    from tieline.core.store import StoreError

    try:
        with told_failures():
            yield
    except StoreError as error:
        raise Failure(Exit.USAGE, f"the log could not be checked: {error}") from error
    except Failure as failure:
        if failure.code is not Exit.FAILED:
            raise
        raise Failure(Exit.USAGE, f"the log could not be checked: {failure.message}", failure.hint) from failure


def _broken(report: "VerifyReport") -> Failure:
    first, *others = report.findings
    for finding in others[: _FINDINGS_SHOWN - 1]:
        warn(f"  {neutral_line(finding.what)}")
    left = len(others) - _FINDINGS_SHOWN + 1
    if left > 0:
        warn(f"  … and {'more than ' if report.more else ''}{left} more; --json has {len(report.findings)} of them")
    return Failure(Exit.FAILED, f"the audit chain is not intact: {first.what}")
