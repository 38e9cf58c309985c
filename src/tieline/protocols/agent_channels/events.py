"""Named events with handlers, as the protocol's own library offers them.

Above: `channel`, `client`, `bridge`. Below: nothing. It refuses to know what an event means.
"""

import inspect
import logging
from collections.abc import Callable
from typing import Any, ClassVar

logger = logging.getLogger(__name__)

Handler = Callable[..., Any]


class Emitter:
    """Something that tells its handlers what happened, in the order they were added."""

    # The names of the events; a handler for any other is a mistake worth hearing about.
    EVENTS: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._handlers: dict[str, list[Handler]] = {}

    def on(self, event: str, handler: Handler) -> None:
        """Call `handler` whenever `event` happens. It must return at once: it runs between two reads of a socket."""
        if event not in self.EVENTS:
            raise ValueError(f"There is no event {event!r}; there are {', '.join(self.EVENTS)}")
        if inspect.iscoroutinefunction(handler):
            raise TypeError("A handler is a plain function; to await something, start a task in it")
        self._handlers.setdefault(event, []).append(handler)

    def off(self, event: str, handler: Handler) -> None:
        """Take back one `on`. A handler that is not there is no error."""
        handlers = self._handlers.get(event, [])
        if handler in handlers:
            handlers.remove(handler)

    def _emit(self, event: str, *details: object) -> None:
        """Call the handlers. One that raises is logged, and neither the others nor the connection suffer from it."""
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
