"""Tests of addresses: each protocol writes the same targets in its own form, and unknown names get suggestions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.drivers import BY_PROTOCOL, Json, Refused, RelayDriver, mixed_hub
from tieline.client import connect
from tieline.contract.permission import OBJECTIVES_CREATE
from tieline.protocols.agent_relay.codec import AWAITED


@pytest.mark.slow
@pytest.mark.parametrize("sender", ["agent-relay", "backchannel", "ac7"])
async def test_an_unknown_target_is_refused_with_the_nearest_names(folder: Path, sender: str) -> None:
    async with mixed_hub(folder / "h") as place:
        await place.there.add("reviewer-one")
        speaker = await place.driver(sender, "speaker")

        async def ask() -> None:
            await speaker.send("@reviewer-won", "hello")
            # A wire that says no in a frame of its own says it to whoever reads on.
            await speaker.hear()

        with pytest.raises(Refused) as caught:
            await ask()
        assert "did you mean reviewer-one?" in str(caught.value)


@pytest.mark.slow
async def test_a_post_to_a_name_that_nobody_has_is_kept_in_the_log_where_the_wire_has_no_refusal(folder: Path) -> None:
    async with mixed_hub(folder / "h") as place:
        speaker = await place.driver("peerbus", "speaker")
        await speaker.send("@nobody", "hello")
        await speaker.send("@speaker", "the last")
        assert (await speaker.hear()).body == "the last"
        operator = await place.there.operator()
        assert any('"unknown_member"' in row.event for row in (await operator.read_log()).rows)


@pytest.mark.slow
async def test_an_objectives_thread_is_spoken_in_from_every_protocol_that_can_name_it(folder: Path) -> None:
    async with mixed_hub(folder / "h") as place:
        await place.there.add("lead", permissions=(OBJECTIVES_CREATE,))
        readers = [await place.driver(protocol, f"reader-{protocol}") for protocol in BY_PROTOCOL]
        names = tuple(reader.name for reader in readers)
        async with await connect(token=place.there.tokens["lead"], home=place.there.home) as lead:
            made = await lead.create_objective("Ship it", "It is shipped", names[0], watchers=names[1:])
        for reader in readers:
            # That it is assigned, and who watches it, one by one.
            told, *_ = await reader.hear_several(len(names))
            assert (told.sender, told.body.splitlines()[0]) == ("lead", f"[objective assigned] {made.id}")
        target = f"obj:{made.id}"
        speakers = [reader for reader in readers if reader.protocol in ("agent-relay", "backchannel", "ac7")]
        for speaker in speakers:
            if speaker.protocol == "ac7":
                await speaker.send("*", "progress", data={"thread": target})
            else:
                await speaker.send(target, "progress")
            for reader in readers:
                if reader is not speaker:
                    heard = await reader.hear()
                    assert (heard.sender, heard.body) == (speaker.name, "progress")


@pytest.mark.slow
async def test_a_reply_from_any_protocol_names_what_it_answers(folder: Path) -> None:
    async with mixed_hub(folder / "h") as place:
        await place.there.add("asker")
        asker = await place.there.join("asker", receive=True)
        replies: dict[str, Callable[[Json], Json]] = {
            "agent-channels": lambda raw: {"data": {"reply_to": raw["data"]["tieline"]["id"]}},
            "agent-relay": lambda raw: {"envelope": {"payload_meta": {"replyTo": raw["id"]}}},
            "backchannel": lambda raw: {"thread": raw["id"]},
            "peerbus": lambda raw: {"reply_to": raw["id"]},
            "ac7": lambda raw: {"data": {"reply_to": raw["id"]}},
        }
        for protocol, words in replies.items():
            agent = await place.driver(protocol, f"agent-{protocol}")
            sent = await asker.send(f"@{agent.name}", "well?", thread="the question")
            heard = await agent.hear()
            await agent.send("@asker", "well!", **words(heard.raw))
            delivery = await anext(asker.deliveries())
            asker.ack(delivery)
            assert (delivery.message.reply_to, delivery.message.cause) == (sent.id, sent.id)


@pytest.mark.slow
@pytest.mark.parametrize("recipient", ["backchannel", "peerbus", "ac7"])
async def test_a_sender_that_waits_hears_the_answer_from_any_protocol(folder: Path, recipient: str) -> None:
    async with mixed_hub(folder / "h") as place:
        agent = await place.driver(recipient, "agent")
        asker = await place.driver("agent-relay", "asker")
        assert isinstance(asker, RelayDriver)
        sync = {"correlationId": "c-1", "timeoutMs": 20_000, "blocking": True}
        await asker.send("@agent", "well?", envelope={"payload_meta": {"sync": sync}})
        heard = await agent.hear()
        assert AWAITED in str(heard.raw)
        answers = {"backchannel": {"thread": heard.raw["id"]}, "ac7": {"data": {"reply_to": heard.raw["id"]}}}
        await agent.send("@asker", "not this")
        await agent.send("@asker", "well!", **answers.get(recipient, {"reply_to": heard.raw["id"]}))
        answer = await asker.answer()
        assert (answer["from"], answer["payload"]["correlationId"]) == ("agent", "c-1")
        assert answer["payload"]["responseData"]["body"] == "well!"
