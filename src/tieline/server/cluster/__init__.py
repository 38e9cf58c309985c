"""Several hubs of one team: they share a database, one of them leads, and another one takes over if it fails.

Used by: `tieline serve` with an address for the other hubs. Uses: the hub, and the lease of the database. `member` is
a hub of such a team, which leads or follows. `follower` is its part while another hub leads. `team_door` is the port
at which a leader serves the others.
"""
