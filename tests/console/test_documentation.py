"""Tests of the documentation that a hub serves at `/docs`: its files, its policy, and a hub without the site."""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.server.hubs import ALONE, running_hub
from tieline.console.documentation import Documentation
from tieline.console.site import Site

SCRIPT = "start('docs')"
PAGE = f"<!doctype html><script>{SCRIPT}</script><script src=assets/a.js></script><p>the page"
STYLE = "sha256-AAAA+/="


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "howto").mkdir()
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "howto" / "index.html").write_text("<!doctype html><p>how to")
    (tmp_path / "assets" / "bundle.77dd0ce9.min.js").write_text("let x = 1;")
    (tmp_path / "styles.txt").write_text(f"{STYLE}\n")
    return tmp_path


def client(folder: Path) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=Documentation(folder)), base_url="http://hub")


async def test_the_address_of_a_folder_ends_with_a_slash_so_that_links_of_its_page_work(built: Path) -> None:
    async with client(built) as browser:
        for short in ("/docs", "/docs/howto"):
            answer = await browser.get(short)
            assert (answer.status_code, answer.headers["location"]) == (308, f"{short}/")
        assert (await browser.get("/docs/")).text == PAGE
        assert "how to" in (await browser.get("/docs/howto/")).text


async def test_a_page_runs_only_the_scripts_and_the_style_that_the_build_made(built: Path) -> None:
    async with client(built) as browser:
        policy = (await browser.get("/docs/")).headers["content-security-policy"]
    allowed = b64encode(sha256(SCRIPT.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{allowed}';" in policy
    assert f"style-src 'self' '{STYLE}';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


async def test_only_files_with_a_digest_in_their_name_are_kept_by_a_browser(built: Path) -> None:
    async with client(built) as browser:
        script = await browser.get("/docs/assets/bundle.77dd0ce9.min.js")
        page = await browser.get("/docs/")
    assert "immutable" in script.headers["cache-control"]
    assert page.headers["cache-control"] == "no-cache"


async def test_no_address_leads_out_of_the_folder(built: Path) -> None:
    (built.parent / "secret.txt").write_text("secret")
    async with client(built) as browser:
        for path in (
            "/docs/../secret.txt",
            "/docs/%2e%2e/secret.txt",
            "/docs//etc/passwd",
            "/docs/howto/../index.html",
        ):
            assert "secret" not in (await browser.get(path)).text
        absent = await browser.get("/docs/nowhere/")
    assert (absent.status_code, "All pages" in absent.text) == (404, True)


async def test_a_source_tree_without_the_site_says_how_to_build_it(tmp_path: Path) -> None:
    async with client(tmp_path / "nothing") as browser:
        answer = await browser.get("/docs/")
    assert answer.status_code == 404
    assert "make docs" in answer.text


def test_only_its_own_addresses_are_the_documentations(built: Path) -> None:
    documentation = Documentation(built)
    for path in ("/docs2", "/", "/doc", "/api/docs"):
        assert not documentation.serves({"type": "http", "method": "GET", "path": path})
    assert not documentation.serves({"type": "http", "method": "POST", "path": "/docs/"})
    assert Site(built, built).serves({"type": "http", "method": "GET", "path": "/docs/howto/"})


async def test_a_hub_serves_it_to_everybody_with_or_without_a_site(folder: Path) -> None:
    async with (
        running_hub(folder, store="memory", **ALONE) as there,
        httpx.AsyncClient(base_url=there.running.http) as browser,
    ):
        answer = await browser.get("/docs/")
    assert "<title>" in answer.text
    assert "Tieline" in answer.text
