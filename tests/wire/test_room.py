"""Tests of rooms: ids and tokens from random bytes, and the room that a request names."""

import pytest

from tieline.wire.http import LOGIN_COOKIES
from tieline.wire.room import new_room, room_of, room_of_token, token_prefix

ROOM = "0123456789abcdef" * 2


def scope(**headers: str) -> dict[str, object]:
    """Return an HTTP request (ASGI scope) with these headers."""
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http", "headers": pairs}


def named(request: dict[str, object]) -> str | None:
    """Return the room that a request names by a header or a token, or `None`."""
    return room_of(request, (b"x-other", b"x-room"))


def test_a_room_has_an_id_that_nobody_guesses_and_a_token_that_leads_to_it() -> None:
    one, other = new_room(), new_room()
    assert one.id != other.id
    assert len(one.id) == 32
    assert room_of_token(one.token) == one.id
    assert one.token != new_room().token
    assert len(one.token.removeprefix(token_prefix(one.id))) == 32


@pytest.mark.parametrize("token", ["", "tie_abc", "tie_room_", f"tie_room_{ROOM}", f"x tie_room_{ROOM}_s", "a" * 64])
def test_any_other_token_is_of_the_common_room(token: str) -> None:
    assert room_of_token(token) is None


def test_a_request_names_its_room_by_the_header_before_its_token() -> None:
    token = f"Bearer {token_prefix(ROOM)}secret"
    cookie = f"tieline_session=id.{token_prefix(ROOM)}secret"
    assert named(scope()) is None
    assert named(scope(authorization="Bearer tie_abc")) is None
    assert named(scope(authorization=token)) == ROOM
    assert named(scope(cookie=cookie)) == ROOM
    login = scope(cookie=f"a_session={token_prefix(ROOM)}secret")
    assert named(login) is None, "no protocol declares this cookie"
    assert named({**login, LOGIN_COOKIES: ("b_session", "a_session")}) == ROOM
    assert named(scope(x_room=" other ", authorization=token)) == "other"
    assert named(scope(x_room="  ", authorization=token)) == ROOM
    assert room_of(scope(x_room="other"), ()) is None, "no protocol names rooms by it"
    assert named(scope(authorization="Bearer tie_abc", cookie=cookie)) is None, "the token of the header counts"
