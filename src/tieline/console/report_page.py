"""The page of a report: the console's Insights in one HTML file, with the report inside. It needs no server.

Used by: `tieline pipeline report --html`. Uses: `static/report.html`, which the build of `web/` writes. The page has
its script and style inside. Its content security policy allows only these two, by their hashes, and no request. Names
in a report come from agents: the script draws them as text.
"""

from pathlib import Path

STATIC = Path(__file__).parent / "static"
"""Folder into which `make console` builds the files of the web console."""
PAGE = "report.html"
_PLACE = b">REPORT</script>"
# Neither can end the element of the report, nor begin a comment in it.
_ESCAPED = {b"<": b"\\u003c", b">": b"\\u003e", b"&": b"\\u0026"}


def report_page(report: bytes, folder: Path = STATIC) -> bytes | None:
    """Return the HTML page with a report, which is JSON. Return `None` if the console was not built."""
    try:
        page = (folder / PAGE).read_bytes()
    except FileNotFoundError:
        return None
    for sign, escape in _ESCAPED.items():
        report = report.replace(sign, escape)
    return page.replace(_PLACE, b">" + report + b"</script>", 1)
