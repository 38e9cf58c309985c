"""Scopes: the project that a message is meant for, e.g. a repository. Readers compare scopes; the hub does not."""

import re

_SCHEME = re.compile(r"^https?://")


def normalize(text: str) -> str:
    """Return the name of a repository or folder in one form, whichever way it was written (URL, `git@host:…`, case)."""
    text = _SCHEME.sub("", text.lower())
    text = text.removeprefix("git@").removesuffix(".git").rstrip("/")
    return text.replace(":", "/")


def matches(scope: str | None, context: str | None) -> bool:
    """True if a message with this scope is for a reader in `context`, its own repository or folder.

    The scope must be a part of the context. A message without a scope is for every reader.
    """
    if not scope:
        return True
    if not context:
        return False
    return normalize(scope) in normalize(context)
