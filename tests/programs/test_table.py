"""Tests that the table of agent programs in the docs has the versions of the lock file."""

import os

import pytest

from tests.programs.installed import REQUIRED_VARIABLE, UPDATE
from tests.programs.table import CODEX, GEMINI, PAGE, filled, heads


@pytest.mark.skipif(os.environ.get(REQUIRED_VARIABLE) == UPDATE, reason="the table is written at the end")
def test_the_table_names_the_versions_that_are_tested() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for head in heads():
        assert head in page, "run: TIELINE_PROGRAMS=update make programs"


def test_a_cell_without_a_proof_is_empty_and_two_proofs_must_agree() -> None:
    page = "<!-- programs -->\nold\n<!-- /programs -->\nrest"
    done = filled(page, [(CODEX, {"busy": "yes"}), (CODEX, {"idle": "woken"})])
    assert f"{heads()[2]} yes | woken | – | – | – | – |" in done
    assert done.endswith("<!-- /programs -->\nrest")
    assert "old" not in done
    with pytest.raises(AssertionError, match="disagree"):
        filled(page, [(GEMINI, {"busy": "yes"}), (GEMINI, {"busy": "no"})])
