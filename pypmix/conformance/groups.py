"""Checks of groups that their members construct together, by invitation, and of groups as addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pypmix import ConstructAborted, Info, PMIxError, Proc, Rank, attrs
from pypmix.conformance.calls import all_of, outcome, ranks
from pypmix.conformance.check import WAIT, distinct, promised

if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.aio import Client, Group, Invitation, InvitationStream

CONSTRUCT = "Standard, PMIx_Group_construct"
DESTRUCT = "Standard, PMIx_Group_destruct"
INVITE = "Standard, PMIx_Group_invite"
LEAVE = "Standard, PMIx_Group_leave"
GROUPS = "Standard, Process Groups"
ATTRIBUTES = "Standard, Process Group Attributes"
OPENPMIX = "OpenPMIx, Group Construction"

NAME = "acme.address"
QUALIFIER = 8
"""The flag of an info that qualifies a request."""

GROUP = ("construct",)


@promised("construct", CONSTRUCT, "a group of all who are named and call it; each gets the same membership")
async def construct_twice(me: Client) -> Any:
    found = []
    for procs in (tuple(reversed(me.job.procs)), me.job.procs):
        results = await me.group("acme.again", procs, timeout=WAIT).construct()
        await me.fence(Proc("acme.again", Rank.WILDCARD), timeout=WAIT)
        found.append([ranks(results.members), results.context_id, results.membership.is_partial])
        await me.raw.group_destruct("acme.again", timeout=WAIT)
    await me.fence(timeout=WAIT)
    return found


@construct_twice.rule
def _(results: list[Any]) -> list[Any]:
    everyone = [*range(len(results))]
    return [[[everyone[::-1], None, False], [everyone, None, False]]] * len(results)


@promised("destruct: twice", DESTRUCT, "a group that was destructed is not found", needs=GROUP)
async def destruct_twice(me: Client) -> Any:
    await me.group("acme.ended", me.job.procs, timeout=WAIT).construct()
    await me.raw.group_destruct("acme.ended", timeout=WAIT)
    second = await outcome(lambda: me.raw.group_destruct("acme.ended", timeout=3))
    address = await outcome(lambda: me.fence(Proc("acme.ended", Rank.WILDCARD), timeout=3))
    await me.fence(timeout=WAIT)
    return [second, address]


@destruct_twice.rule
def _(results: list[Any]) -> list[Any]:
    return [["ERR_NOT_FOUND", "ERR_NOT_FOUND"]] * len(results)


async def _construct_at_once(me: Client, groups: dict[str, Any], fence: bool = False) -> list[Any]:
    """Construct groups concurrently, in a different order at each rank, optionally beside a fence."""
    made: dict[str, Any] = {}

    def constructing(name: str) -> Callable[[], Any]:
        async def construct() -> None:
            results = await me.group(name, groups[name], context_id=True, timeout=WAIT).construct()
            made[name] = [ranks(results.members), results.context_id]

        return construct

    calls: list[Callable[[], Any]] = [constructing(name) for name in groups]
    if fence:
        calls.append(lambda: me.fence(timeout=WAIT))
    turn = me.rank % len(calls)
    await all_of(*calls[turn:], *calls[:turn])
    for name in groups:
        await me.raw.group_destruct(name, timeout=WAIT)
    await me.fence(timeout=WAIT)
    return [made[name] for name in groups]


@promised(
    "construct without blocking",
    CONSTRUCT,
    "several constructs of one process at once, each awaited",
    ranks=4,
    needs=GROUP,
)
async def of_other_procs(me: Client) -> Any:
    half = [proc for proc in me.job.procs if proc.rank % 2 == me.rank % 2]
    pair = me.job.procs[me.rank // 2 * 2 :][:2]
    return await _construct_at_once(me, {f"acme.half{me.rank % 2}": half, f"acme.pair{me.rank // 2}": pair})


@of_other_procs.rule
def _(results: list[Any]) -> list[Any] | str:
    size = len(results)
    numbers = {f"{members}": number for each in results for members, number in each}
    if not distinct([*numbers.values()]):
        return f"the context ids of the groups are {numbers}"
    expected = []
    for rank in range(size):
        half, pair = [*range(rank % 2, size, 2)], [*range(size)][rank // 2 * 2 :][:2]
        expected.append([[half, numbers.get(f"{half}")], [pair, numbers.get(f"{pair}")]])
    return expected


@promised("construct: ids side by side", CONSTRUCT, "the same procs construct several groups at a time", needs=GROUP)
async def of_the_same_procs(me: Client) -> Any:
    return await _construct_at_once(me, {"acme.first": me.job.procs, "acme.second": me.job.procs})


@of_the_same_procs.rule
def _(results: list[Any]) -> list[Any] | str:
    numbers = [number for _, number in results[0]]
    if not distinct(numbers):
        return f"the context ids of the groups are {numbers}"
    return [[[[*range(len(results))], number] for number in numbers]] * len(results)


@promised("construct: beside a fence", CONSTRUCT, "a fence of the same procs at the same time", needs=GROUP)
async def beside_a_fence(me: Client) -> Any:
    return await _construct_at_once(me, {"acme.first": me.job.procs}, True)


@beside_a_fence.rule
def _(results: list[Any]) -> list[Any]:
    return [[[[*range(len(results))], results[0][0][1]]]] * len(results)


@promised(
    "construct: group ids", GROUPS, "an id in use by a group or an nspace is refused, as one too long", needs=GROUP
)
async def named(me: Client) -> Any:
    refused = []
    for name in ("", "g" * 256, "a\0b"):
        try:
            await me.group(name, me.job.procs, timeout=5).construct()
            refused.append("accepted")
        except ValueError:
            refused.append("refused")
    longest = "g" * 255
    results = await me.group(longest, me.job.procs, timeout=WAIT).construct()
    members = results.members
    refused.append(await outcome(lambda: me.group(longest, me.job.procs, timeout=5).construct()))
    refused.append(await outcome(lambda: me.group(me.nspace, me.job.procs, timeout=5).construct()))
    await me.raw.group_destruct(longest, timeout=WAIT)
    await me.fence(timeout=WAIT)
    return [ranks(members), refused]


@named.rule
def _(results: list[Any]) -> list[Any]:
    return [[[*range(len(results))], [*["refused"] * 3, "ERR_EXISTS", "ERR_EXISTS"]]] * len(results)


@promised(
    "construct: final order",
    OPENPMIX,
    "the order of the members as GROUP_FINAL_MEMBERSHIP_ORDER says",
    ranks=3,
    needs=GROUP,
)
async def ordered(me: Client) -> Any:
    first, second, *others = me.job.procs
    order = [*others, first, second]
    asked = [attrs.GROUP_FINAL_MEMBERSHIP_ORDER(order)]
    async with me.group("acme.order", me.job.procs, timeout=WAIT, info=asked) as group:
        await me.put("acme.word", f"of {me.rank}")
        await group.fence(collect=True, timeout=WAIT)
        return [ranks(group), group.rank, await me.get("acme.word", group[0])]


@ordered.rule
def _(results: list[Any]) -> list[Any]:
    order = [*range(2, len(results)), 0, 1]
    return [[order, order.index(rank), "of 2"] for rank in range(len(results))]


@promised("construct: context id", ATTRIBUTES, "a context id that no other group has", needs=GROUP)
async def numbered(me: Client) -> Any:
    half = [proc for proc in me.job.procs if proc.rank % 2 == me.rank % 2]
    found = []
    for _ in range(2):
        async with (
            me.group("acme.all", me.job.procs, context_id=True, timeout=WAIT) as whole,
            me.group(f"acme.part{me.rank % 2}", half, context_id=True, timeout=WAIT) as part,
        ):
            found += [whole.context_id, part.context_id]
    return found


@numbered.rule
def _(results: list[Any]) -> list[Any] | str:
    even, odd = results[0], results[1]
    if even[::2] != odd[::2] or not distinct([*even, *odd[1::2]]):
        return f"the context ids of the groups are {even} and {odd}"
    return [[even, odd][rank % 2] for rank in range(len(results))]


@promised("construct: group info", OPENPMIX, "each member reads what the others gave as GROUP_INFO", needs=GROUP)
async def shared(me: Client) -> Any:
    said = attrs.GROUP_INFO({"acme.port": f"port {me.rank}"})
    results = await me.group("acme.shared", me.job.procs, context_id=True, timeout=WAIT, info=[said]).construct()
    number = attrs.GROUP_CONTEXT_ID(results.context_id or 0)
    by = Info(number.key, number.value, QUALIFIER)
    asked = [await me.get("acme.port", member, default=None, timeout=2, info=[by]) for member in results.members]
    await me.raw.group_destruct("acme.shared", timeout=WAIT)
    await me.fence(timeout=WAIT)
    return asked


@shared.rule
def _(results: list[Any]) -> list[Any]:
    return [[f"port {rank}" for rank in range(len(results))]] * len(results)


@promised("construct: data", CONSTRUCT, "everything that the members have put", needs=GROUP)
async def put(me: Client) -> Any:
    await me.put("acme.word", f"of {me.rank}")
    await me.commit()
    async with me.group("acme.put", me.job.procs, timeout=WAIT) as group:
        words = [await me.get("acme.word", group[rank]) for rank in range(group.size)]
    await me.fence(timeout=WAIT)
    return words


@put.rule
def _(results: list[Any]) -> list[Any]:
    return [[f"of {rank}" for rank in range(len(results))]] * len(results)


@promised("construct: timeout", CONSTRUCT, "an error when a member has not come in time", needs=GROUP)
async def construct_timeout(me: Client) -> Any:
    seen = None
    if me.rank != me.job.size - 1:
        seen = await outcome(lambda: me.group("acme.late", me.job.procs, timeout=1).construct())
    await me.fence(timeout=WAIT)
    return seen


@construct_timeout.rule
def _(results: list[Any]) -> list[Any]:
    return [*["ERR_TIMEOUT"] * (len(results) - 1), None]


@promised("construct: not a member", CONSTRUCT, "a proc that is not named cannot construct", ranks=3, needs=GROUP)
async def outside(me: Client) -> Any:
    procs = me.job.procs[:-1]
    if me.proc not in procs:
        try:
            await me.group("acme.outside", procs, timeout=5).construct()
            found: Any = "made"
        except PMIxError as error:
            found = error.status.name
    else:
        async with me.group("acme.outside", procs, timeout=WAIT) as group:
            found = ranks(group)
    await me.fence(timeout=WAIT)
    return found


@outside.rule
def _(results: list[Any]) -> list[Any]:
    *_, other = results
    refusal = other if other in ("ERR_BAD_PARAM", "ERR_NOT_A_MEMBER") else "ERR_NOT_A_MEMBER"
    return [*[[*range(len(results) - 1)]] * (len(results) - 1), refusal]


def _address(me: Client) -> Group:
    """Return a group of all ranks except the first, in reverse order, so that group ranks differ from ranks."""
    return me.group(NAME, me.job.procs[:0:-1], timeout=WAIT)


@promised("address: fence", GROUPS, "the group, or some of its ranks, in a fence", ranks=4, needs=GROUP)
async def fenced(me: Client) -> Any:
    found = None
    if me.rank:
        async with _address(me) as group:
            await me.put("acme.word", f"of {me.rank}")
            await me.fence(Proc(NAME, Rank.WILDCARD), collect=True, timeout=WAIT)
            words = [await me.get("acme.word", member) for member in group]
            if group.rank < 2:
                await me.fence([Proc(NAME, 0), Proc(NAME, 1)], timeout=WAIT)
            beyond = await outcome(lambda: me.fence([me.proc, Proc(NAME, group.size)], timeout=5))
            found = [words, beyond]
            await group.fence(timeout=WAIT)
    await me.fence(timeout=WAIT)
    return found


@fenced.rule
def _(results: list[Any]) -> list[Any]:
    words = [f"of {rank}" for rank in range(len(results) - 1, 0, -1)]
    return [None, *[[words, "ERR_NOT_FOUND"]] * (len(results) - 1)]


@promised("address: get", GROUPS, "a group rank in a get", ranks=4, needs=GROUP)
async def got(me: Client) -> Any:
    found = None
    if me.rank:
        async with _address(me) as group:
            await me.put("acme.word", f"of {me.rank}")
            await me.commit()
            found = [await me.get("acme.word", Proc(NAME, rank), timeout=10) for rank in range(group.size)]
            found.append(await me.get("acme.word", group[0]))
            last = Proc(NAME, group.size - 1)
            found.append(await me.get(attrs.LOCAL_RANK, last) == await me.get(attrs.LOCAL_RANK, me.job[1]))
            await group.fence(timeout=WAIT)
    await me.fence(timeout=WAIT)
    return found


@got.rule
def _(results: list[Any]) -> list[Any]:
    words = [f"of {rank}" for rank in range(len(results) - 1, 0, -1)]
    return [None, *[[*words, words[0], True]] * (len(results) - 1)]


@promised("query: groups", ATTRIBUTES, "QUERY_NUM_GROUPS and QUERY_GROUP_NAMES", ranks=3, needs=GROUP)
async def query_groups(me: Client) -> Any:
    group = _address(me)
    if me.rank:
        await group.construct()
    await me.fence(timeout=WAIT)
    found = [await me.query(attrs.QUERY_NUM_GROUPS), await me.query(attrs.QUERY_GROUP_NAMES)]
    await me.fence(timeout=WAIT)
    if me.rank:
        await group.destruct()
    await me.fence(timeout=WAIT)
    found += [await me.query(attrs.QUERY_NUM_GROUPS), await me.query(attrs.QUERY_GROUP_NAMES, default=[])]
    await me.fence(timeout=WAIT)
    return found


@query_groups.rule
def _(results: list[Any]) -> list[Any]:
    return [[1, [NAME], 0, []]] * len(results)


@promised("query: membership", ATTRIBUTES, "QUERY_GROUP_MEMBERSHIP", ranks=3, needs=GROUP)
async def listed(me: Client) -> Any:
    group = _address(me)
    if me.rank:
        await group.construct()
    await me.fence(timeout=WAIT)
    members = await me.query(attrs.QUERY_GROUP_MEMBERSHIP, info={attrs.GROUP_ID: NAME})
    try:
        unknown = await me.query(attrs.QUERY_GROUP_MEMBERSHIP, info={attrs.GROUP_ID: "acme.none"}, default=None)
    except PMIxError:
        unknown = None
    await me.fence(timeout=WAIT)
    if me.rank:
        await group.destruct()
    await me.fence(timeout=WAIT)
    return [sorted(ranks(members)), unknown]


@listed.rule
def _(results: list[Any]) -> list[Any]:
    return [[[*range(1, len(results))], None]] * len(results)


@promised(
    "leave",
    LEAVE,
    "GROUP_LEFT to the others, who go on: fence and destruct without the one that left",
    ranks=3,
    needs=GROUP,
)
async def leave(me: Client) -> Any:
    group = me.group("acme.shrinking", me.job.procs, timeout=WAIT)
    await group.construct()
    if me.rank == 1:
        await me.fence(timeout=WAIT)
        await group.leave()
        found = None
    else:
        async with group.changes() as changes:
            await me.fence(timeout=WAIT)
            change = await changes.get(timeout=WAIT)
            await group.fence(timeout=WAIT)
            found = [type(change).__name__, ranks(change.left), ranks(group), group.rank]
        await group.destruct(timeout=WAIT)
    await me.fence(timeout=WAIT)
    return found


@leave.rule
def _(results: list[Any]) -> list[Any]:
    rest = [0, *range(2, len(results))]
    return [None if rank == 1 else ["Left", [1], rest, rest.index(rank)] for rank in range(len(results))]


async def _open_invitations(me: Client) -> InvitationStream:
    """Open a stream of invitations, and wait until all ranks have one."""
    invitations = await me.invitations().open()
    await me.fence(timeout=WAIT)
    return invitations


async def _members(call: Callable[[], Any]) -> Any:
    try:
        return ranks(await call())
    except ConstructAborted:
        return "aborted"


def _make_acceptance(invitation: Invitation) -> Callable[[], Any]:
    return lambda: invitation.accept(timeout=WAIT)


@promised("invite", INVITE, "who accepts is a member, with the inviter; all get the same membership")
async def formed(me: Client) -> Any:
    invitations = await _open_invitations(me)
    found = []
    for _ in range(2):
        told = None
        if me.rank == 1:
            procs = [proc for proc in reversed(me.job.procs) if proc != me.proc]
            team = await me.invite("acme.team", procs, timeout=WAIT).form()
        else:
            invitation = await invitations.get(timeout=WAIT)
            told = [invitation.group, int(invitation.leader.rank), ranks(invitation.members)]
            team = await invitation.accept(timeout=WAIT)
        found.append(
            [
                told,
                ranks(team),
                team.rank,
                team.membership.leader == me.job[1],
                team.membership.is_partial,
                team.context_id,
            ]
        )
        await team.fence(timeout=WAIT)
        await team.destruct(timeout=WAIT)
    await me.fence(timeout=WAIT)
    return found


@formed.rule
def _(results: list[Any]) -> list[Any]:
    members = [1, *[rank for rank in range(len(results) - 1, -1, -1) if rank != 1]]
    told = ["acme.team", 1, members]
    return [
        [[None if rank == 1 else told, members, members.index(rank), True, False, None]] * 2
        for rank in range(len(results))
    ]


async def _form_declined(me: Client, optional: bool) -> Any:
    """Return the members of a group to which rank 0 invites all other ranks, and rank 1 declines."""
    invitations = await _open_invitations(me)
    found = None
    if me.rank == 0:
        others = me.job.procs[1:]
        found = await _members(lambda: me.invite("acme.some", others, timeout=WAIT, optional=optional).form())
    elif me.rank == 1:
        await (await invitations.get(timeout=WAIT)).decline()
    else:
        found = await _members(_make_acceptance(await invitations.get(timeout=WAIT)))
    if isinstance(found, list):
        await me.raw.group_destruct("acme.some", timeout=WAIT)
    await me.fence(timeout=WAIT)
    return found


@promised(
    "invite: one declines",
    "Standard, PMIx_Group_join",
    "a group that all are to accept ends where one declines",
    ranks=3,
    needs=("invite",),
)
async def declined(me: Client) -> Any:
    return await _form_declined(me, False)


@declined.rule
def _(results: list[Any]) -> list[Any]:
    return [None if rank == 1 else "aborted" for rank in range(len(results))]


@promised("invite: optional", INVITE, "GROUP_OPTIONAL goes on with those who accept", ranks=3, needs=("invite",))
async def optional(me: Client) -> Any:
    return await _form_declined(me, True)


@optional.rule
def _(results: list[Any]) -> list[Any]:
    rest = [0, *range(2, len(results))]
    return [None if rank == 1 else rest for rank in range(len(results))]


@promised("invite: timeout", INVITE, "who does not answer in time has failed", ranks=3, needs=("invite",))
async def overdue(me: Client) -> Any:
    invitations = await _open_invitations(me)
    found = None
    last = me.job.size - 1
    if me.rank == 0:
        found = await _members(lambda: me.invite("acme.overdue", me.job.procs[1:], timeout=1).form())
    elif me.rank != last:
        found = await _members(_make_acceptance(await invitations.get(timeout=WAIT)))
    await me.fence(timeout=WAIT)
    return found


@overdue.rule
def _(results: list[Any]) -> list[Any]:
    return [*["aborted"] * (len(results) - 1), None]


@promised("invite: context id", INVITE, "a context id, for invited groups too", needs=("invite",))
async def invited_numbers(me: Client) -> Any:
    invitations = await _open_invitations(me)
    found = []
    for name in ("acme.first", "acme.second"):
        if me.rank == 0:
            team = await me.invite(name, me.job.procs, context_id=True, timeout=WAIT).form()
        else:
            team = await (await invitations.get(timeout=WAIT)).accept(timeout=WAIT)
        found.append(team.context_id)
    for name in ("acme.first", "acme.second"):
        await me.raw.group_destruct(name, timeout=WAIT)
    return found


@invited_numbers.rule
def _(results: list[Any]) -> list[Any] | str:
    if not distinct(results[0]):
        return f"the context ids of the groups are {results[0]}"
    return [results[0]] * len(results)
