"""Makes the OpenAPI 3.1 document of the hub's own protocol from its frames.

Used by: the hub's HTTP port, and the build of the console, which makes its types from the document. Uses: `frames`.
OpenAPI cannot describe a stream. So the document has only one path, which opens a WebSocket. The frames are schemas:
`ClientFrame` is a frame from a client, and `HubFrame` is a frame from the hub.
"""

from typing import Any, get_args

import msgspec

from tieline import __version__
from tieline.wire.native import frames as f

_TEMPLATE = "#/components/schemas/{name}"
_UNIONS = {"ClientFrame": f.ClientFrame, "HubFrame": f.HubFrame}


def document() -> dict[str, Any]:
    """Return the whole OpenAPI document as a JSON object."""
    kinds = [kind for union in _UNIONS.values() for kind in get_args(union)]
    references, components = msgspec.json.schema_components(kinds, ref_template=_TEMPLATE)
    found = dict(zip(kinds, references, strict=True))
    for name, union in _UNIONS.items():
        components[name] = {"oneOf": [found[kind] for kind in get_args(union)]}
    text = "A WebSocket. Each text message is an array of ClientFrame in, of HubFrame out; see PROTOCOL.md."
    return {
        "openapi": "3.1.0",
        "info": {"title": "tieline", "version": __version__, "description": "The hub's own protocol."},
        "paths": {
            "/api/stream": {
                "get": {
                    "operationId": "stream",
                    "summary": "Everything that a hub can do, over one connection",
                    "description": text,
                    "responses": {"101": {"description": "The connection is a WebSocket from now on."}},
                }
            }
        },
        "components": {"schemas": components},
    }
