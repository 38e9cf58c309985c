"""backchannel: messages as files in a Maildir spool, and the same spool over HTTP.

Above: the command line, which works on a spool without any hub, and the hub's server. Below: `contract`. PROTOCOL.md
has the layout, its guarantees and our deviations.

`message` and `record` are JSON and values; `spool` is the folder; `claims` is taking from it; `arrivals` is watching
it; `upkeep` finds what killed processes left there; `identity` is who speaks from it; `adoption` joins it to a hub.
"""

from tieline.protocols.backchannel.arrivals import Arrivals
from tieline.protocols.backchannel.claims import Claims
from tieline.protocols.backchannel.message import BadMessage, Message
from tieline.protocols.backchannel.record import AgentRecord, BadRecord
from tieline.protocols.backchannel.spool import Letter, Sent, Spool, SpoolBroken, SpoolError, SpoolRefused

__all__ = [
    "AgentRecord",
    "Arrivals",
    "BadMessage",
    "BadRecord",
    "Claims",
    "Letter",
    "Message",
    "Sent",
    "Spool",
    "SpoolBroken",
    "SpoolError",
    "SpoolRefused",
]
