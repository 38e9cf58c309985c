"""peerbus: peers under unique names, messages signed end to end, each kept until its recipient acknowledged it.

`canonical` has the signed bytes and `codec` the frames; `server` joins them to the hub, `adapter` is a client. See
PROTOCOL.md.
"""
