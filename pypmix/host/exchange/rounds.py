"""Allgathers as their coordinator sees them: who has contributed what, and how each ends, the same way for all.

The coordinator of an allgather is the first of its participants by name. It alone decides how a round ends, so that a
contribution and a departure that cross on their way cannot mean one thing here and another thing there.
"""

from __future__ import annotations

from pypmix.host.exchange.errors import ExchangeTimeout, listed, lost
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Absent = Callable[[bytes, str, list[bytes]], bool]
    Ended = Callable[[dict[str, int], "Gathered | None", PMIxError | None], None]

OPERATION = "allgather"

MAX_OPEN = 4096
"""How many contributions of one server may wait for the others at a time."""


class Gathered(Record):
    """What an allgather has brought together.

    Attributes:
        blobs: The data of each participant, by its name; in the order of names.
        statuses: The status that each has contributed.
        absent: Participants that have no part in it any more; what they had is not there.
    """

    blobs: dict[str, bytes]
    statuses: dict[str, int]
    absent: tuple[str, ...] = ()


class Contribution(Record):
    """What one server gives to a round."""

    number: int
    status: int
    data: bytes


class Round:
    """One allgather under way."""

    __slots__ = ("got", "participants", "signature")

    def __init__(self, signature: bytes, participants: tuple[str, ...]) -> None:
        self.signature = signature
        self.participants = participants
        self.got: dict[str, Contribution] = {}


class Rounds:
    """The allgathers that one server coordinates.

    Args:
        ended: Called with those who have contributed to a round that has ended, and the numbers of their
            contributions, and with the result or the error.

    Attributes:
        absent: Tells whether a participant will contribute nothing to a signature any more.
    """

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self.absent: Absent = lambda _signature, _name, _given: False
        self._rounds: dict[bytes, list[Round]] = {}
        self._held: dict[tuple[str, int], Round] = {}
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Round]:
        return iter([round for rounds in self._rounds.values() for round in rounds])

    def holding(self, name: str, number: int) -> Round | None:
        """Return the round that a contribution waits in."""
        return self._held.get((name, number))

    def contribute(
        self, name: str, signature: bytes, participants: tuple[str, ...], contribution: Contribution, gone: set[str]
    ) -> None:
        """Take in a contribution: it belongs to the oldest round of its signature that lacks one of this server.

        Args:
            name: The contributor.
            signature: What is gathered.
            participants: Who takes part, sorted.
            contribution: What it gives.
            gone: The servers that have gone.
        """
        error: PMIxError | None = None
        found = None
        if not gone.isdisjoint(participants):
            error = lost(gone.intersection(participants), OPERATION)
        elif self._open.get(name, 0) >= MAX_OPEN or (name, contribution.number) in self._held:
            error = _refused(statuses.ERR_OUT_OF_RESOURCE, f"{MAX_OPEN} contributions of {name} wait already")
        else:
            found = next((round for round in self._rounds.get(signature, ()) if name not in round.got), None)
            if found is not None and found.participants != participants:
                others = listed(found.participants)
                error = _refused(
                    statuses.ERR_BAD_PARAM, f"{name} gathers with {listed(participants)}, others with {others}"
                )
        if error is not None:
            self._ended({name: contribution.number}, None, error)
            return
        if found is None:
            found = Round(signature, participants)
            self._rounds.setdefault(signature, []).append(found)
        found.got[name] = contribution
        self._held[name, contribution.number] = found
        self._open[name] = self._open.get(name, 0) + 1
        self._settle(found)

    def review(self) -> None:
        """Look again who is absent."""
        for round in self:
            self._settle(round)

    def cancel(self, name: str, number: int, error: PMIxError) -> None:
        """End the round that a contribution waits in, for all."""
        round = self._held.get((name, number))
        if round is not None:
            self._end(round, None, self._named(round, error))

    def lose(self, name: str) -> None:
        """A server has gone: end all rounds that it takes part in."""
        for round in self:
            if name in round.participants:
                self._end(round, None, lost((name,), OPERATION), but=name)

    def _named(self, round: Round, error: PMIxError) -> PMIxError:
        """Have a timeout say who is missing."""
        if error.code != statuses.ERR_TIMEOUT:
            return error
        missing = self.missing(round)
        return ExchangeTimeout(f"nothing came from {listed(missing)} in time", servers=missing, operation=OPERATION)

    def missing(self, round: Round) -> tuple[str, ...]:
        """Return who may still contribute to a round."""
        given = [contribution.data for contribution in round.got.values()]
        return tuple(
            [
                name
                for name in round.participants
                if name not in round.got and not self.absent(round.signature, name, given)
            ]
        )

    def _settle(self, round: Round) -> None:
        if len(round.got) < len(round.participants) and self.missing(round):
            return
        present = [name for name in round.participants if name in round.got]
        gathered = Gathered(
            {name: round.got[name].data for name in present},
            {name: round.got[name].status for name in present},
            tuple([name for name in round.participants if name not in round.got]),
        )
        self._end(round, gathered, None)

    def _end(self, round: Round, gathered: Gathered | None, error: PMIxError | None, but: str = "") -> None:
        rounds = self._rounds[round.signature]
        rounds.remove(round)
        if not rounds:
            del self._rounds[round.signature]
        for name, contribution in round.got.items():
            del self._held[name, contribution.number]
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]
        self._ended({name: each.number for name, each in round.got.items() if name != but}, gathered, error)


def _refused(status: int, detail: str) -> PMIxError:
    return PMIxError(detail, status=status, operation=OPERATION)
