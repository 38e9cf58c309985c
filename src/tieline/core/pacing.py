"""Pacing: decides if a message of an agent is delivered at once, slowed, or held, and who gets a hub message about it.

`core.sending` calls this module. It uses `core.loops`, which counts how often agents have answered each other in a row
(hops), and `core.holds`, which knows the paused conversations. Above the soft limit of hops, messages are slowed. Above
the hard limit, the conversation is paused.
"""

from collections.abc import Collection

from tieline.contract.delivery import HELD, REMEDY, SLOWED
from tieline.contract.limits import Limits
from tieline.contract.member import MemberKind
from tieline.contract.message import Content, Kind
from tieline.contract.target import TargetKind
from tieline.core.batch import Batch
from tieline.core.directory import Account, Directory, Session
from tieline.core.holds import Holds, Verdict, command
from tieline.core.hub_messages import HubMessages
from tieline.core.loops import Judgement, Loops, conversation
from tieline.core.objectives import Objectives, thread


class Pacing:
    """Decides for each new message: deliver it at once, slow it (deliver it a little later), or hold it."""

    __slots__ = ("_batch", "_directory", "_holds", "_hub_messages", "_limits", "_loops", "_objectives")

    def __init__(
        self,
        batch: Batch,
        directory: Directory,
        objectives: Objectives,
        loops: Loops,
        holds: Holds,
        hub_messages: HubMessages,
    ) -> None:
        self._batch = batch
        self._limits = batch.limits
        self._directory = directory
        self._objectives = objectives
        self._loops = loops
        self._holds = holds
        self._hub_messages = hub_messages

    def judge(self, session: Session, content: Content, found: Collection[Account]) -> tuple[Judgement, Verdict | None]:
        """Return the cause and the hops of a message, and the decision to slow or hold it (`None`: deliver at once).

        The hops are the number of answers of agents that led to the message. `found` are its recipients. `core.holds`
        decides later if the message must wait behind a held message of the same stream.
        """
        account, sender, now_ms = session.account, session.speaker, self._batch.now_ms
        agent = account is not None and account.member.kind is MemberKind.AGENT
        any_paused = self._holds.any_paused
        counts = agent and not (any_paused and self._holds.allows(content, sender, now_ms))
        judgement = self._loops.judge(content, sender, now_ms, counts=counts)
        if not judgement.hops and not any_paused:
            return judgement, None
        if content.kind is not Kind.CHAT or (account is not None and account.member.kind is MemberKind.HUMAN):
            return judgement, None
        name = conversation(content, sender)
        verdict = self._holds.verdict(name, agent=agent)
        return judgement, verdict or self._verdict(session, content, name, judgement, found)

    def _verdict(
        self, session: Session, content: Content, name: str, judgement: Judgement, found: Collection[Account]
    ) -> Verdict | None:
        """Return the decision to hold or slow a message because of its hops; `None` if it is delivered at once.

        The hops are the number of answers of agents that led to the message. If the message is held, also pause its
        conversation (`name`), and send a hub message to people and to the agents involved. `found` are the recipients.
        """
        limits = self._limits
        soft, hard = self._limits_of(session, content)
        if judgement.hops > hard:
            setting = "objective_hops_max" if hard == limits.objective_hops_max else "hops_max"
            why = _why(HELD, judgement, name, f"{setting} = {hard}")
            reason = f"{why}{REMEDY}lifts the limit: {command('allow', name)}"
            self._holds.pause(name, "", reason, judgement)
            cause = self._loops.sender_of(judgement.cause)
            self._hub_messages.held(name, why, (session.speaker, cause), found)
            self._batch.outcome.warnings.append(reason)
            return Verdict(reason)
        if judgement.hops <= soft:
            return None
        setting = "objective_hops_soft" if soft == limits.objective_hops_soft else "hops_soft"
        why = _why(SLOWED, judgement, name, f"{setting} = {soft}")
        reason = f"{why}{REMEDY}lifts the limit: {command('allow', name)}"
        if self._loops.is_news(judgement, "slowed"):
            self._hub_messages.slowed(name, why)
            self._batch.outcome.warnings.append(reason)
        due_ms = judgement.since_ms + _space_ms(limits, judgement.hops, soft, hard)
        return Verdict(reason, due_ms=due_ms) if due_ms > self._batch.now_ms else None

    def _limits_of(self, session: Session, content: Content) -> tuple[int, int]:
        """Return the soft and the hard limit of hops (answers of agents in a row) for a message.

        Above the soft limit the message is slowed. Above the hard limit it is held.
        """
        limits = self._limits
        place = str(content.target) if content.target.kind is TargetKind.OBJECTIVE else content.thread or ""
        account = session.account
        # Anybody can name an objective. Its limits apply only to members of its thread, and only while it is open.
        if place.startswith("obj:") and account is not None:
            row = self._objectives.find_open(place.removeprefix("obj:"))
            if row is not None and account.number in thread(row, self._directory):
                return limits.objective_hops_soft, limits.objective_hops_max
        return limits.hops_soft, limits.hops_max


def _space_ms(limits: Limits, hops: int, soft: int, hard: int) -> int:
    """Return the delay of a slowed message, counted from the time when its cause reached the sender.

    The more hops (answers of agents in a row) the message has, the longer is the delay.
    """
    more_ms = limits.space_ms_max - limits.space_ms_min
    return limits.space_ms_min + more_ms * (hops - soft - 1) // max(1, hard - soft - 1)


def _why(what: str, judgement: Judgement, name: str, setting: str) -> str:
    return f"{what}agents answered each other {judgement.hops} times in a row, up to {name}, past {setting}"
