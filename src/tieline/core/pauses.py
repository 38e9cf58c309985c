"""Pauses: decides who may pause a conversation, resume it, or lift its limits.

The broker calls these rules. `core.holds` holds the messages of a paused conversation. Only humans, and members who may
manage members, may use these commands.
"""

from tieline.contract import command as c
from tieline.contract.member import MemberKind
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Pauses, Reply
from tieline.core.batch import Batch
from tieline.core.directory import Session
from tieline.core.holds import Holds
from tieline.core.loops import find_conversation
from tieline.core.rules import Rules, decides


class PauseRules(Rules):
    """Rules for the commands that pause a conversation, resume it, lift its limits, or list such conversations."""

    def __init__(self, batch: Batch, holds: Holds) -> None:
        self._batch = batch
        self._limits = batch.limits
        self._holds = holds

    @decides(c.ResumeThread)
    def resume(self, session: Session, command: c.ResumeThread) -> Reply:
        """End the pause of a conversation, so that its held messages are delivered."""
        name = self._named(session, command.thread)
        if isinstance(name, Refusal):
            return name
        self._holds.resume(name, session.speaker)
        return Done()

    @decides(c.PauseThread)
    def pause(self, session: Session, command: c.PauseThread) -> Reply:
        """Pause a conversation: its messages are stored, but not delivered until the pause ends."""
        name = self._named(session, command.thread)
        if isinstance(name, Refusal):
            return name
        self._holds.pause(name, session.speaker)
        return Done()

    @decides(c.AllowThread)
    def allow(self, session: Session, command: c.AllowThread) -> Reply:
        """Let agents answer each other in a conversation without limit for a while."""
        name = self._named(session, command.thread)
        if isinstance(name, Refusal):
            return name
        for_ms = self._limits.allow_ms if command.for_ms is None else command.for_ms
        if not 0 < for_ms <= self._limits.ttl_ms_max:
            return Refusal(Code.INVALID_REQUEST, f"limits are lifted for 1 to {self._limits.ttl_ms_max} milliseconds")
        self._holds.allow(name, session.speaker, self._batch.now_ms + for_ms)
        return Done()

    @decides(c.ListPauses)
    def select(self, session: Session, _: c.ListPauses) -> Reply:
        """Reply with the conversations that are paused, or in which agents may answer without limit."""
        return _refuse(session) or Pauses(self._holds.list(self._batch.now_ms))

    def _named(self, session: Session, thread: str) -> str | Refusal:
        """Check `thread` and return it as the name of a conversation.

        Return a refusal if the name is invalid, or if the session may not pause conversations.
        """
        return _refuse(session) or find_conversation(thread)


def _refuse(session: Session) -> Refusal | None:
    human = session.account is not None and session.account.member.kind is MemberKind.HUMAN
    if human or session.may(MEMBERS_MANAGE):
        return None
    return Refusal(Code.FORBIDDEN, "paused conversations are for a human or a member with members.manage")
