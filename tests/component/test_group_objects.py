"""Groups, invitations and leadership as objects: what they ask an engine for, and what they make of what it tells."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

import pypmix
from lib.fake_session import FakeSession
from lib.group_delivery import ME, PEER, THIRD, Delivery, Groups, until
from pypmix import (
    Client,
    ConstructAborted,
    EventCode,
    NotFound,
    NotInitialized,
    NotSupported,
    OperationTimeout,
    PMIxError,
    Proc,
    Rank,
    Status,
    aio,
    attrs,
)
from pypmix import clientbase as client_module
from pypmix.engine.groups import talk
from pypmix.engine.groups.foreign.rules import works
from pypmix.groups import (
    Accepted,
    Declined,
    Destructed,
    Failed,
    Joined,
    LeaderFailed,
    LeaderSelected,
    Left,
    MemberFailed,
)
from pypmix.recipes import Leadership, admission
from pypmix.standard import codes
from pypmix.standard.ops import (
    DeregisterEventHandler,
    Fence,
    Finalize,
    Get,
    GroupAdmit,
    GroupConstruct,
    GroupDestruct,
    GroupEnter,
    GroupInvite,
    GroupInviteControl,
    GroupJoin,
    GroupLeave,
    GroupResults,
    GroupState,
    GroupUnwatch,
    NotifyEvent,
    QueryInfo,
    RegisterEventHandler,
)
from pypmix.standard.types import DataArray, Info, Value
from pypmix.types import uint32

pytestmark = [pytest.mark.timeout(60), pytest.mark.anyio]

LEADER_FAILED = int(EventCode.GROUP_LEADER_FAILED)
INVITED = int(EventCode.GROUP_INVITED)


# Groups


def test_a_block_is_a_group(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME], context_id=True, timeout=1.5) as g:
        assert (g.rank, g.size, g.members, g.context_id, g.membership.epoch, g.membership.leader) == (
            1,
            2,
            (PEER, ME),
            7,
            1,
            None,
        )
        assert g.membership.is_open
        assert ME in g and list(g) == [PEER, ME] and g[0] == PEER
        g.fence(timeout=3)
        me.notify(EventCode.custom(-5000), targets=g)
        session.data[PEER, "k"] = uint32(4)
        assert me.get("k", g[0]) == me.get("k", PEER) == 4
        with pytest.raises(IndexError, match="ranks 0 to 1"):
            g[2]
    assert not g.membership.is_open
    construct, fence, event, destruct, *_ = session.ops
    assert construct == GroupConstruct("g", (PEER, ME), (attrs.GROUP_ASSIGN_CONTEXT_ID(True), attrs.TIMEOUT(2)))
    assert fence == Fence((Proc("g", Rank.WILDCARD),), False, (attrs.TIMEOUT(3),))
    assert isinstance(event, NotifyEvent)
    assert destruct == GroupDestruct("g", (attrs.TIMEOUT(2),))
    with pytest.raises(NotInitialized, match="is not open here"):
        _ = g.members


def test_every_directive(me: Client, session: Groups) -> None:
    me.group(
        "g",
        [PEER, ME],
        leader=ME,
        optional=True,
        ft=True,
        notify_termination=True,
        local_only=True,
        bootstrap=2,
        add=THIRD,
        info=[attrs.GROUP_FINAL_MEMBERSHIP_ORDER([ME, PEER])],
    ).construct()
    (op,) = session.asked(GroupConstruct)
    told = {info.key: info.value.data for info in op.directives}
    assert told.pop("pmix.grp.add").items == (THIRD,)
    assert told.pop("pmix.grp.finord").items == (ME, PEER)
    assert told == {
        "pmix.grp.opt": True,
        "pmix.grp.ftcoll": True,
        "pmix.grp.notterm": True,
        "pmix.grp.lcl": True,
        "pmix.grp.ldr": True,
        "pypmix.grp.leader": ME,
        "pmix.grp.btstrp": 2,
    }


def test_who_is_not_the_leader_does_not_say_that_it_is(me: Client, session: Groups) -> None:
    me.group("g", [PEER, ME], leader=PEER).construct()
    (op,) = session.asked(GroupConstruct)
    assert [info.key for info in op.directives] == ["pypmix.grp.leader"]


def test_leaders_of_a_bootstrap_know_of_themselves_and_added_ones_of_nobody(me: Client, session: Groups) -> None:
    with me.group("pool", bootstrap=3, add=[THIRD], info=[attrs.GROUP_INFO([attrs.HOSTNAME("n0")])]):
        pass
    with me.group("late"):
        pass
    first, second = session.asked(GroupConstruct)
    assert (first.procs, second.procs) == ((ME,), ())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"procs": []}, ValueError),
        ({"procs": "job"}, TypeError),
        ({"procs": ME, "leader": 1}, TypeError),
        ({"procs": ME, "ft": 1}, TypeError),
        ({"procs": ME, "bootstrap": -1}, ValueError),
        ({"procs": ME, "bootstrap": True}, TypeError),
        ({"add": [THIRD]}, ValueError),
        ({"procs": ME, "timeout": 0}, ValueError),
    ],
)
def test_mistakes_are_errors_at_the_call(me: Client, session: Groups, arguments: Any, error: type) -> None:
    with pytest.raises(error):
        me.group("g", **arguments)
    assert not session.ops


def test_members_find_the_same_name_by_themselves(me: Client, session: Groups) -> None:
    everyone = Proc("job", Rank.WILDCARD)
    names = [me.group(procs=procs).name for procs in (everyone, [THIRD, PEER, ME], [PEER, ME], me.job)]
    assert names[0].startswith("pypmix.job.")
    assert [name.rpartition(".")[2] for name in names] == ["1", "2", "1", "3"]
    assert len({name.rpartition(".")[0] for name in names}) == 2
    with pytest.raises(ValueError, match="needs the procs"):
        me.group()
    with pytest.raises(ValueError, match="needs a name"):
        me.group(bootstrap=2)


def test_an_automatic_name_fits(me: Client) -> None:
    procs = [ME, Proc("ä" * 127, 3)]
    assert len(me.group(procs=[procs[1]]).name.encode()) <= 255
    assert me.group(procs=procs).name != me.group(procs=procs).name


def test_an_exception_leaves_and_runs_no_collective(me: Client, session: Groups) -> None:
    with pytest.raises(KeyError), me.group("g", [PEER, ME]) as g:
        raise KeyError("mine")
    assert [type(op) for op in session.ops] == [GroupConstruct, GroupLeave]
    assert not g.membership.is_open


def test_an_exception_is_not_hidden_by_one_of_the_leave(me: Client, session: Groups) -> None:
    session.refuses[GroupLeave] = PMIxError("no")
    with pytest.raises(KeyError), me.group("g", [PEER, ME]):
        raise KeyError("mine")


def test_who_has_left_destructs_nothing(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME]) as g:
        g.leave()
        assert repr(g) == "<Group g, not constructed>"
        with pytest.raises(NotInitialized):
            g.leave()
    assert [type(op) for op in session.ops] == [GroupConstruct, GroupLeave]


def test_a_group_that_is_gone_is_not_destructed(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME]):
        del session.states["g"]
    assert [type(op) for op in session.ops] == [GroupConstruct]


def test_a_group_that_goes_while_it_is_destructed_is_gone(me: Client, session: Groups) -> None:
    class Vanishes(NotFound):
        def __init__(self) -> None:
            super().__init__("gone")

    session.refuses[GroupDestruct] = Vanishes()
    g = me.group("g", [PEER, ME]).construct()
    with pytest.raises(NotFound):
        g.destruct()
    now = session.states.pop("g")
    states = iter([now, None, None])
    session.group_state = lambda name: next(states)  # type: ignore[method-assign]
    g.destruct()


def test_the_view_is_of_now(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME, THIRD]) as g:
        session.states["g"] = session.states["g"].replace(members=(ME, THIRD), epoch=2, leader=THIRD)
        assert (g.rank, g.members, g.membership.epoch, g.membership.leader) == (0, (ME, THIRD), 2, THIRD)


def test_a_fence_goes_on_without_members_where_the_group_was_formed_so(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME], ft=True) as g:
        g.fence()
        g.fence(ft=False)
    with me.group("h", [PEER, ME]) as h:
        h.fence(ft=True)
    wants = [[(info.key, info.value.data) for info in op.directives] for op in session.asked(Fence)]
    # The server knows that the group is fault tolerant, and has to be told otherwise.
    assert wants == [[("pmix.grp.ftcoll", each)] for each in (True, False, True)]


def test_a_group_in_a_fence_of_the_client_is_its_name(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME]) as g:
        me.fence(g)
    assert session.asked(Fence)[0].procs == (Proc("g", Rank.WILDCARD),)


async def test_a_cancelled_construct_is_taken_back(session: Groups) -> None:
    session.slow = (GroupConstruct,)
    async with aio.Client() as me:
        with anyio.move_on_after(0.01):
            await me.group("g", [PEER, ME]).construct()
        session.end(GroupConstruct, GroupResults((PEER, ME)))
        await until(lambda: session.asked(GroupLeave))


async def test_a_cancelled_block_leaves(session: Groups) -> None:
    async with aio.Client() as me:
        with anyio.move_on_after(0.01):
            async with me.group("g", [PEER, ME]):
                await anyio.sleep(60)
        assert [type(op) for op in session.ops] == [GroupConstruct, GroupLeave]


# Changes


def test_changes_are_objects_of_classes(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME, THIRD]) as g, g.changes() as changes:
        session.tell("left", "g", PEER, members=(ME, THIRD), epoch=2)
        session.tell("member failed", "g", THIRD, members=(ME,), epoch=3)
        session.tell("joined", "g", PEER, members=(ME, PEER), epoch=4)
        session.tell("leader failed", "g", PEER, members=(ME,), epoch=5)
        session.tell("leader selected", "g", ME, leader=ME, term=2)
        session.tell("leader selected", "g", leader=None, term=3)
        session.tell("destructed", "g")
        session.over("g")
        seen = list(changes)
        del session.states["g"]
    kinds = [Left, MemberFailed, Joined, LeaderFailed, LeaderSelected, LeaderSelected, Destructed]
    assert [type(change) for change in seen] == kinds
    match seen[0]:
        case Left(proc=proc, epoch=2, members=members):
            assert (proc, members) == (PEER, (ME, THIRD))
        case _:
            pytest.fail("no match")
    assert [change.left for change in seen[:4]] == [{PEER}, {THIRD}, set(), {PEER}]
    assert [change.joined for change in seen[:4]] == [set(), set(), {PEER}, set()]
    assert (seen[4].leader, seen[4].proc, seen[5].proc) == (ME, ME, None)
    assert not session.asked(GroupUnwatch)


def test_a_stream_of_changes_opens_itself_and_is_bounded(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME]) as g:
        changes = g.changes(buffer=2)
        with pytest.raises(OperationTimeout):
            changes.next(timeout=0.01)
        for epoch in (2, 3, 4):
            session.tell("left", "g", PEER, epoch=epoch)
        assert [changes.get(timeout=1).epoch, changes.next(timeout=1).epoch] == [3, 4]
        assert changes.dropped == 1
        changes.close()
    assert len(session.asked(GroupUnwatch)) == 1


def test_a_reader_says_what_it_knows(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME, THIRD]) as g, g.changes(since=2) as changes:
        assert session.watches["g"].past
        session.tell("leader selected", "g", ME, leader=ME, term=1)
        session.tell("left", "g", PEER, members=(ME, THIRD), epoch=2)
        session.tell("leader selected", "g", ME, leader=ME, term=2)
        session.tell("left", "g", THIRD, members=(ME,), epoch=3)
        assert [type(changes.get(1)) for _ in range(2)] == [LeaderSelected, Left]
        assert repr(g) == "<Group g of 1>"
    with pytest.raises(TypeError, match="epoch"):
        g.changes(since="2")  # type: ignore[arg-type]


async def test_changes_are_awaited(session: Groups) -> None:
    async with aio.Client() as me, me.group("g", [PEER, ME]) as g:
        changes = g.changes()

        async def happen() -> None:
            await until(lambda: session.watches)
            session.tell("left", "g", PEER, members=(ME,), epoch=2)
            session.over("g")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(happen)
            seen = [change.members async for change in changes]
        assert seen == [(ME,)]


# Invitations of one's own


async def test_a_leader_decides_by_the_answers(session: Groups) -> None:
    """The snippet of the design, with the answers of a fake."""

    async def pick_spare(reason: str) -> Proc:
        assert reason == "out of memory"
        return THIRD

    async def leader(me: aio.Client) -> aio.Group:
        async with me.invite("acme.team", [PEER, Proc("job", 3)], timeout=10) as inv:
            session.answered("accepted", Proc("job", 3))
            session.answered("declined", PEER, "out of memory")
            assert (inv.missing, inv.waiting, inv.accepted) == (1, (), (Proc("job", 3),))
            async for answer in inv.answers():
                match answer:
                    case pypmix.groups.Declined(proc=p, reason=r) if inv.missing < 2:
                        await inv.replace(p, with_=await pick_spare(r))
                        session.answered("failed", THIRD)
                    case pypmix.groups.Declined() | pypmix.groups.Failed():
                        inv.drop(answer.proc)
            assert (inv.missing, inv.procs) == (0, (Proc("job", 3),))
            session.slow = (GroupInviteControl,)

            async def complete() -> None:
                await until(lambda: session.under_way[1:])
                session.end(GroupInviteControl)
                session.end(GroupInvite, session.form("acme.team", ME, Proc("job", 3)))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(complete)
                return await inv.complete()

    async with aio.Client() as me:
        group = await leader(me)
        assert group.members == (ME, Proc("job", 3)) and group.rank == 0
        invite, *controls = [op for op in session.ops if isinstance(op, GroupInvite | GroupInviteControl)]
        assert invite.replace(answers=None) == GroupInvite(
            "acme.team", (PEER, Proc("job", 3)), (attrs.TIMEOUT(10),), None
        )
        assert controls == [
            GroupInviteControl("acme.team", drop=(PEER,), invite=(THIRD,)),
            GroupInviteControl("acme.team", drop=(THIRD,)),
            GroupInviteControl("acme.team", complete=True),
        ]
        async with group:
            pass
        assert session.asked(GroupDestruct) == [GroupDestruct("acme.team", (attrs.TIMEOUT(10),))]
        with pytest.raises(NotInitialized, match="invite its members again"):
            await group.construct()


def test_answers_are_waited_for(me: Client, session: Groups) -> None:
    with pytest.raises(KeyError), me.invite("g", me.job.procs) as inv:
        assert inv.waiting == (PEER, THIRD)
        threading.Timer(0.02, session.answered, ["accepted", PEER]).start()
        threading.Timer(0.05, inv.drop, [THIRD]).start()
        assert list(inv.answers()) == [Accepted(PEER)]
        # Who was dropped, was never invited, or says the same twice is not heard.
        for proc in (THIRD, Proc("job", 9), PEER):
            session.answered("accepted", proc)
        assert list(inv.answers()) == []
        session.answered("failed", PEER)
        assert (list(inv.answers()), inv.missing) == ([Failed(PEER)], 1)
        with pytest.raises(ValueError, match="is not invited"):
            inv.drop(THIRD)
        with pytest.raises(ValueError, match="invited already"):
            inv.replace(PEER, with_=PEER)
        raise KeyError
    assert session.asked(GroupInviteControl)[-1].abort


def test_leaving_the_block_gives_the_group_up(me: Client, session: Groups) -> None:
    with me.invite("g", [PEER]) as inv:
        pass
    assert session.asked(GroupInviteControl) == [GroupInviteControl("g", abort=True)]
    with pytest.raises(ConstructAborted):
        inv.complete()
    inv.abort()
    assert len(session.asked(GroupInviteControl)) == 2


def test_a_group_that_stands_after_all_is_left(me: Client, session: Groups) -> None:
    """The abort comes too late."""
    with me.invite("g", [PEER]):
        session.end(GroupInvite, session.form("g", ME, PEER))
    assert session.asked(GroupLeave) == [GroupLeave("g")]


def test_answers_end_with_the_invitation(me: Client, session: Groups) -> None:
    with pytest.raises(ConstructAborted), me.invite("g", [PEER]) as inv:
        threading.Timer(0.02, session.end, [GroupInvite, None, ConstructAborted("given up by job.0")]).start()
        list(inv.answers())
    assert not session.asked(GroupInviteControl)


def test_mistakes_of_an_invitation(me: Client, session: Groups) -> None:
    for procs, error in ((None, ValueError), ([], ValueError), (ME, ValueError), ("job", TypeError)):
        with pytest.raises(error):
            me.invite("g", procs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="by rank"):
        me.invite("g", Proc("other", Rank.WILDCARD))
    with pytest.raises(NotInitialized, match="with"):
        me.invite("g", [PEER]).complete()
    assert not session.ops


async def test_plain_invite(session: Groups) -> None:
    async with aio.Client() as me:
        async with anyio.create_task_group() as tasks:

            async def form() -> None:
                await until(lambda: session.under_way)
                session.end(GroupInvite, session.form("g", ME, PEER))

            tasks.start_soon(form)
            group = await me.invite("g", [PEER], optional=True).form()
        assert session.asked(GroupInvite)[0].answers is None
        await group.leave()
        assert session.asked(GroupLeave) == [GroupLeave("g")]


# Invitations of others


def invitation(name: str = "acme.team", *infos: Any) -> Delivery:
    members = attrs.GROUP_MEMBERSHIP([PEER, ME, THIRD])
    return Delivery(INVITED, PEER, attrs.GROUP_ID(name), members, attrs.EVENT_CUSTOM_RANGE([ME]), *infos)


async def test_an_invited_proc_declines_and_accepts(session: Groups) -> None:
    """The snippet of the design, with the invitations of a fake."""
    busy = iter([True, False])

    async def worker(me: aio.Client) -> aio.Group | None:
        async for invitation in me.invitations():
            if next(busy):
                await invitation.decline("out of memory")
            else:
                return await invitation.accept(timeout=30)
        return None

    async with aio.Client() as me:
        async with anyio.create_task_group() as tasks:

            async def invite() -> None:
                await until(lambda: session.handlers)
                told = [session.raises(invitation("a", attrs.HOSTNAME("n0"))), session.raises(invitation("b"))]
                assert [delivery.answer for delivery in told] == [(-331, ())] * 2
                await until(lambda: session.under_way)
                session.end(GroupJoin, session.form("b", PEER, ME))

            tasks.start_soon(invite)
            group = await worker(me)
        assert group is not None and group.members == (PEER, ME)
        assert session.asked(GroupJoin) == [
            GroupJoin("a", PEER, False, (attrs.GROUP_MEMBERSHIP([PEER, ME, THIRD]),), "out of memory"),
            GroupJoin("b", PEER, True, (attrs.TIMEOUT(30), attrs.GROUP_MEMBERSHIP([PEER, ME, THIRD]))),
        ]


def test_an_invitation_says_what_it_is_to(me: Client, session: Groups) -> None:
    with me.invitations() as stream:
        session.raises(Delivery(INVITED, PEER))
        session.raises(invitation("g", attrs.GROUP_INFO([attrs.HOSTNAME("n0")])))
        found = stream.get(timeout=1)
    assert (found.group, found.leader, found.members) == ("g", PEER, (PEER, ME, THIRD))
    assert [info.key for info in found.infos] == ["pmix.grp.info"]


def test_what_comes_while_nobody_looks_is_kept_for_the_next_stream(me: Client, session: Groups) -> None:
    with me.invitations() as first, pytest.raises(OperationTimeout):
        first.get(timeout=0.01)
    session.raises(invitation("g"))
    with pytest.raises(NotInitialized, match="closed"):
        first.get(timeout=0)
    for found in me.invitations():
        assert found.group == "g"
        break
    assert len(session.asked(RegisterEventHandler)) == 1


def test_who_has_declined_cannot_accept(me: Client, session: Groups) -> None:
    stream = me.invitations()
    with pytest.raises(OperationTimeout):
        stream.get(timeout=0.01)
    session.raises(invitation())
    found = stream.get(timeout=1)
    found.decline()
    with pytest.raises(PMIxError, match="was declined"):
        found.accept()


async def test_who_gives_up_the_wait_is_no_member(session: Groups) -> None:
    async with aio.Client() as me, me.invitations() as stream:
        session.raises(invitation("g"))
        found = await stream.get(1)
        with anyio.move_on_after(0.01):
            await found.accept()
        session.end(GroupJoin, session.form("g", PEER, ME))
        assert session.asked(GroupLeave) == [GroupLeave("g")]


async def test_a_function_answers_by_itself(session: Groups) -> None:
    wanted = {"yes": True, "no": False, "unsure": None}

    async def decide(invitation: aio.Invitation) -> bool | None:
        await anyio.sleep(0)
        return wanted[invitation.group]

    async with aio.Client() as me, me.invitations(auto=decide) as stream:
        told = [session.raises(invitation(name)) for name in wanted]
        seen = [await stream.get(1), await stream.get(1)]
        await until(lambda: all(delivery.answer for delivery in told))
        assert {each.group for each in seen} == {"yes", "unsure"}
        assert [delivery.answer and delivery.answer[0] for delivery in told] == [-334, -334, -331]
        accepted = next(each for each in seen if each.group == "yes")
        with pytest.raises(PMIxError, match="was accepted"):
            await accepted.decline()
        with pytest.raises(OperationTimeout, match="not complete"):
            await accepted.accept(timeout=0.01)
        session.end(GroupJoin, session.form("yes", PEER, ME))
        assert session.asked(GroupLeave) == [GroupLeave("yes")]
        session.form("yes", PEER, ME)
        assert (await accepted.accept()).members == (PEER, ME)
    assert len(session.asked(DeregisterEventHandler)) == 1


def test_a_function_answers_by_itself_where_calls_block(me: Client, session: Groups) -> None:
    thread = []

    def decide(invitation: pypmix.groups.Invitation) -> bool:
        thread.append(threading.current_thread())
        return True

    with me.invitations(auto=decide) as stream:
        session.raises(invitation("g"))
        found = stream.get(timeout=5)
        session.end(GroupJoin, session.form("g", PEER, ME))
        assert found.accept().name == "g"
    assert thread != [threading.current_thread()]


@pytest.mark.filterwarnings("ignore:pypmix.Client.group_join is now:DeprecationWarning")
def test_join_by_hand(me: Client, session: Groups) -> None:
    assert me.group_join("g", PEER, False, reason="no") is None
    session.end_once_asked(GroupJoin, PEER, ME)
    assert me.group_join("g", PEER, timeout=5).size == 2
    with pytest.raises(ValueError, match="not joining"):
        me.group_join("g", PEER, reason="no")


def test_a_request_to_join(me: Client, session: Groups) -> None:
    session.end_once_asked(GroupEnter, PEER, ME)
    assert admission.enter(me, "g", PEER, timeout=5).members == (PEER, ME)
    me.raw.group_leave("g", info=[attrs.GROUP_INFO([attrs.HOSTNAME("n0")])])
    assert session.asked(GroupLeave) == [GroupLeave("g", (attrs.GROUP_INFO([attrs.HOSTNAME("n0")]),))]


# Leadership


def leader_failed(proc: Proc, group: str = "g") -> Delivery:
    return Delivery(LEADER_FAILED, ME, attrs.GROUP_ID(group), attrs.EVENT_AFFECTED_PROC(proc))


async def test_terms_follow_each_other(session: Groups) -> None:
    session.leader = PEER
    log: list[str] = []

    async def happen() -> None:
        await until(lambda: session.handlers and log)
        failed = session.raises(leader_failed(PEER))
        assert failed.answer is not None
        assert (failed.answer[0], failed.answer[1][0]) == (-334, attrs.GROUP_LEADER(True))
        await until(lambda: log[-1] == "over 1")
        session.tell("leader selected", "g", ME, members=(ME, THIRD), epoch=2, leader=ME, term=2)
        await until(lambda: log[-1] == "lead 2")
        session.over("g")

    async with aio.Client() as me, me.group("g", [PEER, ME, THIRD]) as g, anyio.create_task_group() as tasks:
        tasks.start_soon(happen)
        async with Leadership(g, elect=lambda alive: min(alive)) as lead:
            async for term in lead.terms():
                async with term.scope() as scope:
                    log.append(f"{'lead' if term.leader == me.proc else 'obey'} {term.epoch}")
                    await anyio.sleep(60)
                log.append(f"over {term.epoch}")
                assert scope.cancelled and term.over()
    assert log == ["obey 1", "over 1", "lead 2", "over 2"]


async def test_the_answer_is_kept_back_until_somebody_is_chosen(session: Groups) -> None:
    session.leader = PEER
    async with aio.Client() as me, me.group("g", [PEER, ME, THIRD]) as g:
        async with Leadership(g, elect=max):
            session.raises(other := leader_failed(PEER, "other"))
            assert other.answer == (-331, ())
            failed = session.raises(leader_failed(PEER))
            assert failed.answer is None
            # The one who was to lead has ended as well.
            session.tell("member failed", "g", THIRD, members=(ME,), epoch=3)
            assert failed.answer is not None and failed.answer[0] == -334
        session.states["g"] = session.states["g"].replace(members=(PEER, ME, THIRD))
        async with Leadership(g, elect=max):
            failed = session.raises(leader_failed(PEER))
            session.tell("leader selected", "g", THIRD, leader=THIRD, term=2)
            assert failed.answer == (-331, ())
        async with Leadership(g, elect=min, patience=0.01):
            failed = session.raises(leader_failed(THIRD))
            assert failed.answer is None
            await until(lambda: failed.answer)
            assert failed.answer == (-331, ())


async def test_nobody_leads(session: Groups) -> None:
    session.leader = PEER
    async with aio.Client() as me, me.group("g", [PEER, ME]) as g, Leadership(g) as lead:
        assert (await lead.get(1)).leader == PEER
        session.tell("leader failed", "g", PEER, members=(ME,), leader=None)
        assert lead.term is None
        session.tell("leader selected", "g", leader=None, term=2)
        with pytest.raises(PMIxError, match="no member has claimed") as caught:
            await lead.get(1)
        assert caught.value.code == LEADER_FAILED


async def test_a_leader_that_leaves_has_a_successor(session: Groups) -> None:
    session.leader = PEER
    async with aio.Client() as me, me.group("g", [PEER, ME, THIRD]) as g, Leadership(g) as lead:
        term = await lead.get(1)
        assert session.watches["g"].elects
        session.tell("left", "g", THIRD, members=(PEER, ME), epoch=2)
        assert not term.over()
        session.tell("left", "g", PEER, members=(ME,), leader=None, epoch=3)
        assert term.over() and lead.term is None
        delivery = session.raises(leader_failed(PEER))
        assert delivery.answer is not None and talk.found(delivery.answer[1], "pmix.grp.ldr", bool)
        session.tell("leader selected", "g", ME, leader=ME, term=2)
        assert (await lead.get(1)).leader == ME
        # Who comes back may lead again.
        session.tell("joined", "g", PEER, members=(ME, PEER), epoch=4)
        session.tell("leader selected", "g", PEER, leader=PEER, term=3)
        assert (await lead.get(1)).leader == PEER


async def test_a_leader_may_leave(session: Groups) -> None:
    session.leader = ME
    async with aio.Client() as me, me.group("g", [PEER, ME]) as g, Leadership(g) as lead:
        assert (await lead.get(1)).leader == ME
        session.tell("left", "g", ME, members=(PEER,), leader=None, epoch=2)
        session.over("g")
        assert [term async for term in lead.terms()] == []


async def test_elect_that_fails_is_no_vote(session: Groups, caplog: pytest.LogCaptureFixture) -> None:
    session.leader = PEER

    def elect(alive: Any) -> Proc:
        raise KeyError("mine")

    async with aio.Client() as me, me.group("g", [PEER, ME]) as g, Leadership(g, elect):
        assert session.raises(leader_failed(PEER)).answer == (-331, ())
    assert "elect failed" in caplog.text


def test_leadership_where_calls_block(me: Client, session: Groups) -> None:
    session.leader = PEER
    threads = []

    def elect(alive: Any) -> Proc:
        threads.append(threading.current_thread())
        return min(alive)

    with me.group("g", [PEER, ME, THIRD]) as g, Leadership(g, elect) as lead:
        first = lead.get(timeout=5)
        assert (first.epoch, first.leader, first.over()) == (1, PEER, False)
        failed = session.raises(leader_failed(PEER))
        assert first.over.wait(5)
        assert lead.term is None
        session.tell("leader selected", "g", ME, members=(ME, THIRD), leader=ME, term=2)
        terms = lead.terms()
        second = next(terms)
        assert (second.epoch, second.leader) == (2, ME)
        assert failed.answer is not None and failed.answer[0] == -334
        session.over("g")
        assert list(terms) == []
        assert second.over()
    assert threads[0] is not threading.current_thread()
    for thread in threading.enumerate():
        if thread.name == "pypmix-leadership-g":
            thread.join(5)
            assert not thread.is_alive()


def test_patience_where_calls_block(me: Client, session: Groups) -> None:
    session.leader = PEER
    with me.group("g", [PEER, ME, THIRD]) as g, Leadership(g, max, patience=0.02) as lead:
        failed = session.raises(leader_failed(PEER))
        assert lead.get(1).over.wait(5)
        deadline = threading.Event()
        for _ in range(200):
            if failed.answer is not None or deadline.wait(0.01):
                break
        assert failed.answer == (-331, ())


def test_there_must_be_a_leader_to_follow(me: Client, session: Groups) -> None:
    with me.group("g", [PEER, ME]) as g:
        with pytest.raises(ValueError, match="leader="):
            Leadership(g)
        session.leader = PEER
        session.form("g", PEER, ME)
        with pytest.raises(TypeError):
            Leadership(g, elect=3)  # type: ignore[call-overload]
        with pytest.raises(ValueError):
            Leadership(g, patience=0)
    with pytest.raises(NotInitialized):
        Leadership(g)


# Answers of handlers


def test_answers_about_groups() -> None:
    from pypmix import Event

    event = Event(leader_failed(PEER).notification)
    assert event.lead().status == -334
    assert event.lead({"a": 1}).results[0] == attrs.GROUP_LEADER(True)
    assert event.abort().status == EventCode.GROUP_CONSTRUCT_ABORT
    refused = event.refuse("full")
    assert (refused.status, refused.results[0].value.data) == (Status.ERR_NO_PERMISSIONS, "full")


def test_nothing_is_asked_at_the_end(session: Groups) -> None:
    with Client() as me, me.invitations() as stream:
        assert len(stream) == 0
    assert type(session.ops[-1]) is Finalize
    assert isinstance(Declined(ME, "x"), pypmix.groups.InviteAnswer)


@pytest.mark.parametrize(
    ("feature", "releases"),
    [
        ("group.construct", [True, True, True, True]),
        ("group.invite", [True, True, True, True]),
        ("group.bootstrap", [False, True, True, True]),
        ("group.order", [False, False, True, True]),
        ("group.optional", [False, False, False, True]),
        ("get.group_names", [False, False, False, True]),
        ("group.nonsense", [False, False, False, False]),
    ],
)
def test_what_works_with_which_server(feature: str, releases: list[bool]) -> None:
    servers = [((5, 0, 11), False), ((6, 0, 0), False), ((7, 0, 0), False), ((7, 0, 0), True)]
    assert [works(feature, release, adapts) for release, adapts in servers] == releases


class Names(FakeSession):
    """A session of a library that keeps what it was told once; its server answers queries."""

    def __init__(self, groups: dict[str, tuple[Proc, ...]], own: dict[str, tuple[Proc, ...]], fresh: bool) -> None:
        super().__init__()
        self.groups, self.own, self.fresh = groups, own, fresh
        for proc, names in ((ME, list(own) or ["old"]), (PEER, ["old"])):
            self.data[proc, "pmix.pgrp.nm"] = Value(codes.DATA_ARRAY, DataArray(codes.STRING, tuple(names)))

    def group_state(self, name: str) -> GroupState | None:
        return GroupState(name, self.own[name]) if name in self.own else None

    def supports(self, feature: str) -> bool:
        return self.fresh and feature == "get.group_names"

    def _outcome(self, op: Any) -> tuple[Any, BaseException | None]:
        if type(op) is not QueryInfo:
            return super()._outcome(op)
        (key,), qualifiers = op.queries[0].keys, op.queries[0].qualifiers
        assert [info.value.data for info in qualifiers if info.key == "pmix.qry.rfsh"] == [True]
        if key == "pmix.qry.pgrp":
            if not self.groups:
                return None, NotSupported("no queries")
            return (Info(key, Value(codes.STRING, ",".join([*self.groups, "gone"]))),), None
        name = qualifiers[0].value.data
        if name not in self.groups:
            return None, NotFound("no such group")
        return (Info(key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, self.groups[name]))),), None


def test_the_names_of_groups_are_asked_for_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(**groups: Any) -> tuple[Client, Names]:
        session = Names(groups.get("there", {}), groups.get("own", {}), groups.get("fresh", False))
        monkeypatch.setattr(client_module, "open_client", lambda *_: session)
        me = Client()
        me.__enter__()
        return me, session

    me, _ = opened(there={"old": (THIRD,), "g": (PEER, ME), "h": (PEER,)}, own={"g": (ME, THIRD), "k": (ME, PEER)})
    assert list(me.get("pmix.pgrp.nm", PEER)) == ["k", "h"]
    assert list(me.get("pmix.pgrp.nm")) == ["g", "k"]
    me, _ = opened()
    with pytest.raises(NotFound, match="in no group"):
        me.get("pmix.pgrp.nm", PEER)
    assert me.get("pmix.pgrp.nm", PEER, default=None) is None
    assert list(me.get("pmix.pgrp.nm", PEER, optional=True)) == ["old"]
    me, session = opened(fresh=True)
    assert list(me.get("pmix.pgrp.nm", PEER)) == ["old"]
    assert [type(op) for op in session.ops] == [Get]


def test_a_group_that_is_entered_by_its_former_member_is_the_same(me: Client, session: Groups) -> None:
    session.end_once_asked(GroupEnter, PEER, ME)
    group: Any = me.group("g")
    with pytest.warns(DeprecationWarning, match=r"Group.enter is now `pypmix.recipes.admission.enter\(me, name, by\)`"):
        assert group.enter(PEER, timeout=5) is group
    assert group.members == (PEER, ME) and group.membership.is_open
    session.refuses[GroupAdmit] = PMIxError("no")
    with pytest.raises(PMIxError, match="no"), pytest.warns(DeprecationWarning, match="Group.admit is now"):
        group.admit(THIRD)
