"""What happens in a session on virtual time: groups of all kinds, what they do, and who is lost when.

A `Schedule` is all that there is to know of a run: the same one always runs the same way.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from faults.cluster import Cluster, Process, Ticket
from pypmix.engine.groups import talk
from pypmix.standard import attrs, keys, statuses
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.ops import (
    Fence,
    GroupAdmit,
    GroupConstruct,
    GroupDestruct,
    GroupEnter,
    GroupInvite,
    GroupJoin,
    GroupLeave,
    GroupWatch,
)
from pypmix.standard.types import RANK_WILDCARD, Info, Proc

if TYPE_CHECKING:
    from pypmix.standard.ops import Notification

FLAGS = attrs.GROUP_OPTIONAL(True), attrs.GROUP_FT_COLLECTIVE(True), attrs.GROUP_NOTIFY_TERMINATION(True)
HEARD = (
    statuses.GROUP_LEADER_FAILED,
    statuses.GROUP_LEADER_SELECTED,
    statuses.GROUP_MEMBER_FAILED,
    statuses.GROUP_LEFT,
    statuses.GROUP_MEMBERSHIP_UPDATE,
    statuses.GROUP_CONSTRUCT_ABORT,
)

NAMED, WHOLE, BOOT, ADDED, INVITED, JOB, PSET = "named", "whole", "boot", "added", "invited", "job", "pset"
MAKING = (NAMED, WHOLE, BOOT, ADDED, INVITED)
"""How the groups of a plan are made; the others make none."""

FENCE, LEAVE, PART, REQUEST, DESTRUCT = "fence", "leave", "part", "request", "destruct"

PROCESS, LEADER, SERVER, LINK, CLIENT = "process", "leader", "server", "link", "client"

TICK = 0.004
"""Seconds of one unit of time of a schedule."""

WATCHED = 80
"""The size of a group beyond which its members neither watch it nor have handlers: an event to each is enough."""


class Job(NamedTuple):
    """A job: so many ranks on each of some servers in a row."""

    first: int
    servers: int
    ranks: int


class Plan(NamedTuple):
    """A group to be made, and what its members do then.

    Attributes:
        kind: How it is made. `JOB` is a fence of a job, and `PSET` a process set that comes and goes.
        first, stride, count: Who: every so many-th proc from a first one on. For whole jobs `first` is the number.
        at: When, in ticks; each member comes some time later.
        flags: Which of `FLAGS` are given, by bits.
        leader: Which of them says that it leads, by its place; None for nobody.
        limit: The time limit of each operation in seconds, 0 for none.
        then: What each member does when it has the group, one after the other.
        mood: By which of its handlers' answers, and of the answers to invitations, a process goes.
    """

    kind: str
    first: int
    stride: int
    count: int
    at: int
    flags: int
    leader: int | None
    limit: int
    then: tuple[str, ...]
    mood: int


class Loss(NamedTuple):
    """Something that is lost: of its kind the number that `which` says, and for links `other`."""

    at: int
    kind: str
    which: int
    other: int = 1


class Schedule(NamedTuple):
    """A run."""

    servers: int
    jobs: tuple[Job, ...]
    paces: tuple[float, ...]
    plans: tuple[Plan, ...]
    losses: tuple[Loss, ...]


class Play:
    """A schedule as it is carried out.

    Attributes:
        world: The session.
        made: By the name of a group, what has come of making it, for each proc that has ended.
        plans: By the name of a group, its plan.
    """

    def __init__(self, schedule: Schedule, *, logs: bool = False) -> None:
        self.schedule = schedule
        jobs: dict[str, list[int]] = {}
        for number, job in enumerate(schedule.jobs):
            places = [(job.first + place) % schedule.servers for place in range(min(job.servers, schedule.servers))]
            jobs[f"job{number}"] = [place for place in places for _ in range(job.ranks)]
        self.world = Cluster(schedule.servers, jobs, schedule.paces, logs=logs)
        self.made: dict[str, dict[Proc, Ticket]] = defaultdict(dict)
        self.plans: dict[str, Plan] = {}
        self.leaders: dict[str, Process] = {}
        self._listening: set[Proc] = set()
        self._invitees: set[Proc] = set()
        self.lossy = bool(schedule.losses) or any(PART in plan.then for plan in schedule.plans)
        world = self.world
        for number, plan in enumerate(schedule.plans):
            world.later(plan.at * TICK, self._begin, f"g{number}", plan)
        for loss in schedule.losses:
            world.later(loss.at * TICK, self._lose, loss)

    def run(self) -> None:
        """Let everything happen, and come to its end."""
        last = max([each.at for each in (*self.schedule.plans, *self.schedule.losses)], default=0)
        self.world.run(last * TICK + 120)

    def members(self, plan: Plan) -> list[Process]:
        """Return the processes of a plan."""
        world = self.world
        if plan.kind in (WHOLE, JOB):
            nspace = f"job{plan.first % len(self.schedule.jobs)}"
            return [world.processes[proc] for proc in world.procs if proc.nspace == nspace]
        number = len(world.procs)
        places = dict.fromkeys((plan.first + place * plan.stride) % number for place in range(plan.count))
        return [world[place] for place in places]

    def side(self, proc: Proc) -> object:
        """Return what stands for the servers that a process's own one has; one that is lost is alone."""
        node = self.world.processes[proc].node
        return frozenset(node.exchange.membership.present) if node.alive else node.name

    # Making a group

    def _begin(self, name: str, plan: Plan) -> None:
        world, members = self.world, self.members(plan)
        if plan.kind == PSET:
            self._define(name, plan, members)
            return
        if plan.kind == JOB and self._is_fenced(plan):
            return
        self.plans[name] = plan
        self.leaders[name] = members[(plan.leader or 0) % len(members)]
        watched = len(members) <= WATCHED
        for place, process in enumerate(members):
            if watched and plan.kind != JOB:
                self._listens(process, plan)
            world.later(world.pace(0.05), self._comes, name, plan, process, place, members)
        if REQUEST in plan.then:
            for number in range(2):
                other = world[plan.first + plan.count * plan.stride + 1 + number]
                if other not in members:
                    self._listens(other, plan)
                    world.later(0.1 + world.pace(1.0), self._asks, name, plan, other)

    def _is_fenced(self, plan: Plan) -> bool:
        """Tell whether all of a job fence without a name who may do so under the name of a group, in another order."""
        job = {process.proc for process in self.members(plan)}
        groups = [{each.proc for each in self.members(other)} for other in self.schedule.plans if other.kind in MAKING]
        return any(job <= group for group in groups)

    def _listens(self, process: Process, plan: Plan) -> None:
        if process.proc in self._listening:
            return
        self._listening.add(process.proc)
        mood = (process.proc.rank * 5 + plan.mood) % 4

        def reacts(event: Notification) -> Any:
            if event.code == statuses.GROUP_LEADER_FAILED and mood < 2:
                return 0, (talk.flag(keys.GROUP_LEADER),)
            if (
                event.code in (statuses.GROUP_LEADER_FAILED, statuses.GROUP_MEMBER_FAILED)
                and mood == 3
                and process.proc.rank % 4 == 3
            ):
                return statuses.GROUP_CONSTRUCT_ABORT
            return 0

        process.reacts = reacts
        process.listen(*HEARD)

    def _comes(self, name: str, plan: Plan, process: Process, place: int, members: list[Process]) -> None:
        kind, procs = plan.kind, tuple([each.proc for each in members])
        infos = [flag for bit, flag in enumerate(FLAGS) if plan.flags >> bit & 1]
        infos.append(attrs.GROUP_ASSIGN_CONTEXT_ID(True))
        # Who is not named cannot be missed: leaders that have ended before they called, and those whom they would add.
        limit = plan.limit or (4 if kind in (BOOT, ADDED) and self.lossy else 0)
        if limit:
            infos.append(attrs.TIMEOUT(limit))
        if kind == JOB:
            op: Any = Fence((Proc(procs[0].nspace, RANK_WILDCARD),), False, self._limit(plan))
            process.start(op)
            return
        if kind == INVITED:
            self._invites(name, plan, process, members, tuple(infos))
            return
        if kind == WHOLE:
            named: tuple[Proc, ...] = (Proc(procs[0].nspace, RANK_WILDCARD),)
        else:
            named = procs
        if kind in (BOOT, ADDED) and len(members) > 1:
            added = procs[len(procs) - len(procs) // 2 :]
            leading = procs[: len(procs) - len(added)]
            named = leading if process.proc in leading else ()
            if kind == BOOT and named:
                named = (process.proc,)
                infos.append(attrs.GROUP_BOOTSTRAP(len(leading)))
            if place == 0:
                infos.append(attrs.GROUP_ADD_MEMBERS(added))
        elif plan.leader is not None and process is self.leaders[name]:
            infos.append(attrs.GROUP_LEADER(True))
        process.start(GroupConstruct(name, named, tuple(infos)), lambda ticket: self._made(name, plan, process, ticket))
        self.made[name][process.proc] = process.tickets[-1]

    def _invites(
        self, name: str, plan: Plan, process: Process, members: list[Process], infos: tuple[Info, ...]
    ) -> None:
        def then(ticket: Ticket) -> None:
            self._made(name, plan, process, ticket)

        if process is self.leaders[name]:
            # Who is invited may say nothing at all.
            infos = infos if plan.limit else (*infos, attrs.TIMEOUT(5))
            others = tuple([each.proc for each in members if each is not process])
            self.made[name][process.proc] = process.start(GroupInvite(name, others, infos), then)
            return
        if process.proc in self._invitees:
            return
        self._invitees.add(process.proc)

        def invited(event: Notification) -> None:
            if event.code != statuses.GROUP_INVITED:
                return
            group = talk.found(event.infos, keys.GROUP_ID, str)
            its = self.plans[group]
            answer = (process.proc.rank * 3 + its.mood) % 7
            if answer == 6 or process.proc in self.made[group]:
                return
            op = GroupJoin(group, event.source, answer != 5, (attrs.TIMEOUT(20),))
            following = self.world.pace(0.1)
            self.world.later(following, self._joins, group, its, process, op)

        process.invited = invited
        process.listen(statuses.GROUP_INVITED)

    def _joins(self, name: str, plan: Plan, process: Process, op: GroupJoin) -> None:
        if process.proc not in self.made[name]:
            ticket = process.start(op, lambda ticket: self._made(name, plan, process, ticket) if op.accept else None)
            if op.accept:
                self.made[name][process.proc] = ticket

    def _asks(self, name: str, plan: Plan, process: Process) -> None:
        """One who is not in the group waits for it to be taken in, and a member that lives does so."""
        if process.alive and process.proc not in self.made[name]:
            limit = (attrs.TIMEOUT(3),)
            op = GroupEnter(name, self.made[name].__contains__, limit)
            process.start(op, lambda ticket: None if ticket.error is not None else self._watch(name, plan, process))
            inside = [each for each, ticket in self.made[name].items() if ticket.over and ticket.error is None]
            # Only the first of them can do it, whichever that is by now.
            for each in inside[:3]:
                self.world.later(self.world.pace(0.05), self._admits, name, self.world.processes[each], process)

    def _admits(self, name: str, member: Process, process: Process) -> None:
        if member.alive:
            member.start(GroupAdmit(name, process.proc, (attrs.TIMEOUT(3),)))

    # What the members of a group do

    def _limit(self, plan: Plan) -> tuple[Info, ...]:
        # Whoever comes in later takes no part in what the others do.
        limit = plan.limit or (3 if REQUEST in plan.then or plan.kind == INVITED else 0)
        return (attrs.TIMEOUT(limit),) if limit else ()

    def _watch(self, name: str, plan: Plan, process: Process) -> None:
        elects = bool(plan.mood & 4)
        process.start(GroupWatch(name, process.changes[name].append, past=True, elects=elects))

    def _made(self, name: str, plan: Plan, process: Process, ticket: Ticket) -> None:
        if ticket.error is not None:
            return
        if len(ticket.result.members) <= WATCHED:
            self._watch(name, plan, process)
        self._goes_on(name, plan, process, 0)

    def _goes_on(self, name: str, plan: Plan, process: Process, step: int) -> None:
        if step == len(plan.then):
            return
        what = plan.then[step]

        def then(ticket: Ticket) -> None:
            self._goes_on(name, plan, process, step + 1)

        leads = process is self.leaders[name]
        if what == FENCE:
            infos = (*self._limit(plan), *(FLAGS[1:2] if plan.flags & 2 else ()))
            process.start(Fence((Proc(name, RANK_WILDCARD),), False, infos), then)
        elif what == LEAVE and process.proc.rank % 3 == plan.mood % 3 and not leads:
            process.start(GroupLeave(name))
        elif what == PART and leads:
            process.start(GroupLeave(name))
            self.world.later(self.world.pace(0.02), self.world.kill, process)
        elif what == DESTRUCT:
            process.start(GroupDestruct(name, self._limit(plan)))
        else:
            self._goes_on(name, plan, process, step + 1)

    # Process sets

    def _define(self, name: str, plan: Plan, members: list[Process]) -> None:
        node = self.world.nodes[plan.first % len(self.world.nodes)]
        if not node.alive:
            return
        procs = tuple([each.proc for each in members])
        try:
            node.crossing.psets.define(name, procs)
        except (NotFound, PMIxError):
            return
        if plan.mood & 1:
            self.world.later(self.world.pace(0.05), node.calls, self._delete, node, name)

    def _delete(self, node: Any, name: str) -> None:
        node.crossing.psets.delete(name)

    # Losses

    def _lose(self, loss: Loss) -> None:
        world = self.world
        if loss.kind == SERVER:
            world.lose(loss.which)
        elif loss.kind == LINK:
            world.sever(loss.which, loss.which + 1 + loss.other % max(1, len(world.nodes) - 1))
        elif loss.kind == CLIENT:
            world.cut(world[loss.which])
        elif loss.kind == LEADER and self.leaders:
            names = sorted(self.leaders)
            world.kill(self.leaders[names[loss.which % len(names)]])
        else:
            world.kill(world[loss.which])
