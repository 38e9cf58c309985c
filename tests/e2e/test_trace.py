"""Tests that the console shows an agent's model calls only to members that may read them."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.agents.runs import stand_in
from tests.cli.hub_process import HubProcess
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


class ModelApi(BaseHTTPRequestHandler):
    """Test double for Anthropic's Messages API. The model calls a tool."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(
            {
                "type": "message",
                "id": "msg_1",
                "model": "m-9",
                "content": [{"type": "tool_use", "id": "t1", "name": "list_files", "input": {"path": "/src"}}],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 1200, "output_tokens": 34},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing, so that the server writes no request log to the test's output."""


@contextlib.contextmanager
def model_api() -> Iterator[str]:
    """Run the test double. Yield its address."""
    api = ThreadingHTTPServer(("127.0.0.1", 0), ModelApi)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{api.server_port}"
    finally:
        api.shutdown()
        api.server_close()


async def test_the_page_of_a_traced_run_shows_each_model_call_as_it_happens(browser: Browser, folder: Path) -> None:
    with HubProcess("--store", "memory") as hub, model_api() as base:
        async with await hub.connect() as operator:
            await operator.add_member("mo")
        page = await browser.new_page()
        await page.goto(json.loads(hub.cli("login", "--json").stdout)["url"])
        await expect(page.get_by_text("Connected", exact=True)).to_be_visible()
        await page.goto(f"{hub.running.http}/#/members/mo")
        with stand_in(hub, "mo", "claude-code", folder, "--trace", ANTHROPIC_BASE_URL=base) as run:
            run.wait_for("heard", 2)
            # The stand-in calls its model when a message says so.
            await page.get_by_label("Say something to @mo").fill("API")
            await page.get_by_role("button", name="Send").click()
            timeline = page.get_by_role("region", name="Timeline").locator("ol > li")
            call = timeline.filter(has=page.locator(".exchange"))
            await expect(call).to_contain_text("m-9 1,200 → 34 tokens")
            await expect(call).to_contain_text("called list_files")
            await expect(page.locator("li.tool")).to_contain_text('list_files {"path":"/src"}')
            await expect(timeline.filter(has_text="→ API")).to_have_count(1)
            await call.locator("summary").click()
            await expect(call.locator("pre")).to_contain_text('"text": "hi"')
            await expect(page.locator("body")).not_to_contain_text("secretsecret")
            await expect(page.get_by_role("region", name="Now")).to_contain_text("Last model call just now")


async def test_a_trace_has_the_model_its_tokens_and_the_tools_it_called(there: Office) -> None:
    root, alice = await there.there.join("root"), await there.there.join("alice")
    made = await root.create_objective("Ship it", "it is shipped", "alice")
    await alice.record_activity(EXCHANGE, {**EXCHANGE, "entry": {"request": {"model": "m-2"}}})
    page = await there.enter(path=f"#/objectives/{made.id}")
    await expect(page.get_by_role("heading", name="Model calls of alice meanwhile")).to_be_visible()
    await expect(page.get_by_text("2 model calls, 1,207 tokens in, 35 out")).to_be_visible()
    full = page.locator(".exchange", has_text="m-1-today")
    await expect(full.locator("summary")).to_contain_text("1,207 → 35 tokens, 1.5 s, called list_files")
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
    await expect(page.get_by_role("heading", name="Model calls of")).to_have_count(0)
    await expect(page.locator(".exchange")).to_have_count(0)
    await expect(page.locator("body")).not_to_contain_text("m-1")
    assert any("view_objective" in frame for frame in asked)
    assert not any("read_activity" in frame for frame in asked), "the page does not even ask"
