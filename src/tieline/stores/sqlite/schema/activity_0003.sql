-- Activity of one kind is found without what lies between it.
CREATE INDEX activity_by_kind ON activity (number, kind, ts_ms);
