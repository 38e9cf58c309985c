"""Transcripts of agent programs: finds the proof that a message was shown, and that the model answered afterwards.

Used by: `tieline drain --hook`. Uses: nothing; this module does no I/O. Programs write a transcript of each session,
one JSON object per line, and pass the path of the file to every hook. This module looks only for frames (the tags that
Tieline puts around each message for an agent) and for the mark of a model's answer.
"""

import re

_ATTRIBUTES = r'channel (?:\w+=\\*"[^"<]*" )*?msg_id=\\*"([^"\\]+)'
_FRAME = re.compile(f"<{_ATTRIBUTES}")
"""Finds frames (the tags that Tieline puts around a message for an agent), and the message id in each frame. Also finds
frames in a JSON string, where a backslash stands before each quote.

Other members cannot write a frame into a message, because `<` is escaped in the text of a message, and quotes in
attributes."""

_ESCAPED_FRAME = re.compile(f"(?:<|&lt;){_ATTRIBUTES}")
"""Like `_FRAME`, for a program that escapes `<` in the output of hooks as `&lt;`. For such a program Tieline's hooks
also escape `&`, so other members cannot write `&lt;`."""

TAIL_BYTES = 4 * 1024 * 1024
"""Number of bytes that are read from the end of a transcript. This is enough, because the search follows soon after a
message was shown."""


def framed_ids(text: str, *, escapes: bool = False) -> set[str]:
    """Return the ids of the messages whose frames (the tags around a message for an agent) are in a text.

    `escapes` is true for a program that escapes `<` in the output of hooks.
    """
    return set((_ESCAPED_FRAME if escapes else _FRAME).findall(text))


def answered_ids(transcript: str, answer_mark: str, *, skip: str = "", escapes: bool = False) -> dict[str, bool]:
    """Return the ids of the messages in a transcript. The value of an id is true if the model answered afterwards.

    `answer_mark` is a text that only lines with an answer of the model contain. With `skip`, two kinds of lines are not
    searched for messages: lines that contain the text `skip`, and answers of the model. A tool or the model may have
    copied the frame (the tags) of a message there. `escapes` is true for a program that escapes `<` in the output of
    hooks.
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
