"""Every limit of the hub in one place, each with its reason.

A limit that is passed is always signalled by a refusal or a closed connection, never by silence.
"""

from msgspec import Struct

MEBIBYTE = 1024 * 1024


class Limits(Struct, frozen=True):
    """The limits in force. Configuration may replace any of them; the reasons say what to weigh."""

    body_bytes_max: int = 16 * MEBIBYTE
    """As large as the largest frame of any protocol, so that no wire is cut short by the core."""

    message_bytes_max: int = 32 * MEBIBYTE
    """Everything a message says, as it is stored: a body at its limit and as much again in its other parts."""

    text_bytes_max: int = 4096
    """Title, scope, thread, topic, wire id and each reference: identifiers and labels, never documents."""

    nesting_max: int = 256
    """Levels of structured data: every reader must be able to decode it, whatever stands on its stack already."""

    refs_max: int = 256
    """References and attachments of one message: a list for a person to read."""

    recipients_max: int = 100_000
    """One message's snapshot must fit one transaction without stalling the writer (about 0.1 s here)."""

    backlog_max: int = 1_000_000
    """Unsettled deliveries of one member: 17 bytes of memory each, so a forgotten member costs at most 17 MB."""

    ttl_ms_max: int = 366 * 24 * 3600 * 1000
    """Longer than any retention; beyond it a time to live says nothing."""

    streams_max: int = 10_000
    """Streams of one recipient, each a topic of a sender: they are kept for ever, so topics must be few."""

    topics_max: int = 1000
    """Streams of one recipient that one sender has made, by its topics: nobody takes them all."""

    follows_max: int = 10_000
    """Unsettled messages that sessions follow at the same time."""

    session_follows_max: int = 1000
    """Those of one session: nobody takes them all."""

    ranges_max: int = 1024
    """Ranges of deliveries that one command moves: a few milliseconds."""

    refusal_row_ms: int = 10_000
    """Refusals of one kind to one speaker share a row of the log for this long: the chain is kept for ever."""

    refusal_rows_max: int = 60
    """Rows of refusals in an hour for one member, and for all strangers together; then each kind has one an hour."""

    clock_step_ms: int = 5_000
    """How far the system's clock may be corrected at once: past it, it has jumped, and the hub does not follow."""

    clock_patience_ms: int = 15 * 60_000
    """How long a clock must stay after a start, or a jump, before it is believed: it is set right sooner."""

    hello_ms: int = 10_000
    """A connection that has not said who it is by then is hung up on."""

    greeting_bytes_max: int = 64 * 1024
    """The first frame of a connection, before the hub knows whose it is: a name and a token need far less."""

    strangers_bytes_max: int = 8 * MEBIBYTE
    """Unfinished frames and requests of all connections that nobody has shown a credential on, beyond 4 KiB each."""

    unfinished_bytes_max: int = 64 * MEBIBYTE
    """Unfinished frames and bodies of all members: two of the largest at once; whoever holds most must send again."""

    token_bytes_max: int = 4096
    """A token as a request shows it: the hub's own have 47 bytes; it is hashed before anybody is known."""

    hops_soft: int = 40
    """Answers of agents in one causal chain, past which it is slowed: work goes on, and a storm costs little."""

    hops_max: int = 200
    """The same, past which the conversation is held: by then a storm has gone on for more than half an hour."""

    objective_hops_soft: int = 200
    """As `hops_soft`, inside an objective: somebody asked for that work."""

    objective_hops_max: int = 1000
    """As `hops_max`, inside an objective."""

    hop_ms_min: int = 250
    """What answers sooner is a program and no agent, so its answers are no hops; back-pressure slows it."""

    reply_window_ms: int = 60_000
    """What comes later than this after a message reached its sender is no answer to it."""

    space_ms_min: int = 1000
    """Between the deliveries of a chain that is slowed, at `hops_soft`…"""

    space_ms_max: int = 30_000
    """…growing to this at `hops_max`: half the reply window, so that a slowed chain is still one."""

    pause_ms: int = 10 * 60_000
    """How long a pause lasts; a conversation that is held for its hops lets one message pass this often."""

    allow_ms: int = 2 * 3600 * 1000
    """How long the limits of a conversation are lifted when nobody says how long."""

    holds_max: int = 10_000
    """Conversations that are paused, held or allowed at the same time; past it the ones that end first are let go."""

    loop_memory_max: int = 100_000
    """Remembered (member, conversation) pairs for the loop rule; the oldest are forgotten first."""

    batch_max: int = 2048
    """Commands handled in one transaction: bounds how long the first of them waits for the last."""

    lazy_commit_ms: int = 50
    """How long acknowledgements wait for a send to ride on: costs redelivery after a crash, never loss."""

    window_max: int = 1024
    """Deliveries on the way to one session without an acknowledgement; more would only fill socket buffers."""

    inflight_max: int = 4096
    """Commands of one connection not yet answered; past it the hub stops reading from that connection."""

    unsent_bytes_max: int = 4 * MEBIBYTE
    """Bytes buffered for one slow reader before the hub stops offering to it; offers resume when it drains."""

    frame_bytes_max: int = 32 * MEBIBYTE
    """One frame of the hub's own protocol: a body at its limit may double in size when escaped."""

    read_max: int = 1000
    """Rows that one command reads: a few tens of milliseconds. The next page starts where this one ended."""

    page_max: int = 10_000
    """Rows in one answer of a protocol that has no pages: the hub reads them in several commands."""

    page_bytes_max: int = 8 * MEBIBYTE
    """Stored bytes of the messages in one answer, though always one message: it must fit a client's frame."""

    receipts_max: int = 500
    """Recipients in one answer of receipts: each is looked up rung by rung, some tens of microseconds each."""

    activity_events_max: int = 500
    """Events of one upload."""

    activity_event_bytes_max: int = 8 * MEBIBYTE
    """One event of an agent's activity: an exchange with a model, with all its context."""

    activity_waiting_bytes_max: int = 64 * MEBIBYTE
    """Activity that waits to be written: what comes faster than the disk takes it must be uploaded again."""

    activity_waiting_max: int = 1024
    """Uploads and questions about activity that wait for their turn."""

    tokens_max: int = 100
    """Tokens of one member: one for each place it works at."""

    member_text_chars_max: int = 16_384
    """A member's role and instructions, and what is said about the team: a page or two for a prompt."""

    permissions_max: int = 100
    """Permissions of one member or preset, presets and aliases of the team: a list for a person to read."""

    busy_ms: int = 30_000
    """How long a member counts as busy when it does not say so again."""

    channels_max: int = 10_000
    """Channels of a hub, archived ones too: their members are kept in memory."""

    member_channels_max: int = 500
    """Channels that one member has made, archived ones too: nobody takes them all."""

    subscriptions_max: int = 2000
    """Channels that one member is in: what it may see is looked up in each of them."""

    channel_names_max: int = 100
    """Names that one channel had, one after the other: its history is looked up under each of them."""

    objectives_open_max: int = 10_000
    """Objectives that are neither done nor cancelled: they are kept in memory."""

    member_objectives_max: int = 1000
    """Open objectives that one member has made: nobody takes them all."""

    objective_title_chars_max: int = 200
    """An objective's title: one line of a list."""

    objective_outcome_chars_max: int = 2048
    """An objective's outcome: what must be true, not how to get there."""

    objective_body_chars_max: int = 4096
    """An objective's body; longer texts are attachments."""

    objective_reason_chars_max: int = 2048
    """Why an objective is blocked or cancelled, and the note at a reassignment."""

    objective_result_chars_max: int = 4096
    """What came of an objective; longer texts are attachments."""

    objective_watchers_max: int = 256
    """Watchers of one objective: each gets every message of its thread."""

    snapshot_rows: int = 50_000
    """Log rows between two snapshots: bounds the replay at start to well under a second."""

    resume_ms: int = 24 * 3600 * 1000
    """How long a session can be resumed after its last token was given: a night and a day."""

    retention_ms: int = 7 * 24 * 3600 * 1000
    """Settled messages are kept this long; unsettled ones and the audit chain always."""

    activity_retention_ms: int = 30 * 24 * 3600 * 1000
    """Activity is kept this long: larger than messages, and read by whoever reviews a month of work."""


DEFAULT_LIMITS = Limits()
