"""What each server answers its own clients after others were lost, were late or pretended something: `Crossing.answer`.

The exchange between servers is protected by the modules `tests/unit/test_exchange_*`, and they together promise this:

- Order: what is told to many arrives once and in order, whatever way it takes (`statelog`), and news that overtake what
  they are about do no harm (`statelog`, `psets`).
- Loss of any server: a collective ends for all as its coordinator decided, if any server knows the decision
  (`participant`). Those that a lost server ends do so at once, and all others go on (`crossing`, `groups`, `tree`).
- Partitions: servers that lost the connection with each other are lost to all alike, and no other server is
  (`partings`).
- Late joiners: a server that joins is told all that the others know (`statelog`, `crossing`), and a late contributor
  is answered with the end that it has missed (`crossing`, `groups`).
- Slow peers: a peer that does not read costs the others bounded memory, and is given up in time (`carriers`;
  `component/test_exchange_tcp`, `_links` and `_keepalive` on sockets).
- Bulk data: much data of a fence goes from server to server and not by way of the coordinator, and arrives whole or
  ends the fence for all (`spreading`).
- Agreement: names, numbers, orders and participants are the same on all servers (`connections`, `groups`).

The modules `test_crossing*` here play random schedules of these together. The tests of this module are about single
decisions which those do not assert, and assert them by what an upcall is answered.
"""

from __future__ import annotations

import pytest

from faults.test_crossing_tree import of_radix
from lib.exchange_world import PLACES, World, fence
from pypmix.host.exchange.kinds import FENCE, OUTCOME, Outcome, Part, write_parts
from pypmix.host.exchange.participant import PART
from pypmix.host.exchange.places import Places
from pypmix.host.exchange.tree import UP
from pypmix.standard import attrs, codes
from pypmix.standard.ops import GroupUpcall
from pypmix.standard.ops.events import procs_in
from pypmix.standard.ops.hosting import GROUP_ABSENT, GROUP_CONSTRUCT, GROUP_ROUND
from pypmix.standard.types import DataArray, Info, Proc, Value

pytestmark = pytest.mark.timeout(60)

ABORT = -165
P = tuple(Proc("job", rank) for rank in range(4))
"""0 is on a, 1 and 2 are on b, 3 is on c."""


@pytest.fixture
def world() -> World:
    return World()


def forged(world: World, sender: str, server: str, **about: object) -> list[object]:
    """Let a server send the coordinator a contribution in the name of a server; return how that was answered."""
    places = Places()
    places.add("a", "job", PLACES)
    party = places.party(P)
    part = Part(99, FENCE, party.label, party, data=b"<forged>").replace(**about)
    ends: list[object] = []
    data = write_parts(((server, part),))
    world.exchanges[sender].request(
        "a", PART, data, lambda data, error: ends.append(error or OUTCOME.read(data or b""))
    )
    return ends


@pytest.mark.parametrize("covers", [(), ("c", "b")], ids=["for another", "for itself and another"])
def test_no_server_contributes_for_another(world: World, covers: tuple[str, ...]) -> None:
    about = {"covers": covers, "numbers": (98, 99)} if covers else {}
    asked = {name: world.ask(name, fence(name, P)) for name in "ac"}
    world.hub.run()
    ends = forged(world, "c", "c" if covers else "b", **about)
    world.hub.run()
    (error,) = ends
    assert isinstance(error, Exception)
    assert "c contributes for" in str(error)
    assert not asked["a"].ends and not asked["c"].ends
    asked["b"] = world.ask("b", fence("b", P))
    world.hub.run()
    assert {each.end for each in asked.values()} == {b"<a><b><c>"}


def test_a_message_without_a_contribution_is_refused(world: World) -> None:
    ends: list[object] = []
    world.exchanges["c"].request("a", PART, b"\0", lambda _data, error: ends.append(error))
    world.hub.run()
    (error,) = ends
    assert "c contributes to 0 collectives at once" in str(error)


def test_a_contribution_of_the_sender_itself_is_taken(world: World) -> None:
    """The counterpart: what is refused above is not refused for another reason."""
    asked = {name: world.ask(name, fence(name, P)) for name in "ab"}
    world.hub.run()
    ends = forged(world, "c", "c")
    world.hub.run()
    assert [type(end) for end in ends] == [Outcome]
    assert {each.end for each in asked.values()} == {b"<a><b><forged>"}


def test_a_coordinator_may_ask_for_each_contribution_alone(world: World) -> None:
    """It does so if it has to answer the contributions of a combined message differently."""
    combined: list[str] = []

    def wants_each_alone(sender: str, data: bytes, answer: object) -> None:
        combined.append(sender)
        # Whoever sends to the tree again and again fails by its number.
        assert len(combined) < 5
        answer(OUTCOME.write(Outcome(apart=True)), None)  # type: ignore[operator]

    with of_radix(1):
        world.exchanges["a"].handle(UP, wants_each_alone)
        direct: list[str] = []
        came = world.exchanges["a"].requests._handlers[PART]
        world.exchanges["a"].handle(PART, lambda sender, *rest: (direct.append(sender), came(sender, *rest)))
        ends = world.all_ask(lambda name: fence(name, P))
    assert combined == ["b", "b"]
    assert sorted(direct) == ["b", "c"]
    assert set(ends) == {b"<a><b><c>"}


def construct(*members: Proc, infos: tuple[Info, ...] = ()) -> GroupUpcall:
    return GroupUpcall(GROUP_CONSTRUCT, "g", members, infos)


def test_those_who_wait_for_a_member_of_a_construct_that_has_ended_hear_of_that(world: World) -> None:
    """A server that took part in it ends what it coordinates under that name, where others wait for its procs."""
    waiting = world.ask("c", construct(P[1], P[3]))
    world.hub.run()
    assert not waiting.ends
    asked = [world.ask(name, construct(P[0], P[1])) for name in "ab"]
    world.hub.run()
    assert [procs_in(each.end, attrs.GROUP_MEMBERSHIP.key) for each in asked] == [(P[0], P[1])] * 2
    assert waiting.end.code == ABORT
    assert "it has ended without them" in str(waiting.end)


def test_those_who_wait_for_a_member_of_a_construct_that_goes_on_wait_on(world: World) -> None:
    absent = Info(GROUP_ABSENT, Value(codes.DATA_ARRAY, DataArray(codes.PROC, (P[2],))))
    rounds = Info(GROUP_ROUND, Value(codes.SIZE, 1)), attrs.GROUP_NOTIFY_TERMINATION(True)
    waiting = world.ask("c", construct(P[1], P[3]))
    asked = [
        world.ask(name, construct(P[0], P[1], P[2], infos=(*rounds, *((absent,) if name == "b" else ()))))
        for name in "ab"
    ]
    world.hub.run()
    # They are to come again.
    assert [procs_in(each.end, attrs.GROUP_MEMBERSHIP.key) for each in asked] == [None] * 2
    assert not waiting.ends
