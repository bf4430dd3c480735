"""Requests about process sets, and the answers of all kinds of servers in one form."""

from __future__ import annotations

from pypmix.psets import PsetChange
from pypmix.standard import codes, keys
from pypmix.standard.ops import QueryInfo
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Query, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pypmix.psets import ProcSet
    from pypmix.standard.ops import Get, Notification


MAX_EARLY = 65536
"""Events that are kept while a stream begins."""

_REFRESH = Info(keys.QUERY_REFRESH_CACHE, Value.unchecked(codes.BOOL, True))


def names_op() -> QueryInfo:
    """Return the question for the names of all sets, afresh: libraries keep what they were told."""
    return QueryInfo((Query((keys.QUERY_PSET_NAMES,), (_REFRESH,)),))


def members_op(name: str) -> QueryInfo:
    """Return the question for the members of a set."""
    return QueryInfo(
        (Query((keys.QUERY_PSET_MEMBERSHIP,), (Info(keys.PSET_NAME, Value(codes.STRING, name)), _REFRESH)),)
    )


def size_op(nspace: str) -> QueryInfo:
    """Return the question for the size of a job."""
    qualifier = Info(keys.NSPACE, Value(codes.STRING, nspace))
    return QueryInfo((Query((keys.JOB_SIZE,), (qualifier,)),))


def optional(op: Get) -> bool:
    """Tell whether a get is content with what this process holds already."""
    return any(info.key == keys.OPTIONAL and info.value.data is not False for info in op.directives)


def names_in(value: Value) -> list[str]:
    """Return names, which the Standard has in an array and servers join with commas."""
    data = value.data
    found: Iterable[object] = data if isinstance(data, DataArray) else str(data or "").split(",")
    return [name for name in dict.fromkeys(found) if isinstance(name, str) and name]


def names_value(names: Iterable[str]) -> Value:
    """Return names as the Standard has them."""
    return Value.unchecked(codes.DATA_ARRAY, DataArray(codes.STRING, tuple(names)))


def members_in(value: Value) -> list[Proc]:
    """Return the procs of an array."""
    data = value.data
    found: Iterable[object] = data if isinstance(data, DataArray) else ()
    return [proc for proc in found if isinstance(proc, Proc)]


def change_in(event: Notification) -> tuple[str, list[Proc]]:
    """Return which set an event is about, and the members that it names; an empty name if it is about none."""
    name = ""
    members: list[Proc] = []
    for info in event.infos:
        if info.key == keys.PSET_NAME and isinstance(info.value.data, str):
            name = info.value.data
        elif info.key == keys.PSET_MEMBERS:
            members = members_in(info.value)
    return name, members


def begun_with(sets: Mapping[str, ProcSet], early: Iterable[PsetChange]) -> list[PsetChange]:
    """Return the sets that a stream begins with, each as a definition.

    Args:
        sets: What the server has answered.
        early: What has come by events until then: what servers have kept, and what happened meanwhile.
    """
    last = {change.name: change for change in early}
    found = [PsetChange("define", name, members) for name, members in sets.items()]
    told = [change for change in last.values() if change.name not in sets]
    return [change for change in found if last.get(change.name, change).kind == "define"] + [
        change for change in told if change.kind == "define"
    ]


def wild(procs: Iterable[Proc]) -> list[str]:
    """Return the nspaces all of whose procs are meant."""
    return list(dict.fromkeys([proc.nspace for proc in procs if proc.rank == RANK_WILDCARD]))


def spread(procs: Iterable[Proc], sizes: dict[str, int]) -> list[Proc]:
    """Return procs with those of whole jobs one by one, where it is known how many there are."""
    found = []
    for proc in procs:
        if proc.rank == RANK_WILDCARD and proc.nspace in sizes:
            found += Proc.unchecked_ranks(proc.nspace, range(sizes[proc.nspace]))
        else:
            found.append(proc)
    return found
