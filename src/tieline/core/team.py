"""The rules for the team (its name, directive, context, presets and aliases) and for the data of members.

The data of a member are its permissions, title, description and instructions, and if it is busy.
"""

from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.event import Registered, TeamChanged
from tieline.contract.identifiers import parse_member_name
from tieline.contract.member import Member
from tieline.contract.permission import ACTIVITY_READ, KNOWN, MEMBERS_MANAGE, TEAM_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, MemberState, Reply, TeamState
from tieline.contract.team import Team
from tieline.core import ledger
from tieline.core.batch import Batch
from tieline.core.directory import Account, Directory, Session
from tieline.core.rules import Rules, decides
from tieline.core.sessions import Sessions
from tieline.core.store import StoredState

_SETTING = "team"
_WORD_CHARS_MAX = 128
"""Maximum length of a permission or of the name of a preset."""
_team_decoder = msgspec.json.Decoder(Team)


def restore_team(stored_state: StoredState) -> Team:
    """Return the stored data of the team. If nothing is stored, return an empty team."""
    kept = stored_state.settings.get(_SETTING)
    return Team() if kept is None else _team_decoder.decode(kept)


class TeamRules(Rules):
    """Rules for the commands that read and change the team's data, and the permissions and descriptions of members."""

    def __init__(self, batch: Batch, directory: Directory, sessions: Sessions) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._sessions = sessions

    @decides(c.ReadTeam)
    def read(self, session: Session, command: c.ReadTeam) -> Reply:
        """Reply with the name, directive (purpose), context, presets and aliases of the team.

        A preset is a named set of permissions. Any member may read the data.
        """
        if session.account is None and not session.operator:
            return Refusal(Code.FORBIDDEN, "the team is for members")
        return TeamState(self._directory.team)

    @decides(c.UpdateTeam)
    def update(self, session: Session, command: c.UpdateTeam) -> Reply:
        """Change the name, directive, context, presets and aliases of the team. Reply with the changed team.

        Members with a changed preset (a named set of permissions) get the new permissions.
        """
        refusal = session.refuse_without(TEAM_MANAGE)
        if refusal is not None:
            return refusal
        given = {"name": command.name, "directive": command.directive, "context": command.context}
        changed = {field: text for field, text in given.items() if text is not None}
        kept = {**self._directory.team.presets, **command.presets}
        presets = {name: tuple(sorted(set(words))) for name, words in sorted(kept.items()) if words is not None}
        named = {**self._directory.team.aliases, **command.aliases}
        aliases = {alias: name for alias, name in sorted(named.items()) if name is not None}
        team = replace(self._directory.team, **changed, presets=presets, aliases=aliases)
        concerned = self._concerned(team)
        refusal = (
            self._check_texts(changed.values())
            or self._check_presets(presets, command.presets)
            or self._check_aliases(aliases, command.aliases)
            or (self._check_rights(session, team) if concerned else None)
        )
        if refusal is not None:
            return refusal
        if team != self._directory.team:
            fields = (*changed, "presets", "aliases")
            what = [field for field in fields if getattr(team, field) != getattr(self._directory.team, field)]
            self._directory.team = team
            self._store.save_setting(_SETTING, ledger.encode_struct(team))
            self._batch.record(TeamChanged(session.speaker, ", ".join(what)))
        gone = {name for name, words in command.presets.items() if words is None}
        for account in concerned:
            self._change(session, account, account.member, tuple(word for word in account.words if word not in gone))
        return TeamState(team)

    def _concerned(self, team: Team) -> list[Account]:
        """Return the members with a preset (named set of permissions) that changes with the new `team`."""
        before = self._directory.team
        changed = {name for name in before.presets if team.presets.get(name) != before.presets[name]}
        # A new preset may have a name that somebody has among its words already.
        changed |= team.presets.keys() - before.presets.keys()
        accounts = self._directory.accounts.values() if changed else ()
        return [account for account in accounts if not changed.isdisjoint(account.words)]

    def _check_rights(self, session: Session, team: Team) -> Refusal | None:
        """Return a refusal if the session may not manage members, or if with `team` nobody could manage members."""
        refusal = session.refuse_without(MEMBERS_MANAGE)
        if refusal is not None or session.operator or not self._directory.managers:
            return refusal
        accounts = self._directory.accounts.values()
        if any(MEMBERS_MANAGE in team.permissions_of(account.words) for account in accounts):
            return None
        return Refusal(Code.LAST_MANAGER, f"nobody would have {MEMBERS_MANAGE}: give it to somebody first")

    @decides(c.UpdateMember)
    def update_member(self, session: Session, command: c.UpdateMember) -> Reply:
        """Change the permissions, kind, title, description and instructions of a member. Reply with the member."""
        account = self._directory.find_managed(session, MEMBERS_MANAGE, command.name)
        if isinstance(account, Refusal):
            return account
        texts = {"title": command.title, "description": command.description, "instructions": command.instructions}
        changed = {field: text for field, text in texts.items() if text is not None}
        before = account.member
        words = account.words if command.permissions is None else tuple(sorted(set(command.permissions)))
        refusal = self.check_member(words, list(changed.values()))
        if refusal is not None:
            return refusal
        lost = set(before.permissions) - set(self._directory.team.permissions_of(words))
        if MEMBERS_MANAGE in lost and not session.operator and self.is_last_manager(account):
            return last_manager(account)
        self._change(session, account, replace(before, kind=command.kind or before.kind, **changed), words)
        return MemberState(account.member)

    def _change(self, session: Session, account: Account, member: Member, words: tuple[str, ...]) -> None:
        """Store the data of a member and its `words` (permissions and names of presets).

        If the member loses the permission `activity.read`, end its sessions that follow the activity of others.
        """
        before, before_words = account.member, account.words
        self._directory.update(account, member, words)
        member = account.member
        if member != before or words != before_words:
            what = "role" if (member.permissions, words) == (before.permissions, before_words) else "permissions"
            what = f"kind {member.kind}" if member.kind is not before.kind else what
            self._store.save_member(account.row())
            self._batch.record(Registered(account.name, session.speaker, what))
        if ACTIVITY_READ in set(before.permissions) - set(member.permissions):
            why = Refusal(Code.FORBIDDEN, f"{account.name} has lost the permission {ACTIVITY_READ}")
            self._sessions.end_all([other for other in account.sessions if other.follows_others], why)

    def is_last_manager(self, account: Account) -> bool:
        """True if this member is the only one who may manage members."""
        return list(self._directory.managers) == [account.number]

    @decides(c.SetBusy)
    def set_busy(self, session: Session, command: c.SetBusy) -> Reply:
        """Mark the session's member as busy for a while, or as not busy."""
        if session.account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member is busy")
        account, now_ms = session.account, self._batch.now_ms
        if command.busy and account.busy_until_ms <= now_ms:
            account.busy_since_ms = now_ms
        account.busy_until_ms = now_ms + self._limits.busy_ms if command.busy else 0
        account.touch(now_ms)
        return Done()

    # Limits.

    def check_member(self, permissions: Collection[str], texts: Sequence[str]) -> Refusal | None:
        """Return a refusal if the data of a member exceed a limit; otherwise `None`.

        `texts` are the title, description and instructions of the member.
        """
        return self._check_words(permissions) or self._check_texts(texts)

    def _check_texts(self, texts: Collection[str]) -> Refusal | None:
        most = self._limits.member_text_chars_max
        if any(len(text) > most for text in texts):
            return Refusal(Code.INVALID_REQUEST, f"a text about a member or the team has at most {most} characters")
        try:
            for text in texts:
                text.encode()
        except UnicodeEncodeError:
            return Refusal(Code.INVALID_REQUEST, "the text holds half a surrogate pair, which no wire can carry")
        return None

    def _check_words(self, words: Collection[str]) -> Refusal | None:
        if len(words) > self._limits.permissions_max:
            return Refusal(Code.INVALID_REQUEST, f"more than {self._limits.permissions_max} words")
        if any(not 0 < len(word) <= _WORD_CHARS_MAX for word in words):
            return Refusal(Code.INVALID_REQUEST, f"a permission or preset has 1 to {_WORD_CHARS_MAX} characters")
        return self._check_texts(words)

    def _check_presets(self, presets: dict[str, tuple[str, ...]], new: Collection[str]) -> Refusal | None:
        taken = next((name for name in new if name in presets and name in KNOWN), None)
        if taken is not None:
            return Refusal(Code.INVALID_REQUEST, f"{taken} is a permission: a preset has another name")
        refusals = (self._check_words(words) for words in (presets, *presets.values()))
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _check_aliases(self, aliases: dict[str, str], new: Collection[str]) -> Refusal | None:
        if len(aliases) > self._limits.permissions_max:
            return Refusal(Code.INVALID_REQUEST, f"more than {self._limits.permissions_max} aliases")
        for alias in new:
            parsed = parse_member_name(alias)
            if isinstance(parsed, Refusal):
                return parsed
            if alias not in aliases:
                continue
            if self._directory.find_any_case(alias) is not None:
                return Refusal(Code.NAME_TAKEN, f"{alias} is a member's own name")
            if self._directory.find(aliases[alias]) is None:
                return self._directory.unknown_member(aliases[alias])
        return None


def last_manager(account: Account) -> Refusal:
    """Return the refusal of a change that takes `members.manage` from `account`, the only member who has it."""
    return Refusal(Code.LAST_MANAGER, f"nobody but {account.name} has {MEMBERS_MANAGE}: give it to somebody else first")
