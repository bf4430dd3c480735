"""The jobs of a host: how they are described, registered and started."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
from functools import partial

from pypmix.host.callbacks.processes import Launch, Processes, Start
from pypmix.host.callbacks.watching import Watching
from pypmix.host.folders import remove, temporary_folder, working_directory
from pypmix.host.guard import Guard
from pypmix.host.job import Application, Job, Node, check_local_size, secret
from pypmix.host.launch import inherited_environment
from pypmix.host.nodes import usable_cpus
from pypmix.host.output import Sink
from pypmix.requests import proc_tuple
from pypmix.standard.errors import NotFound, NotInitialized, NotSupported, PMIxError
from pypmix.standard.logtext import get_logger
from pypmix.standard.ops.core import instances
from pypmix.standard.types import MAX_NSLEN, RANK_WILDCARD, App, Proc, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from pypmix.engine.base import Upcall
    from pypmix.host.callbacks.ends import Ends
    from pypmix.host.exchange import Crossing
    from pypmix.requests import Procs
    from pypmix.server import Server

    T = TypeVar("T")

LINGER = 2.0
"""Seconds for which the server knows a job that has ended: what its procs sent last may still be on its way."""

FORWARDING = frozenset(("iof_pull", "iof_deregister", "iof_push"))
"""Operations about output and input that are answered where a host has no method for them."""

MAX_RAN = 4096
"""How many jobs it is remembered of that they have run here."""

_log = get_logger("pypmix.host")


class Jobs:
    """The part of a host that deals with jobs and their processes.

    Args:
        node: The name of this node; None where all ranks of all jobs are here.
        tmpdir: Where the host's folder is made; the system's by default.
        grace: Seconds that processes have between SIGTERM and SIGKILL.

    Attributes:
        env: What processes inherit.
        tmpdir: The host's folder.
    """

    server: Server
    _ends: Ends
    _crossing: Crossing | None = None

    def __init__(self, node: str | None, tmpdir: str | None, grace: float) -> None:
        self.env = inherited_environment(os.environ)
        self.grace = grace
        self.node = node
        self._label = f"pypmix-host-{os.getpid()}-{secret()}"
        given = "" if tmpdir is None else os.fsdecode(tmpdir)
        folder = f"pypmix-host-{os.getpid()}-{os.urandom(3).hex()}"
        self.tmpdir = os.path.join(given or temporary_folder(self.env), folder)
        self._watching: Watching | None = None
        self._guard: Guard | None = None
        self._sinks: dict[int, Sink] = {}
        self._jobs: dict[str, Job] = {}
        self._numbers = itertools.count(1)
        self._bare: set[str] = set()
        self._launches: list[Launch] = []
        self._background: set[asyncio.Task[None]] = set()
        self._lingering: dict[str, asyncio.TimerHandle] = {}
        self._psets: dict[str, list[str]] = {}
        """The process sets that jobs have come with, by nspace."""
        self._over: set[str] = set()
        """Jobs of which nothing is left on any host, while they are registered here."""
        self._running: dict[str, set[Proc]] = {}
        """The procs of jobs that somebody else has started here, which have not ended."""
        self._ran: dict[str, None] = {}
        """Jobs that have been started here, the last of them."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the host's handlers."""
        raise NotImplementedError

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the host's loop and block until it has ended."""
        raise NotImplementedError

    async def hop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the host's loop, from any loop."""
        raise NotImplementedError

    def job(
        self,
        nspace: str,
        np: int | None = None,
        argv: Sequence[str] | None = None,
        *,
        apps: Iterable[Application] | None = None,
        nodes: Mapping[str, Iterable[int]] | Iterable[Node] | None = None,
        parent: Proc | None = None,
        pset: str = "",
    ) -> Job:
        """Describe a job, register it with the server and return it.

        Args:
            nspace: Its namespace.
            np: The number of its ranks; as many as the nodes hold, by default.
            argv: What its ranks run; it may be left to `start`.
            apps: Its applications, where they are several, instead of `np` and `argv`.
            nodes: Its nodes, by name, with their ranks; this node with all ranks by default. Where this one gets more
                procs than it has CPUs for, they are told so (PMIX_NODE_OVERSUBSCRIBED).
            parent: The proc that has spawned it.
            pset: The process set that its ranks are; of `apps` each names its own. It ends with the job.

        Raises:
            TypeError, ValueError, OverflowError: This describes no job.
            PMIxError: The nspace is registered already, or there is such a process set (`ERR_EXISTS`).
        """
        if not check_name(nspace, MAX_NSLEN, "an nspace"):
            raise ValueError("an nspace must not be empty")
        if parent is not None and not isinstance(parent, Proc):
            raise TypeError(f"the parent of a job is a Proc, not {type(parent).__name__}")
        placed = self._nodes(nodes)
        if apps is not None:
            if np is not None or argv is not None or pset:
                raise TypeError("a job has apps, or np, argv and pset, not both")
            found = tuple(apps)
        else:
            if np is None:
                if placed is None:
                    raise TypeError("a job needs np, apps or nodes, to know how many ranks it has")
                np = sum([len(node.ranks) for node in placed])
            # What nobody has named yet is known by the name of the job.
            found = (Application(_words(argv) if argv is not None else (nspace,), np, pset=pset),)
        if placed is None:
            for app in found:
                if not isinstance(app, Application):
                    raise TypeError(f"apps are Applications, not {type(app).__name__}s")
            size = sum([app.np for app in found])
            check_local_size(size)
            placed = (Node(self.node or socket.gethostname() or "localhost", tuple(range(size))),)
        folder = os.path.join(self.tmpdir, f"job-{next(self._numbers)}")
        job = Job(nspace, found, placed, tmpdir=folder, wdir=working_directory(), parent=parent)
        if len(self.local_ranks(job)) + self._started() > usable_cpus():
            here = [n.replace(oversubscribed=True) if self.node in (None, n.hostname) else n for n in placed]
            job = job.replace(nodes=tuple(here))
        self._register(job)
        if apps is None and argv is None:
            self._bare.add(nspace)
        else:
            self._bare.discard(nspace)
        return job

    def _started(self) -> int:
        """Return how many processes run here that this host has started."""
        return sum([rank.alive for launch in self._launches for rank in launch.ranks])

    @staticmethod
    def _nodes(nodes: Mapping[str, Iterable[int]] | Iterable[Node] | None) -> tuple[Node, ...] | None:
        if nodes is None:
            return None
        if hasattr(nodes, "items"):
            for name, ranks in nodes.items():
                if isinstance(ranks, str | bytes) or not hasattr(ranks, "__iter__"):
                    raise TypeError(f"the ranks of node {name!r} are ints in a list, not {type(ranks).__name__}")
            return tuple([Node(name, tuple(ranks)) for name, ranks in nodes.items()])
        if isinstance(nodes, str | bytes) or not hasattr(nodes, "__iter__"):
            raise TypeError(f"nodes are a mapping of names to ranks, or Nodes, not {type(nodes).__name__}")
        found = tuple(nodes)
        for node in found:
            if not isinstance(node, Node):
                raise TypeError(f"nodes are a mapping of names to ranks, or Nodes, not {type(node).__name__}s")
        return found

    def _register(self, job: Job) -> None:
        timer = self._lingering.pop(job.nspace, None)
        if timer is not None:
            timer.cancel()
            self._forget(job.nspace)
        described = job.info()
        if self._crossing is not None:
            places = {rank: node.hostname for node in job.nodes for rank in node.ranks}
            self._crossing.register(described, places)
        try:
            self.server.register_nspace(described, self.local_ranks(job))
        except BaseException:
            if self._crossing is not None and job.nspace not in self._jobs:
                self._crossing.deregister(job.nspace)
            raise
        self._jobs[job.nspace] = job
        self._ran.pop(job.nspace, None)
        self._over.discard(job.nspace)
        try:
            for name, members in job.psets().items():
                self.define_process_set(name, members)
                self._psets.setdefault(job.nspace, []).append(name)
        except BaseException:
            self._drop_psets(job.nspace)
            self._forget(job.nspace)
            raise
        if job.tmpdir:
            os.makedirs(job.tmpdir, 0o700, exist_ok=True)

    def define_process_set(self, name: str, members: Procs) -> None:
        """`PMIx_server_define_process_set`: make a process set known to the clients of this session."""
        raise NotImplementedError

    def delete_process_set(self, name: str) -> None:
        """`PMIx_server_delete_process_set`: forget a process set."""
        raise NotImplementedError

    def _job_over(self, nspace: str) -> None:
        """Nothing of a job is left on any host of the exchange; from any thread."""
        if nspace in self._jobs:
            self._over.add(nspace)
        else:
            self._drop_psets(nspace)

    def _drop_psets(self, nspace: str) -> None:
        for name in self._psets.pop(nspace, ()):
            try:
                self.delete_process_set(name)
            except (NotFound, NotInitialized):
                # Another host was faster, or the author of this one.
                continue

    def local_ranks(self, job: Job) -> tuple[int, ...]:
        """Return the ranks of a job that are this host's."""
        if self.node is None:
            return tuple(range(job.size))
        return tuple(sorted([rank for node in job.nodes if node.hostname == self.node for rank in node.ranks]))

    @property
    def jobs(self) -> dict[str, Job]:
        """The jobs that are registered, by nspace."""
        return dict(self._jobs)

    def forget(self, job: Job | str) -> None:
        """Deregister a job; what `start` has started is deregistered when it is over."""
        if not isinstance(job, str | Job):
            raise TypeError(f"a Job or an nspace is forgotten, not {type(job).__name__}")
        self._forget(job if isinstance(job, str) else job.nspace)

    def _forget(self, nspace: str) -> None:
        self._lingering.pop(nspace, None)
        self._running.pop(nspace, None)
        if self._jobs.pop(nspace, None) is not None:
            # With an exchange, others may still run procs of it.
            if self._crossing is None or nspace in self._over:
                self._over.discard(nspace)
                self._drop_psets(nspace)
            self.server.deregister_nspace(nspace)
            if self._crossing is not None:
                self._crossing.deregister(nspace)

    def expand(self, procs: Iterable[Proc]) -> list[Proc]:
        """Return procs with each wildcard replaced by the procs of its job; one of an unknown job stays as it is."""
        found: dict[Proc, None] = {}
        for proc in procs:
            job = self._jobs.get(proc.nspace)
            if proc.rank == RANK_WILDCARD and job is not None:
                found.update(dict.fromkeys([job.proc(rank) for rank in range(job.size)]))
            else:
                found[proc] = None
        return list(found)

    # Processes

    def start(
        self,
        job: Job,
        argv: Sequence[str] | None = None,
        *,
        ranks: Iterable[int] | None = None,
        forward_output: bool = False,
        env: Mapping[str, str] | None = None,
        wdir: str | os.PathLike[str] = "",
    ) -> Start:
        """Start the processes of a job, as `async with rm.start(...) as procs:`, or with `with` outside of the loop.

        They run in process groups of their own, without input. What they write is delivered to the server for those who
        pull it. Leaving the block ends those that run, with what they have left in their process groups: SIGTERM, and
        SIGKILL after the grace; and it deregisters the job.

        Args:
            job: The job.
            argv: What they run; the job's applications by default.
            ranks: Which ranks; all of this host by default.
            forward_output: Pass what they write on to this process's output, in whole lines.
            env: What their environment has on top of this process's.
            wdir: Where they run.

        Returns:
            A context manager; `OSError` on entering it means that they cannot be started.

        Raises:
            TypeError, ValueError: A rank is not this host's, or an argument makes no sense.
        """
        if not isinstance(job, Job):
            raise TypeError(f"a Job is started, not a {type(job).__name__}; `rm.job(...)` makes one")
        if argv is None and job.nspace in self._bare:
            raise ValueError(f"nobody has said what {job.nspace} is to run: give `argv` here or to `job`")
        local = self.local_ranks(job)
        chosen = local if ranks is None else tuple(ranks)
        for rank in chosen:
            if rank not in local:
                raise ValueError(f"rank {rank!r} of {job.nspace} is not this host's; those are {local!r:.80}")
        words = None if argv is None else _words(argv)
        extra = dict(env or {})
        # Its own checks of words and variables.
        Application(words or job.apps[0].argv, env=tuple(extra.items()), wdir=os.fspath(wdir))
        return Start(self, partial(self._make, job, chosen, words, extra, os.fspath(wdir), forward_output))

    def _make(
        self,
        job: Job,
        ranks: tuple[int, ...],
        argv: tuple[str, ...] | None,
        env: dict[str, str],
        wdir: str,
        shown: bool,
        told: bool = False,
    ) -> Launch:
        timer = self._lingering.pop(job.nspace, None)
        if timer is not None:
            timer.cancel()
        if job.nspace not in self._jobs:
            self._register(job)
        return Launch(self, job, ranks, argv, env, wdir, shown, told or job.parent is not None)

    async def launch(
        self,
        apps: Sequence[App],
        *,
        near: Proc | None = None,
        nspace: str | None = None,
        forward_output: bool = False,
    ) -> Processes:
        """Start a job on this node that a spawn asks for, and return at once; it is over when its processes have ended.

        Then its caller, and whoever else wants to, hears `EventCode.EVENT_JOB_END`, which `wait` of a spawned job waits
        for. It has the job's exit code: that of the first process that failed, or what stands for the status of `kill`.

        Args:
            apps: The applications as the request has them; their infos are not looked at.
            near: The proc that has asked: the job's parent.
            nspace: The job's namespace; made up by default.
            forward_output: Pass what they write on to this process's output.

        Raises:
            OSError: They cannot be started.
        """
        for app in apps:
            if not isinstance(app, App):
                raise TypeError(f"apps are Apps, as a spawn has them, not {type(app).__name__}s")
        found = tuple([_application(app) for app in apps])
        return await self.hop(self._launched(found, near, nspace, forward_output))

    async def _launched(
        self, apps: tuple[Application, ...], parent: Proc | None, nspace: str | None, shown: bool
    ) -> Processes:
        job = self.job(nspace or f"{self._label}@{next(self._numbers)}", apps=apps, parent=parent)
        launch = self._make(job, self.local_ranks(job), None, {}, "", shown, told=True)
        await launch.open()
        self._ends.here.started(job.nspace, told=False)

        async def watch() -> None:
            try:
                await launch.wait()
            finally:
                await launch.close()

        task = self.loop.create_task(watch())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return Processes(launch)

    async def kill(self, procs: Procs, signum: int | None = None, *, status: int | None = None) -> None:
        """End processes that this host has started, or send them a signal.

        Args:
            procs: Which; wildcards and unknown procs are allowed.
            signum: The signal to send. None ends them: SIGTERM, SIGKILL after the grace, and this waits for it.
            status: What `status` of their processes is to say.
        """
        if signum is not None and signum not in signal.valid_signals():
            raise ValueError(f"{signum!r} is no signal")
        given = proc_tuple(procs)
        instances("procs", given, Proc)
        named = set(self.expand(given))
        await self.hop(self._kill(named, signum, status))

    async def _kill(self, procs: set[Proc], signum: int | None, status: int | None) -> None:
        chosen = [(launch, [rank for rank in launch.ranks if rank.proc in procs]) for launch in self._launches]
        if signum is None:
            await asyncio.gather(*[launch.end_ranks(ranks, status) for launch, ranks in chosen if ranks])
            return
        for launch, ranks in chosen:
            launch.send(signum, ranks)

    def _forward(self, upcall: Upcall) -> None:
        """Answer who wants output or gives input; on the engine's thread. All output goes to the server in any case."""
        op: Any = upcall.op
        try:
            if op.name == "iof_push":
                raise NotSupported("processes that this host starts have no input", operation=op.name, procs=op.procs)
            for proc in getattr(op, "procs", ()):
                self._check_output(proc)
        except PMIxError as error:
            upcall.fail(error)
        else:
            upcall.reply()

    def _check_output(self, proc: Proc) -> None:
        """Raise the reason why the output of procs does not come to this server."""
        nspace, rank = proc
        if not nspace:
            return
        job = self._jobs.get(nspace)
        if job is not None:
            wanted = range(job.size) if rank == RANK_WILDCARD else (rank,)
            local = set(self.local_ranks(job))
            there = [each.hostname for each in job.nodes if not local.issuperset(set(each.ranks).intersection(wanted))]
            if there:
                raise NotSupported(
                    f"output is told on the node of its procs alone, and some are on {', '.join(there)}",
                    operation="iof_pull",
                    procs=(proc,),
                    hint="name the procs of one node, to a client or a tool there",
                )
        if nspace not in self._ran:
            detail = "this host has not started these procs" if job is not None else "this host has no such job"
            raise (NotSupported if job is not None else NotFound)(detail, operation="iof_pull", procs=(proc,))

    # What the processes of a job need, in the loop's thread.

    @property
    def watching(self) -> Watching:
        """What streams are watched by."""
        assert self._watching is not None
        return self._watching

    def sink(self, number: int) -> Sink:
        """Return where output for this process's own stdout (1) or stderr (2) goes."""
        if number not in self._sinks:
            other = self._sinks.get(3 - number)
            # Two sinks on one pipe would write into each other's lines.
            same = other is not None and os.path.sameopenfile(1, 2)
            self._sinks[number] = other if other is not None and same else Sink(self.watching, number, _unwritable)
        return self._sinks[number]

    def guard_group(self, group: int) -> None:
        """Have a process group ended even if this process is killed."""
        assert self._guard is not None
        self._guard.add(group)

    def forget_group(self, group: int) -> None:
        """This process group is no more."""
        if self._guard is not None:
            self._guard.remove(group)

    def launched(self, launch: Launch) -> None:
        """Processes are about to be started."""
        self._launches.append(launch)
        nspace = launch.job.nspace
        self._ran[nspace] = None
        if len(self._ran) > MAX_RAN:
            del self._ran[next(iter(self._ran))]
        self._ends.begin(nspace, self._parts_of(launch.job), launch.told)

    def begun(self, launch: Launch, error: BaseException | None) -> None:
        """Processes have been started, or could not be."""
        self._ends.begun(launch.job.nspace, error)

    def killed(self, launch: Launch, status: int) -> None:
        """Processes are being ended with a status."""
        self._ends.killed(launch.job.nspace, status)

    def rank_over(self, proc: Proc, code: int) -> None:
        """A process has ended."""
        self.server.deregister_client(proc)
        self._departed(proc)
        self._ends.rank_ended(proc, code)

    def _parts_of(self, job: Job) -> list[str]:
        """Return the names of the nodes that have ranks of a job."""
        return [node.hostname for node in job.nodes if node.ranks]

    def ended(self, proc: Proc, code: int) -> None:
        """Say that a process has ended which somebody else has started; from any thread.

        Nobody waits for it any more, and those who want to hear of its end do. With the last rank that the job has on
        this host its part of the job has ended, as that of `launch` has: `wait` of a spawned job returns when all hosts
        have ended theirs. The job stays registered until `forget`.

        Args:
            proc: A rank of this host, of a job that is registered.
            code: What it exited with, or the negative number of the signal that ended it.

        Raises:
            TypeError, ValueError: This is no exit code, or no rank of this host.
        """
        if not isinstance(proc, Proc) or type(code) is not int:
            raise TypeError(f"a Proc ends with an int, not {type(proc).__name__} with {type(code).__name__}")
        job = self._jobs.get(proc.nspace)
        if job is None or proc.rank not in self.local_ranks(job):
            raise ValueError(f"{proc} is no rank of a job that is registered here")
        if proc.nspace in self._ran:
            raise ValueError(f"{proc.nspace} was started by this host, which sees its ends itself")
        self.loop.call_soon_threadsafe(self._ended, job, proc, code)

    def _ended(self, job: Job, proc: Proc, code: int) -> None:
        nspace = job.nspace
        if nspace not in self._running:
            self._running[nspace] = {job.proc(rank) for rank in self.local_ranks(job)}
            self._ends.begin(nspace, self._parts_of(job), told=True)
            self._ends.begun(nspace, None)
        if proc in self._running[nspace]:
            self._running[nspace].discard(proc)
            self.rank_over(proc, code)
            if not self._running[nspace]:
                del self._running[nspace]
                self._ends.part_ended(nspace)

    def _departed(self, proc: Proc) -> None:
        if self._crossing is not None:
            self._crossing.departed(proc)

    def launch_over(self, launch: Launch) -> None:
        """Nothing is left of some processes."""
        self._launches.remove(launch)
        nspace = launch.job.nspace
        if not any(other.job.nspace == nspace for other in self._launches):
            self._ends.part_ended(nspace)
            self._lingering[nspace] = self.loop.call_later(LINGER, self._forget, nspace)

    def _open_jobs(self, loop: asyncio.AbstractEventLoop) -> None:
        os.mkdir(self.tmpdir, 0o700)
        # From here on, since a host that is killed is to leave no folder either.
        self._guard = Guard(self.tmpdir)
        self._watching = Watching(loop)

    async def _end_jobs(self) -> None:
        """End all processes and deregister nothing: the server goes too."""
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*[launch.close() for launch in self._launches], return_exceptions=True)
        for timer in self._lingering.values():
            timer.cancel()

    def _close_jobs(self) -> None:
        """Let go of what jobs needed, once the server is closed."""
        for sink in self._sinks.values():
            sink.abandon()
        remove(self.tmpdir)
        if self._guard is not None:
            self._guard.dismiss()
        self._guard = None
        self._sinks = {}
        self._jobs = {}
        self._lingering = {}
        self._psets = {}
        self._over = set()
        self._running = {}


def _words(argv: Sequence[str]) -> tuple[str, ...]:
    if isinstance(argv, str | bytes):
        raise TypeError(f"a command is a list of words, not the string {argv!r:.80}")
    if not hasattr(argv, "__iter__"):
        raise TypeError(f"a command is a list of words, not {type(argv).__name__}")
    return tuple([os.fspath(word) for word in argv])


def _application(app: App) -> Application:
    program = app.cmd or app.argv[0]
    argv = app.argv
    # The name of the program may be left out of its arguments; libraries put it there too.
    if not argv or os.path.basename(argv[0]) != os.path.basename(program):
        argv = (os.path.basename(program), *argv)
    env = []
    for setting in app.env:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"the environment holds NAME=VALUE, not {setting!r:.80}")
        env.append((name, value))
    return Application(argv, app.maxprocs, tuple(env), app.cwd or "", program)


def _unwritable(error: OSError) -> None:
    _log.error("the output of processes cannot be written any more: %s", error.strerror)
