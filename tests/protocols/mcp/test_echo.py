"""Tests of the rule that an agent does not get its own chat messages, but gets events of its own changes."""

from tests.protocols.mcp.said import happened, said
from tieline.contract.lifecycle import KIND
from tieline.protocols.mcp.echo import should_suppress_self_echo


def test_chat_from_oneself_is_suppressed() -> None:
    assert should_suppress_self_echo(said(sender="bob", target="#dev"), member="bob")
    assert should_suppress_self_echo(said(sender="bob", target="obj:o-1"), member="bob")


def test_chat_from_others_is_not() -> None:
    assert not should_suppress_self_echo(said(sender="alice"), member="bob")


def test_what_one_did_to_an_objective_is_told() -> None:
    assert not should_suppress_self_echo(happened(sender="bob"), member="bob")


def test_chat_that_only_claims_to_be_an_event_is_chat() -> None:
    claimed = said(sender="bob", target="obj:o-1", data={"kind": KIND})
    assert should_suppress_self_echo(claimed, member="bob")
