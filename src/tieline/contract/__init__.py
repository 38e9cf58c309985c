"""Data types that all parts of the hub share: commands, replies, events, messages, members and more.

All other packages may import this package. It imports none of them. It has no code for sockets, clocks or SQL. Its
values are frozen (immutable) and valid by construction. A value means the same in every protocol.
"""
