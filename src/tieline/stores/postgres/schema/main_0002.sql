-- The lease: the right of one hub at a time to write here. It ends at `until` by the server's clock, unless the hub
-- renews it. Each take-over begins a new term. `claim` is random, so that a term is one hub's even in a database that
-- went back to an older state.
CREATE TABLE lease (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    -- Keys, because a lock on a row's key lets everybody change the other columns. So commits, which hold such a lock,
    -- and renewals never wait for each other, and a take-over waits for commits that have begun.
    term bigint NOT NULL UNIQUE DEFAULT 0,
    claim text NOT NULL UNIQUE DEFAULT '',
    -- The hub, for people, and the address at which other hubs of the team reach it; empty if there are none.
    hub text NOT NULL DEFAULT '',
    address text NOT NULL DEFAULT '',
    until timestamptz NOT NULL DEFAULT '-infinity',
    -- The address of the hub that shall lead next, because a person wants it; empty for none.
    preferred text NOT NULL DEFAULT ''
);
INSERT INTO lease DEFAULT VALUES;

-- Every term, with the hub that had it.
CREATE TABLE term (
    term bigint PRIMARY KEY,
    hub text NOT NULL,
    began_at timestamptz NOT NULL
);

-- The hubs of a team, if it has several: the key with which they connect to each other, and the hash of the key that is
-- in all their homes.
CREATE TABLE cluster (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    link_key text NOT NULL DEFAULT replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''),
    home_key bytea
);
INSERT INTO cluster DEFAULT VALUES;

-- The hubs of such a team that run, or ran lately.
CREATE TABLE hub (
    address text PRIMARY KEY,
    hub text NOT NULL,
    seen_at timestamptz NOT NULL
);

-- The term in which a row was written; NULL for rows that are older than terms. It never falls from row to row.
ALTER TABLE log ADD COLUMN term bigint;

-- The number of the last commit, and the random name of the connection that may write the next one.
DROP FUNCTION number_commit(text, bigint);
ALTER TABLE writer DROP COLUMN hub, DROP COLUMN claim, ADD COLUMN connection text NOT NULL DEFAULT '';

-- The fence: the first statement of every transaction of a hub. It fails if another hub has the lease. Until the end of
-- the transaction nobody else can take the lease.
CREATE FUNCTION fence(my_term bigint, my_claim text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    other text;
BEGIN
    PERFORM FROM lease WHERE lease.term = my_term AND lease.claim = my_claim FOR KEY SHARE;
    IF NOT FOUND THEN
        SELECT lease.hub INTO other FROM lease;
        RAISE EXCEPTION 'another hub has the lease' USING ERRCODE = 'TL001', DETAIL = other;
    END IF;
END
$$;

-- The fence of the hub's main connection, whose commits have numbers. It also fails for what an older connection of the
-- same hub sent, if that arrives late.
CREATE FUNCTION begin_commit(my_term bigint, my_claim text, my_connection text, number bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fence(my_term, my_claim);
    UPDATE writer SET commits = number WHERE writer.connection = my_connection;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this hub has a newer connection' USING ERRCODE = 'TL002';
    END IF;
END
$$;

-- Take the lease, if it has ended or with `anyway`. Return nothing if another hub has it. A lease that ends later than
-- any hub could have asked for was made by a clock that was set back, and so counts as ended.
CREATE FUNCTION take_lease(my_hub text, my_address text, lease_ms bigint, anyway boolean)
RETURNS TABLE (my_term bigint, my_claim text) LANGUAGE plpgsql SET lock_timeout = '300ms' AS $$
BEGIN
    UPDATE lease SET
        term = lease.term + 1,
        claim = gen_random_uuid()::text,
        hub = my_hub,
        address = my_address,
        until = clock_timestamp() + lease_ms * interval '1 ms',
        preferred = ''
    WHERE anyway
        OR lease.until <= clock_timestamp()
        OR lease.until > clock_timestamp() + (lease_ms + 1000) * interval '1 ms'
    RETURNING lease.term, lease.claim INTO my_term, my_claim;
    IF FOUND THEN
        INSERT INTO term VALUES (my_term, my_hub, clock_timestamp());
        RETURN NEXT;
    END IF;
EXCEPTION WHEN lock_not_available THEN
    -- A transaction has passed the fence and does not end, for example because its hub is stopped. The next attempt
    -- succeeds.
    PERFORM pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'relation' AND relation = 'lease'::regclass AND mode = 'RowShareLock' AND pid <> pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
END
$$;

-- Let a new connection of the hub write, and renew the lease. Return nothing if a commit of its older connection does
-- not end.
CREATE FUNCTION open_writer(my_term bigint, my_claim text, lease_ms bigint)
RETURNS TABLE (my_connection text, my_commits bigint) LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM fence(my_term, my_claim);
    UPDATE lease SET until = clock_timestamp() + lease_ms * interval '1 ms';
    UPDATE writer SET connection = gen_random_uuid()::text
    RETURNING writer.connection, writer.commits INTO my_connection, my_commits;
    RETURN NEXT;
EXCEPTION WHEN lock_not_available THEN
    PERFORM pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'relation' AND relation = 'writer'::regclass AND mode = 'RowExclusiveLock'
        AND pid <> pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
END
$$;
