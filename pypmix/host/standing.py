"""The process of a standing session: a launcher that keeps its nodes, and runs the jobs of one command after the other.

`SessionHost` is a `LocalHost` without a first job. It accepts the commands of its user, and each has a `Run`: the
job that it requests and the jobs that these spawn, with their own output, input, limits and end. Runs wait for slots in
the order in which they came, as the steps of a Slurm allocation do. A run that could never fit is refused.

If the connection with a command ends, its run ends. If the session ends, its runs do.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections import deque

from pypmix._version import __version__
from pypmix.host.binding import Binding
from pypmix.host.job import Application
from pypmix.host.launch import inherited_environment
from pypmix.host.local import LocalHost
from pypmix.host.loop import READ
from pypmix.host.machine import POLL
from pypmix.host.mapping import Mapping, fill
from pypmix.host.outcome import NOT_FOUND, TIMED_OUT, JobsOutcome, Outcome, signal_text
from pypmix.host.output import Sink
from pypmix.host.placing import Target
from pypmix.host.rankfile import Line
from pypmix.host.report import report, unfinished
from pypmix.host.sessions import OPERATION, Link, Wish, check_name, enter, folder_of, socket_path
from pypmix.host.signals import ENDING
from pypmix.host.terms import Terms, check_restarts
from pypmix.host.trying import Fault, arrange
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.logtext import get_logger, printable_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pypmix.engine.base import Cancellable
    from pypmix.host.feeding import Feed
    from pypmix.host.nodes import HostNode
    from pypmix.host.running import RunningJob
    from pypmix.standard.types import Proc

BACKLOG = 128

MAX_RUNS = 1024
"""The most commands that are connected at a time."""

FIRST = 1
"""The number before that of the first job: job 1 of a host has the host's own folder, which outlives a job here."""

_log = get_logger("pypmix.host")

_KINDS = {kind.__name__: kind for kind in (Application, Binding, Fault, Line, Mapping, Terms, Wish)}


def unpack(value: Any) -> Any:
    """Convert a record of a message back.

    Raises:
        ValueError, TypeError, KeyError: It is not a record that a command sends.
    """
    if isinstance(value, dict):
        return _KINDS[value["is"]](**{name: unpack(each) for name, each in value.items() if name != "is"})
    return tuple([unpack(each) for each in value]) if isinstance(value, list) else value


class Run:
    """The jobs of one command: the job that it requests, and those that this spawns.

    Args:
        host: The session.
        link: The connection with the command.

    Attributes:
        jobs: Its jobs that are not finished, by nspace.
        outcome: The outcome of its jobs.
        is_ending: Whether its jobs are being ended.
        is_waiting: Whether it waits for slots.
    """

    def __init__(self, host: SessionHost, link: Link) -> None:
        self._host = host
        self._link = link
        self._sinks: dict[int, Sink] = {}
        self._feed: Feed | None = None
        self._alarms: list[Cancellable] = []
        self._is_impatient = False
        self._is_closed = False
        self._wish = Wish(())
        self.jobs: dict[str, RunningJob] = {}
        self.outcome = JobsOutcome()
        self.is_ending = False
        self.is_waiting = False
        self.since = time.monotonic()
        host.loop.watch(link.fileno(), READ, self._read)

    # The connection

    def _read(self) -> None:
        found = self._link.receive()
        for message in found or ():
            try:
                self._handle(message)
            except (KeyError, TypeError, ValueError) as error:
                self.refuse(f"the request is not one of a command of this release: {type(error).__name__} {error}")
        if found is None:
            self._leave()

    def _handle(self, message: dict[str, Any]) -> None:
        if "signal" in message:
            self._signalled(int(message["signal"]))
            self._send({"signal": message["signal"]})
        elif "alive" in message:
            self._send({"alive": True})
        elif message.get("version") != __version__:
            self.refuse(f"the session runs pypmix {__version__}, and this command is of {message.get('version')!r:.40}")
        elif "job" in message:
            self._request(unpack(message["job"]))
        elif message["ask"] == "describe":
            self._send(self._host.describe())
            self.close()
        elif message["ask"] == "stop":
            self._host.stopper(self)
        else:
            raise ValueError(message["ask"])

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._link.send(message)
        except OSError:
            # The command has ended, which reading shows.
            return

    def refuse(self, reason: str) -> None:
        """Refuse the request, and close the connection."""
        if not self._is_closed:
            self._send({"refused": reason})
            self.close()

    def _leave(self) -> None:
        """End the jobs of a command that has ended."""
        if self.jobs:
            self._host.loop.unwatch(self._link.fileno())
            self._link_is_watched = False
            self.end(128 + signal.SIGTERM, "its command has ended")
        else:
            self.close()

    _link_is_watched = True

    def close(self) -> None:
        """Close the connection with the command; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        for alarm in self._alarms:
            alarm.cancel()
        if self._feed is not None:
            self._feed.close()
        for sink in dict.fromkeys(self._sinks.values()):
            sink.abandon()
        if self._link_is_watched:
            self._host.loop.unwatch(self._link.fileno())
        # The files of the command are among those of the link.
        self._link.close()
        self._host.remove(self)

    # The job

    def _request(self, wish: Wish) -> None:
        files = self._link.files
        if len(files) != 3 or self._sinks or self.is_waiting:
            raise ValueError("a job is requested once, with three files")
        os.set_blocking(files[1], False)
        os.set_blocking(files[2], False)
        self._sinks[1] = Sink(self._host.loop, files[1], self)
        same = os.path.sameopenfile(files[1], files[2])
        self._sinks[2] = self._sinks[1] if same else Sink(self._host.loop, files[2], self)
        self._wish = self._host.complete_wish(wish)
        self.is_waiting = True
        self._host.enqueue(self)
        if self.is_waiting:
            self.say("waiting for slots that other jobs of the session hold")
            if wish.patience:
                text = f"no slots have become free for it within {wish.patience:g} s"
                self._alarms.append(self._host.loop.later(wish.patience, lambda: self._give_up(text)))

    def _give_up(self, reason: str) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self.refuse(reason)

    def begin(self) -> bool:
        """Start the job; return False if it has to wait for slots."""
        host, wish = self._host, self._wish
        try:
            check_restarts(wish.terms, host.native, host.has_daemons)
            target = host.target(wish)
            if wish.terms.spares:
                target = host.site.spared(target, wish.terms.spares)
                wish = wish.replace(terms=wish.terms.replace(spares=0))
            apps = host.sized(wish, target)
            try:
                job = host.prepare_job(apps, wish.terms, None, target, wdir=wish.wdir)
            except OverflowError as error:
                if host.can_ever_fit(apps, target):
                    return False
                self._refuse_at_once(1, str(error))
                return True
            self.is_waiting = False
            self.add(job)
            host.begin(job)
        except PMIxError as error:
            self._refuse_at_once(1, error.detail)
            return True
        except (ValueError, OverflowError) as error:
            self._refuse_at_once(2, str(error))
            return True
        except OSError as error:
            text = f"{error.strerror}: {error.filename}" if error.filename else str(error)
            self._refuse_at_once(NOT_FOUND if isinstance(error, FileNotFoundError) else 1, text)
            return True
        self._arrange(job)
        return True

    def _refuse_at_once(self, code: int, reason: str) -> None:
        """End the run before its job has started."""
        self.is_waiting = False
        if self.jobs:
            # Registered, and not started.
            self.end(code, reason)
            return
        self.outcome.decide(code, reason)
        self._finish()

    def _arrange(self, job: RunningJob) -> None:
        """Feed the ranks, and schedule the limit and the faults."""
        host, wish = self._host, self._wish
        inputs = [rank.input for rank in job.ranks if rank.input is not None]
        if inputs and not wish.terms.pushed:
            from pypmix.host.feeding import Feed

            self._feed = Feed(host.loop, self._link.files[0], inputs)
        if wish.timeout:
            self._alarms.append(host.loop.later(wish.timeout, lambda: host.site.refresh(self._time_out)))
        if wish.faults:
            job.when_started(lambda: arrange(host, job, wish.faults))

    def add(self, job: RunningJob) -> None:
        """Add a job: the first, or one that is spawned."""
        self.jobs[job.nspace] = job
        self._host.runs[job.nspace] = self

    def sink(self, number: int) -> Sink:
        """Return the sink for output to the command's stdout (1) or stderr (2)."""
        return self._sinks[number]

    def say(self, text: str) -> None:
        """Show the command a text."""
        self._sinks[2].write(None, f"pypmix run: {printable_lines(text)}\n".encode())

    def unwritable(self, error: OSError) -> None:
        """End the jobs: their output cannot be written."""
        if isinstance(error, BrokenPipeError):
            self.end(128 + signal.SIGPIPE, "")
        else:
            self.end(1, f"the ranks' output cannot be written: {error.strerror}")

    # Its end

    def end(self, code: int, reason: str, signum: int = signal.SIGTERM) -> None:
        """End its jobs, unless they are ending."""
        if self.is_waiting:
            self._give_up(reason)
            return
        if self.is_ending:
            return
        self.is_ending = True
        self.outcome.decide(code, reason)
        for job in list(self.jobs.values()):
            job.end(code, reason, signum)

    def job_over(self, job: RunningJob) -> None:
        """Remove a job of which nothing is left, once its outcome is known."""
        # The last of it may have been reported while an end of its ranks was being judged.
        self._host.loop.later(0, lambda: self._remove(job))

    def _remove(self, job: RunningJob) -> None:
        self.jobs.pop(job.nspace, None)
        self._host.runs.pop(job.nspace, None)
        self.outcome.add_finished(job)
        if not self.jobs:
            self._finish()

    def _finish(self) -> None:
        """Send the command the end, once it has all of the output, or the grace is over for jobs that were ended."""
        lasts = self._host.patience()
        outcome = self.outcome.final

        def look() -> None:
            if self._is_closed:
                return
            waits = not all(sink.empty for sink in self._sinks.values()) and self._link_is_watched
            if waits and not self._is_impatient and (self.outcome.decided is None or lasts()):
                self._alarms = [self._host.loop.later(POLL, look)]
                return
            self._send({"end": outcome.code, "reason": outcome.reason})
            self.close()

        look()

    # Limits and signals

    def _time_out(self) -> None:
        if not self.is_ending and self.jobs:
            lines = [f"the job did not end within {self._wish.timeout:g} s and was ended"]
            self.end(TIMED_OUT, "\n  ".join([*lines, *unfinished(self._host, jobs=self.jobs)]))

    def _signalled(self, signum: int) -> None:
        """Act on a signal that the command got, as `LocalHost` does."""
        if not 0 < signum < signal.NSIG:
            raise ValueError(f"{signum} is not a signal")
        if self.is_waiting and signum in ENDING:
            self.is_waiting = False
            self.outcome.decide(128 + signum, f"ended by {signal_text(signum)}")
            self._finish()
        elif signum == signal.SIGINT and self.is_ending:
            self._stop_at_once()
        elif signum in ENDING:
            self._host.site.refresh(lambda: self._stop(signum))
        elif signum in (signal.SIGTSTP, signal.SIGCONT):
            self._pass_on(signal.SIGSTOP if signum == signal.SIGTSTP else signal.SIGCONT)
        else:
            self._pass_on(signum, handled=signum == signal.SIGUSR1)
            if signum == signal.SIGUSR1:
                self._host.site.refresh(self._report)

    def _report(self) -> None:
        if not self._is_closed:
            self.say(report(self._host, jobs=self.jobs))

    def _pass_on(self, signum: int, *, handled: bool = False) -> None:
        for job in list(self.jobs.values()):
            job.send(signum, handled=handled)

    def _stop(self, signum: int) -> None:
        lines = [f"ended by {signal_text(signum)}"]
        if signum == signal.SIGINT:
            lines += self._host.hangs(self.jobs)
        self.end(128 + signum, "\n  ".join(lines), signum)

    def _stop_at_once(self) -> None:
        """Kill the processes that are left. A process that does not end stays behind, and its node in the session."""
        self._is_impatient = True
        self._pass_on(signal.SIGKILL)


class Entrance:
    """The socket of a session, and the lock of its name.

    Args:
        name: The session.
        env: The environment, whose TMPDIR holds the folder of sessions.

    Raises:
        PMIxError: There is such a session already (`ERR_EXISTS`), or the folder cannot be used.
        OSError: The socket cannot be made.
    """

    def __init__(self, name: str, env: dict[str, str]) -> None:
        self.name = check_name(name)
        self._path = folder_of(env, os.geteuid())
        self._folder = enter(env, make=True)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._lock = os.open(f"{name}.lock", flags, 0o600, dir_fd=self._folder)
        except OSError:
            # Another session may have removed the folder at its end.
            os.close(self._folder)
            raise
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._lock, 100).decode(errors="replace")
            self._release()
            raise PMIxError(
                f"there is a session {name} already ({holder})",
                status=statuses.ERR_EXISTS,
                operation=OPERATION,
                hint=f"`pypmix session stop {name}` stops it; another name starts another one",
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f"pid {os.getpid()}".encode())
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._is_open = False

    def _release(self) -> None:
        os.close(self._lock)
        os.close(self._folder)

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    def open(self) -> None:
        """Accept connections from now on."""
        self._unlink("sock")
        self._socket.bind(socket_path(self._folder, self.name))
        self._is_open = True
        self._socket.listen(BACKLOG)

    def accept(self) -> Link | None:
        """Return the next connection of this user, None if there is none."""
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return None
        link = Link(connection)
        if link.user != os.geteuid():
            _log.error("session %s: user %s is refused", self.name, link.user)
            link.close()
            return None
        connection.setblocking(False)
        return link

    def _unlink(self, kind: str) -> None:
        try:
            os.unlink(f"{self.name}.{kind}", dir_fd=self._folder)
        except FileNotFoundError:
            return

    def close(self) -> None:
        """Accept no more connections, and give up the name."""
        self._socket.close()
        if self._is_open:
            for kind in ("sock", "log", "lock"):
                self._unlink(kind)
        self._release()
        try:
            os.rmdir(self._path)
        except OSError:
            # It has other sessions, or logs of failed ones.
            return


class SessionHost(LocalHost):
    """The launcher of a standing session.

    Args:
        entrance: Its socket and its name.
        ready: Called with the nodes and their slots when they have joined, and it accepts commands.
        settings: The arguments of `LocalHost`.

    Attributes:
        runs: The runs of jobs that are not finished, by nspace.
        has_daemons: Whether its nodes have daemons, and are not simulated in this process.
    """

    def __init__(
        self,
        _apps: Sequence[Application] = (),
        *,
        entrance: Entrance,
        ready: Callable[[list[tuple[str, int | None]]], None],
        **settings: Any,
    ) -> None:
        self._entrance = entrance
        self._ready = ready
        self.runs: dict[str, Run] = {}
        self._connected: dict[Run, None] = {}
        self._queue: deque[Run] = deque()
        self._stoppers: list[Run] = []
        self._since = time.monotonic()
        self.has_daemons = settings.get("remote") is not None
        super().__init__((), **settings)
        self._last = FIRST

    # Differences from a host of one command

    def _make_first(self) -> None:
        """Make nothing: commands bring the jobs."""

    def _begin_jobs(self, _programs: list[str]) -> None:
        """Accept commands."""
        self._entrance.open()
        self.loop.watch(self._entrance.fileno(), READ, self._accept)
        self._ready([(node.hostname, node.slots) for node in self.site.nodes if node.slots != 0])

    def _is_finished(self) -> bool:
        """Return True if the session was stopped and nothing is left of its jobs."""
        if self.broken is not None:
            return True
        return self._ended_all and not self.jobs and not any(run not in self._stoppers for run in self._connected)

    def _accept(self) -> None:
        link = self._entrance.accept()
        if link is not None:
            run = Run(self, link)
            self._connected[run] = None
            if self._ended_all:
                run.refuse(f"session {self._entrance.name} is being stopped")
            elif len(self._connected) > MAX_RUNS:
                run.refuse(f"session {self._entrance.name} serves {MAX_RUNS} commands already")

    def may_begin(self, parent: Proc | None) -> bool:
        """Return True if a proc may start a job: neither the session nor the run of the proc is ending."""
        run = None if parent is None else self.runs.get(parent.nspace)
        return not self._ended_all and (run is None or not run.is_ending)

    def sink_of(self, job: RunningJob | None, number: int) -> Sink:
        """Return the sink for the output of a job: its command's."""
        run = None if job is None else self.runs.get(job.nspace)
        return self.sink(number) if run is None else run.sink(number)

    def mark_of(self, number: int, parent: Proc | None) -> str:
        """Return the mark of a job: a command knows its first job without a number."""
        return "" if parent is None or parent.nspace not in self.runs else str(number)

    def give_up_node(self, node: HostNode, reason: str) -> bool:
        """Keep the node: it serves other jobs. Return False."""
        self.sink(2).write(None, f"pypmix session: node {node}: {reason}; it stays in the session\n".encode())
        return False

    def started(self, job: RunningJob) -> None:
        """Register a job, which belongs to the run of its parent."""
        parent = job.job.parent
        run = None if parent is None else self.runs.get(parent.nspace)
        if run is not None:
            run.add(job)
        super().started(job)

    def job_failed(self, job: RunningJob) -> None:
        """Record the outcome of a failed job with its command, and end the jobs that it has spawned."""
        run = self.runs.get(job.nspace)
        if run is not None:
            run.outcome.add_failed(job)
        super(LocalHost, self).job_failed(job)

    def outcome_corrected(self, former: Outcome, outcome: Outcome) -> None:
        """See `Manager.outcome_corrected`."""
        for run in list(self._connected):
            run.outcome.correct(former, outcome)

    def job_over(self, job: RunningJob) -> None:
        """Remove a job of which only output may be left, and start jobs that wait for its slots."""
        del self.jobs[job.nspace]
        super(LocalHost, self).job_over(job)
        if not self.has_daemons:
            self.machine.end_strays_of(job.nspace, self.loop, self.grace)
        run = self.runs.get(job.nspace)
        if run is not None:
            run.job_over(job)
        self.serve_queue()

    def add_node(self, node: HostNode) -> None:
        """Add a node that has joined, and start jobs that wait for slots."""
        super().add_node(node)
        self.serve_queue()

    def report_loss(self, node: HostNode, text: str) -> bool:
        """Print nothing: the end of the job reports it to the job's command."""
        return False

    def node_lost(self) -> None:
        """End the session if no node is left: nothing could ever run in it."""
        if not self.site.nodes:
            self.end(1, "all of its nodes are lost")

    def end(self, code: int, reason: str, signum: int = signal.SIGTERM) -> None:
        """End the session: all of its runs."""
        if self._ended_all:
            return
        self._ended_all = True
        self._outcome.decide(code, reason)
        for run in [run for run in self._connected if run not in self._stoppers]:
            if run.jobs or run.is_waiting:
                run.end(code, f"session {self._entrance.name} was stopped: {reason}", signum)
            else:
                run.refuse(f"session {self._entrance.name} is being stopped")
        for job in list(self.jobs.values()):
            job.end(code, reason, signum)
        self.loop.wake()

    def _signalled(self, signum: int) -> None:
        """Act on a signal that the session itself was sent."""
        if signum not in ENDING:
            super()._signalled(signum)
        elif self._ended_all and signum == signal.SIGINT:
            self._stop_at_once(signum)
        else:
            self.end(128 + signum, signal_text(signum), signum)

    def _close(self) -> None:
        try:
            self.loop.unwatch(self._entrance.fileno())
        except KeyError:
            # It was never opened.
            pass
        for run in [run for run in self._connected if run not in self._stoppers]:
            run.refuse(f"session {self._entrance.name} has ended")
        super()._close()
        # The commands that stop the session wait for the end of this process, which ends their connections.
        self._entrance.close()

    # For runs

    def remove(self, run: Run) -> None:
        """Forget a run."""
        self._connected.pop(run, None)
        if run in self._queue:
            self._queue.remove(run)
            self.serve_queue()

    def stopper(self, run: Run) -> None:
        """Stop the session for a command, which waits for the end."""
        self._stoppers.append(run)
        self.end(128 + signal.SIGTERM, "`pypmix session stop`")
        self._outcome.decided = Outcome(0)

    def enqueue(self, run: Run) -> None:
        """Start a run when the runs before it have started."""
        self._queue.append(run)
        self.serve_queue()

    def serve_queue(self) -> None:
        """Start the runs that wait, in their order, as far as there is room."""
        while self._queue and self.site.nodes and not self._ended_all:
            run = self._queue[0]
            if not run.begin():
                return
            if self._queue and self._queue[0] is run:
                self._queue.popleft()

    def complete_wish(self, wish: Wish) -> Wish:
        """Return a wish whose applications have the environment of the command.

        On this machine they replace the session's own. The nodes of daemons have theirs, and `-x` adds to it.
        """
        # There is no terminal to inherit, and the pipes of the ranks are the session's.
        wish = wish.replace(terms=wish.terms.replace(forwarded=True))
        if self.has_daemons:
            return wish
        theirs, ours = inherited_environment(dict(wish.env)), self.machine.env
        added = tuple([(name, text) for name, text in theirs.items() if ours.get(name) != text])
        removed = tuple([name for name in ours if name not in theirs])
        apps = [app.replace(env=(*added, *app.env), unset=(*removed, *app.unset)) for app in wish.apps]
        return wish.replace(apps=tuple(apps))

    def target(self, wish: Wish) -> Target:
        """Return the nodes for a job.

        Raises:
            ValueError: The session has no such node.
        """
        mapping = wish.mapping
        if not wish.hosts:
            return Target(mapping=mapping)
        known = {name: node for node in self.site.nodes if node.slots != 0 for name in node.names}
        found: dict[str, HostNode] = {}
        slots: dict[str, int] = {}
        for name, number in wish.hosts:
            node = known.get(name.rpartition("@")[2])
            if node is None:
                there = ", ".join([each.hostname for each in self.site.nodes if each.slots != 0])
                raise ValueError(f"{name!r:.80} is none of the session's nodes: {there}")
            found[node.hostname] = node
            if number:
                slots[node.hostname] = slots.get(node.hostname, 0) + number
        return Target(tuple(found.values()), slots, mapping)

    def sized(self, wish: Wish, target: Target) -> tuple[Application, ...]:
        """Return the applications of a job; an application without a number gets a rank for each slot."""
        nodes = [node for node in target.nodes or self.site.nodes if node.slots]
        if not wish.fill or not nodes:
            return wish.apps
        rooms = self.site.empty_rooms(target)
        size, _ = fill(rooms, target.mapping or self.site.mapping)
        return (wish.apps[0].replace(np=size or 1),)

    def can_ever_fit(self, apps: tuple[Application, ...], target: Target) -> bool:
        """Return True if a job would fit into the session without other jobs."""
        return bool(self.jobs) and self.site.fits([app.np for app in apps], target)

    def hangs(self, jobs: dict[str, RunningJob]) -> list[str]:
        """Return the operations of jobs that have been pending for long, for a person."""
        from pypmix.host.local import HANG
        from pypmix.host.outcome import pending_text

        long = [item for item in self.pending() if time.monotonic() - item.since > HANG and item.missing]
        mine = [item for item in long if any(proc.nspace in jobs for proc in (*item.arrived, *item.missing))]
        return pending_text(mine, self.name_for_person, self.only_job)

    def describe(self) -> dict[str, Any]:
        """Return the session's nodes and jobs."""
        now = time.monotonic()
        roots = [job for job in self.jobs.values() if job.job.parent is None]
        starts = {nspace: run.since for nspace, run in self.runs.items()}
        return {
            "name": self._entrance.name,
            "pid": os.getpid(),
            "seconds": round(now - self._since, 1),
            "nodes": [
                {"name": node.hostname, "slots": node.slots, "running": node.running}
                for node in self.site.nodes
                if node.slots != 0
            ],
            "jobs": [
                {
                    "nspace": job.nspace,
                    "ranks": job.job.size,
                    "command": " : ".join([" ".join(app.argv) for app in job.job.apps]),
                    "seconds": round(now - starts.get(job.nspace, self._since), 1),
                }
                for job in roots
            ],
            "waiting": len(self._queue),
        }
