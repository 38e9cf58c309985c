"""The documentation's site: gathers the pages of the repository, adds those made from the code, and builds them.

    python -m scripts.docs_site [--out FOLDER]

Used by: `make docs` and the build of a wheel. Uses: zensical, which fails on a broken link, and `docs_reference`. Pages
of other folders (PROTOCOL.md, the changelog) get a place in the site, and links to them follow. A link to a file that
the site does not have, such as a module, becomes the name of that file. The site loads nothing from other hosts.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "src" / "tieline" / "console" / "docs"
CONFIG = "zensical.toml"
STYLES = "styles.txt"
"""File of the site with the hash of a style that a script adds. The hub allows it."""

MADE = {
    "reference/cli.md": "cli_page",
    "reference/json.md": "json_page",
    "reference/sdk.md": "sdk_page",
    "reference/http.md": "http_page",
    "reference/configuration.md": "configuration_page",
    "agents.md": "agents_page",
}
"""Pages made from the code: path in the site → the function of `docs_reference` that returns the text."""

MADE_FILES = ("llms.txt", "SKILL.txt", "openapi.json", "json-schema.json")
"""Files made from the code, beside the pages. Pages can link to them."""

# Code and marks in a list are indented.
_FENCE = re.compile(r"^[ ]*(?P<mark>`{3,}|~{3,}).*?^[ ]*(?P=mark)[ ]*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)", re.DOTALL)
_LINK = re.compile(r"(?P<bang>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<path>[^)\s]+)\)")
_COMMENT = re.compile(r"^[ ]*<!--.*?-->[ ]*\n?", re.MULTILINE | re.DOTALL)
# A word in angle brackets, such as <home>, which a browser would take for an element. Some are meant as elements.
_BRACKETS = re.compile(r"<(?!br>|!--|/?(?:div|figure|figcaption)\b)(?=[A-Za-z])")
_DRAWING = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"^ +(\S+) --> (\S+)$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SEARCH_STYLE = re.compile(r'\("style",\{\},(?P<name>[\w$]+)\.toString\(\)\)')
# Files that only a site with an address of its own needs.
_UNUSED = ("404.html", "sitemap.xml", "sitemap.xml.gz", "objects.inv")


class BrokenLink(Exception):
    """Raised if a page links to a file that does not exist. The text has the page and the link."""


def sources() -> dict[str, str]:
    """Return the pages and pictures that are files of the repository: path in the repository → path in the site."""
    docs = ROOT / "docs"
    pages = [path for path in docs.rglob("*.md") if not path.name.startswith("0000-")]
    found = {
        path.relative_to(ROOT).as_posix(): path.relative_to(docs).as_posix()
        for path in sorted([*pages, *(docs / "images").iterdir(), *(docs / "assets").iterdir()])
    }
    for path in sorted((ROOT / "src" / "tieline" / "protocols").glob("*/PROTOCOL.md")):
        found[path.relative_to(ROOT).as_posix()] = f"wire/{path.parent.name}.md"
    return found | {
        "src/tieline/wire/native/PROTOCOL.md": "wire/tieline.md",
        "CHANGELOG.md": "project/changelog.md",
        "CONTRIBUTING.md": "project/contributing.md",
        "SECURITY.md": "project/reporting.md",
    }


def page(source: str, places: dict[str, str]) -> str:
    """Return the text of a page of the repository, as the site has it. Raises `BrokenLink`."""
    text = _DRAWING.sub(_table_of_arrows, (ROOT / source).read_text(encoding="utf-8"))
    replace = _replacement(source, places)
    linked = "".join(part if is_code else _LINK.sub(replace, part) for part, is_code in _cut(text, _FENCE))
    return "".join(
        part if is_code else _COMMENT.sub("", part)
        for part, is_code in _cut(
            "".join(
                part
                if is_code
                else "".join(inner if is_span else _BRACKETS.sub("&lt;", inner) for inner, is_span in _cut(part, _SPAN))
                for part, is_code in _cut(linked, _FENCE)
            ),
            _FENCE,
        )
    )


def _cut(text: str, code: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a text in order, each with true if it is code."""
    end = 0
    for found in code.finditer(text):
        yield text[end : found.start()], False
        yield found[0], True
        end = found.end()
    yield text[end:], False


def _replacement(source: str, places: dict[str, str]) -> Callable[[re.Match[str]], str]:
    """Return the function that replaces a link of a page by a link within the site."""
    here = Path(places[source]).parent
    known = {"README.md": "index.md", **places, **{f"docs/{place}": place for place in (*MADE, *MADE_FILES)}}

    def replace(link: re.Match[str]) -> str:
        path, hash_sign, anchor = link["path"].partition("#")
        if not path or ":" in path:
            return link[0]
        name = os.path.normpath(Path(source).parent / path)
        place = known.get(name) or known.get(f"{name}/README.md")
        if place is not None:
            return f"{link['bang']}[{link['text']}]({os.path.relpath(place, here)}{hash_sign}{anchor})"
        if not (ROOT / name).exists():
            raise BrokenLink(f"{source}: {link['path']}")
        return link["text"] if "`" in link["text"] else f"{link['text']} (`{name}`)"

    return replace


def _table_of_arrows(drawing: re.Match[str]) -> str:
    """Return the arrows of a drawing as a table, because the program that would draw it comes from another host."""
    rows: dict[str, list[str]] = {}
    for before, after in _ARROW.findall(drawing[1]):
        first = "the start" if before == "[*]" else f"`{before}`"
        rows.setdefault(first, []).append("the end" if after == "[*]" else f"`{after}`")
    lines = [f"| {before} | {', '.join(after)} |" for before, after in rows.items()]
    return "\n".join(["", "| from | to |", "| --- | --- |", *lines, ""])


def gather(folder: Path) -> None:
    """Write all pages of the site, as Markdown, into an empty folder. Raises `BrokenLink`."""
    from scripts import docs_reference  # noqa: PLC0415 - it loads the whole hub, which other functions do not need

    places = sources()
    for source, place in places.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            path.write_text(page(source, places), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, path)
    for place, name in MADE.items():
        (folder / place).write_text(getattr(docs_reference, name)(), encoding="utf-8")
    (folder / "openapi.json").write_bytes(docs_reference.openapi())
    (folder / "json-schema.json").write_bytes(docs_reference.json_schema())
    (folder / "SKILL.txt").write_text(docs_reference.skill(), encoding="utf-8")
    nav = tomllib.loads((ROOT / "docs" / CONFIG).read_text(encoding="utf-8"))["project"]["nav"]
    (folder / "llms.txt").write_text(docs_reference.llms(folder, nav), encoding="utf-8")


def build(out: Path) -> None:
    """Build the site into `out`, which appears whole or not at all. Raises `BrokenLink` or `CalledProcessError`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".docs-") as name:
        work = Path(name)
        (work / "pages").mkdir()
        gather(work / "pages")
        shutil.copyfile(ROOT / "docs" / CONFIG, work / CONFIG)
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        told = subprocess.run(command, check=False, cwd=work, capture_output=True, text=True)
        if told.returncode:
            sys.stderr.write(_COLOUR.sub("", told.stdout + told.stderr))
            told.check_returncode()
        site = work / "site"
        for path in (work / "pages").rglob("*.md"):  # agents read Markdown with fewer tokens than pages
            shutil.copyfile(path, site / path.relative_to(work / "pages"))
        for unused in _UNUSED:
            (site / unused).unlink(missing_ok=True)
        (site / STYLES).write_text(f"sha256-{style_hash(site)}\n", encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        site.rename(out)


def style_hash(site: Path) -> str:
    """Return the hash of the style that the script of the search adds to a page, for the content security policy."""
    (bundle,) = (site / "assets" / "javascripts").glob("bundle.*.min.js")
    script = bundle.read_text(encoding="utf-8")
    use = _SEARCH_STYLE.search(script)
    text = use and re.search(rf"\b{re.escape(use['name'])}='((?:[^'\\]|\\.)*)'", script)
    if not text:
        raise LookupError(f"{bundle.name} does not have the style of the search where it was: see style_hash")
    style = re.sub(r"\\(.)", r"\1", text[1])
    return b64encode(sha256(style.encode()).digest()).decode()


def main() -> None:
    """Build the site, by the command's options."""
    parser = argparse.ArgumentParser(description="Build the documentation's site.")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the site (%(default)s)")
    build(parser.parse_args().out.resolve())


if __name__ == "__main__":
    main()
