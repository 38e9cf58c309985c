"""Tests of names: allowed, reserved and refused ones."""

import pytest

from tieline.contract.identifiers import RESERVED_NAMES, parse_channel_name, parse_member_name
from tieline.contract.refusal import Code, Refusal
from tieline.protocols import protocols

RESERVED_BY_PROTOCOLS = {name for protocol in protocols() for name in protocol.reserved_names}

GOOD = ["a", "7", "Ada", "ada.b-c_d", "0-0", "x" * 128, "inbox-ada", "general"]
BAD = [
    "",
    "_ada",
    ".ada",
    "-ada",
    "x" * 129,
    "a b",
    "a/b",
    "a@b",
    "ä",
    "ada\n",
    "\nada",
    "a\x00b",
    "*",
    "#dev",
    "a" * 9999,
]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_member_name_is_given_back_as_it_was_written(name: str) -> None:
    assert parse_member_name(name) == name


@pytest.mark.parametrize("name", BAD)
def test_a_name_outside_the_rule_is_refused(name: str) -> None:
    for parse in (parse_member_name, parse_channel_name):
        refusal = parse(name)
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.INVALID_NAME
        assert len(refusal.message) < 600, "a long name is not repeated in full"


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES | RESERVED_BY_PROTOCOLS))
def test_a_reserved_name_is_refused_in_any_case(name: str) -> None:
    for spelling in (name, name.upper(), name.title()):
        refusal = parse_member_name(spelling)
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.RESERVED_NAME


@pytest.mark.parametrize("name", ["all", "hub", "system", "tieline", "operator"])
def test_no_member_can_take_a_name_that_the_hub_or_its_operator_acts_under(name: str) -> None:
    assert isinstance(parse_member_name(name), Refusal)


def test_a_reserved_name_within_a_longer_one_is_allowed() -> None:
    assert parse_member_name("all-hands") == "all-hands"


@pytest.mark.parametrize("name", ["dev", "general", "all", "x" * 128, "my-inbox-1", "inbox"])
def test_a_good_channel_name_is_given_back_as_it_was_written(name: str) -> None:
    assert parse_channel_name(name) == name


def test_a_channel_cannot_look_like_a_members_inbox_socket() -> None:
    refusal = parse_channel_name("inbox-ada")
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_NAME
