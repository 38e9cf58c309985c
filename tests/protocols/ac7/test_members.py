"""Tests of members, the team, tokens and presence, through the HTTP routes."""

from tests.protocols.ac7.teams import EventReader, Json, Seat, Team


async def test_a_manager_makes_changes_and_removes_members(crew: Team) -> None:
    boss, ann = await crew.seat("boss", "members.manage", "team.manage", "log.read"), await crew.seat("ann")
    made = await boss.do(
        "POST", "/members", name="new", role={"title": "tester"}, permissions=["activity.read"], instructions="test"
    )
    assert made["member"]["permissions"] == ["activity.read"]
    new = Seat(crew.url, "new", made["token"])
    briefing = await new.get("/briefing")
    assert (briefing["name"], briefing["role"]["title"], briefing["openObjectives"]) == ("new", "tester", [])
    assert "test" in briefing["instructions"]
    await boss.do("PUT", "/team/presets/lead", permissions=["objectives.create"])
    assert (await boss.do("PATCH", "/members/new", permissions="lead"))["permissions"] == ["objectives.create"]
    assert await boss.refused(409, "PATCH", "/members/boss", {"permissions": []})
    assert await ann.refused(403, "POST", "/members", {"name": "x", "role": {"title": "t"}})
    listed = {one["name"]: one for one in (await ann.get("/members"))["members"]}
    assert "instructions" not in listed["new"]
    assert listed["boss"]["permissions"] == ["team.manage", "members.manage"], "the hub's own are not shown"
    assert (await boss.ask("DELETE", "/members/new")).status == 204
    assert await new.refused(401, "GET", "/roster") == "unknown token"
    assert await boss.refused(404, "DELETE", "/members/new") == "no such member: new"


async def test_tokens_are_issued_listed_revoked_and_rotated(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    made = await ann.do("POST", "/members/ann/tokens", 201, label="laptop")
    laptop = Seat(crew.url, "ann", made["token"])
    assert [token["label"] for token in (await laptop.get("/members/ann/tokens"))["tokens"]] == ["", "laptop"]
    assert await bob.refused(403, "GET", "/members/ann/tokens")
    assert (await ann.ask("DELETE", f"/members/ann/tokens/{made['info']['id']}")).status == 204
    assert await laptop.refused(401, "GET", "/roster") == "unknown token"
    rotated = await ann.do("POST", "/members/ann/rotate-token")
    assert await ann.refused(401, "GET", "/roster")
    assert await Seat(crew.url, "ann", rotated["token"]).get("/roster")


async def test_a_rotated_token_comes_with_what_may_be_known_of_it_and_tokens_say_how_they_were_made(
    crew: Team,
) -> None:
    boss = await crew.seat("boss", "members.manage")
    made = await boss.do("POST", "/members", name="ann", role={"title": "t"})
    ann = Seat(crew.url, "ann", made["token"])

    async def origins() -> list[str]:
        return [token["origin"] for token in (await boss.get("/members/ann/tokens"))["tokens"]]

    assert await origins() == ["bootstrap"]
    assert (await ann.do("POST", "/members/ann/tokens", 201))["info"]["origin"] == "enroll"
    assert await origins() == ["bootstrap", "enroll"]
    rotated = await ann.do("POST", "/members/ann/rotate-token")
    listed = (await boss.get("/members/ann/tokens"))["tokens"]
    assert rotated["tokenInfo"]["origin"] == "rotate"
    assert listed == [rotated["tokenInfo"]]
    await boss.do("POST", "/members/ann/tokens", 201, label="laptop")
    assert await origins() == ["rotate", "enroll"]


async def test_the_roster_counts_streams_and_shows_who_is_busy(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    await crew.open(ann)
    await ann.ask("POST", "/presence/busy", {"busy": True})
    roster = await bob.get("/roster")
    assert [mate["name"] for mate in roster["teammates"]] == ["ann", "bob"]
    by_name = {one["name"]: one for one in roster["connected"]}
    assert (by_name["ann"]["connected"], by_name["ann"]["busy"]) == (1, True)
    assert by_name["bob"]["connected"] == 0
    assert "busy" not in by_name["bob"]
    await ann.ask("POST", "/presence/busy", {"busy": False})
    assert "busy" not in (await bob.get("/roster"))["connected"][0]


async def test_what_a_preset_loses_its_members_lose(crew: Team) -> None:
    boss = await crew.seat("boss", "members.manage", "team.manage")
    await boss.do("PUT", "/team/presets/lead", permissions=["objectives.create", "activity.read"])
    form: Json = {"role": {"title": "t"}, "permissions": ["lead", "objectives.watch"]}
    ann = Seat(crew.url, "ann", (await boss.do("POST", "/members", name="ann", **form))["token"])

    async def permissions() -> list[str]:
        found: list[str] = (await ann.get("/session"))["permissions"]
        return found

    assert await permissions() == ["objectives.create", "objectives.watch", "activity.read"]
    tail = await crew.follow(ann, "/members/boss/activity/stream")
    await boss.do("PUT", "/team/presets/lead", permissions=["objectives.create"])
    assert await permissions() == ["objectives.create", "objectives.watch"]
    assert isinstance(tail, EventReader)
    assert "lost the permission activity.read" in await tail.line()
    assert await ann.refused(403, "GET", "/members/boss/activity")
    await boss.do("PATCH", "/members/ann", role={"title": "u"})
    assert await boss.do("DELETE", "/team/presets/lead") == {"deleted": "lead", "referencedBy": ["ann"]}
    assert await permissions() == ["objectives.watch"]
    await boss.do("PUT", "/team/presets/lead", permissions=["objectives.create"])
    assert await permissions() == ["objectives.watch"], "a preset that is made again is another"


async def test_a_preset_that_somebody_has_is_changed_only_by_who_manages_members(crew: Team) -> None:
    boss = await crew.seat("boss", "members.manage", "team.manage")
    writer = await crew.seat("writer", "team.manage")
    await boss.do("PUT", "/team/presets/helper", permissions=[])
    await writer.do("PUT", "/team/presets/helper", permissions=["activity.read"])
    await boss.do("PATCH", "/members/writer", permissions=["team.manage", "helper"])
    await writer.refused(403, "PUT", "/team/presets/helper", {"permissions": ["members.manage"]})
    await writer.refused(403, "DELETE", "/team/presets/helper")
    await boss.do("PUT", "/team/presets/chief", permissions=["members.manage", "team.manage"])
    await boss.do("PATCH", "/members/boss", permissions="chief")
    await boss.refused(409, "PUT", "/team/presets/chief", {"permissions": ["team.manage"]})
    await boss.refused(409, "DELETE", "/team/presets/chief")
    await boss.refused(400, "PUT", "/team/presets/members.manage", {"permissions": []})


async def test_the_team_is_for_all_to_read_and_for_managers_to_change(crew: Team) -> None:
    boss, ann = await crew.seat("boss", "team.manage"), await crew.seat("ann")
    assert set((await ann.get("/team"))["team"]) == {"name", "directive", "context", "permissionPresets"}
    assert (await boss.do("PATCH", "/team", name="crew"))["team"]["name"] == "crew"
    assert await ann.refused(403, "PATCH", "/team", {"name": "x"})
    assert await ann.refused(403, "PUT", "/team/presets/lead", {"permissions": []})
    await boss.do("PUT", "/team/presets/lead", permissions=["activity.read"])
    assert (await ann.get("/team/presets"))["presets"] == {"lead": ["activity.read"]}
    assert await boss.do("DELETE", "/team/presets/lead") == {"deleted": "lead", "referencedBy": []}
    assert await boss.refused(404, "DELETE", "/team/presets/lead")
