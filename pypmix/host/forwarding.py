"""Output that is pulled, and input that is pushed."""

from __future__ import annotations

from pypmix.host.feeding import HELD_MAX
from pypmix.host.running import STDERR, STDOUT
from pypmix.standard import keys
from pypmix.standard.errors import NotFound, NotSupported, OutOfResources
from pypmix.standard.ops import IOFDeregister, IOFPull, IOFPush
from pypmix.standard.ops.forwarding import names_proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.host.output import Stream
    from pypmix.host.rank import Rank
    from pypmix.standard.types import Proc


HINT = "`pypmix run --forward` gives it pipes"


class Pulls:
    """The procs whose output the server is to be given, in addition to spawned jobs, whose output it gets in full."""

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._pulls: dict[int, IOFPull] = {}
        self._last = 0

    def add(self, op: IOFPull) -> int:
        """Record a pull and return its id.

        Raises:
            NotFound: No such procs exist.
            NotSupported: Their output does not pass through this host.
        """
        ranks = _named(self._host, op.procs)
        if ranks and not any(rank.streams for rank in ranks):
            raise NotSupported(
                "a lone rank writes straight to the output of its launcher",
                operation="iof_pull",
                procs=[rank.proc for rank in ranks],
                hint=HINT,
            )
        self._last += 1
        self._pulls[self._last] = op
        return self._last

    def remove(self, number: int) -> None:
        """Forget a pull.

        Raises:
            NotFound: No pull has this id.
        """
        if self._pulls.pop(number, None) is None:
            raise NotFound(f"there is no pull with the id {number}", operation="iof_deregister")
        self.apply()

    def apply(self) -> None:
        """Make each stream deliver exactly the output that is pulled now."""
        for rank, kind, stream in self._streams():
            wanted = any(op.channels & kind and names_proc(op.procs, rank.proc) for op in self._pulls.values())
            if wanted and stream.tap is None:
                stream.tap = self._host.delivery(rank.proc, kind, STDERR if len(rank.streams) == 1 else 0)
                if stream.ended:
                    stream.tap(b"")
            elif not wanted:
                stream.tap = None

    def _streams(self) -> Iterator[tuple[Rank, int, Stream]]:
        for job in self._host.jobs.values():
            if not job.terms.kept:
                for rank in job.ranks:
                    for kind in (STDOUT, STDERR):
                        if kind in rank.streams:
                            yield rank, kind, rank.streams[kind]


def _named(host: Manager, procs: Iterable[Proc]) -> list[Rank]:
    """Return the ranks that procs name; an empty nspace stands for all jobs; finished jobs have none."""
    found: list[Rank] = []
    for proc in procs:
        if proc.nspace and not host.has_run(proc.nspace):
            raise NotFound(f"there is no nspace {proc.nspace!r} here", procs=(proc,))
        jobs = [job for job in host.jobs.values() if proc.nspace in ("", job.nspace)]
        ranks = [rank for job in jobs for rank in job.ranks if names_proc((proc,), rank.proc)]
        if jobs and not ranks:
            raise NotFound("there is no such proc", procs=(proc,))
        found += ranks
    return found


def _pull(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, IOFPull)
    pulls = host.part(Pulls)
    # The server must know the pull before data is delivered.
    upcall.reply(pulls.add(op))
    pulls.apply()


def _deregister(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, IOFDeregister)
    host.part(Pulls).remove(op.id)
    upcall.reply()


def _push(host: Manager, upcall: Upcall) -> None:
    """Answer when the ranks' pipes have accepted the data: a caller that waits for it is slowed down, not refused."""
    op = upcall.op
    assert isinstance(op, IOFPush)
    ranks = _named(host, op.procs)
    # A wildcard stands for the ranks that read any input.
    inputs = [rank.input for rank in ranks if rank.input is not None]
    if ranks and not inputs:
        raise NotSupported(
            "these procs read nothing that can be pushed to them",
            operation="iof_push",
            procs=[rank.proc for rank in ranks],
            hint="`pypmix run --stdin push` and the directive FWD_STDIN of a spawn give them such an input",
        )
    if any(each.held + len(op.data) > HELD_MAX for each in inputs):
        raise OutOfResources(
            "the procs do not read what was pushed to them before",
            operation="iof_push",
        )
    waiting = len(inputs)

    def count_taken() -> None:
        nonlocal waiting
        waiting -= 1
        if waiting == 0:
            upcall.reply()

    ends = not op.data or any(info.key == keys.IOF_COMPLETE and info.value.data is not False for info in op.directives)
    if not inputs:
        upcall.reply()
    for each in inputs:
        if op.data:
            each.write(op.data, count_taken)
            if ends:
                each.write(b"")
        else:
            each.write(b"", count_taken)


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {
    IOFPull: _pull,
    IOFDeregister: _deregister,
    IOFPush: _push,
}
