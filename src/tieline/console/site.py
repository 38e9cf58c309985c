"""The web console's page: serves the built files from memory. HTTP headers allow a browser to run only these files.

Used by: the hub's HTTP port. Uses: `static/`, which the build of `web/` writes. The page gets all its data through the
hub's own protocol, as any other client does. So this module need not check permissions.
"""

import gzip
import mimetypes
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from msgspec import Struct
from starlette.types import Receive, Scope, Send

from tieline.wire.http import Answer, header, respond

STATIC = Path(__file__).parent / "static"
"""Folder into which `make console` builds the files of the web console."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy of the web console: browsers run only the console's own scripts. They load no pictures from
other sites, and show the console in no frame of another page."""

_SECURITY = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_UNBUILT = b"""<!doctype html><html lang="en"><title>Tieline</title>
<p>This hub runs from a source tree whose console was not built yet. Build it with <code>make console</code>, then start
the hub again.</p></html>"""
_INDEX = "index.html"
_GZIP_LEVEL = 9


class _File(Struct, frozen=True):
    """One file of the web console, in memory."""

    body: bytes
    media_type: bytes
    tag: bytes
    lasting: bool
    """True if the file's name changes with its content, so that a browser may cache it for ever."""


class Site:
    """HTTP application that serves the web console: its page and the files of the page."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._files: dict[str, _File] = {}
        for path in sorted(folder.glob("**/*")) if folder.is_dir() else ():
            if path.is_file():
                name = path.relative_to(folder).as_posix()
                self._files[f"/{name}"] = _file(path.read_bytes(), path.name, lasting=name.startswith("assets/"))
        # The page is served at `/` only, not under its file name.
        self._files["/"] = self._files.pop(f"/{_INDEX}", _file(_UNBUILT, _INDEX, lasting=False))

    def serves(self, scope: Scope) -> bool:
        """Return true if the request is for the web console's page or one of its files."""
        return scope["type"] == "http" and scope["method"] in {"GET", "HEAD"} and scope["path"] in self._files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the requested file of the web console, or status 304 if the browser has the file in its cache."""
        file = self._files[scope["path"]]
        kept = b"public, max-age=31536000, immutable" if file.lasting else b"no-cache"
        headers = [(b"cache-control", kept), (b"etag", file.tag), (b"vary", b"accept-encoding"), *_SECURITY]
        if (header(scope, b"if-none-match") or "").encode() == file.tag:
            await respond(send, Answer(304, b"", file.media_type, headers=tuple(headers)))
            return
        body = file.body
        if "gzip" in (header(scope, b"accept-encoding") or ""):
            body = _packed(body)
            headers.append((b"content-encoding", b"gzip"))
        await respond(send, Answer(200, body, file.media_type, headers=tuple(headers)))

    def close(self) -> None:
        """Do nothing, because this application has no open streams that must end."""


def _file(body: bytes, name: str, *, lasting: bool) -> _File:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    media_type = f"{kind}; charset=utf-8" if kind.startswith("text/") or kind.endswith("javascript") else kind
    return _File(body, media_type.encode(), f'"{sha256(body).hexdigest()[:32]}"'.encode(), lasting)


@lru_cache(maxsize=16)  # more than the page has files
def _packed(body: bytes) -> bytes:
    """Return the content of a file, compressed with gzip.

    A file is compressed at its first request, so that the hub starts faster.
    """
    return gzip.compress(body, _GZIP_LEVEL, mtime=0)
