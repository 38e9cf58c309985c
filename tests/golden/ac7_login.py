"""Golden test of ac7: logins with a one-time code, their cookie, and enrolled devices."""

from pathlib import Path

from tests.golden.ac7 import ac7, seat
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage
from tests.golden.web import Web
from tieline.services.totp import code_at


async def play(folder: Path, recorder: Recorder) -> None:
    """Log in and out, enrol devices, and record the conversation."""
    recorder.expect("secret", r"\b[A-Z2-7]{32}\b")
    recorder.expect("device", r'"deviceCode":"([^"]+)"')
    recorder.expect("user-code", r'(?:"userCode":"|\?code=|/devices/)([0-9A-Z]{4}-[0-9A-Z]{4})\b')
    recorder.expect("login", r'"label":"login ([0-9a-f]{12})"')
    recorder.expect("code", r'"code":"(\d{6})"')
    recorder.expect("attempt", r"ac7_attempt=([^;]+);")
    async with ac7(folder, recorder) as there:
        ann, boss = await seat(there, "ann"), await seat(there, "boss", "members.manage", "team.manage")
        recorder.section("logins")
        await _logins(there, ann, boss)
        recorder.section("too many wrong codes")
        await _locked(there, boss)
        recorder.section("devices")
        await _devices(there, ann, boss)


async def _logins(there: Stage, ann: Web, boss: Web) -> None:
    stranger = Web(there, "browser")
    secret = (await ann.ask("POST", "/members/ann/enroll-totp")).value["totpSecret"]
    await ann.ask("POST", "/members/boss/enroll-totp")
    await boss.ask("POST", "/members/nobody/enroll-totp")
    await stranger.ask("GET", "/session")
    await ann.ask("GET", "/session")
    code = _code(there, secret)
    answer = await stranger.ask("POST", "/session/totp", {"code": code, "member": "ann"})
    browser = Web(there, "browser", cookie=answer.header("set-cookie").partition(";")[0])
    await browser.ask("GET", "/session")
    await browser.ask("POST", "/push", {"to": "boss", "body": "from a browser"})
    await browser.ask("POST", "/otlp/v1/logs", {})
    await ann.ask("GET", "/members/ann/tokens")
    await stranger.ask("POST", "/session/totp", {"code": code, "member": "ann"})
    await stranger.ask("POST", "/session/totp", {"code": "12345"})
    await browser.ask("POST", "/session/logout")
    await browser.ask("GET", "/session")
    await there.turn(31)
    await stranger.ask("POST", "/session/totp", {"code": _code(there, secret)})


def _code(there: Stage, secret: str) -> str:
    """Return the one-time code that an authenticator app shows at the time of the next request."""
    return code_at(secret, there.recorder.clock.now_ms + 1000)


async def _locked(there: Stage, boss: Web) -> None:
    secret = (await boss.ask("POST", "/members/boss/enroll-totp")).value["totpSecret"]
    taken = {code_at(secret, there.recorder.clock.now_ms + step * 30_000) for step in range(-3, 40)}
    wrong = next(code for number in range(10_000) if (code := f"{number:06}") not in taken)
    for _ in range(6):
        await Web(there, "guesser").ask("POST", "/session/totp", {"code": wrong, "member": "boss"})


async def _devices(there: Stage, ann: Web, boss: Web) -> None:
    device = Web(there, "device", user_agent="a device")
    started = (await device.ask("POST", "/enroll", {"labelHint": "laptop"})).value
    poll = {"deviceCode": started["deviceCode"]}
    await device.ask("POST", "/enroll/poll", poll)
    await device.ask("POST", "/enroll/poll", poll)
    await boss.ask("GET", "/enroll/pending")
    await ann.ask("GET", "/enroll/pending")
    bind = {"mode": "bind", "userCode": started["userCode"], "memberName": "ann", "label": "laptop"}
    await ann.ask("POST", "/enroll/approve", bind)
    await boss.ask("POST", "/enroll/approve", {**bind, "memberName": "nobody"})
    await boss.ask("POST", "/enroll/approve", bind)
    await there.turn(5)
    await device.ask("POST", "/enroll/poll", poll)
    await device.ask("POST", "/enroll/poll", poll)
    await boss.ask("POST", "/enroll/approve", bind)
    second = (await device.ask("POST", "/enroll", {})).value
    role = {"title": "Tester", "description": ""}
    create = {"mode": "create", "userCode": second["userCode"], "memberName": "dan", "role": role, "permissions": []}
    await boss.ask("POST", "/enroll/approve", {**create, "memberName": "ann"})
    await boss.ask("POST", "/enroll/approve", create)
    await device.ask("POST", "/enroll/poll", {"deviceCode": second["deviceCode"]})
    third = (await device.ask("POST", "/enroll", {"labelHint": "x"})).value
    await boss.ask("POST", "/enroll/reject", {"userCode": third["userCode"], "reason": "not mine"})
    await device.ask("POST", "/enroll/poll", {"deviceCode": third["deviceCode"]})
    await boss.ask("POST", "/enroll/reject", {"userCode": "XXXX-XXXX"})
    await device.ask("POST", "/enroll/poll", {"deviceCode": "x"})
    fourth = (await device.ask("POST", "/enroll", {}, x_csuite_protocol="2")).value
    await device.ask("GET", fourth["verificationUriComplete"])
