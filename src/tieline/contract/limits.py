"""Limits of the hub that its configuration can change, each with its reason.

When a client exceeds a limit, the hub tells it: by a refusal, or by closing the connection.
"""

from msgspec import Struct

MEBIBYTE = 1024 * 1024


class Limits(Struct, frozen=True):
    """The limits of one hub. The text below each limit is repeated in `docs/reference.md`."""

    body_bytes_max: int = 16 * MEBIBYTE
    """Size of a message's body. It is as large as the largest frame of any protocol, so that every body fits."""

    message_bytes_max: int = 32 * MEBIBYTE
    """Size of a whole message as it is stored: twice the limit of a body."""

    text_bytes_max: int = 4096
    """Size of each short text of a message (title, scope, thread, topic, wire id, reference): labels, no documents."""

    nesting_max: int = 256
    """Nesting levels of a message's structured data. Every reader must be able to decode them."""

    refs_max: int = 256
    """Number of references, and of attachments, of one message: a list for a person to read."""

    recipients_max: int = 100_000
    """Recipients of one message. All its deliveries are stored in one transaction, which takes about 0.1 s then."""

    backlog_max: int = 1_000_000
    """Deliveries of one member that are not acknowledged, expired or dead. Each takes 17 bytes of memory, so a member
    that nobody uses any more costs at most 17 MB."""

    ttl_ms_max: int = 366 * 24 * 3600 * 1000
    """Longest time to live of a message: longer than any retention, so a longer time would have no effect."""

    streams_max: int = 10_000
    """Streams of one recipient: one for each topic of each sender. Streams are kept for ever, so topics must be few."""

    topics_max: int = 1000
    """Streams of one recipient that one sender created by its topics, so that no sender takes all streams."""

    follows_max: int = 10_000
    """Messages that all sessions together follow, until each is handled by all its recipients."""

    session_follows_max: int = 1000
    """Messages that one session follows, so that no session takes all of `follows_max`."""

    ranges_max: int = 1024
    """Ranges of delivery keys in one command, such as an acknowledgement. It takes a few milliseconds."""

    refusal_row_ms: int = 10_000
    """Refusals of one kind to one speaker within this time share one row of the log, because rows are kept for ever."""

    refusal_rows_max: int = 60
    """Log rows of refusals per hour for one member, and for all unknown clients together. Beyond it, each kind of
    refusal gets one row per hour."""

    clock_step_ms: int = 5_000
    """Largest change of the system's clock at once that the hub follows. It does not follow a larger one: a jump."""

    clock_patience_ms: int = 15 * 60_000
    """Time that a clock must stay put after a start or a jump before the hub trusts it. A wrong clock is usually set
    right sooner."""

    hello_ms: int = 10_000
    """The hub closes a connection whose client has not said who it is within this time."""

    greeting_bytes_max: int = 64 * 1024
    """Size of the first frame of a connection, before the hub knows its client: a name and a token need far less."""

    strangers_bytes_max: int = 8 * MEBIBYTE
    """Bytes of incomplete frames and requests of all clients that have not identified themselves. The first 4 KiB of
    each connection do not count."""

    unfinished_bytes_max: int = 64 * MEBIBYTE
    """Bytes of incomplete frames and bodies of all members: two of the largest size. Beyond it, the hub refuses the
    member with the most bytes, which must send again."""

    token_bytes_max: int = 4096
    """Size of a token in a request. The hub hashes it before it knows the client; its own tokens have 47 bytes."""

    hops_soft: int = 40
    """Answers of agents to each other in one chain, before the hub slows the chain: work goes on, at little cost."""

    hops_max: int = 200
    """Answers of agents to each other in one chain, before the hub holds the conversation. By then, an endless chain
    has lasted over half an hour."""

    objective_hops_soft: int = 200
    """Like `hops_soft`, inside an objective: somebody asked for that work."""

    objective_hops_max: int = 1000
    """Like `hops_max`, inside an objective."""

    hop_ms_min: int = 250
    """A sender that answers sooner is a program, not an agent: its answers do not count in a chain."""

    reply_window_ms: int = 60_000
    """A message that is sent later than this, after its sender received another one, is no answer to that one."""

    space_ms_min: int = 1000
    """Delay between the deliveries of a slowed chain, at `hops_soft`."""

    space_ms_max: int = 30_000
    """Delay between the deliveries of a slowed chain, at `hops_max`. It is half of `reply_window_ms`, so that answers
    in a slowed chain still count as answers."""

    pause_ms: int = 10 * 60_000
    """Duration of a pause. A conversation that is held for its hops lets one message pass in each such period."""

    allow_ms: int = 2 * 3600 * 1000
    """Time for which agents may answer each other without limit in a conversation, if the command gives no time."""

    holds_max: int = 10_000
    """Conversations that are paused, held, or without limits at the same time. Beyond it, the hub drops the pauses that
    would end first."""

    loop_memory_max: int = 100_000
    """Pairs of a member and a conversation that the hub remembers to find chains of answers. The oldest are forgotten
    first."""

    batch_max: int = 2048
    """Commands handled in one transaction. It limits the time that the first of them waits for the last."""

    lazy_commit_ms: int = 50
    """Longest time before acknowledgements are stored; they wait for the commit of a message. After a crash in that
    time, deliveries come again; none is lost."""

    external_inbox_ms: int = 10_000
    """Longest wait for the answer of an external inbox: enough for a slow disk. A dead inbox delays nobody longer."""

    window_max: int = 1024
    """Deliveries that are sent to one session before it acknowledges some; more would only fill socket buffers."""

    inflight_max: int = 4096
    """Unanswered commands of one connection. Beyond it, the hub stops reading from that connection."""

    unsent_bytes_max: int = 4 * MEBIBYTE
    """Bytes buffered for one slow reader. Beyond it, the hub sends this reader nothing until the buffer drains."""

    frame_bytes_max: int = 32 * MEBIBYTE
    """Size of one frame of the hub's own protocol. The largest body may double in size when it is escaped."""

    read_max: int = 1000
    """Rows that one command reads, which takes a few tens of milliseconds. The next command reads the next page."""

    page_max: int = 10_000
    """Rows in one answer of a protocol that has no pages: the hub reads them in several commands."""

    page_bytes_max: int = 8 * MEBIBYTE
    """Stored bytes of the messages in one answer, which must fit a client's frame. One message is always allowed."""

    receipts_max: int = 500
    """Recipients in one answer with receipts. The lookup of one takes some tens of microseconds."""

    activity_events_max: int = 500
    """Events in one upload of an agent's activity."""

    activity_event_bytes_max: int = 8 * MEBIBYTE
    """Size of one event of an agent's activity: a call of a model, with all its context."""

    activity_waiting_bytes_max: int = 64 * MEBIBYTE
    """Bytes of activity that wait to be stored. An upload beyond it is refused, and must be repeated later."""

    activity_waiting_max: int = 1024
    """Uploads of activity and requests to read activity that wait for their turn."""

    tokens_max: int = 100
    """Tokens of one member: one for each place it works at."""

    invitations_max: int = 100
    """Invitations with which somebody can still join: as many newcomers at once as a person can know."""

    invitation_uses_max: int = 1000
    """Members that can join with one invitation. The hub remembers them, to end the invitation with any of them."""

    member_text_chars_max: int = 16_384
    """The texts about a member (role, instructions) and about the team: a page or two for a prompt."""

    permissions_max: int = 100
    """Permissions of one member or preset (a named set), and presets and aliases of the team: lists for a person."""

    busy_ms: int = 30_000
    """A member counts as busy for this long after it last reported it."""

    channels_max: int = 10_000
    """Channels of a hub, archived ones too: their members are kept in memory."""

    member_channels_max: int = 500
    """Channels that one member created, archived ones too, so that no member takes all of `channels_max`."""

    subscriptions_max: int = 2000
    """Channels that one member is in. The hub searches each of them to find the messages that the member may see."""

    channel_names_max: int = 100
    """Names that one channel had over time. The hub looks up its history under each of them."""

    objectives_open_max: int = 10_000
    """Objectives that are neither done nor cancelled: they are kept in memory."""

    member_objectives_max: int = 1000
    """Open objectives that one member created, so that no member takes all of `objectives_open_max`."""

    objective_title_chars_max: int = 200
    """An objective's title: one line of a list."""

    objective_outcome_chars_max: int = 2048
    """An objective's outcome: what must be true, not how to get there."""

    objective_body_chars_max: int = 4096
    """An objective's body; longer texts are attachments."""

    objective_reason_chars_max: int = 2048
    """The reason of a block or a cancellation, and the note of a reassignment."""

    objective_result_chars_max: int = 4096
    """The result of an objective; longer texts are attachments."""

    objective_watchers_max: int = 256
    """Watchers of one objective: each gets every message of its thread."""

    snapshot_rows: int = 50_000
    """Log rows between two snapshots of the state. At a start, the hub reads the rows after the last snapshot, which
    takes well under a second."""

    resume_ms: int = 24 * 3600 * 1000
    """A session can be resumed for this long after its last token was issued: a night and a day."""

    retention_ms: int = 7 * 24 * 3600 * 1000
    """Messages are deleted this long after sending, unless a delivery still waits to be acknowledged. The audit chain
    is never deleted."""

    activity_retention_ms: int = 30 * 24 * 3600 * 1000
    """Activity is kept this long. It is larger than messages, and people read it to review a month of work."""

    readers_max: int = 100
    """Readers of each log, such as the pipeline. Each one that nobody uses any more keeps rows from being deleted."""

    reader_wait_ms: int = 30 * 24 * 3600 * 1000
    """Rows that a reader has not read are kept this much longer than others: a month is enough to notice that the
    reader does not run. Then they are deleted and counted as missed."""

    reader_wait_bytes: int = 16 * 1024 * MEBIBYTE
    """Size of a log's database from which on retention does not wait for readers: a sleeping reader must not fill the
    disk."""


DEFAULT_LIMITS = Limits()
