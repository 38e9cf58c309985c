"""The tables of the lake, one file each: a schema, the meaning of a row, and the SQL statement that makes the rows.

Silver tables (facts): `messages`, `deliveries`, `objective_events`, `activity`, `records`. Gold tables (sums of facts):
the others.
"""
