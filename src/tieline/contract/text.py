"""Makes text from other members safe to print: escapes control characters and invisible characters.

Code that prints or types names, titles and bodies uses this module. Code that shows messages to agents uses it too.

All format characters of Unicode (category Cf) and all characters that are invisible by default are escaped. Such
characters can reorder a line, hide words between visible ones, or make two different words look alike. Two kinds stay,
because normal spelling needs them: joiners between emoji or between letters of Arabic and Indic scripts, and the
selectors U+FE0E and U+FE0F after an emoji. So ordinary text in such scripts, and joined emoji, stay legible.
"""

import re

_LETTERS = "\u0620-\u064a\u066e-\u06d3\u06fa-\u06ff\u0750-\u077f\u08a0-\u08c9\u0900-\u0dff"
_EMOJI = "\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_SIGNS = "\u00a9\u00ae\u203c\u2049\u2122\u2139"
"""Characters outside the emoji blocks that are shown as emoji if a selector follows them."""
_KEYS = "#*0-9"
"""A keycap is one of these characters, a selector, and U+20E3."""

UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b\u200e\u200f"  # no width; directions
    "\u2028-\u202e"  # line and paragraph separators; bidirectional overrides, which reorder what a reader sees
    "\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"  # tags and rare variation selectors: invisible to people, legible to models
    "\ud800-\udfff"  # halves of pairs, which no terminal can show
    "]"
    f"|(?<![{_LETTERS}{_EMOJI}])(?<![{_EMOJI}{_SIGNS}]\ufe0f)[\u200c\u200d]"
    f"|[\u200c\u200d](?![{_LETTERS}{_EMOJI}])"
    f"|(?<![{_EMOJI}{_SIGNS}{_KEYS}])[\ufe0e\ufe0f]"
    f"|(?<=[{_KEYS}])[\ufe0e\ufe0f](?!\u20e3)"
)
"""Matches one character that must be escaped."""


def neutral(text: str) -> str:
    """Return a text in which each unsafe character is escaped, so that no terminal obeys it. Line breaks stay."""
    return UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def _visible(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]
