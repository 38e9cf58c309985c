-- Members whose names belong to a token that several names share, by its digest.
CREATE TABLE owner (
    number INTEGER PRIMARY KEY REFERENCES member (number),
    digest BLOB NOT NULL
) STRICT;
-- What the hub found of the sender's own signature; empty where the protocol has none.
ALTER TABLE message ADD COLUMN signature TEXT NOT NULL DEFAULT '';
-- Whether the wire id is one for all senders of the protocol.
ALTER TABLE message ADD COLUMN shared_id INTEGER NOT NULL DEFAULT 0 CHECK (shared_id IN (0, 1));
CREATE UNIQUE INDEX message_by_shared_id ON message (protocol, wire_id) WHERE shared_id = 1;
