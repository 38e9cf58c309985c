"""Tests of the report as an HTML page: one file that a browser shows completely, without requests to any server.

It works in light and dark mode, on wide and narrow screens.
"""

from pathlib import Path

import pytest

from tests.e2e.browsers import chromium, serious
from tests.pipeline.lakes import MINUTE, START, busy, lake_of
from tieline.pipeline.alerts import find_alerts
from tieline.pipeline.charts import duration
from tieline.pipeline.page import objective_rows, page
from tieline.pipeline.report import make_report

HOSTILE = "<img src=x onerror=alert(1)>\"'&"
CHARTS = {
    "latency": "path.line",
    "graph": "path.arrow",
    "backlog": "path.area",
    "objectives": "rect.bar",
    "usage": "rect.s0",
}
"""For each section with a chart, the CSS selector of the marks that the chart must have."""


def _written(folder: Path, name: str) -> Path:
    report = make_report(busy(folder / "lake", name))
    path = folder / "report.html"
    path.write_text(page(report, find_alerts(report)), encoding="utf-8")
    return path


def test_whatever_members_are_called_is_text(folder: Path) -> None:
    text = _written(folder, HOSTILE).read_text(encoding="utf-8")
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<script" not in text


def test_a_lake_with_nothing_in_it_has_a_page_that_says_so(folder: Path) -> None:
    text = page(make_report(lake_of(folder, {})))
    assert "Nothing was read yet." in text
    assert text.count('class="none"') == 7


def test_a_block_that_lasts_counts_in_the_table(folder: Path) -> None:
    report = make_report(busy(folder))
    assert report.to_ms is not None
    rows = dict(zip((one.id for one in report.objectives), objective_rows(report.objectives), strict=True))
    assert rows["o-1"][4] == duration(report.to_ms - (START + MINUTE))
    assert rows["o-2"][4] == duration(0)


def test_one_moment_is_enough_for_every_chart(folder: Path) -> None:
    one = {"minute_ms": START, "member": "bob", "protocol": "", "offered": 1, "seen": 0, "acked": 1, "expired": 0,
           "dead": 0, "late": 0, "offered_ms": [0], "acked_ms": [0]}  # fmt: skip
    moves = {"member": "bob", "minute_ms": START, "arrived": 1, "departed": 1}
    text = page(make_report(lake_of(folder, {"latency": [one], "backlog": [moves]})))
    assert "nan" not in text.lower().replace("finance", "")


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
        for section, marks in CHARTS.items():
            charts = shown.locator(f"#{section} .chart:visible svg")
            assert await charts.count() == (2 if section == "usage" else 1), section
            box = await charts.first.bounding_box()
            assert box is not None, section
            assert box["width"] > width * 0.6, section
            assert box["height"] > 50, section
            assert await charts.first.locator(marks).count() > 0, section
            assert (
                await charts.first.locator(f"{marks} title").count() + await shown.locator(f"#{section} table").count()
                > 0
            ), f"{section} has no words for its marks"
        assert await shown.locator("#findings tbody tr").count() == 6
        assert await shown.locator("img").count() == 0
        assert await shown.evaluate("document.documentElement.scrollWidth") <= width
        assert await serious(shown) == []
    assert complaints == []
    assert asked == [path.as_uri()]
