"""Golden test of ac7: the tree of files, and files attached to messages."""

from hashlib import sha256
from pathlib import Path

from tests.golden.ac7 import ac7, seat
from tests.golden.recorder import Recorder
from tests.golden.web import Web

_BYTES = bytes(range(128, 144))


async def play(folder: Path, recorder: Recorder) -> None:
    """Write, read, attach and remove files, and record the conversation."""
    async with ac7(folder, recorder) as there:
        ann, ben = await seat(there, "ann", "objectives.create"), await seat(there, "ben")
        boss = await seat(there, "boss", "members.manage")
        recorder.section("a home")
        await _home(ann, ben, boss)
        recorder.section("attachments")
        await _attachments(ann, ben)
        recorder.section("what goes")
        await ben.ask("DELETE", "/fs/rm?path=/ann/plan.md")
        await ann.ask("DELETE", "/fs/rm?path=/ann/docs")
        await ann.ask("DELETE", "/fs/rm?path=/ann/docs&recursive=true")
        await ann.ask("DELETE", "/fs/rm?path=/ann/docs")
        await ben.ask("GET", "/fs/read/ann/plan.md")
        await ann.ask("DELETE", "/fs/rm?path=/ann/plan.md")
        await ben.ask("GET", "/fs/shared")


async def _home(ann: Web, ben: Web, boss: Web) -> None:
    text = b"# A plan\n"
    for known, name in ((text, "first"), (b"another\n", "second"), (b"# A new plan\n", "third"), (_BYTES, "bytes")):
        ann.stage.recorder.know(sha256(known).hexdigest(), f"sha256 of the {name}")
    await ann.ask("POST", "/fs/write?path=/ann/plan.md", text, content_type="text/markdown")
    await ann.ask("POST", "/fs/write?path=/ann/plan.md&mime=text/plain", text)
    await ann.ask("POST", "/fs/write?path=/ann/plan.md&collide=suffix&mime=text/plain", b"another\n")
    await ann.ask("POST", "/fs/write?path=/ann/plan.md&collide=overwrite&mime=text/markdown", b"# A new plan\n")
    await ann.ask("POST", "/fs/write?path=/ann/plan.md&collide=else", text)
    await ann.ask("POST", "/fs/write?path=/ann/bytes.bin&mime=application/octet-stream", _BYTES)
    await ann.ask("POST", "/fs/write", text)
    await ann.ask("POST", "/fs/write?path=/ann/../x", text)
    await ben.ask("POST", "/fs/write?path=/ann/x", text)
    await ann.ask("POST", "/fs/mkdir", {"path": "/ann/docs/deep", "recursive": True})
    await ann.ask("POST", "/fs/mkdir", {"path": "/ann/docs"})
    await ann.ask("POST", "/fs/mkdir", {"path": "/ann/no/such"})
    await ann.ask("POST", "/fs/mv", {"from": "/ann/bytes.bin", "to": "/ann/docs/bytes.bin"})
    await ann.ask("POST", "/fs/mv", {"from": "/ann/nowhere", "to": "/ann/x"})
    await ann.ask("POST", "/fs/mv", {"from": "/ann/plan.md", "to": "/ben/plan.md"})
    await ann.ask("GET", "/fs/ls?path=/ann")
    await ann.ask("GET", "/fs/ls?path=/")
    await ann.ask("GET", "/fs/ls?path=/ann/plan.md")
    await ben.ask("GET", "/fs/ls?path=/ann")
    await ann.ask("GET", "/fs/stat?path=/ann/plan.md")
    await ann.ask("GET", "/fs/stat?path=/ann/docs")
    await ann.ask("GET", "/fs/stat?path=/ann/nowhere")
    read = await ann.ask("GET", "/fs/read/ann/plan.md")
    await ann.ask("GET", "/fs/read/ann/plan.md", if_none_match=dict(read.headers).get("etag", "x"))
    await ann.ask("GET", "/fs/read/ann/docs/bytes.bin")
    await ann.ask("GET", "/fs/read/ann/docs")
    await ann.ask("GET", "/fs/read/ann/nowhere")
    await ben.ask("GET", "/fs/read/ann/plan.md")
    await boss.ask("GET", "/fs/all")
    await ben.ask("GET", "/fs/all")


async def _attachments(ann: Web, ben: Web) -> None:
    shown = [{"path": "/ann/plan.md", "name": "forged", "size": 1, "mimeType": "forged"}]
    await ann.ask("POST", "/push", {"to": "ben", "body": "look", "attachments": shown})
    await ben.ask("GET", "/history?limit=1")
    await ben.ask("GET", "/fs/shared")
    await ben.ask("GET", "/fs/read/ann/plan.md")
    await ben.ask("POST", "/push", {"body": "mine?", "attachments": [{"path": "/ann/docs/bytes.bin"}]})
    await ben.ask("POST", "/push", {"body": "where?", "attachments": [{"path": "/ben/nowhere"}]})
    work = {"title": "Read it", "outcome": "Read", "assignee": "ben", "attachments": [{"path": "/ann/docs/bytes.bin"}]}
    made = (await ann.ask("POST", "/objectives", work)).value
    await ben.ask("GET", f"/fs/read{made['attachments'][0]['path']}")
    await ben.ask("POST", f"/objectives/{made['id']}/discuss", {"body": "read", "attachments": shown})
