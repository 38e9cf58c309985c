"""Test double of the Hub port: it records the commands, and the test answers them."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from tieline.contract import command as c
from tieline.contract.activity import ActivityRow
from tieline.contract.hub import ExternalInbox, Hub, Interest, Listener, Notice
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Reply

_R = TypeVar("_R")

DoneCall = Callable[[Sequence[Reply]], None]


class FakeHub(Hub):
    """Test double of the Hub port: it records the commands, and the test answers them."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.submitted: list[c.Command] = []
        # Commands that wait for their replies, oldest first.
        self.open: deque[tuple[Sequence[c.Command], DoneCall]] = deque()
        self.listening: dict[SessionId, tuple[Listener, MemberName | None]] = {}
        self.watching: list[tuple[Interest, Callable[[Notice], None]]] = []
        self.tails: dict[SessionId, Callable[[Sequence[ActivityRow]], None]] = {}

    def submit(self, commands: Sequence[c.Command], done: DoneCall | None = None) -> None:
        self.submitted.extend(commands)
        if done is not None:
            self.open.append((commands, done))

    async def ask(self, command: c.AnsweredBy[_R]) -> _R | Refusal:
        raise AssertionError("a session pump does not wait")

    def listen(self, session: SessionId, listener: Listener, member: MemberName | None = None) -> None:
        self.listening[session] = (listener, member)

    def forget(self, session: SessionId) -> None:
        self.listening.pop(session, None)

    def tail(
        self, session: SessionId, member: MemberName, receiver: Callable[[Sequence[ActivityRow]], None]
    ) -> Callable[[], None]:
        self.tails[session] = receiver

        def end() -> None:
            self.tails.pop(session, None)

        return end

    def watch(self, interest: Interest, receiver: Callable[[Notice], None]) -> Callable[[], None]:
        self.watching.append((interest, receiver))
        return lambda: self.watching.remove((interest, receiver))

    def set_external_inbox(self, member: MemberName, session: SessionId, inbox: ExternalInbox | None) -> None:
        raise AssertionError("a session pump sets no external inbox")

    def resolve(self, question: int, reserved: Sequence[int], taken: Sequence[int]) -> None:
        raise AssertionError("a session pump is asked nothing")

    # For the test.

    def answer(self, *replies: Reply) -> None:
        """Give these replies to the oldest commands without an answer."""
        commands, done = self.open.popleft()
        assert len(commands) == len(replies)
        done(replies)

    def asked(self, kind: type[c.Command]) -> list[c.Command]:
        """Return all submitted commands of one kind, in order."""
        return [command for command in self.submitted if isinstance(command, kind)]
