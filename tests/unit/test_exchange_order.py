"""The way of entries from the root to all others: whose they are, what they cost, and what they precede."""

from __future__ import annotations

from random import Random

import pytest

from lib.exchange_session import LAUNCHER, LaunchedSession
from lib.exchange_session import Session as Peers
from lib.exchange_world import fence
from pypmix.engine.times import FORWARD_SECONDS, PACE_SECONDS
from pypmix.host.exchange import codec, jobs, membership, outbox, statelog
from pypmix.host.exchange.codec import BYTES, TEXT, message
from pypmix.standard.ops import Connect
from pypmix.standard.types import RANK_WILDCARD, Proc

pytestmark = pytest.mark.timeout(60)

BROADCAST = message(TEXT, BYTES)
ALL = (Proc("job", RANK_WILDCARD),)
PROCS = (Proc("job", 4), Proc("job", 5))


def described(count):
    session = LaunchedSession(count)
    session.describe()
    session.hub.run()
    session.hub.messages.clear()
    return session


def knows(session, rank):
    return [name for name in session.crossings if session.has_departed(name, rank)]


def submit(session, sender, *entries):
    exchange = session.exchanges[sender]
    data = statelog.ENTRIES.write(entries)
    exchange.soon(exchange.outbox.aside, exchange.root, statelog.SUBMITTED, data)
    session.wait(0.5)


def departure(origin, number, rank):
    return origin, number, statelog.NEWS, jobs._NEWS.write(((jobs.DEPARTED, 0, (Proc("job", rank),)),))


def listen(session, *names):
    """Keep the messages for all that each server gets."""
    heard = {name: [] for name in names}
    for name in names:
        session.exchanges[name].hear("words", lambda _sender, data, name=name: heard[name].append(data))
    return heard


@pytest.mark.parametrize(("count", "each"), [(32, PACE_SECONDS), (80, 0.001)])
def test_the_root_sends_entries_itself_at_a_pace_that_grows_with_the_servers(count, each, monkeypatch):
    monkeypatch.setattr(statelog, "PACE_SECONDS", each)
    session = described(count)
    began, seconds = session.hub.clock.now, 0.4
    for number in range(100):
        what = session.crossings["n003"].departed if number % 2 else session.crossings["n003"].connected
        session.hub.clock.at(began + number * seconds / 100, lambda what=what: what(Proc("job", 3)))
    session.hub.run()
    assert len(knows(session, 3)) == count + 1
    pace = max(FORWARD_SECONDS, each * (count + 1))
    assert session.hub.messages.keys() == {LAUNCHER, "n003"}
    assert session.hub.messages[LAUNCHER] <= count * (seconds / pace + 2)
    assert session.hub.messages[LAUNCHER] >= count * 2


def test_a_direct_message_of_the_root_takes_entries_along_and_costs_the_others_nothing():
    session = described(20)
    order = []
    session.exchanges["n003"].hear("words", lambda _sender, data: order.append((data, knows_two("n003"))))

    def knows_two(name):
        return [session.has_departed(name, rank) for rank in (18, 19)]

    session.crossings[LAUNCHER].departed(Proc("job", 18))
    session.exchanges[LAUNCHER].tell("n003", "words", b"1")
    assert session.hub.messages == {LAUNCHER: 1}
    session.crossings[LAUNCHER].departed(Proc("job", 19))
    session.exchanges[LAUNCHER].tell("n003", "words", b"2")
    session.exchanges[LAUNCHER].tell("n003", "words", b"3")
    assert session.hub.messages == {LAUNCHER: 3}
    session.hub.run()
    assert order == [(b"1", [True, False]), (b"2", [True, True]), (b"3", [True, True])]
    # The others get both entries in one message, and this one nothing else.
    assert session.hub.messages == {LAUNCHER: 3 + 19}
    assert knows(session, 18) == knows(session, 19) == [LAUNCHER, *session.names]


def test_entries_that_are_too_long_to_travel_with_a_message_go_before_it():
    session = described(3)
    heard = listen(session, "n001")
    launcher = session.exchanges[LAUNCHER]
    long = bytes(outbox.MAX_JOINED)
    launcher.soon(launcher.state.submit, statelog.BROADCAST, BROADCAST.write(("words", long)))
    launcher.tell("n001", "words", b"after")
    session.hub.run()
    assert heard["n001"] == [long, b"after"]
    assert session.hub.messages == {LAUNCHER: 2 + 2}


def test_entries_pass_the_messages_that_wait_for_them():
    """A server that becomes the root may have sent messages before whose basis its entries contain."""
    session = described(2)
    receiver = session.exchanges["n001"]
    heard = listen(session, "n001")["n001"]
    basis = statelog._BASIS.write((LAUNCHER, 1 << 40, 0))
    tell, aside = (
        codec.pack(kind, TEXT.write("words"), data) for kind, data in ((codec.TELL, b"2"), (codec.ASIDE, b"1"))
    )
    receiver.soon(receiver.arrivals.take, "n000", codec.pack(codec.BASED, basis, tell))
    receiver.soon(receiver.arrivals.take, "n000", codec.pack(codec.SEVERAL, aside, tell))
    assert heard == [b"1"]
    receiver.soon(receiver.state.know_job, 1 << 40)
    assert heard == [b"1", b"2", b"2"]


def test_a_server_submits_only_its_own_entries_to_a_launcher(caplog):
    session = described(3)
    submit(session, "n001", departure("n002", 1 << 62, 2), departure("n001", 1 << 62, 1))
    assert knows(session, 1) == [LAUNCHER, "n000", "n002"]
    assert knows(session, 2) == []
    assert "n001 submits an entry of n002" in caplog.text
    # Nor does another server pass them on as its own.
    data = statelog.ENTRIES.write((departure("n002", 1 << 62, 2),))
    session.exchanges["n001"].tell("n002", statelog.SUBMITTED, data)
    session.wait(0.5)
    assert knows(session, 2) == []
    assert "n001 may not send 'pypmix.state.submitted' to n002" in caplog.text
    # What the other one submits later counts.
    session.crossings["n002"].departed(Proc("job", 2))
    session.hub.run()
    assert knows(session, 2) == [LAUNCHER, *session.names]


def test_entries_that_are_submitted_again_or_out_of_order_do_not_count():
    session = described(4)
    heard = listen(session, *session.names[1:])
    words = [("n000", number, statelog.BROADCAST, BROADCAST.write(("words", b"%d" % number))) for number in (7, 8, 9)]
    submit(session, "n000", words[0], words[0], words[2], words[1])
    submit(session, "n000", *words)
    assert heard == {name: [b"7", b"9"] for name in session.names[1:]}


def test_a_server_that_submits_without_end_costs_the_others_a_few_messages():
    session = described(4)
    heard = listen(session, "n003")["n003"]
    for number in range(1, 1001):
        entry = "n000", number, statelog.BROADCAST, BROADCAST.write(("words", b"%d" % number))
        exchange = session.exchanges["n000"]
        exchange.soon(exchange.outbox.aside, LAUNCHER, statelog.SUBMITTED, statelog.ENTRIES.write((entry,)))
    session.hub.run()
    assert heard == [b"%d" % number for number in range(1, 1001)]
    assert session.hub.messages[LAUNCHER] == 4
    assert not session.exchanges[LAUNCHER].state._numbered


def test_only_the_root_has_a_way_for_entries(caplog):
    session = described(40)
    entries = (departure("n002", 1 << 62, 2), ("n001", 0, statelog.LOSS, b""))
    for topic in ("pypmix.state.ordered", "pypmix.state.forwarded"):
        session.exchanges["n001"].tell("n000", topic, statelog.ORDER.write((9, 9, entries)))
    session.hub.run()
    assert session.exchanges["n000"].members == (LAUNCHER, *session.names)
    assert knows(session, 2) == []
    assert "n001 may not send 'pypmix.state.ordered' to n000" in caplog.text


def test_a_server_doubts_others_only_in_its_own_name():
    """The launcher would declare one of the two lost, as if they had lost each other."""
    session = described(4)
    sender, named = session.exchanges["n000"], session.exchanges["n002"]
    doubt = membership._DOUBT.write(("n001", "n002", named.membership.life_of("n002")))
    ended = []
    sender.request(LAUNCHER, membership.DOUBT, doubt, lambda _data, error: ended.append(error))
    session.hub.run()
    assert len(ended) == 1 and "n000 reports a lost connection of n001" in str(ended[0])
    assert all(exchange.members == (LAUNCHER, *session.names) for exchange in session.exchanges.values())


def test_questions_for_agreement_are_kept_once_and_only_without_a_launcher():
    for session, kept in ((described(3), 0), (Peers(3), 1)):
        sender, receiver = session.exchanges["n001"], session.exchanges["n002"]
        for _ in range(100):
            sender.soon(sender.outbox.aside, "n002", membership.AGREE, codec.NAMES.write(("n000",)))
        session.hub.run()
        assert len(receiver.membership._questions) == kept


def test_each_next_root_of_a_session_without_a_launcher_continues():
    session = Peers(12)
    session.register(*session.names)
    session.hub.run()
    for root in session.names[:4]:
        rank = session.names.index(root) + 6
        session.crossings[session.names[rank]].departed(Proc("job", rank))
        session.hub.run()
        left = [name for name in session.names if name >= root]
        assert [name for name in left if session.crossings[name]._places.has_departed(Proc("job", rank))] == left
        # What waits for the root is sent again as soon as it is lost.
        ended = [session.ask(name, Connect(ALL, ())) for name in left if name != root]
        session.wait(1)
        session.hub.lose(root)
        session.wait(1)
        assert all(each.ends for each in ended)
        asked = [session.ask(name, fence(name, PROCS)) for name in ("n004", "n005")]
        session.wait(1)
        assert [each.end for each in asked] == [b"<n004><n005>"] * 2
    left = tuple(session.names[4:])
    assert {session.exchanges[name].members for name in left} == {left}


def test_the_agreement_on_a_lost_root_takes_steps_in_proportion_to_the_servers(monkeypatch):
    session = Peers(40)
    asked = []
    ask = membership.Membership._ask_agreement
    monkeypatch.setattr(
        membership.Membership, "_ask_agreement", lambda own, *question: asked.append(question) or ask(own, *question)
    )
    session.hub.lose("n000")
    session.hub.run()
    left = tuple(session.names[1:])
    assert {session.exchanges[name].members for name in left} == {left}
    assert 38 <= len(asked) <= 3 * 38


def test_a_root_that_is_lost_in_the_middle_leaves_all_with_the_same():
    session = Peers(8)
    session.register(*session.names)
    session.hub.run()
    # Its entries reach some of them.
    session.hub.drop = lambda sender, to, _message: sender == "n000" and to >= "n004"
    session.crossings["n006"].departed(Proc("job", 6))
    session.wait(0.1)
    informed = [name for name in session.names if session.crossings[name]._places.has_departed(Proc("job", 6))]
    assert informed == ["n000", "n001", "n002", "n003", "n006"]
    session.hub.lose("n000")
    session.hub.run()
    assert all(session.crossings[name]._places.has_departed(Proc("job", 6)) for name in session.names[1:])
    asked = [session.ask(name, fence(name, PROCS)) for name in ("n004", "n005")]
    session.hub.run()
    assert [each.end for each in asked] == [b"<n004><n005>"] * 2


def test_a_root_that_returns_numbers_anew():
    """Others wait for its entries, whatever its earlier process had sent."""
    session = Peers(3)
    session.register(*session.names)
    session.hub.run()
    state = session.exchanges["n001"].state
    basis = statelog._BASIS.write(("n000", 2, 0))
    assert state.has_basis("n002", basis)
    session.hub.lose("n000")
    session.hub.run()
    session.hub.drop = lambda sender, to, _message: (sender, to) == ("n000", "n001")
    session.add("n000")
    session.hub.run()
    assert session.exchanges["n001"].root == "n000"
    assert not state.has_basis("n002", basis)


def test_nobody_gets_entries_at_the_end_of_a_session():
    session = described(4)
    session.crossings["n001"].departed(Proc("job", 1))
    session.exchanges[LAUNCHER].conclude()
    session.hub.run()
    assert session.hub.messages == {"n001": 1}


@pytest.mark.parametrize("seed", range(40))
def test_all_get_each_message_once_whoever_is_lost_or_joins(seed):
    """Servers join, are lost, are slow and tell all; each that stays has got everything once."""
    random = Random(seed)
    session = described(random.randint(5, 24))
    exchanges, heard = session.exchanges, listen(session, *session.names)
    stays, told = set(session.names), []

    def tell(number):
        name = random.choice(sorted(stays))
        told.append(b"%d" % number)
        exchange = exchanges[name]
        heard[name].append(told[-1])
        exchange.soon(exchange.state.submit, statelog.BROADCAST, BROADCAST.write(("words", told[-1])))

    def send():
        exchanges[LAUNCHER].tell(random.choice(sorted(stays)), "other", b"")

    def lose():
        if len(stays) > 3:
            name = random.choice(sorted(stays))
            stays.discard(name)
            session.hub.lose(name)

    def slow():
        name = random.choice(sorted(stays))
        seconds = random.choice((0.001, 0.05, 0.2, 3.0))
        for other in session.names:
            session.slow[name, other] = seconds

    def join():
        name = f"n{len(session.names):03}"
        session.names.append(name)
        session.add(name)
        exchanges[name].hear("words", lambda _sender, _data: None)
        exchanges[name].hear("other", lambda _sender, _data: None)

    for name in session.names:
        exchanges[name].hear("other", lambda _sender, _data: None)
    for number in range(30):
        at = random.random() * random.choice((0.2, 5.0))
        session.hub.clock.later(at, lambda number=number: tell(number))
        session.hub.clock.later(at + 0.01, send)
        if random.random() < 0.5:
            session.hub.clock.later(at + random.random(), random.choice((lose, slow, join)))
    session.hub.run()
    # A message of a lost server may be lost with it.
    sure = [{*heard[name]} for name in stays]
    assert all(each == sure[0] for each in sure)
    assert all(len(heard[name]) == len({*heard[name]}) for name in stays)
