"""The pages of the documentation that are made from the code: commands, JSON, SDK, HTTP, configuration, tables, agents.

    python -m scripts.docs_reference

writes the pages that are kept in the repository, because they need Spark: the tables and their columns. Used by:
`docs_site`, which makes the other pages at each build, and a test, which compares the tables with the code. Uses: the
package itself. Nothing here is written by hand that the code says already.
"""

import asyncio
import inspect
import re
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec

from tieline.protocols import protocols

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "docs" / "reference" / "tables.md"
_SKILL = ROOT / "src" / "tieline" / "agents" / "SKILL.md"
_WAIT_SECONDS = 10  # a hub in memory answers at once
_DOCUMENTS = {
    "The hub": "/api/openapi.json",
    **{protocol.name: protocol.openapi for protocol in protocols() if protocol.openapi},
}


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = [list(heads)]
    lines += [["---"] * len(lines[0]), *(list(map(_cell, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _plain(text: str) -> str:
    """Return a text of a help or a docstring without what Markdown would take for an element."""
    return re.sub(r"<(?=[A-Za-z/])", "&lt;", text).replace("*", "\\*")


# ---------------------------------------------------------------------------- the command line


def cli_page() -> str:
    """Return the page of all commands."""
    import typer  # noqa: PLC0415

    from tieline.cli.main import make_app  # noqa: PLC0415 - it loads every command

    whole: Any = typer.main.get_command(make_app())
    panels: dict[str, list[Any]] = {}
    for command in whole.commands.values():
        if not command.hidden:
            panels.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append(command)
    rows = [
        (panel, ", ".join(f"[`{one.name}`](#tieline-{one.name})" for one in commands))
        for panel, commands in panels.items()
    ]
    parts = [
        "# Commands\n",
        "Every command with its options, as `tieline COMMAND --help` prints them. Options that name the member and",
        "the hub are the same in every command. [Exit codes](../reference.md#exit-codes) are the same, too.\n",
        table(("group", "commands"), rows),
    ]
    for panel, commands in panels.items():
        parts.append(f"\n## {panel}\n")
        for command in commands:
            parts += _command(command, f"tieline {command.name}", 3)
    return "\n".join(parts)


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    yield f"\n{'#' * level} `{path}` {{ #{path.replace(' ', '-')} }}\n"
    yield from _help(command.help or "")
    inner = getattr(command, "commands", None)
    usage = "COMMAND …" if inner else " ".join(filter(None, map(_usage, command.params)))
    yield f"```text\n{path} {usage}".rstrip() + "\n```\n"
    if command.epilog:
        yield from _help(command.epilog)
    shown = [one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
    if shown:
        yield table(("", "meaning"), ((_names(one), _meaning(one)) for one in shown))
    for one in (inner or {}).values():
        if not one.hidden:
            yield from _command(one, f"{path} {one.name}", level + 1)


def _help(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text. Paragraphs that are indented, or not to be wrapped, become code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```text\n{inspect.cleandoc(paragraph[1:])}\n```\n"
        elif paragraph.startswith((" ", "$")):
            yield f"```text\n{inspect.cleandoc(paragraph)}\n```\n"
        else:
            yield f"{_plain(paragraph)}\n"


def _usage(parameter: Any) -> str:
    if parameter.param_type_name != "argument":
        return ""
    name = _argument(parameter)
    many = "…" if parameter.nargs != 1 and not name.endswith("…") else ""
    return f"{name}{many}" if parameter.required or name.startswith("[") else f"[{name}{many}]"


def _argument(parameter: Any) -> str:
    """Return the name of an argument. One that the code spells may have its brackets and dots already."""
    return str(parameter.metavar or parameter.name.upper()).replace("...", "…")


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    value = "" if getattr(parameter, "is_flag", False) else f" {parameter.metavar or parameter.type.name.upper()}"
    return ", ".join(f"`{name}{value}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _meaning(parameter: Any) -> str:
    text = _plain(getattr(parameter, "help", None) or "")
    default = parameter.default
    if default not in (None, False, True, "", (), []) and not callable(default) and not isinstance(default, type(...)):
        text += f" Default: `{default}`."
    variable = getattr(parameter, "envvar", None)
    return text + (f" Variable: `{variable}`." if variable else "")


# ---------------------------------------------------------------------------- JSON of the commands


def json_schema() -> bytes:
    """Return the JSON Schema of what commands print with `--json`, for programs that read it."""
    from tieline.cli.shapes import schema  # noqa: PLC0415 - it loads every type that is printed

    return msgspec.json.format(msgspec.json.encode(schema()), indent=1)


def json_page() -> str:
    """Return the page about what commands print with `--json`."""
    shapes = msgspec.json.decode(json_schema())["$defs"]
    parts = [
        "# JSON of commands\n",
        "With `--json` a command prints one document, on one line if its output is no terminal. The table has its",
        "shape. The same shapes are a [JSON Schema](../json-schema.json), in which `#/$defs/tieline-send` is the",
        "document of `tieline send`. Later versions may add fields, so ignore those that you do not know. A field",
        "is always there if its last column says so. Times are milliseconds since 1970 (UTC), and ids are the long",
        "ones.\n",
        "A command that does not end with 0 prints [`Failed`](#failed) as the last line of stderr. `logs` prints",
        "the lines of the hub's log as they are: all have `event`, `level` and `timestamp`. The rows of `pipeline",
        "sql` have the columns of the query.\n",
    ]
    rows = [
        (f"[`{shape['title'].removesuffix(' --json')}`](cli.md#{name})", _linked(case), case.get("description", ""))
        for name, shape in shapes.items()
        for case in shape.get("anyOf", ())
    ]
    parts.append(table(("command", "document", "case"), rows))
    for name, shape in sorted(shapes.items()):
        if "anyOf" not in shape:
            parts += [f"## `{name}` {{ #{name.lower()} }}\n", *_about(shape)]
    return "\n".join(parts)


def _about(shape: dict[str, Any]) -> Iterator[str]:
    """Yield the description of a type: its fields, or its values."""
    yield f"{_plain(' '.join(shape.get('description', '').split()))}\n"
    required = set(shape.get("required", ()))
    if shape.get("properties"):
        rows = (
            (f"`{field}`", _linked(about), "yes" if field in required else "")
            for field, about in shape["properties"].items()
        )
        yield table(("field", "type", "always"), rows)
    elif "enum" in shape:
        yield f"One of {_linked(shape)}.\n"


def _linked(about: dict[str, Any]) -> str:
    """Return a type in words, with links to the types on this page."""
    return re.sub(r"`([A-Z]\w+)`", lambda name: f"[`{name[1]}`](#{name[1].lower()})", _json_type(about))


# ---------------------------------------------------------------------------- the SDK


EXAMPLE = """\
import asyncio
from tieline.client import connect


async def main() -> None:
    async with await connect(member="alice") as client:
        accepted = await client.send("@bob", "hello")
        print(accepted.id)
    async with await connect(member="bob", receive=True) as client:
        async for delivery in client:
            print(delivery.message.sender, delivery.message.body)
            client.ack(delivery)
            break


asyncio.run(main())
"""


def sdk_page() -> str:
    """Return the page of the Python SDK."""
    from tieline import client  # noqa: PLC0415

    parts = [
        "# Python SDK\n",
        "`tieline.client` connects a program to a hub, by the [hub's own protocol](../wire/tieline.md).\n",
        f"```python\n{EXAMPLE}```\n",
        "## `connect`\n",
        *_callable(client.connect, "connect"),
        "## `Client`\n",
        f"{_doc(client.Client)}\n",
    ]
    for name, member in sorted(inspect.getmembers(client.Client, inspect.isfunction)):
        if not name.startswith("_") and name not in ("receive_batch", "connection_lost", "greet"):
            parts += [f"### `{name}`\n", *_callable(member, name)]
    parts.append("## Values\n")
    parts.append("All values are frozen. A field without a default is always there.\n")
    for name in sorted(client.__all__):
        kind = getattr(client, name)
        if inspect.isclass(kind) and kind is not client.Client:
            parts += [f"### `{name}`\n", f"{_doc(kind)}\n", *_fields(kind)]
    return "\n".join(parts)


def _doc(thing: Any) -> str:
    return _plain(inspect.cleandoc(thing.__doc__ or ""))


def _callable(function: Any, name: str) -> Iterator[str]:
    signature = inspect.signature(function)
    kept = [one for one in signature.parameters.values() if one.name != "self"]
    shown = str(signature.replace(parameters=kept))
    shown = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", shown)  # a value of an enumeration, as a program writes it
    shown = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", shown)
    shown = re.sub(r"\bDeliver\b", "Delivery", shown)  # the name of the type in the SDK
    shown, awaited = re.subn(r"Coroutine\[Any, Any, (.+)\]$", r"\1", shown)
    start = "await " if awaited or inspect.iscoroutinefunction(function) else ""
    if len(shown) > 90:  # noqa: PLR2004 - a line of code in the site
        inside, _, after = shown.rpartition(") -> ")
        lines = re.split(r", (?=[\w*]+(?:[:,]|$))", inside.removeprefix("("))
        shown = "(\n    " + ",\n    ".join(lines) + f",\n) -> {after}"
    yield f"```python\n{start}{name}{shown}\n```\n"
    yield f"{_doc(function)}\n"


def _fields(kind: Any) -> Iterator[str]:
    if issubclass(kind, msgspec.Struct) and kind.__struct_fields__:
        notes = {field.name: field for field in msgspec.structs.fields(kind)}
        rows = [
            (f"`{field.name}`", f"`{_type(field.type)}`", "" if field.required else f"`{_default(field)}`")
            for field in notes.values()
        ]
        yield table(("field", "type", "default"), rows)
    elif hasattr(kind, "__members__"):
        yield table(("name", "value"), ((f"`{name}`", f"`{one.value}`") for name, one in kind.__members__.items()))


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return str(getattr(field.default, "value", repr(field.default)))
    return f"{getattr(field.default_factory, '__name__', '…')}()"


def _type(kind: Any) -> str:
    text = re.sub(r"typing\.Annotated\[([^,\]]+)[^\]]*\]", r"\1", str(kind))
    text = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else text
    return re.sub(r"\b(?:[a-z_]\w*\.)+", "", text)


# ---------------------------------------------------------------------------- HTTP


@cache
def _documents() -> dict[str, dict[str, Any]]:
    """Return the OpenAPI documents of a hub that keeps nothing, by their headings."""
    from tieline.server.hub import Options, RunningHub  # noqa: PLC0415

    async def ask() -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as folder:
            hub = RunningHub(Options(home=Path(folder), http="127.0.0.1:0", store="memory"))
            running = await hub.start()
            try:
                return {
                    title: await asyncio.to_thread(_read, f"{running.http}{path}") for title, path in _DOCUMENTS.items()
                }
            finally:
                await hub.stop()

    return {title: msgspec.json.decode(body) for title, body in asyncio.run(ask()).items()}


def _read(address: str) -> bytes:
    with urlopen(address, timeout=_WAIT_SECONDS) as answer:
        body: bytes = answer.read()
    return body


def openapi() -> bytes:
    """Return the OpenAPI document of the hub's own routes, for programs that make clients."""
    return msgspec.json.format(msgspec.json.encode(_documents()["The hub"]), indent=1)


def http_page() -> str:
    """Return the page of all HTTP routes."""
    parts = [
        "# HTTP API\n",
        "The HTTP routes of a hub, with their parameters and answers. All are on one port, by default",
        "`http://127.0.0.1:7117`. A request carries a member's token:",
        "`Authorization: Bearer TOKEN`. The tables are made from the OpenAPI documents that a hub serves. The hub's",
        "own one is also [part of this site](../openapi.json). [Limits and refusals](../reference.md#http) says more",
        "about the routes of the hub. MCP is at `/mcp` ([MCP](../wire/mcp.md)), peerbus at `/peerbus`",
        "([peerbus](../wire/peerbus.md)), the SDK's stream at `/api/stream`",
        "([the hub's protocol](../wire/tieline.md)), OpenTelemetry at `/otlp/v1/logs` and `/otlp/v1/traces`",
        "([ac7](../wire/ac7.md)).\n",
        "`/healthz` and `/metrics` need no token, and neither does this documentation at `/docs`.\n",
    ]
    for title, document in _documents().items():
        parts += [f"## {title}\n", f"`GET {_DOCUMENTS[title]}` has this as an OpenAPI document.\n"]
        rows = [
            (
                f"`{method.upper()} {path}`",
                _plain(about.get("summary", "")),
                "; ".join(filter(None, (_query(about), _body(about)))),
                _answer(about),
            )
            for path, methods in document["paths"].items()
            for method, about in methods.items()
        ]
        parts.append(table(("request", "meaning", "query and body", "answer"), rows))
        shapes = document["components"]["schemas"]
        named = {name for row in rows for cell in row[2:] for name in re.findall(r"`(\w+)`", cell)}
        for name in sorted(named & set(shapes)):
            parts += _shape(name, shapes[name])
    return "\n".join(parts)


def _schema(content: dict[str, Any]) -> str:
    for kind, about in content.items():
        schema = about.get("schema", {})
        inner = schema.get("$ref") or schema.get("items", {}).get("$ref")
        return f"`{inner.rpartition('/')[2]}`" if inner else kind
    return ""


def _query(about: dict[str, Any]) -> str:
    """Return the parameters in the query of a request, each with its type, or its values."""
    return "; ".join(
        f"`{one['name']}`: {_json_type(one.get('schema', {}))}"
        for one in about.get("parameters", ())
        if one["in"] == "query"
    )


def _body(about: dict[str, Any]) -> str:
    return _schema(about.get("requestBody", {}).get("content", {}))


def _answer(about: dict[str, Any]) -> str:
    for status, answer in about.get("responses", {}).items():
        if status.startswith("2"):
            return " ".join(filter(None, (status, _schema(answer.get("content", {})))))
    return ""


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    required = set(schema.get("required", ()))
    rows = [
        (f"`{field}`", _json_type(about), "yes" if field in required else "")
        for field, about in schema.get("properties", {}).items()
    ]
    if rows:
        yield f"\n**`{name}`**: {_plain(' '.join(schema.get('description', '').split()))}\n"
        yield table(("field", "type", "required"), rows)


def _json_type(about: dict[str, Any]) -> str:
    if "$ref" in about:
        return f"`{about['$ref'].rpartition('/')[2]}`"
    if "anyOf" in about:
        return " or ".join(dict.fromkeys(map(_json_type, about["anyOf"])))
    if "enum" in about:
        return ", ".join(f"`{value}`" for value in about["enum"])
    if "prefixItems" in about:
        return f"pair of {' and '.join(map(_json_type, about['prefixItems']))}"
    if about.get("type") == "array":
        return f"list of {_json_type(about.get('items', {})) or 'values'}"
    if about.get("additionalProperties"):
        return f"object of {_json_type(about['additionalProperties'])}"
    return str(about.get("type", "any"))


# ---------------------------------------------------------------------------- the configuration

VARIABLES = {
    "TIELINE_HOME": "the home, as `--home`",
    "TIELINE_HTTP": "`listen` of `[http]`",
    "TIELINE_STORE": "`url` of `[store]`",
    "TIELINE_URL": "the hub's address, for commands and the SDK, as `--url`",
    "TIELINE_AGENT": "the member that a command acts as, as `--as`",
    "TIELINE_TOKEN": "the member's token, as `--token`",
    "BACKCHANNEL_HOME": "the spool that the hub adopts, as `--spool`",
    "BACKCHANNEL_TOKEN": "`room_token` of `[backchannel]`",
    "BACKCHANNEL_AGENT": "the agent that a command acts as in a spool, without a hub",
    "TIELINE_PEERBUS": "`listen` of `[peerbus]`",
    "PEERBUS_TOKENS": "`tokens` of `[peerbus]`, separated by commas",
    "PEERBUS_HMAC_SECRET": "`hmac_secret` of `[peerbus]`",
}
"""Variables of the environment, for people. A test finds each of them in the code."""


def configuration_page() -> str:
    """Return the page of `tieline.toml`, as the first start of a hub writes it."""
    from tieline.server.config import load_config  # noqa: PLC0415
    from tieline.wire.home import CONFIG_FILE  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        load_config(Path(folder), {})
        text = (Path(folder) / CONFIG_FILE).read_text(encoding="utf-8")
    text = re.sub(r'"[A-Za-z0-9_-]{24,}"', '"…"', text)
    text = re.sub(r'^owner = ".*"', 'owner = "maria"', text, flags=re.MULTILINE)
    parts = [
        "# Configuration\n",
        "Every setting of a hub is in `tieline.toml` of its home, with a comment. The first start of the hub",
        "writes this file, as below, with new secrets. A flag of",
        "[`tieline serve`](cli.md#tieline-serve) wins over a variable of the environment, a variable over the file,",
        "the file over the default. `tieline config show --origin` prints every setting of a hub and where its value",
        "comes from. A change needs a new start of the hub.\n",
    ]
    sections: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith(("[", "# [limits]")):
            sections.append([])
        if sections:
            sections[-1].append(line)
    for lines in sections:
        name = lines[0].strip("#[] ")
        parts += [f"## `[{name}]`\n", "```toml\n" + "\n".join(lines).strip() + "\n```\n"]
    parts.append("[All limits](../reference.md#limits), with their defaults and reasons.\n")
    parts += [
        "## Variables\n",
        table(("variable", "sets"), ((f"`{name}`", about) for name, about in VARIABLES.items())),
    ]
    return "\n".join(parts)


# ---------------------------------------------------------------------------- the pipeline's tables


def tables_page() -> str:
    """Return the page of the pipeline's tables and their columns. Needs Spark."""
    from tieline.pipeline import catalogue  # noqa: PLC0415
    from tieline.pipeline.meanings import meaning  # noqa: PLC0415

    parts = [
        "# Tables and columns\n",
        "The [pipeline](../pipeline.md) keeps these tables. Bronze has the rows of the logs, silver tables have typed",
        "facts, gold tables have sums. Times are milliseconds since 1970 (UTC); costs are billionths of a dollar.",
        "`python -m scripts.docs_reference` makes this page from the code.\n",
        table(
            ("table", "kind", "one row is", "made from"),
            (
                (f"[`{name}`](#{name})", _kind(name), _plain(catalogue.about(name)), ", ".join(catalogue.sources(name)))
                for name in catalogue.SCHEMAS
            ),
        ),
    ]
    for name, schema in catalogue.SCHEMAS.items():
        parts += [f"## `{name}` {{ #{name} }}\n", f"{_plain(catalogue.about(name))}\n"]
        rows = [
            (f"`{field.name}`", f"`{field.dataType.simpleString()}`", _plain(meaning(name, field.name)))
            for field in schema.fields
        ]
        parts.append(table(("column", "type", "meaning"), rows))
    return "\n".join(parts).rstrip() + "\n"


def _kind(name: str) -> str:
    from tieline.pipeline import catalogue  # noqa: PLC0415

    return "gold" if name in catalogue.GOLD else "silver" if name in catalogue.SILVER else "bronze"


# ---------------------------------------------------------------------------- agents


def skill() -> str:
    """Return the skill for agents, as `tieline skill` prints it."""
    return _SKILL.read_text(encoding="utf-8")


def agents_page() -> str:
    """Return the page for agents: where to read, and the skill."""
    return "\n".join(
        [
            "# For agents\n",
            "If you are an agent, read [llms.txt](llms.txt): the list of all pages, in one file. The rules of",
            "behaviour on the bus are the skill below; `tieline skill` prints it, and [SKILL.txt](SKILL.txt) has it as",
            "a file. Your tools are in [MCP](mcp.md#the-tools).\n",
            "## The skill\n",
            f"````markdown\n{skill().rstrip()}\n````\n",
        ]
    )


def llms(pages: Path, nav: list[dict[str, Any]]) -> str:
    """Return `llms.txt`: the pages of the site in the order of its menu, each with the beginning of its text.

    `pages` has their Markdown, to which the links lead. Pages that the menu does not name are optional.
    """
    lines = [
        "# Tieline",
        "",
        "> One hub for coding agents. It speaks the wire protocols that agents already use, so that an agent, a person",
        "> or a script on one protocol reaches one on any other. Messages are durable, and receipts show their state.",
        "",
        "A hub serves these pages as Markdown below /docs/. Rules of behaviour for agents: /docs/SKILL.txt. OpenAPI of",
        "the hub's own routes: /docs/openapi.json. JSON Schema of what commands print: /docs/json-schema.json.",
    ]
    named: list[str] = []
    for entry in nav:
        for title, places in entry.items():
            inner = [{title: places}] if isinstance(places, str) else places
            here = [place for one in inner for place in one.values()]
            named += here
            lines += ["", f"## {title}", "", *(_listed(pages, place) for place in here)]
    others = sorted({path.relative_to(pages).as_posix() for path in pages.rglob("*.md")} - set(named))
    return "\n".join([*lines, "", "## Optional", "", *(_listed(pages, place) for place in others), ""])


def _listed(pages: Path, place: str) -> str:
    """Return the line of `llms.txt` about a page."""
    text = re.sub(r"^ *```.*?^ *```$", "", (pages / place).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    paragraphs = re.findall(r"^(?!#|\||!|-|Status:|Date:|\s)\S(?:.|\n(?!\n))*", text, re.MULTILINE)
    about = " ".join(paragraphs[0].split()) if paragraphs else ""
    about = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", about).replace("**", "").strip("*")
    beginning = re.match(r".{20,}?\.(?=\s|$)", about)
    return f"- [{title[1] if title else place}](/docs/{place}): {(beginning[0] if beginning else about).rstrip(':;.')}."


if __name__ == "__main__":
    TABLES.write_text(tables_page(), encoding="utf-8")
