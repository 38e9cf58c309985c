"""The web console's page: serves the built files from memory. HTTP headers allow a browser to run only these files.

Used by: the hub's HTTP port. Uses: `static/`, which the build of `web/` writes, and the documentation, which stands
beside the page at `/docs`. The page gets all its data through the hub's own protocol, as any other client does. So this
module need not check permissions.
"""

from pathlib import Path

from starlette.types import Receive, Scope, Send

from tieline.console.documentation import BUILT, Documentation
from tieline.console.report_page import PAGE, STATIC
from tieline.console.static_file import StaticFile, static_file

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy of the web console: browsers run only the console's own scripts. They load no pictures from
other sites, and show the console in no frame of another page."""

_UNBUILT = b"""<!doctype html><html lang="en"><title>Tieline</title>
<p>This hub runs from a source tree whose console was not built yet. Build it with <code>make console</code>, then start
the hub again.</p></html>"""
_INDEX = "index.html"


class Site:
    """HTTP application that serves the web console, its page and the files of the page, and the documentation."""

    def __init__(self, folder: Path = STATIC, documentation: Path = BUILT) -> None:
        self._documentation = Documentation(documentation)
        self._files: dict[str, StaticFile] = {}
        for path in sorted(folder.glob("**/*")) if folder.is_dir() else ():
            # The page of a report is a file for the command line: it is not served.
            if path.is_file() and path.name != PAGE:
                name = path.relative_to(folder).as_posix()
                lasting = name.startswith("assets/")
                self._files[f"/{name}"] = static_file(path.read_bytes(), path.name, POLICY, lasting=lasting)
        # The page is served at `/` only, not under its file name.
        unbuilt = static_file(_UNBUILT, _INDEX, POLICY, lasting=False)
        self._files["/"] = self._files.pop(f"/{_INDEX}", unbuilt)

    def serves(self, scope: Scope) -> bool:
        """Return true if the request is for the web console's page, one of its files, or the documentation."""
        if self._documentation.serves(scope):
            return True
        return scope["type"] == "http" and scope["method"] in {"GET", "HEAD"} and scope["path"] in self._files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the requested file of the web console or of the documentation."""
        file = self._files.get(scope["path"])
        if file is None:
            await self._documentation(scope, receive, send)
        else:
            await file.send(scope, send)

    def close(self) -> None:
        """Do nothing, because this application has no open streams that must end."""
