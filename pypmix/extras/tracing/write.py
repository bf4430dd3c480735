"""The file of a trace: Chrome's trace events as JSON, which Perfetto and Chrome's viewer open.

It has an event on each line, and is complete JSON after each write: each write ends with the closing brackets, which
the next one overwrites. So the file can be read even if this process crashes.

Nodes are shown as processes, and their ranks and servers as threads. Since the events of a thread must nest,
overlapping events of one rank, such as requests of its threads, are shown on several threads of the same name.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from collections import deque

from pypmix._version import __version__
from pypmix.extras.tracing.calls import COLLECTIVES, UNANSWERED, Call, collectives, text_of
from pypmix.extras.tracing.node import EVERY, ROW, NodeTrace, unpack
from pypmix.host.folders import open_private
from pypmix.host.outcome import signal_text
from pypmix.standard.logtext import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from pypmix.engine.base import Asked, OnUpcall
    from pypmix.extras.tracing.calls import Collective
    from pypmix.extras.tracing.node import Batch
    from pypmix.host.loop import HostLoop
    from pypmix.host.nodes import HostNode
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.standard.types import Proc

    _Begun = tuple[str, str, str, str, str, str]
    _Kind = tuple[list[list[int]], "_Track", str, str, _Begun | None]

FORMAT = 2
"""The number of the format of pypmix's additions: `otherData`, and the names and arguments of events."""

MOST = 1_000_000
"""The most requests and upcalls in a trace; further ones are only counted."""

MOST_ENDS = 100_000
"""The most ends of ranks in a trace, and the most jobs; further ones are left out."""

JOB = "job"
"""The name of the events that have the size of a job."""

TOGETHER = 1
"""The number of the process that shows the collectives as a whole; nodes have higher numbers."""

AT_ONCE = 500
"""The most requests that are written at a time while the job runs; the rest is written when it has finished."""

DIGITS = [f"{number:03}" for number in range(1000)]
"""The digits after the decimal point of microseconds."""

HEAD = b'{"traceEvents":[\n'

_log = get_logger("pypmix.trace")


class _Track:
    """A rank or a server: the threads that show it, and when the last event of each ends.

    Args:
        pid: The number of its node's process.
        name: Its name.
        order: Its position among the tracks of the node.
        args: Further arguments of its threads.
    """

    def __init__(self, pid: int, name: str, order: int, args: dict[str, str] | None = None) -> None:
        self.pid = pid
        self.name = name
        self.order = order
        self.args = args or {}
        self.threads: list[list[int]] = []


class TraceFile:
    """Writes the trace of a run.

    If the file can no longer be written, this is logged once and the trace ends; ranks do not notice.

    Args:
        path: The file; an existing file is replaced.

    Raises:
        OSError: The file cannot be made.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        # The names of groups and keys are private.
        self._fd = open_private(path)
        self._begin = time.time_ns()
        self._end = 0
        self._tail = b""
        self._jobs: dict[str, int] = {}
        self._ends = 0
        self._left_out = 0
        self._nodes: dict[str, NodeTrace] = {}
        self._pids: dict[str, int] = {}
        self._tracks: dict[object, _Track] = {}
        self._threads = 0
        self._nspaces: dict[str, int] = {}
        self._kinds: dict[str, list[_Kind]] = {}
        self._waiting: deque[tuple[list[_Kind], list[int], int]] = deque()
        self._calls: list[Any] = []
        self._count = 0
        self._lines = [_meta("process_name", TOGETHER, 0, name="collectives")]
        self._write()

    # Input

    def wrap(self, on_upcall: OnUpcall, node: str) -> OnUpcall:
        """Return a function for the server of a node that traces upcalls and calls `on_upcall`."""
        trace = self._nodes[node] = NodeTrace()
        return trace.wrap(on_upcall)

    def attend(self, nodes: Sequence[HostNode], jobs: Mapping[str, RunningJob], loop: HostLoop) -> None:
        """Begin the trace, when the servers of a host are open and no rank has started.

        Args:
            nodes: The nodes of the host.
            jobs: Its jobs, by nspace.
            loop: Its loop.
        """
        for node in nodes:
            if node.here:
                self._nodes[node.hostname].attend(node.server)
        # If daemons serve the nodes, the launcher's server serves only tools.
        for node in [node for node in nodes if not node.here] or nodes:
            self._process(node.hostname)

        def collect() -> None:
            for nspace, job in jobs.items():
                self._note_job(nspace, job.job.size)
            self._collect(AT_ONCE)
            loop.later(EVERY, collect)

        loop.later(EVERY, collect)

    def _collect(self, most: int) -> None:
        for name, node in self._nodes.items():
            self.add(name, node.take())
        self._show_left(most)
        self._write()

    def add(self, node: str, batch: Batch) -> None:
        """Add the entries of a node."""
        (new, rows), upcalls, ahead = batch
        room = MOST - self._count
        count = len(rows) // ROW + len(upcalls)
        self._count += min(count, room)
        self._left_out += max(0, count - room)
        if not room:
            # Later entries have nothing to do with these, and what was accepted holds its kinds itself.
            self._kinds.clear()
            return
        rows, upcalls = rows[: ROW * room], upcalls[: max(0, room - len(rows) // ROW)]
        ahead -= self._begin
        kinds = self._kinds.setdefault(node, [])
        kinds += [self._kind(node, *kind) for kind in new]
        self._waiting.append((kinds, rows, ahead))
        self._add([(self._kind(node, *kind, upcall=True), begin + ahead, end + ahead) for kind, begin, end in upcalls])

    def add_message(self, node: str, data: bytes) -> None:
        """Add the entries of another node's message.

        Raises:
            RemoteProtocolError: It is malformed.
        """
        self.add(node, unpack(data))

    def _show_left(self, most: int) -> None:
        """Write events for at most so many of the added entries, the oldest first."""
        while self._waiting and most > 0:
            kinds, rows, ahead = self._waiting.popleft()
            if len(rows) > ROW * most:
                self._waiting.appendleft((kinds, rows[ROW * most :], ahead))
                del rows[ROW * most :]
            items = iter(rows)
            numbers = zip(items, items, items, strict=True)
            self._add([(kinds[number], begin + ahead, end + ahead) for number, begin, end in numbers])
            most -= len(rows) // ROW

    def rank_ended(self, job: RunningJob, rank: Rank) -> None:
        """Show the end of a rank."""
        if self._ends >= MOST_ENDS:
            return
        self._ends += 1
        self._note_job(job.nspace, job.job.size)
        how = rank.fate or (f"ended by {signal_text(rank.signum)}" if rank.signum else f"exit code {rank.code}")
        track = self._track(rank.node.hostname, rank.proc)
        event = {
            "ph": "i",
            "s": "t",
            "pid": track.pid,
            "tid": (track.threads or [self._thread(track, 0)])[0][0],
            "ts": round((time.time_ns() - self._begin) / 1000, 3),
            "name": how,
            "cat": "end",
        }
        self._lines.append(json.dumps(event))

    def close(self) -> None:
        """Write the remaining events, and the collectives with their arrows. May be called twice."""
        if self._fd < 0:
            return
        self._collect(sys.maxsize)
        gc.disable()
        items = iter(self._calls)
        fours: Iterable[tuple[_Begun, int, int, int]] = zip(items, items, items, items, strict=True)
        calls = [Call(*call, begin / 1000, end / 1000, thread) for call, begin, end, thread in fours]
        self._calls.clear()
        for number, collective in enumerate(collectives(calls, self._jobs)):
            self._show(number, collective)
        self._write()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # Events

    def _add(self, entries: Sequence[tuple[_Kind, int, int]]) -> None:
        write, kept = self._lines.append, self._calls.extend
        for (threads, track, start, rest, call), begin, end in entries:
            thread = threads[0] if threads else self._thread(track, begin)
            if thread[1] > begin:
                thread = self._thread(track, begin)
            thread[1] = end
            micros, nanos = divmod(begin, 1000)
            long, longer = divmod(end - begin, 1000)
            write(f'{start}{thread[0]}, "ts": {micros}.{DIGITS[nanos]}, "dur": {long}.{DIGITS[longer]}, {rest}')
            if call is not None:
                kept((call, begin, end, thread[0]))

    def _kind(self, node: str, proc: Proc | None, subject: Asked, status: int | None, upcall: bool = False) -> _Kind:
        """Return the common part of requests: their track, parts of the event, and the first fields of a `Call`."""
        name, procs, more = subject
        track = self._track(node, None if upcall else proc)
        collective = name in COLLECTIVES and not upcall
        known = {
            "procs": text_of(procs),
            "group" if collective or upcall else "key": more,
            "of": str(proc or "") if upcall else "",
            "status": status_text(status),
        }
        args = {key: text for key, text in known.items() if text}
        event = {"name": name, "cat": "upcall" if upcall else "collective" if collective else "request", "args": args}
        call = (str(proc), node, name, known["procs"], more, known["status"]) if collective else None
        return track.threads, track, f'{{"ph": "X", "pid": {track.pid}, "tid": ', json.dumps(event)[1:], call

    def _show(self, number: int, collective: Collective) -> None:
        """Show a collective as a whole, with arrows from the last request to the others."""
        begin, last, end = collective.begin, collective.last, collective.end
        args: dict[str, object] = {
            "of": collective.subject,
            "came": len(collective.calls),
            "last": last.proc,
            "late_ms": round(collective.lateness / 1000, 3),
            "spread_ms": round(collective.spread / 1000, 3),
        }
        if collective.missing:
            args["missing"] = " ".join(collective.missing)
        if collective.status:
            args["status"] = collective.status
        track = self._tracks.setdefault(TOGETHER, _Track(TOGETHER, "collectives", 0))
        thread = self._thread(track, round(begin * 1000))
        thread[1] = round(end * 1000)
        event = {"name": collective.name, "cat": "together", "args": args}
        start = f'{{"ph": "X", "pid": {TOGETHER}, "tid": {thread[0]}, "ts": {begin:.3f}, "dur": {end - begin:.3f}, '
        self._lines.append(start + json.dumps(event)[1:])
        if collective.status == UNANSWERED:
            return
        arrow = f'"cat": "release", "name": "{collective.name}", "id": "{number}.%d"}}'
        source = f'{{"ph": "s", "pid": {self._pids[last.node]}, "tid": {last.thread}, "ts": {last.begin:.3f}, {arrow}'
        target = f'{{"ph": "f", "bp": "e", "pid": %d, "tid": %d, "ts": %.3f, {arrow}'
        for index, call in enumerate(collective.calls[:-1]):
            if call.status != UNANSWERED:
                # An arrow must end inside of its event.
                ts = max(call.begin, call.end - 0.001)
                self._lines.append(source % index)
                self._lines.append(target % (self._pids[call.node], call.thread, ts, index))

    def _track(self, node: str, proc: Proc | None) -> _Track:
        """Return the track of a proc, or of the server of a node."""
        found = self._tracks.get((node, proc))
        if found is not None:
            return found
        pid = self._process(node)
        if proc is None:
            track = _Track(pid, "server", 0)
        else:
            job = self._nspaces.setdefault(proc.nspace, len(self._nspaces))
            name = f"rank {proc.rank}" + (f" of {proc.nspace}" if job else "")
            track = _Track(pid, name, (job << 32) + proc.rank + 1, {"proc": str(proc)})
        self._tracks[node, proc] = track
        return track

    def _note_job(self, nspace: str, size: int) -> None:
        """Write the size of a job, once: the end of the file, which each write renews, must not grow with the jobs."""
        if nspace not in self._jobs and len(self._jobs) < MOST_ENDS:
            self._jobs[nspace] = size
            self._lines.append(_meta(JOB, TOGETHER, 0, nspace=nspace, size=size))

    def _process(self, node: str) -> int:
        """Return the number of the process that shows a node."""
        pid = self._pids.get(node)
        if pid is None:
            pid = self._pids[node] = len(self._pids) + TOGETHER + 1
            self._lines.append(_meta("process_name", pid, 0, name=node))
            self._lines.append(_meta("process_sort_index", pid, 0, sort_index=pid))
        return pid

    def _thread(self, track: _Track, begin: int) -> list[int]:
        """Return a thread of a track without an event at or after a time: its number, and the end of its last event.

        The events of a track must be added in the order of their ends, or of their beginnings.
        """
        for thread in track.threads:
            if thread[1] <= begin:
                return thread
        self._threads += 1
        thread = [self._threads, 0]
        track.threads.append(thread)
        self._lines.append(_meta("thread_name", track.pid, self._threads, name=track.name, **track.args))
        self._lines.append(_meta("thread_sort_index", track.pid, self._threads, sort_index=track.order))
        return thread

    def _write(self) -> None:
        lines, self._lines = self._lines, []
        if self._fd < 0 or (not lines and self._end):
            return
        other = {
            "pypmix": __version__,
            "format": FORMAT,
            "began": self._begin / 1e9,
            "left_out": self._left_out,
        }
        start = b",\n" if self._end else HEAD
        body = start + ",\n".join(lines).encode()
        tail = f'\n],"displayTimeUnit":"ms","otherData":{json.dumps(other)}}}\n'.encode()
        try:
            self._put(body + tail)
            self._end += len(body)
            self._tail = tail
        except OSError as error:
            _log.error("%s cannot be written, the trace ends: %s", self.path, error)
            # Restoring the former end needs no further room, so the file stays complete.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._end)
                self._put(self._tail)
            os.close(self._fd)
            self._fd = -1

    def _put(self, data: bytes) -> None:
        """Write after the present events."""
        at = self._end
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._fd, rest, at)
            at += written
            rest = rest[written:]


def _meta(kind: str, pid: int, tid: int, **args: object) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})


def status_text(status: int | None) -> str:
    """Return the name of a status; empty for a success."""
    if status is None:
        return UNANSWERED
    if not status:
        return ""
    from pypmix.standard.enums import EventCode, Status

    names = Status(status).name, EventCode(status).name
    return next((name for name in names if not name.startswith(("UNKNOWN_", "CUSTOM_"))), names[0])
