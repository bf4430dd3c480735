"""The members of a group, in an order that is the same at all of them, in whatever order events arrive."""

from __future__ import annotations

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pypmix.standard.types import Proc

MAX_PLACE = 2**63
"""Places are below this, so that there is always room for later ones."""

MAX_DEPARTED = 4096
"""The most departures that are remembered, for late events about them."""


class Admission(Record):
    """The admission of a proc to an existing group.

    Args:
        place: Its place among the admitted procs, counted from 1; two procs that got the same place from different
            members are in the order of procs.
        life: The proc's own number for its admission, which grows: each begins a separate membership, which ends when
            the proc leaves or fails. The founding members have life 0.
    """

    place: int
    life: int


class Membership:
    """The members of one group, by group rank.

    Events in another order lead to the same members: a departure is remembered in case the event of the admission
    arrives later, and the order of the members does not depend on the order of the events.

    Args:
        members: The members by group rank.
        admitted: The members that the group did not begin with.

    Attributes:
        admitted: The admitted members at present.
        departed: The last life of each proc that has ended.
        last_place: The last place that was assigned by an admission.
    """

    def __init__(self, members: Iterable[Proc], admitted: Mapping[Proc, Admission]) -> None:
        self.admitted = dict(admitted)
        self.departed: dict[Proc, int] = {}
        self._founders = dict.fromkeys(members)
        self.last_place = 0
        for proc, admission in self.admitted.items():
            self._founders.pop(proc, None)
            self.last_place = max(self.last_place, admission.place)
        self._cached: tuple[Proc, ...] | None = None

    def __contains__(self, proc: Proc) -> bool:
        return proc in self._founders or proc in self.admitted

    def __len__(self) -> int:
        return len(self._founders) + len(self.admitted)

    @property
    def members(self) -> tuple[Proc, ...]:
        """The members by group rank."""
        if self._cached is None:
            self._cached = tuple(self._founders)
            if self.admitted:
                later = sorted((admission.place, proc) for proc, admission in self.admitted.items())
                self._cached = (*self._cached, *[proc for _, proc in later])
        return self._cached

    def life(self, proc: Proc) -> int:
        """Return the life of a member; 0 for founding members."""
        admission = self.admitted.get(proc)
        return 0 if admission is None else admission.life

    def has_departed(self, proc: Proc, life: int) -> bool:
        """Return True if a life of a proc is known to have ended."""
        return life <= self.departed.get(proc, -1)

    def add(self, proc: Proc, admission: Admission) -> bool:
        """Add a proc. Return True if it was not a member. A former life of it must have been removed."""
        if admission.place >= MAX_PLACE:
            return False
        self.last_place = max(self.last_place, admission.place)
        known = self.admitted.get(proc)
        if known is not None and known.life == admission.life:
            # Two members have admitted it, the second one in place of the first one, which had failed.
            if admission.place < known.place:
                self.admitted[proc] = admission
                self._cached = None
            return False
        if proc in self or self.has_departed(proc, admission.life):
            return False
        self.admitted[proc] = admission
        self._cached = None
        return True

    def remove(self, proc: Proc, life: int) -> bool:
        """Remove a proc whose life has ended. Return True if it was a member in that life."""
        departed = self.departed
        departed[proc] = max(life, departed.pop(proc, -1))
        if len(departed) > MAX_DEPARTED:
            del departed[next(iter(departed))]
        if proc not in self or life < self.life(proc):
            return False
        self._founders.pop(proc, None)
        self.admitted.pop(proc, None)
        self._cached = None
        return True
