"""Tests of the OpenAPI document: it names every route, and the relay's answers follow it for any request."""

import json
import urllib.request
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
from tests.protocols.backchannel.relays import request
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import load_config

EXAMPLES = 40
"""Number of generated requests of each kind for each route. A request takes a few milliseconds."""

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
Case = schemathesis.Case[Any]
STREAMED = "/v1/events/{agent}"
"""Route of an endless stream. Its answer cannot be checked like others; only its refusals are checked here."""


@pytest.fixture
def hub() -> Iterator[HubProcess]:
    with HubProcess("--store", "memory") as process:
        yield process


def document(hub: HubProcess) -> Any:
    """Return the OpenAPI document, as the relay serves it without a token."""
    with urllib.request.urlopen(f"{hub.running.http}/v1/openapi.json", timeout=10) as response:
        return json.load(response)


@pytest.mark.slow
def test_the_document_is_whole_json_with_every_reference_inside_it(hub: HubProcess) -> None:
    described = document(hub)
    text = json.dumps(described)
    assert described["openapi"] == "3.1.0"
    for reference in {part.partition('"')[0] for part in text.split('"$ref": "#/')[1:]}:
        node = described
        for step in reference.split("/"):
            node = node[step]
        assert node


def register(hub: HubProcess, name: str) -> str:
    """Register an agent. Return its token."""
    room = load_config(hub.home).of(BackchannelSettings).room_token
    body = json.dumps({"name": name}).encode()
    reply = request(hub.running.http, "POST", "/v1/register", body, {"authorization": f"Bearer {room}"})
    assert reply.status == 200, reply
    token: str = reply.value["token"]
    return token


@pytest.mark.slow
def test_the_relay_serves_the_document_to_anybody_and_every_route_in_it(hub: HubProcess) -> None:
    url = hub.running.http
    shown = {"authorization": f"Bearer {register(hub, 'alice')}"}
    for path, operations in document(hub)["paths"].items():
        if path != STREAMED:
            for method in operations:
                body = b"{}" if method == "post" else None
                assert request(url, method.upper(), path.format(agent="alice"), body, shown).status != 404, path


class Sender:
    """Test client: sends requests that hypothesis generates from the document, and checks the answers against it."""

    def __init__(self, hub: HubProcess, session: requests.Session) -> None:
        self._url = hub.running.http
        self._session = session
        self._room = load_config(hub.home).of(BackchannelSettings).room_token
        self._token = register(hub, "alice")
        register(hub, "bob")
        # Statuses that each route answered.
        self.statuses: dict[str, set[int]] = {}
        self._count = 0

    def send(self, case: Case) -> None:
        """Send one request. Every second request has existing identifiers instead of random ones."""
        self._count += 1
        token = self._token
        if self._count % 2:
            match case.path, case.body:
                case "/v1/send", dict(body):
                    case.body = {**body, "to": "@bob"}
                case (("/v1/subscribe" | "/v1/unsubscribe"), dict(body)):
                    case.body = {**body, "channel": "#dev"}
                case "/v1/register", _:
                    token = self._room
                case "/v1/inbox/{agent}", _:
                    case.path_parameters = {"agent": "alice"}
                case _:
                    pass
        shown = {"authorization": f"Bearer {token}"}
        response = case.call(base_url=self._url, session=self._session, headers=shown, timeout=10)
        case.validate_response(response, checks=CHECKS)
        self.statuses.setdefault(case.path, set()).add(response.status_code)


def send_all(operation: Any, mode: GenerationMode, sender: Sender) -> None:
    """Generate many requests to one route, and send them with `sender`."""

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
        sender.send(case)

    send()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # schemathesis and what it uses warn about themselves
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
def test_whatever_is_sent_is_answered_as_the_document_says(hub: HubProcess, mode: GenerationMode) -> None:
    with requests.Session() as session:
        sender = Sender(hub, session)
        for found in schemathesis.openapi.from_dict(document(hub)).get_all_operations():
            assert isinstance(found, Ok), found
            operation = found.ok()
            if operation.path != STREAMED and (operation.body or mode is GenerationMode.POSITIVE):
                send_all(operation, mode, sender)
    expected = 200 if mode is GenerationMode.POSITIVE else 400
    for path in ("/v1/register", "/v1/send", "/v1/take", "/v1/subscribe", "/v1/unsubscribe"):
        assert expected in sender.statuses[path], (path, sender.statuses[path])
    assert hub.stop() == 0
    assert hub.stderr == "", "nothing that was sent is a line in the log"
