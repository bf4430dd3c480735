# Made from pypmix/aio/__init__.py by native/blocking.py: change it there.
from pypmix.aio.client import Client as Client
from pypmix.aio.operations.connecting import Connection as Connection
from pypmix.aio.operations.groups import Changes as Changes
from pypmix.aio.operations.groups import Group as Group
from pypmix.aio.operations.invitations import Invitation as Invitation
from pypmix.aio.operations.invitations import InvitationStream as InvitationStream
from pypmix.aio.operations.invitations import Invite as Invite
from pypmix.aio.server import Server as Server
from pypmix.aio.tool import Tool as Tool
from pypmix.group import Change as Change  # deprecated
from pypmix.group import Destructed as Destructed  # deprecated
from pypmix.group import GroupEvent as GroupEvent  # deprecated
from pypmix.group import Joined as Joined  # deprecated
from pypmix.group import LeaderFailed as LeaderFailed  # deprecated
from pypmix.group import LeaderSelected as LeaderSelected  # deprecated
from pypmix.group import Left as Left  # deprecated
from pypmix.group import MemberFailed as MemberFailed  # deprecated
from pypmix.invitation import Accepted as Accepted  # deprecated
from pypmix.invitation import Declined as Declined  # deprecated
from pypmix.invitation import Failed as Failed  # deprecated
from pypmix.invitation import InviteAnswer as InviteAnswer  # deprecated
