"""Golden test of ac7: members, their tokens, the team, and objectives."""

from pathlib import Path

from tests.golden.ac7 import ac7, seat
from tests.golden.native_client import Native, Sockets
from tests.golden.recorder import Recorder
from tests.golden.web import Web

_BOSS = ("members.manage", "team.manage", "objectives.create", "objectives.reassign", "objectives.watch")


async def play(folder: Path, recorder: Recorder) -> None:
    """Change the team, create objectives for it, and record the conversation."""
    async with ac7(folder, recorder) as there:
        boss, ben = await seat(there, "boss", *_BOSS), await seat(there, "ben")
        recorder.section("the team")
        await _team(boss, ben)
        recorder.section("members")
        await _members(boss, ben)
        recorder.section("tokens")
        await _tokens(boss, ben)
        await there.there.add("ada", permissions=("log.read",))
        ada = await Sockets(there).join("ada", there.there.tokens["ada"], receive=True)
        recorder.section("objectives")
        await _objectives(boss, ben, ada)
        recorder.section("a member that goes")
        await boss.ask("DELETE", "/members/cid")
        await boss.ask("DELETE", "/members/cid")
        await ben.ask("DELETE", "/members/ada")
        await boss.ask("DELETE", "/members/boss")


async def _team(boss: Web, ben: Web) -> None:
    await ben.ask("GET", "/team")
    await boss.ask("PATCH", "/team", {"name": "Crew", "directive": "Ship it", "context": "A port"})
    await ben.ask("PATCH", "/team", {"name": "Mine"})
    await boss.ask("PATCH", "/team", {"name": ""})
    await boss.ask("PUT", "/team/presets/lead", {"permissions": ["objectives.create", "activity.read"]})
    await boss.ask("PUT", "/team/presets/lead", {"permissions": ["no.such"]})
    await boss.ask("PUT", "/team/presets/other", {"permissions": []})
    await ben.ask("GET", "/team/presets")
    await boss.ask("DELETE", "/team/presets/other")
    await boss.ask("DELETE", "/team/presets/other")


async def _members(boss: Web, ben: Web) -> None:
    role = {"title": "Reviewer", "description": "Reads it all"}
    more = {"instructions": "Be kind.", "permissions": ["lead", "objectives.cancel"]}
    await boss.ask("POST", "/members", {"name": "cid", "role": role, **more})
    await boss.ask("POST", "/members", {"name": "cid", "role": role})
    await boss.ask("POST", "/members", {"name": "operator", "role": role})
    await boss.ask("POST", "/members", {"name": "dan"})
    await boss.ask("POST", "/members", {"name": "dan", "role": role, "permissions": ["no.such"]})
    await ben.ask("POST", "/members", {"name": "dan", "role": role})
    await boss.ask("PATCH", "/members/cid", {"role": {"title": "Writer"}, "permissions": ["lead"]})
    await boss.ask("PATCH", "/members/nobody", {"instructions": ""})
    await ben.ask("PATCH", "/members/ben", {"instructions": "mine"})
    await boss.ask("PATCH", "/members/boss", {"permissions": []})
    await boss.ask("GET", "/members")
    await ben.ask("GET", "/members")
    await boss.ask("DELETE", "/team/presets/lead")


async def _tokens(boss: Web, ben: Web) -> None:
    await boss.stage.turn()
    ends = boss.stage.recorder.clock.now_ms + 86_400_000
    made = await ben.ask("POST", "/members/ben/tokens", {"label": "laptop", "expiresAt": ends})
    await boss.ask("POST", "/members/ben/tokens", {})
    await ben.ask("POST", "/members/boss/tokens", {})
    await ben.ask("POST", "/members/ben/tokens", {"expiresAt": 1})
    await Web(ben.stage, "ben/laptop", made.value["token"]).ask("GET", "/session")
    await ben.ask("GET", "/members/ben/tokens")
    await ben.ask("GET", "/members/boss/tokens")
    await boss.ask("GET", "/members/nobody/tokens")
    await ben.ask("DELETE", f"/members/ben/tokens/{made.value['info']['id']}")
    await ben.ask("DELETE", f"/members/ben/tokens/{made.value['info']['id']}")
    rotated = await boss.ask("POST", "/members/ben/rotate-token")
    await ben.ask("GET", "/team")
    ben.headers["authorization"] = f"Bearer {rotated.value['token']}"
    await boss.ask("POST", "/members/nobody/rotate-token")


async def _objectives(boss: Web, ben: Web, ada: Native) -> None:
    form = {"title": "Port it", "outcome": "It runs", "body": "In steps", "assignee": "ben", "watchers": ["ada"]}
    made = (await boss.ask("POST", "/objectives", form)).value["id"]
    await ada.hear_batch()
    path = f"/objectives/{made}"
    for who, method, rest, body in (
        (ben, "PATCH", "", {"status": "blocked", "blockReason": "no key"}),
        (ben, "PATCH", "", {"status": "active"}),
        (ben, "POST", "/discuss", {"body": "in the thread", "title": "T"}),
        (boss, "POST", "/watchers", {"add": ["cid"]}),
        (boss, "POST", "/reassign", {"to": "cid", "note": "for a change"}),
        (boss, "POST", "/reassign", {"to": "ben"}),
        (ben, "POST", "/complete", {"result": "it runs"}),
    ):
        await who.ask(method, path + rest, body)
        await ada.hear()
    await ada.send(f"obj:{made}", "from another protocol")
    await boss.ask("POST", "/push", {"body": "by a push", "data": {"thread": f"obj:{made}"}})
    await ada.hear()
    await ben.ask("GET", path)
    await ben.ask("PATCH", path, {"status": "blocked", "blockReason": "again"})
    await ben.ask("PATCH", path, {})
    await ben.ask("GET", "/objectives/obj-0")
    await ben.ask("POST", "/objectives", form)
    await boss.ask("POST", "/objectives", {**form, "assignee": "nobody"})
    await boss.ask("POST", "/objectives", {"title": "x"})
    other = (await boss.ask("POST", "/objectives", {"title": "Short", "outcome": "None", "assignee": "ben"})).value[
        "id"
    ]
    await ben.ask("POST", f"/objectives/{other}/cancel", {})
    await boss.ask("POST", f"/objectives/{other}/cancel", {"reason": "no time"})
    await ada.ask("objectives")
    await ben.ask("GET", "/objectives")
    await ben.ask("GET", "/objectives?status=cancelled&assignee=ben")
    await ben.ask("GET", "/objectives?status=else")
    await ben.ask("GET", "/history?limit=1")
    await boss.ask("GET", "/briefing")
