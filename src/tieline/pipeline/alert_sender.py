"""Sends each alert (a problem found in a report) once, as a message to a member or channel of a hub.

Used by: `pipeline run --alerts`. Uses: the SDK. Each alert has its own wire id, so the hub recognises a repeated alert
and delivers it once. The ids of sent alerts are also stored in the lake, because a hub forgets wire ids when it deletes
their messages.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tieline.client import Client, HubRefused, connect
from tieline.contract.member import MemberKind
from tieline.contract.message import Level
from tieline.contract.refusal import Code
from tieline.pipeline.alerts import RECENT_MS, Alert
from tieline.pipeline.lake import Lake

SPEAKER = "pipeline"
"""Name of the member that sends the alerts, if no other is named. The member is created when it does not exist."""
_TITLE = "Pipeline alert"
_FILE = "_tieline/told.json"
_decoder = msgspec.json.Decoder(dict[str, int])


class SentAlerts:
    """Record of the alerts that were sent. It is stored in the lake, so that a later run sends none of them twice."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._told = self._read()

    def __contains__(self, alert: Alert) -> bool:
        return alert.id in self._told

    def add(self, alert: Alert) -> None:
        """Record an alert as sent. Also drop the records of alerts that are too old to be sent again."""
        self._told[alert.id] = alert.at_ms
        newest = max(self._told.values())
        self._told = {name: at_ms for name, at_ms in self._told.items() if at_ms > newest - 2 * RECENT_MS}
        self._lake.storage.write(_FILE, msgspec.json.encode(self._told))

    def _read(self) -> dict[str, int]:
        try:
            return _decoder.decode(self._lake.storage.read(_FILE) or b"{}")
        except msgspec.MsgspecError:
            # The hub also recognises repeated alerts, by their wire ids.
            return {}


async def open_client(home: Path | None, url: str | None, token: str | None, speaker: str | None) -> Client:
    """Open the session that sends alerts.

    With a URL or a token, the session belongs to the member `speaker`, or to the token's member. Otherwise it belongs
    to the local member `speaker`. Without a `speaker`, it belongs to the member `pipeline`, which is created if it does
    not exist.
    """
    if url is not None or token is not None:
        return await connect(url=url, home=home, token=token, member=speaker)
    try:
        return await connect(home=home, member=speaker or SPEAKER)
    except HubRefused as refused:
        if refused.code is not Code.UNKNOWN_MEMBER or speaker is not None:
            raise
    async with await connect(home=home) as operator:
        await operator.add_member(SPEAKER, kind=MemberKind.SCRIPT)
    return await connect(home=home, member=SPEAKER)


async def send_alerts(client: Client, target: str, alerts: Sequence[Alert], sent: SentAlerts) -> int:
    """Send the alerts that are not in `sent` to a target (`@member` or `#channel`). Return how many were sent."""
    count = 0
    for alert in alerts:
        if alert in sent:
            continue
        try:
            accepted = await client.send(
                target, alert.what, title=_TITLE, level=Level.WARNING, data={"alert": alert.kind}, wire_id=alert.id
            )
        except HubRefused as refused:
            # The alert was sent before with another text (by an older version) or to another target.
            if refused.code is not Code.WIRE_ID_REUSED:
                raise
        else:
            count += not accepted.duplicate
        sent.add(alert)
    return count
