"""Tests of enrolment over HTTP: a device asks, a manager approves it for a member, the device gets its token once."""

import asyncio
import os
from typing import Any

import pytest

from tests.protocols.ac7.teams import Json, Seat, Team
from tests.server.hubs import WAIT_SECONDS
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName
from tieline.contract.member import ByHomeKey
from tieline.contract.reply import TokenIssued
from tieline.services.devices import Devices
from tieline.services.enrolments import EXPIRES_MS, Enrolments, Granted, Started, Waiting
from tieline.services.operator import Operator


async def start(crew: Team, **form: Any) -> Json:
    started: Json = await crew.stranger.do("POST", "/enroll", **form)
    return started


async def poll(crew: Team, started: Json) -> str:
    return await crew.stranger.refused(400, "POST", "/enroll/poll", {"deviceCode": started["deviceCode"]})


async def fetch(crew: Team, started: Json) -> Json:
    fetched: Json = await crew.stranger.do("POST", "/enroll/poll", deviceCode=started["deviceCode"])
    return fetched


async def test_a_device_gets_a_token_of_a_member_that_there_is(crew: Team) -> None:
    ann, boss = await crew.seat("ann"), await crew.seat("boss", "members.manage")
    started = await start(crew, labelHint="laptop")
    assert (started["expiresIn"], started["interval"]) == (300, 5)
    assert started["verificationUriComplete"] == f"{started['verificationUri']}?code={started['userCode']}"
    assert await poll(crew, started) == "authorization_pending"
    assert await poll(crew, started) == "slow_down"
    (waiting,) = (await boss.get("/enroll/pending"))["enrollments"]
    assert (waiting["userCode"], waiting["labelHint"]) == (started["userCode"], "laptop")
    assert waiting["sourceIp"] == "127.0.0.1"
    typed = started["userCode"].lower().replace("-", " ")
    form = {"mode": "bind", "userCode": typed, "memberName": "ann", "label": "laptop"}
    approved = await boss.do("POST", "/enroll/approve", **form)
    assert approved["member"]["name"] == "ann"
    assert (approved["tokenInfo"]["label"], approved["tokenInfo"]["origin"]) == ("laptop", "enroll")
    fetched = await fetch(crew, started)
    assert (fetched["member"]["name"], fetched["tokenId"]) == ("ann", approved["tokenInfo"]["id"])
    laptop = Seat(crew.url, "ann", fetched["token"])
    assert (await laptop.get("/session"))["member"] == "ann"
    assert await ann.get("/session"), "its other tokens stay"
    assert await poll(crew, started) == "expired_token", "it is given out once"
    assert await boss.refused(404, "POST", "/enroll/approve", form)


async def test_a_browser_that_opens_the_link_of_a_device_is_led_to_the_console(crew: Team) -> None:
    started = await start(crew)
    link, code = started["verificationUriComplete"], started["userCode"]
    opened = await crew.stranger.ask("GET", link)
    assert (opened.status, opened.headers["location"]) == (303, f"/#/devices/{code}")
    elsewhere = await crew.stranger.ask("GET", link, **{"sec-fetch-site": "cross-site"})
    assert elsewhere.status == 303, "the link may stand on any page"
    assert (await crew.stranger.ask("GET", started["verificationUri"])).headers["location"] == "/#/devices"
    odd = await crew.stranger.ask("GET", "/enroll?code=a%2Fb%0D%0Ax:%20y")
    assert odd.headers["location"] == "/#/devices/a%2Fb%0D%0Ax%3A%20y"


async def test_a_device_gets_a_token_of_a_member_that_is_made_for_it(crew: Team) -> None:
    boss = await crew.seat("boss", "members.manage", "team.manage")
    await boss.do("PUT", "/team/presets/lead", permissions=["objectives.create"])
    started = await start(crew)
    form = {
        "mode": "create",
        "userCode": started["userCode"],
        "memberName": "new",
        "role": {"title": "tester"},
        "permissions": ["lead", "activity.read"],
    }
    approved = await boss.do("POST", "/enroll/approve", **form)
    assert approved["member"]["permissions"] == ["objectives.create", "activity.read"]
    new = Seat(crew.url, "new", (await fetch(crew, started))["token"])
    assert (await new.get("/briefing"))["role"]["title"] == "tester"
    again = await start(crew)
    assert await boss.refused(409, "POST", "/enroll/approve", {**form, "userCode": again["userCode"]})
    assert await poll(crew, again) == "authorization_pending", "what failed can be tried again"


async def test_a_device_that_is_refused_hears_why(crew: Team) -> None:
    boss = await crew.seat("boss", "members.manage")
    started = await start(crew)
    await boss.do("POST", "/enroll/reject", 204, userCode=started["userCode"], reason="not mine")
    reply = await crew.stranger.ask("POST", "/enroll/poll", {"deviceCode": started["deviceCode"]})
    assert (reply.status, reply.value) == (400, {"error": "access_denied", "errorDescription": "not mine"})
    assert await boss.refused(404, "POST", "/enroll/reject", {"userCode": started["userCode"]})


async def test_only_who_manages_members_sees_and_decides(crew: Team) -> None:
    ann = await crew.seat("ann")
    started = await start(crew)
    own = {"mode": "bind", "userCode": started["userCode"], "memberName": "ann"}
    for seat, status in ((ann, 403), (crew.stranger, 401)):
        assert await seat.refused(status, "GET", "/enroll/pending")
        assert await seat.refused(status, "POST", "/enroll/approve", own)
        assert await seat.refused(status, "POST", "/enroll/reject", {"userCode": started["userCode"]})
    assert await poll(crew, started) == "authorization_pending"


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"mode": "bind", "userCode": "0000-0000", "memberName": "boss"}, 404),
        ({"mode": "bind", "userCode": "nonsense!", "memberName": "boss"}, 400),
        ({"mode": "bind", "userCode": "{code}", "memberName": "nobody"}, 404),
        ({"mode": "create", "userCode": "{code}", "memberName": "new"}, 400),
        ({"mode": "other", "userCode": "{code}", "memberName": "boss"}, 400),
        (
            {
                "mode": "create",
                "userCode": "{code}",
                "memberName": "n",
                "role": {"title": "t"},
                "permissions": ["unknown"],
            },
            400,
        ),
    ],
)
async def test_what_cannot_be_approved_is_refused_and_waits_on(crew: Team, form: Json, status: int) -> None:
    boss = await crew.seat("boss", "members.manage")
    started = await start(crew)
    code = form["userCode"].replace("{code}", started["userCode"])
    assert await boss.refused(status, "POST", "/enroll/approve", {**form, "userCode": code})
    assert await poll(crew, started) == "authorization_pending"


async def test_an_address_asks_ten_times_in_an_hour(crew: Team) -> None:
    for _ in range(10):
        await start(crew)
    reply = await crew.stranger.ask("POST", "/enroll", {})
    assert reply.status == 429
    assert 0 < reply.value["retryAfter"] <= 3600
    assert reply.headers["retry-after"] == str(reply.value["retryAfter"])
    assert await crew.stranger.refused(400, "POST", "/enroll", {"labelHint": "x" * 65})


async def test_a_token_that_no_device_fetched_is_revoked(crew: Team) -> None:
    await crew.seat("ann")
    assert crew.there.hub.local_hub is not None
    operator = Operator(crew.there.hub.local_hub, ByHomeKey((crew.there.home / "key").read_text().strip()))
    (issued,) = await operator.ask(lambda session: (c.IssueToken(session, name=MemberName("ann"), label="laptop"),))
    assert isinstance(issued, TokenIssued)
    clock = [1_000_000]
    enrolments = Enrolments(os.urandom)
    devices = Devices(operator, enrolments, lambda: clock[0])
    started = enrolments.start("10.0.0.1", None, "", clock[0])
    assert isinstance(started, Started)
    assert isinstance(enrolments.claim(started.user_code, clock[0]), Waiting)
    assert enrolments.approve(started.user_code, Granted(issued.token, issued.view.id, "ann"))
    laptop = Seat(crew.url, "ann", issued.token)
    devices.expire()
    assert await laptop.get("/session"), "it may still be fetched"
    clock[0] += EXPIRES_MS
    devices.expire()
    async with asyncio.timeout(WAIT_SECONDS):
        while (await laptop.ask("GET", "/session")).status != 401:
            pass
    devices.close()
