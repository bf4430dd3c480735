"""Limits of Slurm's PMIx plugin that the release of its libpmix does not tell of, as seen with Slurm 22.05 and 24.11.

Its answers do not always tell: it lets a fence without data go on before all have come, never ends one of procs on
several nodes that are listed one by one, ends the job step on an event, and lets half of the callers of a construct
wait for ever. So both engines ask this module before they ask the server.
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
"""The features, as `supports` has them, that do not work, and why; those of `group.` are none either."""

_NAMES = {"iof_pull": "output", "iof_push": "input"}
"""The features that operations belong to whose names are others."""

_NEVER_RAISED = frozenset((statuses.PROCESS_SET_DEFINE, statuses.PROCESS_SET_DELETE, statuses.GROUP_INVITED))
"""The codes of process sets that come and go, and of invitations."""

_LOST = frozenset((keys.LOG_STDERR, keys.LOG_STDOUT))


def works(feature: str) -> bool:
    """Tell whether a feature that an engine has works under Slurm too."""
    return feature not in LACKS and not feature.startswith("group.")


def refusal(op: Any) -> NotSupported | None:
    """Return the error of an operation that must not reach the server, None where it may.

    Queries are left to the engine, which answers what it knows itself.
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
    """Return the error that says what the plugin does, or does not; nothing given, that it answers no queries."""
    return NotSupported(f"Slurm's PMIx plugin {why}", hint=HINT)


def fence_procs(own: Proc, procs: tuple[Proc, ...], fetch: Callable[[Proc, str], Value | None]) -> tuple[Proc, ...]:
    """Return the procs to name in a fence: a job that is listed proc by proc by its nspace alone.

    Args:
        own: The caller.
        procs: Those that it has named.
        fetch: Returns what this process holds of a proc under a key.

    Raises:
        NotSupported: They are some of the job's procs and not all on the caller's node, where the fence would not end.
    """
    nspace = own[0]
    if any(proc[0] != nspace for proc in procs):
        return procs
    everybody = Proc.unchecked(nspace, RANK_WILDCARD)
    ranks = {proc[1] for proc in procs}
    size, peers = fetch(everybody, keys.JOB_SIZE), fetch(everybody, keys.LOCAL_PEERS)
    if RANK_WILDCARD in ranks or (size is not None and len(ranks) == size[1]):
        return (everybody,)
    here = {int(rank) for rank in str(peers[1]).split(",") if rank.isdecimal()} if peers is not None else set()
    if ranks <= {own[1], *here}:
        return procs
    raise NotSupported(
        "Slurm's PMIx plugin never ends a fence of some of a job's procs that are on several nodes",
        hint=f"fence the whole job, or the procs of one node (me.node.local_procs); {HINT}",
    )
