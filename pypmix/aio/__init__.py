"""pypmix with `async` and `await`: the same names, on asyncio or trio."""

from __future__ import annotations

from pypmix.aio.client import Client

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
_NAMES = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = ["Client", *_NAMES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'pypmix.aio' has no attribute {name!r}")
    from sys import modules

    __import__(module)
    found = globals()[name] = getattr(modules[module], name)
    return found
