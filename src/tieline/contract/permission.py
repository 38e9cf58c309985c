"""Permissions for actions other than sending messages. They are plain strings, so a hub can also store unknown ones."""

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
"""The seven permissions that every protocol with permissions knows."""

LOG_READ = "log.read"
"""Permission to read the whole main log and the whole activity log. Only Tieline has this permission."""

INSIGHTS_WRITE = "insights.write"
"""Permission to store the pipeline's report for the console, together with `log.read`. Only Tieline has this
permission."""

OWNER_PERMISSIONS = (*TEAM_PERMISSIONS, LOG_READ)
"""Permissions of the person who runs the hub. That person gets them at the hub's first start, or by `tieline login`."""

MESSAGES_SHADOW = "messages.shadow"
"""Permission to read (shadow) the messages from and to any other member. Only Tieline has this permission."""

KNOWN = frozenset((*TEAM_PERMISSIONS, LOG_READ, INSIGHTS_WRITE, MESSAGES_SHADOW))
"""All permissions that this hub knows. No preset may have the same name as one of them."""
