"""Tests that the transcripts contain every frame and route that the protocols' documents name.

A frame or route that is in no transcript would not be tested at all.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

TRANSCRIPTS = Path(__file__).with_name("transcripts")


def test_every_frame_of_the_hubs_own_protocol_is_in_a_transcript() -> None:
    schemas = stored("native-frames")["components"]["schemas"]
    for union, sign in (("ClientFrame", ">"), ("HubFrame", "<")):
        names = [one["$ref"].rpartition("/")[2] for one in schemas[union]["oneOf"]]
        said = entries("native*.txt", sign)
        missing = [tag for name in names if not any(f'"t":"{(tag := tag_of(schemas[name]))}"' in one for one in said)]
        assert not missing


@pytest.mark.parametrize("document", ["ac7-openapi", "v1-openapi"])
def test_every_route_of_a_document_is_in_a_transcript_with_success(document: str) -> None:
    asked = exchanges()
    for path, operations in stored(document)["paths"].items():
        pattern = re.sub(r"\\{path\\}", ".+", re.escape(path))
        pattern = re.sub(r"\\{\w+\\}", "[^/ ]+", pattern)
        for method in operations:
            line = re.compile(rf"{method.upper()} {pattern}(\?.*)?$")
            assert any(line.match(request) and status < 400 for request, status in asked), f"{method} {path}"


def stored(document: str) -> Any:
    """Return a stored document, decoded."""
    return json.loads((TRANSCRIPTS / f"{document}.json").read_text(encoding="utf-8"))


def tag_of(schema: Any) -> str:
    """Return the type of a frame (its field `t`), from the frame's schema."""
    (tag,) = schema["properties"]["t"]["enum"]
    return str(tag)


def entries(transcripts: str, sign: str) -> list[str]:
    """Return all entries with this sign (`>` client, `<` hub) in the matching transcripts, with folded lines joined."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(TRANSCRIPTS.glob(transcripts))]
    found = [entry for text in texts for entry in re.split(r"\n(?=[<>#] )", text) if entry.startswith(sign)]
    return ["".join(line.strip() for line in entry.split("\n")) for entry in found]


def exchanges() -> list[tuple[str, int]]:
    """Return all HTTP requests in the transcripts, each with the status of its answer."""
    found: list[tuple[str, int]] = []
    for path in sorted(TRANSCRIPTS.glob("*.txt")):
        asked: dict[str, str] = {}
        for sign, who, said in re.findall(r"^([<>]) (\S+) (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            if sign == ">":
                asked[who] = said
            elif said.isdecimal() and who in asked:
                found.append((asked[who], int(said)))
    return found
