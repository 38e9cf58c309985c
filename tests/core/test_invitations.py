"""Tests of invitations: who may join with one, how often, how long, and with whom it ends."""

from collections.abc import Callable

import msgspec
import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import START_MS, BrokerHarness
from tieline.contract import command as c
from tieline.contract.event import InvitationChanged
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.member import InvitationView, MemberKind
from tieline.contract.refusal import Code
from tieline.contract.reply import Done, Invitations, Invited, Issued
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.core.store import Store

ADA, BOB, EVE = MemberName("ada"), MemberName("bob"), MemberName("eve")
ROOM_TOKEN = "the token of the room"


@pytest.fixture
def operator(harness: BrokerHarness) -> SessionId:
    return harness.attach(None)


def listed(harness: BrokerHarness, session: SessionId) -> tuple[InvitationView, ...]:
    return harness.expect(Invitations, c.ListInvitations(session)).invitations


def test_somebody_joins_with_an_invitation_once(harness: BrokerHarness, operator: SessionId) -> None:
    made = harness.expect(Invited, c.Invite(operator, expires_at_ms=START_MS + 100))
    assert made.view == InvitationView(made.view.id, "", "operator", START_MS, START_MS + 100, 1)
    assert listed(harness, operator) == (made.view,)
    assert harness.expect(Invitations, c.ListInvitations(operator, secret=made.secret)).invitations == (made.view,)
    issued = harness.expect(Issued, c.AcceptInvitation(operator, name=BOB, secret=made.secret))
    assert harness.attach_by_token(issued.token)
    assert listed(harness, operator) == ()
    assert harness.refused(c.AcceptInvitation(operator, name=EVE, secret=made.secret)).code is Code.UNAUTHORIZED
    told = [(one.by, one.what) for one in harness.events() if isinstance(one, InvitationChanged)]
    assert told == [("operator", "made"), ("bob", "used"), ("hub", "used up")]


def test_the_secret_of_an_invitation_is_in_no_event_and_in_no_stored_value(
    harness: BrokerHarness, operator: SessionId
) -> None:
    secret = harness.expect(Invited, c.Invite(operator)).secret
    harness.ask(c.AcceptInvitation(operator, name=BOB, secret="wrong"))
    stored = harness.broker.store.restore().settings
    for text in (*(row.event for row in harness.log()), *stored.values()):
        assert secret.encode() not in text


def test_an_invitation_has_as_many_uses_as_its_maker_said(harness: BrokerHarness, operator: SessionId) -> None:
    secret = harness.expect(Invited, c.Invite(operator, uses=2)).secret
    harness.expect(Issued, c.AcceptInvitation(operator, name=BOB, secret=secret))
    (left,) = listed(harness, operator)
    assert (left.uses, left.joined) == (1, ("bob",))
    # A refused name uses nothing up.
    assert harness.refused(c.AcceptInvitation(operator, name=BOB, secret=secret)).code is Code.NAME_TAKEN
    harness.expect(Issued, c.AcceptInvitation(operator, name=EVE, secret=secret))
    assert listed(harness, operator) == ()


def test_members_who_join_have_the_kind_of_the_invitation(harness: BrokerHarness, operator: SessionId) -> None:
    secret = harness.expect(Invited, c.Invite(operator, kind=MemberKind.HUMAN)).secret
    plain = harness.expect(Invited, c.Invite(operator)).secret
    harness.restart()
    operator = harness.attach(None)
    harness.expect(Issued, c.AcceptInvitation(operator, name=ADA, secret=secret))
    harness.expect(Issued, c.AcceptInvitation(operator, name=BOB, secret=plain))
    assert [harness.roster()[name].member.kind for name in (ADA, BOB)] == [MemberKind.HUMAN, MemberKind.AGENT]


def test_an_invitation_ends_by_its_time(harness: BrokerHarness, operator: SessionId) -> None:
    secret = harness.expect(Invited, c.Invite(operator, expires_at_ms=START_MS + 10)).secret
    harness.clock_and_ids.time_ms += 10
    assert listed(harness, operator) == ()
    assert harness.refused(c.AcceptInvitation(operator, name=BOB, secret=secret)).code is Code.UNAUTHORIZED
    # The next one clears it away, and the log says so.
    harness.expect(Invited, c.Invite(operator))
    assert "expired" in [one.what for one in harness.events() if isinstance(one, InvitationChanged)]


def test_an_invitation_for_a_name_is_for_no_other(harness: BrokerHarness, operator: SessionId) -> None:
    secret = harness.expect(Invited, c.Invite(operator, member=BOB)).secret
    assert harness.refused(c.AcceptInvitation(operator, name=EVE, secret=secret)).code is Code.FORBIDDEN
    harness.expect(Issued, c.AcceptInvitation(operator, name=BOB, secret=secret))
    assert harness.refused(c.Invite(operator, member=BOB)).code is Code.NAME_TAKEN
    assert harness.refused(c.Invite(operator, member=MemberName("no name"))).code is Code.INVALID_NAME


def test_a_revoked_invitation_admits_nobody_and_members_stay(harness: BrokerHarness, operator: SessionId) -> None:
    made = harness.expect(Invited, c.Invite(operator, uses=2))
    issued = harness.expect(Issued, c.AcceptInvitation(operator, name=BOB, secret=made.secret))
    harness.expect(Done, c.RevokeInvitation(operator, invitation_id=made.view.id))
    assert harness.refused(c.AcceptInvitation(operator, name=EVE, secret=made.secret)).code is Code.UNAUTHORIZED
    assert harness.attach_by_token(issued.token)
    again = harness.refused(c.RevokeInvitation(operator, invitation_id=made.view.id))
    assert again.code is Code.UNKNOWN_INVITATION


def test_with_a_member_ends_all_that_it_could_join_with(harness: BrokerHarness, operator: SessionId) -> None:
    ada = harness.join("ada", "members.manage")
    by_ada = harness.expect(Invited, c.Invite(ada, uses=5)).secret
    other = harness.expect(Invited, c.Invite(operator, uses=5)).secret
    known = harness.expect(Invited, c.Invite(operator, uses=5)).secret
    harness.expect(Issued, c.AcceptInvitation(operator, name=BOB, secret=known))
    for_eve = harness.expect(Invited, c.Invite(operator, member=EVE)).secret
    harness.add("eve")
    for name in ("ada", "bob", "eve"):
        harness.remove(name)
    for number, secret in enumerate((by_ada, known, for_eve)):
        refusal = harness.refused(c.AcceptInvitation(operator, name=MemberName(f"n{number}"), secret=secret))
        assert refusal.code is Code.UNAUTHORIZED
    harness.expect(Issued, c.AcceptInvitation(operator, name=MemberName("zoe"), secret=other))


@pytest.mark.parametrize(
    "make",
    [
        c.Invite,
        c.ListInvitations,
        lambda session: c.RevokeInvitation(session, invitation_id="x"),
        lambda session: c.AcceptInvitation(session, name=BOB, secret="x"),
    ],
)
def test_only_those_who_manage_members_may(harness: BrokerHarness, make: Callable[[SessionId], c.Command]) -> None:
    assert harness.refused(make(harness.join("ada"))).code is Code.FORBIDDEN


@pytest.mark.parametrize(
    "fields", [{"uses": 0}, {"uses": 1001}, {"expires_at_ms": START_MS}, {"member": BOB, "uses": 2}]
)
def test_an_invitation_that_could_not_work_is_refused(
    harness: BrokerHarness, operator: SessionId, fields: dict[str, int]
) -> None:
    assert harness.refused(c.Invite(operator, **fields)).code is Code.INVALID_REQUEST  # type: ignore[arg-type]  # wrong


def test_there_are_only_so_many_invitations(make_harness: MakeHarness) -> None:
    harness = make_harness(msgspec.structs.replace(DEFAULT_LIMITS, invitations_max=2))
    operator = harness.attach(None)
    for _ in range(2):
        harness.expect(Invited, c.Invite(operator, expires_at_ms=START_MS + 10))
    assert harness.refused(c.Invite(operator)).code is Code.TOO_MANY_INVITATIONS
    harness.clock_and_ids.time_ms += 10
    harness.expect(Invited, c.Invite(operator))


def test_invitations_are_there_after_a_restart_and_after_a_failed_commit(
    harness: BrokerHarness, operator: SessionId
) -> None:
    secret = harness.expect(Invited, c.Invite(operator, uses=2)).secret
    harness.decide(c.AcceptInvitation(operator, name=EVE, secret=secret))
    harness.roll_back()
    assert [one.uses for one in listed(harness, operator)] == [2]
    harness.restart()
    operator = harness.attach(None)
    assert [one.uses for one in listed(harness, operator)] == [2]
    harness.expect(Issued, c.AcceptInvitation(operator, name=BOB, secret=secret))


class Room:
    """A broker whose configuration has a room token, opened again with `configured`."""

    def __init__(self, harness: BrokerHarness, open_store: Callable[[], Store]) -> None:
        self._harness = harness
        self._open_store = open_store

    def opened(self, configured: str) -> SessionId:
        """Start the broker again with this room token. Return an operator's session."""
        harness = self._harness
        harness.broker.close()
        harness.broker = Broker(
            self._open_store(),
            harness.clock_and_ids,
            home_key=harness.broker.home_key,
            room_token=token_digest(configured) if configured else None,
        )
        return harness.attach(None)


@pytest.fixture
def room(harness: BrokerHarness, open_store: Callable[[], Store]) -> Room:
    return Room(harness, open_store)


def admits(harness: BrokerHarness, session: SessionId, secret: str) -> bool:
    return bool(harness.expect(Invitations, c.ListInvitations(session, secret=secret)).invitations)


def test_the_room_token_is_an_invitation_without_an_end(harness: BrokerHarness, room: Room) -> None:
    operator = room.opened(ROOM_TOKEN)
    assert listed(harness, operator) == (InvitationView("room", "", "tieline.toml", 0, None, None),)
    for name in (ADA, BOB):
        harness.expect(Issued, c.AcceptInvitation(operator, name=name, secret=ROOM_TOKEN))
    assert admits(harness, operator, ROOM_TOKEN)


def test_a_replaced_room_token_stays_refused_until_the_configuration_has_another(
    harness: BrokerHarness, room: Room
) -> None:
    operator = room.opened(ROOM_TOKEN)
    new = harness.expect(Invited, c.Invite(operator, room=True)).secret
    assert (admits(harness, operator, ROOM_TOKEN), admits(harness, operator, new)) == (False, True)
    operator = room.opened(ROOM_TOKEN)
    assert (admits(harness, operator, ROOM_TOKEN), admits(harness, operator, new)) == (False, True)
    operator = room.opened("another token of the room")
    assert (admits(harness, operator, "another token of the room"), admits(harness, operator, new)) == (True, False)


def test_a_revoked_room_token_stays_revoked_after_a_restart(harness: BrokerHarness, room: Room) -> None:
    operator = room.opened(ROOM_TOKEN)
    harness.expect(Done, c.RevokeInvitation(operator, invitation_id="room"))
    operator = room.opened(ROOM_TOKEN)
    assert listed(harness, operator) == ()


def test_a_hub_without_a_room_token_has_none_to_replace(harness: BrokerHarness, room: Room) -> None:
    operator = room.opened("")
    assert harness.refused(c.Invite(operator, room=True)).code is Code.INVALID_REQUEST
