"""Tests of the documentation's site: it builds strictly, its links lead somewhere, and it needs no other host."""

import os
import re
import subprocess
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import msgspec
import pytest

from scripts import docs_site
from scripts.docs_site import BrokenLink, page, sources, style_hash

ROOT = Path(__file__).resolve().parents[2]
SITE = "http://hub/docs/"
STYLE = ".search{content:'x'}"


class Page(HTMLParser):
    """The links of a page, the files that it loads, and the places in it that a link can name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the attributes of one element."""
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(given["href"])
        elif "src" in given:
            self.loads.append(given["src"])


def pages_of(site: Path) -> dict[str, Page]:
    """Return the pages of a site by their addresses."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        address = urljoin(SITE, path.relative_to(site).as_posix().removesuffix("index.html"))
        found[address] = Page(path.read_text(encoding="utf-8"))
    return found


def is_broken(site: Path, pages: dict[str, Page], address: str) -> bool:
    """Return true if an address within the site has no page or file, or its page has no such place."""
    parts = urlsplit(address)
    if parts.path == "/":  # the console
        return False
    plain = parts._replace(query="", fragment="").geturl()
    if plain in pages:
        return bool(parts.fragment) and unquote(parts.fragment) not in pages[plain].places
    return not (site / plain.removeprefix(SITE)).is_file()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_site_builds_strictly_and_every_link_of_it_leads_somewhere(tmp_path: Path) -> None:
    """The site is built once for all that is asked here, because that takes long."""
    site = tmp_path / "site"
    docs_site.build(site)
    assert [path.name for path in tmp_path.iterdir()] == ["site"], "the build leaves nothing beside it"
    pages = pages_of(site)
    places = [*sources().values(), *docs_site.MADE]
    wanted = {place.removesuffix(".md") for place in places if place.endswith(".md")}
    built = {address.removeprefix(SITE).rstrip("/") for address in pages}
    assert {re.sub(r"(^|/)(index|README)$", "", name) for name in wanted} == built

    own = [(at, urljoin(at, link)) for at, one in pages.items() for link in one.links]
    assert [(at, to) for at, to in own if to.startswith("http://hub/") and is_broken(site, pages, to)] == []
    assert [(at, load) for at, one in pages.items() for load in one.loads if urlsplit(load).netloc] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert [url for text in styles for url in re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^)]*", text)] == []

    reached = {urlsplit(to)._replace(query="", fragment="").geturl() for _, to in own}
    assert set(pages) - reached == set(), "no page without a way to it"

    listed = re.findall(
        r"^- \[.+\]\(/docs/([^)]*)\): (.*)$", (site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(place for place, _ in listed) == sorted(place for place in places if place.endswith(".md"))
    assert [place for place, _ in listed if not (site / place).is_file()] == [], "agents read Markdown"
    assert [about for _, about in listed if len(about.split()) < 4] == [], "each page says what it is about"
    copies = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.md")}
    assert [path for path, text in copies.items() if re.search(r"^ *<!--", text, re.MULTILINE)] == [], "no marks"

    searched = msgspec.json.decode((site / "search.json").read_bytes())["items"]
    assert {item["location"].partition("#")[0] for item in searched} == {at.removeprefix(SITE) for at in pages}
    assert (site / docs_site.STYLES).read_text(encoding="utf-8") == f"sha256-{style_hash(site)}\n"
    assert [name for name in docs_site.MADE_FILES if not (site / name).is_file()] == []
    assert "openapi" in msgspec.json.decode((site / "openapi.json").read_bytes())
    assert "tieline-send" in msgspec.json.decode((site / "json-schema.json").read_bytes())["$defs"]


def test_a_link_to_nothing_stops_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("See [there](b.md) and [the code](c.py).")
    (tmp_path / "c.py").write_text("")
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    with pytest.raises(BrokenLink, match=r"a\.md: b\.md"):
        page("a.md", {"a.md": "a.md"})
    assert page("a.md", {"a.md": "x/a.md", "b.md": "b.md"}) == "See [there](../b.md) and the code (`c.py`)."


def test_marks_for_tests_and_words_in_angle_brackets_do_not_disturb_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text("<!-- not run: why -->\n```sh\ncat <home>\n```\n<home> and `<home>`\n")
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    assert page("a.md", {"a.md": "a.md"}) == "```sh\ncat <home>\n```\n&lt;home> and `<home>`\n"


def test_the_marks_of_code_in_a_list_are_left_out_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = "    ```sh\n    cat <home>  <!-- not a mark -->\n    ```\n"
    (tmp_path / "a.md").write_text(f"1. Run:\n\n    <!-- elsewhere -->\n{block}    <!-- background -->\n{block}")
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    assert page("a.md", {"a.md": "a.md"}) == f"1. Run:\n\n{block}{block}"


def test_a_generator_that_moved_its_search_stops_the_build(tmp_path: Path) -> None:
    scripts = tmp_path / "assets" / "javascripts"
    scripts.mkdir(parents=True)
    bundle = scripts / "bundle.00000000.min.js"
    bundle.write_text("var Q='.search{content:\\'x\\'}';e(\"style\",{},Q.toString())")
    assert style_hash(tmp_path) == b64encode(sha256(STYLE.encode()).digest()).decode()
    bundle.write_text("var other=1")
    with pytest.raises(LookupError, match="style_hash"):
        style_hash(tmp_path)


def test_a_change_of_any_module_or_page_builds_the_site_anew() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    asked = subprocess.run(
        ["make", "--print-data-base", "--question", ".venv/.stamps/site"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    (rule,) = (line for line in asked.stdout.splitlines() if line.startswith(".venv/.stamps/site: "))
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "src" / "tieline").rglob("*.py")}
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.*") if path.is_file()}
    assert "src/tieline/server/log_api.py" in modules
    assert modules | pages <= set(rule.split())
    assert "console/docs/" not in rule.replace("console/docs/index.html", ""), "the site is made from no page of itself"
