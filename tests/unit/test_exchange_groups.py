"""Servers bring a group together: its rules, its order, its numbers, who meets by its name, and who asks for it."""

from __future__ import annotations

import pytest

from lib.exchange_groups import CONTEXT, MEMBERS, P, construct
from lib.exchange_world import World
from pypmix.engine.groups import talk
from pypmix.host.exchange import codec, deciding
from pypmix.host.exchange import coordinator as coordinating
from pypmix.host.exchange.coordinator import ContextIds
from pypmix.host.exchange.kinds import CONSTRUCT, OUTCOME, Outcome, Part, read_parts, write_parts
from pypmix.host.exchange.limits import MAX_PARTIES
from pypmix.host.exchange.places import Party, Places
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.errors import PMIxError, RemoteProtocolError
from pypmix.standard.ops import Connect, FenceUpcall, GroupUpcall, NotifyEvent, QueryInfo
from pypmix.standard.ops.events import procs_in
from pypmix.standard.ops.hosting import (
    GROUP_ABSENT,
    GROUP_CANCEL,
    GROUP_CLAIMS,
    GROUP_CONSTRUCT,
    GROUP_DESTRUCT,
    GROUP_GUEST,
    GROUP_LEADER_PROC,
    GROUP_ORDER,
    GROUP_VERDICT,
)
from pypmix.standard.types import DataArray, Info, Proc, Query, Value

pytestmark = pytest.mark.timeout(30)

ABORT, PARTIAL, TIMEOUT, BAD_PARAM, NOT_FOUND = -165, -52, -24, -27, -46
OPTIONAL, TOLERANT = attrs.GROUP_OPTIONAL(True), attrs.GROUP_FT_COLLECTIVE(True)
NOTIFY = attrs.GROUP_NOTIFY_TERMINATION(True)
STATUS = attrs.LOCAL_COLLECTIVE_STATUS.key
"""0 is on a, 1 and 2 are on b, 3 is on c."""


def named(key, procs):
    return Info(key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(procs))))


def one(key, proc):
    return Info(key, Value(codes.PROC, proc))


def status(code):
    return Info(STATUS, Value(codes.STATUS, code))


def data(end, key):
    return next((info.value.data for info in end if info.key == key), None)


@pytest.fixture
def world():
    return World()


def all_same(ends):
    assert len(set(ends)) == 1, ends
    return ends[0]


def test_the_first_answer_tells_who_is_absent_and_the_second_is_final(world):
    absent = named(GROUP_ABSENT, [P[2]])
    ends = world.all_ask(lambda name: construct(*((NOTIFY, absent) if name == "b" else ())))
    again = all_same(ends)
    assert procs_in(again, MEMBERS) is None
    assert procs_in(again, GROUP_ABSENT) == (P[2],)
    ends = world.all_ask(lambda name: construct(*((NOTIFY, absent) if name == "b" else ()), number=2))
    assert procs_in(all_same(ends), MEMBERS) == (P[0], P[1], P[3])
    assert procs_in(ends[0], GROUP_ABSENT) == (P[2],)
    assert data(ends[0], NOTIFY.key) is True


@pytest.mark.parametrize(
    ("flags", "members"), [((), None), ((OPTIONAL,), (P[0], P[1], P[3])), ((TOLERANT,), (P[0], P[1], P[3]))]
)
def test_a_directive_of_one_server_decides_for_all(world, flags, members):
    absent = named(GROUP_ABSENT, [P[2]])
    ends = world.all_ask(lambda name: construct(*{"a": flags, "b": (absent,), "c": ()}[name]))
    if members is None:
        assert [(end.code, end.missing) for end in ends] == [(ABORT, {P[2]})] * 3
    else:
        assert procs_in(all_same(ends), MEMBERS) == members


@pytest.mark.parametrize(
    ("claims", "flags", "leader"),
    [({}, (), None), ({"c": P[3], "b": P[2]}, (), P[2]), ({}, (OPTIONAL,), None), ({"c": P[3]}, (NOTIFY,), P[3])],
)
def test_who_claims_first_leads_after_the_leader_has_gone(world, claims, flags, leader):
    given = {"a": (), "b": (one(GROUP_LEADER_PROC, P[1]), named(GROUP_ABSENT, [P[1]])), "c": flags}
    ends = world.all_ask(lambda name: construct(*given[name]))
    if OPTIONAL not in flags:
        assert procs_in(all_same(ends), GROUP_LEADER_PROC) == (P[1],)
        assert procs_in(ends[0], MEMBERS) is None
        claim = {name: (named(GROUP_CLAIMS, [proc]),) for name, proc in claims.items()}
        ends = world.all_ask(lambda name: construct(*given[name], *claim.get(name, ()), number=2))
    if leader is None and not flags:
        assert [end.code for end in ends] == [ABORT] * 3
    else:
        assert procs_in(all_same(ends), MEMBERS) == (P[0], P[2], P[3])
        assert procs_in(ends[0], GROUP_LEADER_PROC) == (None if leader is None else (leader,))


def test_a_verdict_ends_it_for_all(world):
    verdict = Info(GROUP_VERDICT, Value(codes.STRING, "abort"))
    ends = world.all_ask(lambda name: construct(OPTIONAL, *((verdict,) if name == "c" else ())))
    assert [end.code for end in ends] == [ABORT] * 3


def test_the_order_is_the_leaders_or_that_of_all_or_sorted(world):
    def members(**orders):
        infos = {name: [named(GROUP_ORDER, [P[rank] for rank in ranks])] for name, ranks in orders.items() if ranks}
        infos.setdefault("c", [])
        return lambda *more: procs_in(
            all_same(world.all_ask(lambda name: construct(*infos.get(name, ()), *(more if name == "c" else ())))),
            MEMBERS,
        )

    same = members(a=(2, 0, 3, 1), b=(2, 0, 3, 1), c=(2, 0, 3, 1))
    assert same() == (P[2], P[0], P[3], P[1])
    differ = members(a=(2, 0, 3, 1), b=(2, 0, 3, 1), c=(3, 2, 1, 0))
    assert differ() == tuple(P)
    assert differ(one(GROUP_LEADER_PROC, P[3])) == (P[3], P[2], P[1], P[0])
    assert differ(attrs.GROUP_FINAL_MEMBERSHIP_ORDER((P[1], P[3], P[0], P[2]))) == (P[1], P[3], P[0], P[2])


def test_of_final_orders_that_of_the_server_with_the_first_proc_counts():
    """As on one server, whatever the servers are called."""
    party = Party((P[0], P[1]), {P[0]: "z", P[1]: "a"}.get)
    orders = {"a": (P[1], P[0]), "z": (P[0], P[1])}
    parts = [
        (name, Part(1, CONSTRUCT, "g", party, infos=(attrs.GROUP_FINAL_MEMBERSHIP_ORDER(order),)))
        for name, order in orders.items()
    ]
    assert deciding.Construct(parts, set(), set()).members() == (P[0], P[1])


def test_those_who_mean_different_groups_by_a_name_fail_at_once(world):
    first = world.ask("a", construct(members=P))
    second = world.ask("b", construct(members=P[:3]))
    world.hub.run()
    assert [first.end.code, second.end.code] == [BAD_PARAM] * 2


def test_disjoint_groups_may_have_one_name(world):
    a = world.ask("b", construct(CONTEXT, members=[P[1], P[2]]))
    b = [world.ask(name, construct(CONTEXT, members=[P[0], P[3]])) for name in "ac"]
    world.hub.run()
    assert procs_in(a.end, MEMBERS) == (P[1], P[2])
    assert procs_in(all_same([each.end for each in b]), MEMBERS) == (P[0], P[3])
    assert data(a.end, attrs.GROUP_CONTEXT_ID.key) != data(b[0].end, attrs.GROUP_CONTEXT_ID.key)


def test_with_optional_those_who_have_come_in_time_are_the_group(world):
    asked = [world.ask(name, construct(OPTIONAL, attrs.TIMEOUT(2))) for name in "ac"]
    world.hub.run(world.hub.clock.now + 3)
    assert procs_in(all_same([each.end for each in asked]), MEMBERS) == (P[0], P[3])
    assert procs_in(asked[0].end, GROUP_ABSENT) == (P[1], P[2])
    late = world.ask("b", construct(OPTIONAL))
    world.hub.run()
    assert late.end.code == TIMEOUT


def test_who_comes_after_it_was_given_up_hears_of_that(world):
    asked = [world.ask(name, construct()) for name in "ab"]
    world.hub.run()
    world.ask("a", GroupUpcall(GROUP_CANCEL, "g"))
    world.hub.run(world.hub.clock.now + 1)
    assert [each.end.code for each in asked] == [ABORT] * 2
    assert world.all_ask(construct(), "c")[0].code == ABORT
    # The next one is another one.
    assert procs_in(all_same(world.all_ask(construct())), MEMBERS) == tuple(P)


@pytest.mark.parametrize("infos", [(), (status(TIMEOUT),)], ids=["abort", "timeout"])
def test_an_operation_that_is_given_up_leaves_another_one_of_its_name(world, infos):
    """Groups of disjoint procs may have the same name."""
    first, other = (P[1], P[3]), (P[0], P[2])
    given_up, others = (world.ask("b", GroupUpcall(GROUP_CONSTRUCT, "g", procs)) for procs in (first, other))
    world.hub.run()
    world.ask("b", GroupUpcall(GROUP_CANCEL, "g", first, infos))
    world.hub.run(world.hub.clock.now + 1)
    assert given_up.end.code == (TIMEOUT if infos else ABORT) and not others.ends
    last = world.ask("a", GroupUpcall(GROUP_CONSTRUCT, "g", other))
    world.hub.run()
    assert procs_in(all_same([others.end, last.end]), MEMBERS) == other


def test_a_time_that_is_over_is_no_abort(world):
    asked = [world.ask(name, construct()) for name in "ab"]
    world.hub.run()
    world.all_ask(GroupUpcall(GROUP_CANCEL, "g", (), (status(TIMEOUT),)), "b")
    assert [(each.end.code, each.end.missing) for each in asked] == [(TIMEOUT, {P[3]})] * 2


def offer(proc, *infos):
    return GroupUpcall(GROUP_CONSTRUCT, "g", (proc,), (one(GROUP_GUEST, proc), *infos))


def test_leaders_that_know_their_number_meet_those_whom_they_add(world):
    boot = attrs.GROUP_BOOTSTRAP(2)
    asked = [
        world.ask("c", offer(P[3])),
        world.ask("b", offer(P[2], boot, attrs.GROUP_ADD_MEMBERS([P[3], P[0]]), CONTEXT)),
        world.ask("b", offer(P[1], boot)),
    ]
    world.hub.run()
    assert not any(each.ends for each in asked)
    asked.append(world.ask("a", offer(P[0])))
    world.hub.run()
    end = all_same([each.end for each in asked])
    assert procs_in(end, MEMBERS) == (P[1], P[2], P[3], P[0])
    assert data(end, attrs.GROUP_CONTEXT_ID.key)


def test_a_collective_construct_adds_others(world):
    leaders = [P[0], P[1]]
    asked = [
        world.ask("a", construct(attrs.GROUP_ADD_MEMBERS([P[3]]), members=leaders)),
        world.ask("b", construct(CONTEXT, members=leaders)),
    ]
    world.hub.run()
    assert not any(each.ends for each in asked)
    asked.append(world.ask("c", offer(P[3])))
    world.hub.run()
    assert procs_in(all_same([each.end for each in asked]), MEMBERS) == (P[0], P[1], P[3])


def test_a_collective_construct_that_adds_others_keeps_the_order_that_was_asked_for(world):
    leaders = [P[0], P[1]]
    order = attrs.GROUP_FINAL_MEMBERSHIP_ORDER((P[3], P[1], P[0]))
    asked = [
        world.ask("a", construct(attrs.GROUP_ADD_MEMBERS([P[3]]), order, members=leaders)),
        world.ask("b", construct(order, members=leaders)),
        world.ask("c", offer(P[3])),
    ]
    world.hub.run()
    assert procs_in(all_same([each.end for each in asked]), MEMBERS) == (P[3], P[1], P[0])


def test_a_member_that_has_left_before_the_news_of_the_group_is_not_waited_for(world, monkeypatch):
    boot = attrs.GROUP_BOOTSTRAP(3)
    asked = [world.ask("b", offer(proc, boot)) for proc in P[1:3]]
    asked.append(world.ask("c", offer(P[3], boot)))
    # They come together at a, whose word is slow on its way to b.
    monkeypatch.setattr(world.hub, "_delay", lambda source, to: 5.0 if (source, to) == ("a", "b") else 0.1)
    world.hub.run(world.hub.clock.now + 1)
    assert [len(each.ends) for each in asked] == [0, 0, 1]
    left = attrs.EVENT_CUSTOM_RANGE(P[1:3]), attrs.EVENT_AFFECTED_PROC(P[3]), attrs.GROUP_ID("g")
    world.ask("c", NotifyEvent(-160, 6, left), P[3])
    world.hub.run()
    assert procs_in(all_same([each.end for each in asked]), MEMBERS) == tuple(P[1:])
    destruct = world.ask("b", GroupUpcall(GROUP_DESTRUCT, "g", tuple(P[1:]), (TOLERANT,)))
    world.hub.run()
    assert destruct.end == ()


def test_leaders_who_expect_different_numbers_fail(world):
    asked = [
        world.ask("a", offer(P[0], attrs.GROUP_BOOTSTRAP(2))),
        world.ask("c", offer(P[3], attrs.GROUP_BOOTSTRAP(3))),
    ]
    world.hub.run()
    assert [each.end.code for each in asked] == [BAD_PARAM] * 2


def test_a_native_server_does_not_say_who_is_added(world):
    asked = [
        world.ask("b", GroupUpcall(GROUP_CONSTRUCT, "g", (), ())),
        world.ask(
            "a",
            GroupUpcall(
                GROUP_CONSTRUCT, "g", (P[0],), (attrs.GROUP_BOOTSTRAP(1), attrs.GROUP_ADD_MEMBERS([P[1]]), OPTIONAL)
            ),
        ),
    ]
    world.hub.run()
    end = all_same([each.end for each in asked])
    assert procs_in(end, MEMBERS) == (P[0], P[1])
    assert not [info for info in end if info.key.startswith("pypmix.")]


def test_where_offers_meet_is_lost_and_they_meet_at_the_next(world):
    boot = attrs.GROUP_BOOTSTRAP(2)
    where = min("abc")
    (one, proc), (other, last) = [pair for pair in zip("abc", (P[0], P[1], P[3]), strict=True) if pair[0] != where]
    first = world.ask(one, offer(proc, boot))
    world.hub.run(world.hub.clock.now + 1)
    world.hub.lose(where)
    second = world.ask(other, offer(last, boot))
    world.hub.run()
    assert procs_in(all_same([first.end, second.end]), MEMBERS) == (proc, last)


def test_what_a_group_does_by_its_name_needs_no_same_members(world):
    address = attrs.GROUP_ID("g")
    asked = [
        world.ask("a", FenceUpcall(tuple(P), (address,), b"a")),
        world.ask("b", FenceUpcall((P[0], P[1], P[2]), (address,), b"b")),
    ]
    world.hub.run()
    assert [each.end for each in asked] == [b"ab"] * 2
    asked = [world.ask(name, Connect(tuple(P), (address,))) for name in "ab"]
    world.ask("c", NotifyEvent(-160, 6, (attrs.EVENT_CUSTOM_RANGE(P[:3]), address)), P[3])
    world.hub.run()
    # It had been named by all when it left.
    assert [(each.end.code, each.end.missing) for each in asked] == [(PARTIAL, {P[3]})] * 2
    asked = [world.ask(name, FenceUpcall(tuple(P), (address, TOLERANT), name.encode())) for name in "ab"]
    world.hub.run()
    assert [each.end for each in asked] == [b"ab"] * 2


def test_groups_of_all_servers_are_listed(world):
    world.all_ask(construct(members=[P[1], P[3]]), "bc")
    world.all_ask(GroupUpcall(GROUP_CONSTRUCT, "h", (P[0],)), "a")
    keys = (attrs.QUERY_NUM_GROUPS.key, attrs.QUERY_GROUP_NAMES.key, attrs.QUERY_GROUP_MEMBERSHIP.key)
    ask = QueryInfo((Query(keys, (attrs.GROUP_ID("g"),)),))
    asked = world.ask("a", ask, P[0])
    world.hub.run()
    number, names, members = [info.value.data for info in asked.end]
    assert number == 2
    assert sorted(names.items) == ["g", "h"]
    assert members.items == (P[1], P[3])
    world.all_ask(GroupUpcall(GROUP_DESTRUCT, "g", (P[1], P[3])), "bc")
    (end,) = world.all_ask(QueryInfo((Query((keys[2],), (attrs.GROUP_ID("g"),)),)), "a")
    assert isinstance(end, PMIxError)
    assert end.code == NOT_FOUND
    (local,) = world.all_ask(QueryInfo((Query(keys[:1], (attrs.RANGE(2),)),)), "b")
    assert [info.value.data for info in local] == [0]
    for whose, groups in ((P[0], ("h",)), (P[1], ())):
        custom = attrs.RANGE(6), attrs.EVENT_CUSTOM_RANGE(whose)
        (of_one,) = world.all_ask(QueryInfo((Query(keys[1:2], custom),)), "b")
        assert [info.value.data.items for info in of_one] == [groups]


def test_context_ids_of_servers_differ_and_never_come_again(monkeypatch):
    monkeypatch.setattr(coordinating, "COUNTER", 2)
    found = {ids.take() for ids in map(ContextIds, ("n0", "n1", "n2")) for _ in range(40)}
    assert len(found) == 120
    assert all(1 << 62 <= number < 1 << 63 for number in found)


def test_parts_and_outcomes_travel():
    places = Places()
    party = Party((P[2], P[0], P[1], P[3]), places.server_of)
    told = (CONTEXT,), (P[1],), (P[2],), b"\0y"
    part = Part(7, 1, "g\udcff", party, ("a", "b"), -52, 3, *told)
    whole = write_parts((("a", part), ("b", part)))
    assert read_parts(places, whole) == (("a", part), ("b", part))
    outcome = Outcome(-24, "late", (P[0],), ("b",), (CONTEXT,), b"data", (("a", 1), ("b", 2)))
    assert OUTCOME.read(OUTCOME.write(outcome)) == outcome
    assert OUTCOME.read(OUTCOME.write(Outcome(apart=True))).apart
    for broken in (whole[:-1], b"", whole.replace(b"\0\1", b"\0\x09")):
        with pytest.raises(RemoteProtocolError):
            read_parts(places, broken)


@pytest.mark.parametrize("data", [b"", b"y", b"z" * 1000])
def test_what_servers_contribute_again_is_read_as_the_first_time(data, monkeypatch):
    # What is damaged may name many procs.
    monkeypatch.setattr(codec, "MAX_PROCS", 64)
    places = Places()
    places.add("b", "job", dict.fromkeys(range(4), "b"))
    party = places.party(P[:4])
    for number in range(2):
        sent = ("b", Part(7 + number, 4, party.label, party, (), -52 * number, 1 + number, data=data))
        whole = write_parts((sent,))
        assert read_parts(places, whole) == (sent,)
        assert read_parts(places, whole)[0][1].party.servers == {"b": list(P[:4])}
        assert places.plain
        # In whatever way it is damaged: it does not parse, or says something else than before, as without a memory.
        for at in [at for at in range(len(whole)) if at < 150 or at > len(whole) - 20]:
            for damaged in (whole[:at], whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :], whole + whole[:at]):
                assert result(places, damaged) == result(Places(lambda _: None), damaged)
    places.add("c", "other", {0: "c"})
    assert places.plain and places.party(P[:4]) is party
    places.add("c", "job", {4: "c"})
    assert places.party(P[:4]) is not party
    assert all("job" not in kept.nspaces for _, kept in places.plain.values())
    for number in range(2 * MAX_PARTIES):
        read_parts(places, write_parts((("b", Part(1, 4, f"name {number}", party)),)))
        assert 0 < len(places.plain) <= MAX_PARTIES


def result(places, data):
    try:
        return read_parts(places, data)
    except RemoteProtocolError:
        return None


@pytest.mark.parametrize("outcome", [Outcome(), Outcome(data=b"x"), Outcome(data=b"y" * 3000)])
def test_a_plain_success_is_read_as_it_was_written_and_as_nothing_else(outcome):
    whole = OUTCOME.write(outcome)
    assert OUTCOME.read(whole) == outcome
    for broken in [whole[:at] for at in range(len(whole))]:
        with pytest.raises(RemoteProtocolError):
            OUTCOME.read(broken)
    assert OUTCOME.read(whole + b"\0\0\0\0") == outcome
    with pytest.raises(RemoteProtocolError):
        OUTCOME.read(whole + b"\0")


def test_only_a_member_says_of_others_that_they_have_left_its_group():
    collectives = World().crossings["a"]._collectives
    one, two, stranger = (Proc("job", rank) for rank in range(3))
    collectives.record.add("g", (one, two))
    said = talk.say(talk.NEWS, "g", (one,), (talk.procs(talk.DEPARTED, (two,)),)).infos
    collectives.observe_event(statuses.TALK, stranger, said)
    # One that is a member again has not left.
    collectives.observe_event(statuses.TALK, one, (*said, talk.procs(talk.ADDED, (two,))))
    affected = attrs.GROUP_ID("g"), attrs.EVENT_AFFECTED_PROC(two)
    collectives.observe_event(statuses.GROUP_LEFT, stranger, affected)
    assert collectives.record.listed() == (("g", (one, two)),)
    taken = attrs.GROUP_ID("g"), attrs.GROUP_MEMBERSHIP([stranger, one])
    for code in (statuses.GROUP_CONSTRUCT_COMPLETE, statuses.GROUP_MEMBERSHIP_UPDATE):
        collectives.observe_event(code, stranger, taken)
    assert collectives.record.listed() == (("g", (one, two)),)
    collectives.observe_event(statuses.TALK, one, said)
    assert collectives.record.listed() == (("g", (one,)),)
    collectives.observe_event(statuses.GROUP_LEFT, one, affected)
    assert collectives.record.listed() == ()


@pytest.mark.parametrize("claimed", [True, False])
def test_what_only_a_failed_leader_has_heard_is_reported_again(world, claimed):
    """The servers contribute again until the next leader, or all procs without one, have heard of each lost member."""
    leads = {"a": (), "b": (one(GROUP_LEADER_PROC, P[1]),), "c": ()}
    asked = [world.ask(name, construct(NOTIFY, *leads[name])) for name in "ab"]
    world.hub.run()
    world.crossings["c"].departed(P[3])
    world.hub.run()
    again = all_same([each.end for each in asked])
    assert (procs_in(again, GROUP_ABSENT), procs_in(again, GROUP_LEADER_PROC)) == ((P[3],), (P[1],))
    # The leader ends, and the other proc of its server contributes.
    world.crossings["b"].departed(P[1])
    again = all_same(world.all_ask(lambda name: construct(NOTIFY, *leads[name], number=2), names="ab"))
    assert (procs_in(again, GROUP_ABSENT), procs_in(again, GROUP_LEADER_PROC)) == ((P[1], P[3]), (P[1],))
    claims = (named(GROUP_CLAIMS, [P[0]]),) if claimed else ()
    again = all_same(world.all_ask(lambda name: construct(NOTIFY, *leads[name], *claims, number=3), names="ab"))
    assert procs_in(again, MEMBERS) is None
    assert procs_in(again, GROUP_ABSENT) == (P[1], P[3])
    assert procs_in(again, GROUP_LEADER_PROC) == ((P[0],) if claimed else None)
    ends = all_same(world.all_ask(lambda name: construct(NOTIFY, *leads[name], number=4), names="ab"))
    assert procs_in(ends, MEMBERS) == (P[0], P[2])
    assert procs_in(ends, GROUP_LEADER_PROC) == ((P[0],) if claimed else None)


@pytest.mark.parametrize("declared", [True, False])
def test_a_leader_that_ends_before_its_server_is_complete_is_known_to_the_others(world, declared):
    said = talk.text(keys.GROUP_ID, "g"), talk.text(talk.SAYS, talk.DECLARES)
    if declared:
        world.ask("b", NotifyEvent(statuses.TALK, 6, (attrs.EVENT_CUSTOM_RANGE([P[0], P[3]]), *said)), P[1])
        world.hub.run()
    asked = [world.ask(name, construct(NOTIFY)) for name in "ac"]
    world.hub.run()
    for proc in (P[1], P[2]):
        world.crossings["b"].departed(proc)
    world.hub.run()
    again = all_same([each.end for each in asked])
    # The next leader is told of a member that has ended as well.
    assert procs_in(again, GROUP_ABSENT) == ((P[1],) if declared else (P[1], P[2]))
    assert procs_in(again, GROUP_LEADER_PROC) == ((P[1],) if declared else None)
    number = 2
    if declared:
        claims = {"a": (), "c": (named(GROUP_CLAIMS, [P[3]]),)}
        again = all_same(world.all_ask(lambda name: construct(NOTIFY, *claims[name], number=2), names="ac"))
        assert procs_in(again, GROUP_ABSENT) == (P[1], P[2])
        assert procs_in(again, GROUP_LEADER_PROC) == (P[3],)
        number = 3
    ends = world.all_ask(lambda _name: construct(NOTIFY, number=number), names="ac")
    assert procs_in(all_same(ends), MEMBERS) == (P[0], P[3])
    assert procs_in(ends[0], GROUP_LEADER_PROC) == ((P[3],) if declared else None)
    # A later group of this name has no leader because of that.
    world.all_ask(GroupUpcall(GROUP_DESTRUCT, "g", (P[0], P[3])), names="ac")
    ends = world.all_ask(lambda _name: construct(NOTIFY, named(GROUP_ABSENT, ()), members=(P[0], P[3])), names="ac")
    assert procs_in(all_same(ends), GROUP_LEADER_PROC) is None
