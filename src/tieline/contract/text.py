"""Text of others on a terminal: what a terminal would obey is made visible instead.

Above: whatever prints names, titles and bodies, or types them. Below: nothing.
"""

import re

UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\u2028\u2029"  # line and paragraph separators
    "\u202a-\u202e\u2066-\u2069"  # bidirectional overrides, which reorder what a reader sees
    "\U000e0000-\U000e01ef"  # tags and rare variation selectors: invisible to people, legible to models
    "\ud800-\udfff"  # halves of pairs, which no terminal can show
    "]"
)


def neutral(text: str) -> str:
    """Text of several lines that a terminal prints and does not obey."""
    return UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def _visible(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]
