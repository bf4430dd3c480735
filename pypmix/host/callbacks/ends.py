"""How the jobs of a host end, and who is told: with an exchange a job ends when its ranks on all hosts have."""

from __future__ import annotations

import time

from pypmix.host.notices import OF_JOB, RAISED, Notices, proc_status
from pypmix.host.outcome import CANNOT_EXECUTE, NOT_FOUND, exit_code
from pypmix.standard.enums import Status
from pypmix.standard.ops import ClientConnected, ClientFinalized, DeregisterEvents, RegisterEvents
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.host.exchange import Crossing, Exchange
    from pypmix.server import Server
    from pypmix.standard.ops import Notification
    from pypmix.standard.types import Proc

ENDED = "pypmix.ended"
ASKED = "pypmix.asked"

MAX_JOBS = 4096
"""Of how many jobs it is kept that some hosts have ended their part and others have not."""


class End(Record):
    """How a host's part of a job has ended.

    Args:
        nspace: The job.
        nodes: The hosts that have a part in it.
        launched: Whether any of the processes was started.
        told: Whether somebody hears of the job's end in any case.
        code: The exit code; 0 for a part that has not failed.
        status: How it ended.
        when: The time of the failure, in seconds since 1970: what failed first is how the job ends.
    """

    nspace: str
    nodes: tuple[str, ...]
    launched: bool = True
    told: bool = False
    code: int = 0
    status: int = Status.SUCCESS
    when: float = 0.0


class Ends:
    """The ends of a host's jobs; used in its loop, where nothing else is said.

    Args:
        loop: The loop.
        server: The host's server.
        exchange: What connects it with other hosts; None without any.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, exchange: Exchange | None) -> None:
        self._loop = loop
        self._server = server
        self._exchange = exchange
        self.crossing: Crossing | None = None
        self.here = Notices(lambda: server.proc, server.notify)
        self._everywhere = Notices(lambda: server.proc, self._spread, self.here.asked)
        self._elsewhere: set[int] = set()
        self._open: set[Proc] = set()
        self._parts: dict[str, End] = {}
        self._waiting: dict[str, dict[str, End]] = {}
        self.notes: dict[type, Callable[[Any], None]] = {
            ClientConnected: lambda op: self._open.add(op.proc),
            ClientFinalized: lambda op: self._open.discard(op.proc),
            RegisterEvents: self._asked_for,
            DeregisterEvents: lambda op: self.here.remove(set(op.codes) - self._elsewhere),
        }
        """What is taken in of an upcall, on the engine's thread, before it is answered."""
        if exchange is not None:
            exchange.hear(ENDED, self._told_end)
            exchange.hear(ASKED, self._told_asked)
            exchange.watch(self._changed)

    # What happens on this host

    def begin(self, nspace: str, nodes: Iterable[str], told: bool) -> None:
        """Processes of a job are about to be started here."""
        part = self._parts.get(nspace) or End(nspace, tuple(nodes), launched=False)
        self._parts[nspace] = part.replace(told=part.told or told)

    def begun(self, nspace: str, error: BaseException | None) -> None:
        """They have been started, all of them, or could not be."""
        part = self._parts[nspace]
        if error is None:
            self._parts[nspace] = part.replace(launched=True)
        else:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE
            self.decide(nspace, code, Status.ERR_JOB_FAILED_TO_LAUNCH)

    def decide(self, nspace: str, code: int, status: int) -> None:
        """A part ends so, unless something else has failed before."""
        part = self._parts.get(nspace)
        if part is not None and not part.when:
            self._parts[nspace] = part.replace(code=code, status=status, when=time.time())

    def killed(self, nspace: str, status: int) -> None:
        """The host ends processes with this status."""
        code = exit_code(status)
        self.decide(nspace, code, Status.ERR_JOB_ABORTED if code else Status.SUCCESS)

    def rank_ended(self, proc: Proc, code: int) -> None:
        """A process has ended.

        Args:
            proc: The rank.
            code: What it exited with, or the negative number of the signal that ended it.
        """
        status = proc_status(max(0, -code), code, proc in self._open)
        self._open.discard(proc)
        code = 128 - code if code < 0 else code
        if status != Status.SUCCESS:
            self.decide(proc.nspace, code or 1, OF_JOB[status])
        self._everywhere.rank_ended(proc, code, status, status != Status.SUCCESS, told=False)

    def part_ended(self, nspace: str) -> None:
        """Nothing is left here of a job."""
        part = self._parts.pop(nspace, None)
        if part is None:
            return
        if self._exchange is None:
            self._raise([part])
            return
        from pypmix.host.exchange.packing import pack_end

        self._exchange.broadcast(ENDED, pack_end(part))
        self._add(self._exchange.name, part)

    # What happens on the others

    def _add(self, name: str, part: End) -> None:
        parts = self._waiting.setdefault(part.nspace, {})
        parts[name] = part
        if len(self._waiting) > MAX_JOBS:
            del self._waiting[next(iter(self._waiting))]
        self._settle(part.nspace)

    def _settle(self, nspace: str) -> None:
        """Raise the end of a job if all hosts that have a part in it have ended it, or are gone."""
        assert self._exchange is not None
        parts = self._waiting[nspace]
        nodes = next(iter(parts.values())).nodes
        lost = [name for name in nodes if name not in parts and name in self._exchange.gone]
        if all(name in parts or name in lost for name in nodes):
            del self._waiting[nspace]
            aborted = End(nspace, nodes, True, False, 1, Status.ERR_JOB_ABORTED, time.time())
            self._raise([parts[name] for name in sorted(parts)] + [aborted] * bool(lost))

    def _settle_all(self) -> None:
        for nspace in list(self._waiting):
            self._settle(nspace)

    def _raise(self, parts: list[End]) -> None:
        if any(part.launched for part in parts):
            # Of several that failed the first one counts, and it is the same one on all hosts.
            end = min([part for part in parts if part.when], key=lambda part: part.when, default=parts[0])
            self.here.job_ended(end.nspace, end.code, end.status, any(part.told for part in parts))

    def _changed(self, name: str, here: bool) -> None:
        if here and self.here.asked:
            self._tell_asked(name)
        elif not here:
            self._soon(self._settle_all)

    def _told_end(self, sender: str, data: bytes) -> None:
        from pypmix.host.exchange.packing import unpack_end

        part = unpack_end(data)
        self._soon(lambda: self._add(sender, part))

    def _soon(self, function: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            # The host has closed.
            return

    # Who wants to hear of it

    def _asked_for(self, op: RegisterEvents) -> None:
        before = len(self.here.asked)
        self.here.add(op.codes)
        if len(self.here.asked) > before and self._exchange is not None:
            for name in self._exchange.members:
                if name != self._exchange.name:
                    self._tell_asked(name)

    def _tell_asked(self, name: str) -> None:
        from pypmix.host.exchange.packing import pack_codes

        assert self._exchange is not None
        self._exchange.tell(name, ASKED, pack_codes(sorted(self.here.asked)))

    def _told_asked(self, _sender: str, data: bytes) -> None:
        from pypmix.host.exchange.packing import unpack_codes

        codes = unpack_codes(data)
        self._elsewhere.update(RAISED.intersection(codes))
        self.here.add(codes)

    def _spread(self, event: Notification) -> None:
        self._server.notify(event)
        if self.crossing is not None:
            self.crossing.raised(event)
