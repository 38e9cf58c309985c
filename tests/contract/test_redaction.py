"""Tests that redaction removes secrets from activity, in any place, and changes nothing else."""

import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tieline.contract import redaction
from tieline.contract.redaction import REDACTED, is_secret, redact, redact_text
from tieline.protocols import protocols

# They declare the forms of their own tokens.
protocols()

KEY = "sk-ant-api03-AbCdEf0123456789-xyz"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"


@pytest.mark.parametrize(
    "key",
    [
        "authorization",
        "Authorization",
        "Proxy-Authorization",
        "api_key",
        "apiKey",
        "x-api-key",
        "X-Api-Key",
        "cookie",
        "Set-Cookie",
        "password",
        "secret",
        "clientSecret",
        "token",
        "access_token",
        "refreshToken",
        "OPENAI_API_KEY",
        "http.request.header.authorization",
    ],
)
def test_what_stands_under_such_a_key_is_secret(key: str) -> None:
    assert is_secret(key)
    assert redact({key: "anything at all"}) == {key: REDACTED}


@pytest.mark.parametrize(
    "key",
    ["max_tokens", "inputTokens", "tokens", "token_count", "author", "key", "public_key", "cookies_enabled", "x" * 500],
)
def test_what_only_sounds_like_it_is_none(key: str) -> None:
    assert not is_secret(key)
    assert redact({key: "anything at all"}) == {key: "anything at all"}


def test_counts_of_tokens_stay() -> None:
    usage = {"input_tokens": 12, "outputTokens": 3, "token": 4, "max_tokens": 4096}
    assert redact(usage) == usage


def test_a_number_can_be_a_password() -> None:
    assert redact({"password": 1234, "secret": 1.5, "token": None}) == {
        "password": REDACTED,
        "secret": REDACTED,
        "token": None,
    }


def test_everything_below_a_secret_key_is_secret() -> None:
    assert redact({"credentials": {"user": "ada", "keys": ["a", "b"]}}) == {
        "credentials": {"user": REDACTED, "keys": [REDACTED, REDACTED]}
    }


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([["Authorization", "Basic dXNlcg=="], ["accept", "*/*"]], [["Authorization", REDACTED], ["accept", "*/*"]]),
        ([{"name": "Cookie", "value": "a=b"}], [{"name": "Cookie", "value": REDACTED}]),
        (
            [{"key": "http.request.header.x-api-key", "value": {"stringValue": "abc"}}],
            [{"key": "http.request.header.x-api-key", "value": {"stringValue": REDACTED}}],
        ),
    ],
)
def test_headers_are_found_in_every_shape_that_they_have(headers: Any, expected: Any) -> None:
    assert redact({"headers": headers}) == {"headers": expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abcdefgh12345678", f"Authorization: Bearer {REDACTED}"),
        ("curl -H 'x-api-key: abcdef123456'", f"curl -H 'x-api-key: {REDACTED}'"),
        (f"my key is {KEY}.", f"my key is {REDACTED}."),
        (f"export OPENAI_API_KEY={KEY}", f"export OPENAI_API_KEY={REDACTED}"),
        ('{"api_key": "abcdef", "n": 1}', f'{{"api_key": "{REDACTED}", "n": 1}}'),
        ('{\\"password\\": \\"hunter2\\"}', f'{{\\"password\\": \\"{REDACTED}\\"}}'),
        ("password=hunter22&user=ada", f"password={REDACTED}&user=ada"),
        (f"a {JWT} b", f"a {REDACTED} b"),
        ("ghp_0123456789abcdefghij", REDACTED),
        ("tie_0123456789abcdefghijklmnop and ac7_0123456789abcdefghijklmnop", f"{REDACTED} and {REDACTED}"),
        ("AKIAABCDEFGHIJKLMNOP", REDACTED),
        # A capital İ is two letters when it is small: what comes after it is found at its place all the same.
        ("İİİ PASSWORD=hunter22&user=ada", f"İİİ PASSWORD={REDACTED}&user=ada"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nrest", f"{REDACTED}\nrest"),
    ],
)
def test_what_has_the_form_of_a_secret_is_taken_out_of_a_text(text: str, expected: str) -> None:
    assert redact_text(text) == expected
    assert redact({"body": [text]}) == {"body": [expected]}


@pytest.mark.parametrize(
    "text",
    [
        "the bearer of good news",
        "a secret is a secret",
        "max_tokens: 4096, token: 128000",
        "Basic understanding: fine",
        "risk-based and task-oriented",
        "the token: none",
        "",
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert redact_text(text) == text


def test_a_long_text_is_searched_to_its_end() -> None:
    filler = "word, " * 10_000
    for text in (f"{filler}{KEY}{filler}", f"{filler}password: hunter22, {filler}", "x" * 40_000 + f" {KEY}"):
        assert "hunter22" not in redact_text(text)
        assert KEY not in redact_text(text)
    block = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBg\n" * 3000 + "-----END PRIVATE KEY-----"
    assert redact_text(f"{filler}{block}{filler}") == f"{filler}{REDACTED}{filler}"


def test_a_long_text_without_secrets_is_the_same_text() -> None:
    text = "".join(f"line {number}: some words; token_count={number}\n" for number in range(5000))
    assert redact_text(text) == text


HOSTILE = {
    "sentences": "a sentence about tokens and keys, as models write them. ",
    "parts of a JWT": "eyJaaaaaaaa-",
    "two parts of a JWT": "eyJaaaaaaaa-eyJaaaaaaaa.eyJaaaaaaaa-eyJ",
    "short parts of a JWT": "eyJaaaaaaaa.a.",
    "a bearer of spaces": "bearer   \n",
    "a short bearer": "Bearer abc",
    **{
        mark: mark + "-" for mark in ("sk-", "sk_live_", "ghp_", "github_pat_", "xoxb-", "AKIA", "AIza", "tie_", "ac7_")
    },
    **{f"long {mark}": mark + "a" * 40 for mark in ("sk-", "sk_live_", "ghp_", "xoxb-", "tie_", "-AKIA")},
    "beginnings of private keys": "-----BEGIN PRIVATE KEY PRIVATE KEY-",
    "endings of private keys": "-----BEGIN PRIVATE KEY-----END PRIVATE KEY ",
    "private keys": "-----BEGIN PRIVATE KEY-----x-----END PRIVATE KEY-----",
    "assignments in each other": "token=",
    "assignments to different words": "token=secret:password=cookie:apikey=",
    "numbers that are assigned": "token=11111111",
    "quotes in quotes": "token=\"secret='",
    "quoted assignments": 'token="abcdefgh',
    "escaped assignments": '\\"token\\":\\"abcdefgh',
    "spaces before a value": "token  :  ",
    "cuts": "x\n,; ",
}
"""Texts which, repeated many times, would take quadratic time if redaction searched from every character."""
_SMALL_CHARS = 8192
_GROWTH = 16


def _seconds(text: str) -> float:
    """Return the processor time that the redaction of a text takes: the shortest of three runs."""
    best = float("inf")
    for _ in range(3):
        started = time.thread_time()
        redact_text(text)
        best = min(best, time.thread_time() - started)
    return best


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_time_grows_as_the_text_does_whatever_it_holds(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    # Pieces would hide a square: the patterns have to be linear by themselves.
    monkeypatch.setattr(redaction, "_PIECE_CHARS", _SMALL_CHARS * _GROWTH)
    piece = HOSTILE[kind]
    small = piece * (_SMALL_CHARS // len(piece))
    assert _seconds(small * _GROWTH) <= 2.5 * _GROWTH * max(_seconds(small), 0.0002)


# The rules as patterns that are plain to read, and slow: what is taken out is what they take out.

_FORMS = (
    (r"(?i)\b(bearer)\s+[A-Za-z0-9._~+/=-]{8,}", rf"\1 {REDACTED}"),
    (r"\bsk-[A-Za-z0-9_-]{16,}", REDACTED),
    (r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{10,}", REDACTED),
    (r"\bgh[pos]_[A-Za-z0-9]{20,}", REDACTED),
    (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", REDACTED),
)
_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_ASSIGNED = re.compile(
    r"""(?x) \\?["']? \s*[:=]\s*
    (?: \\?" (?P<quoted>[^"\\]{4,}) | ' (?P<single>[^'\\]{4,}) | (?P<bare>[^\s"'\\,;&{}\[\]]{6,}) )
    """
)


def _by_the_rules(text: str) -> str:
    text = _KEY_BLOCK.sub(REDACTED, text)
    for form, shown in _FORMS:
        text = re.sub(form, shown, text)
    spans = []
    for word in ("authorization", "api_key", "api-key", "apikey", "cookie", "password", "passwd", "secret", "token"):
        for found in re.finditer(word, text.lower()):
            match = _ASSIGNED.match(text, found.end())
            if match is None:
                continue
            value = match[str(match.lastgroup)]
            named = value.lower() in ("bearer", "basic") or REDACTED in value
            if not named and not value.replace(".", "").isdigit():
                spans.append(match.span(str(match.lastgroup)))
    end = len(text)
    for start, stop in sorted(set(spans), reverse=True):
        if stop <= end:
            text, end = text[:start] + REDACTED + text[stop:], start
    return text


_crumbs = st.sampled_from(
    [
        *(
            "eyJ",
            "eyJabcdefgh",
            ".",
            "-",
            "_",
            "abcdefgh",
            "12345678",
            "1.5",
            " ",
            "\n",
            ":",
            "=",
            '"',
            "'",
            "\\",
            ",",
            "[",
        ),
        *("token", "Secret", "PASSWORD", "api-key", "bearer", "Bearer ", "Basic", REDACTED, "sk-", "sk_live_"),
        *("ghp_aaaaaaaaaaaaaaaaaaaa", "-----BEGIN ", "RSA ", "PRIVATE KEY-----", "-----END ", "²", "é"),
    ]
)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(_crumbs, max_size=24).map("".join))
def test_what_is_taken_out_is_what_the_rules_say(text: str) -> None:
    if len(text) >= 10:
        assert redact_text(text) == _by_the_rules(text)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@given(_json)
def test_twice_is_as_once_and_the_shape_stays(value: Any) -> None:
    once = redact(value)
    assert redact(once) == once
    assert type(once) is type(value)


@given(_json, st.sampled_from(["authorization", "apiKey", "set-cookie"]))
def test_no_text_under_a_secret_key_is_left(value: Any, key: str) -> None:
    def texts(one: Any) -> list[str]:
        if isinstance(one, dict):
            return [text for item in one.values() for text in texts(item)]
        if isinstance(one, list):
            return [text for item in one for text in texts(item)]
        return [one] if isinstance(one, str) else []

    assert set(texts(redact({key: value}))) <= {REDACTED}
