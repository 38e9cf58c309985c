-- Which messages a sender said to a target, in the order of the log: their offsets as 64-bit integers, some in each row.
-- It follows the messages by some thousands, because an index of its own would cost each message more.
CREATE TABLE trail (
    sender TEXT NOT NULL,
    target TEXT NOT NULL,
    first INTEGER NOT NULL,
    offsets BLOB NOT NULL CHECK (length(offsets) > 0 AND length(offsets) % 8 = 0),
    PRIMARY KEY (sender, target, first)
) STRICT, WITHOUT ROWID;
-- Messages from this offset on are not in it yet; the next start brings them in.
CREATE TABLE trail_end (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    log_end INTEGER NOT NULL
) STRICT;
INSERT INTO trail_end VALUES (1, 0);

-- Objectives are found by status, whatever became of the others.
DROP INDEX objective_by_assignee;
CREATE INDEX objective_by_assignee ON objective (assignee, status);
CREATE INDEX objective_by_status ON objective (status);
ALTER TABLE objective_party ADD COLUMN status TEXT NOT NULL DEFAULT '';
ALTER TABLE objective_party ADD COLUMN assignee INTEGER NOT NULL DEFAULT 0;
UPDATE objective_party SET
    status = (SELECT status FROM objective WHERE objective.serial = objective_party.serial),
    assignee = (SELECT assignee FROM objective WHERE objective.serial = objective_party.serial);
CREATE INDEX objective_party_by_status ON objective_party (number, status, serial);
CREATE INDEX objective_party_by_assignee ON objective_party (number, assignee, status, serial);
