"""Tests of the list of refusal codes and their meanings."""

import pytest

from tieline.contract.refusal import FATAL, MEANINGS, Code, Refusal


@pytest.mark.parametrize("code", Code)
def test_every_code_has_a_meaning_that_is_a_sentence(code: Code) -> None:
    assert MEANINGS[code].endswith(".")
    assert MEANINGS[code][0].isupper()


def test_no_two_codes_mean_the_same() -> None:
    assert len(set(MEANINGS.values())) == len(Code)


@pytest.mark.parametrize("code", Code)
def test_a_code_is_its_name_in_lower_case(code: Code) -> None:
    assert code.value == code.name.lower()


@pytest.mark.parametrize("code", Code)
def test_only_refusals_after_which_a_session_cannot_go_on_are_fatal(code: Code) -> None:
    assert Refusal(code, "no").fatal is (code in FATAL)
    assert {Code.UNAUTHORIZED, Code.UNKNOWN_SESSION, Code.TAKEN_OVER, Code.SHUTTING_DOWN} == FATAL
