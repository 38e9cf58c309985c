"""Tests of the script of `make fresh`: the choice of its steps, and the table at its end."""

import argparse

import pytest

from scripts.fresh import INSTALLED, STEPS, Outcome, StepFailed, chosen_steps, documented, table, timed


def test_the_table_has_a_line_for_each_step_with_its_time_and_result() -> None:
    outcomes = [Outcome("run", 65.4), Outcome("message", 3.2, "exit code 2"), Outcome("test", None)]
    assert table(outcomes).splitlines() == [
        "step     time  result",
        "run      1:05  passed",
        "message  0:03  FAILED: exit code 2",
        "test        -  not run",
    ]


def test_steps_are_taken_in_the_order_of_the_readme() -> None:
    assert chosen_steps("message, run") == ["run", "message"]
    assert chosen_steps(",".join(STEPS)) == list(STEPS)


@pytest.mark.parametrize("names", ["", "run,walk"])
def test_a_step_that_does_not_exist_is_wrong_usage(names: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no such step"):
        chosen_steps(names)


def test_a_step_that_fails_has_its_time_and_its_reason() -> None:
    def fail() -> None:
        raise StepFailed("exit code 2")

    outcome = timed("run", fail)
    assert (outcome.seconds is not None, outcome.result) == (True, "FAILED: exit code 2")


def test_a_step_that_could_not_be_started_is_a_failure_and_no_crash() -> None:
    def fail() -> None:
        raise FileNotFoundError("chroot")

    assert timed("run", fail).result == "FAILED: FileNotFoundError('chroot')"


def test_the_commands_of_the_docs_are_those_that_are_run() -> None:
    install, service = documented("install"), documented("service")
    assert [command for command in install if f"{INSTALLED}".replace("/root", "~") in command]
    assert service[0] == "tieline service install"
    assert documented("system")[-1].endswith("tieline service install --system")
