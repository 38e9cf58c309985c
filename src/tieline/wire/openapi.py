"""Makes an OpenAPI 3.1 document from a table of routes and the types of their handlers.

Used by: the applications that have such a table, and authors of clients. Uses: `route`. The document is made only from
the routes, so a new route is documented automatically.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tieline import __version__
from tieline.wire.route import NO_CONTENT, Failure, Route

Json = dict[str, Any]

_ERRORS = {
    400: "The request is invalid; the text says why.",
    401: "The token is missing or not valid here.",
    403: "The member may not do this, or the request comes from a page of another site.",
    404: "Nothing has this name, or the member may not know of it.",
    408: "The body did not come in time.",
    409: "The current state does not allow this, e.g. a name is taken; the text says why.",
    410: "The channel is archived.",
    413: "The body is too large.",
    415: "The media type of the body is not supported.",
    429: "Too many requests or too much data at once; the text says which.",
    500: "The hub failed to handle this request. It changed nothing.",
    503: "The hub is stopping, or cannot store anything at the moment.",
}
_EVENTS = "text/event-stream"
_TEMPLATE = "#/components/schemas/{name}"


def document(routes: Sequence[Route], title: str, description: str, failure: type[msgspec.Struct] = Failure) -> Json:
    """Return the whole OpenAPI document of `routes` as a JSON object. `failure` is the type of the error answers."""
    shapes = [shape for route in routes for shape in (route.body, route.reply) if shape is not None]
    types = list(dict.fromkeys((*shapes, failure)))
    references, components = msgspec.json.schema_components(types, ref_template=_TEMPLATE)
    schema = dict(zip(types, references, strict=True))
    paths: Json = {}
    for route in routes:
        paths.setdefault(route.path.replace("*}", "}"), {})[route.method.lower()] = _operation(route, schema)
    error: Json = {"application/json": {"schema": schema[failure]}}
    both = {**error, "text/plain": {"schema": {"type": "string"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__, "description": description},
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "schemas": components,
            "responses": {
                f"E{status}": {"description": text, "content": both if status == 404 else error}  # noqa: PLR2004
                for status, text in _ERRORS.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schema: dict[Any, Json]) -> Json:
    names = re.findall(r"\{(\w+)\*?\}", route.path)
    public = route.open and not route.checks_token
    done: Json = {"description": "Done."}
    if route.status != NO_CONTENT and route.reply is not None:
        done["content"] = {"application/json": {"schema": schema[route.reply]}}
    elif route.live is not None:
        done["content"] = {_EVENTS: {"schema": _any(_EVENTS)}}
    elif route.gives:
        done["content"] = {kind: {"schema": _any(kind)} for kind in route.gives}
    bodied = (408, 413) if route.body is not None or route.takes else ()
    missing = (404,) if names else ()
    shown = () if public else (401,)
    statuses = sorted({400, 403, 503, *shown, *bodied, *missing, *route.errors})
    operation: Json = {
        "summary": route.summary,
        **({"security": []} if public else {}),
        "responses": {
            str(route.status): done,
            **{str(status): _failure(status, route) for status in statuses},
        },
    }
    parameters = [*_parameters(route, names)]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        content = {"application/json": {"schema": schema[route.body]}}
        operation["requestBody"] = {"required": not route.body_optional, "content": content}
    elif route.takes:
        content = {kind: {"schema": _any(kind)} for kind in route.takes}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(route: Route, names: Sequence[str]) -> Iterator[Json]:
    """Yield the OpenAPI descriptions of a route's parameters: first the variable parts of the path, which are `names`.

    Then come the query parameters: from `route.query`, and from the type of the handler's query.
    """
    name_schema = {"type": "string", "minLength": 1, "maxLength": 200}
    for name in names:
        yield {"name": name, "in": "path", "required": True, "schema": name_schema}
    for one in route.query:
        yield {
            "name": one.name,
            "in": "query",
            "required": one.required,
            "description": one.description,
            "schema": one.schema,
        }
    if route.asks is not None:
        (shape,) = msgspec.json.schema_components((route.asks,))[1].values()
        for name, schema in shape["properties"].items():
            # A missing parameter is null, but a query cannot contain null.
            known = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
            required = name in shape["required"]
            yield {"name": name, "in": "query", "required": required, "schema": known[0] if known else schema}


def _failure(status: int, route: Route) -> Json:
    """Return the OpenAPI description of the error answer of a route with this HTTP status.

    If the route declares media types for its body and for its answer, its errors have the media types of the answer.
    """
    shared: Json = {"$ref": f"#/components/responses/E{status}"}
    if not route.takes or not route.gives:
        return shared
    content = {kind: {"schema": _any(kind)} for kind in route.gives}
    return {"description": _ERRORS[status], "content": content}


def _any(kind: str) -> Json:
    """Return the JSON schema of a body of which only the media type, `kind`, is known."""
    if kind == "application/json":
        return {"type": "object"}
    return {"type": "string"} if kind == _EVENTS else {"type": "string", "format": "binary"}
