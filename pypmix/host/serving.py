"""ServingManager: a manager that answers the requests of procs; the common base of `pypmix run` and a user's `Host`.

Threads. A server calls `upcall` on its engine's thread, which must not wait. An upcall about a client's life is
recorded there (`note`), before the client has its answer and can exit. Upcalls of groups and of events need at most a
number, and are answered there too, if there is only one Python server. All else takes turns on the thread of the
manager's loop, on which every other method is called: the requests of one requestor in their order, and no requestor
waits for all requests of another. Answers (`pypmix.host.answertable`) therefore need no locks, and must not block.
"""

from __future__ import annotations

import math
import time
from collections import deque
from functools import partial

from pypmix.host import answertable
from pypmix.host.manager import Manager
from pypmix.host.outcome import exit_code
from pypmix.host.rank import CONNECTED, FINALIZED
from pypmix.standard.errors import LostConnection, NotSupported, PMIxError
from pypmix.standard.logtext import printable
from pypmix.standard.ops import ClientAborted, ClientConnected, ClientFinalized, ClientLost
from pypmix.standard.statuses import DEBUGGER_RELEASE, READY_FOR_DEBUG
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.host.nodes import HostNode
    from pypmix.host.notices import Notices
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.standard.ops import Op

ENDING = 0.1
"""Seconds within which the end of a rank is known after its connection has ended."""

PULL = "IOFPull"
GROUP = "GroupUpcall"
QUERY = "QueryInfo"
NOTIFY = "NotifyEvent"
"""The classes of operations that are loaded only if one of them arrives."""

DEBUG_EVENTS = (READY_FOR_DEBUG, DEBUGGER_RELEASE)
"""The events about ranks that stop for a debugger."""

INLINE = frozenset((GROUP, NOTIFY))
"""The operations that a single server, on the Python engine, answers on its own thread."""

LIVES = (ClientConnected, ClientFinalized, ClientLost)
"""Upcalls about the connection or the end of a client."""


def is_debug_event(op: Op[Any]) -> bool:
    """Return True if a client has raised an event about ranks that stop for a debugger."""
    return type(op).__name__ == NOTIFY and op.code in DEBUG_EVENTS  # type: ignore[attr-defined]


class WaitingPulls:
    """The pulls of output that wait for their answer."""

    def __init__(self, _host: Manager) -> None:
        self.waiting: deque[tuple[HostNode, Upcall]] = deque()


class ServingManager(Manager):
    """Runs jobs on nodes, and answers the requests of their procs."""

    offered: Collection[str] | None = None
    """The modules of answers that it offers; None for all (see `pypmix.host.answertable`)."""

    @property
    def notices(self) -> Notices:
        """The events of procs and jobs."""
        from pypmix.host.notices import Notices

        return self.part(Notices)

    def rank_ended(self, job: RunningJob, rank: Rank) -> None:
        """Handle the end of a rank, and raise its events if it has failed."""
        if (rank.blame or rank.excused) and not rank.fate:
            # They are made only if there is something to report; the other servers report the ranks of a lost node.
            _ = self.notices
        super().rank_ended(job, rank)

    def rank_replaced(self, job: RunningJob, former: Rank, rank: Rank) -> None:
        """Show that a rank is started again, and raise the event of it once it has connected."""
        where = f" on {rank.node}" if rank.node is not former.node else ""
        text = f"{former.end()}; it is started again{where} ({rank.life} of {job.terms.restarts})"
        self.sink_of(job, 2).write(None, f"pypmix run: {printable(text)}\n".encode())
        self.notices.await_replacement(rank)

    def upcall(self, node: HostNode, upcall: Upcall) -> None:
        """Answer an upcall of a node's server, on the engine's thread."""
        op = upcall.op
        kind = type(op)
        if kind in LIVES:
            self.note(node, op)
            upcall.reply()
            return
        if kind.__name__ == NOTIFY and op.code in DEBUG_EVENTS:  # type: ignore[attr-defined]
            self.note_debug_event(upcall)
        self.answer_upcall(node, upcall)

    def answer_upcall(self, node: HostNode, upcall: Upcall) -> None:
        """Answer an upcall that has been noted, on the engine's thread."""
        op = upcall.op
        kind = type(op).__name__
        # The servers have passed a release on; the others get what a daemon's clients raised from that daemon.
        if kind == NOTIFY and is_debug_event(op) and not (op.code == DEBUGGER_RELEASE and node.here):  # type: ignore[attr-defined]
            upcall.reply()
            return
        crossings = self._crossings
        if crossings is None:
            is_inline = kind in INLINE and not self.native
        elif crossings.prompt and crossings.answer(node, upcall):
            return
        else:
            is_inline = False
        if is_inline:
            # At most a number is requested, and two more thread switches would delay it.
            function = answertable.functions.get(type(op))
            if function is None:
                self.answer(node, upcall)
            else:
                self.answer_with(function, upcall)
            return
        try:
            if isinstance(op, ClientAborted):
                self.loop.post(lambda: self._aborted(op, upcall))
            elif kind == PULL:
                self.part(WaitingPulls).waiting.append((node, upcall))
                self.loop.post(self._answer_pulls)
            elif kind == GROUP and self.native:
                self.loop.post(partial(self._group, node, upcall))
            else:
                self.turns.add(upcall.requestor, lambda: self.answer(node, upcall))
        except RuntimeError:
            upcall.fail(LostConnection("the host has closed", operation=op.name))

    def note_debug_event(self, upcall: Upcall) -> None:
        """Schedule the effect of an event about stopped ranks, on the engine's thread."""
        from pypmix.host.debugging import take

        try:
            self.turns.add(upcall.requestor, partial(take, self, upcall))
        except RuntimeError:
            # The host has closed, and its jobs have ended.
            return

    def note(self, node: HostNode, op: Op[Any]) -> None:
        """Record an upcall about the life of a client, on the engine's thread, before the client is answered.

        The reports of daemons are recorded on the loop's thread, which needs no wake-up.
        """
        crossings = self._crossings
        soon = None if node.here else self.loop.soon
        match op:
            case ClientConnected():
                self._note(op.proc, CONNECTED)
                if crossings is not None:
                    self._cross(crossings.connected, node, op.proc)
            case ClientFinalized():
                self._note(op.proc, FINALIZED)
                # After its earlier requests.
                if crossings is not None:
                    self._cross(crossings.finalized, node, op.proc)
                self.turns.add(op.proc, partial(self._remove_departed, op.proc), soon)
            case ClientLost():
                found = self.find(op.proc)
                if found is not None:
                    found[1].lost = True
                    found[1].left = min(found[1].left, time.monotonic())
                if crossings is not None:
                    self._cross(crossings.departed, node, op.proc)
                self.turns.add(op.proc, partial(self._remove_departed, op.proc), soon)

    def _remove_departed(self, proc: Proc) -> None:
        """Call `at_departure` for a proc that has finalized or lost its connection; clean up after a tool."""
        for function in self.at_departure:
            function(proc)
        if self.find(proc) is None:
            from pypmix.host.tools import remove_tool

            remove_tool(self, proc)

    def _cross(self, report: Callable[[HostNode, Proc], None], node: HostNode, proc: Proc) -> None:
        if self._crossings is not None and self._crossings.prompt:
            report(node, proc)
        else:
            self.turns.add(proc, partial(report, node, proc))

    def _answer_pulls(self) -> None:
        pulls = self.part(WaitingPulls).waiting
        while pulls:
            self.answer(*pulls.popleft())

    def catch_up(self) -> None:
        """Answer all pulls: the server of libpmix did not wait for that, and clients rely on output written since."""
        super().catch_up()
        self._answer_pulls()

    def offers(self, op: Op[Any]) -> bool:
        """Return True if an upcall of this operation has an answer here."""
        if isinstance(op, LIVES):
            return True
        module = answertable.module_of(type(op))
        return module is not None and (self.offered is None or module in self.offered)

    def answer(self, node: HostNode, upcall: Upcall) -> None:
        """Answer a request; one thread answers all of them, so that they never interfere."""
        op = upcall.op
        try:
            if self.native and self._crossings is None and type(op).__name__ in (GROUP, QUERY, NOTIFY):
                self._record_groups(op)
            if self._crossings is not None and self._crossings.answer(node, upcall):
                return
            function = answertable.functions.get(type(op)) or answertable.find(type(op))
            if function is None:
                raise NotSupported("this host does not offer it", operation=op.name)
            self.answer_with(function, upcall)
        except PMIxError as error:
            upcall.fail(error)

    def _group(self, node: HostNode, upcall: Upcall) -> None:
        from pypmix.host.groups import was_broken

        if was_broken(upcall.op):
            # The server reports the end of a member before the host knows which one.
            self.loop.later(ENDING, partial(self.answer, node, upcall))
        else:
            # At once: a timer would fire after later requests.
            self.answer(node, upcall)

    def _record_groups(self, op: Op[Any]) -> None:
        """Keep a record of groups here from the first upcall about one on: a native server keeps none."""
        from pypmix.host.groups import is_about_groups

        if is_about_groups(op):
            from pypmix.host.nodegroups import NodeGroups

            self._crossings = NodeGroups(self)

    def _note(self, proc: Proc, stage: str) -> None:
        found = self.find(proc)
        if found is not None:
            found[1].stage = stage
            found[1].left = math.inf if stage == CONNECTED else time.monotonic()
            if stage == CONNECTED:
                # A former process of this name may have been reported as lost since.
                found[1].lost = False
                for function in self.at_connection:
                    function(found[0])

    def _aborted(self, op: ClientAborted, upcall: Upcall) -> None:
        """End the ranks that a client's abort names.

        It is answered last: otherwise the client could exit before, and the whole job would end with the named ranks.
        """
        found = self.find(op.proc)
        caller = found[1] if found is not None else None
        named = self.expand(op.targets or (Proc.unchecked(op.proc.nspace, RANK_WILDCARD),))
        reason = f"{self.name_for_person(op.proc)} called abort with status {op.code}"
        if op.message:
            reason += f": {printable(op.message)}"
        try:
            self.end_ranks(named, exit_code(op.code), reason, caller)
        finally:
            upcall.reply()
