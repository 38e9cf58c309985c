"""Tests of events: handlers run in order, wrong event names raise, and a failing handler does not stop the others."""

import logging

import pytest

from tieline.protocols.agent_channels.events import Emitter


class Bell(Emitter):
    """Test double: an emitter with the events `ring` and `error`."""

    EVENTS = ("ring", "error")

    def ring(self, *details: object) -> None:
        """Emit the event `ring`."""
        self._emit("ring", *details)

    def fail(self, error: Exception) -> None:
        """Emit the event `error`."""
        self._emit("error", error)


def test_handlers_are_called_in_the_order_they_were_added_with_the_details() -> None:
    bell, heard = Bell(), list[tuple[str, int]]()
    bell.on("ring", lambda number: heard.append(("first", number)))
    bell.on("ring", lambda number: heard.append(("second", number)))
    bell.ring(1)
    assert heard == [("first", 1), ("second", 1)]


def test_off_takes_back_one_on() -> None:
    bell, heard = Bell(), list[int]()
    bell.on("ring", heard.append)
    bell.on("ring", heard.append)
    bell.off("ring", heard.append)
    bell.ring(1)
    assert heard == [1]
    bell.off("ring", heard.append)
    bell.off("ring", heard.append)
    bell.ring(2)
    assert heard == [1]


def test_a_handler_may_take_itself_back_while_it_is_called() -> None:
    bell, heard = Bell(), list[str]()

    def once() -> None:
        bell.off("ring", once)
        heard.append("once")

    bell.on("ring", once)
    bell.on("ring", lambda: heard.append("always"))
    bell.ring()
    bell.ring()
    assert heard == ["once", "always", "always"]


def test_an_event_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="There is no event 'rign'; there are ring, error"):
        Bell().on("rign", print)


def test_a_coroutine_function_is_refused_because_nobody_would_await_it() -> None:
    async def handler() -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        Bell().on("ring", handler)


def test_a_handler_that_raises_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    bell, heard = Bell(), list[int]()
    bell.on("ring", lambda _: 1 / 0)
    bell.on("ring", heard.append)
    bell.ring(1)
    assert heard == [1]
    assert "a handler of Bell's 'ring' failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_an_error_nobody_handles_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bell = Bell()
    with caplog.at_level(logging.WARNING):
        bell.fail(ValueError("no good"))
    assert "Bell: no good" in caplog.text
    caplog.clear()
    bell.on("error", lambda _: None)
    bell.fail(ValueError("no good"))
    assert caplog.text == ""
