"""Redaction: removes secrets from the activity of agents before any of it is stored.

A value is secret if its key is the name of a secret, such as `authorization`, `apiKey` or `set-cookie`. The key may be
the key of an object, the first item of a pair, the `name` of an object with a `value`, or the left side of an
assignment inside a string. A value is also secret if it looks like a secret, for example a bearer token or an API key.
Everything that looks like a secret is removed, because a stored secret cannot be taken back. Numbers under `token`
stay, because they are counts.

Redaction has no side effects, and a second run changes nothing. It handles long strings in pieces, so that other
threads get their turn. Agents choose the text, so redaction must be fast for any text: the time must be linear in its
length. So no pattern may scan the same characters once for each place where a secret could begin.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

REDACTED = "[redacted]"

_WORDS = frozenset(
    {
        "authorization",
        "proxy_authorization",
        "api_key",
        "apikey",
        "x_api_key",
        "cookie",
        "set_cookie",
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "private_key",
        "credential",
        "credentials",
    }
)
_ENDINGS = ("_token", "_secret", "_password", "_api_key", "_apikey", "_private_key", "_cookie", "_authorization")
_COUNTED = "token"
"""A number under a key with this ending is not secret. It is a count of tokens, or the id of a part of a text."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_KEY_CHARS_MAX = 128
"""Longest text that is checked as a key. No name of a header or field is longer."""
_KEYS_MAX = 4096
"""Number of keys for which the result is cached. The same keys come again and again."""

_FORMS: dict[str, re.Pattern[str]] = {
    # The key must occur in the lower-case text for its pattern to match. That check is much cheaper.
    "bearer": re.compile(r"(?i)\b(bearer)\s+[A-Za-z0-9._~+/=-]{8,}"),
    "sk-": re.compile(r"()\bsk-[A-Za-z0-9_-]{16,}"),
    "sk_": re.compile(r"()\b[sr]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    "ghp_": re.compile(r"()\bghp_[A-Za-z0-9]{20,}"),
    "gho_": re.compile(r"()\bgho_[A-Za-z0-9]{20,}"),
    "ghs_": re.compile(r"()\bghs_[A-Za-z0-9]{20,}"),
    "github_pat_": re.compile(r"()\bgithub_pat_[A-Za-z0-9_]{20,}"),
    "xox": re.compile(r"()\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    "akia": re.compile(r"()\bAKIA[0-9A-Z]{16}\b"),
    "aiza": re.compile(r"()\bAIza[0-9A-Za-z_-]{30,}"),
    "tie_": re.compile(r"()\btie_[A-Za-z0-9_-]{20,}"),
}
"""Patterns of known secrets. `add_token_prefixes` adds those of the protocols."""

_JWT_MARK = "eyj"
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})?")
"""Matches a JWT, which has three parts. The last two parts are optional here, so that a first part alone also matches.

Without this, the search would scan a first part without the other parts again from each of its characters.
"""

_PRIVATE_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_PRIVATE_KEY_END = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")

_ASSIGNED_WORDS = ("authorization", "api_key", "api-key", "apikey", "cookie", "password", "passwd", "secret", "token")
_ASSIGNED = re.compile(
    r"""(?x) \\?["']? \s*[:=]\s*
    (?: \\?" (?P<quoted>[^"\\]{4,}) | ' (?P<single>[^'\\]{4,}) | (?P<bare>[^\s"'\\,;&{}\[\]]{6}) )
    """
)
"""Matches the text right after one of `_ASSIGNED_WORDS`: the sign `=` or `:`, and a value.

It matches a quoted value to its end, but only the first characters of a value without quotes.
"""
_BARE = re.compile(r"""[^\s"'\\,;&{}\[\]]*""")

_FORM_CHARS_MIN = 10
"""Shorter texts are not searched. No secret, together with the word that it is assigned to, is shorter."""

_PIECE_CHARS = 16_384
"""Length of the parts in which a long text is searched. To search one part takes well under a millisecond."""


def add_token_prefixes(prefixes: Iterable[str]) -> None:
    """Make redaction remove tokens that begin with these texts, while this process runs."""
    for prefix in prefixes:
        _FORMS[prefix.lower()] = re.compile(rf"()\b{re.escape(prefix)}[A-Za-z0-9_-]{{20,}}")


def redact(value: Any) -> Any:
    """Return a JSON value in which the mark `[redacted]` replaces each secret. All else stays the same."""
    match value:
        case str():
            return redact_text(value)
        case dict():
            return _redact_object(value)
        case list() | tuple():
            if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], str) and is_secret(value[0]):  # noqa: PLR2004 - a pair
                return [value[0], REDACTED]
            return [redact(item) for item in value]
        case _:
            return value


def is_secret(key: str) -> bool:
    """True if this key, such as `apiKey` or `authorization`, is the name of a secret value."""
    return len(key) <= _KEY_CHARS_MAX and _names_secret(key)


@lru_cache(maxsize=_KEYS_MAX)
def _names_secret(key: str) -> bool:
    word = _HUMP.sub("_", key.rpartition(".")[2]).lower().replace("-", "_")
    return word in _WORDS or word.endswith(_ENDINGS)


def redact_text(text: str) -> str:
    """Return the text with the mark `[redacted]` in place of everything that looks like a secret."""
    if len(text) < _FORM_CHARS_MIN:
        return text
    if "PRIVATE KEY-----" in text:
        # A private key may be longer than a piece.
        text = _redact_private_keys(text)
    if len(text) <= _PIECE_CHARS:
        return _redact_piece(text)
    return "".join(map(_redact_piece, _pieces(text)))


def _redact_object(value: dict[Any, Any]) -> dict[Any, Any]:
    named = value.get("name", value.get("key"))
    secret_value = isinstance(named, str) and is_secret(named)
    return {
        key: _without(item, key)
        if isinstance(key, str) and (is_secret(key) or (secret_value and key == "value"))
        else redact(item)
        for key, item in value.items()
    }


def _without(value: Any, key: str) -> Any:
    """Return the value of the secret key `key`, with `[redacted]` in place of all texts and numbers.

    Numbers that are counts of tokens stay.
    """
    match value:
        case None | bool():
            return value
        case int() | float():
            return value if key.lower().endswith(_COUNTED) else REDACTED
        case dict():
            return {name: _without(item, key) for name, item in value.items()}
        case list() | tuple():
            return [_without(item, key) for item in value]
        case _:
            return REDACTED


def _redact_piece(text: str) -> str:
    small = text.lower()
    for mark, form in _FORMS.items():
        if mark in small:
            text = form.sub(lambda match: f"{match[1]} {REDACTED}".lstrip(), text)
    if _JWT_MARK in small:
        text = _JWT.sub(lambda match: REDACTED if match[1] else match[0], text)
    if ":" in text or "=" in text:
        text = _redact_assigned(text)
    return text


def _redact_private_keys(text: str) -> str:
    """Return the text with `[redacted]` in place of private keys.

    If a key has no last line, replace all text after its beginning.
    """
    kept: list[str] = []
    position = 0
    while begin := _PRIVATE_KEY_BEGIN.search(text, position):
        kept += (text[position : begin.start()], REDACTED)
        end = _PRIVATE_KEY_END.search(text, begin.end())
        position = end.end() if end else len(text)
    return "".join((*kept, text[position:]))


def _redact_assigned(text: str) -> str:
    """Return the text with `[redacted]` in place of each value that is assigned to a secret word, as in `password=…`.

    The function looks for the words first, because that is fast.
    """
    small = text.lower()
    if len(small) != len(text):
        # A letter became two in lower case. That is rare; then only ASCII letters are changed to lower case.
        small = "".join(letter.lower() if letter.isascii() else letter for letter in text)
    spans = {span for word in _ASSIGNED_WORDS if word in small for span in _assigned(text, small, word)}
    kept: list[str] = []
    end = len(text)
    for start, stop in sorted(spans, reverse=True):
        # Spans may overlap: one word may be the end of another, and a value may contain an assignment.
        if stop <= end:
            kept += (text[stop:end], REDACTED)
            end = start
    return "".join((text[:end], *reversed(kept)))


def _assigned(text: str, small: str, word: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each value that is assigned to `word`. `small` is the text in lower case."""
    # Nested bare values end at the same place, so the search for the end runs only once.
    bare_stop = 0
    at = small.find(word)
    while at >= 0:
        match = _ASSIGNED.match(text, at + len(word))
        if match is not None:
            start, stop = match.span(str(match.lastgroup))
            if match["bare"] is None:
                known = text.find(REDACTED, start, stop) >= 0
            else:
                # A bare value cannot contain the bracket of a redacted one.
                known = False
                if start >= bare_stop:
                    bare_stop = _BARE.match(text, start).end()  # type: ignore[union-attr] # it matches nothing, too
                stop = bare_stop
            if not known and not _is_harmless(text, start, stop):
                yield start, stop
        at = small.find(word, at + len(word))


def _is_harmless(text: str, start: int, stop: int) -> bool:
    """True if the value from `start` to `stop` is no secret: a number, or the word `bearer` or `basic`."""
    # The check stops at the first letter, so a value with nested values is not read once for each of them.
    if all(text[at] == "." or text[at].isdigit() for at in range(start, stop)):
        return text[start:stop].strip(".") != ""
    return stop - start <= len("bearer") and text[start:stop].lower() in ("bearer", "basic")


def _pieces(text: str) -> Iterator[str]:
    """Yield a long text in parts. If possible, no part ends in the middle of a word or between a key and its value."""
    start = 0
    while start < len(text):
        end = start + _PIECE_CHARS
        if end < len(text):
            end = next((cut for mark in ("\n", ",", ";", " ") if (cut := _cut(text, mark, start, end))), end)
        yield text[start:end]
        start = end


def _cut(text: str, mark: str, start: int, end: int) -> int:
    found = text.rfind(mark, start + 1, end)
    return found if found > start and text[found - 1] not in ":=" else 0
