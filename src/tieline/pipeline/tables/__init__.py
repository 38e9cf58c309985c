"""The tables, one file each: a schema, what a row means, and pure functions from DataFrames to DataFrames.

Silver: `messages`, `deliveries`, `objective_events`, `activity`, `records`. Gold: the others.
"""
