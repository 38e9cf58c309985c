"""Test helper that compares a document of `--json` with the shape of its command."""

import json
from typing import Any

import msgspec

from tieline.cli.shapes import shapes


def fits(kind: Any, document: str) -> bool:
    """Return true if a document has exactly the fields of a type: none too many, and none that the type would add."""
    try:
        kept = msgspec.json.decode(document, type=kind)
    except msgspec.ValidationError:
        return False
    return bool(json.loads(msgspec.json.encode(kept)) == json.loads(document))


def assert_shape(path: str, document: str) -> None:
    """Check that a document of `tieline PATH --json` has a shape of this command, and says something at all."""
    assert json.loads(document), f"{path} printed nothing that has a shape"
    cases = shapes()[path]
    assert any(fits(kind, document) for kind in cases.values()), f"{path} printed none of {cases}: {document}"
