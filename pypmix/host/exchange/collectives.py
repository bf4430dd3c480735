"""Fences and disconnects whose members are on several servers, as one of these sees them."""

from __future__ import annotations

from pypmix.engine.base import Pending
from pypmix.host.exchange import packing
from pypmix.host.exchange.errors import ExchangeTimeout, ServerLost, listed
from pypmix.host.exchange.groups import Groups, seconds_in
from pypmix.host.exchange.lives import LAST
from pypmix.host.exchange.turns import log
from pypmix.standard import attrs, statuses
from pypmix.standard.errors import SUCCESSES, PartialSuccess, PMIxError, RemoteProtocolError, error_for
from pypmix.standard.ops import Connect, Disconnect, FenceUpcall, GroupUpcall
from pypmix.standard.ops.events import number_in
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.host.exchange.exchange import Exchange, Gathering
    from pypmix.host.exchange.lives import Lives
    from pypmix.host.exchange.places import Places
    from pypmix.host.exchange.rounds import Gathered
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.types import Info

    Answer = Callable[[Upcall, Any], None]
    Broken = Callable[[str], PMIxError | None]
    Party = tuple[list[Proc], dict[str, list[Proc]], bytes]
    Borrow = Callable[[JobInfo], None]

LOCAL_STATUS = attrs.LOCAL_COLLECTIVE_STATUS.key

LIFE = 4
"""How many bytes of a contribution say which life its members are in."""

OWN = "host"
"""The operation of what hosts bring together themselves."""

MAX_PARTIES = 256
"""How many collectives are remembered with who takes part in them."""

MAX_MISSING = 4096
"""How many procs an error names as missing."""


class _Crossing:
    """A collective of this server that is under way with others."""

    __slots__ = ("gathering", "life", "members", "operation", "servers")

    def __init__(self, operation: str, members: list[Proc], servers: dict[str, list[Proc]], life: int) -> None:
        self.life = life
        self.operation = operation
        self.members = members
        self.servers = servers
        self.gathering: Gathering | None = None


class Collectives:
    """The collectives of one server that are under way with others; used in the turns of its exchange.

    Args:
        exchange: This server's exchange.
        places: Which server has which proc.
        lives: How often the procs of this server have opened.
        jobs: The jobs that this server has registered.
        borrow: Registers a job of other servers with this one.
        tell_gone: Tells the server of procs of other servers that have gone.
        lacks: Tells whether the server knows nothing of a job.
    """

    def __init__(
        self,
        exchange: Exchange,
        places: Places,
        lives: Lives,
        jobs: dict[str, JobInfo],
        borrow: Borrow,
        tell_gone: Callable[[Iterable[Proc]], None],
        lacks: Callable[[str], bool],
    ) -> None:
        self.name = exchange.name
        self._exchange = exchange
        self._places = places
        self._lives = lives
        self._open: dict[_Crossing, None] = {}
        self._parties: dict[tuple[str, tuple[Proc, ...]], Party] = {}
        self._version = 0
        self.groups = Groups(exchange, places, lives, jobs, borrow, self.attempt, tell_gone, lacks)
        self.answers: dict[type, Answer] = {
            FenceUpcall: self._fence,
            GroupUpcall: self.groups.answer,
            Connect: self.groups.connect,
            Disconnect: self._disconnect,
        }
        exchange.absences(self._absent)

    def __len__(self) -> int:
        return len(self._open) + len(self.groups)

    def pending(self) -> list[Pending]:
        """Return what is under way, oldest first; from any thread."""
        found = []
        for crossing in list(self._open):
            gathering = crossing.gathering
            if gathering is not None:
                late = set(self._procs_on(crossing, gathering.missing()))
                missing = tuple([proc for proc in crossing.members if proc in late])
                arrived = tuple([proc for proc in crossing.members if proc not in late])
                found.append(Pending(crossing.operation, "", arrived, missing, gathering.since))
        return sorted([*found, *self.groups.pending()], key=lambda item: item.since)

    def attempt(self, answer: Answer, upcall: Upcall) -> None:
        """Begin an answer, or end one; what that raises is the answer."""
        try:
            answer(upcall, upcall.op)
        except Exception as error:
            if not isinstance(error, PMIxError):
                log.exception("%s: the answer to %s failed", self.name, upcall.op.name)
                error = PMIxError(f"{type(error).__name__}: {error}", status=statuses.ERROR)
            error.operation = error.operation or upcall.op.name
            upcall.fail(error)

    def _absent(self, signature: bytes, server: str, given: list[bytes]) -> bool:
        """Tell whether nobody comes to a collective of its members on a server."""
        if not self._places.any_missing():
            return False
        try:
            operation, _, members = packing.unpack_signature(signature)
        except RemoteProtocolError as error:
            log.error("%s: an allgather of others cannot be read: %s", self.name, error)
            return False
        # What hosts bring together themselves is their own, and tells of no lives: only who has gone is absent there.
        life = LAST if operation == OWN else max([life_of(data) for data in given], default=1)
        return self._places.absent(members, server, life)

    def _party(self, operation: str, procs: tuple[Proc, ...]) -> Party:
        """Return who takes part in a collective: procs mostly do the same ones again and again."""
        places = self._places
        if places.version != self._version or len(self._parties) >= MAX_PARTIES:
            self._parties.clear()
            self._version = places.version
        name = operation, procs
        found = self._parties.get(name)
        if found is None:
            members = places.expand(procs)
            servers = places.servers(members)
            if self.name not in servers:
                raise PMIxError(f"none of its procs are on {self.name}", status=statuses.ERR_BAD_PARAM, procs=members)
            found = members, servers, signature_of(operation, "", members)
            if places.steady:
                self._parties[name] = found
        return found

    def _gather(
        self,
        upcall: Upcall,
        procs: Iterable[Proc],
        directives: tuple[Info, ...],
        data: bytes,
        joined: Callable[[Gathered], object],
        *,
        broken: Broken,
    ) -> None:
        """Carry a collective out with the servers of its members, and answer its upcall.

        Args:
            upcall: The upcall.
            procs: The members as they are named.
            directives: What the callers ask for.
            data: What this server contributes.
            joined: Returns the answer, given what all have contributed.
            broken: Returns how it fails without some members, given what happened; None where it does not.
        """
        operation = upcall.op.name
        members, servers, signature = self._party(operation, tuple(procs))
        life = self._lives.latest(servers[self.name])
        crossing = _Crossing(operation, members, servers, life)
        mine = life.to_bytes(LIFE, "big") + data
        if self._absent(signature, self.name, [mine]):
            # Those who have not gone do not wait for this server any more, and it has nobody left to tell.
            self._broke(upcall, crossing, broken("all members here have gone"), (self.name,))
            return

        def done(gathered: Gathered | None, error: PMIxError | None) -> None:
            del self._open[crossing]
            self.attempt(lambda upcall, _: self._end(upcall, crossing, gathered, error, joined, broken), upcall)

        self._open[crossing] = None
        crossing.gathering = self._exchange.allgather(
            signature, servers, mine, done, status=_status_in(directives), timeout=seconds_in(directives)
        )

    def _end(
        self,
        upcall: Upcall,
        crossing: _Crossing,
        gathered: Gathered | None,
        error: PMIxError | None,
        joined: Callable[[Gathered], object],
        broken: Broken,
    ) -> None:
        if gathered is None:
            assert error is not None
            self._fail(upcall, crossing, error, broken)
            return
        failures = [status for status in gathered.statuses.values() if status not in SUCCESSES]
        hard = [status for status in failures if status != statuses.ERR_PARTIAL_SUCCESS]
        if hard:
            names = [name for name, status in gathered.statuses.items() if status == hard[0]]
            raise error_for(hard[0])(f"it failed on {listed(names)}", status=hard[0])
        if gathered.absent:
            text = f"all members on {listed(gathered.absent)} have gone"
            self._broke(upcall, crossing, broken(text), gathered.absent)
        elif failures:
            names = [name for name, status in gathered.statuses.items() if status == statuses.ERR_PARTIAL_SUCCESS]
            self._broke(upcall, crossing, broken(f"members on {listed(names)} have gone"), ())
        else:
            upcall.reply(joined(gathered))

    def _fail(self, upcall: Upcall, crossing: _Crossing, error: PMIxError, broken: Broken) -> None:
        """Answer a collective that the exchange could not end well."""
        error.operation = crossing.operation
        if isinstance(error, ServerLost):
            self._broke(upcall, crossing, broken(error.detail), error.servers)
            return
        if isinstance(error, ExchangeTimeout):
            late = self._procs_on(crossing, error.servers)
            missing = [proc for proc in late if not self._places.is_missing(proc, crossing.life)]
            error.missing = frozenset(missing[:MAX_MISSING])
        upcall.fail(error)

    def _broke(self, upcall: Upcall, crossing: _Crossing, problem: PMIxError | None, servers: tuple[str, ...]) -> None:
        """Answer a collective that some members have not come to: with an error, or with nothing where it is none."""
        if problem is None:
            upcall.reply(None)
            return
        gone = {proc for proc in crossing.members if self._places.is_missing(proc, crossing.life)}
        gone.update(self._procs_on(crossing, servers))
        problem.operation = crossing.operation
        problem.missing = frozenset(sorted(gone)[:MAX_MISSING])
        upcall.fail(problem)

    def _procs_on(self, crossing: _Crossing, servers: Iterable[str]) -> tuple[Proc, ...]:
        """Return the members of a collective that are on some servers."""
        return tuple([proc for server in servers for proc in crossing.servers.get(server, ())])

    def _fence(self, upcall: Upcall, op: FenceUpcall) -> None:
        if not self.groups.takes(upcall, op, op.data):
            self._gather(upcall, op.procs, op.directives, op.data, lambda got: b"".join(parts_of(got)), broken=_partial)

    def _disconnect(self, upcall: Upcall, op: Disconnect) -> None:
        if not self.groups.takes(upcall, op):
            self._gather(upcall, op.procs, op.directives, b"", lambda _: None, broken=_as_well)


def _partial(detail: str) -> PMIxError:
    """A fence without some of its members."""
    return PartialSuccess(detail)


def _as_well(_detail: str) -> None:
    """What is taken apart is so without those who have gone as well."""


def life_of(data: bytes) -> int:
    """Return the life that a server says its members to be in, who contribute this."""
    return int.from_bytes(data[:LIFE], "big")


def parts_of(gathered: Gathered) -> list[bytes]:
    """Return what servers have contributed to a collective besides the life of their members."""
    return [data[LIFE:] for data in gathered.blobs.values()]


def _status_in(directives: Iterable[Info]) -> int:
    """Return how the part of a collective that is a server's own has ended."""
    return number_in(directives, LOCAL_STATUS) or 0


def signature_of(operation: str, label: str, members: Iterable[Proc]) -> bytes:
    """Return what tells a collective of procs from others, on all servers."""
    ranks: dict[str, list[int]] = {}
    for nspace, rank in sorted(members):
        ranks.setdefault(nspace, []).append(rank)
    return packing.pack_signature(operation, label, ranks)
