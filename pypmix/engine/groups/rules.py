"""Rules for requests and answers of constructs and destructs that hold on every server."""

from __future__ import annotations

from pypmix.standard import keys, statuses
from pypmix.standard.errors import OperationTimeout, PMIxError, ResourceBusy, error_for
from pypmix.standard.ops import GroupConstruct, GroupResults
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pypmix.engine.groups.port import Port
    from pypmix.standard.types import Value


NO_CONTEXT_ID = 2**64 - 1
"""The context id that means none, for releases that cannot leave it out."""

UNOFFERED = "the server's host does not offer it"

FAILURES = {
    statuses.ERR_NOT_SUPPORTED: UNOFFERED,
    statuses.ERR_TIMEOUT: "not all members of {} had come when the time ran out",
    statuses.ERR_PARTIAL_SUCCESS: "a member of {} ended without coming",
    statuses.ERR_LOST_CONNECTION: "a member of {} has lost its connection to its server",
    statuses.ERR_EXISTS: "there is a group or an nspace {} already",
    statuses.ERR_NOT_FOUND: "the server does not know all of the procs, or not the group {}",
    statuses.ERR_BAD_PARAM: "the server does not take these procs for {}",
    statuses.ERR_NOT_A_MEMBER: "the caller is not a member of {}",
    statuses.GROUP_CONSTRUCT_ABORT: (
        "the construct of {} was given up: a member ended without coming, or somebody aborted it"
    ),
}
"""The texts for statuses of a construct or destruct; `{}` stands for the name in quotes."""


def wants_context_id(op: GroupConstruct) -> bool:
    """Return True if a construct asks for a context id."""
    return any(info.key == keys.GROUP_ASSIGN_CONTEXT_ID and info.value.data is not False for info in op.directives)


def is_gathered(op: GroupConstruct) -> bool:
    """Return True if a construct does not name all members: others call it as leaders, or are added."""
    return not op.procs or any(info.key == keys.GROUP_BOOTSTRAP for info in op.directives)


def results_of(
    infos: Iterable[Info],
    partial: bool = False,
    members: tuple[Proc, ...] = (),
    context_id: int | None = None,
) -> GroupResults:
    """Return the results of a construct from the answer of a server or a library.

    Args:
        infos: The infos of the answer.
        partial: Whether the answer reports that the group is not complete.
        members: The members, unless they are among the infos.
        context_id: The context id, unless it is among the infos.
    """
    others = []
    for info in infos:
        key, data = info.key, info.value.data
        if key == keys.GROUP_MEMBERSHIP and isinstance(data, DataArray):
            members = data.items
        elif key == keys.GROUP_CONTEXT_ID:
            context_id = data
        elif key != keys.GROUP_ID:
            others.append(info)
    return GroupResults(members, None if context_id == NO_CONTEXT_ID else context_id, tuple(others), partial)


def ranks_of(port: Port, procs: Iterable[Proc], sizes: Mapping[Proc, Value] | None = None) -> tuple[Proc, ...]:
    """Return procs, each once and by its rank where the size of its job is known.

    Args:
        port: The session.
        procs: The procs.
        sizes: The sizes of jobs that the session does not hold.
    """
    ranks: dict[Proc, None] = {}
    for each in procs:
        size = port.fetch(each, keys.JOB_SIZE) if each.rank == RANK_WILDCARD else None
        if size is None and sizes is not None:
            size = sizes.get(each)
        some = [each] if size is None else [Proc(each.nspace, rank) for rank in range(int(size.data))]
        ranks.update(dict.fromkeys(some))
    return tuple(ranks)


def failure_of(status: int, name: str, procs: tuple[Proc, ...]) -> PMIxError:
    """Return the error of a construct or destruct that ends with a status."""
    return error_for(status)(FAILURES[status].format(repr(name)), status=status, procs=procs)


def timed_out(limit: int, procs: tuple[Proc, ...]) -> OperationTimeout:
    """Return the error of an operation that the server has not answered in time."""
    return OperationTimeout(f"no answer of the server within {limit} s", status=statuses.ERR_TIMEOUT, procs=procs)


def busy(name: str) -> ResourceBusy:
    """Return the error for a second operation on a group whose first one the server has not answered.

    Servers count callers, so a second call would count for a member that has not called.
    """
    return ResourceBusy(
        f"the server still waits for the other members of {name!r}, on behalf of an earlier call",
        hint="an operation that was given up goes on there; take another name",
    )
