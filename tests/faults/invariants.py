"""What holds of every session, whatever happens in it; each function raises an `AssertionError` that says who does not.

1. `every_operation_ends`: whatever a process that lives has started has ended, once.
2. `results_agree`: of those who have been told that a group stands, whoever is named by another one's result has the
   same result: the same members in the same order, and the same context id. Each is named by its own. Processes whose
   servers have lost each other are not compared: which of two has gone nobody can tell.
3. `context_ids_differ`: no two groups have the same context id.
4. `views_agree`: servers that have each other have the same others; a link that breaks is a matter of all.
5. `members_agree`: members of a group that stands, on servers that have each other, agree on who is in it, in which
   order, who leads it, and for how long in a row; all that are in it live; and its servers have the same record of it.
6. `one_leader_per_term`: in a term, no proc is told of two leaders.
7. `no_event_twice`: handlers hear of a failure, a departure, a choice or an end of a group, or of a construct, once.
8. `changes_follow`: what a watch tells leads from one state to the next, one epoch each.
9. `psets_agree`: servers that have each other know the same process sets.
10. `nothing_waits`: when nothing happens any more no agent has anything under way but groups that stand, no client has
    a timer, and no server a collective, a get or a round of an exchange.
11. `nothing_is_left`: when all processes have ended, servers and exchanges hold no tracker, group, round or request.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from lib.group_world import is_idle
from pypmix.engine.groups import talk
from pypmix.engine.groups.election import FAILED
from pypmix.standard import keys, statuses
from pypmix.standard.ops import GroupDestruct, GroupEnter
from pypmix.standard.ops.groups import DESTRUCTED, JOINED, LEADER_SELECTED
from pypmix.standard.types import Proc

if TYPE_CHECKING:
    from faults.cluster import Node, Process
    from faults.schedules import Play

ONCE = (
    statuses.GROUP_MEMBER_FAILED,
    statuses.GROUP_LEADER_FAILED,
    statuses.GROUP_LEFT,
    statuses.GROUP_LEADER_SELECTED,
    statuses.GROUP_CONSTRUCT_ABORT,
)


def every_operation_ends(play: Play) -> None:
    """Whatever a process that lives has started has ended."""
    for process in play.world.processes.values():
        for ticket in process.tickets if process.alive else ():
            assert ticket.over, f"{process.proc} waits for ever: {ticket.op}"


def results_agree(play: Play) -> None:
    """Of those who have been told that a group stands, whoever is named by another's result has the same one."""
    for name, tickets in play.made.items():
        results: dict[Any, dict[Proc, Any]] = defaultdict(dict)
        for proc, ticket in tickets.items():
            if ticket.over and ticket.error is None:
                members = ticket.result.members
                assert proc in members, f"{proc} has made {name} and is no member: {members}"
                results[play.side(proc)][proc] = members, ticket.result.context_id
        for found in results.values():
            for result in set(found.values()):
                for member in result[0]:
                    other = found.get(member, result)
                    assert other == result, f"members of {name} do not agree: {member} has {other}, others {result}"


def context_ids_differ(play: Play) -> None:
    """No two groups have the same context id."""
    known: dict[int, Any] = {}
    for name, tickets in play.made.items():
        for ticket in tickets.values():
            if ticket.over and ticket.error is None:
                group = name, ticket.result.members
                number = ticket.result.context_id
                assert number is not None, f"{name} has no context id"
                assert known.setdefault(number, group) == group, (
                    f"{number} is the context id of {known[number]} and {group}"
                )


def views(play: Play) -> dict[frozenset[str], list[Node]]:
    """Return the servers that live by those that they have."""
    found: dict[frozenset[str], list[Node]] = defaultdict(list)
    for node in play.world.nodes:
        if node.alive:
            found[frozenset(node.exchange.membership.present)].append(node)
    return found


def views_agree(play: Play) -> None:
    """Servers that have each other have the same others."""
    for view, nodes in views(play).items():
        names = {node.name for node in nodes}
        assert names == view, f"{sorted(names)} have {sorted(view)}, who do not all have them"


def members_agree(play: Play) -> None:
    """Members of a group that stands agree on it, and so do their servers."""
    sides = {node: view for view, nodes in views(play).items() for node in nodes}
    states: dict[Any, dict[Proc, Any]] = defaultdict(dict)
    for process in play.world.living:
        port = process.machine.groups
        for name in port.agent.standing.names() if port is not None else ():
            states[name, sides[process.node]][process.proc] = process.state(name)
    records: dict[Any, list[tuple[Node, tuple[Proc, ...]]]] = defaultdict(list)
    for node, view in sides.items():
        for name, members in node.groups():
            records[name, view].append((node, members))
    for (name, view), found in states.items():
        for proc, state in found.items():
            for member in state.members:
                assert member in found, (
                    f"{proc} has {member} in {name}, who is not: {play.world.processes[member].tickets}"
                )
                other = found[member]
                assert other.members == state.members, f"{proc} has {state.members} in {name}, {member} {other.members}"
                leads = (state.leader, state.term), (other.leader, other.term)
                assert leads[0] == leads[1], f"{proc} has {leads[0]} as the leader of {name}, {member} has {leads[1]}"
            assert state.leader is None or state.leader in state.members, (
                f"{state.leader} leads {name} and is not in it"
            )
            process = play.world.processes[proc]
            node = process.node
            if any(isinstance(ticket.op, GroupDestruct) and ticket.op.group == name for ticket in process.tickets):
                # It has failed: its server has forgotten the group, for libraries which have, too.
                continue
            known = [members for other, members in records[name, view] if other is node]
            assert state.members in known, f"{proc} has {state.members} in {name}, its server {known}"
    for (name, view), listed in records.items():
        for node, members in listed:
            here = [each for each in members if play.world.processes[each].node is node]
            # One whose time to join is over may have been taken in by members of whom it has not heard.
            unsure = {each for each in here if _has_asked_in_vain(play, each, name)}
            known = unsure.union(states[name, view])
            assert here and known.issuperset(here), f"{node.name} has {members} in {name}"


def _has_asked_in_vain(play: Play, proc: Proc, name: str) -> bool:
    tickets = play.world.processes[proc].tickets
    return any(isinstance(each.op, GroupEnter) and each.op.group == name and each.error for each in tickets)


def one_leader_per_term(play: Play) -> None:
    """In a term, no proc is told of two leaders."""
    leaders: dict[Any, Any] = {}

    def led(process: Process, key: Any, leader: Proc | None) -> None:
        place = (play.side(process.proc), *key)
        known = leaders.setdefault(place, leader)
        assert known == leader, (
            f"{key[0]} has in term {key[1]} the leaders {known} and {leader}, as {process.proc} hears"
        )

    for process in play.world.processes.values():
        for name, changes in process.changes.items():
            for change in changes:
                if change.kind == LEADER_SELECTED:
                    members = (
                        frozenset(play.made[name][process.proc].result.members)
                        if process.proc in play.made[name]
                        else None
                    )
                    if members is not None:
                        led(process, (name, change.state.term, members), change.procs[0] if change.procs else None)


def no_event_twice(play: Play) -> None:
    """Handlers hear of a failure, a departure, a choice or an end once."""
    for process in play.world.processes.values():
        known = set()
        for event, called in process.heard:
            if event.code not in ONCE:
                continue
            infos = event.infos
            name = talk.found(infos, keys.GROUP_ID, str)
            whom = talk.found(infos, keys.EVENT_AFFECTED_PROC, Proc), talk.found(infos, keys.GROUP_LEADER, Proc)
            term = talk.found(infos, talk.TERM, int), talk.found(infos, FAILED, Proc), talk.found(infos, talk.LIFE, int)
            # Of an invitation that is heard of late each leader in a row may tell that there is no group.
            source = event.source if event.code in (statuses.GROUP_LEFT, statuses.GROUP_CONSTRUCT_ABORT) else None
            # Who is named in a construct hears of it before it has called, too. Where all callers of that have gone,
            # its server tells of the next one, to those who are left.
            to = talk.listed(infos, keys.EVENT_CUSTOM_RANGE) if event.source.nspace.startswith("server") else ()
            what = event.code, name, whom, term, source, called, to
            assert what not in known, f"{process.proc} has heard {event.code} of {whom} in {name} twice"
            known.add(what)


def changes_follow(play: Play) -> None:
    """What a watch tells leads from one state to the next."""
    for process in play.world.processes.values():
        for name, changes in process.changes.items():
            members: set[Proc] | None = None
            epoch = 0
            for change in changes:
                now = set(change.state.members)
                if members is not None and change.kind not in (LEADER_SELECTED, DESTRUCTED):
                    joined = set(change.procs) if change.kind == JOINED else set()
                    left = set() if joined else set(change.procs)
                    assert joined.isdisjoint(members) and left <= members, f"{change} of {name} is no news"
                    assert now == (members | joined) - left, f"{change} of {name} does not follow"
                    assert change.state.epoch == epoch + 1, f"{change} of {name} is not the next one"
                members, epoch = now, change.state.epoch


def psets_agree(play: Play) -> None:
    """Servers that have each other know the same process sets."""
    for nodes in views(play).values():
        known = [dict(node.server.store.psets) for node in nodes]
        for node, psets in zip(nodes, known, strict=True):
            assert psets == known[0], f"{node.name} knows {sorted(psets)}, {nodes[0].name} {sorted(known[0])}"


def nothing_waits(play: Play) -> None:
    """No agent has anything under way but groups that stand, and no server anything at all."""
    for process in play.world.living:
        machine = process.machine
        assert not machine._calls and not machine.timers, f"{process.proc} has {machine._calls}, {machine.timers}"
        parts = machine.groups.agent._parts if machine.groups is not None else {}
        # Invitations that a program has not answered stay open, as far as it has heard.
        quiet = "standing", "joining"
        busy = [name for name, part in parts.items() if name not in quiet and not is_idle(name, part)]
        assert not busy, f"{process.proc} is not through with {busy}"
        if "standing" in parts:
            invited = {*parts["joining"]._open.values()} if "joining" in parts else set()
            expected = [
                name for name, each in parts["standing"]._expected.items() if not each.attempts.keys() <= invited
            ]
            assert not expected, f"{process.proc} still expects {expected}"
    for node in play.world.nodes:
        if node.alive:
            assert not node.server.pending(), f"{node.name} waits: {node.server.pending()}"
            _no_rounds(node)


def _no_rounds(node: Node) -> None:
    exchange, crossing = node.exchange, node.crossing
    assert not exchange.underway(), f"{node.name} gathers: {exchange.underway()}"
    assert not exchange.open(), f"{node.name} still waits: {exchange.collectives.open()}"
    assert not crossing._modexes
    assert not exchange.collectives.coordinator.late, f"{node.name} remembers constructs"


def nothing_is_left(play: Play) -> None:
    """Servers and exchanges hold no tracker, group, round or request of anybody."""
    for node in play.world.nodes:
        if not node.alive:
            continue
        assert not node.logged, f"{node.name} has logged: {node.logged}"
        _no_rounds(node)
        server = node.server
        assert not server.pending() and not server._peers and not server.handshakes.incomplete
        assert not server.store.groups, f"{node.name} still has {server.store.groups}"
        assert not server.groups.records._groups, f"{node.name} has records of {list(server.groups.records._groups)}"
        collectives = server.collectives
        assert not collectives._gone and not collectives._finalized and not collectives.opened
        assert not len(node.crossing._collectives.record) and not node.crossing._incarnations._latest


def hold(play: Play) -> None:
    """All that is to hold when everything has come to its end."""
    every_operation_ends(play)
    results_agree(play)
    context_ids_differ(play)
    views_agree(play)
    one_leader_per_term(play)
    members_agree(play)
    no_event_twice(play)
    changes_follow(play)
    psets_agree(play)
    nothing_waits(play)
    play.world.close()
    nothing_is_left(play)
