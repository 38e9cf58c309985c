"""The OpenAPI documents from which the build makes the types of the console, and the colours of the protocols.

    python web/documents.py FOLDER

Three documents: the frames of the hub's own protocol; the hub's routes for the console, as a hub serves them; and what
else the console asks for: who is in, and the pipeline's report. The colours are those of the protocols, as a sheet.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec

from tieline import __version__
from tieline.console.app import DOCUMENT_PATH
from tieline.console.login import Visitor
from tieline.protocols import protocols
from tieline.server.hub import Options, RunningHub
from tieline.wire.native.document import document
from tieline.wire.report_parts import Report


def shapes() -> dict[str, Any]:
    """Types of the JSON from `/api/session` and `/api/insights`."""
    _, components = msgspec.json.schema_components((Visitor, Report), ref_template="#/components/schemas/{name}")
    for one in components.values():
        # They are always written whole, also what has a default.
        one["required"] = list(one["properties"])
    info = {"title": "console", "version": __version__}
    return {"openapi": "3.1.0", "info": info, "paths": {}, "components": {"schemas": components}}


async def routes() -> dict[str, Any]:
    """The hub's routes for the console, asked of a hub that keeps nothing."""
    with tempfile.TemporaryDirectory() as folder:
        hub = RunningHub(Options(home=Path(folder), http="127.0.0.1:0", store="memory"))
        running = await hub.start()
        try:
            found = await asyncio.to_thread(_read, f"{running.http}{DOCUMENT_PATH}")
        finally:
            await hub.stop()
    return found


def _read(address: str) -> dict[str, Any]:
    with urlopen(address, timeout=10) as answer:  # noqa: S310 the hub that was just started
        found: dict[str, Any] = msgspec.json.decode(answer.read())
    return found


def colours() -> str:
    """The rules that give each protocol its colour, under every name that its sessions have."""
    rules = []
    for protocol in protocols():
        names = ", ".join(f".wire.{name}" for name in (protocol.name, *protocol.other_names))
        rules.append(f"{names} {{ --hue: {protocol.colour}; }}\n")
    return "".join(rules)


def main() -> None:
    """Write them."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, one in {"frames": document(), "routes": asyncio.run(routes()), "shapes": shapes()}.items():
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(one))
    (folder / "protocols.css").write_text(colours())


if __name__ == "__main__":
    main()
