"""A crossing answers what one server cannot answer alone, out of what all servers give it."""

from __future__ import annotations

import pytest

from lib.exchange_session import Session
from lib.exchange_world import (
    ABORT,
    ALL,
    BAD_PARAM,
    EXISTS,
    JOB,
    PARTIAL,
    PLACES,
    UNREACH,
    Asked,
    Server,
    World,
    fence,
    partial,
)
from pypmix.engine.groups import talk
from pypmix.engine.times import GET_SECONDS
from pypmix.host.exchange import Crossing, Exchange, Hub, deciding, statelog
from pypmix.host.exchange import crossing as module
from pypmix.host.exchange.codec import JOB as JOBS
from pypmix.host.exchange.codec import PLACES as TOLD
from pypmix.host.exchange.localserver import DIRECT_MODEX
from pypmix.standard import attrs, codes
from pypmix.standard.errors import NotFound, NotInitialized, OperationTimeout, PMIxError, RemoteProtocolError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import (
    Connect,
    DirectModex,
    Disconnect,
    FenceUpcall,
    GroupUpcall,
    Log,
    Lookup,
    Notification,
    NotifyEvent,
    Publish,
    Spawn,
    Unpublish,
)
from pypmix.standard.ops.hosting import GROUP_ABSENT
from pypmix.standard.types import RANK_LOCAL_NODE, RANK_WILDCARD, App, Info, Pdata, Proc, Value

pytestmark = pytest.mark.timeout(30)

RM, LOCAL, NAMESPACE, SESSION, GLOBAL, CUSTOM, PROC_LOCAL = range(1, 8)
CONSTRUCT, DESTRUCT, NONE, CANCEL = range(4)


@pytest.fixture
def world():
    return World()


def test_a_fence_brings_the_data_of_all_in_the_order_of_servers(world):
    assert world.all_ask(fence, "cab") == [b"<a><b><c>"] * 3


def test_a_fence_is_known_by_its_members_however_they_are_named(world):
    named = {"a": ALL, "b": tuple(Proc("job", rank) for rank in (3, 1, 0, 2)), "c": (Proc("job", 3), *ALL)}
    assert world.all_ask(lambda name: fence(name, named[name])) == [b"<a><b><c>"] * 3
    asked = world.ask("a", fence("a", (Proc("job", 0), Proc("job", 3))))
    world.all_ask(lambda name: fence(name, (Proc("job", 0), Proc("job", 1))), "ab")
    assert not asked.ends
    world.all_ask(lambda name: fence(name, (Proc("job", 3), Proc("job", 0))), "c")
    assert asked.end == b"<a><c>"


def test_a_partial_part_makes_all_partial(world):
    ends = world.all_ask(lambda name: fence(name, ALL, *(partial() if name == "b" else ())))
    assert [end.code for end in ends] == [PARTIAL] * 3
    assert "server b" in str(ends[0])
    worse = Info(attrs.LOCAL_COLLECTIVE_STATUS.key, Value(codes.STATUS, -31))
    ends = world.all_ask(lambda name: fence(name, ALL, *(partial() if name == "b" else (worse,))))
    assert [end.code for end in ends] == [-31] * 3


def test_a_timeout_names_the_procs_that_are_missing(world):
    first = world.ask("a", fence("a", ALL, attrs.TIMEOUT(3)))
    other = world.ask("c", fence("c"))
    world.hub.run(world.hub.clock.now + 1)
    (pending,) = world.crossings["a"].pending()
    assert (pending.operation, pending.missing) == ("fence", (Proc("job", 1), Proc("job", 2)))
    assert pending.arrived == (Proc("job", 0), Proc("job", 3))
    world.crossings["b"].departed(Proc("job", 2))
    world.hub.run()
    for asked in (first, other):
        assert isinstance(asked.end, OperationTimeout)
        assert asked.end.missing == {Proc("job", 1)}
        assert asked.end.operation == "fence"
        assert "server b" in str(asked.end)
    assert not world.crossings["a"].pending()


@pytest.mark.parametrize("when", ["before", "after", "unheard"])
def test_servers_whose_members_have_gone_are_not_waited_for(world, when):
    def depart():
        for rank in (1, 2):
            world.crossings["b"].departed(Proc("job", rank))

    if when == "before":
        depart()
        world.hub.run()
    asked = [world.ask(name, fence(name)) for name in "ac"]
    if when != "unheard":
        world.hub.run()
    assert [bool(each.ends) for each in asked] == [when == "before"] * 2
    if when != "before":
        depart()
    world.hub.run()
    assert [each.end.code for each in asked] == [PARTIAL] * 2
    assert [each.end.missing for each in asked] == [{Proc("job", 1), Proc("job", 2)}] * 2
    assert world.all_ask(fence, "b")[0].code == PARTIAL
    # What is taken apart is so without them as well; a group only if that is wanted, or nobody names them.
    gone = (Proc("job", 1), Proc("job", 2))
    for (info,) in world.all_ask(Disconnect(ALL), "ac"):
        assert (info.key, info.value.data.items) == (GROUP_ABSENT, gone)
    for end in world.all_ask(GroupUpcall(DESTRUCT, "g", ALL), "ac"):
        assert (end.code, end.missing) == (PARTIAL, set(gone))
    noted = (attrs.GROUP_NOTIFY_TERMINATION(True),)
    for (info,) in world.all_ask(GroupUpcall(DESTRUCT, "g", ALL, noted), "ac"):
        assert (info.key, info.value.data.items) == (GROUP_ABSENT, gone)
    assert world.all_ask(GroupUpcall(DESTRUCT, "g", (Proc("job", 0), Proc("job", 3))), "ac") == [(), ()]
    assert [end.code for end in world.all_ask(GroupUpcall(CONSTRUCT, "g", ALL), "ac")] == [ABORT] * 2
    assert [end.code for end in world.all_ask(Connect(ALL), "ac")] == [PARTIAL] * 2
    assert world.all_ask(Disconnect(ALL), "b") == [None]
    assert world.all_ask(GroupUpcall(DESTRUCT, "g", ALL), "b")[0].code == PARTIAL


@pytest.mark.parametrize("when", ["before", "after"])
def test_those_who_have_finalized_are_not_waited_for(world, when):
    def finalize():
        for rank in (1, 2):
            world.crossings["b"].finalized(Proc("job", rank))
        world.hub.run()

    for rank in (1, 2):
        world.crossings["b"].connected(Proc("job", rank))
    if when == "before":
        finalize()
    asked = [world.ask(name, fence(name)) for name in "ac"]
    world.hub.run()
    assert [bool(each.ends) for each in asked] == [when == "before"] * 2
    finalize()
    assert [each.end.code for each in asked] == [PARTIAL] * 2
    assert [each.end.missing for each in asked] == [{Proc("job", 1), Proc("job", 2)}] * 2
    # They come back, and take part again.
    for rank in (1, 2):
        world.crossings["b"].connected(Proc("job", rank))
    world.hub.run()
    assert world.all_ask(fence) == [b"<a><b><c>"] * 3


def test_one_that_goes_on_is_waited_for(world):
    for _ in range(2):
        world.crossings["b"].connected(Proc("job", 1))
    world.crossings["b"].connected(Proc("job", 2))
    asked = [world.ask(name, fence(name)) for name in "ac"]
    # A child of rank 1 has finalized, not itself.
    for rank in (1, 2):
        world.crossings["b"].finalized(Proc("job", rank))
    world.hub.run()
    assert not asked[0].ends
    world.crossings["b"].finalized(Proc("job", 1))
    world.hub.run()
    assert asked[0].end.code == PARTIAL


def test_who_has_opened_again_waits_for_those_who_are_about_to(world):
    everyone = [("a", 0), ("b", 1), ("b", 2), ("c", 3)]
    for name, rank in everyone:
        world.crossings[name].connected(Proc("job", rank))
    for name, rank in everyone[:1] + everyone[3:]:
        world.crossings[name].finalized(Proc("job", rank))
        world.crossings[name].connected(Proc("job", rank))
    asked = [world.ask(name, fence(name)) for name in "ac"]
    for _, rank in everyone[1:3]:
        world.crossings["b"].finalized(Proc("job", rank))
    world.hub.run()
    assert not asked[0].ends
    for _, rank in everyone[1:3]:
        world.crossings["b"].connected(Proc("job", rank))
    assert world.all_ask(fence, "b") == [b"<a><b><c>"]
    again = world.ask("c", fence("c"))
    for name, rank in everyone[:3]:
        world.crossings[name].finalized(Proc("job", rank))
    world.hub.run()
    assert again.end.code == PARTIAL


def test_one_that_was_lost_and_is_back_is_waited_for(world):
    for rank in (1, 2):
        world.crossings["b"].departed(Proc("job", rank))
        world.crossings["b"].connected(Proc("job", rank))
    assert world.all_ask(fence) == [b"<a><b><c>"] * 3


@pytest.mark.parametrize("lost", "abc")
def test_all_name_the_procs_of_the_lost_server_alone(world, lost):
    """Those who have ended since may have been answered, as the others cannot know."""
    where = {"a": {0}, "b": {1, 2}, "c": {3}}
    first, last = (name for name in "abc" if name != lost)
    ended = world.ask(first, fence(first))
    world.hub.run(world.hub.clock.now + 1)
    world.hub.lose(lost)
    world.hub.run()
    for rank in where[first]:
        world.crossings[first].finalized(Proc("job", rank))
    world.hub.run()
    late = world.ask(last, fence(last))
    world.hub.run()
    for each in (ended, late):
        assert each.end.code == PARTIAL and {proc.rank for proc in each.end.missing} == where[lost]


def test_a_contribution_of_one_that_has_gone_since_counts(world):
    asked = world.ask("b", fence("b", (Proc("job", 0), Proc("job", 1))))
    world.crossings["b"].departed(Proc("job", 1))
    assert world.all_ask(lambda name: fence(name, (Proc("job", 0), Proc("job", 1))), "a") == [b"<a><b>"]
    assert asked.end == b"<a><b>"


def test_procs_that_are_lost_with_their_server_have_aborted(world):
    world.crossings["b"].finalized(Proc("job", 1))
    world.hub.run()
    for server in world.servers.values():
        server.heard.clear()
    world.hub.lose("b")
    world.hub.run()
    for name in "ac":
        heard = world.servers[name].heard
        assert [(event.code, event.range) for event in heard] == [(-7, SESSION), (-111, SESSION), (-201, SESSION)]
        for event in heard:
            # Proc 1 has finalized, and its host need not be there for its end.
            assert attrs.EVENT_AFFECTED_PROC(Proc("job", 2)) in event.infos
            assert attrs.EVENT_NON_DEFAULT(True) in event.infos
        assert [attrs.EVENT_DO_NOT_CACHE(True) in event.infos for event in heard] == [False, True, True]
    world.hub.lose("c")
    world.hub.run()
    assert len(world.servers["a"].heard) == 6


def test_a_loss_is_taken_in_by_a_crossing_whose_server_has_closed(world):
    def closed(event):
        raise NotInitialized("the server is closed", operation="notify")

    world.servers["a"].notify = closed
    world.crossings["b"].register(JobInfo("other"), {0: "b"})
    world.hub.run()
    world.hub.lose("b")
    world.hub.run()
    assert [world.crossings["a"]._places.tellers_of(name) for name in ("job", "other")] == [["a", "c"], []]
    assert world.crossings["a"]._places.has_departed(Proc("job", 2))


def test_a_server_that_is_lost_has_nobody_any_more(world):
    construct = GroupUpcall(CONSTRUCT, "g", ALL)
    asked = [world.ask("a", op) for op in (fence("a"), Connect(ALL), Disconnect(ALL), construct)]
    modex = world.ask("a", DirectModex(Proc("job", 3)))
    world.hub.run(world.hub.clock.now + 1)
    world.hub.lose("c")
    world.hub.run()
    assert not asked[-1].ends and not asked[1].ends
    assert world.all_ask(construct, "b")[0].code == ABORT
    assert world.all_ask(Connect(ALL), "b")[0].code == PARTIAL
    assert [getattr(each.end, "code", None) for each in asked] == [PARTIAL, PARTIAL, None, ABORT]
    assert asked[-1].end.missing == {Proc("job", 3)}
    assert "server c has gone" in str(asked[0].end)
    assert asked[0].end.missing == {Proc("job", 3)}
    assert modex.end.code == UNREACH
    assert [end.code for end in world.all_ask(fence, "ab")] == [PARTIAL] * 2


def test_members_hear_of_who_is_missing_while_their_group_is_still_there(world):
    members = tuple(Proc("job", rank) for rank in range(4))
    for server in world.servers.values():
        server.groups = lambda: (("g", members), ("h", members))
    noted = (attrs.GROUP_NOTIFY_TERMINATION(True),)
    # The end of this proc is not known to the host of its server yet.
    absent = deciding.named(GROUP_ABSENT, [Proc("job", 2)])
    asked, heard = {}, {}
    for name in "abc":
        asked[name] = Asked(GroupUpcall(DESTRUCT, "g", ALL, (*partial(absent), *noted) if name == "b" else noted))
        asked[name].reply = lambda _, name=name: heard.update({name: list(world.servers[name].heard)})
        world.crossings[name].answer(asked[name])
    world.hub.run()
    told = (talk.text(talk.SAYS, talk.GONE), attrs.GROUP_ID("g"), attrs.EVENT_AFFECTED_PROC(Proc("job", 2)))
    assert {name: [event.infos[:3] for event in events] for name, events in heard.items()} == {
        "a": [told],
        "b": [],
        "c": [told],
    }


def group_result(end):
    found = {}
    for info in end:
        found.setdefault(info.key, []).append(info.value.data)
    return found


def test_a_group_has_one_membership_and_one_context_id(world):
    members = (Proc("job", 3), Proc("job", 0), Proc("job", 1))
    told = {name: attrs.GROUP_INFO((attrs.HOSTNAME(name),)) for name in "abc"}

    def construct(name):
        infos = (told[name], attrs.TIMEOUT(60), told[name])
        wanted = (attrs.GROUP_ASSIGN_CONTEXT_ID(True),) if name == "c" else ()
        return GroupUpcall(CONSTRUCT, "g", members, (*infos, *wanted))

    ends = world.all_ask(construct)
    assert ends[0] == ends[1] == ends[2]
    found = group_result(ends[0])
    assert found[attrs.GROUP_MEMBERSHIP.key][0].items == members
    assert [info for info in ends[0] if info.key == attrs.GROUP_INFO.key] == list(told.values())
    (first,) = found[attrs.GROUP_CONTEXT_ID.key]
    again = world.all_ask(construct)
    (second,) = group_result(again[0])[attrs.GROUP_CONTEXT_ID.key]
    assert first != second
    assert 2**32 < first < 2**63
    # They are numbers of the first server's.
    assert second == first + 1
    ends = world.all_ask(GroupUpcall(CONSTRUCT, "h", ALL))
    assert list(group_result(ends[0])) == [attrs.GROUP_MEMBERSHIP.key]
    assert group_result(ends[0])[attrs.GROUP_MEMBERSHIP.key][0].items == tuple(Proc("job", rank) for rank in range(4))


def test_context_ids_of_different_first_servers_differ(world):
    wanted = (attrs.GROUP_ASSIGN_CONTEXT_ID(True),)
    found = set()
    for procs, names in (((0, 1), "ab"), ((1, 3), "bc"), ((3,), "c"), ((0, 3), "ac")):
        op = GroupUpcall(CONSTRUCT, "g", tuple(Proc("job", rank) for rank in procs), wanted)
        found |= {group_result(end)[attrs.GROUP_CONTEXT_ID.key][0] for end in world.all_ask(op, names)}
    assert len(found) == 4


def test_members_that_are_named_in_different_orders_are_sorted(world):
    orders = {"a": (0, 1, 3), "b": (1, 0, 3), "c": (0, 1, 3)}
    ends = world.all_ask(lambda name: GroupUpcall(CONSTRUCT, "g", tuple(Proc("job", rank) for rank in orders[name])))
    assert {group_result(end)[attrs.GROUP_MEMBERSHIP.key][0].items for end in ends} == {
        tuple(Proc("job", rank) for rank in (0, 1, 3))
    }


def test_a_server_gives_a_group_up_for_all(world):
    asked = [world.ask(name, GroupUpcall(CONSTRUCT, "g", ALL)) for name in "ac"]
    other = world.ask("c", GroupUpcall(CONSTRUCT, "h", ALL))
    world.hub.run()
    assert world.all_ask(GroupUpcall(CANCEL, "g"), "c") == [()]
    assert [each.end.code for each in asked] == [ABORT] * 2
    assert not other.ends
    assert world.all_ask(GroupUpcall(NONE, "g"), "c")[0].code == -47


def test_connect_brings_the_job_info_of_others(world):
    own = JobInfo("own", JOB.job, JOB.nodes, JOB.apps, JOB.sessions, JOB.procs)
    world.crossings["c"].register(own, {0: "c"})
    world.hub.run()
    both = (Proc("own", 0), Proc("job", 0))
    assert world.all_ask(Connect(both), "ac") == [None, None]
    assert world.servers["a"].jobs == {"own": own}
    assert not world.servers["b"].jobs and not world.servers["c"].jobs
    assert world.all_ask(Connect(both), "ac") == [None, None]
    assert world.all_ask(Disconnect(both), "ac") == [None, None]
    assert world.servers["a"].jobs == {"own": own}
    world.crossings["c"].deregister("own")
    world.hub.run()
    assert not world.servers["a"].jobs
    assert world.all_ask(Connect(both), "a")[0].missing == {Proc("own", 0)}
    assert world.all_ask(Connect((Proc("own", RANK_WILDCARD), *both)), "a")[0].missing >= {Proc("own", 0)}
    assert world.all_ask(Connect((Proc("none", 0), *both)), "a")[0].code == NotFound.default_status


def test_job_info_goes_with_its_last_server(world):
    world.crossings["c"].register(JobInfo("own"), {0: "c"})
    world.hub.run()
    world.all_ask(Connect((Proc("own", 0), Proc("job", 0))), "ac")
    world.hub.lose("c")
    world.hub.run()
    assert not world.servers["a"].jobs


@pytest.mark.parametrize(("error", "status"), [(PMIxError("there", status=EXISTS), None), (PMIxError("no"), -1)])
def test_job_info_that_cannot_be_registered_fails_the_connect(world, error, status):
    world.crossings["c"].register(JobInfo("own"), {0: "c"})
    world.hub.run()
    world.servers["a"].error = error
    ends = world.all_ask(Connect((Proc("own", 0), Proc("job", 0))), "ac")
    assert [getattr(end, "code", None) for end in ends] == [status, None]


def test_direct_modex_asks_the_server_of_the_proc(world):
    world.servers["b"].committed[Proc("job", 1)] = b"data"
    asked = [world.ask("a", DirectModex(Proc("job", rank))) for rank in (1, 2, 9)]
    world.hub.run(world.hub.clock.now + 1)
    assert asked[0].end == b"data"
    assert isinstance(asked[2].end, NotFound)
    ((proc, done),) = world.servers["b"].waiting
    assert proc == Proc("job", 2)
    done(None, NotFound("nothing", procs=(proc,)))
    done(b"twice", None)
    world.hub.run()
    assert isinstance(asked[1].end, NotFound)
    assert asked[1].end.operation == "direct_modex"


def test_direct_modex_tells_what_the_client_waits_for(world):
    world.ask("a", DirectModex(Proc("job", 1), (attrs.REQUIRED_KEY("acme.key"), attrs.TIMEOUT(3))))
    world.ask("a", DirectModex(Proc("job", 2)))
    world.hub.run()
    assert world.servers["b"].limits == [("acme.key", 3), ("", GET_SECONDS)]


def test_direct_modex_ends_in_time_and_with_its_proc(world):
    late = world.ask("a", DirectModex(Proc("job", 1), (attrs.TIMEOUT(3),)))
    usual = world.ask("a", DirectModex(Proc("job", 1)))
    gone = world.ask("a", DirectModex(Proc("job", 2), (attrs.TIMEOUT(60),)))
    began = world.hub.clock.now
    world.hub.run(began + 2.9)
    assert isinstance(usual.end, OperationTimeout)
    assert not late.ends
    world.hub.run(began + 4)
    assert isinstance(late.end, OperationTimeout)
    assert late.end.missing == {Proc("job", 1)}
    world.crossings["b"].departed(Proc("job", 2))
    world.hub.run(began + 7)
    assert isinstance(gone.end, NotFound)
    after = world.ask("c", DirectModex(Proc("job", 2)))
    world.hub.run()
    assert isinstance(after.end, NotFound)
    assert not world.crossings["b"]._modexes
    world.servers["b"].committed[Proc("job", 2)] = b"left behind"
    assert world.all_ask(DirectModex(Proc("job", 2)), "a") == [b"left behind"]


def test_a_server_that_refuses_a_direct_modex_answers_with_its_error(world):
    world.servers["b"].committed = None
    (end,) = world.all_ask(DirectModex(Proc("job", 1)), "a")
    assert "TypeError" in str(end)
    assert not world.crossings["b"]._modexes


@pytest.mark.parametrize(
    ("reach", "procs", "heard"),
    [
        (RM, None, ""), (LOCAL, None, ""), (PROC_LOCAL, None, ""), (SESSION, None, "ac"), (GLOBAL, None, "ac"),
        (NAMESPACE, None, "a"), (CUSTOM, [Proc("job", 3)], "c"), (CUSTOM, [Proc("job", 1)], ""),
        (CUSTOM, [Proc("job", RANK_WILDCARD)], "ac"), (CUSTOM, [Proc("unknown", 0)], "ac"),
    ],
)  # fmt: skip
def test_events_go_where_their_range_reaches(world, reach, procs, heard):
    world.crossings["b"].register(JobInfo("small"), {0: "a", 1: "b"})
    world.hub.run()
    source = Proc("small" if reach == NAMESPACE else "job", 1)
    infos = () if procs is None else (attrs.EVENT_CUSTOM_RANGE(procs),)
    asked = world.ask("b", NotifyEvent(-400, reach, infos), source)
    assert asked.end is None
    world.hub.run()
    assert [name for name in "abc" if world.servers[name].heard] == list(heard)
    for name in heard:
        assert world.servers[name].heard == [Notification(-400, source, reach, infos)]


def test_events_are_not_passed_on_twice_and_servers_raise_their_own(world):
    world.ask("a", NotifyEvent(-400, SESSION), Proc("job", 1))
    world.hub.run()
    assert not world.servers["b"].heard and not world.servers["c"].heard
    world.ask("a", NotifyEvent(-401, SESSION))
    world.hub.run()
    assert world.servers["c"].heard == [Notification(-401, Proc("server-a", 0), SESSION, ())]


def test_the_first_server_publishes_for_all(world):
    who = (Proc("job", 3), 1000, 100)
    publish = Publish((Info("key", Value(codes.STRING, "value")),), CUSTOM, 1, (attrs.TIMEOUT(3),))
    lookup = Lookup(("key", "other"), (attrs.WAIT(1),))
    asked = [world.ask("c", op, *who) for op in (publish, lookup, Unpublish(("key",)), Unpublish())]
    own = world.ask("a", lookup, Proc("job", 0), 1, 2)
    world.hub.run()
    assert [name for name, _ in world.published] == ["a"] * 5
    forwarded = [upcall for _, upcall in world.published if upcall is not own]
    assert [upcall.op for upcall in forwarded] == [each.op for each in asked]
    assert {(upcall.requestor, upcall.uid, upcall.gid) for upcall in forwarded} == {who}
    assert {upcall.server for upcall in forwarded} == {"c"}
    assert not any(each.ends for each in asked)
    found = (Pdata(Proc("job", 0), "key", Value(codes.STRING, "value")),)
    forwarded[0].reply()
    forwarded[1].reply(found)
    forwarded[1].reply(())
    forwarded[2].fail(NotFound("not there"))
    forwarded[3].fail(OSError("full"))
    world.hub.run()
    assert asked[0].end is None
    assert asked[1].end == found
    assert isinstance(asked[2].end, NotFound)
    assert "OSError: full" in str(asked[3].end)


def test_the_directory_hears_of_departures_and_of_the_end_of_jobs():
    hub = Hub()
    exchanges = [Exchange(hub.carrier(name), later=hub.clock.later) for name in "ab"]
    told = []
    crossings = [
        Crossing(
            Server(each.name),
            each,
            directory=lambda upcall: None,
            gone=lambda proc, name=each.name: told.append((name, proc)),
            over=lambda procs, name=each.name: told.append((name, *procs)),
        )
        for each in exchanges
    ]
    for exchange in exchanges:
        exchange.start()
    job, other = [(Proc("job", 0), Proc("job", 1)), (Proc("other", 0),)]
    for crossing in crossings:
        crossing.register(JobInfo("job"), {0: "a", 1: "b"})
    crossings[1].register(JobInfo("other"), {0: "b"})
    hub.run()
    crossings[1].departed(job[1])
    hub.run()
    assert sorted(told) == [("a", job[1]), ("b", job[1])]
    del told[:]
    crossings[0].departed(job[0])
    hub.run()
    assert sorted(told, key=repr) == sorted([("a", job[0]), ("b", job[0]), ("a", *job), ("b", *job)], key=repr)
    del told[:]
    crossings[1].deregister("other")
    crossings[1].departed(Proc("unknown", 0))
    hub.run()
    assert sorted(told) == [("a", *other), ("b", *other)]


def test_published_data_of_a_lost_server_is_lost_with_it(world):
    asked = world.ask("c", Lookup(("key",)), Proc("job", 3), 1, 2)
    world.hub.run()
    world.hub.lose("a")
    world.hub.run()
    assert asked.end.code == UNREACH
    world.ask("c", Lookup(("key",)), Proc("job", 3), 1, 2)
    world.hub.run()
    assert world.published[-1][0] == "b"


def test_what_is_not_for_it_is_left_alone(world):
    upcalls = [Asked(Spawn((App("x"),))), Asked(Log((attrs.LOG_STDOUT("x"),)))]
    assert [world.crossings["a"].answer(upcall) for upcall in upcalls] == [False, False]
    nobody = Crossing(world.servers["a"], Exchange(Hub().carrier("z")))
    assert not nobody.answer(Asked(Lookup(("key",))))
    assert not any(upcall.ends for upcall in upcalls)


@pytest.mark.parametrize(
    ("op", "status"),
    [
        (FenceUpcall((Proc("unknown", RANK_WILDCARD),)), -46),
        (FenceUpcall((Proc("job", 77),)), -46),
        (FenceUpcall((Proc("job", RANK_LOCAL_NODE),)), BAD_PARAM),
        (FenceUpcall((Proc("job", 3),)), BAD_PARAM),
    ],
)
def test_what_cannot_be_done_fails_at_once(world, op, status):
    asked = world.ask("a", op)
    assert asked.end.code == status
    assert asked.end.operation == "fence"


def test_where_a_host_knows_better_it_is_asked_first():
    hub = Hub()
    exchanges = [Exchange(hub.carrier(name), later=hub.clock.later) for name in "ab"]
    where = {Proc("x", 0): "a", Proc("y", 0): "b"}
    crossings = [Crossing(Server(exchange.name), exchange, where.get) for exchange in exchanges]
    for exchange in exchanges:
        exchange.start()
    hub.run()
    asked = [Asked(FenceUpcall(tuple(where), (), exchange.name.encode())) for exchange in exchanges]
    for crossing, upcall in zip(crossings, asked, strict=True):
        assert crossing.answer(upcall)
    hub.run()
    assert [upcall.end for upcall in asked] == [b"ab"] * 2


def test_servers_that_come_late_are_told_everything(world):
    world.crossings["b"].departed(Proc("job", 1))
    world.crossings["b"].departed(Proc("job", 2))
    world.hub.run()
    exchange = Exchange(world.hub.carrier("Z"), later=world.hub.clock.later, now=world.hub.clock.time)
    crossing = Crossing(Server("Z"), exchange)
    exchange.start()
    crossing.register(JobInfo("late"), {0: "Z"})
    world.hub.run()
    # As the first by name it coordinates, and knows who has gone.
    asked = Asked(fence("Z", (*ALL, Proc("late", 0))))
    crossing.answer(asked)
    ends = world.all_ask(lambda name: fence(name, (Proc("late", 0), *ALL)), "ac")
    assert [end.code for end in (asked.end, *ends)] == [PARTIAL] * 3


class Described:
    """A job that makes its info when it is asked for."""

    nspace = "late"
    made = 0

    def info(self):
        self.made += 1
        return JobInfo(self.nspace, (attrs.JOB_SIZE(1),))


def test_the_info_of_a_job_is_made_once_another_server_asks(world):
    job = Described()
    world.crossings["c"].register(job, {0: "c"})
    world.hub.run()
    both = (Proc("job", 0), Proc("late", 0))
    fenced = FenceUpcall(both, (), b"")
    assert world.all_ask(fenced, "ac") == [b""] * 2
    assert job.made == 0
    for _ in range(2):
        assert world.all_ask(Connect(both), "ac") == [None, None]
        assert world.servers["a"].jobs["late"] == JobInfo("late", (attrs.JOB_SIZE(1),))
        world.all_ask(Disconnect(both), "ac")
    assert job.made == 1


def test_job_infos_and_places_survive_the_way():
    for job in (JOB, JobInfo("empty")):
        assert JOBS.read(JOBS.write(job)) == job
    for places in ({}, PLACES, dict.fromkeys(range(10000), "x"), {5: "a", 7: "a", 6: "b"}):
        assert TOLD.read(TOLD.write(("n", places))) == ("n", places)
    assert len(TOLD.write(("n", dict.fromkeys(range(10_000), "x")))) < 50


@pytest.mark.parametrize(
    "topic",
    [
        statelog.SUBMITTED,
        statelog.ORDERED,
        module.RAISED,
    ],
)
def test_news_that_do_not_parse_are_dropped(world, topic, caplog):
    # The root orders the entries.
    sender, receiver = ("b", "a") if topic == statelog.SUBMITTED else ("a", "b")
    world.exchanges[sender].tell(receiver, topic, b"\xff\xff")
    world.hub.run()
    assert "is dropped" in caplog.text
    assert world.all_ask(fence) == [b"<a><b><c>"] * 3


@pytest.mark.parametrize("topic", [DIRECT_MODEX, module.DIRECTORY])
def test_requests_that_do_not_parse_are_refused(world, topic):
    ends = []
    world.exchanges["a"].request("b", topic, b"\xff\xff", lambda *end: ends.append(end))
    world.hub.run()
    ((_, error),) = ends
    assert error.code == RemoteProtocolError.default_status
    assert not world.published


def test_a_fence_ends_with_a_lost_server_whose_jobs_the_coordinator_has_forgotten():
    """The contribution of another server was on its way when both lost that one."""
    session = Session(3)
    session.register(*session.names)
    session.register("n002", job="own", places={0: "n002"})
    session.hub.run()
    procs = (Proc("job", 0), Proc("job", 1), Proc("own", 0))
    session.hub._delay = lambda sender, to: 5.0 if (sender, to) == ("n001", "n000") else 0.01
    asked = session.ask("n001", FenceUpcall(procs, (), b""))
    session.hub.lose("n002")
    session.wait(2)
    assert session.has("n000", "own") is None and not asked.ends
    session.hub.run()
    assert asked.end.code == PARTIAL
    assert not any(session.exchanges[name].open() for name in ("n000", "n001"))
