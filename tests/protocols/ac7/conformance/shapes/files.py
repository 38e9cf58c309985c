"""Answer shapes of ac7's files and folders, as the protocol's existing clients read them."""

from typing import Literal

from tests.protocols.ac7.conformance.events import Count, Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Path


class Entry(Closed, frozen=True):
    """Part of an answer: a file or folder."""

    path: Path
    name: str
    kind: Literal["file", "directory"]
    owner: str
    size: Count | None
    mime_type: str | None
    hash: str | None
    created_at: Milliseconds
    created_by: str
    updated_at: Milliseconds


class Entries(Closed, frozen=True):
    """Answer with a list of files and folders."""

    entries: list[Entry]


class EntryAnswer(Closed, frozen=True):
    """Answer with one file or folder."""

    entry: Entry


class Written(Closed, frozen=True):
    """Answer to a written file: its entry, and whether it got another name."""

    entry: Entry
    renamed: bool
