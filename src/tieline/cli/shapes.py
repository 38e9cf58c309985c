"""The types of the documents that commands print with `--json`, and a JSON Schema of all of them.

Used by: the documentation, which publishes the schema, and a test, which compares it with what commands print. Uses:
the types that commands print, and the extensions of the protocols for their commands.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tieline.agents.digest import Digest
from tieline.cli import documents as d
from tieline.cli import service, status
from tieline.cli.backup_file import MadeBackup
from tieline.cli.cluster import ClusterStatus
from tieline.cli.demo.outcome import Outcome
from tieline.cli.doctor import examination
from tieline.cli.extension import extensions
from tieline.cli.store_copy import Copied
from tieline.client import (
    ChannelView,
    Item,
    MemberFile,
    MemberView,
    Message,
    ObjectiveView,
    Reach,
    ReceiptView,
    TokenView,
)
from tieline.core.checkpoints import Checkpoint
from tieline.wire.native.derived import PauseView
from tieline.wire.report_parts import Report

_ITEMS = tuple[Item, ...]
_MEMBERS = tuple[MemberView, ...]
_MESSAGES = tuple[Message, ...]
_OWN: Mapping[str, Mapping[str, Any]] = {
    "send": {"": d.Sent},
    "reply": {"": d.Sent},
    "inbox": {"": _ITEMS, "with --digest": Digest},
    "take": {"": Item},
    "drain": {"": _ITEMS},
    "discard": {"": _ITEMS},
    "watch": {"each line": d.Arrived},
    "receipts": {"": tuple[ReceiptView, ...]},
    "history": {"": _MESSAGES},
    "search": {"": _MESSAGES},
    "redact": {"": d.Erased},
    "connect": {"": d.Connected},
    "disconnect": {"": d.DisconnectedProgram},
    "members": {"": _MEMBERS},
    "whoami": {"": d.Speaker},
    "channels": {"": tuple[ChannelView, ...]},
    "sub": {"": d.Subscription},
    "unsub": {"": d.Subscription},
    "pause": {"": PauseView | None, "without CONVERSATION": tuple[PauseView, ...]},
    "resume": {"": d.Resumed},
    "allow": {"": d.Allowed},
    "status": {"": status.Status},
    "login": {"": d.LoginLink},
    "logs": {"each line": dict[str, Any]},
    "doctor": {"": examination()},
    "backup": {"": MadeBackup},
    "restore": {"": d.RestoredHome},
    "store copy": {"": Copied},
    "cluster status": {"": ClusterStatus},
    "cluster promote": {"": ClusterStatus},
    "demo": {"": Outcome},
    "member add": {"": d.NewToken},
    "member list": {"": _MEMBERS},
    "member remove": {"": d.RemovedMember},
    "member rotate": {"": d.NewToken},
    "member tokens": {"": tuple[TokenView, ...]},
    "member kind": {"": MemberFile},
    "member alias": {"": tuple[str, ...]},
    "member reach": {"": Reach},
    **{
        f"objectives {verb}": {"": ObjectiveView}
        for verb in ("create", "block", "unblock", "complete", "cancel", "reassign", "watch", "unwatch")
    },
    "objectives list": {"": tuple[ObjectiveView, ...]},
    "objectives view": {"": d.ObjectiveHistory},
    "objectives discuss": {"": d.Sent},
    "service status": {"": service.State},
    "config show": {"": d.ShownSettings},
    "audit verify": {"": d.AuditVerdict},
    "audit checkpoint": {"": Checkpoint},
    "log readers": {"": d.LogReaders},
    "pipeline run": {"": d.PipelineRun},
    "pipeline status": {"": d.LakeState},
    "pipeline sql": {"": list[dict[str, Any]]},
    "pipeline rebuild": {"": d.RebuiltTable, "with --all": d.RebuiltTables},
    "pipeline rewind": {"": d.Rewound},
    "pipeline report": {"": Report},
    "pipeline verify": {"": d.LogVerdict},
    "pipeline tables": {"": list[d.TableState]},
}


def shapes() -> dict[str, dict[str, Any]]:
    """Return the types of the JSON documents that each command can print.

    The keys are the command's words without `tieline`, such as `member add`, and then the name of the case. A command
    prints one document. Its type depends on the case, for example on another option. The usual case has an empty name.
    """
    found = {path: dict(cases) for path, cases in _OWN.items()}
    for extension in extensions():
        for path, cases in extension.documents().items():
            found.setdefault(path, {}).update(cases)
    return found


def schema() -> dict[str, Any]:
    """Return a JSON Schema of all types, with a definition for each command, such as `tieline-member-add`.

    The schema allows unknown fields, because later versions add some.
    """
    every = shapes()
    kinds = [kind for cases in every.values() for kind in cases.values()]
    references, types = msgspec.json.schema_components([*kinds, d.Failed], ref_template="#/$defs/{name}")
    left = iter(references)
    commands = {
        f"tieline-{path.replace(' ', '-')}": {
            "title": f"tieline {path} --json",
            "anyOf": [{**next(left), **({"description": case} if case else {})} for case in cases],
        }
        for path, cases in every.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The documents that the commands of tieline print with --json",
        "$defs": {**commands, **types},
    }
