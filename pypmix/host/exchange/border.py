"""The border of a cluster: inside, its jobs have plain names; between clusters, names contain the cluster.

To its server, and to the host, a job of the cluster is `job`, and a job of another cluster `B:job`. Messages to other
clusters name the first one `A:job`. Names are translated if they are procs or nspaces by their type; texts that a
process has put or published are not changed.
"""

from __future__ import annotations

from pypmix.clusters import check_cluster, cluster_nspace, split_nspace
from pypmix.data import rename_committed
from pypmix.host.exchange.crossing import Crossing
from pypmix.standard import codes
from pypmix.standard.errors import PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import DirectModex, FenceUpcall
from pypmix.standard.ops.hosting import COMMITTED
from pypmix.standard.record import Record
from pypmix.standard.types import DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from pypmix.engine.base import Done, Upcall
    from pypmix.engine.common import Pending
    from pypmix.host.exchange.codec import Groups
    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.localserver import Hop, ServerLike
    from pypmix.standard.jobinfo import JobDescription
    from pypmix.standard.ops import Notification, Op

    Name = Callable[[str], str]

NSPACES = (codes.PROC_NSPACE,)
DATA = FenceUpcall, DirectModex
"""Upcalls that are answered with committed values."""


class Naming:
    """The names of jobs on both sides of a cluster's border.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = check_cluster(cluster)
        self._own = cluster_nspace(cluster, "?")[:-1]

    def out(self, nspace: str) -> str:
        """Return the name of a job beyond the border."""
        return nspace if not nspace or split_nspace(nspace)[0] is not None else self._own + nspace

    def home(self, nspace: str) -> str:
        """Return the name of a job in the cluster."""
        return nspace.removeprefix(self._own)


def renamed(data: Any, name: Name) -> Any:
    """Return data with other names for the nspaces in it."""
    if isinstance(data, Proc):
        return Proc.unchecked(name(data.nspace), data.rank)
    if isinstance(data, Info):
        if data.key == COMMITTED and isinstance(data.value.data, bytes):
            return Info(COMMITTED, Value(codes.BYTE_OBJECT, rename_committed(data.value.data, name)))
        return Info.unchecked(data.key, renamed(data.value, name), data.flags)
    if isinstance(data, Value):
        if data.type in NSPACES and isinstance(data.data, str):
            return Value.unchecked(data.type, name(data.data))
        return Value.unchecked(data.type, renamed(data.data, name))
    if isinstance(data, tuple):
        return tuple([renamed(item, name) for item in data])
    if isinstance(data, DataArray):
        if data.type in NSPACES:
            return DataArray(data.type, tuple([name(item) for item in data.items]))
        return DataArray(data.type, renamed(data.items, name))
    if isinstance(data, Record):
        fields: tuple[str, ...] = type(data).__match_args__
        values: dict[str, Any] = {field: renamed(getattr(data, field), name) for field in fields}
        if isinstance(data, JobInfo):
            values["nspace"] = name(data.nspace)
        return data.replace(**values)
    return data


class _Server:
    """A server as its crossing sees it."""

    def __init__(self, server: ServerLike, names: Naming) -> None:
        self._server = server
        self._names = names
        self.proc: Proc = renamed(server.proc, names.out)

    def register_nspace(self, job: JobInfo, local: tuple[int, ...] | None = None) -> None:
        self._server.register_nspace(renamed(job, self._names.home), local)

    def deregister_nspace(self, nspace: str) -> None:
        self._server.deregister_nspace(self._names.home(nspace))

    def notify(self, event: Notification) -> None:
        self._server.notify(renamed(event, self._names.home))

    def groups(self) -> Groups:
        return self._listed("groups")

    def connections(self) -> Groups:
        return self._listed("connections")

    def _listed(self, what: str) -> Groups:
        ask = getattr(self._server, what, None)
        return () if ask is None else tuple([(name, renamed(members, self._names.out)) for name, members in ask()])

    def define_process_set(self, name: str, members: tuple[Proc, ...], *, elsewhere: bool = False) -> None:
        self._server.define_process_set(name, renamed(members, self._names.home), elsewhere=elsewhere)

    def delete_process_set(self, name: str) -> None:
        self._server.delete_process_set(name)

    def dmodex_request(self, proc: Proc, done: Done[bytes], *, key: str = "", timeout: float = 0.0) -> None:
        def take_data(data: bytes | None, error: BaseException | None) -> None:
            if error is None:
                try:
                    done(rename_committed(data or b"", self._names.out), None)
                    return
                except PMIxError as problem:
                    error = problem
            done(None, error)

        self._server.dmodex_request(renamed(proc, self._names.home), take_data, key=key, timeout=timeout)


class _Crosses:
    """An upcall on its way over the border."""

    __slots__ = ("_names", "_upcall", "gid", "op", "requestor", "uid")

    def __init__(self, upcall: Upcall, names: Naming) -> None:
        self._upcall = upcall
        self._names = names
        op: Op[Any] = renamed(upcall.op, names.out)
        if isinstance(op, FenceUpcall):
            op = op.replace(data=rename_committed(op.data, names.out))
        self.op: Op[object] = op
        self.requestor: Proc | None = renamed(upcall.requestor, names.out)
        self.uid = upcall.uid
        self.gid = upcall.gid

    def reply(self, result: object = None) -> None:
        home = self._names.home
        if isinstance(self.op, DATA) and isinstance(result, bytes):
            result = rename_committed(result, home)
        self._upcall.reply(renamed(result, home))

    def fail(self, error: BaseException) -> None:
        if isinstance(error, PMIxError):
            error.procs = renamed(tuple(error.procs), self._names.home)
            if error.missing is not None:
                error.missing = frozenset(renamed(tuple(error.missing), self._names.home))
        self._upcall.fail(error)


class Border:
    """A `Crossing` of a server of one of several clusters; it has the same methods for the host, with the host's names.

    The servers of all clusters share an exchange, and the name of each there begins with the name of its cluster and a
    colon. Only servers of the Python engine can take part.

    Args:
        server: The server.
        exchange: Its exchange.
        cluster: The name of its cluster.
        hop: See `Crossing`.
    """

    def __init__(
        self,
        server: ServerLike,
        exchange: Exchange,
        cluster: str,
        hop: Hop | None = None,
    ) -> None:
        self.names = Naming(cluster)
        self._crossing = Crossing(
            _Server(server, self.names), exchange, session=lambda name: split_nspace(name)[0] == cluster, hop=hop
        )

    def answer(self, upcall: Upcall) -> bool:
        """As `Crossing.answer`."""
        if not self._crossing.answers(upcall.op):
            return False
        try:
            crosses = _Crosses(upcall, self.names)
        except PMIxError as error:
            error.operation = upcall.op.name
            upcall.fail(error)
            return True
        return self._crossing.answer(crosses)

    def answers(self, op: object) -> bool:
        """As `Crossing.answers`."""
        return self._crossing.answers(op)

    def register(self, job: JobInfo | JobDescription, places: Mapping[int, str]) -> None:
        """As `Crossing.register`.

        Raises:
            ValueError: The nspace contains a colon, so that it could be taken for a name with a cluster, or is too
                long.
        """
        if split_nspace(job.nspace)[0] is not None:
            raise ValueError(f"the nspace {job.nspace!r} of a job in a cluster holds no colon")
        cluster_nspace(self.names.cluster, job.nspace)
        info = job if isinstance(job, JobInfo) else job.info()
        self._crossing.register(renamed(info, self.names.out), places)

    def deregister(self, nspace: str) -> None:
        """As `Crossing.deregister`."""
        self._crossing.deregister(self.names.out(nspace))

    def connected(self, proc: Proc) -> None:
        """As `Crossing.connected`."""
        self._crossing.connected(renamed(proc, self.names.out))

    def finalized(self, proc: Proc) -> None:
        """As `Crossing.finalized`."""
        self._crossing.finalized(renamed(proc, self.names.out))

    def departed(self, proc: Proc) -> None:
        """As `Crossing.departed`."""
        self._crossing.departed(renamed(proc, self.names.out))

    def pending(self) -> list[Pending]:
        """As `Crossing.pending`."""
        found: list[Pending] = renamed(tuple(self._crossing.pending()), self.names.home)
        return list(found)
