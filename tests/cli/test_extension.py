"""Tests of the commands that a protocol adds to the command line. Each part of such an extension is optional."""

import inspect
from pathlib import Path
from typing import Annotated

import pytest
import typer

from tieline.cli import extension as extension_module
from tieline.cli.extension import Extension, extensions, extensions_by_name, offer
from tieline.cli.failure import Exit, Failure
from tieline.cli.mailbox import find_mailbox_provider
from tieline.cli.session import Link
from tieline.protocols import protocols


def test_a_part_that_is_left_as_it_is_adds_nothing() -> None:
    part = Extension()
    assert not [*part.variables, *part.prefixes, *part.exports, *part.sockets, *part.commands(), *part.listeners({})]
    assert not [*part.look_at_settings(None, Path()), *part.look_at_members({}, ["bob"])]
    assert part.failure(ValueError()) is None
    assert part.mailbox_provider() is None
    assert part.look_at_data(Link(), repair=False) is None


def test_every_protocol_that_declares_a_part_is_asked_for_it() -> None:
    declared = {protocol.name for protocol in protocols() if protocol.commands is not None}
    assert extensions_by_name().keys() == declared
    assert len(extensions()) == len(declared)


def test_without_a_protocol_that_keeps_messages_elsewhere_every_command_asks_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extension_module, "protocols", tuple)
    assert find_mailbox_provider() is None
    assert Link(home=tmp_path).mailbox() is None
    assert Link(home=tmp_path).or_stored() == Link(home=tmp_path)
    assert Link(home=tmp_path).way() == (None, None)
    with pytest.raises(Failure) as refused:
        Link(spool=tmp_path).mailbox()
    assert refused.value.code is Exit.USAGE


def test_an_option_is_limited_to_what_is_offered() -> None:
    def command(form: Annotated[str, typer.Option("--form")] = "one", other: int = 0) -> None: ...

    offer(command, "form", ["one", "two"])
    form, other = inspect.signature(command).parameters.values()
    kind, _ = form.annotation.__origin__, form.annotation.__metadata__
    assert [str(each) for each in kind] == ["one", "two"]
    assert (form.default, other.annotation) == ("one", int)
