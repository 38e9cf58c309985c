"""Stores the pipeline's report in the hub, where the console shows it, wherever the lake (the tables) is.

Used by: `tieline pipeline run`, after its batches. Uses: the file in a hub's home, or `PUT /api/insights` of a hub at a
URL, which needs the permissions `log.read` and `insights.write`.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tieline.pipeline.http_log import HttpLog, LogRefused, LogUnreachable
from tieline.wire.insights import PATH, StoredReport
from tieline.wire.report_parts import Report


def store_report(report: Report, where: Mapping[str, str]) -> str:
    """Store a report in the hub of a log. Return the reason if it was not stored, otherwise an empty text.

    `where` are the source's options: the hub's home, or its URL and a token. The tables do not depend on the report, so
    a failure raises no error.
    """
    body = msgspec.json.encode(report)
    try:
        if "url" in where:
            HttpLog(where["url"], where["token"]).put(PATH, body)
            return ""
        rejected = StoredReport(Path(where["home"])).put(body)
    except (LogRefused, LogUnreachable) as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or where.get('home', '')}: {error.strerror or error}"
    return rejected.text if rejected is not None else ""
