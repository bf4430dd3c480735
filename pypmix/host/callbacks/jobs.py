"""The jobs of a user's `Host`: their description, registration and start.

There are two ways for the ranks of a job to start. A host that starts them itself registers the job (`start`) and
reports each end (`report_end`). Otherwise it lets `launch` start them, with the launcher's own classes (`HostManager`,
`RunningJob`), which watch their ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
from functools import partial

from pypmix.arguments import proc_tuple
from pypmix.engine.select import requested
from pypmix.host.callbacks.manager import HostManager
from pypmix.host.callbacks.processes import REAP, Home, Launched, Processes, Start, check_signal, run_in_loop
from pypmix.host.callbacks.watching import Watching
from pypmix.host.folders import temporary_folder, working_directory
from pypmix.host.job import Application, JobLayout, NodeLayout, check_local_size, is_sole_proof, new_nspace
from pypmix.host.launch import inherited_environment
from pypmix.host.machine import POLL, Machine
from pypmix.host.nodes import usable_cpus
from pypmix.host.running import RunningJob
from pypmix.host.terms import Terms
from pypmix.standard.errors import NotInitialized, check_status
from pypmix.standard.ops import Spawn
from pypmix.standard.ops.core import instances
from pypmix.standard.types import MAX_NSLEN, App, Proc, check_integer, check_name
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeVar

    from pypmix.arguments import Infos, Procs
    from pypmix.server import Server
    from pypmix.standard.types import Info

    T = TypeVar("T")

OPEN = Terms(kept=True, forwarded=True, keep_going=True, stdin=None, separate=True, shown=(False, False))
"""The terms of jobs that a host starts itself: failures are reported to it, and it decides what to do."""


class Jobs(Home):
    """The part of a host that deals with jobs and their processes.

    Args:
        node: The name of this node; None if all ranks of all jobs are here.
        tmpdir: The folder in which the host's folder is created; the system's temporary folder by default.
        grace: Seconds that processes have between SIGTERM and SIGKILL.
        engine: The engine of the server; None for the engine of the environment or the default.

    Attributes:
        env: The environment that processes inherit.
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
        nodes: Mapping[str, Iterable[int]] | Iterable[NodeLayout] | None = None,
        parent: Proc | None = None,
        pset: str = "",
    ) -> JobLayout:
        """Describe a job, register it with the server and return it.

        Args:
            nspace: The namespace of the job.
            np: The number of ranks; by default the number of ranks of `nodes`.
            argv: The command that the ranks run; it may be given to `start` instead.
            apps: The applications of the job, if it has several, instead of `np` and `argv`.
            nodes: The nodes, by name, with their ranks; this node with all ranks by default. If this node gets more
                procs than it has CPUs, the job info says so (PMIX_NODE_OVERSUBSCRIBED).
            parent: The proc that has spawned the job.
            pset: The process set of the job's ranks; each of `apps` names a separate set. It ends with the job.

        Raises:
            TypeError, ValueError, OverflowError: The arguments do not describe a job.
            PMIxError: The nspace is registered already, or the process set exists already (`ERR_EXISTS`).

        Example:
            >>> job = host.job("job2", np=4, argv=["./worker", "--fast"], pset="workers")
        """
        _check_origin(nspace, parent)
        placed = self._nodes(nodes)
        if apps is None:
            if np is None:
                if placed is None:
                    raise TypeError("a job needs np, apps or nodes, to know how many ranks it has")
                np = sum([len(node.ranks) for node in placed])
            np = check_integer(np, "the number of ranks")
            # An application without a program is named after the job.
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
        placed: tuple[NodeLayout, ...] | None,
        parent: Proc | None,
        *,
        bare: bool = False,
        stops: tuple[tuple[str, str], ...] = (),
    ) -> JobLayout:
        if placed is None:
            for app in apps:
                if not isinstance(app, Application):
                    raise TypeError(f"apps are Applications, not {type(app).__name__}s")
            size = sum([app.np for app in apps])
            check_local_size(size)
            placed = (NodeLayout(self.node or socket.gethostname() or "localhost", tuple(range(size))),)
        manager = self._managed()
        number = manager.take_number()
        folder = manager.node.folder(number)
        wdir = working_directory()
        job = JobLayout(nspace, apps, placed, tmpdir=folder, wdir=wdir, parent=parent, stops=stops)
        if len(self.local_ranks(job)) + manager.running > usable_cpus():
            here = [n.replace(oversubscribed=True) if self.node in (None, n.hostname) else n for n in placed]
            job = job.replace(nodes=tuple(here))
        manager.register(self._running(job, number, bare=bare))
        os.makedirs(folder, 0o700, exist_ok=True)
        return job

    def _managed(self) -> HostManager:
        """Return the manager of this host's jobs, with the host's current `env` and `grace`."""
        if self._manager is None:
            raise NotInitialized("the host is not open", operation="host", hint="use `async with Host() as rm:`")
        self._manager.machine.env, self._manager.grace = self.env, self.grace
        return self._manager

    def _running(self, job: JobLayout, number: int, *, bare: bool = False) -> RunningJob:
        homes = dict.fromkeys(self.local_ranks(job), self._managed().node)
        terms = OPEN.replace(tell_end=job.parent is not None)
        running = RunningJob(self._managed(), job, number, terms, homes, job.nspace)
        running.bare = bare
        return running

    @staticmethod
    def _nodes(
        nodes: Mapping[str, Iterable[int]] | Iterable[NodeLayout] | None,
    ) -> tuple[NodeLayout, ...] | None:
        if nodes is None:
            return None
        if hasattr(nodes, "items"):
            for name, ranks in nodes.items():
                if isinstance(ranks, str | bytes) or not hasattr(ranks, "__iter__"):
                    raise TypeError(f"the ranks of node {name!r} are ints in a list, not {type(ranks).__name__}")
            ints = {name: tuple([check_integer(rank, "a rank") for rank in ranks]) for name, ranks in nodes.items()}
            return tuple([NodeLayout(name, ranks) for name, ranks in ints.items()])
        if isinstance(nodes, str | bytes) or not hasattr(nodes, "__iter__"):
            raise TypeError(f"nodes are a mapping of names to ranks, or Nodes, not {type(nodes).__name__}")
        found = tuple(nodes)
        for node in found:
            if not isinstance(node, NodeLayout):
                raise TypeError(f"nodes are a mapping of names to ranks, or Nodes, not {type(node).__name__}s")
        return found

    def local_ranks(self, job: JobLayout) -> tuple[int, ...]:
        """Return the ranks of a job on this host.

        Example:
            >>> host.local_ranks(host.job("job2", np=2))
            (0, 1)
        """
        if self.node is None:
            return tuple(range(job.size))
        return tuple(sorted([rank for node in job.nodes if node.hostname == self.node for rank in node.ranks]))

    @property
    def jobs(self) -> dict[str, JobLayout]:
        """The jobs that are registered, by nspace."""
        return {} if self._manager is None else {nspace: each.job for nspace, each in self._manager.jobs.items()}

    def forget(self, job: JobLayout | str) -> None:
        """Deregister a job; a job of `start` is deregistered when its processes have ended.

        Example:
            >>> job = host.job("job2", np=2)
            >>> host.forget(job)
        """
        if not isinstance(job, str | JobLayout):
            raise TypeError(f"a JobLayout or an nspace is forgotten, not {type(job).__name__}")
        manager = self._managed()
        found = manager.jobs.get(job if isinstance(job, str) else job.nspace)
        if found is not None:
            manager.forget(found)

    def expand(self, procs: Iterable[Proc]) -> list[Proc]:
        """Return procs with each wildcard replaced by the procs of its job; wildcards of unknown jobs are kept.

        Example:
            >>> host.expand([Proc("job1", Rank.WILDCARD)])
            [Proc('job1', 0), Proc('job1', 1)]
        """
        return list(procs) if self._manager is None else self._manager.whole(procs)

    # Processes

    def start(
        self,
        job: JobLayout,
        argv: Sequence[str] | None = None,
        *,
        ranks: Iterable[int] | None = None,
        forward_output: bool = False,
        env: Mapping[str, str] | None = None,
        wdir: str | os.PathLike[str] = "",
    ) -> Start:
        """Start the processes of a job, as `async with rm.start(...) as procs:`, or with `with` outside of the loop.

        Each process runs in a separate process group, without input. Its output is delivered to the server for clients
        and tools that pull it. At the end of the block, the running processes and all others in their process groups
        are ended: by SIGTERM, and by SIGKILL after the grace. Then the job is deregistered.

        Args:
            job: The job.
            argv: The command that the processes run; the job's applications by default.
            ranks: The ranks to start; all ranks on this host by default.
            forward_output: Forward the output of the processes to this process's output, in whole lines.
            env: Variables to add to the environment of the processes.
            wdir: The working directory of the processes.

        Returns:
            A context manager; entering it raises `OSError` if the processes cannot be started.

        Raises:
            TypeError, ValueError: A rank is not on this host, or an argument is not valid.

        Example:
            >>> job = host.job("job2", np=2)
            >>> with host.start(job, ["sleep", "60"], env={"OMP_NUM_THREADS": "2"}) as processes:
            ...     processes.signal(15)
            ...     codes = processes.wait(timeout=60)
        """
        if not isinstance(job, JobLayout):
            raise TypeError(f"a JobLayout is started, not a {type(job).__name__}; `rm.job(...)` makes one")
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
        self,
        job: JobLayout,
        ranks: tuple[int, ...],
        apps: tuple[Application, ...],
        shown: bool,
        waiting: bool = True,
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
        if not waiting:
            running.terms = running.terms.replace(tell_end=True)
        launch = running.launch(ranks, OPEN.replace(shown=(shown, shown)), keep_strays=waiting)
        launched = Launched(self, manager.loop, launch, apps)
        self._launches = [*self._running_launches(), launched]
        return launched

    def _running_launches(self) -> list[Launched]:
        return [launch for launch in self._launches if not launch.is_over]

    async def launch(
        self,
        apps: Sequence[App],
        *,
        near: Proc | None = None,
        nspace: str | None = None,
        forward_output: bool = False,
        directives: Infos = None,
    ) -> Processes:
        """Start a job for a spawn on this node, and return at once; the job ends when its processes have ended.

        The caller of the spawn, and others that have registered for it, then get `EventCode.EVENT_JOB_END`; `wait` of a
        spawned job waits for it. The event has the job's exit code: the exit code of the first process that failed, or
        the code for the status of `kill`.

        Ranks stop for a debugger as the infos of the applications and the directives say (PMIX_DEBUG_STOP_IN_INIT,
        PMIX_DEBUG_STOP_ON_EXEC, PMIX_DEBUG_STOP_IN_APP, PMIX_BREAKPOINT). All other infos and directives are ignored.
        `default(request)` follows all of them, and starts debugger daemons too.

        Args:
            apps: The applications of the request.
            near: The proc that called spawn: the job's parent.
            nspace: The job's namespace; generated by default.
            forward_output: Forward the output of the processes to this process's output.
            directives: The directives of the spawn; by default those of the unanswered request that an application
                belongs to.

        Raises:
            OSError: The processes cannot be started.
            NotSupported: The spawn is for debugger daemons.

        Example:
            >>> class Manager(Host):
            ...     async def spawn(self, request):
            ...         processes = await self.launch(request.apps, near=request.requestor)
            ...         return processes.nspace
        """
        for app in apps:
            if not isinstance(app, App):
                raise TypeError(f"apps are Apps, as a spawn has them, not {type(app).__name__}s")
        given = self._directives_of(apps) if directives is None else infos(directives)
        return await run_in_loop(self, self._launched(Spawn(tuple(apps), given), near, nspace, forward_output))

    def _directives_of(self, apps: Sequence[App]) -> tuple[Info, ...]:
        """Return the directives of the unanswered spawn that one of the applications belongs to."""
        raise NotImplementedError

    async def _launched(self, op: Spawn, parent: Proc | None, nspace: str | None, shown: bool) -> Processes:
        from pypmix.host.debugging import Debugging, plain_spawn
        from pypmix.host.directives import read, terms_of

        manager = self._managed()
        base = manager.machine.wdir or os.sep
        request, found = read(plain_spawn(op), self.env, base, manager.next_folder)
        name = nspace or f"{self._label}@{manager.take_number()}"
        _check_origin(name, parent)
        job = self._registered(name, found, None, parent, stops=terms_of(request, tool=False).stops)
        launch = self._make(job, self.local_ranks(job), job.apps, shown, waiting=False)
        if job.stops:
            manager.part(Debugging).watch(launch.running)
        await launch.open()
        manager.notices.job_started(launch.running)
        return Processes(launch)

    async def kill(self, procs: Procs, signum: int | None = None, *, status: int | None = None) -> None:
        """End processes that this host has started, or send them a signal.

        Args:
            procs: The procs; wildcards and unknown procs are allowed.
            signum: The signal to send. None ends the processes by SIGTERM, and by SIGKILL after the grace, and waits
                for their end.
            status: The value for `status` of the processes.

        Raises:
            TypeError, ValueError, OverflowError: This is not a signal, or not a status.

        Example:
            >>> with host.start(host.job("job2", np=2), ["sleep", "60"]) as processes:
            ...     host.run(host.kill(Proc("job2", 1)))
            ...     print(processes.codes)
        """
        if signum is not None:
            check_signal(signum)
        if status is not None:
            status = check_integer(status, "a status")
            check_status(status)
        given = proc_tuple(procs)
        instances("procs", given, Proc)
        named = set(self.expand(given))
        await run_in_loop(self, self._kill(named, signum, status))

    async def _kill(self, procs: set[Proc], signum: int | None, status: int | None) -> None:
        chosen = [
            (launch, [rank for rank in launch.ranks if rank.proc in procs]) for launch in self._running_launches()
        ]
        if signum is None:
            await asyncio.gather(*[launch.end_ranks(ranks, status) for launch, ranks in chosen if ranks])
            return
        for launch, ranks in chosen:
            launch.send(signum, ranks)

    # Support for the processes of a job, on the loop's thread

    def report_end(self, proc: Proc, code: int) -> None:
        """Report the end of a process that this host has not started; from any thread.

        Collectives then continue without the process, and the event of its end is raised. At the end of the job's last
        rank on this host, this host's part of the job ends, as for a job of `launch`: `wait` of a spawned job returns
        when the parts of all hosts have ended. The job stays registered until `forget`.

        Args:
            proc: A rank of this host, of a job that is registered.
            code: The exit code, or the negative number of the signal that ended the process.

        Raises:
            TypeError, ValueError: This is not an exit code, or not a rank of this host.

        Example:
            >>> job = host.job("job2", np=2)
            >>> host.report_end(job.proc(0), 0)
        """
        if not isinstance(proc, Proc):
            raise TypeError(f"a Proc ends, not {type(proc).__name__}")
        code = check_integer(code, "an exit code")
        manager = self._managed()
        if manager.find(proc) is None:
            raise ValueError(f"{proc} is not a rank here of a job that is registered")
        if manager.has_started(proc.nspace):
            raise ValueError(f"{proc.nspace} was started by this host, which sees its ends itself")
        manager.loop.post(lambda: self._record_end(proc, code))

    def _record_end(self, proc: Proc, code: int) -> None:
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
            machine=Machine(self.env, self.tmpdir),
            space=self._label,
            grace=self.grace,
            offered=self._offered,
        )
        # The folder is guarded from here on, so that a host that is killed does not leave it behind.
        self._manager.open_folder()

    async def _end_jobs(self) -> None:
        """End all processes without deregistering jobs, since the server is closed afterwards."""
        await asyncio.gather(*[launch.close() for launch in self._running_launches()], return_exceptions=True)
        await self._end_spawned()

    async def _end_spawned(self) -> None:
        """End the jobs that procs have spawned, which do not belong to a block of `start`."""
        manager = self._managed()
        manager.close()
        deadline = self.loop.time() + self.grace + REAP
        while any(job.launches for job in manager.jobs.values()) and self.loop.time() < deadline:
            await asyncio.sleep(POLL)
        await manager.loop.drained(self.grace)

    def _close_jobs(self) -> None:
        """Remove the folder of the jobs, once the server is closed."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close_folder()


def _check_origin(nspace: str, parent: Proc | None) -> None:
    if not check_name(nspace, MAX_NSLEN, "an nspace"):
        raise ValueError("an nspace must not be empty")
    if parent is not None and not isinstance(parent, Proc):
        raise TypeError(f"the parent of a job is a Proc, not {type(parent).__name__}")


def _changed(app: Application, argv: tuple[str, ...], env: Mapping[str, str], wdir: str) -> Application:
    """Return an application with another command, further variables and another folder, if they are given."""
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
