"""The Python SDK: connects a program to a hub through the hub's own protocol.

async with await connect(member="alice") as client:
    accepted = await client.send("@bob", "hello")

async with await connect(member="bob", receive=True) as client:
    async for delivery in client:
        print(delivery.message.sender, delivery.message.body)
        client.ack(delivery)
"""

from tieline.client.connection import connect
from tieline.contract.channel import Admit, Archive, Dismiss, Enter, Rename, Role
from tieline.contract.member import InvitationView, MemberKind, TokenView
from tieline.contract.message import Attachment, Kind, Level, Priority
from tieline.contract.objective import Block, Cancel, Complete, Reassign, Status, Unblock, Watch
from tieline.contract.reach import Leg, Reach, Way
from tieline.wire.native.client import Client, Delivery, Keyed
from tieline.wire.native.errors import Disconnected, HubError, HubRefused, HubUnreachable
from tieline.wire.native.frames import (
    Accepted,
    ActivityView,
    ChannelView,
    Did,
    Inbox,
    Invited,
    Issued,
    Item,
    Log,
    LogRowView,
    MemberFile,
    MemberView,
    Message,
    ObjectiveEventView,
    ObjectiveList,
    ObjectiveStory,
    ObjectiveView,
    PauseView,
    Progress,
    Readers,
    ReaderState,
    ReceiptView,
    Redaction,
    StepView,
    StuckList,
    TeamView,
    TokenIssued,
)

__all__ = [
    "Accepted",
    "ActivityView",
    "Admit",
    "Archive",
    "Attachment",
    "Block",
    "Cancel",
    "ChannelView",
    "Client",
    "Complete",
    "Delivery",
    "Did",
    "Disconnected",
    "Dismiss",
    "Enter",
    "HubError",
    "HubRefused",
    "HubUnreachable",
    "Inbox",
    "InvitationView",
    "Invited",
    "Issued",
    "Item",
    "Keyed",
    "Kind",
    "Leg",
    "Level",
    "Log",
    "LogRowView",
    "MemberFile",
    "MemberKind",
    "MemberView",
    "Message",
    "ObjectiveEventView",
    "ObjectiveList",
    "ObjectiveStory",
    "ObjectiveView",
    "PauseView",
    "Priority",
    "Progress",
    "Reach",
    "ReaderState",
    "Readers",
    "Reassign",
    "ReceiptView",
    "Redaction",
    "Rename",
    "Role",
    "Status",
    "StepView",
    "StuckList",
    "TeamView",
    "TokenIssued",
    "TokenView",
    "Unblock",
    "Watch",
    "Way",
    "connect",
]
