"""The tables, one file each: a schema, the meaning of a row, and pure functions from DataFrames to DataFrames.

Silver tables (facts): `messages`, `deliveries`, `objective_events`, `activity`, `records`. Gold tables (sums of facts):
the others.
"""
