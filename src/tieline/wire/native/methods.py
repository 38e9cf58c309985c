"""The requests of the hub's own protocol as methods: what `Client` has beside its own."""

# Made from tieline.contract by `make derive` (scripts/derive.py). Do not edit.

from collections.abc import Iterator
from typing import Any, TypeVar

from tieline.contract.channel import AnyChange as ChannelChange
from tieline.contract.member import MemberKind, TokenView
from tieline.contract.message import Attachment, Kind, Level, Priority
from tieline.contract.objective import AnyChange as ObjectiveChange
from tieline.contract.objective import Status
from tieline.contract.reach import Reach
from tieline.wire.native import frames as f

_A = TypeVar("_A", bound=f.Frame)


class Requests:
    """Asks a hub. Each method returns when the answer came, and raises `HubRefused` if it is a refusal."""

    _numbers: Iterator[int]

    async def _ask(self, n: int, frame: f.Frame, expected: type[_A]) -> _A:
        raise NotImplementedError

    async def send(  # noqa: PLR0913 - a message has that many parts
        self,
        target: str,
        body: str,
        *,
        data: dict[str, Any] | None = None,
        title: str | None = None,
        level: Level = Level.INFO,
        priority: Priority = Priority.NORMAL,
        kind: Kind = Kind.CHAT,
        topic: str = "",
        scope: str | None = None,
        thread: str | None = None,
        reply_to: str | None = None,
        refs: tuple[str, ...] = (),
        attachments: tuple[Attachment, ...] = (),
        ttl_ms: int | None = None,
        wire_id: str | None = None,
        allow_empty: bool = False,
        supersedes: str | None = None,
    ) -> f.Accepted:
        """Send a message.

        The hub answers `accepted` when the message is stored durably.
        """
        n = next(self._numbers)
        return await self._ask(
            n,
            f.Send(
                n,
                target,
                body,
                data,
                title,
                level,
                priority,
                kind,
                topic,
                scope,
                thread,
                reply_to,
                refs,
                attachments,
                ttl_ms,
                wire_id,
                allow_empty,
                supersedes,
            ),
            f.Accepted,
        )

    async def claim(self, message_id: str) -> f.Item | None:
        """Claim a message, so that only this session handles it.

        The claim is stored durably before the answer. If another session was first, the answer has no delivery.
        """
        n = next(self._numbers)
        return (await self._ask(n, f.Claim(n, message_id), f.Claimed)).item

    async def inbox(self, after: int = 0, limit: int = 100, unseen: bool = False) -> f.Inbox:
        """Read the inbox: deliveries that are not acknowledged, expired or dead.

        Only deliveries with keys after `after` are returned, at most `limit`, oldest first.
        """
        n = next(self._numbers)
        return await self._ask(n, f.Fetch(n, after, limit, unseen), f.Inbox)

    async def subscribe(self, channel: str) -> None:
        """Join a channel.

        The first subscriber creates the channel.
        """
        n = next(self._numbers)
        await self._ask(n, f.Subscribe(n, channel), f.Done)

    async def unsubscribe(self, channel: str) -> None:
        """Leave a channel.

        It is not an error if the member is not in the channel.
        """
        n = next(self._numbers)
        await self._ask(n, f.Unsubscribe(n, channel), f.Done)

    async def pause_thread(self, thread: str) -> None:
        """Pause a conversation: hold messages of agents and scripts in it for a while.

        A conversation is `thread:<id>`, a target, or `@one+@other`.
        """
        n = next(self._numbers)
        await self._ask(n, f.PauseThread(n, thread), f.Done)

    async def resume_thread(self, thread: str) -> None:
        """End the pause of a conversation and deliver its held messages.

        The hub counts the answers of agents in it from zero again.
        """
        n = next(self._numbers)
        await self._ask(n, f.ResumeThread(n, thread), f.Done)

    async def add_member(
        self,
        name: str,
        *,
        kind: MemberKind = MemberKind.AGENT,
        permissions: tuple[str, ...] = (),
        token: str | None = None,
    ) -> f.Issued:
        """Create a member, and return its first token."""
        n = next(self._numbers)
        return await self._ask(n, f.AddMember(n, name, kind, permissions, token), f.Issued)

    async def remove_member(self, name: str) -> None:
        """Remove a member.

        Its sessions end, its tokens become invalid, and its waiting deliveries become `dead`.
        """
        n = next(self._numbers)
        await self._ask(n, f.RemoveMember(n, name), f.Done)

    async def rotate_token(self, name: str) -> f.Issued:
        """Replace a member's tokens.

        Afterwards the member has only the new token.
        """
        n = next(self._numbers)
        return await self._ask(n, f.RotateToken(n, name), f.Issued)

    async def retoken(self, name: str, token: str) -> None:
        """Let another shared token own a member, and close the sessions of the old token."""
        n = next(self._numbers)
        await self._ask(n, f.Retoken(n, name, token), f.Done)

    async def members(self) -> tuple[f.MemberView, ...]:
        """List all members, by name."""
        n = next(self._numbers)
        return (await self._ask(n, f.ListMembers(n), f.Roster)).members

    async def history(
        self,
        peer: str | None = None,
        *,
        before: int | None = None,
        limit: int = 50,
        after: int = -1,
        everything: bool = False,
    ) -> tuple[f.Message, ...]:
        """Read messages that the member may see, newest first."""
        n = next(self._numbers)
        return (await self._ask(n, f.ReadHistory(n, peer, before, limit, after, everything), f.History)).messages

    async def search(
        self,
        query: str,
        *,
        sender: str | None = None,
        place: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> tuple[f.Message, ...]:
        """Search the messages that the member may see.

        The newest message comes first.
        """
        n = next(self._numbers)
        return (
            await self._ask(n, f.Search(n, query, sender, place, from_ms, to_ms, before, limit), f.History)
        ).messages

    async def read_log(self, log: str = "main", start: int = 0, limit: int = 1000) -> f.Log:
        """Read rows of a log (`main` or `activity`), from the offset `start` on."""
        n = next(self._numbers)
        return await self._ask(n, f.ReadLog(n, log, start, limit), f.Log)

    async def readers(self) -> f.Readers:
        """List the logs and the readers for which the hub keeps their rows."""
        n = next(self._numbers)
        return await self._ask(n, f.ListReaders(n), f.Readers)

    async def advance_reader(
        self, name: str, position: int, *, log: str = "main", epoch: str = "", rewind: bool = False
    ) -> f.ReaderState:
        """Set the position of a reader in a log.

        A new name makes a new reader. Retention keeps the rows from the position on.
        """
        n = next(self._numbers)
        return await self._ask(n, f.AdvanceReader(n, name, position, log, epoch, rewind), f.ReaderState)

    async def forget_reader(self, name: str) -> None:
        """Forget a reader in both logs; nothing is kept for it any more."""
        n = next(self._numbers)
        await self._ask(n, f.ForgetReader(n, name), f.Done)

    async def channels(self) -> tuple[f.ChannelView, ...]:
        """List all channels, by name."""
        n = next(self._numbers)
        return (await self._ask(n, f.ListChannels(n), f.ChannelList)).channels

    async def create_channel(self, name: str) -> f.ChannelView:
        """Create a channel. The member becomes its admin."""
        n = next(self._numbers)
        return (await self._ask(n, f.CreateChannel(n, name), f.Channel)).channel

    async def change_channel(self, channel: str, change: ChannelChange) -> f.ChannelView:
        """Change a channel, given by its name or id; `do` in `change` names the change.

        A change without effect is not an error.
        """
        n = next(self._numbers)
        return (await self._ask(n, f.ChangeChannel(n, channel, change), f.Channel)).channel

    async def channel(self, channel: str) -> f.ChannelView:
        """Show a channel with its members, by its name or id."""
        n = next(self._numbers)
        return (await self._ask(n, f.ViewChannel(n, channel), f.Channel)).channel

    async def create_objective(
        self,
        title: str,
        outcome: str,
        assignee: str,
        *,
        body: str = "",
        watchers: tuple[str, ...] = (),
        attachments: tuple[Attachment, ...] = (),
    ) -> f.ObjectiveView:
        """Create an objective: work for a member, with an outcome."""
        n = next(self._numbers)
        return (
            await self._ask(n, f.CreateObjective(n, title, outcome, assignee, body, watchers, attachments), f.Objective)
        ).objective

    async def change_objective(self, objective_id: str, change: ObjectiveChange) -> f.ObjectiveView:
        """Change an objective; `do` in `change` names the change.

        A change without effect is not an error. To write to its thread, send a message to `obj:<id>`.
        """
        n = next(self._numbers)
        return (await self._ask(n, f.ChangeObjective(n, objective_id, change), f.Objective)).objective

    async def objectives(
        self,
        *,
        statuses: tuple[Status, ...] = (),
        assignee: str | None = None,
        before: str | None = None,
        limit: int = 1000,
    ) -> f.ObjectiveList:
        """List objectives that the member may see, newest first."""
        n = next(self._numbers)
        return await self._ask(n, f.ListObjectives(n, statuses, assignee, before, limit), f.ObjectiveList)

    async def objective(self, objective_id: str, after: int = -1) -> f.ObjectiveStory:
        """Show an objective with its event log, oldest first.

        Only events with a log offset above `after` are shown; -1 shows all of them.
        """
        n = next(self._numbers)
        return await self._ask(n, f.ViewObjective(n, objective_id, after), f.ObjectiveStory)

    async def update_member(
        self,
        name: str,
        *,
        permissions: tuple[str, ...] | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        kind: MemberKind | None = None,
    ) -> f.MemberFile:
        """Change a member's permissions, role or instructions. Omitted fields stay unchanged."""
        n = next(self._numbers)
        return (
            await self._ask(
                n, f.UpdateMember(n, name, permissions, title, description, instructions, kind), f.MemberState
            )
        ).member

    async def reach(self, name: str, reach: Reach | None = None) -> Reach:
        """Set the ways to reach a member. Without `reach`, only read them.

        Allowed for the member itself and for those who manage members.
        """
        n = next(self._numbers)
        return (await self._ask(n, f.SetReach(n, name, reach), f.ReachState)).reach

    async def set_busy(self, busy: bool = True) -> None:
        """Report that the member is busy, or not any more. A busy report expires after a while."""
        n = next(self._numbers)
        await self._ask(n, f.SetBusy(n, busy), f.Done)

    async def issue_token(
        self, name: str, *, label: str = "", expires_at_ms: int | None = None, token: str | None = None
    ) -> f.TokenIssued:
        """Issue one more token for a member."""
        n = next(self._numbers)
        return await self._ask(n, f.IssueToken(n, name, label, expires_at_ms, token), f.TokenIssued)

    async def tokens(self, name: str) -> tuple[TokenView, ...]:
        """List a member's valid tokens, oldest first."""
        n = next(self._numbers)
        return (await self._ask(n, f.ListTokens(n, name), f.TokenList)).tokens

    async def revoke_token(self, name: str, token_id: str) -> None:
        """Revoke one token.

        The sessions that were opened with this token are closed.
        """
        n = next(self._numbers)
        await self._ask(n, f.RevokeToken(n, name, token_id), f.Done)

    async def team(self) -> f.TeamView:
        """Read the team's name, directive, context, presets and aliases."""
        n = next(self._numbers)
        return (await self._ask(n, f.ReadTeam(n), f.TeamState)).team

    async def update_team(
        self,
        *,
        name: str | None = None,
        directive: str | None = None,
        context: str | None = None,
        presets: dict[str, tuple[str, ...] | None] | None = None,
        aliases: dict[str, str | None] | None = None,
    ) -> f.TeamView:
        """Change details of the team. Omitted fields stay unchanged."""
        n = next(self._numbers)
        return (
            await self._ask(n, f.UpdateTeam(n, name, directive, context, presets or {}, aliases or {}), f.TeamState)
        ).team

    async def pauses(self) -> tuple[f.PauseView, ...]:
        """List paused conversations, and those in which agents may answer without a limit."""
        n = next(self._numbers)
        return (await self._ask(n, f.ListPauses(n), f.PauseList)).pauses

    async def allow_thread(self, thread: str, for_ms: int | None = None) -> None:
        """Let agents in a conversation answer without a limit for a while, and end its pause."""
        n = next(self._numbers)
        await self._ask(n, f.AllowThread(n, thread, for_ms), f.Done)

    async def activity(
        self,
        member: str,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        kinds: tuple[str, ...] = (),
        limit: int = 200,
    ) -> tuple[f.ActivityView, ...]:
        """Read a member's activity, newest first.

        Allowed for the member itself, and with `activity.read`.
        """
        n = next(self._numbers)
        return (await self._ask(n, f.ReadActivity(n, member, from_ms, to_ms, kinds, limit), f.ActivityRows)).rows

    async def follow_activity(self, member: str) -> None:
        """Follow the activity of a member.

        From now on, `Hub.tail` gets each new activity of that member.
        """
        n = next(self._numbers)
        await self._ask(n, f.FollowActivity(n, member), f.Done)
