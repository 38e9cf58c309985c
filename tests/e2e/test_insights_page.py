"""Tests of the console's page with the pipeline's report, in a real browser."""

import re
import time

import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office, faults
from tests.e2e.reports import REPORT, leave

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_insights_say_what_the_pipeline_found_or_how_to_run_it(there: Office) -> None:
    page = await there.enter(path="#/insights")
    await expect(page.get_by_text("tieline pipeline run")).to_be_visible()
    leave(there.there.home, REPORT)
    await page.reload()
    await expect(page.locator(".chart canvas")).to_have_count(3)
    await expect(page.locator(".graph path")).to_have_count(1)
    await expect(page.locator(".totals")).to_contain_text("broken")
    for heading in ("Who writes to whom", "Latency by member", "Waiting now", "Spend by model", "Loops"):
        await expect(page.get_by_role("heading", name=heading)).to_be_visible()
    await expect(page.get_by_role("heading", name="Audit findings")).to_be_visible()
    graph = page.locator("figure", has=page.get_by_role("heading", name="Who writes to whom", exact=True))
    await graph.get_by_text("As a table").click()
    await expect(graph.locator("td", has_text="<b>alice")).to_be_visible()
    assert await faults(page) == []


async def test_insights_say_how_old_they_are_what_work_cost_and_that_the_chain_is_intact(there: Office) -> None:
    ago = int(time.time() * 1000) - 3 * 3_600_000
    audit = {"verified_rows": 9, "intact": True, "findings": []}
    leave(there.there.home, {**REPORT, "audit": audit, "refreshed_at_ms": ago})
    page = await there.enter(path="#/insights")
    await expect(page.get_by_role("main")).to_contain_text("as of 3 h ago; refresh with tieline pipeline run")
    await expect(page.locator(".totals")).to_contain_text(re.compile("audit chainintact$"))
    await expect(page.get_by_role("heading", name="Audit findings")).to_have_count(0)
    work = page.locator("section", has=page.get_by_role("heading", name="Objectives", exact=True)).last.locator(
        "tbody tr"
    )
    await expect(work.locator("td")).to_have_text(["Ship it", "done", "2 min", "5 s", "1,234", "$0.75"])
    await expect(work.get_by_role("link", name="Ship it")).to_have_attribute("href", "#/objectives/o-1")


async def test_each_line_of_a_chart_can_be_read_as_a_table(there: Office) -> None:
    leave(there.there.home, REPORT)
    page = await there.enter(path="#/insights")
    for title, heads, rows, newest in (
        ("Latency until acknowledged", ["p50, ms", "p99, ms"], 10, ["5", "59"]),
        ("Deliveries that wait", ["waiting, deliveries"], 10, ["9"]),
        ("Tokens by hour", ["m-1, tokens"], 1, ["10"]),
    ):
        figure = page.locator("figure", has_text=title)
        table = figure.locator("details table")
        await expect(table).to_have_count(0)
        await figure.get_by_text("As a table").click()
        await expect(table.locator("th")).to_have_text(["At", *heads])
        await expect(table.locator("tbody tr")).to_have_count(rows)
        await expect(table.locator("tbody tr").first.locator(".num")).to_have_text(newest)


async def test_a_range_is_chosen_compared_and_read_again(there: Office) -> None:
    day = {**REPORT, "totals": {**REPORT["totals"], "messages": 5}, "before": {**REPORT["totals"], "messages": 8}}
    week = {**REPORT, "totals": {**REPORT["totals"], "messages": 6}}
    leave(there.there.home, {**REPORT, "ranges": {"1d": {**day, "before_ms": 0}, "7d": week}})
    page = await there.enter(path="#/insights")
    messages = page.locator(".totals div", has=page.locator("dt", has_text="messages")).first
    await expect(messages).to_have_text("messages6")
    await page.get_by_role("button", name="1 day", exact=True).click()
    await expect(messages).to_have_text("messages5before: 8")
    await expect(page.get_by_role("button", name="1 day", exact=True)).to_have_attribute("aria-pressed", "true")
    await page.get_by_role("button", name="30 days").click()
    await expect(messages).to_have_text("messages3")
    leave(there.there.home, {**REPORT, "totals": {**REPORT["totals"], "messages": 9}})
    await page.get_by_role("button", name="Refresh").click()
    await expect(messages).to_have_text("messages9")
    assert await faults(page) == []


async def test_rows_lead_to_the_member_the_objective_and_the_conversation(there: Office) -> None:
    leave(there.there.home, REPORT)
    page = await there.enter(path="#/insights")
    for heading, name, address in (
        ("Service levels", "bob", "#/members/bob"),
        ("Failures", "bob", "#/members/bob"),
        ("Who waits for whom", "Test it", "#/objectives/o-2"),
        ("Spend by objective", "Ship it", "#/objectives/o-1"),
        ("Loops", "@alice+@bob", "#/talk/alice%20%E2%86%94%20bob"),
        ("Longest conversations", "thread:build", "#/talk/thread%3Abuild"),
        ("Storms", "bob", "#/members/bob"),
        ("What changed", "bob", "#/members/bob"),
        ("Who waits for whom", "@bob", "#/members/bob"),
        ("Who waits for whom", "o-1", "#/objectives/o-1"),
        ("Spend by model", "bob", "#/members/bob"),
        ("Spend by scope", "alice", "#/members/alice"),
        ("Spend by thread", "build", "#/talk/thread%3Abuild"),
        ("Loops", "alice", "#/members/alice"),
        ("Audit findings", "alice", "#/members/alice"),
    ):
        section = page.locator("section", has=page.get_by_role("heading", name=heading, exact=True)).last
        await expect(section.get_by_role("link", name=name, exact=True).first).to_have_attribute("href", address)
    await page.get_by_role("link", name="@alice+@bob").click()
    await expect(page.get_by_role("heading", name="alice ↔ bob")).to_be_visible()


async def test_a_report_of_an_older_version_is_told(there: Office) -> None:
    leave(there.there.home, {name: REPORT[name] for name in ("totals", "edges", "latency", "audit", "refreshed_at_ms")})
    page = await there.enter(path="#/insights")
    await expect(page.get_by_text("What the pipeline left cannot be read here.")).to_be_visible()


@pytest.mark.parametrize("width", [1920, 1280, 1024, 390])
async def test_charts_stand_side_by_side_with_whole_labels_and_a_heading_each(there: Office, width: int) -> None:
    name = "a-member-with-a-name-of-sixty-characters-" + "x" * 19
    edges = [{**REPORT["edges"][0], "from": name}, *REPORT["edges"]]
    leave(there.there.home, {**REPORT, "edges": edges})
    page = await there.enter(path="#/insights", viewport={"width": width, "height": 900})
    figures = page.locator(".charts figure")
    await expect(figures.locator("canvas")).to_have_count(3)
    await expect(figures.get_by_role("heading")).to_have_count(4)
    titles = await page.get_by_role("heading").all_text_contents()
    assert len(titles) == len(set(titles))
    first, second = await figures.nth(0).bounding_box(), await figures.nth(1).bounding_box()
    assert first is not None
    assert second is not None
    assert (first["y"], second["x"] >= first["x"] + first["width"]) == (second["y"], True)
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    # No label is outside of its picture, and the whole name is there.
    label = figures.locator("svg text", has_text="a-member")
    await expect(label).to_have_text(name)
    cut = await figures.locator("svg text").evaluate_all(
        """all => all.filter((one) => { const [label, all] = [one.getBBox(), one.ownerSVGElement.viewBox.baseVal];
            const [right, below] = [all.width - label.x - label.width, all.height - label.y - label.height];
            return Math.min(label.x, label.y, right, below) < 0;
        }).length"""
    )
    assert cut == 0
