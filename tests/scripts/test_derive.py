"""`make derive`: the generated files match the current contract."""

from typing import get_args

import pytest
from msgspec import Struct

from scripts import derive, native
from tieline.client import Client
from tieline.contract import reply as r
from tieline.wire.native import frames as f
from tieline.wire.native.derived import ANSWERS


def test_the_module_is_the_one_that_the_contract_makes() -> None:
    assert derive.DERIVED.read_text(encoding="utf-8") == derive.derived(), "it is out of date: run make derive"


@pytest.mark.parametrize("command", derive.requests(), ids=lambda kind: str(kind.__name__))
def test_every_request_has_a_frame_an_answer_and_a_method(command: type[Struct]) -> None:
    assert getattr(f, command.__name__) in get_args(f.ClientFrame)
    assert derive.reply_of(command) in {*ANSWERS, r.Activity}
    assert not derive.method_of(command) or callable(getattr(Client, derive.method_of(command)))


def test_exceptions_are_about_what_there_is() -> None:
    assert set(native.REQUESTS) <= set(derive.requests())
    assert set(native.ANSWERS) <= set(get_args(r.Reply))
    known = {info for command in derive.requests() for info in command.__struct_fields__}
    known |= {info for kind in (*get_args(r.Reply), *native.VIEWS) for info in kind.__struct_fields__}
    assert set(native.RENAMED) <= known
