"""Search: full text over messages, for what a member may see.

The broker decides what may be asked, which takes it no time, and defers the reply. The index makes it on a
thread of its own, over storage of its own that follows the log: a message pays nothing for being found later.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Reply
from tieline.core import reading
from tieline.core.inquiry import Inquiry, parse
from tieline.core.outcome import Deferred

if TYPE_CHECKING:
    from tieline.core.broker import Broker

_PLACE = ("@", "#", "chan:", "obj:")


def decide(broker: "Broker", command: c.Search) -> Reply | Deferred:
    """Decide whether a question may be asked; its answer comes from the index."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    account = session.account
    if account is None and not session.operator:
        return Refusal(Code.FORBIDDEN, "searching is for members")
    terms = parse(command.query)
    if isinstance(terms, Refusal):
        return terms
    place = command.place
    named = place is not None and place.startswith(_PLACE)
    peer = place.removeprefix("@") if place is not None and named else None
    chronicle = reading.view_of(broker, account, peer, command.limit)
    inquiry = Inquiry(
        chronicle=replace(chronicle, before=command.before),
        terms=terms,
        sender=command.sender,
        thread=None if named else place,
        from_ms=command.from_ms,
        to_ms=command.to_ms,
        protocol=session.protocol,
    )
    return Deferred(inquiry)
