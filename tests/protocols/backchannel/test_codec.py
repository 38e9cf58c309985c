"""Tests of messages and agents' records as JSON: only the protocol's keys are written, and more are tolerated."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.refusal import Code, Refusal
from tieline.contract.scope import matches
from tieline.protocols.backchannel.codec import (
    BadMessage,
    SpoolMessage,
    agent_of,
    channel_of,
    check_message,
    check_name,
    decode,
    encode,
    is_channel,
    is_id,
    moment,
    timestamp,
)
from tieline.protocols.backchannel.invite import BadInvite, Invite, decode_invite, encode_invite
from tieline.protocols.backchannel.record import BadRecord, decode_record, encode_record, new_record

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
WHOLE = SpoolMessage(
    id=ID,
    sender="claude-main",
    to="@codex-1",
    body="markdown **text** é",
    priority="normal",
    scope="github.com/org/repo",
    thread="7c9e6679-7425-40de-944b-e07fc1f90ae7",
    refs=("src/api.ts", "https://example.com/issue/42"),
    ts="2026-06-12T12:00:00.000Z",
)
BARE = SpoolMessage(id=ID, sender="a", to="b", body="x", ts="2026-06-12T12:00:00.000Z")


def test_a_message_has_the_keys_of_the_protocol_in_their_order() -> None:
    assert list(json.loads(encode(WHOLE))) == [
        "id",
        "from",
        "to",
        "body",
        "priority",
        "scope",
        "thread",
        "refs",
        "ts",
    ]
    assert encode(WHOLE).startswith(b'{"id":"0f8fad5b-')
    assert "é".encode() in encode(WHOLE)


def test_what_is_empty_is_left_out_but_priority_is_always_said() -> None:
    assert list(json.loads(encode(BARE))) == ["id", "from", "to", "body", "priority", "ts"]
    assert json.loads(encode(BARE))["priority"] == "normal"


@pytest.mark.parametrize("message", [WHOLE, BARE])
def test_a_message_survives_the_way_there_and_back(message: SpoolMessage) -> None:
    assert decode(encode(message)) == message


texts = st.text(max_size=20)


@given(body=texts, sender=texts, to=texts, scope=st.none() | texts.filter(bool), refs=st.lists(texts, max_size=3))
def test_any_text_survives_the_way_there_and_back(
    body: str, sender: str, to: str, scope: str | None, refs: list[str]
) -> None:
    message = SpoolMessage(id=ID, sender=sender, to=to, body=body, ts="t", scope=scope, refs=tuple(refs))
    assert decode(encode(message)) == message


def test_what_another_program_wrote_is_read_with_tolerance() -> None:
    document = {
        "ts": "2026-06-12T12:00:00.000Z",
        "id": ID,
        "from": "a",
        "to": "b",
        "body": "x",
        "priority": "whenever",
        "scope": None,
        "refs": None,
        "mood": {"any": 1},
    }
    message = decode(json.dumps(document, indent=2).encode())
    assert (message.priority, message.scope, message.refs, message.urgent) == ("whenever", None, (), False)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"id": 1}',
        b'{"id":"x","from":"a","to":"b","body":null,"ts":"t"}',
        b'{"id":"x","from":"a","to":"b","body":"x","ts":"t","refs":"not a list"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_message_is_told_and_raises_nothing_else(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_told_to_be_none(data: bytes) -> None:
    with contextlib.suppress(BadMessage):
        decode(data)


def test_what_nobody_could_deliver_is_refused() -> None:
    def code(body: str) -> Code | None:
        refusal = check_message(SpoolMessage(id=ID, sender="a", to="b", body=body, ts="t"))
        return None if refusal is None else refusal.code

    assert code("x") is None
    assert code("") is Code.INVALID_MESSAGE
    assert code("half a pair \ud800") is Code.INVALID_MESSAGE
    assert code("x" * DEFAULT_LIMITS.message_bytes_max) is Code.MESSAGE_TOO_LARGE


# Names, ids, targets.


@pytest.mark.parametrize("name", ["a", "claude-main", "Codex.1", "0_x", "a" * 128])
def test_a_name_has_letters_digits_dots_underscores_and_hyphens(name: str) -> None:
    assert check_name(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", "_a", "a/b", "../a", "a b", "a\n", "é", "\u017f", "\u212a", "a" * 129, "a\0"]
)
def test_a_name_that_could_lead_elsewhere_is_refused_in_the_words_of_the_protocol(name: str) -> None:
    refusal = check_name(name)
    assert refusal is not None
    assert refusal.message == f'invalid agent name "{name}" (use letters, digits, . _ -)'


def test_an_id_is_a_uuid_in_any_case() -> None:
    assert is_id(ID)
    assert is_id(ID.upper())
    for text in ("", "..", "../../etc/passwd", ID + "\n", ID[:-1], ID.replace("-", ""), f"{ID}/x"):
        assert not is_id(text)


def test_a_target_with_a_hash_is_a_channel_and_everything_else_an_agent() -> None:
    assert is_channel("#dev")
    assert not is_channel("dev")
    assert [agent_of(target) for target in ("@bob", "bob", "@@bob")] == ["bob", "bob", "@bob"]
    assert [channel_of("dev"), channel_of("#dev"), channel_of("##dev")] == ["#dev", "#dev", "##dev"]
    for text in ("", "#", "a\nb", "x" * 300):
        assert isinstance(channel_of(text), Refusal)


def test_scopes_match_as_the_protocol_says() -> None:
    remote = "git@github.com:Acme/Api.git"
    assert matches(None, None)
    assert matches("", None)
    assert matches("https://github.com/acme/api", remote)
    assert matches("acme/api", remote)
    assert not matches("acme/api", None)
    assert not matches("acme/api.git/", remote), "the suffix is dropped before the slashes"
    assert not matches("/", ""), "no context matches no scope at all"


# Time.


def test_a_timestamp_is_iso_8601_in_milliseconds() -> None:
    assert timestamp(1_781_265_600_000) == "2026-06-12T12:00:00.000Z"
    assert timestamp(7) == "1970-01-01T00:00:00.007Z"
    assert moment("2026-06-12T12:00:00.007Z") == 1_781_265_600_007
    assert moment("2026-06-12T12:00:00") == 1_781_265_600_000
    assert moment("yesterday") is None


# Records.


def test_a_record_is_written_as_other_programs_write_it() -> None:
    assert encode_record(new_record("bob", "2026-06-12T12:00:00.000Z")).decode() == (
        "{\n"
        '  "name": "bob",\n'
        '  "subscriptions": [],\n'
        '  "createdAt": "2026-06-12T12:00:00.000Z",\n'
        '  "lastSeen": "2026-06-12T12:00:00.000Z"\n'
        "}"
    )


def test_keys_of_a_record_that_we_do_not_know_stay_where_they_are() -> None:
    text = b'{"tokenHash": "ab", "name": "bob", "mood": [1], "subscriptions": ["#dev"], "lastSeen": "t"}'
    record = decode_record("bob", text).subscribed("#ops").subscribed("#dev").unsubscribed("#dev").seen_at("u")
    assert record.subscriptions == ("#ops",)
    assert json.loads(encode_record(record)) == {
        "tokenHash": "ab",
        "name": "bob",
        "mood": [1],
        "subscriptions": ["#ops"],
        "lastSeen": "u",
    }
    assert list(json.loads(encode_record(record))) == ["tokenHash", "name", "mood", "subscriptions", "lastSeen"]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"name": "eve"}', b'{"subscriptions": [1]}', b'{"lastSeen": 5}', b"[" * 100_000, b"\xff"]
)
def test_a_malformed_record_is_told(text: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_record("bob", text)


# Invites.


def test_an_invite_is_one_string_that_other_programs_read() -> None:
    invite = Invite("http://relay:7117", token="room", channels=("#dev",))
    text = encode_invite(invite)
    assert text == "bch1-eyJ1cmwiOiJodHRwOi8vcmVsYXk6NzExNyIsInRva2VuIjoicm9vbSIsImNoYW5uZWxzIjpbIiNkZXYiXX0"
    assert decode_invite(f"  {text}\n") == invite
    assert decode_invite(encode_invite(Invite("http://x"))) == Invite("http://x")


@pytest.mark.parametrize("text", ["", "hello", "bch1-", "bch1-!!!", "bch1-e30", "bch1-eyJ1cmwiOiIifQ", "bch1-é"])
def test_what_is_no_invite_is_told(text: str) -> None:
    with pytest.raises(BadInvite):
        decode_invite(text)
