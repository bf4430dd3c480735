"""The job and the node of a process, as it has known them since it connected.

Each property is a key of the job info, which the client got when it connected and reads without a request (`read`). So
the values do not change, but for what the Standard lets change. The server makes them of `pypmix/host/job.py`.
"""

from __future__ import annotations

from pypmix.standard import codes, keys
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import Get
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.standard.values import to_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn, Protocol, overload

    from pypmix.engine.base import ClientSession
    from pypmix.psets import ProcSet

    class Port(Protocol):
        """The way to the session of a client, which may be closed by now."""

        session: ClientSession

        @property
        def is_open(self) -> bool: ...


_OPTIONAL = (Info(keys.OPTIONAL, Value.unchecked(codes.BOOL, True)),)


def read(session: ClientSession, proc: Proc, key: str) -> Any:
    """Return the local value of a proc's key, without asking the server.

    Raises:
        NotFound: This process has no such value.
    """
    value = session.fetch_local(proc, key)
    return to_python(session.run(Get(proc, key, _OPTIONAL)) if value is None else value)


class Job:
    """The caller's job: an ordered collection of its procs, with the values of the job info.

    It may be passed wherever procs are wanted.

    Example:
        >>> print("job", me.job.nspace, me.job.id, "has", me.job.size, "of", me.job.universe_size, "processes")
        >>> print(me.job.number_of_apps, "programs on", me.job.number_of_nodes, "nodes")
        >>> right = me.job[(me.rank + 1) % len(me.job)]
        >>> me.fence(me.job.procs[:2])
    """

    __slots__ = ("_procs", "_session", "_size")

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._procs: ProcSet | None = None
        self._size = -1

    @property
    def nspace(self) -> str:
        """The job's namespace."""
        return self._session.proc.nspace

    @property
    def size(self) -> int:
        """The number of procs (`PMIX_JOB_SIZE`)."""
        if self._size < 0:
            self._size = int(self._read(keys.JOB_SIZE))
        return self._size

    @property
    def procs(self) -> ProcSet:
        """All procs of the job, by rank."""
        if self._procs is None:
            from pypmix.psets import ProcSet

            nspace = self.nspace
            self._procs = ProcSet.unchecked(Proc.unchecked_ranks(nspace, range(self.size)))
        return self._procs

    @property
    def universe_size(self) -> int:
        """The number of procs that the session has room for (`PMIX_UNIV_SIZE`)."""
        return int(self._read(keys.UNIV_SIZE))

    @property
    def id(self) -> str:
        """The id that the scheduler gave the job (`PMIX_JOBID`)."""
        return str(self._read(keys.JOBID))

    @property
    def number_of_nodes(self) -> int:
        """The number of nodes that the job runs on (`PMIX_NUM_NODES`)."""
        return int(self._read(keys.NUM_NODES))

    @property
    def number_of_apps(self) -> int:
        """The number of applications in the job (`PMIX_JOB_NUM_APPS`)."""
        return int(self._read(keys.JOB_NUM_APPS))

    def _read(self, key: str) -> Any:
        return read(self._session, Proc.unchecked(self.nspace, RANK_WILDCARD), key)

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, rank: int) -> Proc: ...
        @overload
        def __getitem__(self, rank: slice) -> ProcSet: ...
        def __getitem__(self, rank: Any) -> Any: ...

    else:

        def __getitem__(self, rank):
            if isinstance(rank, slice):
                return self.procs[rank]
            if not hasattr(rank, "__index__"):
                raise TypeError(f"a job's procs are found by rank, an int, not {type(rank).__name__}")
            rank = rank.__index__()
            if not -self.size <= rank < self.size:
                raise IndexError(f"job {self.nspace} has ranks 0 to {self.size - 1}, not {rank}")
            return self.procs[rank]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Proc]:
        return iter(self.procs)

    def __contains__(self, proc: object) -> bool:
        """Return True if a proc, or a rank, is of this job."""
        if hasattr(proc, "__index__") and not isinstance(proc, bool) and not hasattr(proc, "__len__"):
            return bool(0 <= proc.__index__() < self.size)
        # Scalars of NumPy compare with each item of a proc.
        return isinstance(proc, tuple) and proc in self.procs

    def __eq__(self, other: object) -> bool:
        return self.nspace == other.nspace if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash((Job, self.nspace))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Job cannot be pickled: it is a view of an open client; send `job.procs`, or `job.nspace`")

    def __repr__(self) -> str:
        try:
            return f"<{type(self).__name__} {self.nspace} of {self.size}>"
        except PMIxError:
            return f"<{type(self).__name__} {self.nspace}>"


class Node:
    """The node that the caller runs on.

    Example:
        >>> print("node", me.node.id, "is", me.node.hostname)
        >>> if me.node.local_rank == 0:
        ...     print("first of", len(me.node.local_procs), "processes here")
    """

    __slots__ = ("_session",)

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    @property
    def hostname(self) -> str:
        """The node's name as the host knows it (`PMIX_HOSTNAME`)."""
        return str(self._read_own(keys.HOSTNAME))

    @property
    def id(self) -> int:
        """The node's number (`PMIX_NODEID`)."""
        return int(self._read_own(keys.NODEID))

    @property
    def local_rank(self) -> int:
        """The caller's rank among the procs of its job on this node (`PMIX_LOCAL_RANK`)."""
        return int(self._read_own(keys.LOCAL_RANK))

    @property
    def local_procs(self) -> ProcSet:
        """The procs of the caller's job on this node, by rank (`PMIX_LOCAL_PEERS`)."""
        nspace = self._session.proc.nspace
        peers = str(read(self._session, Proc.unchecked(nspace, RANK_WILDCARD), keys.LOCAL_PEERS))
        from pypmix.psets import ProcSet

        # prterun does not list them in order.
        return ProcSet(sorted([Proc(nspace, int(rank)) for rank in peers.split(",") if rank]))

    def _read_own(self, key: str) -> Any:
        return read(self._session, self._session.proc, key)

    def __repr__(self) -> str:
        try:
            return f"<Node {self.hostname}>"
        except PMIxError:
            return "<Node>"
