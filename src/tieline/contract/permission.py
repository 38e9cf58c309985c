"""Permissions for actions other than sending messages. They are plain strings, so a hub can store unknown ones."""

TEAM_MANAGE = "team.manage"
MEMBERS_MANAGE = "members.manage"
OBJECTIVES_CREATE = "objectives.create"
OBJECTIVES_CANCEL = "objectives.cancel"
OBJECTIVES_REASSIGN = "objectives.reassign"
OBJECTIVES_WATCH = "objectives.watch"
ACTIVITY_READ = "activity.read"

TEAM_PERMISSIONS = (
    TEAM_MANAGE,
    MEMBERS_MANAGE,
    OBJECTIVES_CREATE,
    OBJECTIVES_CANCEL,
    OBJECTIVES_REASSIGN,
    OBJECTIVES_WATCH,
    ACTIVITY_READ,
)
"""The seven permissions that every wire with permissions knows."""

LOG_READ = "log.read"
"""Permission of this hub: read the whole main log and activity log."""

OWNER_PERMISSIONS = (*TEAM_PERMISSIONS, LOG_READ)
"""Permissions of the person who runs a hub, given by the link of its first start or by `tieline login`."""

MESSAGES_SHADOW = "messages.shadow"
"""Permission of this hub: read (shadow) the messages from and to other members, even those that have a token."""

KNOWN = frozenset((*TEAM_PERMISSIONS, LOG_READ, MESSAGES_SHADOW))
"""All permissions that this hub knows. No preset has the name of one of them."""
