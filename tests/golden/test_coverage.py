"""Nothing is left out: whatever the documents of the wires name is in a transcript.

A transcript that cannot show a frame or a route any more would prove nothing about it.
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
    """A recorded document."""
    return json.loads((TRANSCRIPTS / f"{document}.json").read_text(encoding="utf-8"))


def tag_of(schema: Any) -> str:
    """The word that a frame has as its type."""
    (tag,) = schema["properties"]["t"]["enum"]
    return str(tag)


def entries(transcripts: str, sign: str) -> list[str]:
    """All entries of one side in some transcripts, with folded lines joined."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(TRANSCRIPTS.glob(transcripts))]
    found = [entry for text in texts for entry in re.split(r"\n(?=[<>#] )", text) if entry.startswith(sign)]
    return ["".join(line.strip() for line in entry.split("\n")) for entry in found]


def exchanges() -> list[tuple[str, int]]:
    """Requests over HTTP and the statuses of their answers."""
    found: list[tuple[str, int]] = []
    for path in sorted(TRANSCRIPTS.glob("*.txt")):
        asked: dict[str, str] = {}
        for sign, who, said in re.findall(r"^([<>]) (\S+) (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            if sign == ">":
                asked[who] = said
            elif said.isdecimal() and who in asked:
                found.append((asked[who], int(said)))
    return found
