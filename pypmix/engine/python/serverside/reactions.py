"""Constructs under way: who leads, who has ended before the group stood, and what the others want to do about that."""

from __future__ import annotations

from pypmix.engine.groups.states import Construction
from pypmix.engine.groups.talk import ABORT, CLAIM, ERROR_STATUS, REACTS, proc
from pypmix.standard import codes, keys, statuses
from pypmix.standard.ops.events import is_set
from pypmix.standard.types import Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from pypmix.engine.python.collectives import Collective, Roster
    from pypmix.engine.python.server import Ticket
    from pypmix.engine.python.serverdata import Process
    from pypmix.engine.python.serverside.grouprecords import Records
    from pypmix.engine.python.serverside.plans import Plan
    from pypmix.standard.types import Proc

    class Abort(Protocol):
        def __call__(self, construct: Construct, quiet: bool = False) -> None:
            """End a construct; unless this is quiet, all of its procs are told by an event."""


SPARING = frozenset((keys.GROUP_OPTIONAL, keys.GROUP_NOTIFY_TERMINATION, keys.GROUP_FT_COLLECTIVE))
"""Directives with which a construct goes on without those who end before the group stands."""

FLAGS = SPARING | {keys.GROUP_LEADER, REACTS}


def given_by(infos: Iterable[Info]) -> frozenset[str]:
    """Return which of the directives are set that say how failures are dealt with."""
    return frozenset([info.key for info in infos if info.key in FLAGS and is_set((info,), info.key)])


class Construct:
    """One construct under way, as its callers of this server see it.

    Attributes:
        name: The group's name.
        roster: The procs that take part.
        plan: What all callers have said, where that is the same.
        collective: Who has called.
        flags: Those of `SPARING` that any caller has given.
        lacking: Whom it adds, and who have not come.
        leader: Who leads: the first caller that has declared itself, or who has been chosen since; of any server.
        declared: The caller of this server that has declared itself.
        reacting: The callers whose library tells how they react to failures.
        told: Whose failure the callers have been told of.
        due: The callers whose reaction to a failure is waited for.
        claims: The callers that want to lead after the leader has failed.
        rescued: Whether somebody leads on after the leader has failed.
        aborted: Whether somebody wants no such group.
        alone: Whether no other server has part in it: with none of those who are named, nor of those who are added.
        state: One of the states of `Construction`.
        cancelled: Whether the host was told that this server gives it up.
        extended: Whether its time has run out, and the host is waited for a little longer.
        round: How often this server has told the others what has become of its callers.
    """

    __slots__ = (
        "aborted",
        "alone",
        "cancelled",
        "claims",
        "collective",
        "declared",
        "due",
        "extended",
        "flags",
        "lacking",
        "leader",
        "name",
        "plan",
        "reacting",
        "rescued",
        "roster",
        "round",
        "state",
        "told",
    )

    roster: Roster[Process, Ticket]

    def __init__(self, name: str) -> None:
        self.name = name
        self.plan: Plan | None = None
        self.collective: Collective[Process, Ticket] | None = None
        self.flags: set[str] = set()
        self.lacking: tuple[Proc, ...] = ()
        self.leader: Proc | None = None
        self.declared: Proc | None = None
        self.reacting: set[Process] = set()
        self.told: set[Proc] = set()
        self.due: dict[Proc, set[Process]] = {}
        self.claims: set[Proc] = set()
        self.rescued = False
        self.aborted = False
        self.alone = True
        self.state = Construction.START
        self.cancelled = False
        self.extended = False
        self.round = 1

    @property
    def asked(self) -> bool:
        """Whether the host has it before it."""
        return self.state == Construction.ASKS or self.state == Construction.CLOSES

    def step(self, what: str) -> None:
        """Something happens."""
        self.state = Construction.step(self.state, what)

    @property
    def sparing(self) -> bool:
        """Whether it goes on without those who have ended."""
        return bool(self.flags) or self.rescued

    @property
    def here(self) -> list[Proc]:
        """The procs of this server that take part."""
        return [process.proc for process in self.roster.members]

    @property
    def absent(self) -> tuple[Proc, ...]:
        """The procs of this server that will not come."""
        gone = () if self.collective is None else self.collective.gone
        return tuple(sorted([process.proc for process in gone]))

    def called(self, process: Process, plan: Plan) -> None:
        """A proc calls it, and says this."""
        if self.plan is not plan:
            self.plan = None if self.plan is not None or self.collective is not None else plan
        given = plan.given
        if not given:
            return
        self.flags |= given & SPARING
        if keys.GROUP_LEADER in given and self.declared is None:
            self.declared = process.proc
            if self.leader is None:
                self.leader = process.proc
        if REACTS in given:
            self.reacting.add(process)


class Reactions:
    """What follows from failures during constructs.

    Args:
        records: Who raises the events.
        abort: Called with a construct that ends because somebody wants that, or because nobody leads it.
        go_on: Called with a construct when all reactions have come that it has waited for.
    """

    def __init__(self, records: Records, abort: Abort, go_on: Callable[[Construct], None]) -> None:
        self._records = records
        self._abort = abort
        self._go_on = go_on

    def look(self, construct: Construct) -> None:
        """Tell of failures here that its callers have not heard of, where nobody elsewhere has a say in it."""
        if construct.roster.others or construct.collective is None or not construct.collective.gone:
            return
        for failed in construct.absent:
            if construct.collective is not None and self.matters(construct, failed):
                self.failed(construct, failed)

    def matters(self, construct: Construct, failed: Proc) -> bool:
        """Tell whether a failure is news that calls for an event."""
        if failed in construct.told or keys.GROUP_OPTIONAL in construct.flags:
            return False
        return failed == construct.leader or keys.GROUP_NOTIFY_TERMINATION in construct.flags

    def failed(self, construct: Construct, failed: Proc) -> None:
        """Tell of the failure of a proc, and wait for what the callers say to it."""
        construct.told.add(failed)
        leads = failed == construct.leader
        alone = construct.leader if not leads else None
        targets = construct.here if alone is None else [alone]
        code = statuses.GROUP_LEADER_FAILED if leads else statuses.GROUP_MEMBER_FAILED
        assert construct.collective is not None
        callers = construct.collective.arrived
        waiting = {each for each in construct.reacting if each in callers and each.proc in targets and not each.left}
        if waiting:
            construct.due[failed] = waiting
            construct.step(Construction.FAILS)
        self._records.tell(code, construct.name, targets, (proc(keys.EVENT_AFFECTED_PROC, failed),))
        if leads and not waiting:
            self._choose(construct)

    def reacted(self, construct: Construct, process: Process, failed: Proc | None, verdict: str | None) -> None:
        """A caller has said how it reacts to the failure of a proc."""
        if verdict == ABORT:
            self._abort(construct)
            return
        if failed is None or process not in construct.due.get(failed, ()):
            return
        if verdict == CLAIM and failed == construct.leader:
            construct.claims.add(process.proc)
        self._settled(construct, process, failed)

    def departed(self, construct: Construct, process: Process) -> None:
        """A caller has ended: it will not react to anything any more."""
        construct.claims.discard(process.proc)
        for failed in list(construct.due):
            if process in construct.due.get(failed, ()):
                self._settled(construct, process, failed)

    def _settled(self, construct: Construct, process: Process, failed: Proc) -> None:
        waiting = construct.due[failed]
        waiting.discard(process)
        if waiting:
            return
        del construct.due[failed]
        if failed == construct.leader and not construct.roster.others:
            self._choose(construct)
        if not construct.due:
            if construct.state == Construction.HEARS:
                construct.step(Construction.HEARD)
            self._go_on(construct)

    def _choose(self, construct: Construct) -> None:
        """All have said whether they want to lead: the first of them in the order of procs does."""
        if construct.roster.others:
            return
        winner = min(construct.claims, default=None)
        construct.claims.clear()
        self.selected(construct, winner)
        if winner is None and not construct.sparing:
            self._abort(construct, quiet=True)

    def selected(self, construct: Construct, winner: Proc | None) -> None:
        """Tell who leads now, or that nobody does."""
        construct.leader = winner
        if winner is not None:
            construct.rescued = True
            assert construct.collective is not None
            construct.collective.tolerant = True
            infos: tuple[Info, ...] = (proc(keys.GROUP_LEADER, winner),)
        else:
            infos = (Info(ERROR_STATUS, Value(codes.STATUS, statuses.ERR_NOT_FOUND)),)
        self._records.tell(statuses.GROUP_LEADER_SELECTED, construct.name, construct.here, infos)

    def aborted(self, construct: Construct) -> None:
        """Tell all of this server that take part that there will be no group."""
        self._records.tell(statuses.GROUP_CONSTRUCT_ABORT, construct.name, construct.here)
