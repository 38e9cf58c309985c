"""Who may do what: every route, asked by everybody."""

from tests.protocols.ac7.teams import Seat, Team
from tieline.contract.permission import TEAM_PERMISSIONS
from tieline.protocols.ac7.server import DOCUMENT_PATH, Ac7

NEEDS = {
    ("POST", "/members"): "members.manage",
    ("PATCH", "/members/{name}"): "members.manage",
    ("DELETE", "/members/{name}"): "members.manage",
    ("POST", "/members/{name}/rotate-token"): "members.manage",
    ("GET", "/members/{name}/tokens"): "members.manage",
    ("POST", "/members/{name}/tokens"): "members.manage",
    ("DELETE", "/members/{name}/tokens/{id}"): "members.manage",
    ("PATCH", "/team"): "team.manage",
    ("PUT", "/team/presets/{name}"): "team.manage",
    ("DELETE", "/team/presets/{name}"): "team.manage",
    ("POST", "/objectives"): "objectives.create",
}
"""Routes that are for a permission alone, when it is about somebody else; all others look at what is asked for."""
BODIES = {
    ("POST", "/members"): {"name": "made", "role": {"title": "t"}},
    ("PUT", "/team/presets/{name}"): {"permissions": []},
    ("POST", "/objectives"): {"title": "t", "outcome": "o", "assignee": "nobody-here"},
}


async def routes(crew: Team) -> list[tuple[str, str]]:
    """Every route of the document."""
    paths = (await crew.stranger.get(DOCUMENT_PATH))["paths"]
    found = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert crew.there.hub.exchange is not None
    assert len(found) == len(Ac7(crew.there.hub.exchange, announce=False).table)
    return found


async def test_no_route_answers_without_a_token_that_opens_something(crew: Team) -> None:
    for method, path in await routes(crew):
        assert await crew.stranger.refused(401, method, path, {}) == "missing credentials", path
        assert await Seat(crew.url, "x", "wrong").refused(401, method, path, {}) == "unknown token", path


async def test_each_permission_opens_its_routes_and_no_others(crew: Team) -> None:
    known = await routes(crew)
    await crew.seat("target")
    await crew.seat("keeper", "members.manage")
    seats = {permission: await crew.seat(permission, permission) for permission in TEAM_PERMISSIONS}
    seats["nothing"] = await crew.seat("nothing")
    for method, path in known:
        needed = NEEDS.get((method, path))
        if needed is None:
            continue
        # Whoever may is last, because it may be the end of the target.
        for permission, seat in sorted(seats.items(), key=lambda item: item[0] == needed):
            asked = path.format(name="target", id="none")
            reply = await seat.ask(method, asked, BODIES.get((method, path), {}))
            if permission == needed:
                assert reply.status in {200, 201, 204, 400, 404}, (permission, method, path, reply)
            else:
                assert reply.status == 403, (permission, method, path, reply)
        if (method, path) == ("DELETE", "/members/{name}"):
            await crew.seat("target")
