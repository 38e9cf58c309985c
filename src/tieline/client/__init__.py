"""The Python SDK: speak with a hub through its own protocol.

async with await connect(member="alice") as client:
    accepted = await client.send("@bob", "hello")

async with await connect(member="bob", receive=True) as client:
    async for delivery in client:
        print(delivery.message.sender, delivery.message.body)
        client.ack(delivery)
"""

from tieline.client.client import Client, Delivery, connect
from tieline.client.errors import Disconnected, HubError, HubRefused, HubUnreachable
from tieline.wire.native.frames import (
    Accepted,
    ChannelView,
    Inbox,
    Issued,
    Item,
    LogRowView,
    MemberView,
    Message,
    Progress,
    ReceiptView,
    StepView,
)

__all__ = [
    "Accepted",
    "ChannelView",
    "Client",
    "Delivery",
    "Disconnected",
    "HubError",
    "HubRefused",
    "HubUnreachable",
    "Inbox",
    "Issued",
    "Item",
    "LogRowView",
    "MemberView",
    "Message",
    "Progress",
    "ReceiptView",
    "StepView",
    "connect",
]
