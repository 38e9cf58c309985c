"""The team: what it is for, and named sets of permissions.

Above: the server. Below: the Hub port, which decides who may.
"""

from collections.abc import Sequence

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.team import Team
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7 import view
from tieline.protocols.ac7.route import Call, Refused, Route, fail, no

_EXCERPT = 140


def routes() -> list[Route]:
    """The operations."""
    return [
        Route(method="GET", path="/team", summary="The team.", handler=show, reply=s.TeamResponse),
        Route(
            method="PATCH",
            path="/team",
            summary="Change what is said about the team; needs team.manage.",
            handler=update,
            body=s.UpdateTeam,
            reply=s.TeamResponse,
        ),
        Route(
            method="GET",
            path="/team/presets",
            summary="Sets of permissions by name.",
            handler=presets,
            reply=s.PresetList,
        ),
        Route(
            method="PUT",
            path="/team/presets/{name}",
            summary="Keep a set of permissions under a name; needs team.manage.",
            handler=put_preset,
            body=s.PutPreset,
            reply=s.PresetResponse,
        ),
        Route(
            method="DELETE",
            path="/team/presets/{name}",
            summary="Forget a set of permissions; needs team.manage.",
            handler=delete_preset,
            reply=s.DeletedPreset,
            errors=(404,),
        ),
    ]


async def show(call: Call, _: None) -> s.TeamResponse:
    """The team."""
    return s.TeamResponse(view.team(await _read(call)))


async def update(call: Call, form: s.UpdateTeam) -> s.TeamResponse:
    """Change what is said about the team."""
    replies = await call.ask(lambda session: (c.UpdateTeam(session, form.name, form.directive, form.context),))
    return s.TeamResponse(view.team(_team(replies)))


async def presets(call: Call, _: None) -> s.PresetList:
    """Sets of permissions by name."""
    return s.PresetList(view.presets(await _read(call)))


async def put_preset(call: Call, form: s.PutPreset) -> s.PresetResponse:
    """Keep a set of permissions."""
    name = call.params["name"]
    replies = await call.ask(lambda session: (c.UpdateTeam(session, presets={name: tuple(form.permissions)}),))
    team = _team(replies)
    return s.PresetResponse(s.Preset(name, view.permissions(team.presets[name])))


async def delete_preset(call: Call, _: None) -> s.DeletedPreset:
    """Forget a set of permissions."""
    name = call.params["name"]
    # In this order, so that who may not change presets learns nothing else.
    known = await _read(call)
    _team(await call.ask(lambda session: (c.UpdateTeam(session, presets={name: None}),)))
    if name not in known.presets:
        raise Refused(no(404, f"no such preset: {name[:_EXCERPT]}"))
    return s.DeletedPreset(name, [])


async def _read(call: Call) -> Team:
    return _team(await call.ask(lambda session: (c.ReadTeam(session),)))


def _team(replies: Sequence[r.Reply]) -> Team:
    match replies:
        case (r.TeamState(team),):
            return team
        case _:
            raise fail(replies)
