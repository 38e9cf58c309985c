-- Which log row says that deliveries fell to another way. Ordered like `step`: a delivery is found by where a range ends.
CREATE TABLE fall (
    number INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL CHECK (first <= last),
    offset INTEGER NOT NULL,
    PRIMARY KEY (number, last, first, offset)
) STRICT, WITHOUT ROWID;
