-- The main tables: the log with its audit chain, messages, and what the broker starts from.
--
-- Text of PostgreSQL has no NUL character. So text that members choose freely is kept as its UTF-8 bytes.

-- Append-only. `log_offset` is dense and in commit order; `hash` links each row to the one before it.
CREATE TABLE log (
    log_offset bigint PRIMARY KEY,
    at_ms bigint NOT NULL,
    event bytea NOT NULL,
    hash bytea NOT NULL CHECK (length(hash) = 32)
);

-- The identity of the log, and the offset from which on retention has deleted no message.
CREATE TABLE log_state (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    epoch text NOT NULL DEFAULT replace(gen_random_uuid()::text, '-', ''),
    kept_from bigint NOT NULL DEFAULT 0
);
INSERT INTO log_state DEFAULT VALUES;

-- Readers of the log. Retention waits for the lowest position.
CREATE TABLE reader (
    name text COLLATE "C" PRIMARY KEY,
    position bigint NOT NULL CHECK (position >= 0),
    set_by text NOT NULL,
    at_ms bigint NOT NULL,
    missed bigint NOT NULL,
    missed_first bigint,
    missed_last bigint,
    warned boolean NOT NULL
);

-- A message stands at the offset of its `send` row. Its content is beside the log so that retention can forget it
-- while the chain, which holds its digest, stays.
CREATE TABLE message (
    log_offset bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    sender text COLLATE "C" NOT NULL,
    protocol text COLLATE "C" NOT NULL,
    wire_id bytea,
    target text COLLATE "C" NOT NULL,
    sent_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    verified boolean NOT NULL,
    hops bigint NOT NULL CHECK (hops >= 0),
    cause text COLLATE "C",
    content bytea NOT NULL,
    -- Three columns of 64-bit integers, one after the other: member numbers, delivery keys, stream sequences.
    route bytea NOT NULL CHECK (length(route) % 24 = 0),
    -- What the hub found of the sender's own signature; empty where the protocol has none.
    signature text NOT NULL,
    -- Whether the wire id is one for all senders of the protocol.
    shared_id boolean NOT NULL
);
CREATE UNIQUE INDEX message_by_id ON message (id);
CREATE UNIQUE INDEX message_by_wire_id ON message (sender, protocol, wire_id) WHERE wire_id IS NOT NULL;
CREATE UNIQUE INDEX message_by_shared_id ON message (protocol, wire_id) WHERE shared_id;
CREATE INDEX message_by_target ON message (target, log_offset);
CREATE INDEX message_by_sender ON message (sender, target, log_offset);
CREATE INDEX message_by_expiry ON message (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- Which log row moved which deliveries. Ranges of one member and state hardly ever overlap (only where a delivery was
-- offered on a wire without acknowledgement first), so the first that ends at or after a key mostly is the one.
CREATE TABLE step (
    number bigint NOT NULL,
    state smallint NOT NULL,
    last bigint NOT NULL,
    first bigint NOT NULL CHECK (first <= last),
    log_offset bigint NOT NULL,
    PRIMARY KEY (number, state, last, first)
);

-- Which log row says that deliveries fell to another way. A delivery is found by where a range ends.
CREATE TABLE fall (
    number bigint NOT NULL,
    last bigint NOT NULL,
    first bigint NOT NULL CHECK (first <= last),
    log_offset bigint NOT NULL,
    PRIMARY KEY (number, last, first, log_offset)
);

-- Numbers are never reused: a removed member keeps its row, so that old routes can be read.
CREATE TABLE member (
    number bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    -- A JSON array.
    permissions bytea NOT NULL,
    origin text NOT NULL,
    created_at_ms bigint NOT NULL,
    -- The end of the log when it was made.
    since bigint NOT NULL,
    title bytea NOT NULL,
    description bytea NOT NULL,
    instructions bytea NOT NULL,
    removed_at_ms bigint
);
CREATE UNIQUE INDEX member_by_name ON member (lower(name)) WHERE removed_at_ms IS NULL;

CREATE TABLE token (
    digest bytea PRIMARY KEY,
    number bigint NOT NULL REFERENCES member (number),
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    id text COLLATE "C" NOT NULL,
    label bytea NOT NULL,
    created_by bytea NOT NULL
);
CREATE UNIQUE INDEX token_by_id ON token (id);

-- Members whose names belong to a token that several names share, by its digest.
CREATE TABLE owner (
    number bigint PRIMARY KEY REFERENCES member (number),
    digest bytea NOT NULL
);

-- Sessions that can be resumed, with the hashes of their tokens.
CREATE TABLE resumption (
    id text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL REFERENCES member (number),
    digest bytea NOT NULL,
    previous bytea,
    expires_at_ms bigint NOT NULL
);

-- Small things that are kept as a whole, by key.
CREATE TABLE setting (
    key text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

-- Inboxes and streams as of the log row before `snapshot.log_end`.
CREATE TABLE image (
    number bigint PRIMARY KEY,
    base bigint NOT NULL,
    offsets bytea NOT NULL,
    stream_seqs bytea NOT NULL,
    rungs bytea NOT NULL,
    -- A JSON object.
    streams bytea NOT NULL,
    last_seen_ms bigint
);
CREATE TABLE snapshot (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    log_end bigint NOT NULL DEFAULT 0
);
INSERT INTO snapshot DEFAULT VALUES;

-- Channels have an identity of their own, because a name can be given up and given anew. Spans say which messages are
-- theirs, as a JSON array of [target, first log offset, end offset or null].
CREATE TABLE channel (
    id text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    created_by text NOT NULL,
    created_at_ms bigint NOT NULL,
    archived_at_ms bigint,
    spans bytea NOT NULL
);
CREATE UNIQUE INDEX channel_by_name ON channel (name) WHERE archived_at_ms IS NULL;
CREATE TABLE channel_member (
    channel text COLLATE "C" NOT NULL REFERENCES channel (id),
    number bigint NOT NULL REFERENCES member (number),
    role text NOT NULL CHECK (role IN ('admin', 'member')),
    joined_at_ms bigint NOT NULL,
    PRIMARY KEY (channel, number)
);

-- Objectives. The content is the objective as it stands, the offset that of the log row of its last change. Parties are
-- member numbers: assignee, originator, then the watchers, in the order of their names in the content.
CREATE TABLE objective (
    serial bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    log_offset bigint NOT NULL,
    status text COLLATE "C" NOT NULL CHECK (status IN ('active', 'blocked', 'done', 'cancelled')),
    assignee bigint NOT NULL REFERENCES member (number),
    parties bigint[] NOT NULL,
    content bytea NOT NULL
);
CREATE UNIQUE INDEX objective_by_id ON objective (id);
CREATE UNIQUE INDEX objective_by_offset ON objective (log_offset);
CREATE INDEX objective_by_assignee ON objective (assignee, status, serial);
CREATE INDEX objective_by_status ON objective (status, serial);

-- Members with a part in an objective, to find objectives by member.
CREATE TABLE objective_party (
    number bigint NOT NULL REFERENCES member (number),
    serial bigint NOT NULL REFERENCES objective (serial),
    status text COLLATE "C" NOT NULL,
    assignee bigint NOT NULL,
    PRIMARY KEY (number, serial)
);
CREATE INDEX objective_party_by_objective ON objective_party (serial);
CREATE INDEX objective_party_by_status ON objective_party (number, status, serial);
CREATE INDEX objective_party_by_assignee ON objective_party (number, assignee, status, serial);

-- An objective's own event log, append-only: each row stands at the offset of the log row that says the same.
CREATE TABLE objective_event (
    log_offset bigint PRIMARY KEY,
    serial bigint NOT NULL REFERENCES objective (serial),
    at_ms bigint NOT NULL,
    actor text NOT NULL,
    event bytea NOT NULL
);
CREATE INDEX objective_event_by_objective ON objective_event (serial, log_offset);

-- The search index: the words of each message, in lower case and without accents. It follows the messages, and an entry
-- goes with its message.
CREATE TABLE said (
    log_offset bigint PRIMARY KEY REFERENCES message (log_offset) ON DELETE CASCADE,
    words tsvector NOT NULL
);
CREATE INDEX said_by_words ON said USING gin (words);
-- Messages before this offset are in the index, but not those that were redacted since then.
CREATE TABLE search_progress (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    log_end bigint NOT NULL DEFAULT 0
);
INSERT INTO search_progress DEFAULT VALUES;
CREATE TABLE search_again (
    log_offset bigint PRIMARY KEY
);

-- The hub that writes here: its name for people, its random claim, and the number of its last commit.
CREATE TABLE writer (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    hub text NOT NULL DEFAULT '',
    claim text NOT NULL DEFAULT '',
    commits bigint NOT NULL DEFAULT 0
);
INSERT INTO writer DEFAULT VALUES;

-- The last statement of every commit. It stops a hub whose place another hub has taken.
CREATE FUNCTION number_commit(mine text, number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE writer SET commits = number WHERE claim = mine;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another hub has taken over this database' USING ERRCODE = 'TL001';
    END IF;
END
$$;
