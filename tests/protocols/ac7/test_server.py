"""Tests that no route of ac7 exists when the protocol is switched off."""

import asyncio
from pathlib import Path

from tests.protocols.ac7.teams import request, team
from tieline.protocols.ac7.server import DOCUMENT_PATH


async def test_without_ac7_nothing_of_it_is_reachable(folder: Path) -> None:
    async with team(folder / "home", store="memory") as crew:
        described = (await crew.stranger.get(DOCUMENT_PATH))["paths"]
    async with team(folder / "other", store="memory", ac7=False) as crew:
        await crew.there.add("ann")
        headers = {"authorization": f"Bearer {crew.there.tokens['ann']}"}
        wanted = [(method.upper(), path) for path, methods in described.items() for method in methods]
        for method, path in [*wanted, ("GET", DOCUMENT_PATH)]:
            asked = path.format(name="ann", id="x", slug="general", path="ann/x")
            reply = await asyncio.to_thread(request, crew.url, method, asked, b"{}", headers)
            assert reply.status == 404, (method, path)
        assert not (folder / "other" / "files").exists()
