"""Golden test of the web console: logins and logouts, the headers of its page, and the pipeline's report."""

from pathlib import Path

from tests.golden.native_client import Native
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage, stage
from tests.golden.web import Web
from tests.golden.websocket import WebSocket
from tests.server.hubs import ALONE
from tests.wire.reports import report
from tieline.contract.identifiers import MemberName

_SESSION = "/api/session"
_REPORT = report(refreshed_at_ms=2)


async def play(folder: Path, recorder: Recorder) -> None:
    """Log in by every method, log out, and record the conversation."""
    recorder.expect("etag", r'(?:etag|if-none-match): "([0-9a-f]{32})"')
    recorder.expect("first-code", r'"token":"([A-Za-z0-9_-]{32})"')
    async with stage(folder, recorder, **ALONE) as there:
        await there.there.add("ada", permissions=("log.read",))
        await there.there.add("bob")
        await there.there.add("pipeline", permissions=("log.read", "insights.write"))
        recorder.section("nobody is in")
        browser = Web(there, "browser")
        await browser.ask("GET", _SESSION)
        await browser.ask("POST", _SESSION, {"token": "tie_wrong"})
        await browser.ask("POST", _SESSION, {})
        await browser.ask("POST", _SESSION, b"token=x", content_type="application/x-www-form-urlencoded")
        await browser.ask("POST", _SESSION, {"token": "x"}, origin="https://example.org")
        await browser.ask("PUT", _SESSION, {})
        recorder.section("in by a token")
        inside = await _enter(browser, there.there.tokens["ada"])
        await inside.ask("GET", _SESSION)
        await inside.ask("GET", "/api/search?q=nothing")
        await _stream(there, inside)
        await inside.ask("DELETE", _SESSION)
        await inside.ask("GET", _SESSION)
        await inside.ask("DELETE", _SESSION)
        recorder.section("in by a login link")
        ada = await there.there.join("ada")
        link = (await ada.issue_token("ada", label="login link")).token
        await _enter(browser, link)
        await browser.ask("POST", _SESSION, {"token": link})
        recorder.section("in by the link of the first start")
        assert there.there.hub.services is not None
        code = there.there.hub.services.logins.first_code(MemberName("owner"))
        await _enter(browser, code)
        await browser.ask("POST", _SESSION, {"token": code})
        late = there.there.hub.services.logins.first_code(MemberName("owner"))
        recorder.clock.now_ms += 15 * 60 * 1000
        await browser.ask("POST", _SESSION, {"token": late})
        taken = there.there.hub.services.logins.first_code(MemberName("ada"))
        await browser.ask("POST", _SESSION, {"token": taken})
        recorder.section("the page")
        await _page(there)
        recorder.section("insights")
        await _insights(there)


async def _enter(browser: Web, token: str) -> Web:
    answer = await browser.ask("POST", _SESSION, {"token": token})
    return Web(browser.stage, "inside", cookie=answer.header("set-cookie").partition(";")[0])


async def _stream(there: Stage, inside: Web) -> None:
    socket = await WebSocket.dial(there, "inside/socket", "/api/stream", Cookie=inside.headers["cookie"])
    assert socket is not None
    session = Native(socket)
    await session.hello()
    await session.leave()


async def _page(there: Stage) -> None:
    browser = Web(there, "browser", show=lambda body: ["(the page)"] if body else [])
    page = await browser.ask("GET", "/")
    await browser.ask("GET", "/", if_none_match=page.header("etag"))
    await browser.ask("GET", "/", accept_encoding="gzip")
    await browser.ask("HEAD", "/")
    await Web(there, "browser").ask("POST", "/", {})
    await Web(there, "browser").ask("GET", "/index.html")


async def _insights(there: Stage) -> None:
    path = "/api/insights"
    ada = Web(there, "ada", there.there.tokens["ada"])
    await ada.ask("GET", path)
    await ada.ask("PUT", path, b"{}", content_type="application/json")
    pipeline = Web(there, "pipeline", there.there.tokens["pipeline"])
    await pipeline.ask("PUT", path, b"{}", content_type="application/json")
    await pipeline.ask("PUT", path, _REPORT, content_type="application/json")
    older = _REPORT.replace(b'"refreshed_at_ms": 2', b'"refreshed_at_ms": 1')
    await pipeline.ask("PUT", path, older, content_type="application/json")
    found = await ada.ask("GET", path)
    await ada.ask("GET", path, if_none_match=found.header("etag"))
    await ada.ask("POST", path, {})
    await Web(there, "bob", there.there.tokens["bob"]).ask("GET", path)
    await Web(there, "stranger").ask("GET", path)
