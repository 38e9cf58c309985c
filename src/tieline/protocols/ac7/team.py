"""The team: routes for its name, directive and context, and for its permission presets.

Used by: the server. Uses: the interface `contract.hub`, which checks permissions.
"""

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.team import Team
from tieline.protocols.ac7 import codec
from tieline.protocols.ac7 import shapes as s
from tieline.wire.route import EXCERPT, Call, Refused, Route, no


def routes() -> list[Route]:
    """Return the routes for the team."""
    return [
        Route("GET", "/team", show),
        Route("PATCH", "/team", update),
        Route("GET", "/team/presets", presets),
        Route("PUT", "/team/presets/{name}", put_preset),
        Route("DELETE", "/team/presets/{name}", delete_preset, errors=(404,)),
    ]


async def show(call: Call, _: None) -> s.TeamResponse:
    """Read the details of the team."""
    return s.TeamResponse(codec.team(await _read(call)))


async def update(call: Call, form: s.UpdateTeam) -> s.TeamResponse:
    """Change details of the team. Needs team.manage."""
    changed = await call.get(
        lambda session: c.UpdateTeam(session, name=form.name, directive=form.directive, context=form.context),
        r.TeamState,
    )
    return s.TeamResponse(codec.team(changed.team))


async def presets(call: Call, _: None) -> s.PresetList:
    """List the presets, which are named sets of permissions."""
    return s.PresetList(codec.presets(await _read(call)))


async def put_preset(call: Call, form: s.PutPreset) -> s.PresetResponse:
    """Create or replace a preset. Needs team.manage, and members.manage if a member refers to the preset."""
    name = call.params["name"]
    kept = tuple(form.permissions)
    changed = await call.get(lambda session: c.UpdateTeam(session, presets={name: kept}), r.TeamState)
    return s.PresetResponse(s.Preset(name, codec.permissions(changed.team.presets[name])))


async def delete_preset(call: Call, _: None) -> s.DeletedPreset:
    """Delete a preset. Needs team.manage, and members.manage if a member refers to the preset."""
    name = call.params["name"]
    # The 404 comes after the permission check: a caller who may not change presets learns nothing else.
    known = await _read(call)
    members = (await call.get(c.ListMembers, r.Roster)).members
    await call.get(lambda session: c.UpdateTeam(session, presets={name: None}), r.TeamState)
    if name not in known.presets:
        raise Refused(no(404, f"no such preset: {name[:EXCERPT]}"))
    return s.DeletedPreset(name, [one.member.name for one in members if name in one.member.presets])


async def _read(call: Call) -> Team:
    return (await call.get(c.ReadTeam, r.TeamState)).team
