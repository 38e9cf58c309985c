"""Scopes: the scope of a message is the project that it is meant for, for example a repository.

Readers compare scopes with their own project. The hub does not look at scopes.
"""

import re

_SCHEME = re.compile(r"^https?://")


def normalize(text: str) -> str:
    """Return the name of a repository or folder in one standard form. `text` may also be a URL or `git@host:…`."""
    text = _SCHEME.sub("", text.lower())
    text = text.removeprefix("git@").removesuffix(".git").rstrip("/")
    return text.replace(":", "/")


def matches(scope: str | None, context: str | None) -> bool:
    """True if a message with this scope is for a reader that works in the repository or folder `context`.

    The scope must be a part of the text `context`. A message without a scope is for every reader.
    """
    if not scope:
        return True
    if not context:
        return False
    return normalize(scope) in normalize(context)
