"""The test of the protocols (`--canary`): sends a message in each direction, between two temporary members.

Used by: `doctor --canary`. Uses: the SDK at one end, a puppet (a small client of the protocol) at the other end. The
test proves that messages are delivered. No check of files can prove this. Each member that the command names gets one
status message, which asks for nothing and expires after a minute.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from tieline.cli.canary import DOCTOR_TEXT
from tieline.cli.doctor_finding import DoctorFinding, note, well, wrong
from tieline.cli.session import Link
from tieline.client import Client, HubError, HubRefused, connect
from tieline.contract.message import Kind
from tieline.contract.refusal import Code
from tieline.protocols import protocols
from tieline.server.config import load_config
from tieline.wire.puppet import NotSpoken, Place, Puppet

if TYPE_CHECKING:
    from tieline.wire.home import Running

_WAIT_SECONDS = 5.0  # a hub that works delivers in milliseconds, also under load
_POLL_SECONDS = 0.02  # short beside the wait
_NEWS_MS = 60_000  # nobody needs the canary's messages later
_RUNGS = ("offered", "seen", "acked")


class RoundTrip(Struct, frozen=True, omit_defaults=True):
    """Result of the test of one protocol: the time of a message in each direction, or the problem."""

    protocol: str
    there_ms: float | None = None
    back_ms: float | None = None
    problem: str = ""
    spoken: bool = True


async def canary(home: Path, running: "Running", names: Sequence[str]) -> tuple[list[RoundTrip], list[DoctorFinding]]:
    """Test every protocol of a running hub by messages, and check that messages reach the members `names`.

    Return the result for each protocol, and the findings.
    """
    async with await Link(home=home).open_operator() as operator, _pair(operator) as (doctor, bird):
        settings = load_config(home).protocols
        puppets = [each.puppet()(Place.at(running, *bird, settings[each.name])) for each in protocols()]
        async with await connect(home=home, token=doctor[1], receive=True) as client:
            trips = [await _try(client, doctor[0], puppet) for puppet in puppets]
            reached = [await _reach(client, operator, name) for name in names]
    return trips, [*map(_finding, trips), *reached]


@contextlib.asynccontextmanager
async def _pair(operator: Client) -> AsyncIterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Create two temporary members for the test, and yield the name and the token of each.

    Remove both members afterwards.
    """
    mark = secrets.token_hex(4)
    async with _made(operator, f"doctor-{mark}") as doctor, _made(operator, f"canary-{mark}") as bird:
        yield doctor, bird


@contextlib.asynccontextmanager
async def _made(operator: Client, name: str) -> AsyncIterator[tuple[str, str]]:
    issued = await operator.add_member(name)
    try:
        yield name, issued.token
    finally:
        await operator.remove_member(name)


async def _try(doctor: Client, name: str, puppet: Puppet) -> RoundTrip:
    try:
        async with asyncio.timeout(2 * _WAIT_SECONDS):
            await puppet.open()
            try:
                # The first round trip includes the delays of a new connection, so the second one is measured.
                await _round_trip(doctor, name, puppet, "first")
                return await _round_trip(doctor, name, puppet, "then")
            finally:
                await puppet.close()
    except NotSpoken as error:
        return RoundTrip(puppet.protocol, problem=f"the hub does not speak {error}", spoken=False)
    except TimeoutError:
        return RoundTrip(puppet.protocol, problem=f"nothing came within {2 * _WAIT_SECONDS:.0f} s")
    except Exception as error:  # noqa: BLE001 - whatever a client raises, the person who asked is told
        return RoundTrip(puppet.protocol, problem=f"{type(error).__name__}: {error}")


async def _round_trip(doctor: Client, name: str, puppet: Puppet, mark: str) -> RoundTrip:
    there, back = f"{mark}: there by {puppet.protocol}", f"{mark}: back by {puppet.protocol}"
    began = time.perf_counter()
    await doctor.send(f"@{puppet.place.name}", there, kind=Kind.STATUS, ttl_ms=_NEWS_MS)
    while (heard := await puppet.hear()).body != there:
        await puppet.acknowledge(heard)
    arrived = time.perf_counter()
    await puppet.acknowledge(heard)
    answered = time.perf_counter()
    await puppet.say(f"@{name}", back)
    async for delivery in doctor:
        doctor.ack(delivery)
        if delivery.message.body == back:
            break
    return RoundTrip(puppet.protocol, _ms(arrived - began), _ms(time.perf_counter() - answered))


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _finding(trip: RoundTrip) -> DoctorFinding:
    if not trip.spoken:
        return note("canary", f"{trip.protocol}: {trip.problem}")
    if trip.problem:
        why = "agents that use this protocol get no messages"
        do = "look at the hub's logs; 'tieline doctor' without --canary checks its home"
        return wrong("canary", f"{trip.protocol}: {trip.problem}", why, do)
    return well("canary", f"{trip.protocol}: there in {trip.there_ms} ms, back in {trip.back_ms} ms")


async def _reach(doctor: Client, operator: Client, name: str) -> DoctorFinding:
    """Send a status message to the member `name`, and return a finding with the state that its delivery reaches.

    `doctor` sends the message, and `operator` reads the receipts.
    """
    try:
        sent = await doctor.send(f"@{name}", DOCTOR_TEXT, kind=Kind.STATUS, ttl_ms=_NEWS_MS)
        state, step = "pending", None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_SECONDS):
                while state not in _RUNGS:
                    (receipt,) = await operator.receipts(sent.id)
                    state, step = receipt.state, receipt.steps[-1]
                    await asyncio.sleep(_POLL_SECONDS)
    except HubRefused as refused:
        do = "tieline members" if refused.code is Code.UNKNOWN_MEMBER else "tieline doctor"
        return wrong("canary", f"{name}: {refused.message}", "messages to it are refused", do)
    except HubError as error:
        return wrong("canary", f"{name}: {error}", "the hub went away meanwhile", "tieline doctor")
    if state in _RUNGS and step is not None:
        return well("canary", f"{name} is reached by {step.protocol}: {state}")
    why = "messages to it wait until its agent comes back"
    what = f"{name} is not reached within {_WAIT_SECONDS:.0f} s: the message is {state}"
    return wrong("canary", what, why, f"start its agent, for example 'tieline watch --as {name}'")
