"""The team: what is said about it and its members, what they may do, and who is at work."""

import pytest

from tests.core.doubles import Desk, content
from tieline.contract import command as c
from tieline.contract.event import Registered, TeamChanged
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import MemberKind
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Done, Issued, MemberState, Roster, TeamState
from tieline.contract.team import Team

ADA, MO = MemberName("ada"), MemberName("mo")
NOBODY = SessionId("")
"""In place of the session that a test will have."""


# Members.


def test_a_member_can_be_made_with_a_role(desk: Desk) -> None:
    command = c.AddMember(desk.operator, name=ADA, title="lead", description="leads", instructions="lead us")
    desk.expect(Issued, command)
    member = desk.roster()["ada"].member
    assert (member.title, member.description, member.instructions) == ("lead", "leads", "lead us")


def test_a_members_role_and_permissions_can_be_changed(desk: Desk) -> None:
    desk.add("ada", "log.read")
    mo = desk.join("mo", "members.manage")
    ada = desk.attach("ada")
    changed = desk.expect(MemberState, c.UpdateMember(mo, name=ADA, title="lead", instructions="lead us")).member
    assert (changed.title, changed.instructions, changed.permissions) == ("lead", "lead us", ("log.read",))
    words = ("objectives.create", "activity.read", "activity.read")
    changed = desk.expect(MemberState, c.UpdateMember(mo, name=ADA, permissions=words, title="")).member
    assert (changed.permissions, changed.title) == (("activity.read", "objectives.create"), "")
    # It counts for sessions that are open already.
    create = c.CreateObjective(session=ada, title="t", outcome="o", assignee=ADA)
    assert not isinstance(desk.ask(create), Refusal)
    events = [event.what for event in desk.events() if isinstance(event, Registered) and event.by == "mo"]
    assert events == ["role", "permissions"]


def test_what_changes_nothing_is_no_event(desk: Desk) -> None:
    desk.add("ada")
    end = desk.broker.ledger.end
    desk.expect(MemberState, c.UpdateMember(desk.operator, name=ADA, permissions=(), title=""))
    assert desk.broker.ledger.end == end


def test_only_those_who_manage_members_change_them(desk: Desk) -> None:
    ada = desk.join("ada", "team.manage")
    assert desk.refused(c.UpdateMember(ada, name=ADA, permissions=("members.manage",))).code is Code.FORBIDDEN
    mo = desk.join("mo", "members.manage")
    assert desk.refused(c.UpdateMember(mo, name=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER


def test_the_last_who_manages_members_stays_able_to(desk: Desk) -> None:
    mo = desk.join("mo", "members.manage")
    assert desk.refused(c.UpdateMember(mo, name=MO, permissions=())).code is Code.LAST_MANAGER
    assert desk.refused(c.RemoveMember(mo, name=MO)).code is Code.LAST_MANAGER
    desk.add("ada")
    desk.expect(MemberState, c.UpdateMember(mo, name=ADA, permissions=("members.manage",)))
    desk.expect(MemberState, c.UpdateMember(mo, name=MO, permissions=()))
    assert desk.refused(c.UpdateMember(mo, name=ADA)).code is Code.FORBIDDEN


def test_whoever_holds_the_key_of_the_home_needs_nobody_who_manages_members(desk: Desk) -> None:
    desk.add("mo", "members.manage")
    desk.expect(MemberState, c.UpdateMember(desk.operator, name=MO, permissions=()))
    desk.expect(MemberState, c.UpdateMember(desk.operator, name=MO, permissions=("members.manage",)))
    desk.remove("mo")


def test_instructions_are_between_a_member_and_those_who_manage_members(desk: Desk) -> None:
    desk.expect(Issued, c.AddMember(desk.operator, name=ADA, instructions="lead us"))
    bob, mo = desk.join("bob"), desk.join("mo", "members.manage")
    seen = {}
    for name, session in (("ada", desk.attach("ada")), ("bob", bob), ("mo", mo)):
        roster = desk.expect(Roster, c.ListMembers(session))
        seen[name] = next(one.member.instructions for one in roster.members if one.member.name == "ada")
    assert seen == {"ada": "lead us", "bob": "", "mo": "lead us"}


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_changes_are_there_after_a_restart(desk: Desk, how: str) -> None:
    desk.add("ada")
    about = {"title": "lead", "description": "leads", "instructions": "lead us"}
    update = c.UpdateMember(desk.operator, name=ADA, permissions=("members.manage",), kind=MemberKind.SCRIPT, **about)
    desk.expect(MemberState, update)
    team = desk.expect(TeamState, c.UpdateTeam(desk.operator, name="us", presets={"lead": ("team.manage",)})).team
    before = desk.roster()["ada"].member
    getattr(desk, how)()
    assert desk.roster()["ada"].member == before
    assert desk.expect(TeamState, c.ReadTeam(desk.operator)).team == team
    assert list(desk.broker.directory.managers) == [1]


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
def test_texts_and_words_have_limits(desk: Desk, command: c.UpdateMember | c.AddMember | c.UpdateTeam) -> None:
    desk.add("ada")
    fields = {field: getattr(command, field) for field in command.__struct_fields__}
    refused = desk.refused(type(command)(**{**fields, "session": desk.operator}))
    assert refused.code is Code.INVALID_REQUEST


# The team.


def test_the_team_is_said_to_every_member_and_changed_by_who_may(desk: Desk) -> None:
    ada, bob = desk.join("ada", "team.manage"), desk.join("bob", "members.manage")
    assert desk.expect(TeamState, c.ReadTeam(bob)).team == Team()
    desk.expect(TeamState, c.UpdateTeam(ada, name="us", directive="ship", context="the repository"))
    desk.expect(TeamState, c.UpdateTeam(ada, directive="ship it"))
    assert desk.expect(TeamState, c.ReadTeam(bob)).team == Team("us", "ship it", "the repository")
    assert desk.refused(c.UpdateTeam(bob, name="mine")).code is Code.FORBIDDEN
    changed = [event for event in desk.events() if isinstance(event, TeamChanged)]
    assert changed == [TeamChanged("ada", "name, directive, context"), TeamChanged("ada", "directive")]


def test_presets_are_kept_and_forgotten_by_name(desk: Desk) -> None:
    presets = {"lead": ("team.manage", "members.manage"), "watch": ("objectives.watch",)}
    team = desk.expect(TeamState, c.UpdateTeam(desk.operator, presets={**presets})).team
    assert team.presets == {"lead": ("members.manage", "team.manage"), "watch": ("objectives.watch",)}
    team = desk.expect(TeamState, c.UpdateTeam(desk.operator, presets={"lead": None, "nobody": None})).team
    assert team.presets == {"watch": ("objectives.watch",)}


# Who is at work.


def test_a_member_is_busy_for_a_while_after_it_said_so(desk: Desk) -> None:
    ada = desk.join("ada")
    assert not desk.roster()["ada"].busy
    desk.expect(Done, c.SetBusy(ada, busy=True))
    desk.pass_ms(29_999)
    assert desk.roster()["ada"].busy
    desk.pass_ms(1)
    assert not desk.roster()["ada"].busy
    desk.expect(Done, c.SetBusy(ada, busy=True))
    desk.expect(Done, c.SetBusy(ada, busy=False))
    assert not desk.roster()["ada"].busy
    assert desk.refused(c.SetBusy(desk.operator, busy=True)).code is Code.INVALID_REQUEST


# Other names.


def test_a_message_to_an_alias_reaches_the_member_and_says_so(desk: Desk) -> None:
    ada, mo = desk.join("ada"), desk.join("mo")
    desk.expect(TeamState, c.UpdateTeam(desk.operator, aliases={"boss": "mo"}))
    desk.expect(Accepted, c.Send(ada, content=content("@boss")))
    (delivery,) = desk.fetch(mo)
    assert str(delivery.message.content.target) == "@mo"
    assert delivery.message.content.notes == ("written to the alias @boss",)
    desk.expect(TeamState, c.UpdateTeam(desk.operator, aliases={"boss": None}))
    assert desk.refused(c.Send(ada, content=content("@boss"))).code is Code.UNKNOWN_MEMBER


@pytest.mark.parametrize(
    ("alias", "name", "code"),
    [
        ("no name", "mo", Code.INVALID_NAME),
        ("ADA", "mo", Code.NAME_TAKEN),
        ("boss", "nobody", Code.UNKNOWN_MEMBER),
    ],
)
def test_an_alias_is_a_free_name_of_somebody_who_is_there(desk: Desk, alias: str, name: str, code: Code) -> None:
    desk.add("ada")
    desk.add("mo")
    assert desk.refused(c.UpdateTeam(desk.operator, aliases={alias: name})).code is code


def test_a_name_wins_over_an_alias_and_other_targets_have_none(desk: Desk) -> None:
    ada, mo = desk.join("ada"), desk.join("mo")
    desk.expect(TeamState, c.UpdateTeam(desk.operator, aliases={"boss": "mo"}))
    for target in ("@mo", "*"):
        desk.expect(Accepted, c.Send(ada, content=content(target)))
    assert [delivery.message.content.notes for delivery in desk.fetch(mo)] == [(), ()]
    assert desk.refused(c.Send(ada, content=content("@bos"))).code is Code.UNKNOWN_MEMBER
