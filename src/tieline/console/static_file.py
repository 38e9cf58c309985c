"""A file that the hub serves as it is: its content, its type, and the headers for a browser's cache.

Used by: the console's page and the documentation. A file is compressed at its first request, so that the hub starts
faster.
"""

import gzip
import mimetypes
from functools import lru_cache
from hashlib import sha256

from msgspec import Struct
from starlette.types import Scope, Send

from tieline.wire.http import Answer, header, respond

_GZIP_LEVEL = 9
_SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class StaticFile(Struct, frozen=True):
    """One file that the hub serves, in memory, with its media type and the headers for a browser's cache."""

    body: bytes
    media_type: bytes
    tag: bytes
    policy: bytes
    """Content security policy, which a browser applies if the file is a page."""
    lasting: bool
    """True if the file's name changes with its content, so that a browser may cache it for ever."""

    async def send(self, scope: Scope, send: Send) -> None:
        """Answer a request with this file, or with status 304 if the browser has the file in its cache."""
        kept = b"public, max-age=31536000, immutable" if self.lasting else b"no-cache"
        headers = [
            (b"cache-control", kept),
            (b"etag", self.tag),
            (b"vary", b"accept-encoding"),
            (b"content-security-policy", self.policy),
            *_SECURITY,
        ]
        if (header(scope, b"if-none-match") or "").encode() == self.tag:
            await respond(send, Answer(304, b"", self.media_type, headers=tuple(headers)))
            return
        body = self.body
        if "gzip" in (header(scope, b"accept-encoding") or ""):
            body = packed(body)
            headers.append((b"content-encoding", b"gzip"))
        await respond(send, Answer(200, body, self.media_type, headers=tuple(headers)))


def static_file(body: bytes, name: str, policy: str, *, lasting: bool) -> StaticFile:
    """Return a file with this content. Its name decides its media type. `policy` is its content security policy.

    With `lasting`, a browser may cache the file for ever.
    """
    # Not every system has a list of types, and only the longer of Python's own two lists has the pictures' type.
    kind = mimetypes.guess_type(name, strict=False)[0] or "application/octet-stream"
    media_type = f"{kind}; charset=utf-8" if kind.startswith("text/") or kind.endswith("javascript") else kind
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    return StaticFile(body, media_type.encode(), tag.encode(), policy.encode(), lasting)


@lru_cache(maxsize=512)  # more than the console and the documentation have files: compressing again would delay others
def packed(body: bytes) -> bytes:
    """Return the content of a file, compressed with gzip."""
    return gzip.compress(body, _GZIP_LEVEL, mtime=0)
