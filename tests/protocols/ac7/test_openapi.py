"""The OpenAPI document: whatever is sent, the answer is one that the document has."""

import json
from collections.abc import Iterator
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
from tests.protocols.ac7.teams import request
from tieline.contract.permission import TEAM_PERMISSIONS
from tieline.protocols.ac7.server import DOCUMENT_PATH, SUBSCRIBE_PATH

EXAMPLES = 15
"""Of each kind for each route; there are three dozen routes."""
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
Case = schemathesis.Case[Any]


@pytest.fixture
def hub() -> Iterator[HubProcess]:
    with HubProcess("--store", "memory") as process:
        yield process


def send_all(operation: Any, mode: GenerationMode, url: str, token: str, session: requests.Session) -> set[int]:
    """Send many requests to one route; returns the statuses."""
    statuses: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Case) -> None:
        if "name" in (case.path_parameters or {}) and case.path_parameters["name"] == "boss":
            return
        shown = {"authorization": f"Bearer {token}"}
        response = case.call(base_url=url, session=session, headers=shown, timeout=10)
        case.validate_response(response, checks=CHECKS)
        statuses.add(response.status_code)

    send()
    return statuses


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # schemathesis and what it uses warn about themselves
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
def test_whatever_is_sent_is_answered_as_the_document_says(hub: HubProcess, mode: GenerationMode) -> None:
    given_permissions = [part for word in TEAM_PERMISSIONS for part in ("--permission", word)]
    added = hub.cli("member", "add", "boss", *given_permissions, "--json")
    token = json.loads(added.stdout)["token"]
    described = request(hub.running.http, "GET", DOCUMENT_PATH, None, {}).value
    seen: dict[str, set[int]] = {}
    with requests.Session() as session:
        for found in schemathesis.openapi.from_dict(described).get_all_operations():
            assert isinstance(found, Ok), found
            operation = found.ok()
            if operation.path != SUBSCRIBE_PATH and (operation.body or mode is GenerationMode.POSITIVE):
                statuses = send_all(operation, mode, hub.running.http, token, session)
                seen[f"{operation.method} {operation.path}"] = statuses
    assert len(seen) > 10
    assert hub.stop() == 0
    assert hub.stderr == "", "nothing that was sent is a line in the log"
