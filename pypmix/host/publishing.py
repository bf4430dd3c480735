"""Publish, lookup and unpublish: the rights of callers, and how long published data stays.

`publisheddata.Directory` stores the data and compares keys, ranges and owners. `Publications` tells it who calls, and
when procs, jobs and tools end, at which data of theirs goes.
"""

from __future__ import annotations

from pypmix.host.publisheddata import Caller, Directory
from pypmix.standard.errors import LostConnection, NotSupported, PMIxError
from pypmix.standard.ops import PERSIST_APP, Lookup, Publish, Unpublish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.standard.types import Pdata, Proc


class Publications:
    """The values that procs have published on a host; in an exchange, one host keeps the values of all."""

    def __init__(self, host: Manager) -> None:
        self._host = host
        self.directory = Directory(host.loop.later, host.limits)
        self._last: dict[tuple[str, int], Rank] = {}
        """A running rank of each application, by its job and first rank; perhaps ended since the last look."""
        host.at_rank_end.append(self.retire)

    # On the loop's thread

    def leave(self, tool: Proc) -> None:
        """Remove the values that a tool published for its lifetime."""
        self.directory.leave(tool)
        self.directory.forget({tool}, PERSIST_APP)

    def retire(self, job: RunningJob, rank: Rank) -> None:
        """Remove the values published for the lifetime of an ended rank, or of its application if it was the last."""
        self.directory.leave(rank.proc)
        if not self.directory:
            self._last.clear()
            return
        first = 0
        for app in job.job.apps:
            if rank.proc.rank < first + app.np:
                break
            first += app.np
        last = self._last.get((job.nspace, first))
        if last is not None and last.alive:
            return
        same = [job.rank(number) for number in range(first, first + app.np)]
        running = [other for other in same if other is not None and other.alive]
        if running:
            # Of many ranks that end one after the other, in either direction, this one is among the last.
            self._last[job.nspace, first] = running[len(running) // 2]
            return
        self._last.pop((job.nspace, first), None)
        # Ranks on other hosts are reported when they have ended (`job_over`).
        if None not in same:
            self.directory.forget({job.job.proc(first + number) for number in range(app.np)}, PERSIST_APP)

    def answer(self, upcall: Upcall) -> None:
        """Answer an upcall."""
        op = upcall.op
        if upcall.requestor is None or upcall.uid is None or upcall.gid is None:
            raise NotSupported("the server does not say which user asks", operation=op.name)
        who = Caller(upcall.requestor, upcall.uid, upcall.gid, self._host.node_number(upcall.requestor))
        if isinstance(op, Lookup):

            def reply(data: tuple[Pdata, ...], error: PMIxError | None) -> None:
                if error is None:
                    upcall.reply(data)
                else:
                    upcall.fail(error)

            self.directory.lookup(who, op, reply)
            return
        if isinstance(op, Publish):
            self.directory.publish(who, op)
            owner = self._host.find(who.proc)
            if owner is not None and owner[1].over:
                # It did not wait for the answer, and values for its lifetime have expired.
                self.retire(*owner)
        elif isinstance(op, Unpublish):
            self.directory.unpublish(who, op)
        upcall.reply()

    # On any thread, as an exchange calls it; all of it is done later, in the order of the calls

    def post(self, upcall: Upcall) -> None:
        """Schedule the answer of an upcall."""

        def attempt() -> None:
            try:
                self.answer(upcall)
            except Exception as error:
                upcall.fail(error)

        try:
            self._host.loop.post(attempt)
        except RuntimeError:
            upcall.fail(LostConnection("the host has closed", operation=upcall.op.name))

    def remove_proc(self, proc: Proc) -> None:
        """Remove the values that a proc published for its lifetime."""
        self._host.soon(lambda: self.directory.leave(proc))

    def job_over(self, procs: tuple[Proc, ...]) -> None:
        """Remove the values that procs published for the lifetime of their application."""
        self._host.soon(lambda: self.directory.forget(frozenset(procs), PERSIST_APP))


def _answer(host: Manager, upcall: Upcall) -> None:
    host.part(Publications).answer(upcall)


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = dict.fromkeys((Publish, Lookup, Unpublish), _answer)
