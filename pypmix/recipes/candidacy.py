"""The leader of a group, as one of its members sees it: no I/O, no clock, no threads."""

from __future__ import annotations

from pypmix.events import Event
from pypmix.group import Joined, LeaderFailed, LeaderSelected, Left, MemberFailed, change_of
from pypmix.standard import keys
from pypmix.standard.enums import EventCode
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import Proc, check_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from pypmix.engine.base import Delivery
    from pypmix.group import GroupView
    from pypmix.standard.ops import GroupChange, GroupState

    class TermListener(Protocol):
        """The listener that receives the terms."""

        def begin_term(self, epoch: int, leader: Proc) -> None:
            """Begin a term; the previous one has ended."""

        def end_term(self) -> None:
            """End the term."""

        def end_terms(self, error: BaseException | None) -> None:
            """End the terms: no further term begins."""


LEADER_FAILED = int(EventCode.GROUP_LEADER_FAILED)


class TermBase:
    """A time in which one member leads.

    Args:
        epoch: The number of the term.
        leader: The leader.
        end: Returns True once the term has ended; the blocking and the async form differ in it.
    """

    def __init__(self, epoch: int, leader: Proc, end: Callable[[], bool]) -> None:
        self.epoch = epoch
        self.leader = leader
        self.over = end

    def __repr__(self) -> str:
        return f"<Term {self.epoch} of {self.leader}{', over' if self.over() else ''}>"


def check(group: GroupView, elect: object, patience: float) -> None:
    """Refuse arguments that could never work.

    Raises:
        TypeError, ValueError: An argument is not valid.
        NotInitialized: The group does not exist.
    """
    if not callable(elect):
        raise TypeError(f"elect is a function, not {elect!r:.100}")
    patience = check_number(patience, "patience is a number of seconds")
    if not patience > 0:
        raise ValueError(f"patience is a number of seconds, not {patience!r:.100}")
    if group.membership.state().leader is None and not group.membership.state().term:
        raise ValueError(f"the group {group.name!r} has no leader to be followed by another one: form it with leader=")


class Candidacy:
    """The terms of a group's leaders, and the answers of this process when a leader fails.

    A member that should not lead delays its answer until the group has a leader: the candidate may have failed too,
    which the others learn a moment later, and then another member has to claim the lead.

    Args:
        me: The member.
        name: The group's name.
        elect: Returns the next leader, one of the living members.
        listener: The receiver of the terms.
    """

    def __init__(
        self, me: Proc, name: str, elect: Callable[[Iterable[Proc]], Proc | None], listener: TermListener
    ) -> None:
        self._me = me
        self._name = name
        self._elect = elect
        self._listener = listener
        self._term = 0
        self._leader: Proc | None = None
        self._members: tuple[Proc, ...] = ()
        self._failed: set[Proc] = set()
        self._kept: list[Delivery] = []

    def begin(self, state: GroupState) -> None:
        """Start with the present state of the group."""
        self._members = state.members
        if state.leader is not None:
            self._begin_term(state.term, state.leader)

    def failed(self, delivery: Delivery) -> bool:
        """Handle the failure of a group's leader; return True if the answer is delayed."""
        event = Event(delivery.notification, delivery.results)
        if event.info.get(keys.GROUP_ID) != self._name:
            delivery.done()
            return False
        self._note_failures(event.affected)
        self._kept.append(delivery)
        self._stand()
        return delivery in self._kept

    def changed(self, engine_change: GroupChange) -> None:
        """Handle a change of the group."""
        change = change_of(engine_change)
        self._members = change.members
        if isinstance(change, Left) and self._leader in change.procs and self._leader != self._me:
            # The others are asked for a leader, as after a failure.
            self._end_term()
        elif isinstance(change, Joined):
            self._failed.difference_update(change.procs)
        elif isinstance(change, LeaderFailed | MemberFailed):
            self._note_failures(change.procs)
        elif isinstance(change, LeaderSelected):
            self.release()
            if change.proc is not None:
                self._begin_term(change.state.term, change.proc)
            else:
                self._listener.end_terms(
                    PMIxError(
                        f"the group {self._name!r} has no leader: no member has claimed the lead",
                        status=LEADER_FAILED,
                        operation="leadership",
                        procs=change.members,
                        hint="all members are to use Leadership, with the same elect",
                    )
                )
        if self._kept:
            self._stand()

    def end(self, error: BaseException | None) -> None:
        """End the terms: the group was destructed, this process has left it, or the session has ended."""
        self.release()
        self._end_term()
        self._listener.end_terms(error)

    def release(self) -> None:
        """Send the delayed answers."""
        kept, self._kept = self._kept, []
        for delivery in kept:
            delivery.done()

    def give_up(self, delivery: Delivery) -> None:
        """Send the answer if it is still delayed after the patience."""
        if delivery in self._kept:
            self.release()

    def _stand(self) -> None:
        """Claim the lead if it is this process's turn."""
        alive = tuple([proc for proc in self._members if proc not in self._failed])
        try:
            wanted = self._elect(alive) if alive else None
        except BaseException as error:
            import logging

            logging.getLogger("pypmix.recipes").error("elect failed for %s", self._name, exc_info=error)
            self.release()
            return
        if wanted != self._me:
            return
        kept, self._kept = self._kept, []
        for delivery in kept:
            answer = Event(delivery.notification, delivery.results).lead()
            delivery.done(answer.status, answer.results)

    def _note_failures(self, procs: Iterable[Proc]) -> None:
        self._failed.update(procs)
        # A late report about an earlier leader does not concern this one.
        if self._leader in self._failed:
            self._end_term()

    def _begin_term(self, term: int, leader: Proc) -> None:
        if term > self._term and leader not in self._failed:
            self._end_term()
            self._term = term
            self._leader = leader
            self._listener.begin_term(term, leader)

    def _end_term(self) -> None:
        if self._leader is not None:
            self._leader = None
            self._listener.end_term()
