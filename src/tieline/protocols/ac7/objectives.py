"""Objectives: routes to assign work, change its state and discuss it.

Used by: the server. Uses: the interface `contract.hub`, which checks permissions. In one transaction, the hub stores a
change and sends a message about the change to everybody in the objective's thread.
"""

from collections.abc import Sequence
from functools import partial

from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Attachment
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.ac7 import codec
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.messages import Messages, content_of, thread_target
from tieline.protocols.ac7.threads import objectives_of
from tieline.services.files.attachments import Attachments
from tieline.services.files.transfer import Transfers, given, reached
from tieline.services.files.tree import Viewer
from tieline.wire.route import Call, Query, Refused, Route, fail, no

_CHANGING = (404, 409, 429)
_UNKNOWN_NAME = frozenset({Code.UNKNOWN_MEMBER, Code.INVALID_NAME, Code.RESERVED_NAME})


class Objectives:
    """The HTTP operations on objectives."""

    def __init__(self, messages: Messages, attachments: Attachments, transfers: Transfers) -> None:
        self._messages = messages
        self._attachments = attachments
        self._transfers = transfers

    def routes(self) -> list[Route]:
        """Return the routes for objectives."""
        return [
            Route(
                "GET",
                "/objectives",
                listing,
                query=(
                    Query("assignee", "Only objectives of this assignee."),
                    Query(
                        "status",
                        "Only objectives with this status.",
                        {"type": "string", "enum": [status.value for status in o.Status]},
                    ),
                ),
            ),
            Route("POST", "/objectives", self.create, errors=(409, 429)),
            Route("GET", "/objectives/{id}", show, errors=(404,)),
            Route("PATCH", "/objectives/{id}", update, errors=_CHANGING),
            Route("POST", "/objectives/{id}/complete", complete, errors=_CHANGING),
            Route("POST", "/objectives/{id}/cancel", cancel, errors=_CHANGING),
            Route("POST", "/objectives/{id}/reassign", reassign, errors=_CHANGING),
            Route("POST", "/objectives/{id}/watchers", watch, errors=_CHANGING),
            Route("POST", "/objectives/{id}/discuss", self.discuss, errors=_CHANGING),
        ]

    async def create(self, call: Call, form: s.CreateObjective) -> s.ObjectiveShape:
        """Create an objective: work for a member, with an outcome."""
        paths = [one.path for one in form.attachments or ()]
        names = [call.member, form.assignee, *form.watchers]
        command = partial(
            c.CreateObjective,
            title=form.title,
            outcome=form.outcome,
            body=form.body,
            assignee=MemberName(form.assignee),
            watchers=tuple(MemberName(name) for name in form.watchers),
        )

        async def ask(attached: tuple[Attachment, ...], objective_id: o.ObjectiveId | None) -> Sequence[r.Reply]:
            return await call.ask(
                lambda session: (command(session=session, attachments=attached, objective_id=objective_id),)
            )

        viewer = await self._transfers.viewer(call, *paths) if paths else Viewer(call.member)
        return _state(given(await reached(self._attachments.copy(paths, viewer, names, ask))))

    async def discuss(self, call: Call, form: s.DiscussObjective) -> s.MessageShape:
        """Send a message to an objective's thread."""
        wanted = call.params["id"]
        # spec, The four thread types: originator, assignee, watchers and holders of members.manage are in the thread.
        # A member that may see the objective but is not in its thread gets 403. Any other outsider gets 404.
        await _view(call, wanted)
        attached = await self._messages.attached(call, form.attachments)
        content = content_of(thread_target(wanted), form.body, title=form.title, attachments=attached)
        try:
            accepted, *_ = await self._messages.send(call, content, str(content.target))
        except Refused as refused:
            if refused.reply.status == 404:  # noqa: PLR2004
                raise Refused(no(403, f"you are not in the thread of {wanted}")) from None
            raise
        return self._messages.sent(call, content, accepted)


async def listing(call: Call, _: None) -> s.ObjectiveListing:
    """List objectives, newest first. A member without the right to create objectives gets only its own."""
    status, assignee = call.query.get("status"), call.query.get("assignee")
    if status is not None and status not in {one.value for one in o.Status}:
        raise Refused(no(400, f"status is none of {', '.join(one.value for one in o.Status)}"))
    statuses = (o.Status(status),) if status is not None else ()
    whose = MemberName(assignee) if assignee is not None else None
    found = await objectives_of(call, statuses, whose)
    return s.ObjectiveListing([codec.objective(objective) for objective in found])


async def show(call: Call, _: None) -> s.ObjectiveWithEvents:
    """Show an objective with its event log, oldest first."""
    wanted = call.params["id"]
    first = await _view(call, wanted)
    events, seen = list(first.events), first
    while not seen.complete:
        seen = await _view(call, wanted, events[-1].offset)
        events += seen.events
    return s.ObjectiveWithEvents(codec.objective(seen.objective), [codec.happening(wanted, event) for event in events])


async def _view(call: Call, wanted: str, after: int = -1) -> r.ObjectiveView:
    replies = await call.ask(
        lambda session: (c.ViewObjective(session, objective_id=o.ObjectiveId(wanted), after=after),)
    )
    match replies:
        case (r.ObjectiveView() as seen,):
            return seen
        case _:
            raise fail(replies)


async def update(call: Call, form: s.UpdateObjective) -> s.ObjectiveShape:
    """Block an objective, or set it active again."""
    match form.status, form.block_reason:
        case "blocked", str(reason):
            return await _change(call, o.Block(reason))
        case "blocked", None:
            raise Refused(no(400, "blocked needs a blockReason"))
        case "active", _:
            return await _change(call, o.Unblock())
        case None, str(reason):
            seen = await _view(call, call.params["id"])
            if seen.objective.status is not o.Status.BLOCKED:
                raise Refused(no(400, "a blockReason goes with the status blocked"))
            return await _change(call, o.Block(reason))
        case _:
            raise Refused(no(400, "an update has a status, a blockReason, or both"))


async def complete(call: Call, form: s.CompleteObjective) -> s.ObjectiveShape:
    """Complete an objective with its result. Only for its assignee."""
    return await _change(call, o.Complete(form.result))


async def cancel(call: Call, form: s.CancelObjective | None) -> s.ObjectiveShape:
    """Cancel an objective."""
    return await _change(call, o.Cancel(form.reason if form is not None else None))


async def reassign(call: Call, form: s.ReassignObjective) -> s.ObjectiveShape:
    """Assign an objective to another member."""
    return await _change(call, o.Reassign(form.to, form.note))


async def watch(call: Call, form: s.UpdateWatchers) -> s.ObjectiveShape:
    """Add or remove watchers of an objective."""
    if not form.add and not form.remove:
        raise Refused(no(400, "watchers are added, removed, or both"))
    return await _change(call, o.Watch(form.add, form.remove))


async def _change(call: Call, change: o.AnyChange) -> s.ObjectiveShape:
    # spec, Objective lifecycle as channel events: the hub tells everybody in the thread, the one who acts too.
    wanted = o.ObjectiveId(call.params["id"])
    return _state(await call.ask(lambda session: (c.ChangeObjective(session, objective_id=wanted, change=change),)))


def _state(replies: Sequence[r.Reply]) -> s.ObjectiveShape:
    match replies:
        case (r.ObjectiveState(objective),):
            return codec.objective(objective)
        case (Refusal() as refusal,) if refusal.code in _UNKNOWN_NAME:
            # An unknown name in the body is an invalid request (400), not an unknown path (404).
            raise Refused(no(400, refusal.message, refusal.code.value))
        case _:
            raise fail(replies)
