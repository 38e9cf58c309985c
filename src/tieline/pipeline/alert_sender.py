"""The sender of alerts: tells members of a hub of each alert once.

Above: `pipeline run --alerts`. Below: the SDK. An alert's wire id is its own, so a hub that was told before says so and
tells nobody twice. What was told is also noted in the lake, because a hub forgets wire ids with their messages.
"""

import os
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
"""Who tells, if nobody else is named; it is made when it does not exist."""
_TITLE = "Pipeline alert"
_decoder = msgspec.json.Decoder(dict[str, int])


class SentAlerts:
    """The ids of alerts that were sent, in the lake."""

    def __init__(self, lake: Lake) -> None:
        self._path = lake.path / "_tieline" / "told.json"
        self._told = self._read()

    def __contains__(self, alert: Alert) -> bool:
        return alert.id in self._told

    def add(self, alert: Alert) -> None:
        """Note an alert, and forget those that cannot come again."""
        self._told[alert.id] = alert.at_ms
        newest = max(self._told.values())
        self._told = {name: at_ms for name, at_ms in self._told.items() if at_ms > newest - 2 * RECENT_MS}
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.write_bytes(msgspec.json.encode(self._told))
        temporary.replace(self._path)

    def _read(self) -> dict[str, int]:
        try:
            return _decoder.decode(self._path.read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError):
            # The hub knows as well.
            return {}


async def open_client(home: Path | None, url: str | None, token: str | None, speaker: str | None) -> Client:
    """A session that tells: of the token's member elsewhere, of a member of its own on the hub's machine."""
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
    """Send what was not told before; returns how many that were."""
    count = 0
    for alert in alerts:
        if alert in sent:
            continue
        try:
            accepted = await client.send(
                target, alert.what, title=_TITLE, level=Level.WARNING, data={"alert": alert.kind}, wire_id=alert.id
            )
        except HubRefused as refused:
            # Told before, in other words: by an older version, or to somebody else.
            if refused.code is not Code.WIRE_ID_REUSED:
                raise
        else:
            count += not accepted.duplicate
        sent.add(alert)
    return count
