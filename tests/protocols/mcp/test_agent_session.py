"""Tests of the agent session: pushes, tool calls and objectives of one agent, also over restarts of the hub."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.hubs import ALONE, HubHarness, running_hub, until
from tieline.client import Client, Complete, HubRefused, connect
from tieline.contract.permission import OBJECTIVES_CREATE
from tieline.contract.refusal import Code
from tieline.protocols.mcp import agent_session
from tieline.protocols.mcp.agent_session import AgentSession, UnknownTool
from tieline.protocols.mcp.codec import CHANNEL_METHOD, TOOLS_CHANGED_METHOD


class Program:
    """Test double: an agent's program with its agent session. It records its notifications."""

    def __init__(self, home: Path, member: str = "bob", **options: Any) -> None:
        self._home = home
        self._member = member
        self.notified: list[tuple[str, dict[str, Any] | None]] = []
        self.told: list[str] = []
        self.agent_session = AgentSession(self.open, self.notify, tell=self.told.append, **options)

    async def open(self) -> Client:
        return await connect(home=self._home, member=self._member, receive=True)

    async def notify(self, method: str, params: dict[str, Any] | None) -> None:
        self.notified.append((method, params))

    @property
    def contents(self) -> list[str]:
        """Return the contents of the messages that were pushed."""
        return [params["content"] for method, params in self.notified if method == CHANNEL_METHOD and params]

    @property
    def refreshes(self) -> int:
        """Return the number of notifications that ask the program to list its tools again."""
        return sum(method == TOOLS_CHANGED_METHOD for method, _ in self.notified)

    def description(self, name: str = "objectives") -> str:
        """Return the current description of a tool, as the agent reads it."""
        return str(next(tool["description"] for tool in self.agent_session.list_tools() if tool["name"] == name))


@contextlib.asynccontextmanager
async def running(program: Program) -> AsyncIterator[Program]:
    """Keep the agent session of a program connected inside the `with` block."""
    keeping = asyncio.create_task(program.agent_session.keep())
    try:
        yield program
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


async def test_nothing_is_pushed_before_the_program_is_ready(home: HubHarness) -> None:
    alice = await home.join("alice")
    await alice.send("@bob", "early")
    async with running(Program(home.home)) as program:
        await program.agent_session.call_tool("members", {})
        # That nothing comes can only be seen when its time is over.
        await asyncio.sleep(0.05)
        assert not program.notified
        program.agent_session.begin()
        await until(lambda: program.contents == ["early"])


async def test_a_call_after_a_push_is_evidence_and_an_answer_settles(home: HubHarness) -> None:
    alice = await home.join("alice")
    async with running(Program(home.home)) as program:
        program.agent_session.begin()
        sent = await alice.send("@bob", "well?")
        await until(lambda: program.contents == ["well?"])
        await program.agent_session.call_tool("members", {})
        (receipt,) = await alice.receipts(sent.id)
        assert [(step.state, step.evidence) for step in receipt.steps[1:]] == [
            ("offered", ""),
            ("seen", "tool call: members"),
        ]
        answer = await program.agent_session.call_tool("send", {"to": "@alice", "body": "yes", "reply_to": sent.id})
        assert not answer.failed
        await program.agent_session.call_tool("members", {})
        (receipt,) = await alice.receipts(sent.id)
        assert receipt.state == "acked"


async def test_channels_are_shown_by_their_ids_also_new_ones(home: HubHarness) -> None:
    alice = await home.join("alice")
    async with running(Program(home.home)) as program:
        program.agent_session.begin()
        await program.agent_session.call_tool("members", {})
        await alice.subscribe("dev")
        await (await home.join("bob")).subscribe("dev")
        await alice.send("#dev", "here")
        await until(lambda: program.contents == ["here"])
        ((_, params),) = program.notified
        assert params is not None
        assert params["meta"]["thread"] == f"chan:{(await alice.channel('dev')).id}"
        assert params["meta"]["channel"] == "dev"


async def test_descriptions_follow_the_open_objectives(home: HubHarness) -> None:
    alice = await home.join("alice")
    async with running(Program(home.home)) as program:
        program.agent_session.begin()
        await program.agent_session.call_tool("members", {})
        assert "no open objectives" in program.description()
        made = await alice.create_objective("Fix the build", "It is green", "bob")
        await until(lambda: program.refreshes == 1)
        assert f"- {made.id} [active] Fix the build → It is green" in program.description()
        await (await home.join("bob")).change_objective(made.id, Complete("green"))
        await until(lambda: program.refreshes == 2)
        assert "no open objectives" in program.description()


async def test_a_burst_of_objectives_is_one_refresh(home: HubHarness) -> None:
    alice = await home.join("alice")
    async with running(Program(home.home)) as program:
        program.agent_session.begin()
        await program.agent_session.call_tool("members", {})
        # All at once, so that they are a burst on a busy machine too.
        await asyncio.gather(*(alice.create_objective(f"Fix {number}", "Fixed", "bob") for number in range(5)))
        await until(lambda: "(5)" in program.description())
        # That nothing comes can only be seen when its time is over.
        await asyncio.sleep(0.2)
        assert program.refreshes == 1


async def test_without_pushes_the_agent_takes_what_waits(home: HubHarness) -> None:
    alice = await home.join("alice")
    async with running(Program(home.home, push=False)) as program:
        program.agent_session.begin()
        sent = await alice.send("@bob", "quiet")
        await program.agent_session.call_tool("members", {})
        assert not program.contents
        (receipt,) = await alice.receipts(sent.id)
        assert receipt.state in ("pending", "offered")
        assert "\nquiet\n" in (await program.agent_session.call_tool("drain", {})).text


async def test_an_answer_settles_what_a_hook_has_shown_and_nothing_else(home: HubHarness) -> None:
    alice, hook = await home.join("alice"), await home.join("bob")
    sent = [await alice.send("@bob", body) for body in ("one", "two", "three")]
    # The hook of the program has shown two messages, and reported one. Nothing is pushed, as after 'tieline connect'.
    hook.see((await hook.inbox()).items[0], evidence="answer of the model in claude-code")
    await hook.members()
    async with running(Program(home.home, push=False)) as program:
        program.agent_session.begin()
        sent.append(await alice.send("@bob", "four"))
        for one in (sent[0], sent[1], sent[3]):
            arguments = {"to": "@alice", "body": "yes", "reply_to": one.id}
            assert not (await program.agent_session.call_tool("send", arguments)).failed
        await program.agent_session.call_tool("members", {})
        steps = [
            [(step.state, step.evidence) for step in receipt.steps if step.state in ("seen", "acked")]
            for one in sent
            for receipt in await alice.receipts(one.id)
        ]
        answered = [("seen", "named by the agent"), ("acked", "answered by the agent")]
        assert steps == [
            [("seen", "answer of the model in claude-code"), ("acked", "answered by the agent")],
            answered,
            [],
            answered,
        ]
        (waiting,) = [one.backlog for one in await alice.members() if one.name == "bob"]
        assert waiting == 1


def watch_requests(client: Client | None) -> list[str]:
    """Return a list that gets the name of each later request that the client sends and whose answer it awaits."""
    assert client is not None
    ask, asked = client._ask, list[str]()

    async def noting(n: int, frame: Any, expected: Any) -> Any:
        asked.append(type(frame).__name__)
        return await ask(n, frame, expected)

    client._ask = noting  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize("push", [True, False])
async def test_an_answer_to_a_taken_message_looks_for_nothing(home: HubHarness, push: bool) -> None:
    alice = await home.join("alice")
    sent = [await alice.send("@bob", body) for body in ("one", "two")]
    async with running(Program(home.home, push=push)) as program:
        session = program.agent_session
        assert "\none\n" in (await session.call_tool("drain", {"limit": 1})).text
        asked = watch_requests(session._client)
        await session.call_tool("send", {"to": "@alice", "body": "yes", "reply_to": sent[0].id})
        assert asked == ["Send"]


async def test_an_answer_to_a_message_that_pushes_settled_looks_for_nothing(home: HubHarness) -> None:
    alice = await home.join("alice")
    async with running(Program(home.home)) as program:
        session = program.agent_session
        session.begin()
        for count, body in enumerate(("one", "two"), 1):
            sent = await alice.send("@bob", body)
            await until(lambda: len(program.contents) == count)  # noqa: B023
            asked = watch_requests(session._client)
            # The first answer proves that the agent is shown pushes. From then on, what is seen is acknowledged.
            await session.call_tool("send", {"to": "@alice", "body": "yes", "reply_to": sent.id})
            assert asked == ["Send"]
            (receipt,) = await alice.receipts(sent.id)
            assert receipt.state == "acked"


async def test_an_answer_reads_at_most_one_page_of_the_inbox(home: HubHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_session, "_LOOKED_AT_MAX", 2)
    alice = await home.join("alice")
    sent = [await alice.send("@bob", str(number)) for number in range(6)]
    async with running(Program(home.home, push=False)) as program:
        session = program.agent_session
        await session.call_tool("members", {})
        asked = watch_requests(session._client)
        for one in (sent[1], sent[5]):
            await session.call_tool("send", {"to": "@alice", "body": "yes", "reply_to": one.id})
        assert asked == ["Send", "Fetch", "Send", "Fetch", "Claim"]
        settled = [(await alice.receipts(one.id))[0].steps[-1] for one in sent]
        assert [step.evidence for step in settled if step.state == "acked"] == ["answered by the agent", "claim"]
        assert [item.message.body for item in (await (await home.join("bob")).inbox()).items] == ["0", "2", "3", "4"]


@pytest.mark.parametrize("push", [True, False])
async def test_an_answer_that_is_refused_settles_nothing(home: HubHarness, push: bool) -> None:
    alice = await home.join("alice")
    async with running(Program(home.home, push=push)) as program:
        program.agent_session.begin()
        sent = await alice.send("@bob", "well?")
        await until(lambda: not push or program.contents == ["well?"])
        arguments = {"to": "@nobody", "body": "yes", "reply_to": sent.id}
        assert (await program.agent_session.call_tool("send", arguments)).failed
        await program.agent_session.call_tool("members", {})
        (receipt,) = await alice.receipts(sent.id)
        assert receipt.state != "acked"


async def test_tools_that_need_a_permission_are_offered_to_who_has_it(home: HubHarness) -> None:
    async with running(Program(home.home, tools="ac7")) as program:
        await program.agent_session.call_tool("roster", {})
        names = {tool["name"] for tool in program.agent_session.list_tools()}
        assert "objectives_complete" in names
        assert "objectives_create" not in names
    await (await home.operator()).update_member("bob", permissions=(OBJECTIVES_CREATE,))
    async with running(Program(home.home, tools="ac7")) as program:
        await program.agent_session.call_tool("roster", {})
        assert "objectives_create" in {tool["name"] for tool in program.agent_session.list_tools()}


async def test_a_long_backlog_is_told_as_a_digest(home: HubHarness) -> None:
    alice = await home.join("alice")
    for number in range(53):
        await alice.send("@bob", str(number))
    async with running(Program(home.home)) as program:
        program.agent_session.begin()
        await until(lambda: len(program.contents) == 51)
        assert program.contents[-1].startswith("3 more messages wait")


async def test_an_unknown_tool_is_said(home: HubHarness) -> None:
    async with running(Program(home.home)) as program:
        with pytest.raises(UnknownTool):
            await program.agent_session.call_tool("dance", {})


async def test_a_hub_that_is_not_there_is_said_and_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_session, "AWAY_SECONDS", 0.05)
    path = folder / "home"
    # A hub that does not know the member yet would refuse it for good.
    async with running_hub(path, **ALONE) as here:
        await here.add("alice", "bob")
    async with running(Program(path)) as program:
        program.agent_session.begin()
        answer = await program.agent_session.call_tool("members", {})
        assert answer.failed
        assert "the hub is away, nothing was done" in answer.text
        assert {tool["name"] for tool in program.agent_session.list_tools()} >= {"send", "drain"}
        async with running_hub(path, **ALONE) as here:
            await here.keep(await connect(home=path, member="alice")).send("@bob", "at last")
            await until(lambda: program.contents == ["at last"], seconds=30)


@pytest.mark.slow
async def test_a_restart_of_the_hub_is_survived_and_nothing_is_pushed_twice(folder: Path) -> None:
    path = folder / "home"
    async with running_hub(path, **ALONE) as here:
        await here.add("alice", "bob")
    async with running(Program(path)) as program:
        program.agent_session.begin()
        async with running_hub(path, **ALONE) as here:
            sent = await here.keep(await connect(home=path, member="alice")).send("@bob", "one")
            await until(lambda: program.contents == ["one"], seconds=30)
        calling = asyncio.create_task(
            program.agent_session.call_tool("send", {"to": "@alice", "body": "said in between"})
        )
        async with running_hub(path, **ALONE) as here:
            alice = here.keep(await connect(home=path, member="alice", receive=True))
            assert not (await calling).failed
            await alice.send("@bob", "two")
            await until(lambda: len(program.contents) == 2, seconds=30)
            assert program.contents == ["one", "two"]
            assert [message.body for message in await alice.history("bob")].count("said in between") == 1
            (receipt,) = await alice.receipts(sent.id)
            assert receipt.state == "seen"


async def test_a_hub_that_refuses_is_not_asked_again_and_the_agent_is_told(home: HubHarness) -> None:
    async def refuse() -> Client:
        raise HubRefused(Code.UNAUTHORIZED, "the token is not known")

    program = Program(home.home)
    program.agent_session._open_session = refuse
    await program.agent_session.keep()
    answer = await program.agent_session.call_tool("members", {})
    assert answer.failed
    assert answer.text == "the token is not known"
    assert program.told == ["the hub ended the session: the token is not known"]


async def test_a_drain_that_fails_after_a_claim_shows_what_it_took_the_next_time(home: HubHarness) -> None:
    alice = await home.join("alice")
    for body in ("one", "two"):
        await alice.send("@bob", body)
    async with running(Program(home.home, push=False)) as program:
        session = program.agent_session
        await session.call_tool("members", {})
        client = session._client
        assert client is not None
        claim, claimed = client.claim, 0

        async def refused_at_the_second(message_id: str) -> Any:
            nonlocal claimed
            claimed += 1
            if claimed == 2:
                raise HubRefused(Code.STORE_FAILED, "the disk is full")
            return await claim(message_id)

        client.claim = refused_at_the_second  # type: ignore[method-assign]
        answer = await session.call_tool("drain", {})
        assert answer.failed
        assert not answer.claims
        text = (await session.call_tool("drain", {})).text
        assert (text.count("\none\n"), text.count("\ntwo\n")) == (1, 1)
        assert (await session.call_tool("drain", {})).text == "Nothing waits."


async def test_two_agents_that_answer_everything_are_held_and_told_and_a_third_conversation_goes_on(
    folder: Path,
) -> None:
    (folder / "home").mkdir(mode=0o700)
    limits = "[limits]\nhops_soft = 5\nhops_max = 10\nhop_ms_min = 0\nspace_ms_min = 1\nspace_ms_max = 1\n"
    (folder / "home" / "tieline.toml").write_text(limits)
    async with running_hub(folder / "home", store="memory", **ALONE) as home:
        await home.add("alice", "bob", "carol", "dave")
        await _thank_each_other(home)


async def _thank_each_other(home: HubHarness) -> None:
    held: list[str] = []

    async def answer_everything(program: Program, name: str) -> None:
        """Answer each pushed message at once with thanks, like an eager model."""
        while True:
            await until(lambda: bool(program.notified))
            _, params = program.notified.pop(0)
            assert params is not None
            meta = params["meta"]
            arguments = {"to": f"@{meta['from']}", "body": f"{name}: thank you!", "reply_to": meta["msg_id"]}
            answer = await program.agent_session.call_tool("send", arguments)
            assert not answer.failed, answer.text
            if "held: " in answer.text:
                held.append(answer.text)

    bob, carol = Program(home.home), Program(home.home, member="carol")
    alice, dave = await home.join("alice"), await home.join("dave")
    async with running(bob), running(carol), asyncio.timeout(30):
        bob.agent_session.begin()
        carol.agent_session.begin()
        eager = [asyncio.create_task(answer_everything(*one)) for one in ((bob, "bob"), (carol, "carol"))]
        await (await home.join("carol")).send("@bob", "hello")
        await until(lambda: bool(held), seconds=20)
        assert held[0].startswith("accepted ")
        assert held[0].endswith("do not send it again)")
        (pause,) = await (await home.operator()).pauses()
        assert (pause.thread, pause.held) == ("@bob+@carol", 1)
        for number in range(3):
            await alice.send("@dave", f"going on {number}")
        assert len((await dave.inbox()).items) == 3
        for task in eager:
            task.cancel()
        await asyncio.gather(*eager, return_exceptions=True)
