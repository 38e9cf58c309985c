"""The team: what is said about it and about its members, what they may do, and who is at work."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, assert_never

import msgspec
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.event import Registered, TeamChanged
from tieline.contract.identifiers import parse_member_name
from tieline.contract.permission import ACTIVITY_READ, MEMBERS_MANAGE, TEAM_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, MemberState, Reply, TeamState
from tieline.contract.team import Team
from tieline.core import ledger
from tieline.core.directory import Account
from tieline.core.store import Foundation, MemberRow

if TYPE_CHECKING:
    from tieline.core.broker import Broker

_SETTING = "team"
_WORD_CHARS_MAX = 128
"""A permission or the name of a preset: a word, never a sentence."""
_team_decoder = msgspec.json.Decoder(Team)


def restore_team(foundation: Foundation) -> Team:
    """The team as it was kept."""
    kept = foundation.settings.get(_SETTING)
    return Team() if kept is None else _team_decoder.decode(kept)


def decide(broker: "Broker", command: c.UpdateMember | c.SetBusy | c.ReadTeam | c.UpdateTeam) -> Reply:
    """Decide a command about the team or who is on it."""
    match command:
        case c.ReadTeam():
            return read(broker, command)
        case c.UpdateTeam():
            return update(broker, command)
        case c.UpdateMember():
            return update_member(broker, command)
        case c.SetBusy():
            return set_busy(broker, command)
        case _:
            assert_never(command)


def read(broker: "Broker", command: c.ReadTeam) -> Reply:
    """What is said about the team, to any of its members."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    if session.account is None and not session.operator:
        return Refusal(Code.FORBIDDEN, "the team is for members")
    return TeamState(broker.team)


def update(broker: "Broker", command: c.UpdateTeam) -> Reply:
    """Change what is said about the team."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    if not session.may(TEAM_MANAGE):
        return Refusal(Code.FORBIDDEN, f"{session.speaker} lacks the permission {TEAM_MANAGE}")
    given = {"name": command.name, "directive": command.directive, "context": command.context}
    changed = {field: text for field, text in given.items() if text is not None}
    kept = {**broker.team.presets, **command.presets}
    presets = {name: tuple(sorted(set(words))) for name, words in sorted(kept.items()) if words is not None}
    named = {**broker.team.aliases, **command.aliases}
    aliases = {alias: name for alias, name in sorted(named.items()) if name is not None}
    refusal = (
        _check_texts(broker, changed.values())
        or _check_presets(broker, presets)
        or _check_aliases(broker, aliases, command.aliases)
    )
    if refusal is not None:
        return refusal
    team = replace(broker.team, **changed, presets=presets, aliases=aliases)
    if team != broker.team:
        fields = (*changed, "presets", "aliases")
        what = [field for field in fields if getattr(team, field) != getattr(broker.team, field)]
        broker.team = team
        broker.store.save_setting(_SETTING, ledger.encode_struct(team))
        broker.record(TeamChanged(session.speaker, ", ".join(what)))
    return TeamState(team)


def update_member(broker: "Broker", command: c.UpdateMember) -> Reply:
    """Change what a member may do and what it is told."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    if not session.may(MEMBERS_MANAGE):
        return Refusal(Code.FORBIDDEN, f"{session.speaker} lacks the permission {MEMBERS_MANAGE}")
    account = broker.directory.find(command.name)
    if account is None:
        return broker.directory.unknown_member(command.name)
    texts = {"title": command.title, "description": command.description, "instructions": command.instructions}
    changed = {field: text for field, text in texts.items() if text is not None}
    before = account.member
    permissions = before.permissions if command.permissions is None else tuple(sorted(set(command.permissions)))
    refusal = check_member(broker, permissions, list(changed.values()))
    if refusal is not None:
        return refusal
    lost = set(before.permissions) - set(permissions)
    if MEMBERS_MANAGE in lost and not session.operator and is_last_manager(broker, account):
        return last_manager(account)
    member = replace(before, permissions=permissions, kind=command.kind or before.kind, **changed)
    if member != before:
        what = "permissions" if member.permissions != before.permissions else "role"
        what = f"kind {member.kind}" if member.kind is not before.kind else what
        broker.directory.update(account, member)
        broker.store.save_member(MemberRow(account.number, member, account.since))
        broker.record(Registered(account.name, session.speaker, what))
    if ACTIVITY_READ in lost:
        why = Refusal(Code.FORBIDDEN, f"{account.name} has lost the permission {ACTIVITY_READ}")
        broker.end_sessions([other for other in account.sessions if other.follows_others], why)
    return MemberState(member)


def is_last_manager(broker: "Broker", account: Account) -> bool:
    """Whether nobody else may manage members."""
    return list(broker.directory.managers) == [account.number]


def last_manager(account: Account) -> Refusal:
    """The refusal to take the permission away from who has it alone."""
    return Refusal(Code.LAST_MANAGER, f"nobody but {account.name} has {MEMBERS_MANAGE}: give it to somebody else first")


def set_busy(broker: "Broker", command: c.SetBusy) -> Reply:
    """Note that a member is at work, or is not."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    if session.account is None:
        return Refusal(Code.INVALID_REQUEST, "only a member is busy")
    session.account.busy_until_ms = broker.now_ms + broker.limits.busy_ms if command.busy else 0
    session.account.touch(broker.now_ms)
    return Done()


# Limits.


def check_member(broker: "Broker", permissions: Collection[str], texts: Sequence[str]) -> Refusal | None:
    """Why a member cannot have these permissions and texts, if so."""
    return _check_words(broker, permissions) or _check_texts(broker, texts)


def _check_texts(broker: "Broker", texts: Collection[str]) -> Refusal | None:
    most = broker.limits.member_text_chars_max
    if any(len(text) > most for text in texts):
        return Refusal(Code.INVALID_REQUEST, f"a text about a member or the team has at most {most} characters")
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        return Refusal(Code.INVALID_REQUEST, "the text holds half a surrogate pair, which no wire can carry")
    return None


def _check_words(broker: "Broker", words: Collection[str]) -> Refusal | None:
    if len(words) > broker.limits.permissions_max:
        return Refusal(Code.INVALID_REQUEST, f"more than {broker.limits.permissions_max} words")
    if any(not 0 < len(word) <= _WORD_CHARS_MAX for word in words):
        return Refusal(Code.INVALID_REQUEST, f"a permission or preset has 1 to {_WORD_CHARS_MAX} characters")
    return _check_texts(broker, words)


def _check_presets(broker: "Broker", presets: dict[str, tuple[str, ...]]) -> Refusal | None:
    refusals = (_check_words(broker, words) for words in (presets, *presets.values()))
    return next((refusal for refusal in refusals if refusal is not None), None)


def _check_aliases(broker: "Broker", aliases: dict[str, str], new: Collection[str]) -> Refusal | None:
    if len(aliases) > broker.limits.permissions_max:
        return Refusal(Code.INVALID_REQUEST, f"more than {broker.limits.permissions_max} aliases")
    for alias in new:
        parsed = parse_member_name(alias)
        if isinstance(parsed, Refusal):
            return parsed
        if alias not in aliases:
            continue
        if broker.directory.find_any_case(alias) is not None:
            return Refusal(Code.NAME_TAKEN, f"{alias} is a member's own name")
        if broker.directory.find(aliases[alias]) is None:
            return broker.directory.unknown_member(aliases[alias])
    return None
