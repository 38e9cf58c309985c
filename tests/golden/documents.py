"""Documents for the golden tests: two OpenAPI documents as the hub serves them, and the frames of its own protocol."""

import json
import re
from pathlib import Path
from typing import Any

from tests.golden.recorder import Recorder
from tests.golden.stage import stage
from tests.golden.web import Web
from tests.server.hubs import ALONE
from tieline.wire.native.document import document

Json = dict[str, Any]


async def documents(folder: Path, recorder: Recorder) -> dict[str, Json]:
    """Return all documents that the code generates, by name."""
    async with stage(folder, recorder, **ALONE | {"ac7": True, "backchannel": True}) as there:
        reader = Web(there, "reader", show=lambda body: [])
        ac7 = await reader.ask("GET", "/ac7/openapi.json")
        backchannel = await reader.ask("GET", "/v1/openapi.json")
    return {"ac7-openapi": ac7.value, "v1-openapi": backchannel.value, "native-frames": document()}


def written(value: Json) -> str:
    """Return a document as indented JSON text with a placeholder for its version, so that people can compare it."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return re.sub(r'("version": )"\d+\.\d+\.\d+"', r'\1"<version>"', text)
