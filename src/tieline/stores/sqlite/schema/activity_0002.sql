-- Activity is asked for by member, time and kind: the time that the event itself gives, if it gives one.
ALTER TABLE activity ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE activity ADD COLUMN ts_ms INTEGER NOT NULL DEFAULT 0;
UPDATE activity SET
    ts_ms = at_ms,
    kind = iif(json_type(CAST(event AS TEXT), '$.kind') = 'text', json_extract(CAST(event AS TEXT), '$.kind'), '');
DROP INDEX activity_by_member;
CREATE INDEX activity_by_member ON activity (number, ts_ms);
