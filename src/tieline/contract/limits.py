"""Every limit of the hub in one place, each with its reason.

When a limit is passed, the hub answers with a refusal or closes the connection. It is never silent.
"""

from msgspec import Struct

MEBIBYTE = 1024 * 1024


class Limits(Struct, frozen=True):
    """The limits in force. Configuration may replace any of them; the reasons say what to weigh."""

    body_bytes_max: int = 16 * MEBIBYTE
    """As large as the largest frame of any protocol, so that no wire is cut short by the core."""

    message_bytes_max: int = 32 * MEBIBYTE
    """A whole message as it is stored: a body at its limit, and as much again in the other parts."""

    text_bytes_max: int = 4096
    """Title, scope, thread, topic, wire id and each reference: identifiers and labels, never documents."""

    nesting_max: int = 256
    """Nesting levels of structured data. Every reader must be able to decode it, even with a deep stack."""

    refs_max: int = 256
    """References and attachments of one message: a list for a person to read."""

    recipients_max: int = 100_000
    """One message's snapshot must fit one transaction without stalling the writer (about 0.1 s here)."""

    backlog_max: int = 1_000_000
    """Unsettled deliveries of one member: 17 bytes of memory each, so a forgotten member costs at most 17 MB."""

    ttl_ms_max: int = 366 * 24 * 3600 * 1000
    """Longer than any retention; a longer time to live would have no effect."""

    streams_max: int = 10_000
    """Streams of one recipient, each a topic of a sender. Streams are kept for ever, so topics must be few."""

    topics_max: int = 1000
    """Streams of one recipient that one sender created by its topics, so that no sender takes all streams."""

    follows_max: int = 10_000
    """Unsettled messages that sessions follow at the same time."""

    session_follows_max: int = 1000
    """Unsettled messages that one session follows, so that no session takes all of `follows_max`."""

    ranges_max: int = 1024
    """Ranges of deliveries that one command moves, which takes a few milliseconds."""

    refusal_row_ms: int = 10_000
    """Refusals of one kind to one speaker share a row of the log for this long, because the chain is kept for ever."""

    refusal_rows_max: int = 60
    """Rows of refusals per hour for one member, and for all strangers together. Past it, each kind has one per hour."""

    clock_step_ms: int = 5_000
    """Largest correction of the system's clock at once. A larger one is a jump, and the hub does not follow it."""

    clock_patience_ms: int = 15 * 60_000
    """Time that a clock must stay put after a start or a jump before the hub trusts it. A wrong clock is usually set
    right sooner."""

    hello_ms: int = 10_000
    """The hub closes a connection whose client has not said who it is within this time."""

    greeting_bytes_max: int = 64 * 1024
    """The first frame of a connection, before the hub knows its client: a name and a token need far less."""

    strangers_bytes_max: int = 8 * MEBIBYTE
    """Unfinished frames and requests of all connections without a credential, beyond 4 KiB each."""

    unfinished_bytes_max: int = 64 * MEBIBYTE
    """Unfinished frames and bodies of all members: two of the largest. Past it, whoever holds most must resend."""

    token_bytes_max: int = 4096
    """A token in a request. The hub's own tokens have 47 bytes. The hub hashes a token before it knows the client."""

    hops_soft: int = 40
    """Answers of agents in one causal chain before the chain is slowed: work goes on, and a storm costs little."""

    hops_max: int = 200
    """Answers of agents in one causal chain before the conversation is held: a storm then lasted over half an hour."""

    objective_hops_soft: int = 200
    """Like `hops_soft`, inside an objective: somebody asked for that work."""

    objective_hops_max: int = 1000
    """Like `hops_max`, inside an objective."""

    hop_ms_min: int = 250
    """A sender that answers sooner is a program, not an agent: its answers are no hops, and back-pressure slows it."""

    reply_window_ms: int = 60_000
    """A message that is sent later than this, after its sender received another one, is no answer to that one."""

    space_ms_min: int = 1000
    """Delay between the deliveries of a slowed chain, at `hops_soft`."""

    space_ms_max: int = 30_000
    """The same delay at `hops_max`: half the reply window, so that a slowed chain still counts as a chain."""

    pause_ms: int = 10 * 60_000
    """Duration of a pause. A conversation that is held for its hops lets one message pass in each such period."""

    allow_ms: int = 2 * 3600 * 1000
    """Time for which the limits of a conversation are lifted, if the command gives no time."""

    holds_max: int = 10_000
    """Conversations that are paused, held or allowed at the same time. Past it, the hub drops those that end first."""

    loop_memory_max: int = 100_000
    """Remembered (member, conversation) pairs for the loop rule; the oldest are forgotten first."""

    batch_max: int = 2048
    """Commands handled in one transaction: bounds how long the first of them waits for the last."""

    lazy_commit_ms: int = 50
    """Longest wait of acknowledgements for the commit of a send. A crash causes redelivery then, never loss."""

    window_max: int = 1024
    """Unacknowledged deliveries on the way to one session; more would only fill socket buffers."""

    inflight_max: int = 4096
    """Unanswered commands of one connection. Past it, the hub stops reading from that connection."""

    unsent_bytes_max: int = 4 * MEBIBYTE
    """Bytes buffered for one slow reader before the hub stops its offers. Offers resume when the buffer drains."""

    frame_bytes_max: int = 32 * MEBIBYTE
    """One frame of the hub's own protocol: a body at its limit may double in size when escaped."""

    read_max: int = 1000
    """Rows that one command reads: a few tens of milliseconds. The next page starts where this one ended."""

    page_max: int = 10_000
    """Rows in one answer of a protocol that has no pages: the hub reads them in several commands."""

    page_bytes_max: int = 8 * MEBIBYTE
    """Stored bytes of the messages in one answer, which must fit a client's frame. One message is always allowed."""

    receipts_max: int = 500
    """Recipients in one answer of receipts. The lookup of one takes some tens of microseconds."""

    activity_events_max: int = 500
    """Events of one upload."""

    activity_event_bytes_max: int = 8 * MEBIBYTE
    """One event of an agent's activity: an exchange with a model, with all its context."""

    activity_waiting_bytes_max: int = 64 * MEBIBYTE
    """Activity that waits to be written. An upload beyond it is refused, and must be repeated later."""

    activity_waiting_max: int = 1024
    """Uploads and questions about activity that wait for their turn."""

    tokens_max: int = 100
    """Tokens of one member: one for each place it works at."""

    member_text_chars_max: int = 16_384
    """The texts about a member (role, instructions) and about the team: a page or two for a prompt."""

    permissions_max: int = 100
    """Permissions of one member or preset, presets and aliases of the team: a list for a person to read."""

    busy_ms: int = 30_000
    """A member counts as busy for this long after it last said so."""

    channels_max: int = 10_000
    """Channels of a hub, archived ones too: their members are kept in memory."""

    member_channels_max: int = 500
    """Channels that one member created, archived ones too, so that no member takes all of `channels_max`."""

    subscriptions_max: int = 2000
    """Channels that one member is in. The hub looks into each of them to find what the member may see."""

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
    """Log rows between two snapshots: bounds the replay at start to well under a second."""

    resume_ms: int = 24 * 3600 * 1000
    """A session can be resumed for this long after its last token was issued: a night and a day."""

    retention_ms: int = 7 * 24 * 3600 * 1000
    """Settled messages are kept this long; unsettled ones and the audit chain always."""

    activity_retention_ms: int = 30 * 24 * 3600 * 1000
    """Activity is kept this long. It is larger than messages, and people read it to review a month of work."""


DEFAULT_LIMITS = Limits()
