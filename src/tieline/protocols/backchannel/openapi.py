"""The relay's API as an OpenAPI 3.1 document, served at `/v1/openapi.json`.

Above: the relay, and authors of clients. Below: nothing. It is a table of routes. One test compares the table with the
relay's routes. Another test sends the relay requests that the document allows, and requests that it forbids.
"""

from typing import Any

from tieline import __version__

Json = dict[str, Any]

_ERRORS = {
    400: "Something is wrong with the request; the text says what.",
    401: "The token is missing or opens nothing here.",
    403: "The token is another agent's, or a page of another site asks.",
    404: "There is no such route.",
    408: "The body did not come in time.",
    409: "The name belongs to another token.",
    413: "The body is too large.",
    429: "Not now: the recipient's inbox is full, or agents loop in this conversation.",
    503: "The hub is stopping, or cannot store anything at the moment.",
}
_MAYBE_TEXT = {"type": ["string", "null"]}
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$", "maxLength": 128}
_TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}


def _object(properties: Json, *required: str, description: str = "") -> Json:
    made: Json = {"type": "object", "properties": properties, "required": list(required)}
    return {**made, "description": description} if description else made


_SCHEMAS: Json = {
    "Error": _object({"error": {"type": "string"}}, "error"),
    "Ok": _object({"ok": {"const": True}}, "ok"),
    "Health": _object({"ok": {"const": True}, "service": {"const": "backchannel-relay"}}, "ok", "service"),
    "Agent": _object(
        {
            "name": _NAME,
            "subscriptions": {"type": "array", "items": {"type": "string"}},
            "createdAt": _TIME,
            "lastSeen": _TIME,
            "token": {"type": "string", "description": "Shown once, when the name is registered."},
        },
        *("name", "subscriptions", "createdAt", "lastSeen"),
    ),
    "Message": _object(
        {
            "id": {"type": "string", "format": "uuid"},
            "from": {"type": "string", "description": "The member that the token proved; with an `@` in it, nobody."},
            "to": {"type": "string", "description": "`@agent` or `#channel`."},
            "body": {"type": "string", "description": "Markdown."},
            "priority": {"enum": ["normal", "urgent"]},
            "scope": {"type": "string"},
            "thread": {"type": "string", "description": "The id of the message that this one answers."},
            "refs": {"type": "array", "items": {"type": "string"}},
            "ts": _TIME,
            "tieline": {"type": "object", "description": "What another protocol said beyond these keys."},
        },
        *("id", "from", "to", "body", "priority", "ts"),
    ),
    "Taken": _object({"message": {"oneOf": [{"$ref": "#/components/schemas/Message"}, {"type": "null"}]}}, "message"),
    "Name": _object({"name": _NAME}, "name"),
    "Channel": _object({"channel": {"type": "string", "description": "With or without its `#`."}}, "channel"),
    "Draft": _object(
        {
            "to": {"type": "string", "description": "`@agent`, a bare name, or `#channel`."},
            "body": {"type": "string", "minLength": 1},
            "priority": {"enum": ["normal", "urgent", None]},
            "scope": _MAYBE_TEXT,
            "thread": _MAYBE_TEXT,
            "refs": {"type": ["array", "null"], "items": {"type": "string"}, "maxItems": 256},
        },
        *("to", "body"),
    ),
    "Claim": _object(
        {
            "id": _MAYBE_TEXT,
            "keep": {"type": ["boolean", "null"], "description": "The hub keeps it anyway, for a week."},
        }
    ),
}


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _route(summary: str, result: Json, *, body: str = "", errors: tuple[int, ...] = (), **fields: Any) -> Json:
    """Return one operation: its result, its body, and its errors besides those of every route."""
    kind = fields.pop("kind", "application/json")
    statuses = sorted({400, 403, *((408, 413) if body else ()), *errors})
    operation: Json = {
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "content": {kind: {"schema": result}}},
            **{str(status): {"$ref": f"#/components/responses/E{status}"} for status in statuses},
        },
        **fields,
    }
    if body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _reference(body)}}}
    return operation


_PUBLIC: list[Json] = []
_ROOM: list[Json] = [{}, {"token": []}]
_AGENT: list[Json] = [{"token": []}]
_PRIVATE = (401, 404, 503)
_OWN = [{"name": "agent", "in": "path", "required": True, "schema": _NAME, "description": "The token's own agent."}]

ROUTES: dict[tuple[str, str], Json] = {
    ("GET", "/v1/health"): _route("Whether the relay is there.", _reference("Health"), security=_PUBLIC),
    ("GET", "/v1/openapi.json"): _route("This document.", {"type": "object"}, security=_PUBLIC),
    ("POST", "/v1/register"): _route(
        "Make a name one's own with the room token, or register again with the agent token.",
        _reference("Agent"),
        body="Name",
        errors=(401, 409, 503),
        security=_ROOM,
    ),
    ("GET", "/v1/agents"): _route("Every agent, by name.", _list(_reference("Agent")), errors=_PRIVATE),
    ("GET", "/v1/channels"): _route("Every channel, by name.", _list({"type": "string"}), errors=_PRIVATE),
    ("POST", "/v1/subscribe"): _route("Join a channel.", _reference("Ok"), body="Channel", errors=_PRIVATE),
    ("POST", "/v1/unsubscribe"): _route("Leave a channel.", _reference("Ok"), body="Channel", errors=_PRIVATE),
    ("POST", "/v1/send"): _route(
        "Say something; answered once it is durable.", _reference("Message"), body="Draft", errors=(*_PRIVATE, 429)
    ),
    ("GET", "/v1/inbox/{agent}"): _route(
        "What is unread, oldest first; claims nothing.",
        _list(_reference("Message")),
        errors=_PRIVATE,
        parameters=_OWN,
    ),
    ("POST", "/v1/take"): _route(
        "Claim a message: exactly one asker gets it, all others null.",
        _reference("Taken"),
        body="Claim",
        errors=_PRIVATE,
    ),
    ("GET", "/v1/events/{agent}"): _route(
        "What is unread and then each new message, as server-sent events; claims nothing.",
        {"type": "string"},
        errors=_PRIVATE,
        parameters=_OWN,
        kind="text/event-stream",
    ),
}


def document() -> Json:
    """The whole document."""
    paths: Json = {}
    for (method, path), operation in ROUTES.items():
        paths.setdefault(path, {})[method.lower()] = operation
    error = {"application/json": {"schema": _reference("Error")}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "backchannel relay",
            "version": __version__,
            "description": "The relay API of a Tieline hub.",
        },
        "paths": paths,
        "security": _AGENT,
        "components": {
            "schemas": _SCHEMAS,
            "responses": {f"E{status}": {"description": text, "content": error} for status, text in _ERRORS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
