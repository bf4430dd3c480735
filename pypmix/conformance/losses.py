"""Checks with killed ranks: of events, fences, groups and connects."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from pypmix import ConnectEvent, EventCode, Proc, Rank
from pypmix.conformance.awaited import sleep
from pypmix.conformance.calls import all_of, get_eventually, outcome, ranks, remaining_events
from pypmix.conformance.check import MEANWHILE, WAIT, Untestable, promised
from pypmix.standard import keys

if TYPE_CHECKING:
    from pypmix.aio import Client
    from pypmix.aio.operations.events import EventStream

RECOVERABLE = "Standard, PMIX_JOB_RECOVERABLE"
FENCE = "Standard, PMIx_Fence"
NOTIFY = "Standard, Event Notification"
CONSTRUCT = "Standard, PMIx_Group_construct"
DESTRUCT = "Standard, PMIx_Group_destruct"
ATTRIBUTES = "Standard, Process Group Attributes"
CONNECT = "RFC 0003, PMIx_Connect"
KEYS = "RFC 0003, info keys"

SURVIVAL = "a job goes on"
"""The promise that all others of this module require."""

GOES_ON = (SURVIVAL,)
GROUP = (*GOES_ON, "construct")
CONNECTED = (*GOES_ON, "connect: order")

MEMBER, LEADER, SELECTED = EventCode.GROUP_MEMBER_FAILED, EventCode.GROUP_LEADER_FAILED, EventCode.GROUP_LEADER_SELECTED
ABORT = EventCode.GROUP_CONSTRUCT_ABORT

CALLED = 1.0
"""Seconds until an announced call, or a death, has reached the server, even on a busy machine."""

ENDS = (
    EventCode.ERR_PROC_ABORTED,
    EventCode.ERR_PROC_ABORTED_BY_SIG,
    EventCode.ERR_PROC_TERM_WO_SYNC,
    EventCode.PROC_TERMINATED,
    EventCode.EVENT_PROC_TERMINATED,
)
"""The event codes with which servers report a killed proc."""

ERRORS = ("GROUP_CONSTRUCT_ABORT", "ERR_PARTIAL_SUCCESS", "ERR_LOST_CONNECTION")
"""The errors of collectives with a missing participant."""


def _die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


async def _announce_call(me: Client) -> None:
    """Announce to the other ranks that this rank is about to make the call in which it waits."""
    await me.put("acme.calls", True)
    await me.commit()


async def _await_calls(me: Client, *numbers: int) -> None:
    """Wait until the given ranks are waiting in their calls."""
    for rank in numbers:
        await get_eventually(me, "acme.calls", me.job[rank])
    await sleep(CALLED)


async def _collect_events(stream: EventStream) -> list[list[Any]]:
    """Return the name, the group and the affected rank of each remaining event."""
    found = []
    for event in await remaining_events(stream):
        leader = event.info.get(keys.GROUP_LEADER)
        about = leader if isinstance(leader, Proc) else event.affected[0] if event.affected else None
        found.append([event.code.name, event.info.get(keys.GROUP_ID), None if about is None else int(about.rank)])
    return found


def _member_failed(rank: int, group: str) -> list[Any]:
    """Return the entry of `_collect_events` for a failed member."""
    return ["GROUP_MEMBER_FAILED", group, rank]


def _expect_of_living(results: list[Any], result: Any, *dead: int) -> list[Any]:
    """Return the expected results if all living ranks have the same one."""
    size = len(results)
    killed = {rank % size for rank in dead}
    return [None if rank in killed else result for rank in range(size)]


def _expect_errors(results: list[Any], *dead: int) -> list[Any]:
    """Return the expected results if each living rank has any of the errors for a missing participant."""
    expected = _expect_of_living(results, "ERR_PARTIAL_SUCCESS", *dead)
    return [seen if wanted and seen in ERRORS else wanted for seen, wanted in zip(results, expected, strict=True)]


@promised(
    SURVIVAL,
    RECOVERABLE,
    "the others go on where a rank is killed, if that was asked for",
    ranks=3,
    killed_ranks=(1,),
)
async def survived(me: Client) -> Any:
    await me.fence(timeout=WAIT)
    if me.rank == 1:
        _die()
    await sleep(2 * CALLED)
    return await outcome(lambda: me.fence([proc for proc in me.job if proc.rank != 1], timeout=WAIT))


@survived.rule
def _(results: list[Any]) -> list[Any]:
    return [None] * len(results)


@promised(
    "event: a rank is killed", NOTIFY, "an event says so, and names it", ranks=3, killed_ranks=(1,), needs=GOES_ON
)
async def loss_event(me: Client) -> Any:
    async with me.events() as events:
        await me.fence(timeout=WAIT)
        if me.rank == 1:
            _die()
        said = [each for each in await remaining_events(events, 3 * CALLED) if each.code in ENDS]
    return sorted({int(proc.rank) for event in said for proc in event.affected or (event.source,)})


@loss_event.rule
def _(results: list[Any]) -> list[Any]:
    return _expect_of_living(results, [1], 1)


@promised(
    "fence: a member dies",
    FENCE,
    "an error when a proc ends before it has called",
    ranks=3,
    killed_ranks=(1,),
    needs=GOES_ON,
)
async def fenced(me: Client) -> Any:
    await me.fence(timeout=WAIT)
    if me.rank == 1:
        await _await_calls(me, 0, *range(2, me.job.size))
        _die()
    await _announce_call(me)
    return await outcome(lambda: me.fence(timeout=WAIT))


@fenced.rule
def _(results: list[Any]) -> list[Any]:
    return _expect_errors(results, 1)


@promised(
    "construct: a member dies",
    CONSTRUCT,
    "an error when a member ends before it has called",
    ranks=4,
    killed_ranks=(2, -1),
    needs=GROUP,
)
async def unmade(me: Client) -> Any:
    *first, last = [proc for proc in me.job if proc.rank != 2]
    async with me.events(MEMBER, LEADER, SELECTED) as events:
        await me.fence(timeout=WAIT)
        if me.rank == 2:
            await _await_calls(me, *ranks(first))
            await get_eventually(me, "acme.second", me.job[0])
            _die()
        if me.proc == last:
            await _await_calls(me, *ranks(first))
            _die()
        await _announce_call(me)
        found = [await outcome(lambda: me.group("acme.first", [*first, last], timeout=WAIT).construct())]
        await me.put("acme.second", True)
        await me.commit()
        # The second loss happens before any rank calls.
        await sleep(2 * CALLED)
        found.append(await outcome(lambda: me.group("acme.second", [*first, me.job[2]], timeout=WAIT).construct()))
        return [*[each if isinstance(each, str) else "a group" for each in found], await _collect_events(events)]


@unmade.rule
def _(results: list[Any]) -> list[Any]:
    size = len(results)
    expected: list[Any] = []
    for rank, seen in enumerate(results):
        errors = [each if each in ERRORS else ERRORS[0] for each in seen[:2]] if seen else []
        expected.append(None if rank in (2, size - 1) else [*errors, []])
    return expected


async def _construct_with_losses(me: Client, **directives: Any) -> Any:
    """Construct a group of all ranks; rank 1 dies before the others call, the last rank while they wait."""
    async with me.events(MEMBER, LEADER, SELECTED, ABORT) as events:
        await me.fence(timeout=WAIT)
        if me.rank == 1:
            _die()
        last = me.job.size - 1
        if me.rank == last:
            await _await_calls(me, 0, *range(2, last))
            _die()
        await sleep(CALLED)
        await _announce_call(me)
        made = await outcome(lambda: me.group("acme.shrunk", me.job.procs, timeout=WAIT, **directives).construct())
        said = sorted(await _collect_events(events))
        if isinstance(made, str):
            return [made, said]
        # What the construct decided, as later losses change the group's own view.
        results = made.membership.results
        found = [ranks(results.members), results.partial]
        used = await outcome(lambda: me.fence(Proc("acme.shrunk", Rank.WILDCARD), timeout=WAIT))
        taken = await outcome(lambda: me.raw.group_destruct("acme.shrunk", timeout=WAIT))
        return [*found, used, taken, said]


def _expect_shrunk(results: list[Any], *said: list[Any]) -> list[Any]:
    size = len(results)
    return _expect_of_living(results, [[0, *range(2, size - 1)], True, None, None, [*said]], 1, -1)


@promised(
    "construct: optional",
    CONSTRUCT,
    "a partial success with the final membership under GROUP_OPTIONAL",
    ranks=4,
    killed_ranks=(1, -1),
    needs=GROUP,
)
async def optional(me: Client) -> Any:
    return await _construct_with_losses(me, optional=True)


@optional.rule
def _(results: list[Any]) -> list[Any]:
    return _expect_shrunk(results)


@promised(
    "construct: fault tolerant",
    ATTRIBUTES,
    "GROUP_FT_COLLECTIVE goes on without those who have ended",
    ranks=4,
    killed_ranks=(1, -1),
    needs=GROUP,
)
async def tolerant(me: Client) -> Any:
    found = await _construct_with_losses(me, ft=True)
    # Other checks test the events.
    return found[:-1]


@tolerant.rule
def _(results: list[Any]) -> list[Any]:
    return [each and each[:-1] for each in _expect_shrunk(results)]


@promised(
    "construct: members are told",
    CONSTRUCT,
    "GROUP_MEMBER_FAILED to all under GROUP_NOTIFY_TERMINATION",
    ranks=4,
    killed_ranks=(1, -1),
    needs=GROUP,
)
async def notified(me: Client) -> Any:
    return await _construct_with_losses(me, notify_termination=True)


@notified.rule
def _(results: list[Any]) -> list[Any]:
    return _expect_shrunk(results, *[_member_failed(rank, "acme.shrunk") for rank in (1, len(results) - 1)])


@promised(
    "construct: the leader is told",
    CONSTRUCT,
    "where one leads, it alone gets GROUP_MEMBER_FAILED",
    ranks=3,
    killed_ranks=(-1,),
    needs=GROUP,
)
async def leader_notified(me: Client) -> Any:
    last = me.job.size - 1
    async with me.events(MEMBER) as events:
        await me.fence(timeout=WAIT)
        if me.rank == last:
            await _await_calls(me, *range(last))
            _die()
        await _announce_call(me)
        leads: dict[str, Any] = {"leader": me.rank == 1, "notify_termination": True}
        made = await outcome(lambda: me.group("acme.told", me.job.procs, timeout=WAIT, **leads).construct())
        said = await _collect_events(events)
        if isinstance(made, str):
            return [made, said]
        members = ranks(made.membership.results.members)
        await me.raw.group_destruct("acme.told", timeout=WAIT)
        return [members, said]


@leader_notified.rule
def _(results: list[Any]) -> list[Any]:
    last = len(results) - 1
    return [*[[[*range(last)], [_member_failed(last, "acme.told")] if rank == 1 else []] for rank in range(last)], None]


@promised(
    "construct: a handler aborts",
    CONSTRUCT,
    "GROUP_CONSTRUCT_ABORT from a handler ends it for all",
    ranks=3,
    killed_ranks=(-1,),
    needs=GROUP,
)
async def given_up(me: Client) -> Any:
    calls: list[list[int]] = []

    @me.on(MEMBER)
    def failed(event: Any) -> Any:
        calls.append(ranks(event.affected))
        return event.abort() if me.rank == 1 else event.pass_on()

    await failed.ready()
    last = me.job.size - 1
    async with me.events(ABORT) as events:
        await me.fence(timeout=WAIT)
        if me.rank == last:
            await _await_calls(me, *range(last))
            _die()
        await _announce_call(me)
        made = await outcome(
            lambda: me.group("acme.given", me.job.procs, notify_termination=True, timeout=WAIT).construct()
        )
        aborts = [name for name, group, _ in await _collect_events(events) if group == "acme.given"]
    return [made if isinstance(made, str) else "a group", calls, aborts]


@given_up.rule
def _(results: list[Any]) -> list[Any]:
    return _expect_of_living(results, ["GROUP_CONSTRUCT_ABORT", [[len(results) - 1]], ["GROUP_CONSTRUCT_ABORT"]], -1)


async def _lose_leader(me: Client, *claims: int) -> Any:
    """Construct a group whose leader, rank 0, dies before the last rank calls; the ranks in `claims` claim the lead."""
    calls: list[list[int]] = []

    @me.on(LEADER)
    def failed(event: Any) -> Any:
        calls.append(ranks(event.affected))
        return event.lead() if me.rank in claims else event.pass_on()

    await failed.ready()
    last = me.job.size - 1
    async with me.events(SELECTED) as events:
        await me.fence(timeout=WAIT)
        if me.rank == 0:
            await _await_calls(me, *range(1, last))
            await _announce_call(me)
            # It dies while it waits.
            threading.Timer(CALLED, _die).start()
        elif me.rank == last:
            await _await_calls(me, 0)
            await sleep(2 * CALLED)
        else:
            await _announce_call(me)
        group = me.group("acme.orphan", me.job.procs, leader=me.rank == 0, timeout=WAIT)
        error = await outcome(group.construct)
        said = await _collect_events(events)
    if isinstance(error, str):
        return [error, calls, said]
    leader = group.membership.leader
    found = [ranks(group), None if leader is None else int(leader.rank)]
    # A server that takes the dead leader for a member may refuse it.
    refusal = await outcome(group.destruct)
    return [found if refusal is None else [*found, refusal], calls, said]


@promised(
    "construct: the leader fails",
    CONSTRUCT,
    "GROUP_LEADER_FAILED to all, and the one that claims leads",
    ranks=4,
    killed_ranks=(0,),
    needs=GROUP,
)
async def claimed(me: Client) -> Any:
    return await _lose_leader(me, 1, 2)


@claimed.rule
def _(results: list[Any]) -> list[Any]:
    leader = results[1][0][1]
    leader = leader if leader in (1, 2) else 1
    members = [*range(1, len(results))]
    return _expect_of_living(results, [[members, leader], [[0]], [["GROUP_LEADER_SELECTED", "acme.orphan", leader]]], 0)


@promised(
    "construct: no leader",
    CONSTRUCT,
    "GROUP_LEADER_SELECTED tells that no member wanted to lead",
    ranks=4,
    killed_ranks=(0,),
    needs=GROUP,
)
async def unclaimed(me: Client) -> Any:
    return await _lose_leader(me)


@unclaimed.rule
def _(results: list[Any]) -> list[Any]:
    said = [["GROUP_LEADER_SELECTED", "acme.orphan", None]]
    return _expect_of_living(results, ["GROUP_CONSTRUCT_ABORT", [[0]], said], 0)


async def _destruct_with_loss(me: Client, **directives: Any) -> Any:
    """Destruct a group whose last rank dies while the others wait."""
    last = me.job.size - 1
    async with me.events(MEMBER) as events:
        await me.group("acme.apart", me.job.procs, timeout=WAIT, **directives).construct()
        if me.rank == last:
            await _await_calls(me, *range(last))
            _die()
        await _announce_call(me)
        ended = await outcome(lambda: me.raw.group_destruct("acme.apart", timeout=WAIT))
        return [ended, await _collect_events(events)]


@promised(
    "destruct: a member dies",
    DESTRUCT,
    "an error when a member ends before it has called",
    ranks=3,
    killed_ranks=(-1,),
    needs=GROUP,
)
async def apart(me: Client) -> Any:
    return await _destruct_with_loss(me)


@apart.rule
def _(results: list[Any]) -> list[Any]:
    errors = _expect_errors([each and each[0] for each in results], -1)
    return [error and [error, []] for error in errors]


@promised(
    "destruct: a member has died",
    DESTRUCT,
    "an error when a member ended before anybody has called",
    ranks=3,
    killed_ranks=(-1,),
    needs=GROUP,
)
async def apart_later(me: Client) -> Any:
    """Destruct a group whose last rank has died before the others call."""
    last = me.job.size - 1
    group = me.group("acme.orderly", me.job.procs, timeout=WAIT)
    await group.construct()
    async with group.changes() as changes:
        await me.fence(timeout=WAIT)
        if me.rank == last:
            _die()
        change = await changes.get(timeout=10)
        return [type(change).__name__, await outcome(lambda: group.destruct(timeout=WAIT))]


@apart_later.rule
def _(results: list[Any]) -> list[Any]:
    errors = _expect_errors([each and each[1] for each in results], -1)
    return [error and ["MemberFailed", error] for error in errors]


@promised(
    "destruct: members are told",
    DESTRUCT,
    "GROUP_MEMBER_FAILED, and success, under GROUP_NOTIFY_TERMINATION",
    ranks=3,
    killed_ranks=(-1,),
    needs=GROUP,
)
async def destruct_notified(me: Client) -> Any:
    return await _destruct_with_loss(me, notify_termination=True)


@destruct_notified.rule
def _(results: list[Any]) -> list[Any]:
    return _expect_of_living(results, [None, [_member_failed(len(results) - 1, "acme.apart")]], -1)


@promised(
    "a member fails",
    ATTRIBUTES,
    "GROUP_MEMBER_FAILED to the others under GROUP_NOTIFY_TERMINATION",
    ranks=3,
    killed_ranks=(1,),
    needs=GROUP,
)
async def bereft(me: Client) -> Any:
    group = me.group("acme.bereft", me.job.procs, notify_termination=True, timeout=WAIT)
    await group.construct()
    async with me.events(MEMBER) as events, group.changes() as changes:
        await me.fence(timeout=WAIT)
        if me.rank == 1:
            _die()
        change = await changes.get(timeout=10)
        said = await _collect_events(events)
        await group.fence(timeout=WAIT)
        whom = None if change.proc is None else int(change.proc.rank)
        found = [type(change).__name__, whom, ranks(group), group.rank, group.membership.epoch]
        await group.destruct()
    return [found, said]


@bereft.rule
def _(results: list[Any]) -> list[Any]:
    rest = [0, *range(2, len(results))]
    said = [_member_failed(1, "acme.bereft")]
    return [
        [["MemberFailed", 1, rest, rest.index(rank), 2], said] if rank in rest else None for rank in range(len(results))
    ]


@promised(
    "a leader fails",
    CONSTRUCT,
    "GROUP_LEADER_FAILED in a group that stands, and one new leader",
    ranks=4,
    killed_ranks=(0,),
    needs=GROUP,
)
async def led(me: Client) -> Any:
    group = me.group("acme.led", me.job.procs, leader=me.job[0], timeout=WAIT)
    await group.construct()
    calls: list[list[Any]] = []

    @me.on(LEADER)
    def failed(event: Any) -> Any:
        calls.append([ranks(event.affected), event.info[keys.GROUP_ID]])
        return event.lead() if me.rank in (1, 3) else event.pass_on()

    await failed.ready()
    async with me.events(SELECTED) as events, group.changes() as changes:
        await me.fence(timeout=WAIT)
        if me.rank == 0:
            _die()
        kinds = [type(await changes.get(timeout=10)).__name__ for _ in range(2)]
        said = await _collect_events(events)
        leader = group.membership.leader
        after = None if leader is None else int(leader.rank)
        await group.fence(timeout=WAIT)
        taken = await outcome(group.destruct)
    return [after, calls, said, kinds, taken]


@led.rule
def _(results: list[Any]) -> list[Any]:
    leader = results[1][0] if results[1][0] in (1, 3) else 1
    said = [["GROUP_LEADER_SELECTED", "acme.led", leader]]
    taken = _expect_errors([each and each[4] for each in results], 0)
    shared = [leader, [[[0], "acme.led"]], said, ["LeaderFailed", "LeaderSelected"]]
    return [error and [*shared, error] for error in taken]


@promised(
    "connect: a participant ends",
    CONNECT,
    "an error for all others when one ends without having called",
    ranks=3,
    killed_ranks=(1,),
    needs=CONNECTED,
)
async def absent(me: Client) -> Any:
    await me.fence(timeout=WAIT)
    if me.rank == 1:
        _die()
    await sleep(CALLED)
    made = await outcome(lambda: me.connect(me.job.procs, timeout=WAIT))
    return made if isinstance(made, str) else "connected"


@absent.rule
def _(results: list[Any]) -> list[Any]:
    return _expect_errors(results, 1)


def _require_directives(me: Client) -> None:
    if not me.supports("connect.directives"):
        raise Untestable("the server supports only the directives of the Standard")


@promised(
    "connect: optional",
    KEYS,
    "no error because of procs that end without having connected",
    ranks=3,
    killed_ranks=(1,),
    needs=CONNECTED,
)
async def fewer(me: Client) -> Any:
    _require_directives(me)
    await me.fence(timeout=WAIT)
    if me.rank == 1:
        _die()
    await sleep(CALLED)
    made = await me.connect(me.job.procs, optional=True, timeout=WAIT)
    await made.fence(timeout=WAIT)
    found = [ranks(made), made.rank]
    await made.disconnect(timeout=WAIT)
    return found


@fewer.rule
def _(results: list[Any]) -> list[Any]:
    rest = [0, *range(2, len(results))]
    return [[rest, rest.index(rank)] if rank in rest else None for rank in range(len(results))]


async def _lose_during_fence(me: Client, early: bool) -> Any:
    """Fence a connection whose rank 1 dies while the others wait for it."""
    _require_directives(me)
    async with me.events(ConnectEvent.TERMINATED) as events:
        connection = await me.connect(me.job.procs, early_termination=early, timeout=WAIT)
        if me.rank == 1:
            await _await_calls(me, 0, *range(2, me.job.size))
            _die()

        async def announce() -> None:
            # The delay lets the fence reach the server before the announcement.
            await sleep(MEANWHILE)
            await _announce_call(me)

        first, _ = await all_of(lambda: outcome(lambda: connection.fence(timeout=WAIT)), announce)
        second = await outcome(lambda: connection.fence(timeout=WAIT))
        said = [
            event
            for event in await remaining_events(events, 2.0)
            if event.info.get(ConnectEvent.NSPACE) == connection.nspace
        ]
        await connection.disconnect(timeout=WAIT)
    return [first, second, [rank for event in said for rank in ranks(event.affected)]]


@promised(
    "connect: termination",
    CONNECT,
    "who ends without a disconnect is an error event for all others",
    ranks=3,
    killed_ranks=(1,),
    needs=CONNECTED,
)
async def parted(me: Client) -> Any:
    return await _lose_during_fence(me, False)


@parted.rule
def _(results: list[Any]) -> list[Any]:
    return _expect_of_living(results, ["ERR_PARTIAL_SUCCESS", None, [1]], 1)


@promised(
    "connect: early termination",
    KEYS,
    "no error when a proc ends without disconnecting",
    ranks=3,
    killed_ranks=(1,),
    needs=CONNECTED,
)
async def parted_early(me: Client) -> Any:
    return await _lose_during_fence(me, True)


@parted_early.rule
def _(results: list[Any]) -> list[Any]:
    return _expect_of_living(results, [None, None, []], 1)
