"""Constructs whose callers do not know each other: leaders that know their number, and procs that leaders add.

A `Bootstrap` is a construct whose membership has no members: any proc of this server may join. Each caller is offered
to the host at once, which may know of callers elsewhere, and the host's answer ends that caller's part. If the host
knows no other callers, the callers meet here: `awaited` counts their leaders, and then the bootstrap continues like
any construct of this server's procs that adds some.

Each caller has its own time limit. Added procs may also belong to a construct whose other callers do know each other;
that construct takes them from here (`Forming.guests`).
"""

from __future__ import annotations

from pypmix.engine.collective.machine import CollectiveState, Membership
from pypmix.engine.collective.rules import (
    CONSTRUCT,
    MAX_LEADERS,
    bootstrap_order,
    ft_directives,
    have_all_leaders,
    leader_count,
)
from pypmix.engine.common import ignore
from pypmix.engine.groups.talk import ABSENT, found, proc, procs
from pypmix.engine.python.collectives import absent_of, committed_infos, status_info
from pypmix.engine.python.modexrequests import data_of
from pypmix.engine.python.node import answer_failure, reason_of, status_of
from pypmix.engine.python.serverdata import Group
from pypmix.engine.python.serverside.constructs import OWN, Construct, construct_kind, group_info
from pypmix.engine.python.serverside.forming import Outcome, member_info, told_as
from pypmix.engine.python.serverside.plans import listed_all
from pypmix.engine.times import HOST_GRACE
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.hosting import GROUP_CANCEL, GROUP_CONSTRUCT, GROUP_GUEST, GROUP_LEADER_PROC, GroupUpcall
from pypmix.standard.types import Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.collective.machine import Collective, Timer
    from pypmix.engine.python.node import Call
    from pypmix.engine.python.processes import Process
    from pypmix.engine.python.serverside.forming import Forming
    from pypmix.engine.python.serverside.plans import Plan


class Bootstrap(Construct):
    """One construct of callers that do not know each other.

    Args:
        groups: The groups of the server.
        collective: The operation.
    """

    __slots__ = ("_leaders", "_offered", "_timers")

    is_open = True
    left_out = Construct.left_out | {keys.GROUP_BOOTSTRAP, keys.GROUP_ADD_MEMBERS}

    def __init__(self, groups: Forming, collective: Collective[Process, Call]) -> None:
        super().__init__(groups, collective)
        self._leaders: dict[Process, int] = {}
        """The callers that lead, and how many leaders each expects."""
        self._offered: set[Process] = set()
        """The callers that the host may bring together with others."""
        self._timers: dict[Process, Timer] = {}
        collective.awaited = 1
        groups.under_way.setdefault(self.name, []).append(self)

    @property
    def here(self) -> list[Proc]:
        return [process.proc for process in self.collective.arrived]

    def procs(self) -> tuple[Proc, ...]:
        return tuple(sorted(self.here))

    # The callers that may still join

    def count_awaited(self) -> int:
        """Return the number of callers that may still join."""
        if self._offered:
            return len(self._offered)
        count = leader_count(self._leaders.values())
        return int(not have_all_leaders(count, len(self._leaders), len(self.collective.gone)))

    def missing(self) -> tuple[Proc, ...]:
        return self.added()

    def label(self) -> str:
        """Describe the participants."""
        return f"{max(self._leaders.values())} leaders" if self._leaders else "to be added"

    def _adds_others(self) -> bool:
        # The host knows of no callers elsewhere.
        return False

    def look(self) -> None:
        """Report no failures: a caller gets the other members only when the group is complete."""

    # Callers

    def offer(self, process: Process, call: Call, plan: Plan, count: int) -> None:
        """Add a caller: one of `count` leaders or, if `count` is 0, a proc that the leaders add."""
        infos, collective = plan.infos, self.collective
        collective.admit(process, call, (plan.named, infos))
        self.flags |= ft_directives(CONSTRUCT, infos)
        collective.ft = bool(self.flags)
        self._offered.add(process)
        if count:
            self._leaders[process] = count
        if plan.timeout:
            self._timers[process] = self.server.clock.call_later(plan.timeout, lambda: self._overdue(process))
        items = group_info(infos)
        said = (member_info(process.proc, items),) if items else ()
        given = [info for info in infos if info.key not in OWN]
        committed = committed_infos(data_of((process,), self.server.limits.collected)) if process.committed else ()
        directives = (*given, *said, *committed, proc(GROUP_GUEST, process.proc))

        def answer(result: object, error: BaseException | None) -> None:
            if not collective.is_running or collective.arrived.get(process) is not call:
                return
            status, absent = status_of(error), absent_of(error)
            if error is None:
                self._made(process, result)
            elif status == statuses.ERR_NOT_SUPPORTED:
                self._offered.discard(process)
                self.go_on()
            else:
                absent = self.missing() if status == statuses.ERR_TIMEOUT and absent is None else absent
                self._refuse(process, status, absent, reason_of(error))

        op = GroupUpcall(GROUP_CONSTRUCT, self.name, (process.proc,), directives)
        self.server.host.upcall(op, answer, process)
        for construct in self._groups.adding(self.name):
            construct.ask()

    def go_on(self) -> None:
        """Continue a group that only procs of this server construct, if all of them have joined."""
        collective = self.collective
        if collective.state == CollectiveState.ADDING:
            self.ask()
        elif collective.state == CollectiveState.GATHERING:
            adding = self._groups.adding(self.name)
            for construct in adding:
                construct.ask()
            if adding:
                return
            try:
                collective.recount()
            except PMIxError as problem:
                collective.finish(problem.code)
        elif collective.is_running and not collective.arrived:
            collective.finish(None)

    def remove_contribution(self, member: Process) -> None:
        """Forget a caller."""
        self._leaders.pop(member, None)
        timer = self._timers.pop(member, None)
        if timer is not None:
            timer.cancel()
        if member in self._offered:
            self._offered.discard(member)
            self._withdraw_offer(member, *((procs(ABSENT, (member.proc,)),) if member.left else ()))

    def _withdraw_offer(self, process: Process, *infos: Info) -> None:
        self.server.host.upcall(GroupUpcall(GROUP_CANCEL, self.name, (process.proc,), infos), ignore)

    def _refuse(self, process: Process, status: int, absent: tuple[Proc, ...] | None = None, reason: str = "") -> None:
        """Answer a caller that will not be in the group, by the host's decision."""
        self._offered.discard(process)
        peer, tag = self.collective.take_back(process)
        answer_failure(peer, tag, told_as(status, peer), absent, reason)
        self.go_on()

    def _overdue(self, process: Process) -> None:
        """Handle the time limit of a caller."""
        if process not in self._offered:
            self.collective.absent = self.missing()
            self.collective.finish(statuses.ERR_TIMEOUT)
            return

        def give_up() -> None:
            self._refuse(process, statuses.ERR_TIMEOUT, self.missing())

        # The host may have made the group already, with this caller, and its answer may arrive soon: wait a moment.
        self._timers[process] = self.server.clock.call_later(HOST_GRACE, give_up)
        self._withdraw_offer(process, status_info(statuses.ERR_TIMEOUT))

    def departed(self, process: Process, failed: bool) -> None:
        collective = self.collective
        if process in collective.arrived:
            alone = process not in self._offered
            if process in self._leaders:
                collective.gone.add(process)
            collective.take_back(process)
            if alone and not collective.ft:
                collective.absent = (process.proc,)
                collective.finish(statuses.GROUP_CONSTRUCT_ABORT)
        elif process in collective.gone:
            super().departed(process, failed)
        self.go_on()

    # The group

    def _arranged(self, _guests: object) -> tuple[tuple[Proc, ...], tuple[Proc, ...]]:
        added = listed_all(self.directives_by_caller(), keys.GROUP_ADD_MEMBERS)
        leaders = sorted([process.proc for process in self._leaders])
        order = bootstrap_order(leaders, added, self.final_order())
        wanted = frozenset(order)
        for process in [process for process in self.collective.arrived if process.proc not in wanted]:
            self._refuse(process, statuses.ERR_NOT_FOUND, None, "no leader has added it")
        here = frozenset(self.here)
        return tuple([each for each in order if each in here]), self.procs()

    def _made(self, process: Process, result: object) -> None:
        """The host has brought a caller together with others."""
        groups, before = self._groups, self.outcome
        if before is None or process.proc not in before.members:
            self.take(result)
        outcome = self.outcome
        if outcome is None or process.proc not in outcome.members:
            # The host knows that it has ended, and this server does not yet: the others are still to be answered.
            self.outcome = before
            self._refuse(process, statuses.ERROR)
            return
        self._offered.discard(process)
        call = self.collective.take_back(process)
        if outcome is not before and self.server.store.key_of(self.name, process.proc) is None:
            group = Group(outcome.leader, self.flags, outcome.context_id)
            groups.stands(self.name, outcome, group, {process: call}, agreed=True)
        else:
            groups.reply({process: call}, outcome, outcome.members)
        self.go_on()

    def _outcome(self, infos: tuple[Info, ...]) -> Outcome:
        if not self._offered:
            return super()._outcome(infos)
        members, context_id, shared = self._groups.read(infos, {}, ())
        self.flags |= ft_directives(CONSTRUCT, infos)
        partly = is_set(infos, keys.GROUP_OPTIONAL) and any(info.key == ABSENT for info in infos)
        return Outcome(members, context_id, shared, found(infos, GROUP_LEADER_PROC, Proc), partly)

    # Ends

    def complete(self, status: int) -> None:
        for process in [*self._timers, *self._offered]:
            self.remove_contribution(process)
        super().complete(status)

    def guests_over(self, status: int, outcome: Outcome | None) -> None:
        collective = self.collective
        for process in list(collective.arrived):
            if outcome is not None and process.proc in outcome.members:
                self._groups.reply({process: collective.take_back(process)}, outcome, outcome.members)
            elif outcome is None and process not in self._leaders:
                peer, tag = collective.take_back(process)
                answer_failure(peer, tag, told_as(status, peer), None)
        if not collective.arrived:
            collective.finish(None)


def offer(groups: Forming, name: str, process: Process, call: Call, plan: Plan) -> None:
    """Add a client to the construct of a group whose other callers it does not know.

    Raises:
        PMIxError: It has called already, it names others only, or too many callers wait already.
    """
    counts = [info.value.data for info in plan.infos if info.key == keys.GROUP_BOOTSTRAP]
    count = counts[0] if counts else 0
    if not isinstance(count, int) or isinstance(count, bool) or (counts and not 0 < count <= MAX_LEADERS):
        raise PMIxError(f"invalid number of leaders {count!r}", status=statuses.ERR_BAD_PARAM)
    if plan.named and process.proc not in plan.named:
        raise PMIxError("it is not one of the procs that it names", status=statuses.ERR_BAD_PARAM)
    found: list[object] = [*groups.bootstraps(name)]
    if not found:
        tracker = groups.server.collectives
        kind = construct_kind(
            groups,
            Bootstrap,
            remove_contribution=Bootstrap.remove_contribution,
            count_awaited=Bootstrap.count_awaited,
            label=Bootstrap.label,
        )
        membership = Membership(tracker, kind, f"{CONSTRUCT} {name}", frozenset(), frozenset())
        found.append(tracker.begin(membership, process).record)
    bootstrap = found[0]
    assert isinstance(bootstrap, Bootstrap)
    if process in bootstrap.collective.arrived:
        raise PMIxError(f"it constructs {name!r} already", status=statuses.ERR_EXISTS)
    bootstrap.offer(process, call, plan, count)
