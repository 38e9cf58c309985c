"""The pipeline as a reader of a hub's logs: tells its position to the hub, which keeps all later rows for it.

Used by: `tieline pipeline run`, after each commit. Uses: the SDK. A hub that does not run deletes nothing, so it does
not need the position.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tieline.client import Client, HubUnreachable, connect
from tieline.client.connection import MEMBER_VARIABLE, TOKEN_VARIABLE
from tieline.pipeline.lake import Commit, Lake

READER = "pipeline"


def reader_name(lake: Lake, where: Mapping[str, str]) -> str:
    """Return the name under which a lake reads the logs of a hub.

    It is `pipeline` for the lake in the hub's home. Other lakes have a suffix, so that each lake has its own name. If
    two lakes had the same name, the hub could delete rows that one of them has not read.
    """
    place = _place(str(lake))
    if "home" in where and place == _place(str(Path(where["home"]) / "lake")):
        return READER
    return f"{READER}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def _place(location: str) -> str:
    """Return the location of a lake in a standard spelling.

    A lake with two spellings would be two readers, and the hub would keep all rows for the reader that nobody uses.
    """
    if "://" not in location:
        return str(Path(location).resolve())
    scheme, _, rest = location.partition("://")
    host, *folders = rest.split("/")
    return f"{scheme.lower()}://{'/'.join([host.lower(), *filter(None, folders)])}"


async def tell_position(lake: Lake, where: Mapping[str, str], commit: Commit, *, rewind: bool = False) -> bool:
    """Report the position of a commit in each log to the hub. Return false if no hub runs in the home.

    `where` are the source's options: the hub's home or URL. With `rewind`, the position may be lower than the last one.
    """
    try:
        client = await _open(where)
    except HubUnreachable:
        if "url" in where:
            raise
        return False
    async with client:
        for log, position in commit.position.items():
            epoch = commit.epochs.get(log, "")
            await client.advance_reader(reader_name(lake, where), position, log=log, epoch=epoch, rewind=rewind)
    return True


async def _open(where: Mapping[str, str]) -> Client:
    if "url" in where:
        return await connect(url=where["url"], token=where["token"])
    with _without(MEMBER_VARIABLE, TOKEN_VARIABLE):
        # In a home its key makes an operator, who may do this; a member that the environment names may not.
        return await connect(home=Path(where["home"]))


@contextmanager
def _without(*names: str) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
