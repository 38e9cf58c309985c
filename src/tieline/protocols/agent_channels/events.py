"""Named events with handlers, as the protocol's own library offers them.

Used by: `channel`, `client`, `bridge`. Uses: nothing. This module gives no meaning to events.
"""

import inspect
import logging
from collections.abc import Callable
from typing import Any, ClassVar

logger = logging.getLogger(__name__)

Handler = Callable[..., Any]


class Emitter:
    """Base class for objects with named events. Handlers are called in the order they were added."""

    # The names of the events. `on` raises an error for any other name.
    EVENTS: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._handlers: dict[str, list[Handler]] = {}

    def on(self, event: str, handler: Handler) -> None:
        """Call `handler` at each `event` from now on.

        The handler must return at once, because it runs between two reads of a socket.
        """
        if event not in self.EVENTS:
            raise ValueError(f"There is no event {event!r}; there are {', '.join(self.EVENTS)}")
        if inspect.iscoroutinefunction(handler):
            raise TypeError("A handler is a plain function; to await something, start a task in it")
        self._handlers.setdefault(event, []).append(handler)

    def off(self, event: str, handler: Handler) -> None:
        """Remove a handler that `on` added. It is no error if the handler was not added."""
        handlers = self._handlers.get(event, [])
        if handler in handlers:
            handlers.remove(handler)

    def _emit(self, event: str, *details: object) -> None:
        """Call the handlers of an event. If a handler raises, log the exception and call the next handler."""
        handlers = self._handlers.get(event)
        if not handlers:
            if event == "error":
                logger.warning("%s: %s", type(self).__name__, *details)
            return
        for handler in tuple(handlers):
            try:
                handler(*details)
            except Exception:
                logger.exception("a handler of %s's %r failed", type(self).__name__, event)

    def _has_handler(self, event: str) -> bool:
        return bool(self._handlers.get(event))
