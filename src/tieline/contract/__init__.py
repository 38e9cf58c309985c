"""The language of the hub: values that every other part agrees on.

All other packages may import this one, and this one imports none of them. It has no code for sockets, clocks or SQL. A
value here is frozen and valid by construction, and it means the same on every wire.
"""
