"""Tests of the team: descriptions of the team and its members, permissions, and which members are busy."""

import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Registered, TeamChanged
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import ByShared, ByUser, MemberKind, Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, Done, Issued, MemberState, Roster, TeamState
from tieline.contract.team import Team

ADA, MO = MemberName("ada"), MemberName("mo")
NOBODY = SessionId("")
"""Session id in commands of a parameter list. Each test replaces it by the id of a real session."""


# Members.


def test_a_member_can_be_made_with_a_role(harness: BrokerHarness) -> None:
    command = c.AddMember(harness.operator, name=ADA, title="lead", description="leads", instructions="lead us")
    harness.expect(Issued, command)
    member = harness.roster()["ada"].member
    assert (member.title, member.description, member.instructions) == ("lead", "leads", "lead us")


def test_a_members_role_and_permissions_can_be_changed(harness: BrokerHarness) -> None:
    harness.add("ada", "log.read")
    mo = harness.join("mo", "members.manage")
    ada = harness.attach("ada")
    changed = harness.expect(MemberState, c.UpdateMember(mo, name=ADA, title="lead", instructions="lead us")).member
    assert (changed.title, changed.instructions, changed.permissions) == ("lead", "lead us", ("log.read",))
    words = ("objectives.create", "activity.read", "activity.read")
    changed = harness.expect(MemberState, c.UpdateMember(mo, name=ADA, permissions=words, title="")).member
    assert (changed.permissions, changed.title) == (("activity.read", "objectives.create"), "")
    # It counts for sessions that are open already.
    create = c.CreateObjective(session=ada, title="t", outcome="o", assignee=ADA)
    assert not isinstance(harness.ask(create), Refusal)
    events = [event.what for event in harness.events() if isinstance(event, Registered) and event.by == "mo"]
    assert events == ["role", "permissions"]


def test_what_changes_nothing_is_no_event(harness: BrokerHarness) -> None:
    harness.add("ada")
    end = harness.broker.ledger.end
    harness.expect(MemberState, c.UpdateMember(harness.operator, name=ADA, permissions=(), title=""))
    assert harness.broker.ledger.end == end


def test_only_those_who_manage_members_change_them(harness: BrokerHarness) -> None:
    ada = harness.join("ada", "team.manage")
    assert harness.refused(c.UpdateMember(ada, name=ADA, permissions=("members.manage",))).code is Code.FORBIDDEN
    mo = harness.join("mo", "members.manage")
    assert harness.refused(c.UpdateMember(mo, name=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER


def test_the_last_who_manages_members_stays_able_to(harness: BrokerHarness) -> None:
    mo = harness.join("mo", "members.manage")
    assert harness.refused(c.UpdateMember(mo, name=MO, permissions=())).code is Code.LAST_MANAGER
    assert harness.refused(c.RemoveMember(mo, name=MO)).code is Code.LAST_MANAGER
    harness.add("ada")
    harness.expect(MemberState, c.UpdateMember(mo, name=ADA, permissions=("members.manage",)))
    harness.expect(MemberState, c.UpdateMember(mo, name=MO, permissions=()))
    assert harness.refused(c.UpdateMember(mo, name=ADA)).code is Code.FORBIDDEN


def test_whoever_holds_the_key_of_the_home_needs_nobody_who_manages_members(harness: BrokerHarness) -> None:
    harness.add("mo", "members.manage")
    harness.expect(MemberState, c.UpdateMember(harness.operator, name=MO, permissions=()))
    harness.expect(MemberState, c.UpdateMember(harness.operator, name=MO, permissions=("members.manage",)))
    harness.remove("mo")


def test_instructions_are_between_a_member_and_those_who_manage_members(harness: BrokerHarness) -> None:
    harness.expect(Issued, c.AddMember(harness.operator, name=ADA, instructions="lead us"))
    bob, mo = harness.join("bob"), harness.join("mo", "members.manage")
    seen = {}
    for name, session in (("ada", harness.attach("ada")), ("bob", bob), ("mo", mo)):
        roster = harness.expect(Roster, c.ListMembers(session))
        seen[name] = next(one.member.instructions for one in roster.members if one.member.name == "ada")
    assert seen == {"ada": "lead us", "bob": "", "mo": "lead us"}


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_member_refers_to_its_presets_and_a_restart_changes_nothing_of_it(harness: BrokerHarness, how: str) -> None:
    def shown() -> tuple[tuple[str, ...], tuple[str, ...]]:
        member = harness.roster()["ada"].member
        return member.permissions, member.presets

    def change(**presets: tuple[str, ...] | None) -> None:
        harness.expect(TeamState, c.UpdateTeam(harness.operator, presets=presets))

    harness.add("ada", "lead", "log.read", "strange")
    assert shown() == (("lead", "log.read", "strange"), ()), "without such a preset it is a word that gives nothing"
    change(lead=("team.manage", "log.read"))
    for _ in range(2):
        assert shown() == (("log.read", "strange", "team.manage"), ("lead",))
        getattr(harness, how)()
    before = len([event for event in harness.events() if isinstance(event, Registered)])
    change(lead=("activity.read",))
    assert shown() == (("activity.read", "log.read", "strange"), ("lead",)), "its own permission stays"
    changes = [event for event in harness.events() if isinstance(event, Registered)][before:]
    assert [(event.member, event.what) for event in changes] == [("ada", "permissions")]
    change(lead=None)
    getattr(harness, how)()
    change(lead=("members.manage",))
    assert shown() == (("log.read", "strange"), ())


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_changes_are_there_after_a_restart(harness: BrokerHarness, how: str) -> None:
    harness.add("ada")
    about = {"title": "lead", "description": "leads", "instructions": "lead us"}
    update = c.UpdateMember(
        harness.operator, name=ADA, permissions=("members.manage",), kind=MemberKind.SCRIPT, **about
    )
    harness.expect(MemberState, update)
    team = harness.expect(TeamState, c.UpdateTeam(harness.operator, name="us", presets={"lead": ("team.manage",)})).team
    before = harness.roster()["ada"].member
    getattr(harness, how)()
    assert harness.roster()["ada"].member == before
    assert harness.expect(TeamState, c.ReadTeam(harness.operator)).team == team
    assert list(harness.broker.directory.managers) == [1]


@pytest.mark.parametrize(
    "command",
    [
        c.UpdateMember(NOBODY, name=ADA, title="x" * 20_000),
        c.UpdateMember(NOBODY, name=ADA, instructions="\ud800"),
        c.UpdateMember(NOBODY, name=ADA, permissions=("x" * 200,)),
        c.UpdateMember(NOBODY, name=ADA, permissions=("",)),
        c.UpdateMember(NOBODY, name=ADA, permissions=tuple(str(number) for number in range(101))),
        c.AddMember(NOBODY, name=MemberName("new"), title="x" * 20_000),
        c.AddMember(NOBODY, name=MemberName("new"), permissions=("",)),
        c.UpdateTeam(NOBODY, name="x" * 20_000),
        c.UpdateTeam(NOBODY, presets={"": ()}),
        c.UpdateTeam(NOBODY, presets={"lead": ("",)}),
        c.UpdateTeam(NOBODY, presets={str(number): () for number in range(101)}),
    ],
    ids=lambda command: f"{type(command).__name__}",
)
def test_texts_and_words_have_limits(
    harness: BrokerHarness, command: c.UpdateMember | c.AddMember | c.UpdateTeam
) -> None:
    harness.add("ada")
    fields = {field: getattr(command, field) for field in command.__struct_fields__}
    refused = harness.refused(type(command)(**{**fields, "session": harness.operator}))
    assert refused.code is Code.INVALID_REQUEST


# The team.


def test_the_team_is_said_to_every_member_and_changed_by_who_may(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada", "team.manage"), harness.join("bob", "members.manage")
    assert harness.expect(TeamState, c.ReadTeam(bob)).team == Team()
    harness.expect(TeamState, c.UpdateTeam(ada, name="us", directive="ship", context="the repository"))
    harness.expect(TeamState, c.UpdateTeam(ada, directive="ship it"))
    assert harness.expect(TeamState, c.ReadTeam(bob)).team == Team("us", "ship it", "the repository")
    assert harness.refused(c.UpdateTeam(bob, name="mine")).code is Code.FORBIDDEN
    changed = [event for event in harness.events() if isinstance(event, TeamChanged)]
    assert changed == [TeamChanged("ada", "name, directive, context"), TeamChanged("ada", "directive")]


def test_the_team_is_not_said_to_those_without_an_identity(harness: BrokerHarness) -> None:
    stranger = harness.expect(Attached, c.Attach(protocol="hub", credential=Unnamed("client-1", "dev"))).session
    assert harness.refused(c.ReadTeam(stranger)).code is Code.FORBIDDEN


def test_presets_are_kept_and_forgotten_by_name(harness: BrokerHarness) -> None:
    presets = {"lead": ("team.manage", "members.manage"), "watch": ("objectives.watch",)}
    team = harness.expect(TeamState, c.UpdateTeam(harness.operator, presets={**presets})).team
    assert team.presets == {"lead": ("members.manage", "team.manage"), "watch": ("objectives.watch",)}
    team = harness.expect(TeamState, c.UpdateTeam(harness.operator, presets={"lead": None, "nobody": None})).team
    assert team.presets == {"watch": ("objectives.watch",)}


# Members at work.


def test_a_member_is_busy_since_the_first_of_its_reports(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    began_ms = harness.clock_and_ids.time_ms
    for _ in range(3):
        harness.expect(Done, c.SetBusy(ada, busy=True))
        harness.pass_ms(20_000)
    assert harness.roster()["ada"].busy_since_ms == began_ms
    harness.pass_ms(20_000)
    assert harness.roster()["ada"].busy_since_ms is None
    harness.expect(Done, c.SetBusy(ada, busy=True))
    assert harness.roster()["ada"].busy_since_ms == harness.clock_and_ids.time_ms


def test_a_member_is_shown_with_its_last_evidence(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob")
    harness.offered(bob, 1)
    assert harness.roster()["bob"].evidence is None
    harness.advance(bob, 1, State.SEEN, "a hook showed it")
    evidence = harness.roster()["bob"].evidence
    assert evidence is not None
    assert (evidence.state, evidence.evidence, evidence.at_ms) == (
        State.SEEN,
        "a hook showed it",
        harness.clock_and_ids.time_ms,
    )


def test_a_member_is_busy_for_a_while_after_it_said_so(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    assert not harness.roster()["ada"].busy
    harness.expect(Done, c.SetBusy(ada, busy=True))
    harness.pass_ms(29_999)
    assert harness.roster()["ada"].busy
    harness.pass_ms(1)
    assert not harness.roster()["ada"].busy
    harness.expect(Done, c.SetBusy(ada, busy=True))
    harness.expect(Done, c.SetBusy(ada, busy=False))
    assert not harness.roster()["ada"].busy
    assert harness.refused(c.SetBusy(harness.operator, busy=True)).code is Code.INVALID_REQUEST


# Other names.


def test_a_message_to_an_alias_reaches_the_member_and_says_so(harness: BrokerHarness) -> None:
    ada, mo = harness.join("ada"), harness.join("mo")
    harness.expect(TeamState, c.UpdateTeam(harness.operator, aliases={"boss": "mo"}))
    harness.expect(Accepted, c.Send(ada, content=content("@boss")))
    (delivery,) = harness.fetch(mo)
    assert str(delivery.message.content.target) == "@mo"
    assert delivery.message.content.notes == ("written to the alias @boss",)
    harness.expect(TeamState, c.UpdateTeam(harness.operator, aliases={"boss": None}))
    assert harness.refused(c.Send(ada, content=content("@boss"))).code is Code.UNKNOWN_MEMBER


@pytest.mark.parametrize(
    ("alias", "name", "code"),
    [
        ("no name", "mo", Code.INVALID_NAME),
        ("ADA", "mo", Code.NAME_TAKEN),
        ("boss", "nobody", Code.UNKNOWN_MEMBER),
    ],
)
def test_an_alias_is_a_free_name_of_somebody_who_is_there(
    harness: BrokerHarness, alias: str, name: str, code: Code
) -> None:
    harness.add("ada")
    harness.add("mo")
    assert harness.refused(c.UpdateTeam(harness.operator, aliases={alias: name})).code is code


@pytest.mark.parametrize("name", ["boss", "Boss"])
def test_nobody_becomes_a_member_under_the_alias_of_another(harness: BrokerHarness, name: str) -> None:
    harness.add("mo")
    harness.expect(TeamState, c.UpdateTeam(harness.operator, aliases={"boss": "mo"}))
    for credential in (ByUser(), ByShared("shared-token-of-the-team")):
        attach = c.Attach(protocol="relay", credential=credential, member=MemberName(name))
        assert harness.refused(attach).code is Code.NAME_TAKEN
    itself = c.AddMember(harness.operator, name=MemberName(name), self_named=True)
    assert harness.refused(itself).code is Code.NAME_TAKEN
    harness.expect(Issued, c.AddMember(harness.operator, name=MemberName(name)))


def test_there_are_only_so_many_aliases(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(permissions_max=2))
    harness.add("mo")
    harness.expect(TeamState, c.UpdateTeam(harness.operator, aliases={"boss": "mo", "chief": "mo"}))
    refusal = harness.refused(c.UpdateTeam(harness.operator, aliases={"lead": "mo"}))
    assert (refusal.code, refusal.message) == (Code.INVALID_REQUEST, "more than 2 aliases")
    changed = harness.expect(TeamState, c.UpdateTeam(harness.operator, aliases={"boss": None, "lead": "mo"}))
    assert changed.team.aliases == {"chief": "mo", "lead": "mo"}


def test_a_name_wins_over_an_alias_and_other_targets_have_none(harness: BrokerHarness) -> None:
    ada, mo = harness.join("ada"), harness.join("mo")
    harness.expect(TeamState, c.UpdateTeam(harness.operator, aliases={"boss": "mo"}))
    for target in ("@mo", "*"):
        harness.expect(Accepted, c.Send(ada, content=content(target)))
    assert [delivery.message.content.notes for delivery in harness.fetch(mo)] == [(), ()]
    assert harness.refused(c.Send(ada, content=content("@bos"))).code is Code.UNKNOWN_MEMBER
