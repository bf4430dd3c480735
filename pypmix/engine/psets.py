"""The rules of process sets, the same for the servers of both engines."""

from __future__ import annotations

from pypmix.standard import statuses
from pypmix.standard.errors import NotFound, OutOfResources, PMIxError
from pypmix.standard.ops.core import instances
from pypmix.standard.types import MAX_NSLEN, RANK_WILDCARD, Proc, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping

MAX_PSETS = 65536

DEFINE = "define_process_set"
DELETE = "delete_process_set"


def new_pset(
    name: str,
    members: Iterable[Proc],
    psets: Collection[str],
    ranks_of: Callable[[str], Collection[int] | None],
    elsewhere: bool,
) -> dict[Proc, None]:
    """Check a new set, and return its members in order, with all ranks of whole jobs.

    Args:
        name: Its name.
        members: Its procs.
        psets: The names of the present sets.
        ranks_of: Returns the ranks of an nspace, as a collection with a fast membership test; None for an unregistered
            nspace.
        elsewhere: Whether unregistered nspaces, of other servers, are allowed.

    Raises:
        PMIxError: A set or an nspace of that name exists (`ERR_EXISTS`), the name is invalid, or the set has no members
            (`ERR_BAD_PARAM`).
        OutOfResources: There are too many sets.
        NotFound: A member is unknown.
    """
    if not check_name(name, MAX_NSLEN, "a process set's name") or "," in name:
        raise _refused(f"{name!r:.300} cannot name a process set: servers send names joined with commas")
    found = tuple(members)
    instances("members", found, Proc)
    if not found:
        raise _refused(f"the process set {name!r} has no members")
    if name in psets:
        raise _refused(
            f"the process set {name!r} exists already, and sets cannot change: delete it first", statuses.ERR_EXISTS
        )
    if ranks_of(name) is not None:
        raise _refused(f"{name!r} is a namespace, and so it cannot name a process set", statuses.ERR_EXISTS)
    if len(psets) >= MAX_PSETS:
        raise OutOfResources(f"there are {len(psets)} process sets", operation=DEFINE)
    made: dict[Proc, None] = {}
    for proc in found:
        ranks = ranks_of(proc.nspace)
        if ranks is None and not elsewhere:
            raise _unknown(f"no nspace {proc.nspace!r} is registered here", name, proc)
        if ranks is not None and proc.rank == RANK_WILDCARD:
            made.update(dict.fromkeys(Proc.unchecked_ranks(proc.nspace, ranks)))
        elif ranks is not None and proc.rank not in ranks:
            raise _unknown(f"the nspace {proc.nspace!r} has no rank {proc.rank}", name, proc)
        else:
            made[proc] = None
    return made


def names_of(psets: Mapping[str, Container[Proc]], proc: Proc) -> list[str]:
    """Return the names of the sets with a proc as a member."""
    whole = Proc.unchecked(proc.nspace, RANK_WILDCARD)
    return [name for name, members in psets.items() if proc in members or whole in members]


def missing(name: str) -> NotFound:
    """Return the error for an unknown set."""
    return NotFound(f"there is no process set {name!r}", operation=DELETE)


def _refused(detail: str, status: int = statuses.ERR_BAD_PARAM) -> PMIxError:
    return PMIxError(detail, status=status, operation=DEFINE)


def _unknown(detail: str, name: str, proc: Proc) -> NotFound:
    return NotFound(f"{detail}, so that it cannot be in the process set {name!r}", operation=DEFINE, procs=(proc,))
