"""Tests of the OpenAPI document: for any request, the hub gives an answer that the document describes."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.cli.hub_process import HubProcess
from tests.protocols.ac7.teams import Json, request
from tests.protocols.ac7.test_activity_routes import exchange, http
from tieline.contract.permission import TEAM_PERMISSIONS
from tieline.protocols.ac7.server import DOCUMENT_PATH

EXAMPLES = {GenerationMode.POSITIVE: 8, GenerationMode.NEGATIVE: 5}
"""Number of generated valid and invalid requests for each route. There are about sixty routes."""
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
Case = schemathesis.Case[Any]

WORK = {"title": "t", "outcome": "o", "assignee": "boss"}
FILE = "/boss/known.txt"
SENSE: dict[str, Json] = {
    "POST /push": {"to": "ann", "data": {}, "attachments": [{"path": FILE}]},
    "POST /members/{name}/activity": {"events": [exchange(1), http(2)]},
    "POST /members": {"permissions": []},
    "PATCH /members/{name}": {"permissions": []},
    "POST /members/{name}/tokens": {"expiresAt": None},
    "POST /channels/{slug}/members": {"member": "ann"},
    "POST /objectives": {"assignee": "ann", "watchers": [], "attachments": [{"path": FILE}]},
    "PATCH /objectives/{id}": {"status": "blocked", "blockReason": "b"},
    "POST /objectives/{id}/reassign": {"to": "ann"},
    "POST /objectives/{id}/watchers": {"add": ["ann"], "remove": []},
    "POST /objectives/{id}/discuss": {"attachments": [{"path": FILE}]},
    "POST /fs/mkdir": {"path": "/boss/folder"},
    "POST /fs/mv": {"from": FILE, "to": FILE},
}
"""Fields with values that exist in the hub of this test. They replace random values in request bodies."""
UNREACHED = {"POST /session/totp", "POST /enroll/poll", "POST /enroll/approve", "POST /enroll/reject"}
"""Routes that never succeed in this test, because random requests do not contain a right code."""


class Stage:
    """Test helper: a hub with objects for every route."""

    def __init__(self, hub: HubProcess) -> None:
        self.url = hub.running.http
        permissions = [part for word in TEAM_PERMISSIONS for part in ("--permission", word)]
        self.token = json.loads(hub.cli("member", "add", "boss", *permissions, "--json").stdout)["token"]
        self.session = requests.Session()
        self.ask("POST", "/members", {"name": "ann", "role": {"title": "t"}})
        self.ask("POST", "/channels", {"slug": "dev"})
        self.ask("POST", f"/fs/write?path={FILE}", b"known")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        reply = request(self.url, method, path, data, {"authorization": f"Bearer {self.token}"})
        assert reply.status < 300, reply
        return reply.value if reply.text else None

    def known(self, method: str, path: str) -> dict[str, str]:
        """Return existing identifiers for the parameters of a path. Create the objects if necessary."""
        names = {"name": "ann", "slug": "dev", "path": FILE[1:], "id": ""}
        if path.startswith("/objectives/{id}"):
            names["id"] = self.ask("POST", "/objectives", WORK)["id"]
        elif path.endswith("/activity"):
            names["name"] = "boss"
        elif path.endswith("/tokens/{id}"):
            names["id"] = self.ask("POST", "/members/ann/tokens", {})["info"]["id"]
        elif method == "DELETE" and path == "/members/{name}":
            self.ask("POST", "/members", {"name": "gone", "role": {"title": "t"}})
            names["name"] = "gone"
        elif method in {"DELETE", "PATCH"} and path.startswith("/channels/{slug}"):
            names["slug"] = self.ask("POST", "/channels", {"slug": f"new-{method.lower()}-{path.count('/')}"})["id"]
            self.ask("POST", f"/channels/{names['slug']}/members", {"member": "ann"})
        elif path.startswith("/fs/"):
            self.ask("POST", f"/fs/write?path={FILE}&collide=overwrite", b"known")
        elif method == "DELETE" and path.startswith("/team/presets"):
            self.ask("PUT", "/team/presets/ann", {"permissions": []})
        return names


def make_sense(case: Case, key: str, names: dict[str, str]) -> None:
    """Replace the random identifiers of a generated request by existing ones. `key` is method and path of the route."""
    case.path_parameters = {name: names[name] for name in case.path_parameters or {}}
    query = {name: value for name, value in (case.query or {}).items() if name in {"limit", "recursive", "name"}}
    if key.partition(" ")[2].startswith("/fs/"):
        query["path"] = f"{FILE}.{key.count('w')}" if key.endswith("/write") else "/boss" if "/ls" in key else FILE
        query["collide"] = "overwrite"
    case.query = query
    if key in SENSE and isinstance(case.body, dict):
        case.body = {**case.body, **SENSE[key]}


def send_all(stage: Stage, operation: Any, mode: GenerationMode) -> set[int]:
    """Generate many requests to one route and send them. Return the statuses of the answers."""
    statuses: set[int] = set()
    key = f"{operation.method.upper()} {operation.path}"
    positive = mode is GenerationMode.POSITIVE
    names = stage.known(operation.method.upper(), operation.path) if positive else {}
    # Every second request makes sense, the first among them.
    number = count()

    @settings(
        max_examples=EXAMPLES[mode],
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Case) -> None:
        if positive and next(number) % 2 == 0:
            make_sense(case, key, names)
        elif "name" in (case.path_parameters or {}) and case.path_parameters["name"] == "boss":
            return
        shown = {"authorization": f"Bearer {stage.token}"}
        response = case.call(base_url=stage.url, session=stage.session, headers=shown, timeout=10)
        case.validate_response(response, checks=CHECKS)
        statuses.add(response.status_code)

    send()
    return statuses


@pytest.fixture
def hub() -> Iterator[HubProcess]:
    with HubProcess("--store", "memory") as process:
        yield process


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # schemathesis and what it uses warn about themselves
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
def test_whatever_is_sent_is_answered_as_the_document_says(hub: HubProcess, mode: GenerationMode) -> None:
    stage = Stage(hub)
    described = request(hub.running.http, "GET", DOCUMENT_PATH, None, {}).value
    seen: dict[str, set[int]] = {}
    for found in schemathesis.openapi.from_dict(described).get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        answers = described["paths"][operation.path][operation.method.lower()]["responses"]
        streams = "text/event-stream" in answers.get("200", {}).get("content", {})
        if not streams and (operation.body or mode is GenerationMode.POSITIVE):
            seen[f"{operation.method.upper()} {operation.path}"] = send_all(stage, operation, mode)
    assert len(seen) > 10
    if mode is GenerationMode.POSITIVE:
        assert {key for key, statuses in seen.items() if min(statuses) >= 400} <= UNREACHED
    stage.session.close()
    assert hub.stop() == 0
    assert hub.stderr == "", "nothing that was sent is a line in the log"
