"""pypmix with `async` and `await`: the same names, on asyncio or trio."""

from __future__ import annotations

from pypmix.aio.client import Client as Client
from pypmix.lazy import names as _names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.aio.operations.connecting import Connection as Connection
    from pypmix.aio.operations.groups import Changes as Changes
    from pypmix.aio.operations.groups import Group as Group
    from pypmix.aio.operations.invitations import Invitation as Invitation
    from pypmix.aio.operations.invitations import InvitationStream as InvitationStream
    from pypmix.aio.operations.invitations import Invite as Invite
    from pypmix.aio.server import Server as Server
    from pypmix.aio.tool import Tool as Tool
    from pypmix.group import Change as Change
    from pypmix.group import Destructed as Destructed
    from pypmix.group import GroupEvent as GroupEvent
    from pypmix.group import Joined as Joined
    from pypmix.group import LeaderFailed as LeaderFailed
    from pypmix.group import LeaderSelected as LeaderSelected
    from pypmix.group import Left as Left
    from pypmix.group import MemberFailed as MemberFailed
    from pypmix.invitation import Accepted as Accepted
    from pypmix.invitation import Declined as Declined
    from pypmix.invitation import Failed as Failed
    from pypmix.invitation import InviteAnswer as InviteAnswer

_HOME = {
    "pypmix.aio.operations.connecting": "Connection",
    "pypmix.aio.operations.groups": "Changes Group",
    "pypmix.aio.operations.invitations": "Invitation InvitationStream Invite",
    "pypmix.aio.server": "Server",
    "pypmix.aio.tool": "Tool",
    "pypmix.group": "Change Destructed GroupEvent Joined LeaderFailed LeaderSelected Left MemberFailed",
    "pypmix.invitation": "Accepted Declined Failed InviteAnswer",
}
if not TYPE_CHECKING:
    # A type checker is to know the names above and no others.
    __getattr__, __dir__, _lazy = _names(__name__, _HOME)
    __all__ = ["Client", *_lazy]  # noqa: PLE0604
