"""The changes of a group, and invitations to one.

Everything here is imported when it is first used.
"""

from __future__ import annotations

from pypmix.lazy import names as _names

_HOME = {
    "pypmix.group": "Change Destructed GroupEvent Joined LeaderFailed LeaderSelected Left MemberFailed Membership",
    "pypmix.invitation": "Accepted Declined Failed InviteAnswer",
    "pypmix.operations.groups": "Changes",
    "pypmix.operations.invitations": "Invitation InvitationStream Invite",
    "pypmix.standard.ops.groups": "GroupResults",
}
__getattr__, __dir__ = _names(__name__, _HOME)
