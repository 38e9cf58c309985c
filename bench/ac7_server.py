"""The hub of `bench.ac7`: as users start it, with one route more on its port, `POST /echo`, which is the reference.

`python -m bench.ac7_server --home DIR --store STORE` serves until it is ended.
"""

import argparse
import sys
from pathlib import Path

import uvloop
from starlette.types import Receive, Scope, Send

from bench.hub_main import serve
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.server.hub import Options, RunningHub, raise_file_limit
from tieline.wire.http import Answer, Bodies, HttpApp, respond
from tieline.wire.unfinished import Unfinished

ECHO_PATH = "/echo"
_BODY_BYTES_MAX = 65536


class _Echo:
    """Answers with the body of the request."""

    def __init__(self) -> None:
        self._bodies = Bodies(Unfinished(DEFAULT_LIMITS))

    def serves(self, scope: Scope) -> bool:
        """True if the request is for the echo path."""
        return bool(scope["path"] == ECHO_PATH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request with its own body."""
        body = await self._bodies.read(scope, receive, _BODY_BYTES_MAX)
        await respond(send, body if isinstance(body, Answer) else Answer(200, body))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class _Hub(RunningHub):
    """A hub whose port has the echo before everything else."""

    def _http_apps(self) -> list[HttpApp]:
        return [_Echo(), *super()._http_apps()]


def main() -> int:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="bench.ac7_server", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--store", default="sqlite")
    arguments = parser.parse_args()
    raise_file_limit()
    return uvloop.run(serve(_Hub(Options(home=arguments.home, http="127.0.0.1:0", store=arguments.store))))


if __name__ == "__main__":
    sys.exit(main())
