"""The settings files of agent programs: JSON, perhaps with comments, changed in place.

Used by: `hooks` and `connection`. Uses: nothing. The functions take a text and return the changed text. A change adds
or removes one child of an object or array. All other text keeps its order, comments, spacing and line ends.
"""

import json
import re
from typing import Any

from msgspec import Struct

_GAP = re.compile(r"(?:[ \t\r\n\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
_INDENT = re.compile(r"\n([ \t]+)\S")
_DEPTH_MAX = 64
"""Maximum depth of nesting, far deeper than in real settings. A file that is no settings file must not exhaust the
stack."""


class BadSettings(ValueError):
    """Raised if the text of a settings file is not valid for its program.

    The error's text contains the position and the reason.
    """


class Node(Struct):
    """One JSON value of a settings file: the value, its position in the text, and its children."""

    start: int
    end: int
    value: Any
    """The JSON value as Python data."""
    children: "list[Child]"


class Child(Struct):
    """One child of a JSON value: a field of an object, or an item of an array."""

    start: int
    """Position in the text where the child begins. This is the start of its key, if the child has a key."""
    node: Node
    key: str | None = None

    @property
    def end(self) -> int:
        """Position in the text directly after the child."""
        return self.node.end


def parse(text: str) -> Node:
    """Parse the text of a settings file into a `Node`. Raises `BadSettings` if it is no JSON."""
    node = _value(text, _gap(text, 0), 0)
    rest = _gap(text, node.end)
    if rest != len(text):
        raise _bad(text, rest, "something follows the end of the settings")
    return node


def parse_object(text: str) -> Node:
    """Parse the text of a settings file into a `Node`. Raises `BadSettings` if it is no JSON object."""
    root = parse(text)
    if not isinstance(root.value, dict):
        raise BadSettings("the settings are no object")
    return root


def child(node: Node, key: str) -> Node | None:
    """Return the value of the field `key` in the JSON object `node`; `None` if there is no such field."""
    return next((each.node for each in reversed(node.children) if each.key == key), None)


def add_child(text: str, node: Node, value: Any, key: str | None = None) -> str:
    """Return the text with `value` added as the last child of `node`.

    `key` is the key of the new child, if `node` is an object.
    """
    level, unit, newline = _level(text, node.start), _unit(text), "\r\n" if "\r\n" in text else "\n"
    inline = bool(node.children) and "\n" not in text[node.start : node.end]
    if inline:
        written = json.dumps(value, ensure_ascii=False)
    else:
        written = json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", newline + unit * (level + 1))
    if key is not None:
        written = f"{json.dumps(key, ensure_ascii=False)}: {written}"
    if inline:
        last = node.children[-1].end
        comma = _comma(text, last)
        at = last if comma is None else comma + 1
        return f"{text[:at]}{', ' if comma is None else ' '}{written}{text[at:]}"
    lead = newline + unit * (level + 1)
    if not node.children:
        at = len(text[: node.end - 1].rstrip())
        # An empty container holds only space or comments.
        return f"{text[:at]}{lead}{written}{newline}{unit * level}{text[node.end - 1 :]}"
    last = node.children[-1].end
    comma = _comma(text, last)
    end = node.end - 1
    at = max(len(text[:end].rstrip()), last)
    comma_text = "," if comma is None else ""
    return f"{text[:last]}{comma_text}{text[last:at]}{lead}{written}{text[at:]}"


def remove_child(text: str, node: Node, index: int) -> str:
    """Return the text without the child number `index` of `node`, an object or array."""
    gone = node.children[index]
    comma = _comma(text, gone.end)
    before = len(text[: gone.start].rstrip(" \t\r\n"))
    if comma is not None:
        return text[:before] + text[comma + 1 :]
    if index > 0:
        previous = _comma(text, node.children[index - 1].end)
        assert previous is not None, "there is a comma between two children"
        return text[:previous] + text[previous + 1 : before] + text[gone.end :]
    rest = text[gone.end :]
    return text[:before] + (rest.lstrip(" \t\r\n") if before == node.start + 1 else rest)


def _bad(text: str, at: int, why: str) -> BadSettings:
    line = text.count("\n", 0, at) + 1
    return BadSettings(f"line {line}: {why}")


def _gap(text: str, at: int) -> int:
    """Return the position after the white space and comments that begin at `at`."""
    match = _GAP.match(text, at)
    assert match is not None, "nothing is a gap, too"
    return match.end()


def _comma(text: str, at: int) -> int | None:
    """Return the position of the comma after `at`; `None` if other text than spaces and comments comes first."""
    after = _gap(text, at)
    return after if text[after : after + 1] == "," else None


def _value(text: str, at: int, depth: int) -> Node:
    first = text[at : at + 1]
    if first in ("{", "["):
        if depth >= _DEPTH_MAX:
            raise _bad(text, at, "too deeply nested")
        return _container(text, at, depth, is_object=first == "{")
    match = _STRING.match(text, at) if first == '"' else _SCALAR.match(text, at)
    if match is None:
        raise _bad(text, at, "a value is missing here" if first else "the text ends too soon")
    return Node(at, match.end(), _plain(text, at, match[0]), [])


def _plain(text: str, at: int, written: str) -> Any:
    try:
        return json.loads(written)
    except ValueError as error:
        raise _bad(text, at, f"{written[:40]} is no value") from error


def _container(text: str, start: int, depth: int, *, is_object: bool) -> Node:
    close = "}" if is_object else "]"
    children: list[Child] = []
    at = _gap(text, start + 1)
    while text[at : at + 1] != close:
        begin, key = at, None
        if is_object:
            match = _STRING.match(text, at)
            if match is None:
                raise _bad(text, at, "a key is missing here" if text[at : at + 1] else "the text ends too soon")
            key = str(_plain(text, at, match[0]))
            at = _gap(text, match.end())
            if text[at : at + 1] != ":":
                raise _bad(text, at, "a colon is missing here")
            at = _gap(text, at + 1)
        node = _value(text, at, depth + 1)
        children.append(Child(begin, node, key))
        at = _gap(text, node.end)
        if text[at : at + 1] == ",":
            at = _gap(text, at + 1)
        elif text[at : at + 1] != close:
            raise _bad(text, at, f"a comma or {close} is missing here")
    value: Any = [each.node.value for each in children]
    if is_object:
        value = {each.key: each.node.value for each in children}
    return Node(start, at + 1, value, children)


def _unit(text: str) -> str:
    """Return the white space that indents one level in this text, such as two spaces."""
    match = _INDENT.search(text)
    return match[1] if match else "  "


def _level(text: str, at: int) -> int:
    """Return the indentation level of the line that contains the position `at`."""
    line = text[text.rfind("\n", 0, at) + 1 :]
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    return len(indent) // len(_unit(text))
