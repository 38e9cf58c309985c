"""Submits one command and waits for its reply, in the same way for every implementation of the interface `Hub`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from tieline.contract import command as c
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Attached, Reply

_R = TypeVar("_R")

Submit = Callable[[Sequence[c.Command], Callable[[Sequence[Reply]], None] | None], None]
"""The method `Hub.submit`."""


async def ask(submit: Submit, command: c.AnsweredBy[_R]) -> _R | Refusal:
    """Submit one command, wait for its reply, and return the reply.

    If the caller stops waiting for an `Attach`, its session is ended as soon as it opens.
    """
    future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def done(replies: Sequence[Reply]) -> None:
        if not future.done():
            future.set_result(replies[0])
        elif isinstance(replies[0], Attached):
            # The caller that asked for this session is gone, so nobody else would end the session.
            submit((c.Detach(replies[0].session),), None)

    submit((command,), done)
    return cast(_R | Refusal, await future)
