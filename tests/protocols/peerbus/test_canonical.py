"""Tests of the bytes that are signed: two known signatures, each rule, and properties of random bodies."""

import hmac
import json
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tieline.protocols.peerbus.canonical import canonical, compact, quote, sign, sound, verify

SECRET = b"k" * 32
HELLO = ("v1", "01J9X8", "alice", "bob", "2026-05-18T12:00:00Z", "peer-bus", "msg")


def fields(sender: str) -> tuple[str, str, str, str, str, str, str]:
    return ("v1", "id1", sender, "b", "t", "peer-bus", "msg")


# Known signatures


def test_an_absent_body_is_signed_as_null() -> None:
    known = "9d7f4e0d37c826c4be29bc51e3b84ae5de33869bca0c46ffda8788594ada6f23"
    assert sign(SECRET, fields("z"), b"") == sign(SECRET, fields("z"), b"null") == known


def test_a_body_with_every_trap_is_signed_as_the_first_implementation_signs_it() -> None:
    body = '{"t": "a<b>&c é \\u003c \\u2028", "z":1, "a":2}'.encode()
    assert compact(body) == '{"t":"a\\u003cb\\u003e\\u0026c é \\u003c \\u2028","z":1,"a":2}'.encode()
    known = "6f4854ed5c17df3bf58d7cf164c758a18b52ed655b1fbe5b4ca6ecc512a8ee74"
    assert sign(SECRET, fields('x<y&é"\\/\ntab\t'), body) == known


# The rules


def test_the_eight_fields_come_in_this_exact_order_and_none_is_left_out() -> None:
    assert canonical(("", "", "", "", "", "", ""), b"") == (
        b'{"protocol_version":"","id":"","from":"","to":"","ts":"","source":"","kind":"","body":null}'
    )
    assert canonical(HELLO, b'{"text":"hello"}') == (
        b'{"protocol_version":"v1","id":"01J9X8","from":"alice","to":"bob","ts":"2026-05-18T12:00:00Z",'
        b'"source":"peer-bus","kind":"msg","body":{"text":"hello"}}'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain /", '"plain /"'),
        ("<>&", r'"\u003c\u003e\u0026"'),
        ('"\\', r'"\"\\"'),
        ("\b\f\n\r\t", r'"\b\f\n\r\t"'),
        ("\x00\x1f\x7f", '"\\u0000\\u001f\x7f"'),
        ("\u2027\u2028\u2029\u202a", '"\u2027\\u2028\\u2029\u202a"'),
        ("é \U0001f600 \ufffd", '"é \U0001f600 \ufffd"'),
        ("a\ud800b\udfff", r'"a\ufffdb\ufffd"'),
    ],
)
def test_a_string_is_escaped_as_go_escapes_it(text: str, expected: str) -> None:
    assert quote(text) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b' {"b" : 1 ,\r\n\t"a":[ ] } ', b'{"b":1,"a":[]}'),
        (b'"  keep  <this>  "', rb'"  keep  \u003cthis\u003e  "'),
        (rb'"\u003c \/ \u00e9 \" \\"', rb'"\u003c \/ \u00e9 \" \\"'),
        (rb'{"\\": " } ", "\"": " { "}', rb'{"\\":" } ","\"":" { "}'),
        (b"1.0e+05", b"1.0e+05"),
        (b"[-0, 0.10, 12345678901234567890123]", b"[-0,0.10,12345678901234567890123]"),
        ('"\u2028\u2029"'.encode(), rb'"\u2028\u2029"'),
        (b'{"a":1,"a":2}', b'{"a":1,"a":2}'),
        (rb'"\ud83d"', rb'"\ud83d"'),
        (b'"\xff"', b'"\xff"'),
    ],
)
def test_of_a_body_only_white_space_between_tokens_and_five_characters_change(body: bytes, expected: bytes) -> None:
    assert compact(body) == expected


def test_a_signature_is_lower_case_hex_and_is_read_in_either_case() -> None:
    signature = sign(SECRET, HELLO, b"{}")
    assert re.fullmatch("[0-9a-f]{64}", signature)
    assert verify(SECRET, HELLO, b"{}", signature)
    assert verify(SECRET, HELLO, b"{}", signature.upper())


@pytest.mark.parametrize("spoil", ["", "short", "x" * 64, "{0} ", " {0}", "{0}\n", "{0}00"])
def test_what_is_no_signature_verifies_nothing(spoil: str) -> None:
    signature = sign(SECRET, HELLO, b"{}")
    assert not verify(SECRET, HELLO, b"{}", spoil.format(signature))


def test_another_secret_verifies_nothing() -> None:
    assert not verify(b"x" * 32, HELLO, b"{}", sign(SECRET, HELLO, b"{}"))


# For any body

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.sampled_from(["0", "-0", "1.50", "1E9", "1e-07", "123456789012345678901234567890"])
STRINGS = st.one_of(
    TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False)),
    TEXTS.map(json.dumps),
    st.sampled_from([r'"\/"', r'"\u003C"', r'"\ud800"', '" \u2028<&>\u2029 "', r'"\\"', r'"\""']),
)
# Documents as lists of tokens, so that any white space can be put between them.
DOCUMENTS = st.recursive(
    st.one_of(NUMBERS, STRINGS, st.sampled_from(["true", "false", "null"])).map(lambda token: [token]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: ["[", *_joined(items), "]"]),
        st.lists(st.tuples(STRINGS, inner), max_size=4).map(
            lambda pairs: ["{", *_joined([[key, ":", *value] for key, value in pairs]), "}"]
        ),
    ),
    max_leaves=12,
)
WHITE_SPACE = st.text(" \t\r\n", max_size=3)


def _joined(items: list[list[str]]) -> list[str]:
    return [token for index, item in enumerate(items) for token in ([","] if index else []) + item]


def reference(body: bytes) -> bytes:
    """Return the signed form of a JSON text, by a simple version of the first implementation's rules."""
    out = bytearray()
    inside = escaped = False
    position = 0
    while position < len(body):
        byte = body[position : position + 1]
        three = body[position : position + 3]
        position += 1
        if byte in (b"<", b">", b"&"):
            out += b"\\u00%02x" % byte[0]
        elif three in (b"\xe2\x80\xa8", b"\xe2\x80\xa9"):
            out += b"\\u202%x" % (three[2] & 0xF)
            position += 2
        elif inside or byte not in (b" ", b"\t", b"\r", b"\n"):
            out += byte
        if inside and not escaped and byte == b"\\":
            escaped = True
        else:
            if byte == b'"' and not escaped:
                inside = not inside
            escaped = False
    return bytes(out)


@given(st.binary(min_size=1, max_size=200), st.binary(max_size=3000))
@example(b"k", b"\x00 \x00\r")
def test_the_digest_is_hmac_sha256(secret: bytes, body: bytes) -> None:
    expected = hmac.digest(secret, canonical(HELLO, body), "sha256").hex()
    assert sign(secret, HELLO, body) == expected


@given(DOCUMENTS, st.data())
def test_white_space_between_tokens_is_never_signed(tokens: list[str], data: st.DataObject) -> None:
    spaced = "".join(data.draw(WHITE_SPACE) + token for token in tokens) + data.draw(WHITE_SPACE)
    assert compact(spaced.encode()) == compact("".join(tokens).encode()) == reference(spaced.encode())


@given(DOCUMENTS)
def test_twice_is_once(tokens: list[str]) -> None:
    once = compact(" ".join(tokens).encode())
    assert compact(once) == once


@given(DOCUMENTS)
def test_members_keep_their_order_and_numbers_their_digits(tokens: list[str]) -> None:
    """Compact a text and compare it with the original: order of members and digits of numbers must be equal."""

    def read(text: bytes) -> object:
        return json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)

    assert read(compact(" ".join(tokens).encode())) == read("".join(tokens).encode())


@given(st.tuples(*[st.text(max_size=6)] * 7))
def test_any_fields_give_one_json_object_that_says_them(values: tuple[str, str, str, str, str, str, str]) -> None:
    decoded = json.loads(canonical(values, b"[1]"))
    assert list(decoded) == ["protocol_version", "id", "from", "to", "ts", "source", "kind", "body"]
    assert tuple(decoded.values()) == (*map(sound, values), [1])


@given(st.text())
def test_what_a_recipient_decodes_is_signed_the_same_as_what_was_sent(text: str) -> None:
    said = sound(text)
    assert json.loads(quote(said)) == said
    assert quote(json.loads(quote(said))) == quote(said)


def test_the_time_grows_with_the_length_alone() -> None:
    def seconds(body: bytes) -> float:
        started = time.thread_time()
        compact(body)
        return time.thread_time() - started

    for unit in (b'" ', b'\\"', b'["', b" ", b'"\\'):
        small = min(seconds(b" " + unit * 20_000) for _ in range(5))
        large = min(seconds(b" " + unit * 320_000) for _ in range(2))
        assert large < 160 * small + 0.05, unit
