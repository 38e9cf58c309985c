"""Connects a client to a hub, over the hub's Unix socket or its WebSocket."""

import os
from pathlib import Path

from tieline.client.carriers import dial_socket
from tieline.wire.home import HUB_SOCKET, find_home, read_key, read_running
from tieline.wire.native import frames as f
from tieline.wire.native.client import Client
from tieline.wire.native.errors import HubUnreachable

URL_VARIABLE = "TIELINE_URL"
TOKEN_VARIABLE = "TIELINE_TOKEN"
MEMBER_VARIABLE = "TIELINE_AGENT"


async def connect(
    *,
    member: str | None = None,
    token: str | None = None,
    url: str | None = None,
    home: Path | str | None = None,
    receive: bool = False,
    window: int = 256,
) -> Client:
    """Open a session with a hub, and return its client.

    The hub is at `url` or, without it, at the URL in `TIELINE_URL`. Without a URL, it is the hub in the folder `home`
    (or `TIELINE_HOME`, or the platform's default folder). With a `token` (or `TIELINE_TOKEN`), the session belongs to
    the token's member. On the hub's machine no token is needed: with the key in the hub's home, the session may belong
    to any `member` (or `TIELINE_AGENT`). Without a member, the session belongs to an operator, who can manage members
    and read the log but cannot send messages. With `receive`, the hub pushes deliveries. `window` is the limit of
    deliveries that are pushed and not acknowledged yet. An address that ends with the fingerprint of the hub's
    certificate (`https://HOST:PORT#sha256=…`) is for a hub that made its certificate itself: no other certificate is
    trusted.
    """
    token = token or os.environ.get(TOKEN_VARIABLE)
    member = member or os.environ.get(MEMBER_VARIABLE)
    url = url or (os.environ.get(URL_VARIABLE) if home is None else None)
    client = Client()
    key = None
    if url is not None:
        from tieline.client.websocket import dial_url  # noqa: PLC0415 - most sessions are local, and need none of it

        carrier = await dial_url(url, client, token)
    else:
        folder = find_home(home)
        running = read_running(folder)
        if running is None:
            raise HubUnreachable(f"no hub is running in {folder}: start one with 'tieline serve --home {folder}'")
        key = read_key(folder) if token is None else None
        carrier = await dial_socket(folder / HUB_SOCKET, client)
    hello = f.Hello(token=token, key=key, member=member, receive=receive, window=window)
    await client.greet(carrier, hello)
    return client
