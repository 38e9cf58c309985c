"""Tests that a run stores its report in a hub at a URL, and says why if the hub does not take it."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.pipeline.lakes import busy
from tests.server.hubs import running_hub
from tieline.cli.pipeline_after_batch import AfterBatch, AlertOptions
from tieline.pipeline.insights import store_report
from tieline.pipeline.report import make_report
from tieline.wire.insights import FILE

pytestmark = pytest.mark.slow  # each test writes a lake


async def test_a_hub_elsewhere_stores_the_report_of_a_member_that_may_and_tells_another_what_it_lacks(
    folder: Path,
) -> None:
    report = make_report(busy(folder / "lake"))
    async with running_hub(folder / "h") as there:
        await there.add("reader", permissions=("log.read",))
        await there.add("pipeline", permissions=("log.read", "insights.write"))
        where = {"url": there.running.http, "token": there.tokens["reader"]}
        problem = await asyncio.to_thread(store_report, report, where)
        assert "reader lacks the permission insights.write" in problem
        where["token"] = there.tokens["pipeline"]
        assert await asyncio.to_thread(store_report, report, where) == ""
        assert (folder / "h" / FILE).read_bytes() == msgspec.json.encode(report)
    assert "does not answer" in store_report(report, where)


def test_a_run_says_once_that_the_console_gets_no_report_and_goes_on(folder: Path) -> None:
    lake = busy(folder / "lake")
    after_batch = AfterBatch(lake, AlertOptions(), {"home": str(folder / "gone")})
    said: list[str] = []
    assert [after_batch.finish(said.append), after_batch.finish(said.append)] == [0, 0]
    assert len(said) == 1
    assert "the console does not get the report" in said[0]
    assert "No such file" in said[0]
