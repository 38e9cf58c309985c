"""Tests of the generator of logs: its logs pass the hub's audit, and the same seed makes the same log."""

import json
from pathlib import Path

import pytest

from bench.synth import Generator, main
from tieline.core.audit import verify
from tieline.stores.sqlite.inspection import open_inspection


def test_a_made_home_passes_the_audit_of_a_real_one(tmp_path: Path) -> None:
    answers = Generator(tmp_path, 3000, seed=5).run()
    inspection = open_inspection(tmp_path)
    report = verify(inspection)
    inspection.close()
    assert report.findings == ()
    assert (report.rows, report.messages, report.head) == (answers.main, answers.messages, answers.head)


def test_the_same_seed_makes_the_same_log_and_another_seed_another(tmp_path: Path) -> None:
    heads = [Generator(tmp_path / str(index), 1000, seed).run().head for index, seed in enumerate((1, 1, 2))]
    assert heads[0] == heads[1] != heads[2]


def test_the_answers_are_written_beside_the_log(tmp_path: Path) -> None:
    answers = Generator(tmp_path, 2000, seed=1).run()
    told = json.loads((tmp_path / "answers.json").read_text())
    assert told["messages"] == answers.messages > 400
    assert sum(told["states"].values()) == told["deliveries"]
    assert told["events"] == told["main"] + told["activity"]


def test_a_made_home_is_announced_and_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = str(tmp_path / "home")
    main(["--out", home, "--events", "800", "--seed", "2"])
    assert json.loads(capsys.readouterr().out)["messages"] == 500
    with pytest.raises(SystemExit) as ended:
        main(["--out", home])
    assert ended.value.code == 2
    assert "is a home already" in capsys.readouterr().err
