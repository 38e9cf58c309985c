"""`tieline demo`: five agents on five protocols work together, and every statement about the result is checked.

Read `script` first: it has the scenes of the demo. `stage` starts the hub and the agents, each in its own process.
`agent` runs in an agent's process and uses a puppet (a small client for tests) of its protocol. `transcript` prints the
lines for a person. `verdict` has the statements of the demo about what happened, with their results. `epilogue` checks
the receipts, the log and the audit chain at the end.
"""
