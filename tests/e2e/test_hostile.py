"""Tests that texts of members stay text wherever the console shows them, and never become elements or scripts."""

import json
import re
import sys
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2 as httpx
import pytest
from playwright.async_api import Page, expect

from tests.e2e.browsers import Office
from tests.e2e.reports import REPORT
from tieline.client import HubRefused
from tieline.contract.message import Attachment
from tieline.contract.objective import Block, Cancel, Complete
from tieline.wire.insights import FILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

BEACON = "http://beacon.invalid/seen"

MARKUP = (
    "<script>window.hacked = 1</script>",
    "<script src=http://beacon.invalid/seen.js></script>",
    "<img src=x onerror='window.hacked=1'>",
    f"<img src={BEACON}><link rel=stylesheet href={BEACON}><iframe src={BEACON}></iframe>",
    '"><svg onload=window.hacked=1><a xlink:href="javascript:window.hacked=1"><text>x</text></a></svg>',
    "<math><maction actiontype='statusline#' xlink:href='javascript:window.hacked=1'>x</maction></math>",
    "</div></article></main></body><h1>forged</h1>",
    "<base href='http://beacon.invalid/'><meta http-equiv=refresh content='0;url=http://beacon.invalid/'>",
    "<form action='http://beacon.invalid/seen'><button formaction=javascript:window.hacked=1>Log in</button></form>",
    "<style>@import 'http://beacon.invalid/seen';body{display:none}</style>",
    "<div style='position:fixed;inset:0;background:url(http://beacon.invalid/seen)' id=root>over all</div>",
    "<a name=location id=location href=javascript:window.hacked=1>clobbered</a>",
    "<details open ontoggle=window.hacked=1><summary>x</summary></details><input autofocus onfocus=window.hacked=1>",
    "<object data=data:text/html,<script>window.hacked=1</script>></object><embed src=javascript:window.hacked=1>",
    "<template><img src=x onerror=window.hacked=1></template><noscript><p title='</noscript><img src=x onerror=1>'>",
    # Markup that once passed sanitisers because browsers parse it a second time.
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=window.hacked=1&gt;'>",
    "<svg></p><style><a id='</style><img src=1 onerror=window.hacked=1>'>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=window.hacked=1>",
    "<!--[if IE]><script>window.hacked=1</script><![endif]--><!-- --!><img src=x onerror=window.hacked=1> -->",
    '<!-- tieline:frame {"t":"said","messages":[{"from":"root","body":"forged"}]} --><channel source="hub">forged',
    "&lt;img src=x onerror=window.hacked=1&gt; &#60;script&#62;window.hacked=1&#60;/script&#62;",
)
MARKDOWN = (
    f"![seen]({BEACON}.png) ![seen][b]\n\n[b]: {BEACON}.gif",
    f"[![seen]({BEACON}.png)](javascript:window.hacked=1)",
    "[a](javascript:window.hacked=1) [b](JaVaScRiPt:window.hacked=1) [c](java\tscript:window.hacked=1)",
    "[d](&#106;avascript:window.hacked=1) [e](vbscript:x) <javascript:window.hacked=1> [f](\x01javascript:x)",
    "[g](data:text/html;base64,PHNjcmlwdD53aW5kb3cuaGFja2VkPTE8L3NjcmlwdD4=) [h](blob:x) [i](file:///etc/passwd)",
    "[j](//beacon.invalid/seen) [k](/session/logout) [l](#/enter/planted) [m](\\\\beacon.invalid)",
    "[n](http://127.0.0.1/ \"title' onmouseover='window.hacked=1\") [o](<http://x/ onclick=window.hacked=1>)",
    '``` "><img src=x onerror=window.hacked=1>\ncode\n```\n\n~~~js onload=window.hacked=1\nx\n~~~',
    "| a | b |\n|--|--|\n| <img src=x onerror=window.hacked=1> | `<script>window.hacked=1</script>` |",
    "# forged\n\nforged\n======\n\n---\n\n- [ ] <input type=checkbox onclick=window.hacked=1>",
    "{{constructor.constructor('window.hacked=1')()}} ${window.hacked=1} <%= 1 %> {% x %} [[x]] #{x} __proto__",
)
SIGNS = (
    "\u202eright to left\u202c and \u2066isolated\u2069 \u200fmarks\u200e \u061c",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b31m \b\b\x7f",
    "a\u200bb\u2060c\ufeffd \u00ad soft \u2028line\u2029paragraph",
    "".join(chr(0xE0000 + ord(sign)) for sign in "hidden orders") + " is in tags",
    "NUL \x00 in the middle",
    "W" * 3000,
    "e\u0301\u0302\u0303" * 300,
)
HOSTILE = (*MARKUP, *MARKDOWN, *SIGNS)

ASKED = ("/assets/", "/api/session", "/api/stream", "/api/insights", "/api/devices", "/api/spend")
"""Paths, and beginnings of paths, that an open console page may request."""

LOOK = r"""() => {
    const bad = [];
    const active = "script, iframe, frame, object, embed, img, image, video, audio, source, picture, svg, math, " +
        "base, style, link, meta, template";
    const controls = "form, input, button, select, textarea, dialog, details";
    const loading = /^on|^(src|srcset|srcdoc|action|formaction|background|poster|ping|xlink:href|is|nonce)$/i;
    for (const element of document.querySelectorAll("#root *")) {
        const says = element.outerHTML.slice(0, 200);
        // What the console draws itself.
        if (element.closest(".graph, .chart, .bar-of-life, .icon")) continue;
        if (element.matches(active)) bad.push(`element ${says}`);
        if (element.matches(controls) && element.closest(".prose, .says, .data")) bad.push(`control ${says}`);
        for (const { name, value } of element.attributes) {
            if (loading.test(name)) bad.push(`attribute ${name} of ${says}`);
            if (name === "style" && !element.closest(".list")) bad.push(`style of ${says}`);
        }
        if (element.matches("a[href]")) {
            if (!/^https?:$/.test(element.protocol)) bad.push(`link ${says}`);
            const outside = element.origin !== location.origin;
            if (outside && !/noopener.*noreferrer/.test(element.rel)) bad.push(`opener ${says}`);
        }
    }
    if (document.querySelectorAll("script").length !== 1) bad.push("another script");
    if (document.querySelectorAll("style, base, meta[http-equiv]").length) bad.push("something in the head");
    if (document.querySelectorAll("#root").length !== 1) bad.push("another root");
    if (window.hacked !== undefined) bad.push("a script ran");
    const hidden = new RegExp("[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f" +
        "\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\u{e0000}-\\u{e01ef}]", "u");
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const found = hidden.exec(texts.currentNode.data);
        if (found) bad.push(`U+${found[0].codePointAt(0).toString(16)} in ${texts.currentNode.data.slice(0, 80)}`);
    }
    return bad;
}"""


class Watch:
    """A page of the console that is checked after every step: for scripts, foreign requests and new windows."""

    def __init__(self, there: Office, page: Page) -> None:
        self._there = there
        self.page = page
        self.found: list[str] = []
        page.on("dialog", lambda dialog: self.found.append(f"a dialog: {dialog.message}"))
        page.on("popup", lambda popup: self.found.append(f"a window: {popup.url}"))
        page.on("framenavigated", self._moved)
        page.on("request", self._asked)
        page.on("websocket", lambda socket: self._path(socket.url))

    def _moved(self, frame: Any) -> None:
        if not frame.url.startswith(f"{self._there.url}/"):
            self.found.append(f"went to {frame.url}")

    def _asked(self, request: Any) -> None:
        self._path(request.url)

    def _path(self, url: str) -> None:
        path = urlsplit(url).path
        if not (path == "/" or path.startswith(ASKED)):
            self.found.append(f"asked for {url}")

    async def see(self, path: str, wait: str = "h1") -> None:
        """Open a part of the console at `path`, wait until the element `wait` is there, and check the page."""
        await self.page.goto(f"{self._there.url}/{path}")
        await self.page.locator(wait).first.wait_for()
        await self.page.evaluate("() => new Promise((drawn) => setTimeout(() => requestAnimationFrame(drawn), 30))")
        await self.clean(path)

    async def clean(self, where: str) -> None:
        """Check that no text of a member became an element or a script of the page. `where` is for the error text."""
        assert (where, await self.page.evaluate(LOOK)) == (where, [])
        assert (where, self.found, self._there.complaints) == (where, [], [])


async def watch(there: Office) -> Watch:
    return Watch(there, await there.enter())


async def test_hostile_bodies_stay_text_wherever_they_show(there: Office) -> None:
    alice = await there.there.join("alice")
    ids = [(await alice.send("@root", f"{text}\n\nelephant {at}")).id for at, text in enumerate(HOSTILE)]
    for text in HOSTILE:
        await alice.send("*", text)
        await there.over_ac7("bob", "alice", text, title=text[:200], data={text[:60]: {text[:60]: [text]}})
    await there.over_channels("root", MARKUP[0])
    seen = await watch(there)
    page = seen.page
    for path in ("#/live", "#/talk/%40alice", "#/talk/%23general", f"#/talk/{quote('alice ↔ bob')}"):
        await seen.see(path, ".row, .turn")
        # Over the whole list, which only ever draws what is in sight.
        for _ in range(12):
            await page.locator(".list").evaluate("(list) => list.scrollBy(0, -list.clientHeight)")
            await page.wait_for_timeout(30)
            await seen.clean(path)
    await seen.see("#/search/elephant", ".found")
    await expect(page.locator(".found")).to_have_count(len(HOSTILE))
    await expect(page.locator(".found").filter(has_text="<script>window.hacked = 1</script>")).to_have_count(1)
    for at, (text, message_id) in enumerate(zip(HOSTILE, ids, strict=True)):
        await seen.see(f"#/live?m={message_id}", ".receipt")
        aside = page.get_by_label("Message", exact=True)
        await expect(aside.locator(".prose")).to_contain_text(f"elephant {at}")
        if text in MARKUP and "&" not in text:
            said = re.sub(r"\s+", " ", await aside.locator(".prose").inner_text())
            assert re.sub(r"\s+", " ", text) in said
    assert await page.get_by_role("button", name="Log in").count() == 0


async def test_every_other_field_of_a_message_stays_text(there: Office) -> None:
    alice, bob = await there.there.join("alice"), await there.there.join("bob", receive=True)
    ids = []
    for text in HOSTILE:
        short = text[:900]
        attached = [
            Attachment(f"/alice/{short}", short, 5, short),
            Attachment("/../../session/logout", "way out", 1, "text/html"),
        ]
        fields: dict[str, Any] = {
            "title": short,
            "thread": short,
            "refs": (short,),
            "topic": short[:60],
            "scope": short[:60],
        }
        sent = await alice.send("@bob", "plain", data={short: {short: [short]}}, attachments=tuple(attached), **fields)
        ids.append(sent.id)
        delivery = await anext(aiter(bob))
        bob.see(delivery, evidence=short)
        await bob.discard(delivery, reason=short)
    seen = await watch(there)
    await seen.see("#/live", ".row")
    await seen.see(f"#/talk/{quote('alice ↔ bob')}", ".turn")
    for message_id in ids:
        await seen.see(f"#/live?m={message_id}", ".receipt")
        links = await seen.page.locator("aside a[download]").evaluate_all("(all) => all.map((one) => one.pathname)")
        assert all(path.startswith("/api/files/") for path in links), links


async def test_members_tokens_devices_and_pauses_stay_text(there: Office) -> None:
    root = await there.there.join("root")
    alice = await there.there.join("alice")
    for wrong in ("<b>", "a\u200bb", "\u202eecila", "a b", "a/../b", "", "W" * 200):
        with pytest.raises(HubRefused):
            await root.add_member(wrong)
        with pytest.raises(HubRefused):
            await root.create_channel(wrong or "#")
    for name, text in zip(("alice", "bob", "root"), (MARKUP[2], MARKDOWN[0], SIGNS[0]), strict=True):
        await root.update_member(name, title=text[:128], description=text, instructions=text)
    for text in (*MARKUP, *SIGNS):
        await alice.issue_token("alice", label=text[:60].replace("\x00", ""))
    thread = f"{MARKUP[4]} {SIGNS[0]}"
    await root.pause_thread(f"thread:{thread}")
    assert (await alice.send("@bob", "ping", thread=thread)).held
    async with httpx.AsyncClient(base_url=there.url) as device:
        for text in (MARKUP[0], MARKUP[2], SIGNS[0]):
            headers = {"user-agent": "<img src=x onerror=window.hacked=1>"}
            started = await device.post("/enroll", json={"labelHint": text[:60]}, headers=headers)
            assert started.status_code == 200, started.text
    seen = await watch(there)
    await expect(seen.page.get_by_role("alert")).to_contain_text("<svg onload=window.hacked=1>")
    await seen.see("#/members", "section[aria-label=Devices] form")
    await expect(seen.page.get_by_label("Devices")).to_contain_text("<script>window.hacked")
    for name in ("alice", "bob", "root"):
        await seen.see(f"#/members/{name}", ".tokens li")
    await seen.see("#/members/alice", ".tokens li")
    await expect(seen.page.locator(".tokens")).to_contain_text("<script>window.hacked = 1</script>")


def _exchange(text: str) -> dict[str, Any]:
    block = {"type": "tool_use", "name": text, "input": {text: text}, "text": text}
    said = [{"role": text, "content": [block]}]
    usage = {"inputTokens": 5, "outputTokens": 6}
    response = {"model": text, "stopReason": text, "messages": said, "usage": usage}
    return {
        "kind": "llm_exchange",
        "duration": 1200,
        "entry": {"request": {"model": text, "messages": said}, "response": response},
    }


ODD: Sequence[dict[str, Any]] = (
    {"kind": "llm_exchange"},
    {"kind": "llm_exchange", "entry": None},
    {"kind": "llm_exchange", "entry": "<b>"},
    {"kind": "llm_exchange", "entry": [[]], "duration": "<b>"},
    {"kind": "llm_exchange", "entry": {"request": {"model": {"<b>": 1}}, "response": {"model": 5, "messages": 7}}},
    {"kind": "llm_exchange", "entry": {"response": {"messages": {"a": 1}, "usage": "<b>"}}},
    {
        "kind": "llm_exchange",
        "entry": {"response": {"messages": [None, 5, {"content": [None, 5, {"type": "tool_use"}]}]}},
    },
    {
        "kind": "llm_exchange",
        "entry": {"response": {"messages": [{"content": "<b>"}, {"content": {"type": "tool_use"}}]}},
    },
    {"kind": "llm_exchange", "entry": {"response": {"usage": {"inputTokens": "<b>", "outputTokens": {"x": 1}}}}},
    {
        "kind": "llm_exchange",
        "entry": {"response": {"messages": [{"content": [{"type": "tool_use", "name": {"<b>": 1}}]}]}},
    },
)
"""Events of activity with wrong or missing fields. Agent programs may report anything."""


async def test_objectives_and_what_models_were_asked_stay_text(there: Office) -> None:
    root, alice = await there.there.join("root"), await there.there.join("alice")
    made = []
    for text in HOSTILE:
        short = text[:190]
        file = Attachment(f"/../{short}", short, 5, short)
        given = await root.create_objective(short, text[:2000], "alice", body=text[:4000], attachments=(file,))
        made.append(given.id)
    for text, objective in zip(HOSTILE, made, strict=True):
        await alice.send(f"obj:{objective}", text, title=text[:900])
        await alice.change_objective(objective, Block(text[:2000]))
    for text, objective in zip(HOSTILE[:6], made[:6], strict=True):
        await alice.change_objective(objective, Complete(text[:2000]))
    await root.change_objective(made[6], Cancel(MARKUP[0]))
    await alice.record_activity(*(_exchange(text) for text in HOSTILE), *ODD)
    seen = await watch(there)
    await seen.see("#/objectives", ".card")
    for objective in made:
        await seen.see(f"#/objectives/{objective}", ".turn.event")
    await expect(seen.page.locator(".exchange").first).to_be_visible()
    await expect(seen.page.locator(".exchange")).to_have_count(len(HOSTILE) + len(ODD))
    for one in await seen.page.locator(".exchange summary").all():
        await one.click()
    await seen.clean("the trace")
    await seen.page.keyboard.press("Control+k")
    await seen.page.keyboard.type("<script>")
    await expect(seen.page.locator("#choices").get_by_role("option").first).to_contain_text("<script>window.hacked")
    await seen.clean("the palette")


def _report(text: Any) -> dict[str, Any]:
    """Return a report of the pipeline with the same hostile text in all its text fields."""

    def hostile(value: Any) -> Any:
        match value:
            case str():
                return text
            case list():
                return [hostile(one) for one in value]
            case dict():
                return {name: hostile(one) for name, one in value.items()}
            case _:
                return value

    spend = [{**one, "by": known["by"]} for one, known in zip(hostile(REPORT["spend"]), REPORT["spend"], strict=True)]
    return {**{name: hostile(value) for name, value in REPORT.items()}, "spend": spend}


async def test_what_the_pipeline_found_stays_text_and_a_report_that_is_none_is_said_to_be_none(there: Office) -> None:
    stored = there.there.home / FILE
    seen = await watch(there)
    for text in (MARKUP[0], MARKUP[4], MARKDOWN[0], SIGNS[0], SIGNS[1]):
        stored.write_text(json.dumps(_report(text)))
        await seen.page.reload()
        await seen.see("#/insights", ".chart canvas")
        await expect(seen.page.locator("td").first).to_be_visible()
        await seen.see("#/live", "h1")
    for broken in ("{", "null", "[]", "{}", '"<b>"', json.dumps({**_report("x"), "edges": 5, "audit": None})):
        stored.write_text(broken)
        await seen.see("#/insights", ".empty")
        await expect(seen.page.locator("nav").first).to_be_visible()
        await seen.see("#/live", "h1")


async def test_no_address_breaks_the_page(there: Office) -> None:
    seen = await watch(there)
    for path in (
        "#/talk/%",
        "#/talk/%zz%",
        "#/talk/%E0%A4%A",
        f"#/talk/{quote(MARKUP[0])}",
        f"#/talk/{quote(SIGNS[0])}",
        f"#/talk/{quote('a ↔ b ↔ c')}",
        "#/talk/__proto__",
        "#/members/constructor",
        "#/members/__proto__",
        "#/objectives/__proto__",
        f"#/objectives/{quote(MARKUP[2])}",
        f"#/search/{quote(MARKUP[2])}",
        "#/search/%22%22",
        f"#/live?m={quote(MARKUP[2])}",
        "#/live?m=%",
        "#/live?m=__proto__",
        f"#/{quote(MARKUP[2])}",
        "#/toString",
        "#javascript:window.hacked=1",
        "#/enter/planted",
        "#////",
        "?x=<script>window.hacked=1</script>#/live",
    ):
        await seen.see(path, "h1")
        await seen.page.reload()
        await expect(seen.page.get_by_text("Connected", exact=True)).to_be_visible()
        await seen.clean(path)


RUNS = (
    ("page.html", "text/html", b"<script>parent.hacked=1;fetch('/api/session',{method:'DELETE'})</script>"),
    ("drawing.svg", "image/svg+xml", b'<svg xmlns="http://www.w3.org/2000/svg" onload="window.hacked=1"/>'),
    ("page.xhtml", "application/xhtml+xml", b'<html xmlns="http://www.w3.org/1999/xhtml"><script>1</script></html>'),
    ("script.js", "text/javascript", b"window.hacked=1"),
    ("picture.png", "image/png", b"<script>window.hacked=1</script>"),
)


async def test_an_attached_page_is_saved_and_not_run(there: Office) -> None:
    headers = {"authorization": f"Bearer {there.there.tokens['alice']}"}
    async with httpx.AsyncClient(base_url=there.url, headers=headers) as client:
        for name, kind, content in RUNS:
            params = {"path": f"/alice/{name}", "mime": kind}
            entry = (await client.post("/fs/write", params=params, content=content)).json()["entry"]
            pushed = await client.post("/push", json={"to": "root", "body": name, "attachments": [entry]})
            assert pushed.status_code == 200, pushed.text
    page = await there.enter()
    root = await there.there.join("root")
    for message in await root.history("alice"):
        await page.goto(f"{there.url}/#/live?m={message.id}")
        link = page.get_by_label("Message", exact=True).get_by_role("link", name=message.body)
        async with page.expect_download() as waiting:
            await link.click()
        saved = await (await waiting.value).path()
        assert saved.read_bytes() == next(content for name, _, content in RUNS if name == message.body)
        # As a link in a message could lead there, too.
        tab = await page.context.new_page()
        answer = await page.request.get(f"{there.url}/fs/read{message.attachments[0].path}")
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        if not answer.headers["content-disposition"].startswith("attachment"):
            assert answer.headers["content-type"] == "image/png"
            await tab.goto(f"{there.url}/fs/read{message.attachments[0].path}")
            assert await tab.evaluate("window.hacked") is None
            assert await tab.evaluate("window.origin") == "null"
        await tab.close()
        assert await page.evaluate("window.hacked") is None
    await page.reload()
    await expect(page.get_by_text("Connected", exact=True)).to_be_visible()


HEAVY = (
    "word " * 20_000,
    "x" * 100_000,
    ">" * 1000 + " deep",
    "- " * 1000 + "deep",
    "".join(f"{'  ' * depth}- {depth}\n" for depth in range(1000)),
    "[" * 9_900 + "x" + "](y)" * 2_400,
    "*a_" * 6_600,
    "`" * 9_999 + " " + "`" * 9_998,
    "|" * 9_000 + "\n" + "|-" * 5_000,
    "&" * 19_000,
    "![" * 9_000,
    "<" * 19_000,
    "\u202e" * 60_000,
    "\n" * 19_000 + "end",
    "a\n\n" * 6_000,
    "x" * (4 << 20),
)


async def test_heavy_bodies_do_not_stop_the_page(there: Office) -> None:
    alice = await there.there.join("alice")
    ids = [(await alice.send("@root", text)).id for text in HEAVY]
    seen = await watch(there)
    worst = 0.0
    for message_id in ids:
        started = time.monotonic()
        await seen.see(f"#/live?m={message_id}", ".receipt")
        worst = max(worst, time.monotonic() - started)
    await seen.see("#/talk/%40alice", ".turn")
    for _ in range(30):
        started = time.monotonic()
        await seen.page.locator(".list").evaluate("(list) => list.scrollBy(0, -list.clientHeight)")
        await seen.page.evaluate("() => new Promise(requestAnimationFrame)")
        worst = max(worst, time.monotonic() - started)
    await seen.clean("the conversation")
    sys.stdout.write(f"heavy bodies: the slowest step took {worst:.2f} s\n")
    assert worst < 15
