"""Tests that docs/interop.md is true: its tables are generated from the code, and a sent message proves each cell."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.drivers import BY_PROTOCOL, Ac7Driver, Driver, Json, MixedHub, mixed_hub
from tests.interop.table import BY_PROTOCOL as CARRIAGES
from tests.interop.table import NOTE, OWN, PAGE, REST, SAME, UNSAID, cell, filled
from tieline.contract.message import Attachment, Kind, Level, Priority
from tieline.wire.fidelity import Field
from tieline.wire.native.client import to_json
from tieline.wire.prefix_ids import from_prefix_id, to_prefix_id

NATIVE = "tieline"
WORDS: dict[Field, Any] = {
    Field.TITLE: "a title",
    Field.LEVEL: "error",
    Field.PRIORITY: "urgent",
    Field.KIND: "status",
    Field.TOPIC: "builds",
    Field.SCOPE: "org/repo",
    Field.REFS: ["a.py", "b.py"],
    Field.TTL: 60_000,
}
FILE = "/speaker/notes.txt"


def test_the_page_has_the_tables_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run: python -m tests.interop.table"


# Every field in the words of each protocol.


def in_words(protocol: str, earlier: str) -> Json:
    """Return all fields that a protocol can send, in the form of its driver.

    `earlier` is the id of a message to answer.
    """
    labels = {
        field.value: WORDS[field] for field in (Field.TITLE, Field.LEVEL, Field.PRIORITY, Field.SCOPE, Field.REFS)
    }
    threaded = {**labels, "thread": earlier, "reply_to": earlier}
    match protocol:
        case "agent-channels":
            return {"data": {"n": 1, **threaded}, "mood": "own"}
        case "agent-relay":
            meta = {"ttl_ms": WORDS[Field.TTL], "replyTo": f"d-1-{earlier}", "importance": 7}
            beside = {"topic": WORDS[Field.TOPIC], "payload_meta": meta}
            words = {"data": {"n": 1, **labels}, "thread": earlier, "kind": "thinking", "mood": "own"}
            return {**words, "envelope": beside}
        case "backchannel":
            short = {key: labels[key] for key in ("priority", "scope", "refs")}
            return {**short, "thread": earlier}
        case "peerbus":
            return {"n": 1, **threaded}
        case "mcp":
            return {"title": labels["title"], "level": labels["level"], "urgent": True, "reply_to": earlier}
        case "ac7":
            keys = {key: labels[key] for key in ("priority", "scope", "refs")}
            data = {"n": 1, **keys, "conversation": earlier, "reply_to": earlier}
            attached = [{"path": FILE, "name": "notes.txt", "size": 4, "mimeType": "text/plain"}]
            return {"data": data, "title": labels["title"], "level": labels["level"], "attachments": attached}
        case _:
            raise AssertionError(protocol)


# Reading each protocol: the wire's own fields, and the fields that the hub writes.


def own_words(protocol: str, raw: Json) -> dict[Field, Any]:
    """Return the fields of a received message that the recipient's protocol has a place for."""
    match protocol:
        case "agent-channels":
            return {Field.DATA: raw["data"]}
        case "agent-relay":
            payload, meta = raw["payload"], raw.get("payload_meta", {})
            words = {Field.DATA: payload["data"], Field.THREAD: payload.get("thread"), Field.TTL: meta.get("ttl_ms")}
            return {**words, Field.TOPIC: raw.get("topic")}
        case "backchannel":
            return {field: raw.get(field) for field in (Field.PRIORITY, Field.SCOPE, Field.THREAD, Field.REFS)}
        case "mcp":
            meta = raw["meta"]
            found = {field: meta.get(field.value) for field in Field}
            listed = {Field.REFS: meta.get("refs", "").split(", "), Field.TTL: int(meta.get("ttl_ms", 0))}
            attached = [{"path": path} for path in meta.get("attachments", "").split(", ")]
            data = {"n": int(meta.get("n", 0))}
            return {
                **found,
                **listed,
                Field.THREAD: meta.get("conversation"),
                Field.ATTACHMENTS: attached,
                Field.DATA: data,
            }
        case "ac7":
            return {field: raw[field] for field in (Field.DATA, Field.TITLE, Field.LEVEL, Field.ATTACHMENTS)}
        case _:
            return {}


def written_by_the_hub(protocol: str, raw: Json) -> Json:
    """Return the fields that the hub added to a received message because the protocol has no place for them."""
    match protocol:
        case "agent-channels":
            return dict(raw["data"]["tieline"])
        case "agent-relay":
            return dict(raw["payload"]["data"]["tieline"])
        case "backchannel":
            return {"reply_to": raw.get("thread"), **raw.get("tieline", {})}
        case "mcp":
            return {"notes": raw["meta"]["notes"].split("; ")}
        case "peerbus":
            return dict(raw["body"])
        case "ac7":
            more = raw["data"]["tieline"]
            return {**more, "thread": more.get("conversation")}
        case _:
            raise AssertionError(protocol)


def same_words(protocol: str, said: Json, raw: Json) -> bool:
    """Return true if a message within one protocol has everything that its sender wrote (`said`)."""
    match protocol:
        case "agent-relay":
            beside, words = dict(said["envelope"]), {key: said[key] for key in said if key != "envelope"}
            return _holds(raw["payload"], words) and _holds(raw, beside)
        case "peerbus":
            return _holds(raw["body"], said)
        case "mcp":
            wanted = {**said, "priority": "urgent"}
            del wanted["urgent"]
            return _holds(raw["meta"], wanted)
        case "ac7":
            return _holds(raw, {key: said[key] for key in said if key != "attachments"})
        case _:
            return _holds(raw, said)


def _holds(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and _holds(found[key], wanted[key]) for key in wanted)
    return bool(found == wanted)


def spelled(protocol: str, message_id: str) -> str:
    """Return the id of a message in the form of a protocol."""
    return to_prefix_id(message_id) if protocol == "backchannel" else message_id


def is_said(field: Field, value: Any, earlier: str) -> bool:
    """Return true if `value` is what the sender put into this field. `earlier` is the id of the answered message."""
    match field:
        case Field.DATA:
            return _holds(value, {"n": 1})
        case Field.THREAD | Field.REPLY_TO | Field.SUPERSEDES:
            return bool(value == earlier)
        case Field.ATTACHMENTS:
            return [one["path"] for one in value or ()] == [FILE]
        case _:
            return bool(value == WORDS[field])


async def say_it_all(place: MixedHub, sender: str, target: str, earlier: str) -> Json:
    """Let a member send a message with all fields that its protocol has. Return the sent fields."""
    if sender == NATIVE:
        client = await place.there.join("speaker")
        await client.send(
            target,
            "said",
            data={"n": 1},
            title=WORDS[Field.TITLE],
            level=Level(WORDS[Field.LEVEL]),
            priority=Priority(WORDS[Field.PRIORITY]),
            kind=Kind(WORDS[Field.KIND]),
            topic=WORDS[Field.TOPIC],
            scope=WORDS[Field.SCOPE],
            refs=tuple(WORDS[Field.REFS]),
            thread=earlier,
            reply_to=earlier,
            attachments=(Attachment(FILE),),
            ttl_ms=WORDS[Field.TTL],
            supersedes=earlier,
        )
        return {}
    words = in_words(sender, spelled(sender, earlier))
    speaker = await place.driver(sender, "speaker")
    if isinstance(speaker, Ac7Driver):
        await speaker.ask("POST", f"/fs/write?path={FILE}&mime=text/plain&collide=overwrite", {"a": "file"})
    await speaker.send(target, "said", **words)
    return words


@pytest.mark.slow
@pytest.mark.parametrize("recipient", [*BY_PROTOCOL, NATIVE])
@pytest.mark.parametrize("sender", [*BY_PROTOCOL, NATIVE])
async def test_every_field_arrives_where_the_page_says(folder: Path, sender: str, recipient: str) -> None:
    async with mixed_hub(folder / "h") as place:
        await place.there.add("speaker")
        reader: Driver | None = None
        if recipient == NATIVE:
            await place.there.add("reader")
        else:
            reader = await place.driver(recipient, "reader")
        earlier = (await (await place.there.join("speaker")).send("@reader", "before")).id
        if reader is not None:
            assert (await reader.hear()).body == "before"
        said = await say_it_all(place, sender, "@reader", earlier)
        raw = (await reader.hear()).raw if reader is not None else await native_message(place)
        for field in Field:
            what = cell(field, CARRIAGES[sender], CARRIAGES[recipient])
            if what == SAME:
                assert sender == NATIVE or same_words(sender, said, raw), (sender, raw)
            elif what == OWN:
                value = raw.get(field.value) if recipient == NATIVE else own_words(recipient, raw).get(field)
                assert is_said(field, value, spelled(recipient, earlier)), (field, raw)
            elif what == REST:
                value = written_by_the_hub(recipient, raw).get(field.value)
                assert is_said(field, value, spelled(recipient, earlier)), (field, raw)
            elif what == NOTE:
                notes = raw["notes"] if recipient == NATIVE else written_by_the_hub(recipient, raw)["notes"]
                assert any(note.startswith(f"for {sender} alone: ") and "mood" in note for note in notes), raw
            else:
                assert what == UNSAID


async def native_message(place: MixedHub) -> Json:
    """Wait for the test message as a reader of the hub's own protocol. Return it as JSON."""
    client = await place.there.join("reader", receive=True)
    async for delivery in client:
        if delivery.message.body == "said":
            raw: Json = json.loads(to_json(delivery.message))
            return raw
    raise AssertionError("nothing came")


@pytest.mark.slow
async def test_a_body_of_json_is_text_with_a_note_on_every_other_wire(folder: Path) -> None:
    async with mixed_hub(folder / "h") as place:
        speaker = await place.driver("agent-relay", "speaker")
        body: Any = {"type": "task", "steps": [1, None]}
        for protocol in BY_PROTOCOL:
            reader = await place.driver(protocol, f"reader-{protocol}")
            await speaker.send(f"@reader-{protocol}", body)
            heard = await reader.hear()
            if protocol == "agent-relay":
                assert heard.raw["payload"] == {"kind": "message", "body": body}
            else:
                assert json.loads(heard.body) == body
                notes = written_by_the_hub(protocol, heard.raw)["notes"]
                assert notes == ["its body is JSON, and shown as text here"]


@pytest.mark.slow
async def test_the_notes_of_a_message_are_in_its_receipts(folder: Path) -> None:
    async with mixed_hub(folder / "h") as place:
        reader = await place.driver("backchannel", "reader")
        speaker = await place.driver("agent-relay", "speaker")
        await speaker.send("@reader", "said", mood="own")
        heard = await reader.hear()
        (receipt,) = await (await place.there.operator()).receipts(from_prefix_id(heard.raw["id"]))
        assert receipt.steps[0].evidence == "for agent-relay alone: mood"
        assert [step.protocol for step in receipt.steps] == ["agent-relay", "backchannel", "backchannel"]
