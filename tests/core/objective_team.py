"""Test helper: a team of members that make, do and watch objectives."""

from typing import Any

from tests.core.doubles import BrokerHarness
from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.message import Message
from tieline.contract.refusal import Code
from tieline.contract.reply import ObjectiveList, ObjectiveState, ObjectiveView, SeenObjective

CHANGES: dict[type[o.Change], o.AnyChange] = {
    o.Block: o.Block("waiting for review"),
    o.Unblock: o.Unblock(),
    o.Complete: o.Complete("it works"),
    o.Cancel: o.Cancel("not needed"),
    o.Reassign: o.Reassign(MemberName("cy"), "bob is away"),
    o.Watch: o.Watch(add=(MemberName("cy"),)),
}


class Team:
    """Test helper with five members: ada makes objectives, bob does them, wes watches them, mo manages members.

    cy has no part in any objective.
    """

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.sessions = {
            "ada": harness.join("ada", "objectives.create"),
            "bob": harness.join("bob"),
            "wes": harness.join("wes"),
            "cy": harness.join("cy"),
            "mo": harness.join("mo", "members.manage"),
        }

    def join(self, name: str, *permissions: str) -> SessionId:
        self.sessions[name] = self.harness.join(name, *permissions)
        return self.sessions[name]

    def create(self, by: str = "ada", **fields: Any) -> SeenObjective:
        given = {"title": "ship it", "outcome": "users have it", "assignee": "bob", "watchers": ("wes",), **fields}
        command = c.CreateObjective(session=self.sessions[by], **given)
        return self.harness.expect(ObjectiveState, command).objective

    def change(self, by: str, objective: o.Objective, change: o.AnyChange) -> SeenObjective:
        return self.harness.expect(
            ObjectiveState, c.ChangeObjective(self.sessions[by], objective_id=objective.id, change=change)
        ).objective

    def refused(self, by: str, objective: o.Objective, change: o.AnyChange) -> Code:
        return self.harness.refused(c.ChangeObjective(self.sessions[by], objective_id=objective.id, change=change)).code

    def view(self, by: str, objective: o.Objective) -> ObjectiveView:
        return self.harness.expect(ObjectiveView, c.ViewObjective(self.sessions[by], objective_id=objective.id))

    def listed(self, by: str, **query: Any) -> list[str]:
        return [found.id for found in self.harness.expect(ObjectiveList, self.query(by, **query)).objectives]

    def query(self, by: str, **query: Any) -> c.ListObjectives:
        return c.ListObjectives(self.sessions[by], **query)

    def inbox(self, name: str) -> list[Message]:
        return [delivery.message for delivery in self.harness.fetch(self.sessions[name])]

    def told(self, name: str) -> list[str]:
        """Return the kinds of the objective events that the messages in a member's inbox tell of."""
        return [event_of(message)["kind"] for message in self.inbox(name)]

    def forget(self) -> None:
        """Acknowledge all deliveries of all members."""
        for session in self.sessions.values():
            for delivery in self.harness.fetch(session):
                self.harness.advance(session, delivery.key)

    def stand(self, status: o.Status) -> SeenObjective:
        """Make an objective and bring it into this status. Return the objective."""
        objective = self.create()
        steps: dict[o.Status, list[o.AnyChange]] = {
            o.Status.ACTIVE: [],
            o.Status.BLOCKED: [o.Block("stuck")],
            o.Status.DONE: [o.Complete("done")],
            o.Status.CANCELLED: [o.Cancel()],
        }
        for step in steps[status]:
            objective = self.change("ada" if isinstance(step, o.Cancel) else "bob", objective, step)
        return objective


def event_of(message: Message) -> dict[str, Any]:
    """Return the event in a message that tells of a change of an objective."""
    assert message.content.data is not None
    event = message.content.data["event"]
    assert isinstance(event, dict)
    return event
