"""What only the early draft of RFC 0033 has: joining on request, constructs announced, leaves confirmed."""

from __future__ import annotations

from lib.aio import hear, sleep, tell
from pypmix import OperationTimeout, PMIxError
from pypmix.aio.recipes.admission import Admission, admit, enter, request
from pypmix.aio.recipes.draft import Consent, announce
from pypmix.groups import GroupEvent

REQUESTED, HAS_JOINED = GroupEvent.REQUESTED, GroupEvent.HAS_JOINED


def names(procs):
    return [proc.rank for proc in procs]


async def heard(stream, quiet=0.6):
    """Return whose events have come, and about which group, until none has come for a while."""
    found = []
    while True:
        try:
            event = await stream.get(timeout=quiet)
        except OperationTimeout:
            return sorted(found)
        found.append((event.source.rank, event.info["pmix.grp.id"]))


async def asked(me, refuses=()):
    """Rank 3 asks to join a group of the others, of whom some refuse it; then those who are in it use it."""
    calls = []

    def decide(event):
        calls.append((event.source.rank, event.info["pmix.grp.id"]))
        return event.refuse("not on the list") if me.rank in refuses else event.done()

    if me.rank < 3:
        team = me.group("acme.club", me.job.procs[2::-1], context_id=True, timeout=20)
        await team.construct()
        async with Admission(team, decide), team.changes() as changes:
            await me.fence(timeout=20)
            if refuses:
                await hear("refused")
                change = None
            else:
                told = await changes.get(timeout=20)
                change = type(told).__name__, told.proc.rank, names(told.members), told.epoch
    else:
        await me.fence(timeout=20)
        change = None
        try:
            team = await request(me, "acme.club", timeout=20)
        except PMIxError as error:
            team = None
            change = type(error).__name__, "not on the list" in str(error)
            await tell("refused")
    found = None
    if team is not None:
        found = names(team), team.rank, team.membership.epoch
        await team.fence(timeout=20)
        await team.destruct(timeout=20)
    await me.fence(timeout=20)
    return change, found, calls, team is not None


async def number(me):
    """The context id and the infos of a group are those of who joins it later as well."""
    if me.rank < 2:
        team = me.group("acme.number", me.job.procs[:2], context_id=True, timeout=20)
        await team.construct()
        async with Admission(team):
            await me.fence(timeout=20)
            await me.fence(timeout=20)
    else:
        await me.fence(timeout=20)
        team = await request(me, "acme.number", timeout=20)
        await me.fence(timeout=20)
    found = team.context_id, names(team)
    await team.destruct(timeout=20)
    return found


async def invited(me):
    """Rank 2 asks to join a group that rank 0 has invited rank 1 to, and fences with it; then rank 0 leaves."""
    invitations = await me.invitations().open()
    await me.fence(timeout=20)
    if me.rank == 0:
        team = await me.invite("acme.guests", [me.job[1]], timeout=20).form()
    elif me.rank == 1:
        team = await (await invitations.get(timeout=20)).accept(timeout=20)
    if me.rank == 2:
        await me.fence(timeout=20)
        team = await request(me, "acme.guests", timeout=20)
        await me.fence(timeout=20)
    else:
        async with Admission(team):
            await me.fence(timeout=20)
            await me.fence(timeout=20)
    found = [names(team)]
    await team.fence(timeout=20)
    if me.rank == 0:
        await team.leave()
    else:
        async with team.changes(since=team.membership.epoch) as changes:
            if len(team) == 3:
                await changes.get(timeout=20)
        found.append(names(team))
        await team.destruct(timeout=20)
    await me.fence(timeout=20)
    return found


async def unknown(me):
    """A group that does not stand cannot be joined."""
    found = None
    if me.rank == 0:
        try:
            await request(me, "acme.nowhere", timeout=20)
        except PMIxError as error:
            found = type(error).__name__
    await me.fence(timeout=20)
    return found


async def undecided(me):
    """Rank 1's handler takes its time, which rank 2 does not have: it gives up."""

    async def decide(event):
        if me.rank == 1:
            await hear("over")
        return event.done()

    if me.rank == 2:
        found = None
        await me.fence(timeout=20)
        try:
            await request(me, "acme.slow", timeout=1)
        except PMIxError as error:
            found = type(error).__name__
        await me.fence(timeout=20)
        await me.fence(timeout=20)
        return found
    team = me.group("acme.slow", me.job.procs[:2], timeout=20)
    await team.construct()
    async with Admission(team, decide):
        await me.fence(timeout=20)
        await me.fence(timeout=20)
        if me.rank == 1:
            # What has been withdrawn before is decided too late.
            await tell("over")
        await me.fence(timeout=20)
    found = names(team)
    await team.fence(timeout=20)
    await team.destruct(timeout=20)
    return found


async def announced(me):
    """Rank 0 begins to construct a group; the others come when they hear of it, and all hear of each who comes."""
    async with me.events(REQUESTED) as wanted, me.events(HAS_JOINED) as coming:
        await me.fence(timeout=20)
        procs, found = me.job.procs, None
        if me.rank > 0:
            event = await wanted.get(timeout=20)
            procs = event.info["pmix.grp.mbrs"]
            found = event.source.rank, event.info["pmix.grp.id"], names(procs)
        team = me.group("acme.called", procs, timeout=20)
        if me.rank == 0:
            await announce(team, procs)
        await announce(team, procs, HAS_JOINED)
        await team.construct()
        said = await heard(coming), await heard(wanted)
    members = names(team)
    await team.destruct(timeout=20)
    return found, said, members


async def unannounced(me):
    """Nobody hears of a construct before it is there unless the program asks for that."""
    async with me.events(REQUESTED, HAS_JOINED) as events:
        await me.fence(timeout=20)
        async with me.group("acme.quiet", me.job.procs, timeout=20):
            return await heard(events)


async def confirmed(me, timeout=20):
    """Rank 1 leaves when the others have confirmed it."""
    calls = []

    async def confirm(event):
        calls.append((event.source.rank, event.info["pmix.grp.id"]))
        if me.rank == 2:
            await (hear("over") if timeout == 1 else sleep(0.3))
        await tell(f"confirmed {me.rank}")

    team = me.group("acme.leaving", me.job.procs, timeout=20)
    await team.construct()
    async with Consent(team, confirm) as consent, team.changes() as changes:
        await me.fence(timeout=20)
        if me.rank == 1:
            try:
                await consent.leave(timeout=timeout)
            except OperationTimeout as error:
                found = type(error).__name__, names(error.missing), names(team)
                await tell("over")
                await team.fence(timeout=20)
                await team.destruct(timeout=20)
            else:
                for rank in (0, 2):
                    await hear(f"confirmed {rank}", 0)
                found = team.membership.is_open
        else:
            if timeout > 1:
                change = await changes.get(timeout=20)
                found = type(change).__name__, change.proc.rank, names(team)
            else:
                found = None
            await team.fence(timeout=20)
            await team.destruct(timeout=20)
    await me.fence(timeout=20)
    return found, calls


async def parted(me):
    """All leave at once, each of them asking the others."""
    team = me.group("acme.parted", me.job.procs, timeout=20)
    await team.construct()
    async with Consent(team) as consent:
        await me.fence(timeout=20)
        await consent.leave(timeout=20)
        await me.fence(timeout=20)
    return team.membership.is_open


async def grown(me, first):
    """Rank 0 takes the last rank in; one of them begins `first`, and the other half a second later."""
    last = me.job.size - 1
    if me.rank < last:
        team = me.group("acme.grown", me.job.procs[:last], context_id=True, timeout=20)
        await team.construct()
        async with team.changes() as changes:
            await me.fence(timeout=20)
            if me.rank == 0:
                await sleep(0 if first == "admit" else 0.5)
                await admit(team, last, timeout=20)
            change = await changes.get(timeout=20)
            found = names(change.joined), names(team)
    else:
        await me.fence(timeout=20)
        await sleep(0 if first == "enter" else 0.5)
        team = await enter(me, "acme.grown", by=me.job[0], timeout=20)
        found = [], names(team)
    await team.fence(timeout=20)
    await team.destruct(timeout=20)
    return found


async def waited(me):
    """A proc that does not come, and one that no member takes in."""
    team = me.group("acme.waited", me.job.procs[:2], timeout=20)
    if me.rank < 2:
        await team.construct()
    await me.fence(timeout=20)
    found = None
    try:
        if me.rank == 0:
            await admit(team, 2, timeout=1)
        elif me.rank == 2:
            await enter(me, "acme.waited", by=me.job[1], timeout=1)
    except OperationTimeout as error:
        found = type(error).__name__, names(team) if me.rank < 2 else []
    await me.fence(timeout=20)
    if me.rank < 2:
        await team.fence(timeout=20)
        await team.destruct(timeout=20)
    return found
