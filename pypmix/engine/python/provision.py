"""Provision of a job: the data that a host gives a server for its processes, and the inventory of the node."""

from __future__ import annotations

import os
import threading

from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, OutOfResources, PMIxError
from pypmix.standard.types import DataArray, Envar, Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SETUP_ENVARS = frozenset({keys.SETUP_APP_ENVARS, keys.SETUP_APP_ALL})
SET, ADD, UNSET = keys.SET_ENVAR, keys.ADD_ENVAR, keys.UNSET_ENVAR
PREPEND, APPEND, FIRST = keys.PREPEND_ENVAR, keys.APPEND_ENVAR, keys.FIRST_ENVAR
CHANGES = frozenset({SET, ADD, UNSET, PREPEND, APPEND, FIRST})

PARAMETERS = "PMIX_MCA_", "OMPI_MCA_", "PRTE_MCA_"
"""The prefixes of the variables that set up the libraries of a job."""


MAX_NODES = 1 << 20
"""Of how many nodes an inventory is kept."""


def harvested(directives: Iterable[Info]) -> tuple[Info, ...]:
    """Return the infos for the servers of a job's nodes: the host's directives and, if it asks for it, variables.

    Args:
        directives: The directives of `setup_application`. `SETUP_APP_ENVARS` or `SETUP_APP_ALL` adds the variables of
            this process that set up PMIx, PRRTE and Open MPI. Changes of variables are forwarded, and so are all other
            directives, which are for the host's other servers only.
    """
    found = []
    wanted = False
    for info in directives:
        if info.key in SETUP_ENVARS:
            wanted = wanted or info.value.type == codes.UNDEF or bool(info.value.data)
        else:
            check_change(info)
            found.append(info)
    if wanted:
        for name, value in sorted(os.environ.items()):
            if name.startswith(PARAMETERS):
                found.append(Info(SET, Value(codes.ENVAR, Envar(name, value))))
    return tuple(found)


def check_change(info: Info) -> None:
    """Check that an info that changes a variable names the variable.

    Raises:
        PMIxError: It does not (`ERR_BAD_PARAM`).
    """
    if info.key not in CHANGES:
        return
    data = info.value.data
    name = data.name if isinstance(data, Envar) else data if info.key == UNSET else None
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise PMIxError(
            f"{info.key} names no variable: {data!r}", status=statuses.ERR_BAD_PARAM, operation="setup_application"
        )


def apply(changes: Iterable[Info], env: dict[str, str]) -> None:
    """Apply changes of variables to the environment of a client.

    The client is assumed to inherit this process's environment.
    """
    for info in changes:
        if info.key == UNSET:
            env.pop(info.value.data, None)
            continue
        name, value, separator = info.value.data.name, info.value.data.value or "", info.value.data.separator
        there = env.get(name, os.environ.get(name))
        if info.key == SET or there is None:
            env[name] = value
        elif info.key == PREPEND:
            env[name] = f"{value}{separator}{there}"
        elif info.key == APPEND:
            env[name] = f"{there}{separator}{value}"
        elif info.key == FIRST:
            env[name] = separator.join([value, *[part for part in there.split(separator) if part != value]])


class Provision:
    """The data that a server was given for jobs, and the inventories of nodes; any thread may call.

    Args:
        hostname: The name of this node.
    """

    def __init__(self, hostname: str) -> None:
        self._hostname = hostname
        self._lock = threading.Lock()
        self._changes: dict[str, tuple[Info, ...]] = {}
        self._nodes: dict[str, Info] = {}

    def support(self, nspace: str, infos: Iterable[Info]) -> None:
        """See `ServerSession.setup_local_support`."""
        changes = tuple([info for info in infos if info.key in CHANGES])
        for info in changes:
            check_change(info)
        with self._lock:
            self._changes[nspace] = self._changes.get(nspace, ()) + changes

    def forget(self, nspace: str) -> None:
        """Forget the changes of variables of a job that has ended."""
        with self._lock:
            self._changes.pop(nspace, None)

    def change(self, nspace: str, env: dict[str, str]) -> None:
        """Apply the changes of variables of a client's job to its environment."""
        with self._lock:
            changes = self._changes.get(nspace, ())
        apply(changes, env)

    def inventory(self, directives: Iterable[Info]) -> tuple[Info, ...]:
        """See `ServerSession.collect_inventory`.

        Raises:
            NotFound: Another node is asked about, which is not known.
        """
        wanted = next((info.value.data for info in directives if info.key == keys.HOSTNAME), self._hostname)
        if wanted != self._hostname:
            with self._lock:
                known = self._nodes.get(wanted)
            if known is None:
                raise NotFound(f"the node {wanted!r} is not known", operation="collect_inventory")
            return (known,)
        found = [
            Info(keys.HOSTNAME, Value(codes.STRING, self._hostname)),
            Info(keys.SERVER_PIDINFO, Value(codes.PID, os.getpid())),
            Info(keys.ALLOC_NUM_CPUS, Value(codes.UINT64, _cpus())),
        ]
        memory = _megabytes()
        if memory:
            found.append(Info(keys.AVAIL_PHYS_MEMORY, Value(codes.UINT64, memory)))
        return (_array(found),)

    def deliver(self, infos: Iterable[Info]) -> None:
        """See `ServerSession.deliver_inventory`.

        Raises:
            PMIxError: It is not an inventory (`ERR_BAD_PARAM`).
            OutOfResources: It is of too many nodes.
        """
        nodes: dict[str, Info] = {}
        for info in infos:
            data = info.value.data
            items = data.items if isinstance(data, DataArray) and data.type == codes.INFO else ()
            name = next((item.value.data for item in items if item.key == keys.HOSTNAME), None)
            if info.key != keys.NODE_INFO_ARRAY or not isinstance(name, str):
                detail = (
                    f"an inventory is an array of infos per node ({keys.NODE_INFO_ARRAY}) with the node's name, "
                    f"not {info.key}"
                )
                raise PMIxError(detail, status=statuses.ERR_BAD_PARAM, operation="deliver_inventory")
            nodes[name] = info
        with self._lock:
            if len(self._nodes.keys() | nodes.keys()) > MAX_NODES:
                raise OutOfResources("it is of too many nodes", operation="deliver_inventory")
            self._nodes |= nodes


def _array(infos: list[Info]) -> Info:
    return Info(keys.NODE_INFO_ARRAY, Value(codes.DATA_ARRAY, DataArray(codes.INFO, tuple(infos))))


def _cpus() -> int:
    """Return how many CPUs this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _megabytes() -> int:
    """Return the memory of this node in megabytes; 0 if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    except (ValueError, OSError):
        return 0
