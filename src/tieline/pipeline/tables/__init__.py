"""The tables, one file each: a schema, the meaning of a row, and the statement in SQL that makes its rows.

Silver tables (facts): `messages`, `deliveries`, `objective_events`, `activity`, `records`. Gold tables (sums of facts):
the others.
"""
