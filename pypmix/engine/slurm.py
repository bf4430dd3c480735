"""Limits of Slurm's PMIx plugin, as observed with Slurm 22.05 and 24.11; the release of its libpmix does not show them.

Not all of them result in an error: the plugin completes a fence without data before all procs have joined, never
completes a fence of procs on several nodes that are listed one by one, ends the job step on an event, and makes half of
the callers of a construct wait forever. So both engines check an operation here before they send it to the server.
"""

from __future__ import annotations

from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotSupported
from pypmix.standard.ops.events import RANGE_PROC_LOCAL
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.standard.types import Value

HINT = "`prterun` within the same allocation offers it"

_DATA = "keeps no published data"
_STANDING = "watches no procs"
_LAUNCH = "connects no jobs"
_CREDENTIALS = "issues and validates no credentials"
_OUTPUT = "passes no output or input on: srun does that"
_FABRICS = "knows of no fabrics"
_GROUPS = "constructs no groups, and ends the job step on the events that its members would send each other"
_LOG = "takes what is to be logged to the standard output or error, and shows it nowhere"
_EVENTS = "ends the whole job step on any event that leaves the process which raises it"
_SETS = "has no process sets and takes no invitations, so that this event would never be raised"

LACKS = {
    "publish": _DATA,
    "lookup": _DATA,
    "lookup.wait": _DATA,
    "unpublish": _DATA,
    "query": "answers no queries",
    "query.attributes": "answers no queries",
    "get.pset_names": "has no process sets",
    "get.group_names": _GROUPS,
    "log": _LOG,
    "job_control": "steers no procs: scancel does that",
    "allocation_request": "changes no allocation",
    "process_monitor": _STANDING,
    "heartbeat": _STANDING,
    "get_credential": _CREDENTIALS,
    "validate_credential": _CREDENTIALS,
    "output": _OUTPUT,
    "input": _OUTPUT,
    "fabric_register": _FABRICS,
    "fabric_update": _FABRICS,
    "spawn": "starts no jobs: srun does that",
    "connect": _LAUNCH,
    "connect.nspace": _LAUNCH,
    "connect.directives": _LAUNCH,
    "disconnect": _LAUNCH,
    "group_construct": _GROUPS,
    "group_destruct": _GROUPS,
    "notify": _EVENTS,
}
"""The features that do not work, by their names in `supports`, and why; no feature of `group.` works either."""

_NAMES = {"iof_pull": "output", "iof_push": "input"}
"""The features of operations with other names."""

_NEVER_RAISED = frozenset((statuses.PROCESS_SET_DEFINE, statuses.PROCESS_SET_DELETE, statuses.GROUP_INVITED))
"""The codes of new and deleted process sets, and of invitations."""

_LOST = frozenset((keys.LOG_STDERR, keys.LOG_STDOUT))


def works(feature: str) -> bool:
    """Return True if a feature of an engine works under Slurm too."""
    return feature not in LACKS and not feature.startswith("group.")


def refusal(op: Any) -> NotSupported | None:
    """Return the error of an operation that must not reach the server; None if it may.

    Queries are not refused here, as the engine answers some of them itself.
    """
    name = op.name
    if name.startswith("group_"):
        why = _GROUPS
    elif name == "register_event_handler":
        why = _SETS if op.codes and _NEVER_RAISED.issuperset(op.codes) else ""
    elif name == "notify_event":
        why = _EVENTS if op.range != RANGE_PROC_LOCAL else ""
    elif name == "log":
        why = _LOG if any(info.key in _LOST for info in op.data) else ""
    else:
        why = LACKS.get(_NAMES.get(name, name), "") if name != "query_info" else ""
    return error(why) if why else None


def error(why: str = LACKS["query"]) -> NotSupported:
    """Return an error about the plugin; by default that it answers no queries."""
    return NotSupported(f"Slurm's PMIx plugin {why}", hint=HINT)


def fence_procs(caller: Proc, procs: tuple[Proc, ...], fetch: Callable[[Proc, str], Value | None]) -> tuple[Proc, ...]:
    """Return the procs to name in a fence: the nspace of a job in place of a list of all its procs.

    Args:
        caller: The caller.
        procs: The procs that it has named.
        fetch: Returns the value of a proc under a key, if this process has it.

    Raises:
        NotSupported: The procs are a part of the job on several nodes, for which the fence would never complete.
    """
    nspace = caller[0]
    if any(proc[0] != nspace for proc in procs):
        return procs
    everybody = Proc.unchecked(nspace, RANK_WILDCARD)
    ranks = {proc[1] for proc in procs}
    size, peers = fetch(everybody, keys.JOB_SIZE), fetch(everybody, keys.LOCAL_PEERS)
    if RANK_WILDCARD in ranks or (size is not None and len(ranks) == size[1]):
        return (everybody,)
    here = {int(rank) for rank in str(peers[1]).split(",") if rank.isdecimal()} if peers is not None else set()
    if ranks <= {caller[1], *here}:
        return procs
    raise NotSupported(
        "Slurm's PMIx plugin never ends a fence of some of a job's procs that are on several nodes",
        hint=f"fence the whole job, or the procs of one node (me.node.local_procs); {HINT}",
    )
