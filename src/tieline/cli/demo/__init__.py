"""`tieline demo`: five agents on five protocols do a small piece of work together, and every claim is checked.

Read `script` first: it is the play, scene by scene. `stage` starts the hub and the agents, each a process of its own;
`agent` is what runs in such a process, speaking through a puppet of its protocol. `transcript` is what a person
watches, `verdict` what was claimed and what was found, and `epilogue` what the hub has of it all in the end.
"""
