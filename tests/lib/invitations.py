"""Invitations on virtual time."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import note

from lib.group_world import NSPACE, World
from pypmix.engine.groups import talk
from pypmix.standard import attrs, keys
from pypmix.standard.ops import GroupInvite, GroupInviteControl, GroupJoin
from pypmix.standard.statuses import (
    ERR_EXISTS,
    ERR_TIMEOUT,
    GROUP_CONSTRUCT_ABORT,
    GROUP_CONSTRUCT_COMPLETE,
    GROUP_INVITE_ACCEPTED,
    GROUP_INVITE_DECLINED,
    GROUP_INVITE_FAILED,
    GROUP_INVITED,
    GROUP_LEADER_FAILED,
    GROUP_LEADER_SELECTED,
)
from pypmix.standard.types import Proc

HEARD = (
    *(GROUP_INVITED, GROUP_INVITE_ACCEPTED, GROUP_INVITE_DECLINED, GROUP_INVITE_FAILED, GROUP_CONSTRUCT_COMPLETE),
    *(GROUP_CONSTRUCT_ABORT, GROUP_LEADER_FAILED, GROUP_LEADER_SELECTED),
)


ENDS = {0, ERR_EXISTS, ERR_TIMEOUT, GROUP_CONSTRUCT_ABORT, GROUP_LEADER_FAILED}


LATE = 30.0


class Plan:
    """An invitation: who invites whom, to what, and how it goes on."""

    def __init__(self, leader, name, size, optional, timeout, context, decides, at=0.0):
        self.leader = leader
        self.name = name
        self.size = size
        self.directives = (attrs.GROUP_ASSIGN_CONTEXT_ID(True),) if context else ()
        self.directives += (attrs.GROUP_OPTIONAL(True),) if optional else ()
        self.directives += (attrs.TIMEOUT(2),) if timeout else ()
        self.decides = decides
        self.at = at

    def __repr__(self):
        return f"Plan({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


class Life:
    """One run, and what must hold of it."""

    def __init__(self, plans, people, paces, deaths, controls, adapts, in_order):
        numbers = iter(range(1 << 40))
        self.world = World(
            7,
            delay=lambda most: most * paces[next(numbers) % len(paces)],
            adapts=adapts,
            deaths_in_order=in_order,
        )
        self.exact = in_order and not any(lose for _, _, lose in deaths)
        self.people = people
        self.invites = []
        self.joins = []
        self.replaced = set()
        self.added = set()
        for rank in range(7):
            self.bring_up(rank)
        for plan in plans:
            self.world.after(plan.at, lambda plan=plan: self.invite(plan))
        for at, rank, lose in deaths:
            self.world.after(at, lambda rank=rank, lose=lose: self.world.kill(rank, lose=0.05 if lose else 0))
        if plans[0].decides:
            for at, what, rank in controls:
                self.world.after(at, lambda what=what, rank=rank: self.control(plans[0], what, rank))
        self.world.after(LATE + 10, lambda: self.control(plans[0], "complete", 0))

    def bring_up(self, rank):
        process = self.world[rank]
        answer, reaction, decision = self.people[rank] if rank < 6 else ("accept", "", "")
        process.on(GROUP_INVITED, lambda event: self.invited(rank, event, answer))
        results = {"claim": (0, (attrs.GROUP_LEADER(True),)), "abort": GROUP_CONSTRUCT_ABORT, "": None}
        react = results[reaction.rpartition(" ")[2]]
        process.on(GROUP_LEADER_FAILED, lambda event: react, within=8 if "slow" in reaction else 0.01)
        process.on((GROUP_INVITE_DECLINED, GROUP_INVITE_FAILED), lambda event: self.decide(rank, decision))
        process.on((GROUP_INVITE_ACCEPTED, GROUP_CONSTRUCT_COMPLETE, GROUP_CONSTRUCT_ABORT, GROUP_LEADER_SELECTED))

    def invite(self, plan):
        process = self.world[plan.leader]
        if process.dead:
            return
        others = [Proc(NSPACE, rank) for rank in range(6) if rank != plan.leader][: plan.size - 1]
        answers = (lambda answer: None) if plan.decides else None
        self.invites.append((process, process.start(GroupInvite(plan.name, tuple(others), plan.directives, answers))))

    def invited(self, rank, event, answer):
        name = talk.found(event.infos, keys.GROUP_ID, str)
        process = self.world[rank]

        def join(accept=True, *directives):
            if not process.dead:
                self.joins.append((process, process.start(GroupJoin(name, event.source, accept, directives))))

        if answer == "short":
            join(True, attrs.TIMEOUT(1))
        elif answer.startswith("late"):
            self.world.after(LATE - self.world.now, lambda: join(answer == "late"))
        else:
            join(answer == "accept")

    def decide(self, rank, decision):
        if decision == "abort":
            return GROUP_CONSTRUCT_ABORT
        if decision == "without":
            return 0, (attrs.GROUP_OPTIONAL(True),)
        if decision == "replace" and rank not in self.replaced:
            self.replaced.add(rank)
            return 0, (talk.proc(keys.GROUP_ADD_MEMBERS, Proc(NSPACE, 6)),)
        return None

    def control(self, plan, what, rank):
        process = self.world[plan.leader]
        if process.dead:
            return
        whom = (Proc(NSPACE, rank),)
        if what == "invite":
            # Whoever is invited twice is heard of twice.
            if rank in self.added or rank < plan.size:
                return
            self.added.add(rank)
        given = {what: whom if what in ("drop", "invite") else True}
        process.start(GroupInviteControl(plan.name, **given))

    def run(self):
        try:
            self.world.run()
            self.check()
        except Exception:
            note("\n".join(self.world.log))
            raise

    def check(self):
        world = self.world
        # Every operation ends, and nothing is left but groups.
        for process, ticket in self.invites + self.joins:
            assert ticket.over or process.dead, ticket
            assert not ticket.over or ticket.status in ENDS, ticket
        left = [what for what in world.idle() if not what.endswith(": standing")]
        assert not left, left
        for process in world.living:
            names = process.agent.standing.names()
            assert process.under_way() == (["standing"] if names else []), (process.proc, process.under_way())
        self.check_agreement()
        self.check_leaders()
        self.check_events()

    def check_agreement(self):
        """Whoever has the group has the same one; and who is said to be in it has it."""
        results = defaultdict(list)
        for process, ticket in self.invites + self.joins:
            if ticket.over and ticket.result is not None and (self.exact or not process.dead):
                results[ticket.op.group].append((process, ticket.result))
        for name, found in results.items():
            for process, result in found:
                assert process.proc in result.members
            made = {}
            for process, result in found:
                for member in result.members:
                    assert made.setdefault(member, result) == result, (name, process.proc)
            for process in world_members(self.world, made):
                state = process.state(name)
                if process.proc in self.impatient(name):
                    continue
                assert state is not None, (name, process.proc)
                living = [p for p in made[process.proc].members if not self.world[p].dead]
                gone = self.impatient(name)
                assert list(state.members) == [p for p in living if p not in gone], (name, process.proc, state)

    def impatient(self, name):
        """Return those whose join has run out of time: they leave at once."""
        ends = defaultdict(set)
        for process, ticket in self.invites + self.joins:
            if ticket.op.group == name and ticket.over:
                ends[process.proc].add("" if ticket.result is not None else ticket.status)
        return {proc for proc, statuses in ends.items() if ERR_TIMEOUT in statuses and "" not in statuses}

    def check_leaders(self):
        """There is one leader per term, and all who have the group name the same."""
        chosen = {}
        for process in self.world.processes.values():
            if process.dead and not self.exact:
                continue
            for event in process.events(GROUP_LEADER_SELECTED):
                about = tuple(talk.found(event.infos, key, kind) for key, kind in KEYS)
                leader = talk.found(event.infos, keys.GROUP_LEADER, Proc)
                assert chosen.setdefault(about, leader) == leader, about
        led = {}
        for process in self.world.living:
            for name in process.agent.standing.names():
                state = process.state(name)
                for member in state.members:
                    led.setdefault((name, member), (state.leader, state.term))
                    assert led[name, member] == (state.leader, state.term), (name, process.proc)

    def check_events(self):
        """No handler hears of anything twice."""
        for process in self.world.processes.values():
            heard = Counter(
                (event.code, event.source, *[talk.found(event.infos, key, kind) for key, kind in MARKS])
                for event in process.seen
                if event.code in HEARD
            )
            assert not [what for what, times in heard.items() if times > 1], process.proc


KEYS = ((keys.GROUP_ID, str), (talk.TERM, int), ("pypmix.grp.failed", Proc))


MARKS = (
    (keys.GROUP_ID, str),
    (keys.EVENT_AFFECTED_PROC, Proc),
    ("pypmix.grp.invitation", str),
    (talk.TERM, int),
    ("pypmix.grp.version", int),
    ("pypmix.grp.failed", Proc),
)


def world_members(world, made):
    return [world[member] for member in made if not world[member].dead]
