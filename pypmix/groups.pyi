# Made from pypmix/groups.py by native/blocking.py: change it there.
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
from pypmix.operations.groups import Changes as Changes
from pypmix.operations.invitations import Invitation as Invitation
from pypmix.operations.invitations import InvitationStream as InvitationStream
from pypmix.operations.invitations import Invite as Invite
from pypmix.standard.ops.groups import GroupResults as GroupResults
