-- Statements by which the PostgreSQL store is copied. The names of a table and its columns are put in.

-- name: count
SELECT count(*) FROM {table}

-- name: read
COPY (SELECT {columns} FROM {table} ORDER BY {key}) TO STDOUT (FORMAT BINARY)

-- name: read_single
COPY (SELECT {columns} FROM {table}) TO STDOUT (FORMAT BINARY)

-- name: clear
DELETE FROM {table}

-- name: fill
COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)

-- name: schemas
SELECT nspname FROM pg_namespace WHERE nspname ~ '^tieline_[0-9a-f]{32}$' ORDER BY nspname
