"""`tieline demo`: five agents on five protocols do a small piece of work together, and all statements are checked.

Read `script` first: it is the play, scene by scene. `stage` starts the hub and the agents, each in its own process.
`agent` runs in an agent's process and uses a puppet (a small client for tests) of its protocol. `transcript` prints the
lines for a person. `verdict` has the statements of the demo about what happened, with their results. `epilogue` checks
the receipts, the log and the audit chain at the end.
"""
