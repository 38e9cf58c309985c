"""A document that the hub keeps as a whole, in a file or in a database.

Used by: services with little data. Each store of a hub has its own kind of document.
"""

from pathlib import Path
from typing import Protocol

from tieline.wire.home import write_private


class Document(Protocol):
    """Interface of a document that is read and replaced as a whole. Any thread may use it."""

    @property
    def name(self) -> str:
        """The document's name, for people."""

    def read(self) -> bytes | None:
        """Return the document; `None` if there is none."""

    def write(self, content: bytes) -> None:
        """Replace the document. It is durable when this returns."""


class DocumentFile:
    """A document in a file that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self._path)

    def read(self) -> bytes | None:
        """Return the content of the file; `None` if there is no file."""
        return self._path.read_bytes() if self._path.exists() else None

    def write(self, content: bytes) -> None:
        """Replace the file in one step."""
        write_private(self._path, content)
