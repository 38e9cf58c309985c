"""Scopes: the context that a message is meant for, e.g. a repository. Readers match scopes; the hub carries them."""

import re

_SCHEME = re.compile(r"^https?://")


def normalize(text: str) -> str:
    """Bring the spellings of one repository or folder to one form."""
    text = _SCHEME.sub("", text.lower())
    text = text.removeprefix("git@").removesuffix(".git").rstrip("/")
    return text.replace(":", "/")


def matches(scope: str | None, context: str | None) -> bool:
    """True if a message with this scope is for a reader in this context."""
    if not scope:
        return True
    if not context:
        return False
    return normalize(scope) in normalize(context)
