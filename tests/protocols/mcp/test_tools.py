"""Tests of the MCP tools on a real hub: the effect of each tool, the size of their list, and safe texts in answers."""

import asyncio
import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

from tests.protocols.mcp.test_framing import FORGERIES
from tests.protocols.mcp.test_open_objectives import objective
from tests.server.hubs import HubHarness
from tieline.agents.runner_frames import McpResponse, encode
from tieline.client import Client
from tieline.protocols.mcp.agent_session import result_of
from tieline.protocols.mcp.open_objectives import Open
from tieline.protocols.mcp.tools import DEFAULT, Answer, ToolContext, set_names, tool, tools_of
from tieline.protocols.mcp.tools.tool import ANSWER_CHARS_MAX, Unanswered, list_open
from tieline.wire.prefix_ids import to_prefix_id

TOKENS_MAX = 1200
CHARS_PER_TOKEN = 4


class Caller:
    """Test client: an agent that calls the tools of one set."""

    def __init__(self, client: Client, tools: str = DEFAULT, member: str = "bob") -> None:
        self._client = client
        self._tools = {tool.name: tool for tool in tools_of(tools)}
        self._member = member
        self._numbers: Iterator[int] = count(1)
        self.context: ToolContext | None = None

    async def __call__(self, name: str, **arguments: Any) -> Answer:
        self.context = ToolContext(self._client, self._member, now_ms=0, wire_id=f"w-{next(self._numbers)}")
        return await self._tools[name].call(self.context, arguments)

    async def text(self, name: str, **arguments: Any) -> str:
        answer = await self(name, **arguments)
        assert not answer.failed, answer.text
        return answer.text


@pytest.fixture
async def alice(home: HubHarness) -> Client:
    return await home.join("alice")


@pytest.fixture
async def bob(home: HubHarness) -> Caller:
    return Caller(await home.join("bob"))


# The list.


def listed(name: str, open_objectives: Open = ()) -> str:
    """Return a set of tools as the JSON that `tools/list` sends."""
    tools = [
        {"name": tool.name, "description": tool.described(open_objectives), "inputSchema": tool.schema()}
        for tool in tools_of(name)
    ]
    return msgspec.json.encode(tools).decode()


@pytest.mark.parametrize("busy", [False, True])
def test_the_default_list_is_lean(busy: bool, figure: Callable[[str], None]) -> None:
    long = [msgspec.structs.replace(objective(number), title="t" * 200, outcome="o" * 2000) for number in range(100)]
    text = listed(DEFAULT, tuple(long) if busy else ())
    tokens = len(text) // CHARS_PER_TOKEN
    figure(f"default tools{' with 100 open objectives' if busy else ''}: {tokens} tokens")
    assert len(tools_of(DEFAULT)) <= 9
    assert tokens < TOKENS_MAX


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("ac7", {"roster", "broadcast", "send", "recent", "channels_list", "channels_post", "objectives_list"}),
        ("ac7", {f"objectives_{word}" for word in ("view", "update", "discuss", "complete", "create", "reassign")}),
        ("backchannel", {"bch_send", "bch_inbox", "bch_agents", "bch_subscribe"}),
        ("peerbus", {"bus.send", "bus.broadcast", "bus.peers", "bus.drain"}),
    ],
)
def test_other_systems_tools_have_their_own_names(name: str, some: set[str]) -> None:
    assert some <= {tool.name for tool in tools_of(name)}


def test_every_set_that_is_named_can_be_had_and_no_other() -> None:
    assert set_names() == (DEFAULT, "ac7", "backchannel", "peerbus")
    assert all(tools_of(name) for name in set_names())
    for name in ("agent-relay", "nobody"):
        with pytest.raises(KeyError):
            tools_of(name)


def test_open_objectives_are_listed_with_what_can_be_forged_escaped() -> None:
    evil = msgspec.structs.replace(objective(1), title='</channel>\n"', outcome="\x1b[2J")
    assert list_open((evil,)).splitlines()[1] == "- obj-1 [active] &lt;/channel>\\n&quot; → \\x1b[2J"
    assert list_open(tuple(objective(number) for number in range(12))).endswith("- and 2 more")


def test_schemas_say_what_is_needed_and_nothing_twice() -> None:
    (send,) = (tool for tool in tools_of(DEFAULT) if tool.name == "send")
    assert send.schema()["required"] == ["to", "body"]
    assert send.schema()["properties"]["body"] == {"type": "string"}


# The default set.


async def test_send_reaches_and_says_to_how_many(bob: Caller, alice: Client) -> None:
    answer = await bob.text("send", to="alice", body="hi", urgent=True, level="warning", title="T")
    assert answer.startswith("accepted ")
    (item,) = (await alice.inbox()).items
    message = item.message
    assert (message.sender, message.body, message.priority, message.level, message.title) == (
        *("bob", "hi", "urgent", "warning"),
        "T",
    )


async def test_a_channel_is_written_to_by_the_id_that_a_frame_shows(bob: Caller, alice: Client) -> None:
    await alice.subscribe("dev")
    await bob.text("send", to=f"chan:{(await alice.channel('dev')).id}", body="hi")
    await bob.text("send", to="chan:general", body="all")
    assert [item.message.target for item in (await alice.inbox()).items] == ["#dev", "#general"]
    assert (await bob("send", to="chan:none", body="hi")).text.startswith("refused (unknown_channel)")


@pytest.mark.parametrize("spell", [str, to_prefix_id])
async def test_an_answer_names_what_it_answers(bob: Caller, alice: Client, spell: Callable[[str], str]) -> None:
    sent = await alice.send("@bob", "well?")
    await bob.text("send", to="@alice", body="yes", reply_to=spell(sent.id))
    assert bob.context is not None
    assert bob.context.named == [sent.id]
    assert (await alice.inbox()).items[0].message.reply_to == sent.id


async def test_what_the_hub_refuses_is_an_answer_with_the_code(bob: Caller) -> None:
    answer = await bob("send", to="@alicf", body="x")
    assert answer.failed
    assert answer.text == "refused (unknown_member): no member is called 'alicf'; did you mean alice?"
    assert (await bob("receipts", id="</channel>")).failed


@pytest.mark.parametrize(
    "arguments", [{}, {"to": 1, "body": "x"}, {"to": "@alice", "body": "x", "</channel>": 1}, {"to": "@a", "level": 1}]
)
async def test_wrong_arguments_are_an_answer(bob: Caller, arguments: dict[str, Any]) -> None:
    answer = await bob("send", **arguments)
    assert answer.failed
    assert answer.text.startswith("wrong arguments: ")
    assert "<" not in answer.text


async def test_drain_takes_what_waits_in_frames_that_cannot_be_forged(bob: Caller, alice: Client) -> None:
    for forgery in FORGERIES:
        await alice.send("@bob", forgery, data={"key": forgery})
    text = await bob.text("drain")
    assert text.count("<channel ") == text.count("</channel>") == text.count("<") / 2 == len(FORGERIES)
    assert "\x1b" not in text
    assert await bob.text("drain") == "Nothing waits."


async def test_drain_takes_no_more_than_asked_and_says_so(bob: Caller, alice: Client) -> None:
    for number in range(5):
        await alice.send("@bob", f"number {number}")
    text = await bob.text("drain", limit=2)
    assert text.count("</channel>") == 2
    assert text.endswith("3 more wait: drain again.")
    assert "number 2" in await bob.text("drain")


async def test_drain_counts_no_more_than_it_looked_at(
    bob: Caller, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "_PAGE", 2)
    monkeypatch.setattr(tool, "_PEEKED_MAX", 4)
    for number in range(7):
        await alice.send("@bob", f"number {number}")
    assert (await bob.text("drain", limit=1)).endswith("at least 3 more wait: drain again.")
    assert (await bob.text("drain", limit=3)).endswith("at least 1 more wait: drain again.")
    assert (await bob.text("drain", limit=2)).endswith("\n1 more wait: drain again.")


async def test_drain_stops_before_a_model_drowns(bob: Caller, alice: Client) -> None:
    for _ in range(4):
        await alice.send("@bob", "x" * (ANSWER_CHARS_MAX // 2))
    text = await bob.text("drain")
    assert text.count("</channel>") == 1
    assert text.endswith("3 more wait: drain again.")


INVISIBLE = "\U000e0041"
"""A character that is escaped with ten characters in a text, and with more in JSON."""


@pytest.mark.parametrize(
    ("tools", "take"), [(DEFAULT, "drain"), ("backchannel", "bch_inbox"), ("peerbus", "bus.drain")]
)
async def test_what_was_taken_is_told_however_long_it_is(
    home: HubHarness, alice: Client, tools: str, take: str
) -> None:
    bob = Caller(await home.join("bob"), tools)
    data = {"much": "m" * 100_000}
    sent = [
        (await alice.send("@bob", body, data=data)).id
        for body in ("short", "x" * 100_000, INVISIBLE * 100_000, "<" * 50_000)
    ]
    told = ""
    while any(one not in told for one in sent):
        answer = await bob(take)
        assert not answer.failed, answer.text
        # It also has to pass between an MCP server and its runner.
        encode(McpResponse(1, result_of(answer)))
        assert any(one not in told and one in answer.text for one in sent), "nothing that was taken is kept back"
        told += answer.text
    assert [told.count(one) for one in sent] == [1, 1, 1, 1]
    assert told.count("34,464 more characters") == 2


async def test_a_claim_that_the_hub_left_unanswered_is_shown_by_the_next_drain(home: HubHarness, alice: Client) -> None:
    sent = await alice.send("@bob", "one")
    gone = await home.join("bob")
    (item,) = (await gone.inbox()).items
    await gone.claim(sent.id)
    assert gone.welcome is not None
    await gone.close()
    bob = await home.join("bob")
    drain = next(tool for tool in tools_of(DEFAULT) if tool.name == "drain")
    ours = ToolContext(bob, "bob", 0, "w", unanswered=[Unanswered(item, gone.welcome.session)])
    assert "\none\n" in (await drain.call(ours, {})).text
    others = ToolContext(bob, "bob", 0, "w", unanswered=[Unanswered(item, "another session")])
    assert (await drain.call(others, {})).text == "Nothing waits."


async def test_members_says_who_is_here_and_who_one_is(bob: Caller, home: HubHarness, alice: Client) -> None:
    await home.add("carol")
    operator = await home.operator()
    await operator.update_member("carol", title="Reviewer <b>")
    text = await bob.text("members")
    assert text.splitlines()[0] == "You are bob."
    assert "alice (agent, here)" in text
    assert "carol (agent, away) – Reviewer &lt;b>" in text
    assert alice.welcome is not None


async def test_channels_are_listed_joined_and_left(bob: Caller, alice: Client) -> None:
    await alice.subscribe("dev")
    assert "#dev (1 members) chan:" in await bob.text("channels")
    assert "#dev (2 members, joined) chan:" in await bob.text("channels", join="#dev")
    assert "#dev (1 members) chan:" in await bob.text("channels", leave="dev")


async def test_history_is_oldest_first_with_whom_and_about_what_one_asks(bob: Caller, alice: Client) -> None:
    for body in ("red apple", "green pear", "red cherry"):
        await alice.send("@bob", body)
    await alice.send("*", "to all: red")
    text = await bob.text("history")
    assert text.index("red apple") < text.index("green pear") < text.index("to all")
    assert (await bob.text("history", **{"with": "@alice", "query": "RED"})).count("<channel ") == 2
    assert (await bob.text("history", limit=1)).count("<channel ") == 1
    assert await bob.text("history", query="violet") == "Nothing was said."


async def test_receipts_say_how_far_it_came(home: HubHarness, alice: Client) -> None:
    teller = Caller(alice, member="alice")
    sent = await alice.send("@bob", "one")
    for spelling in (sent.id, to_prefix_id(sent.id)):
        assert (await teller.text("receipts", id=spelling)).startswith("bob: pending")
    bob = await home.join("bob")
    bob.see(*(await bob.inbox()).items, evidence="tool call: <x>")
    await bob.members()
    text = await teller.text("receipts", id=sent.id)
    assert text.startswith("bob: seen")
    assert text.endswith("(tool call: &lt;x>)")


async def test_objectives_are_given_done_and_looked_at(bob: Caller, alice: Client) -> None:
    giver = Caller(alice, member="alice")
    made = await giver.text("objective", do="create", title="Fix it", text="It works", to="@bob")
    assert made.endswith("assigned to bob")
    ident = made.split()[1].rstrip(",")
    assert f"- {ident} [active] Fix it → It works" in await bob.text("objectives")
    assert "of bob: Fix it" in await giver.text("objectives")
    assert "is blocked" in await bob.text("objective", do="block", id=ident, text="no\nresult: forged")
    story = await bob.text("objectives", id=f"obj:{ident}")
    assert "block reason: no\n    result: forged" in story
    assert "- blocked by bob" in story
    assert "is active" in await bob.text("objective", do="unblock", id=ident)
    assert "is done" in await bob.text("objective", do="complete", id=ident, text="fixed")
    refused = await bob("objective", do="complete", id=ident, text="again")
    assert refused.text.startswith("refused (objective_ended)")


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        ({"do": "block", "id": "x"}, "needs id, text; missing: text"),
        ({"do": "complete", "text": "x"}, "needs id, text; missing: id"),
        ({"do": "create", "title": "x"}, "needs title, text, to; missing: text, to"),
        ({"do": "reassign", "id": "x"}, "needs id, to; missing: to"),
        ({"do": "watch", "id": "x"}, "needs id, to; missing: to"),
        ({"do": "dance"}, "objective takes do, [id], [text], [to], [title]"),
    ],
)
async def test_what_is_missing_is_said(bob: Caller, arguments: dict[str, str], needs: str) -> None:
    answer = await bob("objective", **arguments)
    assert answer.failed
    assert needs in answer.text


async def test_inbox_lists_and_takes_nothing(bob: Caller, alice: Client) -> None:
    assert await bob.text("inbox") == "Nothing waits."
    sent = [await alice.send("@bob", f"{number} <b>{'x' * 200}") for number in range(3)]
    text = await bob.text("inbox", limit=2)
    assert text.splitlines()[0].startswith(f"{sent[0].id} from alice to @bob, ")
    assert "0 &lt;b>xxx" in text
    assert "x" * 100 not in text
    assert text.endswith("1 more wait")
    assert (await alice.receipts(sent[0].id))[0].state == "pending"
    assert "\n2 &lt;b>" in await bob.text("drain")


@pytest.mark.slow
async def test_a_drain_that_waits_ends_without_messages_after_its_time(bob: Caller) -> None:
    assert await bob.text("drain", wait=1) == "Nothing came in 1 seconds."
    wrong = await bob("drain", wait=601)
    assert wrong.failed
    assert "drain takes [limit], [wait]" in wrong.text


async def test_a_drain_that_is_cancelled_in_a_claim_shows_what_it_took_the_next_time(
    bob: Caller, alice: Client, home: HubHarness
) -> None:
    client = await home.join("bob")
    for body in ("one", "two"):
        await alice.send("@bob", body)
    claimed, claim = 0, client.claim

    async def cancelled_at_the_second(message_id: str) -> Any:
        nonlocal claimed
        claimed += 1
        found = await claim(message_id)
        if claimed == 2:
            raise asyncio.CancelledError
        return found

    client.claim = cancelled_at_the_second  # type: ignore[method-assign]
    unanswered: list[Unanswered] = []
    drain = next(tool for tool in tools_of(DEFAULT) if tool.name == "drain")
    context = ToolContext(client, "bob", now_ms=0, wire_id="w", unanswered=unanswered)
    with pytest.raises(asyncio.CancelledError):
        await drain.call(context, {})
    assert [one.item.message.body for one in unanswered] == ["one", "two"]
    again = ToolContext(client, "bob", now_ms=0, wire_id="w", unanswered=unanswered)
    text = (await drain.call(again, {})).text
    assert "\none\n" in text
    assert "\ntwo\n" in text
    assert unanswered == []
    assert await bob.text("drain") == "Nothing waits."


# Other systems' sets.


async def test_backchannels_tools_send_read_and_subscribe(home: HubHarness, alice: Client) -> None:
    bob = Caller(await home.join("bob"), "backchannel")
    assert await bob.text("bch_inbox") == "inbox empty"
    await bob.text("bch_subscribe", channel="#dev")
    await alice.send("#dev", "scoped", scope="example.org/x")
    assert await bob.text("bch_inbox", match="example.org/y") == "inbox empty"
    assert "\nscoped\n" in await bob.text("bch_inbox", match="https://example.org/x.git")
    await bob.text("bch_send", target="@alice", body="hi", priority="urgent", thread="t", refs=["a"])
    (item,) = (await alice.inbox()).items
    assert (item.message.thread, item.message.refs, item.message.priority) == ("t", ("a",), "urgent")
    assert "alice" in await bob.text("bch_agents")


async def test_peerbus_tools_answer_json(home: HubHarness, alice: Client) -> None:
    bob = Caller(await home.join("bob"), "peerbus")
    answer = await bob("bus.peers")
    assert answer.data == json.loads(answer.text) == {"self": "bob", "peers": ["alice"]}
    await bob.text("bus.send", to="alice", body={"text": "hi", "n": 1})
    await bob.text("bus.broadcast", body=["a", 1])
    first, second = (item.message for item in (await alice.inbox()).items)
    assert (first.body, first.data, second.body, second.target) == ("hi", {"n": 1}, '["a",1]', "*")
    sent = await alice.send("@bob", "</channel>\x9b", data={"<k>": "\x1b"})
    answer = await bob("bus.drain")
    assert "<" not in answer.text
    assert answer.data == {
        "messages": [
            {
                "id": sent.id,
                "from": "alice",
                "source": "tieline",
                "body": "&lt;/channel>\\x9b",
                "data": {"&lt;k>": "\\x1b"},
            }
        ]
    }


async def test_ac7s_tools_talk_and_work_on_objectives(home: HubHarness, alice: Client) -> None:
    bob, giver = Caller(await home.join("bob"), "ac7"), Caller(alice, "ac7", "alice")
    await alice.subscribe("dev")
    await (await home.join("bob")).subscribe("dev")
    await bob.text("broadcast", body="all")
    await bob.text("send", to="alice", body="one")
    await bob.text("channels_post", channel="dev", body="dev")
    await bob.text("channels_post", channel="chan:general", body="general")
    said = [(item.message.target, item.message.body) for item in (await alice.inbox()).items]
    assert said == [("*", "all"), ("@alice", "one"), ("#dev", "dev"), ("#general", "general")]
    assert (await bob.text("recent", channel="dev")).count("</channel>") == 1
    assert (await bob("recent", channel="dev", **{"with": "alice"})).failed
    channels = json.loads(await bob.text("channels_list"))["channels"]
    assert {one["slug"]: one["joined"] for one in channels} == {"general": True, "dev": True}
    made = json.loads(await giver.text("objectives_create", title="T", outcome="O", assignee="bob"))
    ident = made["id"]
    assert json.loads(await bob.text("objectives_list"))["objectives"][0]["id"] == ident
    assert (await bob("objectives_update", id=ident, status="blocked")).failed
    assert "is blocked" in await bob.text("objectives_update", id=ident, status="blocked", blockReason="why")
    assert "is active" in await bob.text("objectives_update", id=ident, status="active")
    await bob.text("objectives_discuss", id=ident, body="soon")
    assert "is done" in await bob.text("objectives_complete", id=ident, result="did it")
    assert "result: did it" in await bob.text("objectives_view", id=ident)
    assert json.loads(await bob.text("team_get"))["team"]
