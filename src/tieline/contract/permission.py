"""Permissions for actions beyond speaking. They are words, so that an older hub can carry those of a newer one."""

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
"""The hub's own permission: read its logs whole."""

OWNER_PERMISSIONS = (*TEAM_PERMISSIONS, LOG_READ)
"""Permissions of the person who runs a hub, given by the link of its first start or by `tieline login`."""

MESSAGES_SHADOW = "messages.shadow"
"""The hub's own permission: read the messages from and to a member that a token protects."""
