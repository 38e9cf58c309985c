"""Test that the path of one message, as the architecture page tells it, is the path in a running hub.

A profiler records the functions that the hub enters on its event loop and on the broker's thread, from the bytes of a
SEND at the Agent Relay socket to the write of the event of an ac7 subscriber.
"""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tieline
from tests.docs.test_docs import ARCHITECTURE, path_of_one_message
from tests.protocols.ac7.teams import EventReader, Seat
from tests.protocols.agent_relay.wire import Wire, said
from tests.server.hubs import ALONE, running_hub

SOURCE = Path(tieline.__file__).parent
THREADS = ("MainThread", "broker")
MESSAGES = 20
"""Some functions run only now and then. The path is what each of so many messages needs."""

Function = tuple[str, str]
"""The path of a module and the name of a function in it, as the page has them."""


class Walk:
    """Recorder of the functions that are entered, from `begin` to the write of a chunk with a certain body."""

    def __init__(self) -> None:
        self._body: bytes | None = None
        self._functions: set[Function] = set()

    def begin(self, body: str) -> None:
        """Record from now on, also the functions in which the broker's thread waits now."""
        self._functions = set()
        (broker,) = (thread for thread in threading.enumerate() if thread.name == "broker")
        frame = sys._current_frames()[broker.ident or 0]
        while frame.f_back is not None:
            self._note(frame.f_code)
            frame = frame.f_back
        self._body = body.encode()

    def end(self) -> set[Function]:
        """Return the functions up to the write."""
        assert self._body is None, "the body was written"
        return self._functions

    def _note(self, code: CodeType) -> None:
        path = Path(code.co_filename)
        # What stands inside a function is a part of it.
        name = code.co_qualname.partition(".<")[0]
        if path.is_relative_to(SOURCE) and "<" not in name:
            self._functions.add((str(path.relative_to(SOURCE)), name))

    def _entered(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or self._body is None or threading.current_thread().name not in THREADS:
            return
        code = frame.f_code
        self._note(code)
        if code.co_name == "write":
            # A transport of the event loop. The sender's own client writes the body too, but not as an event.
            data = bytes(frame.f_locals.get("data", b""))
            if b"data: " in data and self._body in data:
                self._body = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Install the profiler in this thread and in all that start while the context is open."""
        threading.setprofile(self._entered)
        sys.setprofile(self._entered)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # this is how it is removed


async def entered(home: Path) -> set[Function]:
    """Return the functions that each message from an Agent Relay client to an ac7 subscriber enters."""
    walk = Walk()
    walks: list[set[Function]] = []
    with walk.recording():
        async with running_hub(home, store="sqlite:unsafe", **ALONE | {"agent_relay": True, "ac7": True}) as there:
            await there.add("bob")
            stream = await EventReader.open(Seat(there.running.http, "bob", there.tokens["bob"]))
            assert (await stream.next())["title"] == "ac7 session online"
            alice = await Wire.dial(str(there.running.places["relay_socket"]))
            await alice.hello("alice")
            for number in range(MESSAGES):
                # The answer to another request: what came before is done.
                await alice.settled()
                walk.begin(body := f"walk {number}")
                await alice.send(said(body, "bob"))
                assert (await stream.next())["body"] == body
                walks.append(walk.end())
            await alice.close()
            await stream.close()
    return set.intersection(*walks)


async def test_the_path_of_one_message_is_the_one_that_the_page_tells(folder: Path) -> None:
    functions = await entered(folder / "h")
    section = ARCHITECTURE.partition("## The path of one message")[2].partition("\n## ")[0]
    modules = {module for module, _ in functions}
    assert modules - set(re.findall(r"`([\w/]+\.py)`", section)) == set(), "the page names every module on the path"
    assert set(path_of_one_message()) - functions == set(), "a message enters every function that the page names"
    # The broker's thread may do some of its own work before the event loop writes, or after it.
    counted = re.search(r"enters up to (\d+) functions in (\d+) modules", section)
    assert counted
    assert len(functions) <= int(counted[1]), (len(functions), sorted(functions))
    assert len(modules) <= int(counted[2]), (len(modules), sorted(modules))
