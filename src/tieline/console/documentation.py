"""The documentation at `/docs`: serves the built site. Everybody who reaches the HTTP port can read it.

Used by: `site`, which also serves the console's page. Uses: `docs/`, which `make docs` writes. A file is read and
compressed at its first request, on a thread, because some are large. The content security policy of a page allows the
scripts of the site, and the page's inline scripts by their hashes. One script of the site adds a style, which is
allowed by its hash too. Nothing is loaded from other hosts.
"""

import asyncio
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from starlette.types import Receive, Scope, Send

from tieline.console.static_file import StaticFile, packed, static_file
from tieline.wire.http import Answer, respond

PREFIX = "/docs"
BUILT = Path(__file__).parent / "docs"
"""Folder into which `make docs` builds the site."""

_INDEX = "index.html"
_STYLES = "styles.txt"
_HASH = re.compile(r"sha256-[A-Za-z0-9+/=]+")
_INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)
_POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self'{styles}; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_UNBUILT = b"""<!doctype html><html lang="en"><title>Tieline</title>
<p>This hub runs from a source tree whose documentation was not built yet. Build it with <code>make docs</code>, then
start the hub again. Its pages are also in the folder <code>docs</code> of the source tree.</p></html>"""
_ABSENT = b"""<!doctype html><html lang="en"><title>Tieline</title>
<p>The documentation has no page with this address. <a href="/docs/">All pages</a></p></html>"""
_HTML = b"text/html; charset=utf-8"


def is_built(folder: Path = BUILT) -> bool:
    """Return true if the site is in the folder."""
    return (folder / _INDEX).is_file()


class Documentation:
    """HTTP application that serves the site of the documentation."""

    def __init__(self, folder: Path = BUILT) -> None:
        self._folder = folder
        self._names: frozenset[str] | None = None
        self._files: dict[str, StaticFile] = {}

    def serves(self, scope: Scope) -> bool:
        """Return true if the request is for a path of the documentation."""
        path = scope.get("path", "")
        return (
            scope["type"] == "http"
            and scope["method"] in {"GET", "HEAD"}
            and (path == PREFIX or path.startswith(f"{PREFIX}/"))
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the requested file. If the address of a folder lacks its last slash, redirect to the whole address."""
        if self._names is None:
            self._names = await asyncio.to_thread(self._list)
        name = scope["path"].removeprefix(PREFIX).removeprefix("/")
        if scope["path"] == PREFIX or f"{name}/{_INDEX}" in self._names:
            place = f"{scope['path']}/".encode()
            await respond(send, Answer(308, b"", _HTML, headers=((b"location", place),)))
        elif not self._names:
            await respond(send, Answer(404, _UNBUILT, _HTML))
        else:
            file = await self._file(f"{name}{_INDEX}" if name.endswith("/") or not name else name)
            if file is None:
                await respond(send, Answer(404, _ABSENT, _HTML))
            else:
                await file.send(scope, send)

    def _list(self) -> frozenset[str]:
        return frozenset(
            path.relative_to(self._folder).as_posix() for path in self._folder.rglob("*") if path.is_file()
        )

    async def _file(self, name: str) -> StaticFile | None:
        """Return a file of the site by its name; `None` if the site has no file with this name."""
        if name not in self._files:
            # Only names that were listed are read, so that no request reaches another file.
            if self._names is None or name not in self._names:
                return None
            self._files[name] = await asyncio.to_thread(self._read, name)
        return self._files[name]

    def _read(self, name: str) -> StaticFile:
        body = (self._folder / name).read_bytes()
        styles = (self._folder / _STYLES).read_text(encoding="utf-8") if _STYLES in (self._names or ()) else ""
        allowed = "".join(f" '{one}'" for one in _HASH.findall(styles))
        policy = _POLICY.format(scripts=_hashes(body) if name.endswith(".html") else "", styles=allowed)
        # The build puts a digest into the names of scripts and styles.
        lasting = re.search(r"\.[0-9a-f]{8}\.min\.\w+$", name) is not None
        packed(body)
        return static_file(body, name, policy, lasting=lasting)


def _hashes(page: bytes) -> str:
    """Return the hashes of a page's inline scripts, in the form in which a content security policy allows them."""
    digests = {b64encode(sha256(script).digest()).decode() for script in _INLINE.findall(page)}
    return "".join(f" 'sha256-{digest}'" for digest in sorted(digests))
