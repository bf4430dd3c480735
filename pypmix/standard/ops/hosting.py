"""Upcalls that are not requests of a client: its connection and exit, and a server's part of collectives."""

from __future__ import annotations

from pypmix.standard.ops.core import HostOp
from pypmix.standard.types import Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.structures import ResourceUnit

GROUP_CONSTRUCT = 0
GROUP_DESTRUCT = 1
GROUP_NONE = 2
GROUP_CANCEL = 3

GROUP_ABSENT = "pypmix.grp.absent"
"""In the directives of a `GroupUpcall`: its procs that have exited without joining; in the result: all such procs."""

GROUP_ORDER = "pypmix.grp.order"
"""In the directives: the procs in the order in which all callers of the server have named them."""

GROUP_LEADER_PROC = "pypmix.grp.leader"
"""In the directives: the caller that has declared itself the leader; in the result: the leader."""

GROUP_ROUND = "pypmix.grp.round"
"""In the directives: the number of this request for the construct, from 1."""

GROUP_CLAIMS = "pypmix.grp.claims"
"""In the directives: the procs that claim the lead after the leader has failed."""

GROUP_VERDICT = "pypmix.grp.verdict"
"""In the directives: "abort" if one of the procs aborts the construct."""

GROUP_GUEST = "pypmix.grp.guest"
"""In the directives: the only caller of the request, while the participants are not known yet."""


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
    """A client's connection ended without finalize; native servers report it to their hosts by an event instead."""

    proc: Proc


class ClientAborted(HostOp[None]):
    """Upcall `abort`: a client requests to end procs, by default all of its nspace."""

    proc: Proc
    code: int
    message: str
    targets: tuple[Proc, ...] = ()


class FenceUpcall(HostOp[bytes]):
    """Upcall `fence_nb`: all procs of this server in a fence have called it, and other servers take part.

    The result is the concatenated data of all servers that take part, unchanged; that of this server may be left out.

    Args:
        procs: The procs of the fence as named by its callers: a wildcard means all ranks of an nspace.
        directives: The callers' directives (`attrs.COLLECT_DATA`, `attrs.TIMEOUT`).
        data: The data that the procs of this server have committed for others; empty for a fence without an exchange.
    """

    procs: tuple[Proc, ...]
    directives: tuple[Info, ...] = ()
    data: bytes = b""

    @property
    def name(self) -> str:
        """`fence`."""
        return "fence"


class DirectModex(HostOp[bytes]):
    """Upcall `direct_modex`: a client requests the data that a proc of another server has committed for others.

    The result is the answer of that server to `dmodex_request`.

    Args:
        proc: The owner of the data.
        directives: The client's directives (`attrs.TIMEOUT`, `attrs.REQUIRED_KEY`).
    """

    proc: Proc
    directives: tuple[Info, ...] = ()


class GroupUpcall(HostOp[tuple[Info, ...]]):
    """Upcall `group`: all procs of this server in a construct or destruct of a group have called it.

    The result of a construct is `attrs.GROUP_MEMBERSHIP` with all members in the order of their group ranks,
    `attrs.GROUP_CONTEXT_ID` if it was requested (`attrs.GROUP_ASSIGN_CONTEXT_ID`), and the members' group info and
    endpoint data. Without a membership, a server of the Python engine decides on the members itself.

    A server of the Python engine adds directives for hosts that support them (`GROUP_ABSENT` and the next ones). Such a
    host answers a construct of several servers with `GROUP_ABSENT` and without a membership if members have exited and
    the callers have to react first: the server then repeats the upcall with the next `GROUP_ROUND`.

    Args:
        operation: 0 for a construct, 1 for a destruct, 3 to cancel a construct that the server has begun.
        group: The group's name.
        procs: The members as named by the callers; with `GROUP_GUEST` only the caller; for a cancel none, or the
            caller to withdraw.
        directives: The callers' directives, and their data for the others: `attrs.GROUP_INFO` is an array of infos for
            each caller, first its `attrs.PROCID` and last its `attrs.GROUP_ENDPT_DATA`, if any.
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
        directive: The action (`ResBlockDirective`).
        block: The block's name.
        units: The resources.
        infos: Further infos.
    """

    directive: int
    block: str
    units: tuple[ResourceUnit, ...] = ()
    infos: tuple[Info, ...] = ()
