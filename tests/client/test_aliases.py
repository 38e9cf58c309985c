"""Tests of aliases: other names to which members can send messages for a member."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess
from tests.server.hubs import HubHarness, running_hub, take
from tieline.client import HubRefused
from tieline.contract.refusal import Code


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="sqlite:unsafe") as built:
        await built.add("alice", "bob")
        yield built


async def test_what_is_written_to_an_alias_reaches_the_member_under_its_own_name_with_a_note(there: HubHarness) -> None:
    await (await there.operator()).update_team(aliases={"lead": "bob"})
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    await alice.send("@lead", "hello")
    (delivery,) = await take(bob, 1)
    assert delivery.message.target == "@bob"
    assert delivery.message.notes == ("written to the alias @lead",)
    assert [message.body for message in await bob.history("alice")] == ["hello"]


async def test_aliases_are_there_after_a_restart_and_can_be_forgotten(folder: Path) -> None:
    async with running_hub(folder) as there:
        await there.add("alice", "bob")
        await (await there.operator()).update_team(aliases={"lead": "bob"})
        tokens = there.tokens
    async with running_hub(folder) as there:
        there.tokens = tokens
        alice = await there.join("alice")
        assert (await alice.send("@lead", "hello")).recipients == 1
        await (await there.operator()).update_team(aliases={"lead": None})
        with pytest.raises(HubRefused) as refused:
            await alice.send("@lead", "hello")
        assert refused.value.code is Code.UNKNOWN_MEMBER


@pytest.mark.parametrize(
    ("aliases", "code"),
    [
        ({"alice": "bob"}, Code.NAME_TAKEN),
        ({"ALICE": "bob"}, Code.NAME_TAKEN),
        ({"lead": "nobody"}, Code.UNKNOWN_MEMBER),
        ({"not a name": "bob"}, Code.INVALID_NAME),
        ({"all": "bob"}, Code.RESERVED_NAME),
    ],
)
async def test_an_alias_is_a_name_that_nobody_has_for_somebody_there(
    there: HubHarness, aliases: dict[str, str | None], code: Code
) -> None:
    with pytest.raises(HubRefused) as refused:
        await (await there.operator()).update_team(aliases=aliases)
    assert refused.value.code is code


async def test_a_member_of_an_aliass_name_comes_before_it(there: HubHarness) -> None:
    await (await there.operator()).update_team(aliases={"lead": "bob"})
    await there.add("lead")
    alice, lead = await there.join("alice"), await there.join("lead", receive=True)
    await alice.send("@lead", "hello")
    assert (await take(lead, 1))[0].message.notes == ()


async def test_aliases_are_changed_by_who_may_change_the_team(there: HubHarness) -> None:
    alice = await there.join("alice")
    with pytest.raises(HubRefused) as refused:
        await alice.update_team(aliases={"lead": "alice"})
    assert refused.value.code is Code.FORBIDDEN


@pytest.mark.slow
def test_the_command_gives_lists_and_forgets_them() -> None:
    with HubProcess() as hub:
        hub.cli("member", "add", "bob")
        hub.cli("member", "add", "alice")
        assert hub.cli("member", "alias", "bob", "lead", "builder").stdout == "bob: builder, lead\n"
        assert "accepted" in hub.cli("send", "@lead", "hello", "--as", "alice").stdout
        assert hub.cli("member", "alias", "bob", "--json").stdout.strip() == '["builder","lead"]'
        assert hub.cli("member", "alias", "bob", "lead", "--remove").stdout == "bob: builder\n"
