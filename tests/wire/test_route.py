"""Tests of routes and the shapes of their requests."""

import pytest
from msgspec import Struct

from tieline.wire.http import Answer
from tieline.wire.route import Call, Refused, Route, Routes, checked, checked_query, pairs_of


class Form(Struct):
    name: str


class Paged(Struct, forbid_unknown_fields=True):
    name: str
    limit: int = 5


async def look(_call: Call, _: None) -> Answer:
    """Look."""
    return Answer(200, b"")


async def ask(_call: Call, _asked: Paged) -> Form:
    """Ask."""
    return Form("x")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 100_000, b"{}", b"[]", b'{"name":1}', b'{"name":"\\ud800"}']
)
def test_a_body_that_is_not_what_it_should_be_is_400(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        checked(body, Form, "invalid request")
    assert refused.value.reply.status == 400


def test_a_body_that_is_what_it_should_be_may_say_more() -> None:
    assert checked(b'{"name":"x","more":[1]}', Form, "invalid request").name == "x"


def test_an_application_says_in_its_own_words_that_a_body_is_no_json() -> None:
    for words, begin in ((None, b'{"error":"invalid request: invalid JSON: '), ("no JSON", b'{"error":"no JSON: ')):
        with pytest.raises(Refused) as refused:
            checked(b"{", Form, "invalid request", words)
        assert refused.value.reply.body.startswith(begin)


def test_a_query_has_so_many_parameters_at_most() -> None:
    assert pairs_of({"query_string": b"&".join([b"a=%20"] * 100)}) == [("a", " ")] * 100
    with pytest.raises(Refused) as refused:
        pairs_of({"query_string": b"&".join([b"a=1"] * 101)})
    assert refused.value.reply.status == 400


def test_a_query_has_a_type() -> None:
    assert checked_query({"query_string": b"name=a%20b&limit=7"}, Paged) == Paged("a b", 7)
    for query in (b"", b"name=x&limit=y", b"name=x&more=1", b"name=%FF", b"name=\xff", b"&".join([b"name=x"] * 17)):
        with pytest.raises(Refused) as refused:
            checked_query({"query_string": query}, Paged)
        assert refused.value.reply.status == 400


def test_the_form_of_a_get_is_its_query_and_of_others_their_body() -> None:
    got, posted = Route("GET", "/a", ask), Route("POST", "/a", ask)
    assert (got.asks, got.body) == (Paged, None)
    assert (posted.asks, posted.body) == (None, Paged)


def test_a_path_is_found_by_its_method_and_a_head_as_a_get_where_that_is_said() -> None:
    routes = Routes([Route("GET", "/a", look, head=True), Route("POST", "/a", look), Route("GET", "/b/{id}", look)])
    assert routes.methods("/a") == ["GET", "HEAD", "POST"]
    assert routes.methods("/b/1") == ["GET"]
    assert routes.methods("/b/1/2") == []
    assert routes.find("HEAD", "/b/1") is None


@pytest.mark.parametrize(
    ("pattern", "path", "params"),
    [
        ("/a/{id}", "/a/", None),
        ("/a/{id}", "/a/b/c", None),
        ("/a/{path}", "/a/", None),
        ("/a/{path}", "/a/b/c", {"path": "b/c"}),
        ("/a/{rest*}", "/a/", {"rest": ""}),
        ("/a/{rest*}", "/a/b/c", {"rest": "b/c"}),
    ],
)
def test_a_name_in_a_path_ends_at_a_slash_unless_it_is_the_path_or_the_rest(
    pattern: str, path: str, params: dict[str, str] | None
) -> None:
    found = Routes([Route("GET", pattern, look)]).find("GET", path)
    assert (found and found[1]) == params
