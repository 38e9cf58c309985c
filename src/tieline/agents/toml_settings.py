"""Settings files in TOML, changed in place: one table of Tieline is added or removed.

Used by: `connection`. Uses: nothing. The functions take a text and return the changed text. All other text keeps its
order, comments and spacing. Each change is checked: apart from Tieline's table, the changed text must have exactly the
same data as the old text.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from tieline.agents.settings import BadSettings

_HEADER = re.compile(r"^[ \t]*\[\[?(?P<name>[^\]\n]*)\]", re.MULTILINE)
_NAME_PART = re.compile(r"""[ \t]*(?:"(?P<quoted>[^"]*)"|'(?P<plain>[^']*)'|(?P<bare>[A-Za-z0-9_-]+))[ \t]*(?:\.|$)""")


def parse(text: str) -> dict[str, Any]:
    """Parse the text of a TOML settings file, and return its data. Raises `BadSettings` if it is no TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(str(error)) from error


def table(text: str, outer: str, inner: str) -> Any:
    """Return the table `outer.inner` as plain data; `None` if there is none. Raises `BadSettings` for invalid TOML."""
    holder = parse(text).get(outer)
    return holder.get(inner) if isinstance(holder, dict) else None


def with_table(text: str, outer: str, inner: str, values: Mapping[str, str | list[str]]) -> str:
    """Return the text of a TOML file with the table `outer.inner`, which replaces an older one of this name.

    `values` are the keys and values of the table. Raises `BadSettings` if the text cannot be changed safely.
    """
    if table(text, outer, inner) == values:
        return text
    rest = without_table(text, outer, inner)
    newline = "\r\n" if "\r\n" in rest else "\n"
    gap = "" if not rest else newline if rest.endswith("\n") else 2 * newline
    # Strings and lists of strings are written alike in JSON and TOML.
    lines = [f"[{outer}.{inner}]", *(f"{key} = {json.dumps(each, ensure_ascii=False)}" for key, each in values.items())]
    made = f"{rest}{gap}{newline.join(lines)}{newline}"
    expected = parse(rest)
    if not isinstance(expected.get(outer, {}), dict):
        raise BadSettings(f"{outer!r} is no table")
    _check(made, {**expected, outer: {**expected.get(outer, {}), inner: dict(values)}}, outer, inner)
    return made


def without_table(text: str, outer: str, inner: str) -> str:
    """Return the text of a TOML file without the table `outer.inner` and the tables inside it.

    Raises `BadSettings` if the text cannot be changed safely.
    """
    expected = parse(text)
    if table(text, outer, inner) is None:
        return text
    headers = list(_HEADER.finditer(text))
    made = text
    for place in reversed(range(len(headers))):
        if _name(headers[place]["name"])[:2] != [outer, inner]:
            continue
        start = headers[place].start()
        end = headers[place + 1].start() if place + 1 < len(headers) else len(text)
        made = _cut(made, start, end)
    rest = {key: each for key, each in expected[outer].items() if key != inner}
    del expected[outer]
    # An empty outer table may remain or not, because it has no meaning.
    _check(made, {**expected, outer: rest} if rest or outer in parse(made) else expected, outer, inner)
    return made


def _cut(text: str, start: int, end: int) -> str:
    """Return the text without the part from `start` to `end`.

    Comments at the end of the part stay, because they belong to the next table. If nothing follows the part, the empty
    line before it is removed too.
    """
    part = text[start:end]
    kept = re.search(r"(?:^[ \t]*(?:#[^\n]*)?(?:\n|\Z))*\Z", part, re.MULTILINE)
    tail = part[kept.start() :] if kept is not None and "#" in part[kept.start() :] else ""
    before, after = text[:start], tail + text[end:]
    if not after:
        before = re.sub(r"(?<=\n)\r?\n\Z", "", before)
    return before + after


def _name(written: str) -> list[str]:
    """Return the parts of a TOML table's name. For example, `a."b"` has the parts `a` and `b`."""
    parts, at = [], 0
    while at < len(written) and (match := _NAME_PART.match(written, at)):
        parts.append(match["quoted"] or match["plain"] or match["bare"] or "")
        at = match.end()
    return parts


def _check(made: str, expected: dict[str, Any], outer: str, inner: str) -> None:
    """Raise `BadSettings` if the changed text `made` does not contain exactly the `expected` data.

    The error names the table `outer.inner`.
    """
    try:
        is_right = tomllib.loads(made) == expected
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise BadSettings(f"{outer}.{inner} is written in a way that cannot be changed in place")
