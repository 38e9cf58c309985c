"""Checkpoints of the audit chain: signed records of its length and last hash, one per line of a file in the home.

Used by: `tieline audit`. Uses: `core.checkpoints`, which signs, and `core.audit`, which compares.
"""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tieline.cli.failure import Exit, Failure
from tieline.core.checkpoints import KEY_BYTES, Checkpoint, forged, genuine, sign

if TYPE_CHECKING:
    from tieline.core.audit import AuditReport, Inspection

KEY_FILE = "audit.key"
CHECKPOINTS_FILE = "checkpoints.jsonl"

_decoder = msgspec.json.Decoder(Checkpoint)


class Checkpoints:
    """The signed checkpoints (length and last hash of the audit chain) in one home folder, and their signing key."""

    def __init__(self, home: Path) -> None:
        self._key_path = home / KEY_FILE
        self._path = home / CHECKPOINTS_FILE

    def verify(self, inspection: "Inspection", kept: Sequence[Path]) -> "AuditReport":
        """Check a log against its checkpoints, and return the report. `inspection` reads the log.

        The checkpoints are in the home folder, and in the files `kept`. These files are copies that somebody has stored
        outside of the home.
        """
        from tieline.core.audit import FINDINGS_MAX, AuditFinding, verify

        checkpoints, problems = self.read(kept)
        report = verify(inspection, checkpoints)
        if not problems:
            return report
        found = (*report.findings, *(AuditFinding(report.rows, problem) for problem in problems))
        return msgspec.structs.replace(report, findings=found[:FINDINGS_MAX])

    def read(self, kept: Sequence[Path]) -> tuple[list[Checkpoint], list[str]]:
        """Read the checkpoints in the home and in the files `kept`, which are copies outside of the home.

        Return the checkpoints, and a text for each problem: a wrong signature, a missing key, or a checkpoint that is
        in `kept` and no longer in the home.
        """
        made = read_checkpoints(self._path) if self._path.exists() else []
        elsewhere = [one for path in kept for one in read_checkpoints(path)]
        problems: list[str] = []
        key = self._key()
        if key is None:
            problems += ["the key that signed the checkpoints is missing"] if made or elsewhere else []
        else:
            problems += forged(key, made)
            problems += [
                f"a checkpoint of row {one.rows} was signed with another key"
                for one in elsewhere
                if not genuine(key, one)
            ]
            known = {one.mac for one in made}
            problems += [
                f"the home has lost the checkpoint of row {one.rows}"
                for one in elsewhere
                if genuine(key, one) and one.mac not in known
            ]
        return [*made, *elsewhere], problems

    def add(self, rows: int, head: str) -> Checkpoint:
        """Sign, store and return a checkpoint of the audit chain.

        `rows` is its number of rows, and `head` is its last hash.
        """
        from tieline.wire.home import write_private

        key = self._key()
        if key is None:
            key = secrets.token_bytes(KEY_BYTES)
            write_private(self._key_path, key.hex().encode())
        before = read_checkpoints(self._path) if self._path.exists() else []
        made = sign(key, rows, head, time.time_ns() // 1_000_000, before[-1].mac if before else "")
        lines = [msgspec.json.encode(one) + b"\n" for one in (*before, made)]
        write_private(self._path, b"".join(lines))
        return made

    def _key(self) -> bytes | None:
        try:
            key = bytes.fromhex(self._key_path.read_text(encoding="ascii").strip())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Failure(Exit.USAGE, f"{self._key_path} cannot be read: {error}") from error
        if len(key) != KEY_BYTES:
            raise Failure(Exit.USAGE, f"{self._key_path} is not a key of {KEY_BYTES} bytes")
        return key


def read_checkpoints(path: Path) -> list[Checkpoint]:
    """Return the checkpoints in a file. Raise `Failure` if the file cannot be read."""
    try:
        return [_decoder.decode(line) for line in path.read_bytes().splitlines() if line.strip()]
    except (OSError, msgspec.MsgspecError) as error:
        raise Failure(Exit.USAGE, f"{path} has no readable checkpoints: {error}") from error
