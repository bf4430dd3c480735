"""MPI communicators of procs: the members' offers before they make one, and the calls of MPI that make it.

Theory of operation
-------------------
MPI has no time limits, and a member that cannot take part leaves the others waiting in it. So members first exchange
offers by PMIx, and only call MPI if all can take part:

- If all of them have initialized MPI (the world model), the communicator is made of `COMM_WORLD`, which any MPI-3
  supports. Otherwise each member makes it of a session, and sends a second offer once the session is open: Open MPI 5.0
  waits for the whole job when the first session is opened, as `MPI_Init` does, and members may fail differently there.
- A rank of a job is the same in MPI and in PMIx. If it differs, MPI has not found the job and runs as a singleton; the
  offer reports that, too.
- Members of several jobs first make a communicator of each job. These communicators are merged one after the other over
  a port (`MPI_Comm_accept`) that the first member opens and sends to the others by PMIx; at last the result is put into
  the order of the group. MPI supports this in the world model only.

The session of a process is opened once and closed at its end, since Open MPI 5.0 crashes if a second one is opened.

Calls of MPI block, and the methods of `Maker` that say so wait for other members. They may be called on any thread, one
at a time.
"""

from __future__ import annotations

import atexit
import json
import sys
from binascii import crc32

from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.naming import common_job, name_proc
from pypmix.standard.record import Record
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpi4py import MPI

TAGS = 1 << 15
"""The number of tags that every MPI has."""

LATE = " (Open MPI has to be initialized before a client of the native engine is opened)"
"""A reason for a failure to open a session, which MPI does not report."""

_opened: list[MPI.Session] = []
"""The session of this process, once it is open."""


class Offer(Record):
    """The message of a member to the others: whether it can take part.

    Attributes:
        proc: The member.
        world: Whether it has initialized MPI.
        problem: Why it cannot take part; empty if it can.
    """

    proc: Proc
    world: bool
    problem: str

    def encode(self) -> str:
        """Return it as text."""
        return json.dumps([*self.proc, self.world, self.problem])

    @classmethod
    def decode(cls, text: str) -> Offer:
        """Return the offer of a text."""
        nspace, rank, world, problem = json.loads(text)
        return cls(Proc(nspace, rank), world, problem)


def agreed(name: str, offers: Sequence[Offer]) -> bool:
    """Return True if all members have initialized MPI.

    Raises:
        PMIxError: A member cannot take part.
    """
    problems = [offer for offer in offers if offer.problem]
    if problems:
        job = common_job([offer.proc for offer in offers])
        shown = "; ".join([f"{name_proc(offer.proc, job)}: {offer.problem}" for offer in problems[:4]])
        more = f"; and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise PMIxError(
            f"there is no communicator of {name!r}: {shown}{more}",
            operation="communicator",
            procs=[offer.proc for offer in problems],
            job=job,
        )
    return all(offer.world for offer in offers)


class Maker:
    """Makes the communicator of some members.

    Args:
        own: The caller.
        name: The name of the members in messages.
        session: The caller's session to make it of; by default the world, or the session of this process.
    """

    def __init__(self, caller: Proc, name: str, session: MPI.Session | None) -> None:
        self._own = caller
        self._name = name
        self._session = session
        self._base: MPI.Group | None = None
        self._parts: dict[str, list[int]] = {}
        self._comm: MPI.Intracomm | None = None
        self._merged: list[MPI.Comm] = []
        self._port = ""

    def offer(self, session: bool = False) -> Offer:
        """Return the caller's offer.

        Args:
            session: Open a session, since not all have initialized MPI; some MPIs then wait for the whole job.
        """
        world, problem = False, ""
        try:
            _load()
            from mpi4py import MPI

            world = not (session or self._session) and MPI.Is_initialized() and not MPI.Is_finalized()
            if world:
                self._base = MPI.COMM_WORLD.Get_group()
            elif session:
                self._base = (self._session or _session()).Create_group("mpi://WORLD")
            if self._base is not None and self._base.Get_rank() != self._own.rank:
                problem = f"MPI has not found the job: to it, the caller is rank {self._base.Get_rank()}"
        except Exception as error:
            # Of whatever kind: the others wait for a word.
            problem = f"{type(error).__name__}: {error}" + (LATE if session else "")
        return Offer(self._own, world, problem)

    def begin(self, offers: Sequence[Offer], world: bool) -> int:
        """Make the communicator of the members of the caller's job; waits for them. Return how many jobs there are.

        Raises:
            NotSupported: MPI cannot join several jobs without a world.
        """
        for offer in offers:
            self._parts.setdefault(offer.proc.nspace, []).append(offer.proc.rank)
        if len(self._parts) > 1 and not world:
            raise NotSupported(
                f"the members of {self._name!r} are of {len(self._parts)} jobs, and some have not initialized MPI",
                operation="communicator",
                hint="import mpi4py.MPI first, in all procs of these jobs",
            )
        from mpi4py import MPI

        assert self._base is not None
        members = self._base.Incl(self._parts[self._own.nspace])
        digest = crc32(self._name.encode())
        if world:
            self._comm = MPI.COMM_WORLD.Create_group(members, digest % TAGS)
        else:
            # Open MPI forms a group of PMIx under this tag, so it is not the members' own name.
            self._comm = MPI.Intracomm.Create_from_group(members, f"pypmix.{digest:08x}.{ascii(self._name)[1:31]}")
        members.Free()
        self._base.Free()
        return len(self._parts)

    def port(self) -> str:
        """Return a port for the next job; for the first member to call."""
        from mpi4py import MPI

        self._port = MPI.Open_port()
        return self._port

    def join(self, turn: int, port: str) -> None:
        """Take in the members of the next job; waits for them, and does nothing at those whose turn has not come.

        Args:
            turn: The number of the job, from 1.
            port: Where both sides meet.
        """
        place = list(self._parts).index(self._own.nspace)
        if place > turn:
            return
        assert self._comm is not None
        late = place == turn
        between = self._comm.Connect(port) if late else self._comm.Accept(port)
        self._merged += [self._comm, between]
        self._comm = between.Merge(high=late)
        if self._port:
            from mpi4py import MPI

            MPI.Close_port(self._port)

    def end(self, offers: Sequence[Offer]) -> MPI.Intracomm:
        """Return the communicator, with the members in their order; waits for them."""
        assert self._comm is not None
        joined = [(nspace, rank) for nspace, ranks in self._parts.items() for rank in ranks]
        wanted = [tuple(offer.proc) for offer in offers]
        if joined != wanted:
            self._merged.append(self._comm)
            self._comm = self._comm.Split(0, wanted.index(tuple(self._own)))
        return self._comm

    def free(self) -> None:
        """Free the communicator; waits for the others."""
        from mpi4py import MPI

        comm, self._comm = self._comm, None
        for each in [comm, *reversed(self._merged)]:
            if each is None or each == MPI.COMM_NULL:
                continue
            if each.Is_inter():
                each.Disconnect()
            else:
                each.Free()
        self._merged.clear()


def _load() -> None:
    """Import `mpi4py.MPI` without an `MPI_Init`, which would wait for all of the job."""
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        before, mpi4py.rc.initialize = mpi4py.rc.initialize, False
        try:
            import mpi4py.MPI
        finally:
            mpi4py.rc.initialize = before


def _session() -> MPI.Session:
    """Return the session of this process."""
    from mpi4py import MPI

    if not _opened:
        info = MPI.Info.Create({"thread_level": "MPI_THREAD_MULTIPLE"})
        try:
            _opened.append(MPI.Session.Init(info))
        finally:
            info.Free()
        atexit.register(_opened[0].Finalize)
    return _opened[0]
