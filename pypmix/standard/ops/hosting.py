"""Upcalls that are not a client's own request: its coming and going, and a server's half of what crosses servers."""

from __future__ import annotations

from pypmix.standard.ops.core import HostOp
from pypmix.standard.types import Info, Proc, ResourceUnit

GROUP_CONSTRUCT = 0
GROUP_DESTRUCT = 1
GROUP_NONE = 2
GROUP_CANCEL = 3

GROUP_ABSENT = "pypmix.grp.absent"
"""In the directives of a `GroupUpcall`: which of its procs have ended without coming; in the result: all of them."""

GROUP_ORDER = "pypmix.grp.order"
"""In the directives: the procs in the order in which all callers of the server have named them."""

GROUP_LEADER_PROC = "pypmix.grp.leader"
"""In the directives: which of the callers has declared itself the leader; in the result: who leads."""

GROUP_ROUND = "pypmix.grp.round"
"""In the directives: the how many-th time it is that the server comes to this construct, counted from 1."""

GROUP_CLAIMS = "pypmix.grp.claims"
"""In the directives: which procs want to lead after the leader has failed."""

GROUP_VERDICT = "pypmix.grp.verdict"
"""In the directives: "abort" where one of the procs wants no such group."""

GROUP_GUEST = "pypmix.grp.guest"
"""In the directives: the only caller that it speaks for, while the participants are not known yet."""


COMMITTED = "pypmix.committed"
"""In the directives of a construct or connect with procs of other servers: what the callers of the server have
committed for those, like the data of a `FenceUpcall`; in the result, once for each server that has given some.
"""


class ClientConnected(HostOp[None]):
    """Upcall `client_connected2`: a client has connected; an error refuses it."""

    proc: Proc
    pid: int | None = None
    release: str = ""
    directives: tuple[Info, ...] = ()


class ClientFinalized(HostOp[None]):
    """Upcall `client_finalized`: a client has called finalize."""

    proc: Proc


class ClientLost(HostOp[None]):
    """A client's connection ended without finalize; natives tell their hosts by an event, not an upcall."""

    proc: Proc


class ClientAborted(HostOp[None]):
    """Upcall `abort`: a client asks to end procs; none named means all of its nspace."""

    proc: Proc
    code: int
    message: str
    targets: tuple[Proc, ...] = ()


class FenceUpcall(HostOp[bytes]):
    """Upcall `fence_nb`: all procs of a fence that are this server's have called it, and others are not.

    The result is the data of all servers that take part, each one's as it gave it, one after the other; that of this
    server may be left out.

    Args:
        procs: The procs of the fence as its callers name them: a wildcard stands for all of an nspace.
        directives: What the callers ask for (`attrs.COLLECT_DATA`, `attrs.TIMEOUT`).
        data: What the procs of this server have committed for others; empty for a fence that exchanges nothing.
    """

    procs: tuple[Proc, ...]
    directives: tuple[Info, ...] = ()
    data: bytes = b""

    @property
    def name(self) -> str:
        """`fence`."""
        return "fence"


class DirectModex(HostOp[bytes]):
    """Upcall `direct_modex`: a client wants what a proc of another server has committed for others.

    The result is what that server answers to `dmodex_request`.

    Args:
        proc: Whose data.
        directives: What the client asks for (`attrs.TIMEOUT`, `attrs.REQUIRED_KEY`).
    """

    proc: Proc
    directives: tuple[Info, ...] = ()


class GroupUpcall(HostOp[tuple[Info, ...]]):
    """Upcall `group`: all procs of this server that construct or destruct a group have called it.

    The result of a construct is `attrs.GROUP_MEMBERSHIP` with all members in the order of their group ranks,
    `attrs.GROUP_CONTEXT_ID` where one was asked for (`attrs.GROUP_ASSIGN_CONTEXT_ID`), and the members' group info
    and endpoint data as they gave it.

    A server of the Python engine adds directives for hosts that know them (`GROUP_ABSENT` and those after it). Such a
    host answers a construct of several servers with `GROUP_ABSENT` and without a membership where members have ended
    and the callers are to be heard first: the upcall comes again then, with the next `GROUP_ROUND`.

    Args:
        operation: 0 for a construct, 1 for a destruct, 3 where the server gives up one that it has begun.
        group: The group's name.
        procs: The members as the callers name them; the caller alone where it is one of `GROUP_GUEST`; for a cancel
            none, or the caller that is offered no more.
        directives: What the callers ask for, and what they tell the others: `attrs.GROUP_INFO` is an array of infos for
            each, of which the first is its `attrs.PROCID` and the last its `attrs.GROUP_ENDPT_DATA`, if any.
    """

    operation: int
    group: str
    procs: tuple[Proc, ...] = ()
    directives: tuple[Info, ...] = ()

    @property
    def name(self) -> str:
        """`group`."""
        return "group"


class SessionControl(HostOp[tuple[Info, ...]]):
    """Upcall `session_control`: act on a session; releases from 5.0 on."""

    session: int
    directives: tuple[Info, ...] = ()


class ResourceBlock(HostOp[None]):
    """Upcall `resource_block`: define or change a block of resources; releases from 6.0 on.

    Args:
        directive: What to do (`ResBlockDirective`).
        block: The block's name.
        units: The resources.
        infos: Further infos.
    """

    directive: int
    block: str
    units: tuple[ResourceUnit, ...] = ()
    infos: tuple[Info, ...] = ()
