"""Groups of processes as both engines see them: addresses, invitations, changes, leaders. No I/O, no clock."""

from pypmix.standard import statuses

TAKEN_IN = frozenset({statuses.GROUP_INVITED, statuses.GROUP_CONSTRUCT_ABORT, statuses.GROUP_LEADER_SELECTED})
"""The events that groups process themselves as soon as a program has a handler for one."""
