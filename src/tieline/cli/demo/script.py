"""The script of the demo: five agents release version 1.0 of something, in seven scenes.

Used by: `command`. Uses: `stage`, which has the hub and the agents. In each scene, agents act through their own
protocols, and the script makes statements about the result. `Show.check` checks each statement.
"""

import asyncio
import contextlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from tieline.cli.demo.stage import WAIT_SECONDS, Broken, Player, Stage, soon
from tieline.cli.demo.transcript import Transcript
from tieline.cli.demo.verdict import Verdict
from tieline.client import Client, HubError
from tieline.contract.objective import kind_of

if TYPE_CHECKING:
    from tieline.cli.demo.agent import News

YOU = "you"
"""Member name of the person who watches the demo. This member uses the hub's own protocol."""

CAST = (
    ("ada", "ac7", "leads"),
    ("ben", "agent-relay", "builds"),
    ("cleo", "backchannel", "tests"),
    ("dina", "peerbus", "signs"),
    ("eli", "agent-channels", "announces"),
)

_IN_HAND = "Stop: test 7 fails on ARM."
"""Text of the message that the agent `ben` has read but not acknowledged when its process is killed."""


def players() -> dict[str, Player]:
    """Return the five agents of the demo, by name. None of them runs yet."""
    return {name: Player(name, protocol, role) for name, protocol, role in CAST}


class Show:
    """One run of the demo. It plays the scenes, and checks every statement that the demo makes about the result."""

    def __init__(self, stage: Stage, transcript: Transcript, verdict: Verdict) -> None:
        self.stage = stage
        self.transcript = transcript
        self.verdict = verdict
        self.ada, self.ben, self.cleo, self.dina, self.eli = stage.players.values()
        # Messages that were shown to the person who watches, as (sender, body).
        self._shown: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._watching: asyncio.Task[None] | None = None
        self._objective = ""

    async def play(self) -> None:
        """Play all scenes of the demo. Raise `Broken` if the demo cannot go on."""
        self.operator = await self.stage.open()
        await self._cast_joins()
        try:
            await self._work_is_given()
            await self._plan_is_made()
            await self._work_goes_round()
            await self._two_want_the_same()
            await self._something_is_wrong()
            await self._one_is_killed()
            await self._work_is_done()
        finally:
            if self._watching is not None:
                self._watching.cancel()

    # The scenes.

    async def _cast_joins(self) -> None:
        await self.transcript.scene("1. Five agents join one hub, each by its own protocol")
        await self.stage.add(self.operator, YOU, human=True, permissions=("objectives.create",))
        self.you = await self.stage.open(YOU, receive=True)
        self._watching = asyncio.create_task(self._watch(self.you))
        for player in self.stage.players.values():
            await self.stage.add(self.operator, player.name)
            await self.stage.enter(player)
            await self.transcript.line(player.protocol, player.name, "", f"is here, and {player.role}")
        connected = {name: protocol for name, protocol, _ in CAST}
        found = await soon(self._connected_by, lambda found: found == connected)
        for name, protocol in connected.items():
            self.check(f"{name} is connected by {protocol}", protocol, found.get(name))

    async def _connected_by(self) -> dict[str, str]:
        sessions = {member.name: member.sessions for member in await self.operator.members()}
        return {name: protocol for name, protocol, _ in CAST if protocol in sessions.get(name, ())}

    async def _work_is_given(self) -> None:
        await self.transcript.scene("2. You give ada an objective; ben and cleo watch it")
        title, outcome = "Release 1.0", "1.0 is built, tested, signed and announced"
        made = await self.you.create_objective(title, outcome, "ada", watchers=("ben", "cleo"))
        self._objective = made.id
        await self.transcript.line("tieline", YOU, "@ada", f"[objective assigned] {outcome}")
        await self._heard("[objective assigned]", YOU, self.ada, self.ben, self.cleo)

    async def _plan_is_made(self) -> None:
        await self.transcript.scene("3. A channel: ada plans")
        await self.ada.ask("POST", "/channels", slug="release")
        for player in (self.ben, self.cleo, self.dina, self.eli):
            await self.ada.ask("POST", "/channels/release/members", member=player.name)
        plan = "ben builds, cleo tests, dina signs, eli tells everybody. Questions?"
        await self._say(self.ada, "#release", plan, self.ben, self.cleo, self.dina, self.eli)

    async def _work_goes_round(self) -> None:
        await self.transcript.scene("4. Direct messages: the work goes round, through all five protocols")
        await self._say(self.ada, "@ben", "Please build 1.0.", self.ben)
        await self._say(self.ben, "@cleo", "Built: 412 files. Yours to test.", self.cleo)
        await self._say(self.cleo, "@dina", "All 96 tests pass. Yours to sign.", self.dina)
        await self._say(self.dina, "@eli", "Signed. Have the news ready.", self.eli)
        # agent-channels has no names: the hub only knows the socket that the message came through.
        await self._say(self.eli, "@ada", "The news is ready when you are.", self.ada)

    async def _two_want_the_same(self) -> None:
        await self.transcript.scene("5. A claim: two of cleo's windows take the same message at once")
        await self.cleo.hold()
        body = "One more test, please: who takes it?"
        await self.you.send("@cleo", body)
        await self.transcript.line("tieline", YOU, "@cleo", body)
        await self._heard(body, YOU, self.cleo)
        taken = await self.cleo.race()
        await self.transcript.line(
            "backchannel", "cleo", "", f"first window: {_got(taken[0])}; second: {_got(taken[1])}"
        )
        self.check("exactly one of two takers gets the message", [False, True], sorted(taken))

    async def _something_is_wrong(self) -> None:
        await self.transcript.scene("6. Blocked, discussed, urgent – and ben's process is killed with it in hand")
        reason = "a test fails on ARM"
        await self._change("PATCH", "", "blocked", reason, status="blocked", blockReason=reason)
        words = "ben, can you look at the test on ARM?"
        await self.ada.ask("POST", f"/objectives/{self._objective}/discuss", body=words)
        await self.transcript.line("ac7", "ada", "obj", words)
        await self._heard(words, "ada", self.ben, self.cleo)
        await self._you_hear("ada", words)

    async def _one_is_killed(self) -> None:
        stop, hint, later = _IN_HAND, "It is the byte order of the header.", "The news waits for you."
        # From here on ben reads and does not acknowledge.
        await self.ben.hold()
        await self._say(self.cleo, "@ben", stop, self.ben, urgent=True)
        code = await self.ben.kill()
        await self.transcript.line("agent-relay", "ben", "", "killed with kill -9, before it acknowledged that")
        self.check("ben's process was killed", -9, code)
        await self._say(self.dina, "@ben", hint)
        await self._say(self.eli, "@ben", later)
        lived = len(self.ben.heard)
        await self.stage.replace(self.ben)
        await self.transcript.line("agent-relay", "ben", "", "is back, in a new process")
        waiting = [stop, hint, later]
        await self.ben.hears(lambda news: news.body == later, since=lived)
        found = [news.body for news in self.ben.heard[lived:]]
        await self.transcript.line(
            "agent-relay", "ben", "", f"was given {len(found)}: what it had in hand, and what came meanwhile"
        )
        self.check("ben is given, in order and once, what it had in hand and what came meanwhile", waiting, found)

    async def _work_is_done(self) -> None:
        await self.transcript.scene("7. Done: the objective is completed, and everybody hears the news")
        await self._say(self.ben, "@ada", "Fixed, built again, and cleo is content.", self.ada)
        await self._change("PATCH", "", "unblocked", "", status="active")
        result = "1.0 is signed and out"
        await self._change("POST", "/complete", "completed", result, result=result)
        await self._you_hear("ada", "[objective completed]")
        news = "1.0 is out. Thank you all."
        await self._say(self.eli, "*", news, self.ada, self.ben, self.cleo, self.dina)
        await self._you_hear(None, news)
        story = await self.operator.objective(self._objective)
        told = [kind_of(event.what) for event in story.events]
        expected = ["assigned", "watcher_added", "watcher_added", "blocked", "unblocked", "completed"]
        self.check("the objective's event log tells what was done to it", expected, told)
        self._nobody_heard_twice()

    # Helpers of the scenes.

    def check(self, claim: str, expected: Any, found: Any) -> None:
        """Add the statement `claim` to the verdict. The statement is true if `found` equals `expected`.

        If it is false, the demo continues.
        """
        self.verdict.check(claim, expected, found)

    async def _say(self, speaker: Player, target: str, body: str, *hearers: Player, urgent: bool = False) -> None:
        """Let the player `speaker` send a message, and check that each player in `hearers` receives the message."""
        await speaker.say(target, body, urgent=urgent)
        await self.transcript.line(speaker.protocol, speaker.name, target, f"{'URGENT ' if urgent else ''}{body}")
        if hearers:
            await self._heard(body, speaker.name, *hearers, urgent=urgent)

    async def _heard(self, body: str, sender: str, *hearers: Player, urgent: bool = False) -> None:
        """Wait until each player in `hearers` has received a message, and check its sender and urgency.

        `body` is the beginning of the message. Raise `Broken` if a player does not receive the message in time.
        """
        player = self.stage.players.get(sender)
        anonymous = player is not None and player.protocol == "agent-channels"
        expected = (r"client-\d+@\S+" if anonymous else re.escape(sender), urgent)

        def is_it(news: "News") -> bool:
            return news.body.startswith(body)

        found = await asyncio.gather(*(hearer.hears(is_it) for hearer in hearers))
        for hearer, news in zip(hearers, found, strict=True):
            claim = f"{hearer.name} hears {body!r} by {hearer.protocol}"
            if news is None:
                self.check(claim, body, None)
                raise Broken(f"{hearer.name} did not hear it within {WAIT_SECONDS:.0f} s")
            right = re.fullmatch(expected[0], news.sender) is not None
            self.check(claim, (sender, urgent), (sender if right else news.sender, news.urgent))
        self.transcript.heard([(hearer.name, hearer.protocol) for hearer in hearers])

    async def _change(self, method: str, path: str, kind: str, text: str, **form: Any) -> None:
        """Let the agent `ada` change the objective by an HTTP request, and check that two other agents are notified.

        `path` is the end of the request's path, `form` has its parameters. `kind` is the kind of change, and `text`
        describes the change in the transcript.
        """
        await self.ada.ask(method, f"/objectives/{self._objective}{path}", **form)
        await self.transcript.line("ac7", "ada", "obj", f"[objective {kind}] {text}".rstrip())
        await self._heard(f"[objective {kind}]", "ada", self.ben, self.cleo)

    def _nobody_heard_twice(self) -> None:
        """Check that no agent received the same message twice.

        One message is an exception: the agent `ben` had not acknowledged this message when its process was killed, so
        `ben` gets it again.
        """
        for player in self.stage.players.values():
            times = Counter((news.sender, news.body) for news in player.heard)
            again = [body for (_, body), often in times.items() if often > 1]
            expected = [_IN_HAND] if player is self.ben else []
            self.check(f"{player.name} hears nothing twice that it had acknowledged", expected, again)

    async def _watch(self, you: Client) -> None:
        # If the hub is gone, the next request to the hub fails and says so.
        with contextlib.suppress(HubError):
            async for delivery in you:
                self._shown.put_nowait((delivery.message.sender, delivery.message.body))
                you.ack(delivery)

    async def _you_hear(self, sender: str | None, body: str) -> None:
        """Check that the person who watches received a message from `sender`. `body` is the beginning of the message.

        If `sender` is `None`, any sender is right.
        """
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not (said := await self._shown.get())[1].startswith(body):
                    pass
        except TimeoutError:
            said = ("", "")
        who = said[0] if sender is not None else None
        self.check(f"you hear {body!r}", (sender, True), (who, said[1].startswith(body)))


def _got(taken: bool) -> str:
    return "got it" if taken else "too late"
