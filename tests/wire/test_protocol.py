"""Tests of the declaration of a protocol: the optional parts of a server."""

from tieline.wire.protocol import Server


async def test_every_step_of_a_server_is_optional() -> None:
    server = Server()
    await server.prepare()
    await server.start()
    server.follow()
    assert (server.http, dict(server.places()), list(server.welcome("http://127.0.0.1:1", first=True))) == (
        None,
        {},
        [],
    )
    await server.stop()
