"""Transcripts of agent programs: the proof that a message was shown, and that the model was asked afterwards.

Above: `tieline drain --hook`. Below: nothing; text in, ids out. Programs write a transcript of each session, one JSON
object a line, and name its file to every hook. We look only for our own frames and for the mark of a model's answer.
"""

import re

_ATTRIBUTES = r'channel (?:\w+=\\*"[^"<]*" )*?msg_id=\\*"([^"\\]+)'
_FRAME = re.compile(f"<{_ATTRIBUTES}")
"""Finds our frames and the ids of their messages, also in a text inside JSON, where quotes have backslashes before.

In the texts of others in a frame, quotes and `<` are escaped, so nobody else can write a frame there."""

_ESCAPED_FRAME = re.compile(f"(?:<|&lt;){_ATTRIBUTES}")
"""Like `_FRAME`, for a program that escapes the texts of hooks. Our hooks escape `&` there, so others cannot write
`&lt;` in a frame."""

TAIL_BYTES = 4 * 1024 * 1024
"""Bytes at the end of a transcript that are read. They are enough, because the search follows soon after the message
was shown."""


def framed_ids(text: str, *, escapes: bool = False) -> set[str]:
    """Return the ids of the messages whose frames are in a text.

    `escapes` is true for a program that escapes the texts of hooks in its transcript.
    """
    return set((_ESCAPED_FRAME if escapes else _FRAME).findall(text))


def answered_ids(transcript: str, answer_mark: str, *, skip: str = "", escapes: bool = False) -> dict[str, bool]:
    """Return the ids of the messages in a transcript, each with true if the model answered after it was shown.

    `answer_mark` is a text that only lines with an answer of the model contain. With `skip`, lines that contain this
    text, and the answers themselves, are not searched: a tool or the model may have written down a frame. For
    `escapes`, see `framed_ids`.
    """
    ids: dict[str, bool] = {}
    for line in transcript.splitlines():
        is_answer = answer_mark in line
        if is_answer:
            ids.update(dict.fromkeys(ids, True))
        if skip and (is_answer or skip in line):
            continue
        for found in framed_ids(line, escapes=escapes):
            ids.setdefault(found, False)
    return ids
