"""Tests of `pipeline run --follow` when the hub stops: the run waits, tells the user, and continues.

Functions of the tests replace the reading with Spark.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.server.hubs import running_hub, until
from tieline.cli import pipeline_run
from tieline.cli.failure import Exit, Failure
from tieline.cli.pipeline_after_batch import AfterBatch, AlertOptions
from tieline.cli.pipeline_progress import Display
from tieline.cli.pipeline_run import Run
from tieline.contract.permission import LOG_READ
from tieline.pipeline.lake import Commit, Lake
from tieline.pipeline.run import RunFailed, Summary, Watch

AWAY = "tieline.pipeline.http_log.LogUnreachable: the hub at x does not answer: refused"
Stream = Callable[[Watch], None]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def bring_in(
    monkeypatch: pytest.MonkeyPatch, folder: Path, where: Mapping[str, str], noted: list[int], *streams: Stream
) -> Callable[..., Summary]:
    """Return a function that does a `pipeline run` without Spark.

    Each time the run would read the log with Spark, it calls the next function of `streams`.
    """
    waiting = list(streams)

    def stream(_spark: Any, _lake: Lake, _where: Mapping[str, str], *, follow: bool, watch: Watch) -> None:
        del follow
        waiting.pop(0)(watch)

    monkeypatch.setattr("tieline.pipeline.run.run", stream)
    lake = Lake(folder / "lake")
    made = Run(lake, where, Display(0, quiet=True), AfterBatch(lake, AlertOptions()), noted)
    return lambda *, follow: made.bring_in(None, follow=follow)


def goes_away(watch: Watch) -> None:
    watch.done(Commit(number=1, position={"main": 10}, written={"bronze": 10, "edges": 2}))
    raise RunFailed(AWAY)


async def test_a_hub_that_goes_away_is_waited_for_and_read_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline_run, "_PAUSE_SECONDS", 0.05)
    address = f"127.0.0.1:{free_port()}"
    async with running_hub(folder / "h", http=address) as hub:
        await hub.add("reader", permissions=(LOG_READ,))
        where = {"url": hub.running.http, "token": hub.tokens["reader"]}
    noted: list[int] = []

    def goes_on(watch: Watch) -> None:
        watch.done(Commit(number=2, position={"main": 25, "activity": 4}, written={"bronze": 19, "edges": 3}))
        noted.append(2)
        assert watch.stopped()

    work = bring_in(monkeypatch, folder, where, noted, goes_away, goes_on)
    running = asyncio.create_task(asyncio.to_thread(work, follow=True))
    said = ""

    def has_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return "trying again" in said

    await until(has_said)
    async with running_hub(folder / "h", http=address):
        summary = await running
    said += capsys.readouterr().err
    assert "The hub answers again." in said
    assert (summary.events_read, summary.batches, summary.tables) == (29, 2, {"bronze": 29, "edges": 5})


async def test_a_signal_ends_the_wait_at_once_also_for_a_hub_that_takes_connections_and_says_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_run, "_PAUSE_SECONDS", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        where = {"url": f"http://127.0.0.1:{silent.getsockname()[1]}", "token": "x"}
        noted: list[int] = []
        work = bring_in(monkeypatch, folder, where, noted, goes_away)
        running = asyncio.create_task(asyncio.to_thread(work, follow=True))
        asked, _ = await asyncio.to_thread(silent.accept)
        noted.append(2)
        begun = time.monotonic()
        assert (await running).batches == 1
        assert time.monotonic() - begun < 5
        asked.close()


@pytest.mark.slow
async def test_a_hub_that_refuses_the_token_when_it_is_back_ends_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_run, "_PAUSE_SECONDS", 0.05)
    async with running_hub(folder / "h", store="memory") as hub:
        work = bring_in(monkeypatch, folder, {"url": hub.running.http, "token": "wrong"}, [], goes_away)
        with pytest.raises(Failure) as failed:
            await asyncio.to_thread(work, follow=True)
    assert failed.value.code is Exit.REFUSED


def test_a_run_that_does_not_follow_ends_when_the_hub_goes_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = bring_in(monkeypatch, folder, {"url": "http://127.0.0.1:9", "token": "x"}, [], goes_away)
    with pytest.raises(Failure) as failed:
        work(follow=False)
    assert failed.value.code is Exit.UNREACHABLE
    assert "went away" in failed.value.message


def test_what_fails_for_another_reason_is_not_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(watch: Watch) -> None:
        raise RunFailed("the disk is full")

    work = bring_in(monkeypatch, folder, {"url": "http://127.0.0.1:9", "token": "x"}, [], fails)
    with pytest.raises(RunFailed, match="the disk is full"):
        work(follow=True)
    work = bring_in(monkeypatch, folder, {"home": "h"}, [], goes_away)
    with pytest.raises(RunFailed):
        work(follow=True)
