-- Objectives. The content is the objective as it stands, the offset that of the log row of its last change. Parties are
-- member numbers as a JSON array: assignee, originator, then the watchers, in the order of their names in the content.
CREATE TABLE objective (
    serial INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    offset INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('active', 'blocked', 'done', 'cancelled')),
    assignee INTEGER NOT NULL REFERENCES member (number),
    parties TEXT NOT NULL,
    content BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX objective_by_id ON objective (id);
CREATE UNIQUE INDEX objective_by_offset ON objective (offset);
CREATE INDEX objective_by_assignee ON objective (assignee);
CREATE INDEX objective_open ON objective (serial) WHERE status IN ('active', 'blocked');

-- Who has a part in which objective, to find them by member.
CREATE TABLE objective_party (
    number INTEGER NOT NULL REFERENCES member (number),
    serial INTEGER NOT NULL REFERENCES objective (serial),
    PRIMARY KEY (number, serial)
) STRICT, WITHOUT ROWID;
CREATE INDEX objective_party_by_objective ON objective_party (serial);

-- An objective's own event log, append-only: each row stands at the offset of the log row that says the same.
CREATE TABLE objective_event (
    offset INTEGER PRIMARY KEY,
    serial INTEGER NOT NULL REFERENCES objective (serial),
    at_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    event BLOB NOT NULL
) STRICT;
CREATE INDEX objective_event_by_objective ON objective_event (serial, offset);

-- Channels have an identity of their own, because a name can be given up and given anew. Spans say which messages are
-- theirs, as a JSON array of [target, first log offset, end offset or null].
CREATE TABLE channel (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    archived_at_ms INTEGER,
    spans TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX channel_by_name ON channel (name) WHERE archived_at_ms IS NULL;
CREATE TABLE channel_member (
    channel TEXT NOT NULL REFERENCES channel (id),
    number INTEGER NOT NULL REFERENCES member (number),
    role TEXT NOT NULL CHECK (role IN ('admin', 'member')),
    joined_at_ms INTEGER NOT NULL,
    PRIMARY KEY (channel, number)
) STRICT, WITHOUT ROWID;
INSERT INTO channel
SELECT
    lower(hex(randomblob(16))), first.channel, member.name, 0, NULL,
    json_array(json_array('#' || first.channel, 0, NULL))
FROM (SELECT channel, min(number) AS number FROM subscription GROUP BY channel) AS first JOIN member USING (number);
INSERT INTO channel_member
SELECT channel.id, subscription.number, iif(member.name = channel.created_by, 'admin', 'member'), 0
FROM subscription JOIN channel ON channel.name = subscription.channel JOIN member USING (number);
DROP TABLE subscription;

-- What a member is on its team.
ALTER TABLE member ADD COLUMN title TEXT NOT NULL DEFAULT '';
ALTER TABLE member ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE member ADD COLUMN instructions TEXT NOT NULL DEFAULT '';

-- A member may have several tokens, known apart by their ids.
ALTER TABLE token ADD COLUMN id TEXT NOT NULL DEFAULT '';
ALTER TABLE token ADD COLUMN label TEXT NOT NULL DEFAULT '';
ALTER TABLE token ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
UPDATE token SET id = lower(hex(randomblob(16)));
CREATE UNIQUE INDEX token_by_id ON token (id);

-- Small things that are kept as a whole, by key.
CREATE TABLE setting (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
