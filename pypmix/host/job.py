"""The description of a job: its applications, the number of ranks of each, and their nodes.

An `Application` is what a user asks for. Mapping (`mapping.py`) decides where its ranks run, and the result is a
`JobLayout` with a `NodeLayout` for each node: an immutable value which the launcher, its daemons and hosts of users
share. Everything about a job that clients can read follows from it: `JobLayout.info` makes the job info, by its parts
for the job, the nodes, the applications and the procs. A running job is `running.py`: `RunningJob`, and its processes
are `rank.py`. The job as a client sees it is `pypmix/job.py`.
"""

from __future__ import annotations

import os
from functools import cache

from pypmix.engine.common import NATIVE, UNCHECKED
from pypmix.standard import attrs, codes
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.record import Record
from pypmix.standard.types import MAX_NSLEN, RANK_VALID, RANK_WILDCARD, Info, Proc, Value, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LOCAL_RANKS_MAX = 0xFFFF
"""PMIX_LOCAL_RANK and PMIX_NODE_RANK are 16 bits wide."""


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""32 characters that are not mistaken for each other."""

RANDOM = 8
"""The random characters of an nspace, 5 bits each: no two jobs share them, and a server that delays refused clients
cannot be asked for all of them."""

RANDOM_ALONE = 20
"""The random characters if the nspace is the only proof of its ranks: too many also for fast guesses with a hash."""


def new_nspace(alone: bool) -> str:
    """Return an nspace for a session without a given one; the nspaces of its jobs begin with it.

    A client of any release shows its nspace to its server as proof: the nspace is in its environment, which other users
    cannot read. So it must not be used in names of files or on command lines, which they can read.

    Args:
        alone: Whether the server has no other proof of a rank's identity than the nspace.
    """
    random = [ALPHABET[byte & 31] for byte in os.urandom(RANDOM_ALONE if alone else RANDOM)]
    return f"pypmix-{os.getpid()}-{''.join(random)}"


def is_sole_proof(engine: str | None) -> bool:
    """Return True if servers of an engine admit clients by the nspace alone: native ones, or with `unchecked`."""
    return engine == NATIVE or UNCHECKED in {name.strip() for name in os.environ.get("PYPMIX_SECURITY", "").split(",")}


class Application(Record):
    """One program of a job and the ranks that run it.

    Args:
        argv: The program and its arguments.
        np: The number of ranks, at least 1.
        env: Pairs of name and value that are added to the ranks' environment.
        wdir: The ranks' working directory; empty means the launcher's own.
        program: The program to run if it is not the first word of `argv`, which is only its name then.
        unset: Names of variables that are removed from the ranks' environment.
        pset: The process set of the ranks, together with the ranks of other applications of the job that name the same
            set; empty for none.
        preload: Files that each of its nodes is to have, see `pypmix.host.preload`: their words in `argv`, and their
            paths here; an empty path for its program.

    Example:
        >>> worker = Application(("./worker", "--fast"), np=4, env=(("OMP_NUM_THREADS", "2"),))
        >>> outcome = LocalHost([Application(("true",), np=2)]).run()
    """

    argv: tuple[str, ...]
    np: int = 1
    env: tuple[tuple[str, str], ...] = ()
    wdir: str = ""
    program: str = ""
    unset: tuple[str, ...] = ()
    pset: str = ""
    preload: tuple[tuple[str, str], ...] = ()

    def __validate__(self) -> None:
        if isinstance(self.argv, str | bytes):
            raise TypeError(f"argv is a tuple of words, not the string {self.argv!r:.80}")
        if not self.argv or not self.argv[0]:
            raise ValueError("an application needs a program to run: argv is a tuple that starts with its name")
        if type(self.np) is not int:
            raise TypeError(f"the number of ranks must be an int, not {type(self.np).__name__}")
        if self.np < 1:
            raise ValueError(f"the number of ranks must be at least 1, not {self.np}")
        pairs = (*self.env, *self.preload)
        for text in (*self.argv, self.wdir, self.program, *[part for pair in pairs for part in pair]):
            if not isinstance(text, str):
                raise TypeError(f"a command line and an environment are made of str, not of {type(text).__name__}")
            if "\0" in text:
                raise ValueError(f"a command line and an environment cannot hold a NUL character: {text!r:.80}")
        for name, _ in self.env:
            if not name or "=" in name:
                raise ValueError(f"{name!r} is not the name of an environment variable")
        if "," in check_name(self.pset, MAX_NSLEN, "a process set's name"):
            raise ValueError(f"the name of a process set holds no comma: {self.pset!r:.80}")

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of its ranks, without the variables that make them clients."""
        env = {**inherited, **dict(self.env)}
        for name in self.unset:
            env.pop(name, None)
        return env


def check_local_size(size: int) -> None:
    """Raise `OverflowError` if that many ranks cannot be numbered on one node."""
    if size > LOCAL_RANKS_MAX:
        raise OverflowError(f"a node holds {LOCAL_RANKS_MAX} ranks, not {size}")


class NodeLayout(Record):
    """A node of a job.

    Args:
        hostname: The node's name, the same string wherever it is named.
        ranks: The ranks that run there.
        number: Its place among the nodes of the session (PMIX_NODEID); by default its place among the nodes of the job.
        first: The node rank (PMIX_NODE_RANK) of the first of them; by default the job's value for all nodes.
        others: The number of procs of other jobs there; by default the job's value for all nodes.
        oversubscribed: There are more procs than CPUs for them (PMIX_NODE_OVERSUBSCRIBED): MPI libraries then yield
            while they wait.
        cpus: The CPUs that each of the ranks is bound to, as a list such as `0-3`, in the order of `ranks`; empty for a
            rank that is not bound, and no items if none is.
        variables: The environment variables of each of them that follow from its place, such as its GPUs, in the same
            order; no items if none has any.
        devices: The names of the GPUs that each of them is given, in the same order; no items if none is given any.

    Example:
        >>> node = NodeLayout("node1", (0, 1), cpus=("0-3", "4-7"))
        >>> node.cpus_of(1)
        '4-7'
    """

    hostname: str
    ranks: tuple[int, ...]
    number: int | None = None
    first: int | None = None
    others: int | None = None
    oversubscribed: bool = False
    cpus: tuple[str, ...] = ()
    variables: tuple[tuple[tuple[str, str], ...], ...] = ()
    devices: tuple[tuple[str, ...], ...] = ()

    def __validate__(self) -> None:
        if not isinstance(self.hostname, str):
            raise TypeError(f"the name of a node must be a str, not {type(self.hostname).__name__}")
        if not self.hostname or "," in self.hostname or "\0" in self.hostname:
            raise ValueError(f"{self.hostname!r:.80} cannot name a node")
        check_local_size(len(self.ranks))
        for rank in self.ranks:
            if type(rank) is not int:
                raise TypeError(f"the ranks of node {self.hostname} are ints, not {type(rank).__name__}")
        for what, given in (("bindings", self.cpus), ("variables", self.variables), ("devices", self.devices)):
            if given and len(given) != len(self.ranks):
                raise ValueError(f"node {self.hostname} has {len(self.ranks)} ranks and {len(given)} {what}")

    def cpus_of(self, rank: int) -> str:
        """Return the CPUs that one of its ranks is bound to; empty if it is not bound."""
        return self.cpus[self.ranks.index(rank)] if self.cpus else ""

    def variables_of(self, rank: int) -> tuple[tuple[str, str], ...]:
        """Return the environment variables that follow from the place of one of its ranks."""
        return self.variables[self.ranks.index(rank)] if self.variables else ()


def _device_infos(hostname: str, names: tuple[str, ...]) -> tuple[Info, ...]:
    """Return the info about the GPUs that a rank of a node is given; nothing if it is given none."""
    if not names:
        return ()
    from pypmix.standard.enums import DeviceType
    from pypmix.standard.structures import Device
    from pypmix.standard.types import DataArray
    from pypmix.topology.devices import identify_gpu

    devices = tuple([Device(identify_gpu(hostname, name), name, int(DeviceType.GPU)) for name in names])
    return (attrs.DEVICE_ID(DataArray(codes.DEVICE, devices)),)


def without_ranks(node: NodeLayout, ranks: Collection[int]) -> NodeLayout:
    """Return a node of a job without some ranks."""
    kept = [place for place, rank in enumerate(node.ranks) if rank not in ranks]
    return node.replace(
        ranks=tuple([node.ranks[place] for place in kept]),
        cpus=tuple([node.cpus[place] for place in kept]) if node.cpus else (),
        variables=tuple([node.variables[place] for place in kept]) if node.variables else (),
        devices=tuple([node.devices[place] for place in kept]) if node.devices else (),
    )


_POLICIES = (attrs.MAPBY, attrs.RANKBY, attrs.BINDTO)


class Slot(Record):
    """The place of one rank of a job: its application, its rank in it, its node, its rank there."""

    rank: int
    app: int
    app_rank: int
    node: int
    local_rank: int


class JobLayout(Record):
    """A job before it runs: its applications and the placement of its ranks.

    Ranks are numbered through the applications in their order.

    Args:
        nspace: The job's namespace, at most 255 bytes.
        apps: The applications (MPMD if more than one).
        nodes: The nodes with their ranks; together they hold every rank exactly once.
        session: PMIX_SESSION_ID.
        tmpdir: The job's directory on each node, which the host makes and removes; empty for none.
        wdir: The launcher's working directory, in which applications run that name no other.
        parent: The proc that has spawned the job; None for a job that no proc has spawned.
        first: The node rank (PMIX_NODE_RANK) and the rank in the session (PMIX_GLOBAL_RANK) of the job's first rank, if
            other jobs of the session run on its node.
        others: The number of procs of other jobs.
        cluster: The name of its cluster (PMIX_CLUSTER_ID); empty if it has none.
        policies: The rules by which its ranks were mapped, ranked and bound, in the words of PMIX_MAPBY, PMIX_RANKBY
            and PMIX_BINDTO; empty if they are unknown.
        stops: The keys of the places where ranks stop for a debugger (PMIX_DEBUG_STOP_ON_EXEC and so on), each with the
            ranks that stop there, such as `0,3`; empty for all.
        target: The proc or the job that this job, of debugger daemons, examines (PMIX_DEBUG_TARGET).
        restarts: How often each rank may be started again; the server of its node knows how often it was.
        debugger: A rank that runs under a debugger, and its command line with that; empty for none.

    Example:
        >>> nodes = (NodeLayout("node1", (0, 1)), NodeLayout("node2", (2, 3)))
        >>> job = JobLayout("job7", (Application(("./worker",), np=4),), nodes)
        >>> job.size, job.proc(3)
        (4, Proc('job7', 3))
    """

    nspace: str
    apps: tuple[Application, ...]
    nodes: tuple[NodeLayout, ...]
    session: int = 0
    tmpdir: str = ""
    wdir: str = ""
    parent: Proc | None = None
    first: int = 0
    others: int = 0
    cluster: str = ""
    policies: tuple[str, ...] = ()
    stops: tuple[tuple[str, str], ...] = ()
    target: Proc | None = None
    debugger: tuple[str, ...] = ()
    restarts: int = 0

    def __validate__(self) -> None:
        if not check_name(self.nspace, MAX_NSLEN, "an nspace"):
            raise ValueError("an nspace must not be empty")
        if not self.apps:
            raise ValueError("a job needs an application")
        for app in self.apps:
            if not isinstance(app, Application):
                raise TypeError(f"the apps of a job are Applications, not {type(app).__name__}")
        if self.debugger and int(self.debugger[0]) >= self.size:
            raise ValueError(f"there is no rank {self.debugger[0]} to debug: the job has ranks 0 to {self.size - 1}")
        if self.size >= RANK_VALID:
            raise OverflowError(f"a job holds less than {RANK_VALID} ranks, not {self.size}")
        names = [node.hostname for node in self.nodes]
        if len(set(names)) != len(names):
            raise ValueError(f"a node is listed twice: {', '.join(names):.200}")
        for node in self.nodes:
            check_local_size((self.first if node.first is None else node.first) + len(node.ranks))
        placed = sorted([rank for node in self.nodes for rank in node.ranks])
        # The size is only claimed; that many numbers may not fit into memory.
        if len(placed) != self.size or placed != list(range(self.size)):
            raise ValueError(
                f"the nodes must hold each of the ranks 0 to {self.size - 1} once; they hold {placed!r:.80}"
            )

    @property
    def size(self) -> int:
        """The number of ranks (PMIX_JOB_SIZE)."""
        return sum([app.np for app in self.apps])

    def proc(self, rank: int) -> Proc:
        """Return the proc of a rank."""
        return Proc.unchecked(self.nspace, rank)

    def slots(self) -> list[Slot]:
        """Return the place of each rank, by rank."""
        places = {
            rank: (number, local)
            for number, node in enumerate(self.nodes)
            for local, rank in enumerate(sorted(node.ranks))
        }
        found: list[Slot] = []
        for number, app in enumerate(self.apps):
            for app_rank in range(app.np):
                rank = len(found)
                found.append(Slot(rank, number, app_rank, *places[rank]))
        return found

    def stopped_ranks(self, key: str) -> tuple[int, ...]:
        """Return the ranks that stop for a debugger at a place, given the key of the place."""
        for name, ranks in self.stops:
            if name == key:
                return tuple(map(int, ranks.split(","))) if ranks else tuple(range(self.size))
        return ()

    def psets(self) -> dict[str, tuple[Proc, ...]]:
        """Return the process sets that the applications name, with their procs."""
        found: dict[str, list[Proc]] = {}
        first = 0
        for app in self.apps:
            if app.pset:
                found.setdefault(app.pset, []).extend([self.proc(rank) for rank in range(first, first + app.np)])
            first += app.np
        return {name: tuple(members) for name, members in found.items()}

    def procdir(self, rank: int) -> str:
        """Return the directory of a rank below `tmpdir`."""
        return f"{self.tmpdir}/{rank}"

    def info(self) -> JobInfo:
        """Return the job info that every client of this job is given when it connects."""
        return JobInfo(
            self.nspace,
            job=tuple(self._job()),
            nodes=tuple([tuple(self._node(number, node)) for number, node in enumerate(self.nodes)]),
            apps=tuple(self._apps()),
            sessions=((attrs.SESSION_ID(self.session), attrs.UNIV_SIZE(self.size + self.others)),),
            procs=self._procs(),
        )

    def _job(self) -> list[Info]:
        # Libraries file the lone keys of the session under the id that they have read by then: it comes
        # first.
        found = [
            attrs.SESSION_ID(self.session),
            attrs.UNIV_SIZE(self.size + self.others),
            attrs.JOB_SIZE(self.size),
            attrs.MAX_PROCS(self.size),
            attrs.JOBID(self.nspace),
            attrs.NUM_NODES(len(self.nodes)),
            attrs.JOB_NUM_APPS(len(self.apps)),
            attrs.NODE_LIST(",".join([node.hostname for node in self.nodes])),
        ]
        if self.cluster:
            found.append(attrs.CLUSTER_ID(self.cluster))
        found += [name(text) for name, text in zip(_POLICIES, self.policies, strict=False)]
        if self.tmpdir:
            found += [attrs.TMPDIR(self.tmpdir), attrs.NSDIR(self.tmpdir), attrs.TDIR_RMCLEAN(True)]
        if self.parent is not None:
            found += [attrs.PARENT_ID(self.parent), attrs.SPAWNED(True)]
        if self.target is not None:
            found.append(attrs.DEBUG_TARGET(self.target))
        # Some clients of libpmix do not read which ranks are meant: all ranks stop, and the host releases the others.
        # Servers of libpmix up to 5.0 wait for all ranks of their node only if this value is a rank.
        everybody = Value(codes.PROC_RANK, RANK_WILDCARD)
        return found + [Info(key, everybody) for key, _ in self.stops]

    def _node(self, number: int, node: NodeLayout) -> list[Info]:
        ranks = sorted(node.ranks)
        found = [
            attrs.NODEID(number if node.number is None else node.number),
            attrs.HOSTNAME(node.hostname),
            attrs.LOCAL_SIZE(len(ranks)),
            attrs.NODE_SIZE(len(ranks) + (self.others if node.others is None else node.others)),
            attrs.LOCAL_PEERS(",".join(map(str, ranks))),
            attrs.LOCAL_PROCS([self.proc(rank) for rank in ranks]),
        ]
        if ranks:
            found.append(attrs.LOCALLDR(ranks[0]))
        if node.cpus and all(node.cpus):
            found.append(attrs.LOCAL_CPUSETS(":".join([node.cpus_of(rank) for rank in ranks])))
        if node.oversubscribed:
            # Set only if true: Open MPI tests for the key, and not its value.
            found.append(attrs.NODE_OVERSUBSCRIBED(True))
        return found

    def _apps(self) -> list[tuple[Info, ...]]:
        nodes_of: list[set[int]] = [set() for _ in self.apps]
        for slot in self.slots():
            nodes_of[slot.app].add(slot.node)
        found: list[tuple[Info, ...]] = []
        first = 0
        for number, app in enumerate(self.apps):
            infos = [
                attrs.APPNUM(number),
                attrs.APP_SIZE(app.np),
                attrs.APPLDR(first),
                attrs.APP_ARGV(" ".join(app.argv)),
                attrs.NUM_NODES(len(nodes_of[number])),
            ]
            if app.pset:
                infos.append(attrs.PSET_NAME(app.pset))
            if app.wdir or self.wdir:
                infos.append(attrs.WDIR(app.wdir or self.wdir))
            found.append(tuple(infos))
            first += app.np
        return found

    def _bindings(self) -> dict[int, tuple[Info, ...]]:
        """Return the infos about the CPUs and the GPUs of the ranks that have any."""
        cpuset = cache(attrs.CPUSET)
        found: dict[int, tuple[Info, ...]] = {}
        for node in self.nodes:
            for rank, text in zip(node.ranks, node.cpus, strict=False):
                if text:
                    found[rank] = (cpuset(text),)
            for rank, names in zip(node.ranks, node.devices, strict=False):
                found[rank] = (*found.get(rank, ()), *_device_infos(node.hostname, names))
        return found

    def _procs(self) -> tuple[tuple[int, tuple[Info, ...]], ...]:
        # There may be 100,000 of them: values that several share are made once, and take memory once.
        apps = [attrs.APPNUM(number) for number in range(len(self.apps))]
        nodes = [
            (attrs.NODEID(number if node.number is None else node.number), attrs.HOSTNAME(node.hostname))
            for number, node in enumerate(self.nodes)
        ]
        firsts = [self.first if node.first is None else node.first for node in self.nodes]
        local_rank, node_rank = cache(attrs.LOCAL_RANK), cache(attrs.NODE_RANK)
        # The Standard defines it for a proc, some clients look it up for the job: both find it.
        spawned = () if self.parent is None else (attrs.PARENT_ID(self.parent), attrs.SPAWNED(True))
        # A host that places ranks by rules starts each of them once, unless the job has restarts; one that starts them
        # itself may start them again.
        first_life = (attrs.REINCARNATION(0),) if self.policies and not self.restarts else ()
        bindings = self._bindings()
        found: list[tuple[int, tuple[Info, ...]]] = []
        for slot in self.slots():
            infos = (
                attrs.RANK(slot.rank),
                apps[slot.app],
                local_rank(slot.local_rank),
                node_rank(firsts[slot.node] + slot.local_rank),
                *nodes[slot.node],
                attrs.GLOBAL_RANK(self.first + slot.rank),
                attrs.APP_RANK(slot.app_rank),
                *first_life,
                *bindings.get(slot.rank, ()),
                *((attrs.PROCDIR(self.procdir(slot.rank)),) if self.tmpdir else ()),
                *spawned,
            )
            found.append((slot.rank, infos))
        return tuple(found)
