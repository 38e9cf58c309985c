"""Tests of texts for an agent: its briefing at the start, and the greeting when its stream opens."""

import re

from tests.protocols.ac7.teams import Team
from tieline.protocols.ac7.tools import TOOLS


async def test_the_briefing_says_which_tool_answers_on_which_thread(crew: Team) -> None:
    ann = await crew.seat("ann")
    told: str = (await ann.get("/briefing"))["instructions"]
    assert 1500 < len(told) < 2500
    answers = {"dm": "send", "general": "broadcast", "chan:<id>": "channels_post", "obj:<id>": "objectives_discuss"}
    for thread, tool in answers.items():
        (line,) = [line for line in told.splitlines() if line.startswith(f"- {thread}")]
        assert f"`{tool}`" in line
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", told)) - {"from"}
    assert named <= {tool.name for tool in TOOLS}, "an agent is told of no tool that there is not"
    assert {"recent", "objectives_view", "objectives_update", "objectives_complete", "objectives_list"} <= named
    assert "Your own messages are not shown to you again" in told


async def test_the_greeting_is_a_notice_with_what_is_open_and_what_came_while_nobody_listened(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob", "objectives.create")

    async def greeting() -> str:
        stream = await crew.follow(ann, "/subscribe?name=ann")
        said: str = (await stream.next())["body"]
        await stream.close()
        return said

    assert await greeting() == (
        "ann is connected. This is a notice of the hub: it needs no answer. You have no open objectives. "
        "No messages came while nobody listened."
    )
    await bob.push("one", to="ann")
    await bob.push("two", to="ann")
    assert "2 messages came while nobody listened; `recent` shows them." in await greeting()
    await ann.get("/history?with=bob&limit=1")
    assert "1 message came while nobody listened; `recent` shows it." in await greeting()
    made = await bob.do("POST", "/objectives", title="t", outcome="o", assignee="ann")
    assert "You have 1 open objective. 2 messages came" in await greeting()
    await ann.history()
    await ann.do("POST", f"/objectives/{made['id']}/complete", result="r")
    assert "You have no open objectives. No messages came" in await greeting()
