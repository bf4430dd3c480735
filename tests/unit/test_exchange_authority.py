"""Proves that a server harms no other by messages about what it does not own, as `host.exchange.authority` lists."""

from __future__ import annotations

from typing import Any

import pytest

from lib.exchange_session import LAUNCHER, LaunchedSession
from lib.exchange_session import Session as Peers
from pypmix.host.exchange import codec, crossing, detours, jobs, membership, participant, psets, spreading, statelog
from pypmix.host.exchange.coordinator import TIME_IS_OVER
from pypmix.host.exchange.kinds import FENCE, Part, write_parts
from pypmix.host.exchange.places import Party
from pypmix.host.exchange.tree import NAMED, UP, UPWARDS
from pypmix.standard import statuses
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.ops import FenceUpcall
from pypmix.standard.types import Proc

pytestmark = pytest.mark.timeout(120)

COUNT = 6
PROCS = tuple([Proc("job", rank) for rank in range(COUNT)])
LATE = 1 << 62
"""A number of an entry after all others of its server."""


@pytest.fixture(params=["launched", "peers"])
def session(request: pytest.FixtureRequest) -> Any:
    """Six servers with a rank each, and a launcher or not."""
    if request.param == "launched":
        made: Any = LaunchedSession(COUNT)
        made.describe()
    else:
        made = Peers(COUNT)
        made.register(*made.names)
    made.hub.run()
    return made


def root_of(session: Any) -> str:
    return LAUNCHER if LAUNCHER in session.exchanges else session.names[0]


def send(session: Any, sender: str, to: str, topic: str, data: bytes) -> None:
    exchange = session.exchanges[sender]
    exchange.soon(exchange.outbox.aside, to, topic, data)
    session.hub.run()


def submit(session: Any, sender: str, *entries: statelog.Entry) -> None:
    send(session, sender, root_of(session), statelog.SUBMITTED, statelog.ENTRIES.write(entries))


def request(session: Any, sender: str, to: str, topic: str, data: bytes) -> list[Any]:
    ends: list[Any] = []
    session.exchanges[sender].request(to, topic, data, lambda *end: ends.append(end))
    session.wait(3)
    return ends


def departed(session: Any, rank: int) -> list[str]:
    return [name for name in session.exchanges if session.crossings[name]._places.has_departed(Proc("job", rank))]


def check_harmless(session: Any, caplog: pytest.LogCaptureFixture | None = None) -> None:
    """All servers are present for all, all ranks are where they were, and a fence of all of them ends."""
    members = tuple(sorted(session.exchanges))
    assert {exchange.members for exchange in session.exchanges.values()} == {members}
    assert not any(departed(session, rank) for rank in range(COUNT))
    assert all(session.crossings[name]._places.of("job") == session.places for name in session.exchanges)
    asked = [session.ask(name, FenceUpcall(PROCS, (), name.encode())) for name in session.names]
    session.hub.run()
    assert [each.end for each in asked] == ["".join(session.names).encode()] * COUNT
    assert caplog is None or "n004" in caplog.text


NEWS = jobs._NEWS.write(((jobs.DEPARTED, 0, (Proc("job", 2),)),))
MOVED = codec.PLACES.write(("job", {0: "n000", 1: "n001", 2: "n004", 3: "n003", 4: "n004", 5: "n005"}))
JOB = codec.PLACES.read(MOVED)
OTHER = codec.PLACES.write(("other", {0: "n004"}))
LOSS = membership._LOSS.write(("n002", b""))

ENTRIES = {
    "the end of a rank elsewhere": ("n004", LATE, statelog.NEWS, NEWS),
    "the end of a rank, as its server": ("n002", LATE, statelog.NEWS, NEWS),
    "a report of such an end": ("n004", LATE, statelog.PROCS, jobs._REPORT.write(((), jobs._NEWS.read(NEWS)))),
    "a rank taken over": ("n004", LATE, statelog.JOB, MOVED),
    "a rank taken over in a report": ("n004", LATE, statelog.PROCS, jobs._REPORT.write(((JOB,), ()))),
    "a loss": ("n004", LATE, statelog.LOSS, LOSS),
    "the last number of another server": ("n002", (1 << 63) - 1, statelog.MARK, b""),
    "a job forgotten for another": ("n002", LATE, statelog.FORGET, codec.FORGOTTEN.write(("job",))),
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_the_root_orders_no_entry_of_a_server_about_another(
    session: Any, entry: statelog.Entry, caplog: pytest.LogCaptureFixture
) -> None:
    submit(session, "n004", entry)
    check_harmless(session, caplog)
    # Entries of the other server that follow count.
    session.crossings["n002"].departed(Proc("job", 2))
    session.hub.run()
    assert sorted(departed(session, 2)) == sorted(session.exchanges)


@pytest.mark.parametrize("kind", [statelog.DEFINE, statelog.SETS, statelog.PROCS, statelog.JOB, statelog.FORGET])
def test_only_the_launcher_describes_jobs_and_process_sets_in_its_session(
    kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    launched = LaunchedSession(COUNT)
    launched.describe()
    launched.hub.run()
    data = {
        statelog.DEFINE: psets._SET.write(("ocean", (Proc("job", 0),), 0)),
        statelog.SETS: psets._SETS.write(((("ocean", (Proc("job", 0),), 0),), (), (), ())),
        statelog.PROCS: jobs._REPORT.write(((), ((jobs.DEPARTED, 0, (Proc("job", 4),)),))),
        statelog.JOB: OTHER,
        statelog.FORGET: codec.FORGOTTEN.write(("job",)),
    }
    launched.hub.messages.clear()
    submit(launched, "n004", ("n004", LATE, kind, data[kind]))
    assert launched.hub.messages == {"n004": 1}
    check_harmless(launched, caplog)
    assert launched.crossings["n000"]._places.of("other") is None


ORDER = statelog.ORDER.write((9, 9, (("n002", LATE, statelog.NEWS, NEWS), ("n000", LATE, statelog.LOSS, LOSS))))
MESSAGES = {
    "the order": (statelog.ORDERED, ORDER),
    "its loss": (membership.LOST, b""),
    "a detour": (detours.MEET, detours._SERVER.write(("n009", b""))),
    "a message in the name of the root": (
        detours.PASSED_ON,
        lambda root: detours._SERVER.write((root, codec.pack(codec.ASIDE, b"pypmix.lost", b""))),
    ),
}


@pytest.mark.parametrize("name", [name for name in MESSAGES if name != "its loss"])
def test_only_the_root_orders_and_connects(session: Any, name: str, caplog: pytest.LogCaptureFixture) -> None:
    topic, data = MESSAGES[name]
    send(session, "n004", "n001", topic, data(root_of(session)) if callable(data) else data)
    check_harmless(session)


def test_only_the_launcher_declares_a_server_of_its_session_lost(caplog: pytest.LogCaptureFixture) -> None:
    launched = LaunchedSession(COUNT)
    launched.describe()
    launched.hub.run()
    for sender in ("n000", "n004"):
        send(launched, sender, "n002", membership.LOST, b"")
        launched.exchanges[sender].tell("n002", membership.LOST, b"")
        broadcast = launched.exchanges[sender]
        entry = statelog.BROADCAST, codec.message(codec.TEXT, codec.BYTES).write((membership.LOST, b""))
        broadcast.soon(broadcast.state.submit, *entry)
        launched.hub.run()
    check_harmless(launched, caplog)
    send(launched, LAUNCHER, "n002", membership.LOST, b"")
    assert launched.exchanges["n002"].members == ("n002",)


def test_without_a_launcher_who_declares_another_lost_parts_from_it_alone() -> None:
    """Every other server stays with the root; the root decides between the two."""
    peers = Peers(COUNT)
    send(peers, "n004", "n002", membership.LOST, b"")
    left = tuple([name for name in peers.names if name != "n004"])
    assert {peers.exchanges[name].members for name in left} == {left}


@pytest.mark.parametrize("make", [LaunchedSession, Peers])
def test_a_server_that_parts_from_all_takes_one_along_at_most(make: Any) -> None:
    """Its connection with the root is left: without that it would be lost at once."""
    session = make(COUNT)
    for name in session.names[2:]:
        session.hub.part("n001", name)
    session.hub.run()
    views = {exchange.members for exchange in session.exchanges.values() if len(exchange.members) > 1}
    (view,) = views
    assert "n001" not in view and len(view) >= len(session.exchanges) - 2


def fence_part(number: int) -> tuple[tuple[str, Part], ...]:
    procs = PROCS[:2]
    party = Party(procs, lambda proc: f"n{proc.rank:03}")
    return (("n004", Part(number, FENCE, party.label, party)),)


@pytest.mark.parametrize("topic", [participant.PART, participant.AGAIN, UP])
def test_a_server_without_a_proc_in_it_contributes_to_no_collective(session: Any, topic: str) -> None:
    data = write_parts(fence_part(LATE))
    if topic == participant.AGAIN:
        data = participant._AGAIN.write(("n009", b"", data))
    elif topic == UP:
        data = UPWARDS.write(("n000", session.exchanges["n000"].membership.life_of("n000"), LATE, data))
    first = session.ask("n000", FenceUpcall(PROCS[:2], (), b"<n000>"))
    session.wait(1)
    ((_, error),) = request(session, "n004", "n000", topic, data)
    assert isinstance(error, RemoteProtocolError) or error.code == RemoteProtocolError.default_status
    assert not first.ends
    second = session.ask("n001", FenceUpcall(PROCS[:2], (), b"<n001>"))
    session.hub.run()
    assert first.end == second.end == b"<n000><n001>"


def test_a_server_passes_on_contributions_of_the_servers_below_it_alone() -> None:
    count = 40
    session = LaunchedSession(count)
    session.describe()
    session.hub.run()
    procs = tuple([Proc("job", rank) for rank in range(count)])
    party = Party(procs, lambda proc: f"n{proc.rank:03}")
    below = [("n001", 1), ("n002", 2), ("n003", 3)]
    for others, is_refused in ((below[:1], False), (below, False), ([*below, ("n030", 9)], True)):
        covers, numbers = zip(*others, strict=True)
        part = Part(LATE, FENCE, party.label, party, covers=covers, numbers=numbers)
        life = session.exchanges["n000"].membership.life_of("n000")
        data = UPWARDS.write(("n000", life, LATE, write_parts((("n001", part),))))
        ends = request(session, "n001", "n000", UP, data)
        assert bool(ends) == is_refused
    assert "n001 contributes for n030" in str(ends[0][1])


def test_a_server_without_a_proc_in_it_ends_no_operation_whose_callers_are_not_complete(session: Any) -> None:
    ended: list[Any] = []

    def expire(*what: Any) -> None:
        ended.append(what[:3])
        what[3]()

    session.exchanges["n001"].collectives.expire = expire
    procs = PROCS[:2]
    for sender, is_refused in (("n004", True), ("n000", False)):
        data = NAMED.write((FENCE, "name", procs))
        ((_, error),) = request(session, sender, "n001", TIME_IS_OVER, data)
        assert (error is not None) == is_refused
    assert ended == [(FENCE, "name", procs)]


def test_data_of_a_fence_counts_from_the_server_whose_turn_it_is() -> None:
    session = Peers(3)
    session.register(*session.names)
    session.hub.run()
    procs, size = PROCS[:3], 200_000
    session.hub.drop = lambda sender, _to, message: sender == "n002" and b"collective.data" in message[:200]
    asked = [session.ask(name, FenceUpcall(procs, (), name.encode() * (size // 4))) for name in session.names]
    session.wait(1)
    assert not asked[0].ends and not asked[1].ends
    (local,) = session.exchanges["n001"].collectives.open()
    assert local.spreading is not None and local.spreading.missing_servers == ["n002"]
    name = local.spreading.name
    forged = spreading.PIECE.write((name, 1, b"x" * size))
    send(session, "n000", "n001", spreading.DATA, forged)
    send(session, "n000", "n001", spreading.VOID, spreading.VOIDED.write((name, statuses.ERROR, "", ())))
    session.wait(1)
    assert not asked[1].ends


@pytest.mark.parametrize("source", [Proc("job", 2), Proc("server-n004", 0)])
def test_a_server_raises_events_of_its_own_procs(session: Any, source: Proc) -> None:
    event = codec.EVENT.write((-3001, 2, source, ()))
    send(session, "n004", "n001", crossing.RAISED, event)
    heard = [each.source for each in session.servers["n001"].heard]
    assert heard == ([] if source.nspace == "job" else [source])
    send(session, "n002", "n001", crossing.RAISED, codec.EVENT.write((-3001, 2, Proc("job", 2), ())))
    assert session.servers["n001"].heard[-1].source == Proc("job", 2)


def test_a_server_that_is_not_the_root_passes_no_entries_on_and_they_count_all_the_same() -> None:
    """It was the root when they were on their way."""
    session = Peers(3)
    session.register(*session.names)
    session.hub.run()
    ended = session.crossings["n002"]
    # The news are on their way to the first one, which loses its place before they arrive.
    session.hub._delay = lambda sender, _to: 5.0 if sender == "n002" else 0.01
    ended.departed(Proc("job", 2))
    session.wait(0.1)
    session.names.insert(0, "m000")
    session.add("m000")
    session.hub.run()
    assert sorted(departed(session, 2)) == session.names
