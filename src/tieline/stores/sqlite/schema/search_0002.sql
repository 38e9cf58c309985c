-- The last redaction when the index was begun, as the main database names it. After a newer one the index is made anew.
ALTER TABLE progress ADD COLUMN redaction BLOB;
