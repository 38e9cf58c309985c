"""Permissions: what a member may do beyond speaking. They are words, so that a newer hub's are carried by an older."""

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
"""The seven that every wire with permissions knows."""

LOG_READ = "log.read"
"""The hub's own: reading its logs whole."""

OWNER_PERMISSIONS = (*TEAM_PERMISSIONS, LOG_READ)
"""What the person who runs a hub may do, by the link of its first start or by `tieline login`."""

MESSAGES_SHADOW = "messages.shadow"
"""The hub's own: being shown what a member says and hears that a token protects."""
