-- Statements by which the SQLite store is copied. The names of a table and its columns are put in.

-- name: count
SELECT count(*) FROM {table}

-- name: read
SELECT {columns} FROM {table} ORDER BY {key}

-- name: clear
DELETE FROM {table}

-- name: fill
INSERT INTO {table} ({columns}) VALUES ({places})

-- name: columns
SELECT name, type FROM pragma_table_info(?)
