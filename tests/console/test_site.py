"""Tests of the console's page and files, which a hub serves at its root."""

import gzip
import mimetypes
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.server.hubs import running_hub
from tieline.console.site import Site
from tieline.console.static_file import static_file


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><p>the page")
    (tmp_path / "assets" / "app-1.js").write_text("let x = 1;" * 100)
    return tmp_path


def client(folder: Path) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=Site(folder)), base_url="http://hub")


async def test_the_root_is_the_page_and_a_browser_asks_for_it_again_each_time(built: Path) -> None:
    async with client(built) as browser:
        page = await browser.get("/")
        assert page.text == "<!doctype html><p>the page"
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["cache-control"] == "no-cache"
        again = await browser.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_files_whose_names_change_with_their_content_are_kept(built: Path) -> None:
    async with client(built) as browser:
        script = await browser.get("/assets/app-1.js")
    assert "immutable" in script.headers["cache-control"]
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["content-encoding"] == "gzip"
    assert script.text == "let x = 1;" * 100


def test_pictures_and_the_manifest_have_their_types_on_a_system_without_a_list_of_types(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as bare:
        bare.setattr(mimetypes, "knownfiles", [])
        mimetypes.init()
        types = [static_file(b"", name, "", lasting=False).media_type for name in ("a.webp", "a.svg", "a.webmanifest")]
    mimetypes.init()
    assert types == [b"image/webp", b"image/svg+xml", b"application/manifest+json"]


async def test_a_browser_that_reads_no_gzip_gets_it_plain(built: Path) -> None:
    async with client(built) as browser:
        script = await browser.get("/assets/app-1.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in script.headers
    assert gzip.compress(script.content)


async def test_no_script_but_the_consoles_own_runs_and_nobody_frames_it(built: Path) -> None:
    async with client(built) as browser:
        policy = (await browser.get("/")).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_nothing_outside_its_folder_is_its_own(built: Path) -> None:
    site = Site(built)
    for path in ("/index.html", "/assets/../index.html", "/../site.py", "/assets", "/healthz"):
        assert not site.serves({"type": "http", "method": "GET", "path": path})
    assert not site.serves({"type": "http", "method": "POST", "path": "/"})
    assert not site.serves({"type": "websocket", "path": "/"})


async def test_a_source_tree_without_a_build_says_how_to_make_one(tmp_path: Path) -> None:
    async with client(tmp_path / "nothing") as browser:
        assert "make console" in (await browser.get("/")).text


async def test_a_hub_serves_it_beside_everything_else(folder: Path) -> None:
    async with running_hub(folder, store="memory") as there, httpx.AsyncClient(base_url=there.running.http) as browser:
        assert "Tieline" in (await browser.get("/")).text
        assert (await browser.get("/healthz")).json()["status"] == "ok"
