"""The wire protocols: one folder for each protocol. A folder declares its protocol; no other code names a protocol.

Used by: the server, the command line, the agents' programs, the pipeline. Uses: `wire`. `docs/protocols.md` says how to
add one.
"""

import importlib
import pkgutil
from functools import cache

from tieline.contract.identifiers import reserve
from tieline.contract.redaction import add_token_prefixes
from tieline.wire.protocol import Protocol


@cache
def protocols() -> tuple[Protocol, ...]:
    """Return every protocol that has a folder in this package, sorted by name."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    found = tuple(sorted((module.PROTOCOL for module in modules), key=lambda protocol: protocol.name))
    for protocol in found:
        reserve(protocol.reserved_names)
        add_token_prefixes(protocol.token_prefixes)
    return found


def named(name: str) -> Protocol:
    """Return the protocol of this name. Raises `KeyError` if no protocol has it."""
    return {protocol.name: protocol for protocol in protocols()}[name]
