"""Signatures: checks once more the signatures of messages, for protocols whose secret is in the environment.

Used by: the reader of a hub's database, in an audit, also in Spark's workers. Uses: the protocols' signature checks.
Secrets come from the environment and not from a source's options, because Spark shows options.
"""

import os
from collections.abc import Mapping

import msgspec
from msgspec import MsgspecError, Struct

from tieline.contract.message import Signature
from tieline.protocols import protocols
from tieline.stores.pages import MainPage


class _Signed(Struct, frozen=True, gc=False):
    original: bytes | None = None


_decode = msgspec.json.Decoder(_Signed).decode


def signing() -> tuple[str, ...]:
    """Return the names of the protocols whose members sign their messages."""
    return tuple(protocol.name for protocol in protocols() if protocol.signatures is not None)


def given_secrets() -> dict[str, bytes]:
    """Return the signing secrets that are set in the environment, by protocol."""
    declared = {one.name: one.signatures.variable for one in protocols() if one.signatures is not None}
    return {name: secret.encode() for name, variable in declared.items() if (secret := os.environ.get(variable))}


def forged(page: MainPage, secrets: Mapping[str, bytes]) -> set[int]:
    """Return the offsets of messages with a wrong signature. Only protocols with a secret in `secrets` are checked."""
    checks = {
        one.name: one.signatures.check() for one in protocols() if one.signatures is not None and one.name in secrets
    }
    found: set[int] = set()
    for message in page.messages if checks else ():
        protocol = message[3]
        if protocol not in checks or message[11] in (Signature.NONE, Signature.FAILED):
            continue
        try:
            original = _decode(message[12]).original
        except (MsgspecError, ValueError, RecursionError):
            original = None
        if original is None or not checks[protocol](original, secrets[protocol]):
            found.add(message[0])
    return found
