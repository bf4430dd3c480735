"""Servers agree on the nspace of a connection, on who is in it, and on what its participants have asked for."""

from __future__ import annotations

import pytest

from lib.exchange_world import ALL, PARTIAL, World, fence, partial
from pypmix.host.exchange.coordinator import Names
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.ops import Connect, Connected, Disconnect, FenceUpcall
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_EARLY_TERM,
    CONNECT_ID,
    CONNECT_NOTIFY_EACH,
    CONNECT_OPTIONAL,
    CONNECT_XCHG_ONLY,
)
from pypmix.standard.ops.events import procs_in
from pypmix.standard.ops.hosting import GROUP_ABSENT
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value

pytestmark = pytest.mark.timeout(30)

P = tuple(Proc("job", rank) for rank in range(4))
"""0 is on a, 1 and 2 are on b, 3 is on c."""
WHERE = {"a": P[:1], "b": P[1:3], "c": P[3:]}


def flag(key, on=True):
    return Info(key, Value(codes.BOOL, on))


def absent(*procs):
    return Info(GROUP_ABSENT, Value(codes.DATA_ARRAY, DataArray(codes.PROC, procs)))


def named(id):
    return Info(CONNECT_ID, Value(codes.STRING, id))


ASSIGN = flag(CONNECT_ASSIGN)
OPTIONAL = flag(CONNECT_OPTIONAL)


@pytest.fixture
def world():
    return World()


def connect(*infos, procs=ALL):
    return Connect(procs, (ASSIGN, *infos))


def made(ends):
    (end,) = set(ends)
    assert isinstance(end, Connected) and end.nspace
    return end


def test_all_servers_get_one_nspace_and_one_order_of_ranks(world):
    procs = {"a": ALL, "b": tuple(reversed(P)), "c": (P[3], *ALL)}
    first = made(world.all_ask(lambda name: connect(procs=procs[name])))
    assert first.procs == P and not first.directives
    assert made(world.all_ask(connect())).nspace != first.nspace
    assert len({names.take() for names in (Names(), Names()) for _ in range(10)}) == 20


@pytest.mark.parametrize("asker", "abc")
def test_what_one_server_is_asked_for_holds_for_all(world, asker):
    def op(*infos):
        return lambda name: Connect(ALL, infos if name == asker else ())

    assert made(world.all_ask(op(ASSIGN))).procs == P
    assert world.all_ask(op()) == [None] * 3
    assert world.all_ask(lambda name: connect(*([flag(CONNECT_XCHG_ONLY)] if name == asker else ()))) == [None] * 3
    early, each = flag(CONNECT_EARLY_TERM), flag(CONNECT_NOTIFY_EACH)
    assert made(world.all_ask(op(ASSIGN, early, each))).directives == (early, each)
    assert made(world.all_ask(op(ASSIGN, flag(CONNECT_EARLY_TERM, False), each))).directives == (each,)


def test_an_id_tells_connects_of_the_same_procs_apart(world):
    asked = [world.ask(name, connect(named(id))) for name, id in (("a", "x"), ("b", "y"), ("c", "y"), ("b", "x"))]
    world.hub.run()
    assert not any(each.ends for each in asked)
    assert [item.operation for item in world.crossings["b"].pending()] == ["connect y", "connect x"]
    asked += [world.ask(name, connect(named(id))) for name, id in (("a", "y"), ("c", "x"))]
    world.hub.run()
    x = made([asked[number].end for number in (0, 3, 5)])
    assert made([asked[number].end for number in (1, 2, 4)]).nspace != x.nspace


def test_an_id_tells_them_apart_where_they_are_named_by_their_connection_too(world):
    address = attrs.GROUP_ID("first")
    asked = [world.ask(name, connect(address, named(id))) for name, id in (("a", "x"), ("b", "y"), ("c", "x"))]
    world.hub.run()
    assert not any(each.ends for each in asked)
    assert [(item.operation, item.label) for item in world.crossings["b"].pending()] == [("connect y", "first")]
    asked += [world.ask(name, connect(address, named(id))) for name, id in (("a", "y"), ("b", "x"), ("c", "y"))]
    world.hub.run()
    assert made([asked[number].end for number in (0, 2, 4)]) != made([asked[number].end for number in (1, 3, 5)])


@pytest.mark.parametrize("asker", "abc")
def test_with_optional_those_who_have_come_are_connected(world, asker):
    def op(*infos):
        return lambda name: connect(*(infos if name == "b" else ()), *([OPTIONAL] if name == asker else ()))

    assert made(world.all_ask(op(absent(P[2])))).procs == (P[0], P[1], P[3])
    assert made(world.all_ask(op(absent(P[2]), *partial()))).procs == (P[0], P[1], P[3])
    # Who wants no nspace is told as well that it is no failure.
    (end,) = set(world.all_ask(lambda name: op(absent(P[2]), flag(CONNECT_XCHG_ONLY))(name)))
    assert end == Connected(directives=(OPTIONAL,))
    if asker != "c":
        world.crossings["c"].departed(P[3])
        world.hub.run()
        assert made(world.all_ask(op(), "ab")).procs == P[:3]


@pytest.mark.parametrize("said", [(absent(P[2]),), partial(absent(P[2])), partial()])
def test_without_it_who_has_not_come_fails_it_for_all(world, said):
    ends = world.all_ask(lambda name: connect(*(said if name == "b" else ())))
    assert [end.code for end in ends] == [PARTIAL] * 3
    assert {end.missing for end in ends} == {frozenset({P[2]} if said[0].key == GROUP_ABSENT else ())}


@pytest.mark.parametrize("lost", "abc")
@pytest.mark.parametrize("optional", [True, False])
def test_a_server_that_is_lost_takes_its_procs_along(world, lost, optional):
    infos = [OPTIONAL] if optional else []
    rest = [name for name in "abc" if name != lost]
    asked = [world.ask(name, connect(*infos)) for name in [*rest[:1], lost]]
    world.hub.run(world.hub.clock.now + 0.25)
    world.hub.lose(lost)
    world.hub.run()
    assert not asked[0].ends
    asked.append(world.ask(rest[1], connect(*infos)))
    world.hub.run()
    ends = [asked[0].end, asked[2].end]
    if optional:
        assert made(ends).procs == tuple(proc for proc in P if proc not in WHERE[lost])
    else:
        assert [(end.code, end.missing) for end in ends] == [(PARTIAL, set(WHERE[lost]))] * 2


@pytest.mark.parametrize("lost", "abc")
@pytest.mark.parametrize("moment", [0.05, 0.15, 0.25, 0.35])
def test_whoever_is_lost_the_others_come_to_one_end(world, moment, lost):
    asked = {name: world.ask(name, connect(OPTIONAL)) for name in "abc"}
    world.hub.run(world.hub.clock.now + moment)
    world.hub.lose(lost)
    world.hub.run()
    made([asked[name].end for name in "abc" if name != lost])


def test_servers_hear_of_members_that_went_while_the_connection_was_made(world):
    # The decision of the coordinator takes longer than the news of a member that went since.
    world.hub._delay = lambda sender, to: 1.0 if (sender, to) == ("b", "c") else 0.1
    asked = [world.ask(name, connect(procs=P[1:])) for name in "bc"]
    world.hub.run(world.hub.clock.now + 0.15)
    world.crossings["b"].departed(P[2])
    world.hub.run()
    assert made([each.end for each in asked]).procs == P[1:]
    heard = {name: server.heard for name, server in world.servers.items() if server.heard}
    assert heard.keys() == {"c"}
    for (event,) in heard.values():
        assert procs_in(event.infos, attrs.EVENT_AFFECTED_PROC.key) == (P[2],)


def test_servers_hear_of_members_that_go_afterwards(world):
    connection = made(world.all_ask(connect()))
    for server in world.servers.values():
        server.connections = lambda: ((connection.nspace, connection.procs),)
    world.crossings["c"].departed(P[3])
    world.hub.run()
    world.hub.lose("b")
    world.hub.run()
    heard = [event for event in world.servers["a"].heard if event.code == statuses.TALK]
    gone = [procs_in(event.infos, attrs.EVENT_AFFECTED_PROC.key)[0] for event in heard]
    assert gone == [P[3], P[1], P[2]]
    assert len([event for event in world.servers["c"].heard if event.code == statuses.TALK]) == 2


def test_what_a_connection_does_by_its_name_ends_the_same_way_for_all(world):
    connection = made(world.all_ask(connect()))
    address = attrs.GROUP_ID(connection.nspace)
    assert world.all_ask(lambda name: fence(name, connection.procs, address)) == [b"<a><b><c>"] * 3
    asked = [world.ask(name, fence(name, connection.procs, address)) for name in "ab"]
    world.crossings["c"].departed(P[3])
    world.hub.run()
    assert [(each.end.code, each.end.missing) for each in asked] == [(PARTIAL, {P[3]})] * 2
    early = attrs.GROUP_FT_COLLECTIVE(True)
    ends = world.all_ask(lambda name: fence(name, connection.procs, *([early] if name == "a" else []), address), "ab")
    assert ends == [b"<a><b>"] * 2
    ends = world.all_ask(Disconnect(connection.procs, (address,)), "ab")
    assert [procs_in(end, GROUP_ABSENT) for end in ends] == [(P[3],)] * 2


def test_connections_are_connected_with_others(world):
    first = made(world.all_ask(connect(procs=P[:2]), "ab"))
    rest = made(world.all_ask(connect(procs=(P[2], P[3])), "bc"))
    both = made(world.all_ask(connect(procs=(*first.procs, *rest.procs))))
    assert both.procs == P
    assert world.all_ask(lambda name: FenceUpcall((Proc("job", RANK_WILDCARD),), (), name.encode())) == [b"abc"] * 3
