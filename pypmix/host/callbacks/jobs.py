"""The jobs of a host: how they are described, registered and started."""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial

from pypmix.engine.select import requested
from pypmix.host.callbacks.manager import HostManager
from pypmix.host.callbacks.processes import REAP, Home, Launched, Processes, Start, check_signal
from pypmix.host.callbacks.watching import Watching
from pypmix.host.folders import temporary_folder, working_directory
from pypmix.host.job import Application, Job, Node, check_local_size, is_sole_proof, new_nspace
from pypmix.host.launch import inherited_environment
from pypmix.host.nodes import usable_cpus
from pypmix.host.running import POLL, RunningJob
from pypmix.host.terms import Terms
from pypmix.requests import proc_tuple
from pypmix.standard.errors import NotInitialized, check_status
from pypmix.standard.ops import Spawn
from pypmix.standard.ops.core import instances
from pypmix.standard.types import MAX_NSLEN, App, Proc, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeVar

    from pypmix.requests import Procs
    from pypmix.server import Server

    T = TypeVar("T")

OPEN = Terms(kept=True, forwarded=True, keep_going=True, stdin=None, separate=True, shown=(False, False))
"""The terms of jobs that a host starts itself: it is told of failures, and decides what to do about them."""


class Jobs(Home):
    """The part of a host that deals with jobs and their processes.

    Args:
        node: The name of this node; None where all ranks of all jobs are here.
        tmpdir: Where the host's folder is made; the system's by default.
        grace: Seconds that processes have between SIGTERM and SIGKILL.
        engine: The engine of the server; None if the environment or the default says it.

    Attributes:
        env: What processes inherit.
        tmpdir: The host's folder.
    """

    server: Server

    def __init__(
        self, node: str | None, tmpdir: str | None, grace: float, offered: frozenset[str] | None, engine: str | None
    ) -> None:
        self.env = inherited_environment(os.environ)
        self.grace = grace
        self.node = node
        self._offered = offered
        self._label = new_nspace(is_sole_proof(requested(engine, os.environ)))
        given = "" if tmpdir is None else os.fsdecode(tmpdir)
        folder = f"pypmix-host-{os.getpid()}-{os.urandom(3).hex()}"
        self.tmpdir = os.path.join(given or temporary_folder(self.env), folder)
        self._manager: HostManager | None = None
        self._launches: list[Launched] = []

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
        if apps is None:
            if np is None:
                if placed is None:
                    raise TypeError("a job needs np, apps or nodes, to know how many ranks it has")
                np = sum([len(node.ranks) for node in placed])
            # An application without a program is known by the name of the job.
            found: tuple[Application, ...] = (Application((nspace,) if argv is None else _words(argv), np, pset=pset),)
        elif np is not None or argv is not None or pset:
            raise TypeError("a job has apps, or np, argv and pset, not both")
        else:
            found = tuple(apps)
        return self._registered(nspace, found, placed, parent, bare=apps is None and argv is None)

    def _registered(
        self,
        nspace: str,
        apps: tuple[Application, ...],
        placed: tuple[Node, ...] | None,
        parent: Proc | None,
        *,
        bare: bool,
    ) -> Job:
        if placed is None:
            for app in apps:
                if not isinstance(app, Application):
                    raise TypeError(f"apps are Applications, not {type(app).__name__}s")
            size = sum([app.np for app in apps])
            check_local_size(size)
            placed = (Node(self.node or socket.gethostname() or "localhost", tuple(range(size))),)
        manager = self._managed()
        number = manager.take_number()
        folder = manager.node.folder(number)
        job = Job(nspace, apps, placed, tmpdir=folder, wdir=working_directory(), parent=parent)
        if len(self.local_ranks(job)) + manager.running > usable_cpus():
            here = [n.replace(oversubscribed=True) if self.node in (None, n.hostname) else n for n in placed]
            job = job.replace(nodes=tuple(here))
        manager.register(self._running(job, number, bare=bare))
        os.makedirs(folder, 0o700, exist_ok=True)
        return job

    def _managed(self) -> HostManager:
        """Return the manager of this host's jobs, which goes by what the host says now."""
        if self._manager is None:
            raise NotInitialized("the host is not open", operation="host", hint="use `async with Host() as rm:`")
        self._manager.env, self._manager.grace = self.env, self.grace
        return self._manager

    def _running(self, job: Job, number: int, *, bare: bool = False) -> RunningJob:
        homes = dict.fromkeys(self.local_ranks(job), self._managed().node)
        terms = OPEN.replace(tell_end=job.parent is not None)
        running = RunningJob(self._managed(), job, number, terms, homes, job.nspace)
        running.bare = bare
        return running

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

    def local_ranks(self, job: Job) -> tuple[int, ...]:
        """Return the ranks of a job that are this host's."""
        if self.node is None:
            return tuple(range(job.size))
        return tuple(sorted([rank for node in job.nodes if node.hostname == self.node for rank in node.ranks]))

    @property
    def jobs(self) -> dict[str, Job]:
        """The jobs that are registered, by nspace."""
        return {} if self._manager is None else {nspace: each.job for nspace, each in self._manager.jobs.items()}

    def forget(self, job: Job | str) -> None:
        """Deregister a job; what `start` has started is deregistered when it is over."""
        if not isinstance(job, str | Job):
            raise TypeError(f"a Job or an nspace is forgotten, not {type(job).__name__}")
        manager = self._managed()
        found = manager.jobs.get(job if isinstance(job, str) else job.nspace)
        if found is not None:
            manager.forget(found)

    def expand(self, procs: Iterable[Proc]) -> list[Proc]:
        """Return procs with each wildcard replaced by the procs of its job; one of an unknown job stays as it is."""
        return list(procs) if self._manager is None else self._manager.whole(procs)

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
        known = self._managed().jobs.get(job.nspace)
        if argv is None and known is not None and known.bare:
            raise ValueError(f"{job.nspace} has no program to run: give `argv` here or to `job`")
        local = self.local_ranks(job)
        chosen = local if ranks is None else tuple(dict.fromkeys(ranks))
        for rank in chosen:
            if rank not in local:
                raise ValueError(f"rank {rank!r} of {job.nspace} is not this host's; those are {local!r:.80}")
        words = () if argv is None else _words(argv)
        extra, folder = dict(env or {}), os.fspath(wdir)
        apps = tuple([_changed(app, words, extra, folder) for app in job.apps])
        return Start(self, partial(self._make, job, chosen, apps, forward_output))

    def _make(
        self, job: Job, ranks: tuple[int, ...], apps: tuple[Application, ...], shown: bool, held: bool = True
    ) -> Launched:
        manager = self._managed()
        running = manager.jobs.get(job.nspace)
        if running is None:
            number = manager.take_number()
            running = self._running(job.replace(tmpdir=manager.node.folder(number)), number)
        for rank in map(running.rank, ranks):
            if rank is not None and rank.alive:
                raise ValueError(f"{rank} runs already")
        manager.started(running)
        running.renew(ranks)
        if not held:
            running.terms = running.terms.replace(tell_end=True)
        launched = Launched(self, running.launch(ranks, OPEN.replace(shown=(shown, shown)), held=held), apps)
        self._launches.append(launched)
        return launched

    async def launch(
        self,
        apps: Sequence[App],
        *,
        near: Proc | None = None,
        nspace: str | None = None,
        forward_output: bool = False,
    ) -> Processes:
        """Start a job on this node that a spawn asks for, and return at once; it is over when its processes have ended.

        Its caller, and others that want it, then get `EventCode.EVENT_JOB_END`, which `wait` of a spawned job waits
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
        plain = tuple([app.replace(info=()) for app in apps])
        return await self.hop(self._launched(plain, near, nspace, forward_output))

    async def _launched(self, apps: tuple[App, ...], parent: Proc | None, nspace: str | None, shown: bool) -> Processes:
        from pypmix.host.directives import read

        manager = self._managed()
        base = manager.wdir or os.sep
        _, found = read(Spawn(apps), self.env, base, manager.next_folder)
        job = self.job(nspace or f"{self._label}@{manager.take_number()}", apps=found, parent=parent)
        launch = self._make(job, self.local_ranks(job), job.apps, shown, held=False)
        await launch.open()
        manager.notices.job_started(launch.running)
        return Processes(launch)

    async def kill(self, procs: Procs, signum: int | None = None, *, status: int | None = None) -> None:
        """End processes that this host has started, or send them a signal.

        Args:
            procs: Which; wildcards and unknown procs are allowed.
            signum: The signal to send. None ends them: SIGTERM, SIGKILL after the grace, and this waits for it.
            status: What `status` of their processes is to say.

        Raises:
            TypeError, ValueError, OverflowError: This is not a signal, or not a status.
        """
        if signum is not None:
            check_signal(signum)
        if status is not None:
            if isinstance(status, bool) or not isinstance(status, int):
                raise TypeError(f"a status is an int, not {type(status).__name__}")
            check_status(status)
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

    # What the processes of a job need, in the loop's thread.

    async def drained(self) -> None:
        """Wait until the output of processes is written, or for the grace."""
        await self._managed().loop.drained(self.grace)

    def launch_over(self, launch: Launched) -> None:
        """Nothing is left of some processes."""
        self._launches.remove(launch)

    def ended(self, proc: Proc, code: int) -> None:
        """Say that a process has ended that this host has not started; from any thread.

        Collectives do not wait for it then, and its event is raised. With the last rank that the job has on
        this host its part of the job has ended, as that of `launch` has: `wait` of a spawned job returns when all hosts
        have ended theirs. The job stays registered until `forget`.

        Args:
            proc: A rank of this host, of a job that is registered.
            code: What it exited with, or the negative number of the signal that ended it.

        Raises:
            TypeError, ValueError: This is not an exit code, or not a rank of this host.
        """
        if not isinstance(proc, Proc) or type(code) is not int:
            raise TypeError(f"a Proc ends with an int, not {type(proc).__name__} with {type(code).__name__}")
        manager = self._managed()
        if manager.find(proc) is None:
            raise ValueError(f"{proc} is not a rank here of a job that is registered")
        if manager.has_started(proc.nspace):
            raise ValueError(f"{proc.nspace} was started by this host, which sees its ends itself")
        manager.loop.post(lambda: self._ended(proc, code))

    def _ended(self, proc: Proc, code: int) -> None:
        found = self._managed().find(proc)
        if found is not None and not found[1].over:
            job, rank = found
            job.terms = job.terms.replace(tell_end=True)
            job.ended_elsewhere(rank, code)

    def _open_jobs(self, loop: asyncio.AbstractEventLoop) -> None:
        self._manager = HostManager(
            Watching(loop),
            self.server,
            hostname=self.node or socket.gethostname() or "localhost",
            env=self.env,
            tmpdir=self.tmpdir,
            space=self._label,
            grace=self.grace,
            offered=self._offered,
        )
        # From here on, since a host that is killed is to leave no folder either.
        self._manager.open_folder()

    async def _end_jobs(self) -> None:
        """End all processes and deregister nothing: the server goes too."""
        await asyncio.gather(*[launch.close() for launch in self._launches], return_exceptions=True)
        await self._end_spawned()

    async def _end_spawned(self) -> None:
        """End the jobs that procs have spawned and that no block of `start` holds."""
        manager = self._managed()
        manager.close()
        deadline = self.loop.time() + self.grace + REAP
        while any(job.launches for job in manager.jobs.values()) and self.loop.time() < deadline:
            await asyncio.sleep(POLL)
        await self.drained()

    def _close_jobs(self) -> None:
        """Let go of what jobs needed, once the server is closed."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close_folder()


def _changed(app: Application, argv: tuple[str, ...], env: Mapping[str, str], wdir: str) -> Application:
    """Return an application with another command, variables on top of its own, and another folder, where given."""
    return app.replace(
        argv=argv or app.argv,
        program="" if argv else app.program,
        env=(*app.env, *env.items()),
        wdir=wdir or app.wdir,
        unset=tuple([name for name in app.unset if name not in env]),
    )


def _words(argv: Sequence[str]) -> tuple[str, ...]:
    if isinstance(argv, str | bytes):
        raise TypeError(f"a command is a list of words, not the string {argv!r:.80}")
    if not hasattr(argv, "__iter__"):
        raise TypeError(f"a command is a list of words, not {type(argv).__name__}")
    words = tuple([os.fspath(word) for word in argv])
    if not words:
        raise ValueError("a command is a list of words that begins with the program; this one is empty")
    return words
