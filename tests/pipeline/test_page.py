"""Tests of the report as an HTML page: one file that a browser shows completely, without requests to any server.

It works in light and dark mode, on wide and narrow screens.
"""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tests.e2e.browsers import chromium, faults
from tests.pipeline.lakes import busy, lake_of
from tieline.cli.main import make_app
from tieline.console.report_page import report_page
from tieline.pipeline.report import make_report

pytestmark = pytest.mark.slow  # each test writes a lake

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&"


def _written(folder: Path, name: str, *arguments: str) -> Path:
    busy(folder / "lake", name)
    path = folder / "report.html"
    given = ["pipeline", "report", "--lake", str(folder / "lake"), "--html", str(path), *arguments]
    done = CliRunner().invoke(make_app(), given)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"The report is in {path}.\n"
    return path


def test_a_report_cannot_end_the_element_that_it_is_in(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text('<script id="report">REPORT</script>')
    page = report_page(b'{"a":"</script><!--&"}', tmp_path)
    assert page == b'<script id="report">{"a":"\\u003c/script\\u003e\\u003c!--\\u0026"}</script>'
    assert msgspec.json.decode(page[20:-9]) == {"a": "</script><!--&"}


def test_a_tree_without_a_built_console_has_no_page(tmp_path: Path) -> None:
    assert report_page(b"{}", tmp_path) is None


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (360, "dark")])
async def test_a_browser_draws_every_chart_and_asks_nobody(folder: Path, width: int, scheme: str) -> None:
    path = _written(folder, HOSTILE)
    complaints: list[str] = []
    asked: list[str] = []
    async with chromium() as browser:
        context = await browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if scheme == "dark" else "light"
        )
        shown = await context.new_page()
        shown.on("console", lambda said: complaints.append(said.text))
        shown.on("pageerror", lambda error: complaints.append(str(error)))
        shown.on("request", lambda request: asked.append(request.url))
        await shown.goto(path.as_uri())
        assert await shown.locator(".chart canvas").count() == 3
        assert await shown.locator(".graph path").count() > 0
        headings = await shown.locator("h2").all_inner_texts()
        assert {"Who waits for whom", "Service levels", "Spend by model", "Loops", "Storms"} <= set(headings)
        assert await shown.locator("td", has_text=HOSTILE).count() > 0
        assert await shown.locator("img").count() == 0
        assert await shown.locator("td a").count() == 0, "nobody is there to lead to"
        assert await shown.locator(".ranges [aria-pressed=true]").inner_text() == "7 days"
        await shown.get_by_role("button", name="1 day", exact=True).click()
        assert await shown.locator(".ranges [aria-pressed=true]").inner_text() == "1 day"
        assert await shown.evaluate("document.documentElement.scrollWidth") <= width
        assert await faults(shown) == []
    assert complaints == []
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]


def test_a_page_of_one_window_has_only_that(folder: Path) -> None:
    text = _written(folder, "bob", "--window", "3d").read_text(encoding="utf-8")
    assert '"ranges":{}' in text


def test_a_lake_with_nothing_in_it_has_a_page(folder: Path) -> None:
    page = report_page(msgspec.json.encode(make_report(lake_of(folder, {}))))
    assert page is not None
    assert b'"messages":0' in page
