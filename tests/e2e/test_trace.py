"""Tests that the console shows an agent's model calls only to members that may read them."""

import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

EXCHANGE = {
    "kind": "llm_exchange",
    "duration": 1500,
    "entry": {
        "request": {"model": "m-1", "messages": [{"role": "user", "content": "what is in the folder?"}]},
        "response": {
            "model": "m-1-today",
            "messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "list_files", "input": {}}]}],
            "usage": {"inputTokens": 1207, "outputTokens": 35},
        },
    },
}


async def test_a_trace_has_the_model_its_tokens_and_the_tools_it_called(there: Office) -> None:
    root, alice = await there.there.join("root"), await there.there.join("alice")
    made = await root.create_objective("Ship it", "it is shipped", "alice")
    await alice.record_activity(EXCHANGE, {**EXCHANGE, "entry": {"request": {"model": "m-2"}}})
    page = await there.enter(path=f"#/objectives/{made.id}")
    await expect(page.get_by_role("heading", name="What alice asked its model meanwhile")).to_be_visible()
    await expect(page.get_by_text("2 exchanges, 1,207 tokens in, 35 out")).to_be_visible()
    full = page.locator(".exchange", has_text="m-1-today")
    await expect(full.locator("summary")).to_contain_text("1207 → 35 tokens, 1.5 s, called list_files")
    await expect(page.locator(".exchange", has_text="m-2")).to_contain_text("tokens not captured")
    # The text sent to the model is drawn when a reader opens it, and removed when the reader closes it.
    await expect(page.locator(".exchange pre")).to_have_count(0)
    await full.locator("summary").click()
    await expect(full.locator("pre")).to_contain_text("what is in the folder?")
    await full.locator("summary").click()
    await expect(full.locator("pre")).to_have_count(0)


async def test_who_may_not_read_activity_sees_the_work_without_a_trace(there: Office) -> None:
    await there.there.add("carol")
    root, alice = await there.there.join("root"), await there.there.join("alice")
    made = await root.create_objective("Ship it", "it is shipped", "alice", watchers=("carol",))
    await alice.record_activity(EXCHANGE)
    page = await there.enter("carol")
    asked: list[str] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: asked.append(str(frame))))
    await page.goto(f"{there.url}/#/objectives/{made.id}")
    await page.reload()
    await expect(page.locator(".turn.event").first).to_contain_text("objective assigned")
    await expect(page.get_by_role("heading", name="asked its model")).to_have_count(0)
    await expect(page.locator(".exchange")).to_have_count(0)
    await expect(page.locator("body")).not_to_contain_text("m-1")
    assert any("view_objective" in frame for frame in asked)
    assert not any("read_activity" in frame for frame in asked), "the page does not even ask"
