"""Write the hub's own protocol and the SDK's plain methods from the contract.

    python -m scripts.derive [--check]

The module `wire.native.derived` is generated from the commands and replies of `tieline.contract`. It has the requests
of the hub's own protocol, with their commands; its answers, and the parts of answers, with the functions that make them
from replies; and a method of the SDK for each request. It is one module, so that a new command changes one generated
file. `scripts.native` lists the differences between the wire and the contract. `--check` writes nothing, and fails if
the module is out of date.
"""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NewType, Union, cast, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from scripts import native
from tieline.contract import channel, objective
from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.delivery import State
from tieline.contract.internal import INTERNAL
from tieline.contract.member import MemberKind
from tieline.contract.message import Content
from tieline.contract.target import Target

ROOT = Path(__file__).resolve().parent.parent
DERIVED = ROOT / "src" / "tieline" / "wire" / "native" / "derived.py"

_HEADER = "# Made from tieline.contract by `make derive` (scripts/derive.py). Do not edit.\n"

_UNIONS = {
    channel.AnyChange: ("tieline.contract.channel", "AnyChange as ChannelChange"),
    objective.AnyChange: ("tieline.contract.objective", "AnyChange as ObjectiveChange"),
    objective.AnyHappening: ("tieline.contract.objective", "AnyHappening"),
}
_WORDS = {State: ".word", MemberKind: ".value", objective.Status: ".value"}
"""Enumerations that answers show as plain words."""
_POSITIONAL_MAX = 3
"""A method with at most this many parameters takes all of them by position."""


class Field(Struct, frozen=True):
    """One field of a frame, and its place in the contract."""

    name: str
    source: str
    type: Any
    default: Any
    """`NODEFAULT` if the field has no default."""


class Module:
    """A module that is being written: its text, and the names that it imports."""

    def __init__(self, docstring: str) -> None:
        self._docstring = docstring
        self._imports: set[tuple[str, str]] = set()
        self._parts: list[str] = []

    def use(self, module: str, name: str) -> str:
        """Import a name; returns the name under which this module knows it."""
        self._imports.add((module, name))
        return name.rpartition(" as ")[2]

    def add(self, text: str) -> None:
        """Write a class, a function or an assignment."""
        self._parts.append(text)

    def text(self) -> str:
        """The whole text of the module, formatted."""
        lines = [f"from {module} import {name}" if module else f"import {name}" for module, name in self._imports]
        whole = "\n\n\n".join([f'"""{self._docstring}"""\n\n{_HEADER}\n' + "\n".join(sorted(lines)), *self._parts])
        for tool in (("check", "--select", "I", "--fix-only", "--quiet"), ("format", "--quiet")):
            command = [Path(sys.executable).with_name("ruff"), *tool, "--stdin-filename", str(DERIVED), "-"]
            whole = subprocess.run(command, input=whole, capture_output=True, text=True, check=True, cwd=ROOT).stdout
        return whole

    def spell(self, kind: Any, *, numbers: bool = False, words: bool = False) -> str:
        """A type of the contract as frames spell it; in frames, identifiers are plain text."""
        if kind in _UNIONS:
            return self.use(*_UNIONS[kind])
        parts = [self.spell(part, numbers=numbers, words=words) for part in get_args(kind) if part is not Ellipsis]
        origin = get_origin(kind)
        if origin in (Union, UnionType):
            return " | ".join(parts)
        if origin is tuple and Ellipsis in get_args(kind):
            return f"tuple[{parts[0]}, ...]"
        if origin in (tuple, dict):
            return f"{origin.__name__}[{', '.join(parts)}]"
        if isinstance(kind, NewType):
            return self.spell(kind.__supertype__)
        if kind in (Target, State, bytes) or (words and kind in _WORDS):
            return "str"
        if kind in native.VIEWS:
            return native.VIEWS[kind].name
        if kind is NoneType:
            return "None"
        if kind is int and numbers:
            return self.use("tieline.wire.native.frame", "Number")
        if kind is Any:
            return self.use("typing", "Any")
        if kind.__module__ != "builtins":
            self.use(kind.__module__, kind.__name__)
        return str(kind.__name__)

    def literal(self, value: Any) -> str:
        """A default value as source text."""
        if isinstance(value, State):
            return repr(value.word)
        if isinstance(value, Enum):
            return f"{self.use(type(value).__module__, type(value).__name__)}.{value.name}"
        if value == {}:
            return f"{self.use('msgspec', 'field')}(default_factory=dict)"
        return repr(value)

    def define(self, part: Field, kind: str) -> str:
        """A field in the body of a class, or a parameter."""
        return f"{part.name}: {kind}" + ("" if part.default is NODEFAULT else f" = {self.literal(part.default)}")


def snake(name: str) -> str:
    """`CreateObjective` as `create_objective`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def said(kind: type[Struct]) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def reply_of(command: type[Struct]) -> type[Struct]:
    """The reply that a command names."""
    (reply,) = get_args(vars(command)["__orig_bases__"][0])
    return cast(type[Struct], reply)


def requests() -> list[type[Struct]]:
    """Commands that a member may give, in their order in the contract."""
    return [kind for kind in c.COMMANDS if issubclass(kind, c.Request)]


def answer_name(reply: type[Struct]) -> tuple[str, str]:
    """Name and tag of the frame that shows a reply."""
    return native.ANSWERS.get(reply, (reply.__name__, snake(reply.__name__)))


def parts_of(kind: type[Struct], at: str, without: tuple[str, ...] = (), flat: str = "") -> Iterator[Field]:
    """Fields of a struct of the contract that clients may see."""
    hints = get_type_hints(kind, include_extras=True)
    for info in fields(kind):
        hint = hints[info.name]
        if get_origin(hint) is Annotated:
            if INTERNAL in hint.__metadata__:
                continue
            hint = hint.__origin__
        if info.name in without:
            continue
        if info.name == flat:
            yield from parts_of(hint, f"{at}.{info.name}", without)
            continue
        name = native.RENAMED.get(info.name, info.name)
        source = name if isinstance(getattr(kind, name, None), property) else info.name
        default = info.default_factory() if info.default_factory is not NODEFAULT else info.default
        yield Field(name, f"{at}.{source}", hint, default)


def sorted_by(order: tuple[str, ...], parts: Iterator[Field]) -> list[Field]:
    """Fields in the given order; fields that the order does not name follow."""
    return sorted(parts, key=lambda part: order.index(part.name) if part.name in order else len(order))


def class_text(head: str, doc: str, lines: list[str]) -> str:
    """Text of a struct."""
    return f'class {head}:\n    """{doc}"""\n\n' + "\n".join(f"    {line}" for line in lines)


def renaming(parts: list[Field]) -> str:
    """The argument that gives fields their names on the wire."""
    found = {part.name: native.ON_THE_WIRE[part.name] for part in parts if part.name in native.ON_THE_WIRE}
    return f", rename={found}" if found else ""


# Requests.


def tag_of(command: type[Struct]) -> str:
    """The tag of a request: the tag in its row, or else the command's name without `list_` or `set_`."""
    row = native.REQUESTS.get(command, native.Asked())
    return row.tag or re.sub(r"\A(list|set)_", "", snake(command.__name__))


def asked_parts(command: type[Struct]) -> list[Field]:
    """Fields of a request."""
    row = native.REQUESTS.get(command, native.Asked())
    return sorted_by(row.order, parts_of(command, "", ("session", *row.without), "content"))


def description(command: type[Struct]) -> str:
    """Docstring of a request: its purpose and its answer."""
    row = native.REQUESTS.get(command, native.Asked())
    return f"{said(command)} Answered by `{answer_name(reply_of(command))[1]}`{row.answered}."


def value_of(module: Module, part: Field) -> str:
    """A field of a request, converted for its command."""
    own = f"self.{part.name}"
    if part.type is State or part.type is Target:
        return part.name
    # A channel may be named with its `#`.
    stripped = f'{own}.removeprefix("#")' if part.source == ".channel" or _says(part.type, "ChannelName") else own
    if isinstance(part.type, NewType):
        return f"{module.use(part.type.__module__, part.type.__name__)}({stripped})"
    if names := {kind.__name__: kind for kind in get_args(part.type) if isinstance(kind, NewType)}:
        module.use("typing", "cast")
        for kind in names.values():
            module.use(kind.__module__, kind.__name__)
        pattern = (
            f"tuple[{next(iter(names))}, ...]" if get_origin(part.type) is tuple else f"{next(iter(names))} | None"
        )
        return f'cast("{pattern}", {own})'
    return stripped


def _says(kind: Any, name: str) -> bool:
    return isinstance(kind, NewType) and kind.__name__ == name


def command_text(module: Module, command: type[Struct], parts: list[Field]) -> list[str]:
    """Text of the method that returns the command."""
    row = native.REQUESTS.get(command, native.Asked())
    own = {part.source.removeprefix("."): part for part in parts if not part.source.startswith(".content.")}
    words = [part for part in own.values() if part.type is State]
    values = [f"{source}={value_of(module, part)}" for source, part in own.items()]
    values += [f"{name}={value}" for name, value in row.computed.items()]
    if any("msgspec" in value for value in row.computed.values()):
        module.use("", "msgspec")
    takes = "session: SessionId"
    if "content" in command.__struct_fields__:
        takes, values = f"{takes}, content: {module.use(Content.__module__, 'Content')}", ["content=content", *values]
    returns = f"c.{command.__name__}" + (f" | {module.use('tieline.contract.refusal', 'Refusal')}" if words else "")
    lines = [f"def command(self, {takes}) -> {returns}:"]
    for part in words:
        parse = module.use("tieline.wire.native.frame", "parse_state")
        lines += [f"    {part.name} = {parse}(self.{part.name})", f"    if isinstance({part.name}, Refusal):"]
        lines += [f"        return {part.name}"]
    return [*lines, f"    return c.{command.__name__}({', '.join(['session', *values])})"]


def content_text(module: Module, parts: list[Field]) -> list[str]:
    """Text of the method that returns a message's content. It passes fields by position, which takes half the time."""
    found = {part.source.removeprefix(".content."): part for part in parts}
    values = [
        value_of(module, found[info.name]) if info.name in found else module.literal(info.default)
        for info in fields(Content)
    ]
    head = f"def content(self, target: {module.use(Target.__module__, 'Target')}) -> Content:"
    return [head, f"    return Content({', '.join(values)})"]


def write_requests(module: Module) -> None:
    """Write the requests, and the commands that they mean."""
    module.use("tieline.contract", "command as c")
    module.use("tieline.contract.identifiers", "SessionId")
    module.use("tieline.wire.native.frame", "Frame")
    for command in requests():
        parts = asked_parts(command)
        lines = ["n: int"]
        for part in parts:
            # The content of a message is checked as a whole.
            numbers = not part.source.startswith(".content.")
            lines.append(module.define(part, module.spell(part.type, numbers=numbers and part.name != "keys")))
        lines += ["", *command_text(module, command, parts)]
        if "content" in command.__struct_fields__:
            lines += ["", *content_text(module, parts)]
        head = f"{command.__name__}(Frame, frozen=True, omit_defaults=True, tag={tag_of(command)!r}{renaming(parts)})"
        module.add(class_text(head, description(command), lines))
    module.add("AnyRequest = (" + " | ".join(command.__name__ for command in requests()) + ")")


# Answers.


def views_in(kind: Any) -> Iterator[type[Struct]]:
    """Views that a type holds; a view comes after the views that it is made of."""
    if isinstance(kind, type) and kind in native.VIEWS:
        row = native.VIEWS[kind]
        for part in parts_of(kind, "", row.without, row.flat):
            yield from views_in(part.type)
        yield kind
    for part in get_args(kind):
        yield from views_in(part)


def shown(part: Field) -> str:
    """A value of the contract as frames show it."""
    kinds = [kind for kind in get_args(part.type) if kind is not Ellipsis]
    if part.type in native.VIEWS:
        return f"view_{snake(part.type.__name__)}({part.source})"
    if part.type in _WORDS:
        return part.source + _WORDS[part.type]
    if part.type is Target:
        return f"str({part.source})"
    if part.type is bytes:
        return f"{part.source}.decode()"
    if kinds and kinds[0] in native.VIEWS:
        view = f"view_{snake(kinds[0].__name__)}"
        if get_origin(part.type) is tuple:
            return f"tuple(map({view}, {part.source}))"
        return f"{view}({part.source}) if {part.source} is not None else None"
    return part.source


def view_text(module: Module, kind: type[Struct]) -> None:
    """Write a view and the function that makes it."""
    row = native.VIEWS[kind]
    parts = sorted_by(row.order, parts_of(kind, "value", row.without, row.flat))
    lines = []
    for part in parts:
        required = Field(part.name, part.source, part.type, NODEFAULT) if part.name in row.required else part
        lines.append(module.define(required, module.spell(part.type, words=True)))
    omit = "" if row.whole else ", omit_defaults=True"
    base = module.use("msgspec", "Struct")
    module.add(class_text(f"{row.name}({base}, frozen=True{omit}{renaming(parts)})", row.doc, lines))
    where = kind.__module__.rpartition(".")[2]
    alias = "r" if where == "reply" else module.use("tieline.contract", where)
    values = ", ".join(shown(part) for part in parts)
    head = f"def view_{snake(kind.__name__)}(value: {alias}.{kind.__name__}) -> {row.name}:"
    inner = ""
    if row.flat:
        inner, values = f"    inner = value.{row.flat}\n", values.replace(f"value.{row.flat}.", "inner.")
    module.add(f'{head}\n    """{row.doc}"""\n{inner}    return {row.name}({values})')


def answered() -> list[type[Struct]]:
    """Replies that requests have, in their order in the contract."""
    found = {reply_of(command) for command in requests()} - native.ANSWERED_BY_HAND
    return [kind for kind in get_args(r.Reply) if kind in found]


def write_views(module: Module) -> None:
    """Write the parts of answers, and how they are made from the hub's values."""
    module.use("tieline.contract", "reply as r")
    held = (view for reply in answered() for part in parts_of(reply, "") for view in views_in(part.type))
    for view in dict.fromkeys(held):
        view_text(module, view)


def write_answers(module: Module) -> None:
    """Write the answers, and how they are made from replies."""
    module.use("tieline.contract", "reply as r")
    module.use("tieline.wire.native.frame", "Frame")
    rows, names = [], []
    for reply in answered():
        name, tag = answer_name(reply)
        parts = list(parts_of(reply, "reply"))
        lines = ["n: int", *(module.define(part, module.spell(part.type, words=True)) for part in parts)]
        module.add(class_text(f"{name}(Frame, frozen=True, omit_defaults=True, tag={tag!r})", said(reply), lines))
        values = ", ".join(["n", *(shown(part) for part in parts)])
        maker = f"_{snake(name)}"
        module.add(f"def {maker}(n: int, reply: r.{reply.__name__}) -> {name}:\n    return {name}({values})")
        rows.append(f"r.{reply.__name__}: {maker}")
        names.append(name)
    module.add(f"AnyAnswer = ({' | '.join(names)})")
    module.use("collections.abc", "Callable")
    makers = f"dict[type, Callable[[int, {module.use('typing', 'Any')}], AnyAnswer]]"
    module.add(f'ANSWERS: {makers} = {{{", ".join(rows)}}}\n"""Makes the answer with a number from a reply."""')


# Methods of the SDK.


def method_of(command: type[Struct]) -> str:
    """The name of a request's method; empty if it is written by hand."""
    row = native.REQUESTS.get(command, native.Asked())
    plain = re.sub(r"\A(list|read|view)_", "", snake(command.__name__))
    return plain if row.method is None else row.method


def method_text(module: Module, command: type[Struct]) -> str:
    """Text of one method."""
    row = native.REQUESTS.get(command, native.Asked())
    parts = asked_parts(command)
    required = [part for part in parts if part.default is NODEFAULT]
    by_position = len(parts) if len(parts) <= _POSITIONAL_MAX else max(len(required), row.positional)
    takes, gives = ["self"], ["n"]
    for place, part in enumerate(parts):
        if place == by_position:
            takes.append("*")
        name = part.source.rpartition(".")[2]
        kind = module.spell(part.type)
        if part.default == {}:
            takes.append(f"{name}: {kind} | None = None")
            gives.append(f"{name} or {{}}")
            continue
        takes.append(module.define(Field(name, part.source, part.type, part.default), kind))
        gives.append(name)
    answer = answer_name(reply_of(command))[0]
    shown_parts = list(parts_of(reply_of(command), ""))
    if reply_of(command) in native.ANSWERED_BY_HAND:
        views = [native.VIEWS[view].name for part in shown_parts for view in views_in(part.type)]
        for name in (answer, *views):
            module.use("tieline.wire.native.activity", name)
    field = row.returns or (shown_parts[0].name if len(shown_parts) == 1 else "")
    asking = f"await self._ask(n, {command.__name__}({', '.join(gives)}), {answer})"
    if not shown_parts:
        returns, body = "None", asking
    elif field:
        kind = next(part.type for part in shown_parts if part.name == field)
        returns, body = module.spell(kind), f"return ({asking}).{field}"
    else:
        returns, body = answer, f"return {asking}"
    many = "  # noqa: PLR0913 - a message has that many parts" if "content" in command.__struct_fields__ else ""
    head = f"    async def {method_of(command)}({many}\n{', '.join(takes)}) -> {returns}:"
    doc = (inspect.getdoc(command) or "").replace("\n\n", "\n\n        ")
    doc += "\n        " if "\n" in doc else ""
    return f'{head}\n        """{doc}"""\n        n = next(self._numbers)\n        {body}'


def write_methods(module: Module) -> None:
    """Write the methods of `Client` that are not written by hand, one for each request."""
    module.use("collections.abc", "Iterator")
    module.use("typing", "TypeVar")
    methods = [method_text(module, command) for command in requests() if method_of(command)]
    module.add('_A = TypeVar("_A", bound=Frame)')
    head = '''class Requests:
    """Asks a hub. Each method returns when the answer came, and raises `HubRefused` if it is a refusal."""

    _numbers: Iterator[int]

    async def _ask(self, n: int, frame: Frame, expected: type[_A]) -> _A:
        raise NotImplementedError
'''
    module.add("\n\n".join([head, *methods]))


def derived() -> str:
    """The text of the generated module."""
    module = Module("Requests and answers of the hub's own protocol, and a method of the SDK for each request.")
    write_requests(module)
    write_views(module)
    write_answers(module)
    write_methods(module)
    return module.text()


def main() -> int:
    """Write the module if it is out of date, or with `--check` only report it."""
    text = derived()
    stale = not DERIVED.exists() or DERIVED.read_text(encoding="utf-8") != text
    if stale:
        if "--check" not in sys.argv:
            DERIVED.write_text(text, encoding="utf-8")
        print(DERIVED.relative_to(ROOT))
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
