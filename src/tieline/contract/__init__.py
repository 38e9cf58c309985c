"""The language of the hub: values that every other part agrees on.

Above: everything. Below: nothing. It refuses to know sockets, clocks, SQL and JSON: a value here is
frozen, valid by construction, and says the same thing on every wire.
"""
