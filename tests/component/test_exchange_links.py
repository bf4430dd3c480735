"""Connections between many servers that one of them introduces: few, made when they are needed; all know all."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from queue import SimpleQueue

import pytest

from lib.processes import stop
from pypmix.engine import times
from pypmix.engine.python.reactor import Guest, Reactor
from pypmix.host import addresses
from pypmix.host.exchange import Exchange, TCPCarrier, limits, tcp
from pypmix.host.exchange.census import ENDED, ENTRIES, LEFT, PRESENT, Entry
from pypmix.host.exchange.stream import ConnectionEnd

pytestmark = pytest.mark.timeout(300)

SECRET = b"a secret of the session"
PATIENCE = 120
NEVER = 3600.0
"""A keep-alive that is longer than any test."""


class Server:
    """A carrier, and what it is told; as a guest it lives on the thread of a server."""

    def __init__(self, name, guest=False, **options):
        self.name = name
        self.told = SimpleQueue()
        self.carrier = TCPCarrier(name, SECRET, **options)
        self.reactor = None
        if guest:
            self.reactor = Reactor(f"server of {name}", print)
            self.reactor.start()
            self.carrier.live_on(Guest(self.reactor))

    @property
    def is_there(self):
        return not self.carrier._peers.has_ended

    def close(self):
        self.carrier.close()
        self.end()

    def end(self):
        if self.reactor is not None:
            # On the loop of a busy server it may take longer than a carrier waits.
            until(lambda: not self.is_there)
            self.reactor.stop()

    def start(self):
        self.carrier.listen(lambda *what: self.told.put(what), lambda *what: self.told.put(what))
        return self

    def next(self, seconds=PATIENCE):
        return self.told.get(timeout=seconds)

    def until_left(self, name):
        """Return what is told of one server until it has left."""
        found = []
        while not found or found[-1] is not False:
            who, what = self.next()
            if who == name:
                found.append(what)
        return found

    def messages(self, count):
        """Return the next messages, without what is said of servers."""
        found = []
        while len(found) < count:
            sender, what = self.next()
            if not isinstance(what, bool):
                found.append((sender, what))
        return found


class Joined(Server):
    """A carrier with an exchange."""

    def __init__(self, name, guest, **options):
        super().__init__(name, guest, **options)
        self.exchange = Exchange(self.carrier)

    def close(self):
        self.exchange.close()
        self.end()


@pytest.fixture
def servers(request):
    """Return a function that makes servers which the first one introduces, or as it is told."""
    made = []
    guest = getattr(request, "param", "") == "on a server"

    def make(count, **options):
        first = Server("s000", guest, introducer="s000", **options).start()
        made.append(first)
        for number in range(1, count):
            peers = {"s000": first.carrier.address}
            made.append(Server(f"s{number:03}", guest, peers=peers, introducer="s000", **options).start())
        return made

    def exchanges(count, **options):
        for _ in range(count):
            name = f"s{len(joined):03}"
            peers = {each.name: each.carrier.address for each in joined}
            joined.append(Joined(name, guest, peers=peers, **options))
        for each in joined:
            each.exchange.start()
        return [each.exchange for each in joined]

    joined = []
    make.exchanges = exchanges
    make.also = lambda name, **options: made.append(Server(name, guest, **options)) or made[-1].start()
    yield make
    threads = [threading.Thread(target=server.close) for server in (*made, *joined)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(server.is_there for server in made)


@pytest.fixture
def patient(monkeypatch):
    """Have the time to leave be enough for a machine that is busy."""
    monkeypatch.setattr(tcp, "LINK_LINGER_SECONDS", 60.0)
    monkeypatch.setattr(times, "LINK_LINGER_SECONDS", 60.0)


both_threads = pytest.mark.parametrize("servers", ["alone", "on a server"], indirect=True)
"""Carriers with a thread of their own, and such as live on that of a server."""


def until(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def names_of(servers):
    return tuple([server.name for server in servers])


def wait_for_all(servers):
    names = names_of(servers)
    until(lambda: all(server.carrier.members == names for server in servers))


@pytest.mark.parametrize("count", [7, 8])
def test_few_are_all_connected(servers, count):
    found = servers(count, mesh=8)
    found[0].carrier.send("s001", b"nothing is lost by that")
    wait_for_all(found)
    assert all(len(server.carrier.connected) == count - 1 for server in found)


@both_threads
def test_of_many_each_is_connected_with_few_and_knows_all(servers):
    found = servers(40, mesh=4)
    wait_for_all(found)
    for server in found:
        comes = Counter([server.next() for _ in found[1:]])
        assert comes == Counter({(name, True): 1 for name in names_of(found) if name != server.name})
        assert server.told.empty()
    # Those that came first, whichever they were, have dialed each other; nobody else has.
    further = {server.name: set(server.carrier.connected) - {"s000"} for server in found[1:]}
    dialers = {name for name, others in further.items() if others}
    assert len(dialers) < 4
    assert all(others <= dialers for others in further.values())


def test_any_two_reach_each_other_and_messages_stay_in_order(servers):
    found = servers(24, mesh=2)
    wait_for_all(found)
    for sender in found:
        for number in range(5):
            for receiver in found:
                if receiver is not sender:
                    sender.carrier.send(receiver.name, b"%s %d" % (sender.name.encode(), number))
    for receiver in found:
        came = {}
        for sender, message in receiver.messages(5 * 23):
            came.setdefault(sender, []).append(message)
        assert came == {
            sender.name: [b"%s %d" % (sender.name.encode(), number) for number in range(5)]
            for sender in found
            if sender is not receiver
        }


@both_threads
def test_who_leaves_has_gone_for_all(servers, patient):
    found = servers(20, mesh=3)
    wait_for_all(found)
    for leaver in (found[7], found[1]):
        leaver.carrier.close()
        left = [server for server in found if server.is_there]
        until(lambda left=left: all(server.carrier.members == names_of(left) for server in left))
        assert all(server.carrier.reason(leaver.name) in ("", "others have seen its end") for server in left)


@both_threads
def test_what_is_sent_before_the_first_connection_arrives_before_its_sender_leaves(servers, patient):
    found = servers(20, mesh=1)
    wait_for_all(found)
    a, b = found[3], found[8]
    a.carrier.send(b.name, b"last words")
    a.carrier.close()
    assert b.until_left(a.name) == [True, b"last words", False]


@both_threads
def test_what_is_sent_on_a_connection_that_is_reset_arrives_before_its_sender_leaves(servers, patient):
    found = servers(12, mesh=1)
    wait_for_all(found)
    a, b = found[3], found[8]
    a.carrier.send(b.name, b"first")
    until(lambda: b.name in a.carrier.connected)
    reset(a.carrier, a.carrier._peers.streams[b.name])
    a.carrier.send(b.name, b"last words")
    a.carrier.close()
    assert b.until_left(a.name) == [True, b"first", b"last words", False]


@both_threads
def test_what_takes_long_to_arrive_does_so_before_its_sender_leaves(servers, patient):
    """To all others at a time, of which most have no connection with it yet."""
    found = servers(16, mesh=1)
    wait_for_all(found)
    a = found[5]
    words = [bytes((number,)) * 300_000 for number in range(1, 4)]
    for other in found:
        if other is not a:
            for word in words:
                a.carrier.send(other.name, word)
    a.carrier.close()
    for other in found:
        if other is not a:
            assert other.until_left(a.name) == [True, *words, False]


@both_threads
def test_who_leaves_is_not_held_by_one_that_does_not_answer(servers, patient):
    """What all others were sent arrives, and they are told of the departure, while that one still does not answer."""
    found = servers(12, mesh=1)
    wait_for_all(found)
    a, b = found[3], found[8]
    others = [server for server in found if server not in (a, b)]
    held = threading.Event()
    b.carrier._peers.post(held.wait)  # until the end of the test
    for server in (b, *others):
        a.carrier.send(server.name, b"last words")
    leaves = threading.Thread(target=a.carrier.close)
    leaves.start()
    for server in others:
        assert server.messages(1) == [(a.name, b"last words")]
    assert a.is_there
    a.carrier._peers.post(lambda: pass_time(a.carrier._peers))
    for server in others:
        assert server.until_left(a.name) == [False]
    held.set()
    leaves.join(PATIENCE)


def pass_time(peers):
    """Let the time be over that messages have to arrive before a server leaves."""
    peers.closing = time.monotonic()
    peers.departure.finish()


@both_threads
def test_what_is_told_to_all_arrives_before_its_sender_leaves(servers, patient, monkeypatch):
    """It goes by way of others, which take their time."""
    monkeypatch.setattr(limits, "MAX_MESH", 1)
    found = servers.exchanges(16)
    told = {exchange.name: [] for exchange in found}
    for exchange in found:
        mine = told[exchange.name]
        exchange.hear("t", lambda sender, data, mine=mine: mine.append((sender, data)))
        exchange.watch(lambda name, here, mine=mine: mine.append((name, here)))
    names = tuple(exchange.name for exchange in found)
    until(lambda: all(exchange.members == names for exchange in found))
    for leaver in (found[4], found[0], found[11]):
        for number in range(20):
            leaver.broadcast("t", b"%d" % number)
        leaver.close()
        found.remove(leaver)
        for exchange in found:
            mine = told[exchange.name]
            until(lambda mine=mine, leaver=leaver: (leaver.name, False) in mine)
            heard = [what for who, what in mine if who == leaver.name and what is not True]
            assert heard == [*(b"%d" % number for number in range(20)), False], exchange.name


@pytest.mark.parametrize("reachable", [True, False])
def test_servers_behind_address_translations_meet_directly_or_through_the_introducer(servers, reachable):
    """Their address is not the one that the introducer sees; in one case, nobody listens there."""
    first = TCPCarrier("s0", SECRET, introducer="s0", mesh=2)
    carriers = [first]
    for name in "abcd":
        options = {"peers": {"s0": first.address}, "introducer": "s0", "mesh": 2, "keep_alive": NEVER}
        carriers.append(TCPCarrier(name, SECRET, listen=("127.0.0.2", 0), **options))
        if not reachable:
            carriers[-1]._peers.census._addresses = (("127.0.0.3", 9),)
    exchanges = [Exchange(carrier) for carrier in carriers]
    results = SimpleQueue()
    try:
        for exchange in exchanges:
            exchange.follow("s0")
            exchange.start()
        met = set("bcd") if reachable else set()
        until(lambda: set(carriers[1].connected) == {"s0", *met})
        for exchange in exchanges[1:]:
            exchange.allgather(b"all", "abcd", exchange.name.encode(), lambda *result: results.put(result))
        for _ in "abcd":
            gathered, error = results.get(timeout=PATIENCE)
            assert error is None and gathered.blobs == {name: name.encode() for name in "abcd"}
        assert set(carriers[1].connected) == {"s0", *met}
    finally:
        for exchange in exchanges:
            exchange.close()


PROGRAM = """
import sys
from pypmix.host.exchange import TCPCarrier
name, port, keep_alive = sys.argv[1:]
carrier = TCPCarrier(name, b"a secret of the session", peers={"s000": ("127.0.0.1", int(port))}, introducer="s000",
                     keep_alive=float(keep_alive))
carrier.listen(lambda *_: None, lambda *_: None)
print("up", flush=True)
sys.stdin.read()
"""


INTRODUCER = """
import sys
from pypmix.host.exchange import TCPCarrier
carrier = TCPCarrier("first", b"a secret of the session", introducer="first", mesh=1)
carrier.listen(lambda *_: None, lambda *_: None)
print(carrier.address[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process(servers):
    """Return a function that starts a server in a process of its own."""
    started = []

    def start(name, first, keep_alive):
        argv = [sys.executable, "-c", PROGRAM, name, str(first.carrier.address[1]), str(keep_alive)]
        started.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert started[-1].stdout.readline() == b"up\n"
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()
        each.stdin.close()
        each.stdout.close()


@pytest.mark.parametrize("name", ["r", "s0005", "t"])
def test_who_is_killed_is_lost_to_all_at_once(servers, process, name):
    found = servers(18, mesh=2, keep_alive=NEVER)
    victim = process(name, found[0], NEVER)
    everyone = tuple(sorted((*names_of(found), name)))
    until(lambda: all(server.carrier.members == everyone for server in found))
    victim.kill()
    until(lambda: all(server.carrier.members == names_of(found) for server in found))


def test_who_is_stopped_is_lost_to_all_in_time_and_hears_so_when_it_goes_on(servers, process):
    found = servers(18, mesh=2, keep_alive=6)
    victim = process("s0005", found[0], 6)
    everyone = tuple(sorted((*names_of(found), "s0005")))
    until(lambda: all(server.carrier.members == everyone for server in found))
    stop(victim.pid)
    until(lambda: all(server.carrier.members == names_of(found) for server in found))
    os.kill(victim.pid, signal.SIGCONT)
    time.sleep(1)
    assert all(server.carrier.members == names_of(found) for server in found)
    again = servers.also("s0005", peers={"s000": found[0].carrier.address}, introducer="s000")
    until(lambda: all("s0005" in server.carrier.members for server in found))
    until(lambda: len(again.carrier.members) == 19)


def test_a_node_that_vanishes_as_soon_as_it_has_come_is_lost_to_all_in_time(servers, process):
    keep_alive = 6
    found = servers(18, mesh=2, keep_alive=keep_alive)
    wait_for_all(found)
    victim = process("s0105", found[0], keep_alive)
    # Connected, and introduced: a process that is stopped in between has come to nobody else.
    until(lambda: "s0105" in found[0].carrier._peers.census._records)
    stop(victim.pid)
    # On a busy machine some may lose it before the others hear of it.
    for server in found:
        assert server.until_left("s0105") == [True, False]
    assert all(server.carrier.members == names_of(found) for server in found)


@pytest.mark.parametrize("names", [["s0105"], ["s0105", "s0106", "s0107", "s0108"]])
def test_nodes_that_vanish_without_a_word_are_lost_to_all_in_time(servers, process, names):
    """Among forty, in processes that are stopped."""
    keep_alive = 6
    found = servers(40 - len(names), mesh=4, keep_alive=keep_alive)
    victims = [process(name, found[0], keep_alive) for name in names]
    everyone = tuple(sorted((*names_of(found), *names)))
    until(lambda: all(server.carrier.members == everyone for server in found))
    for victim in victims:
        stop(victim.pid)
    until(lambda: all(server.carrier.members == names_of(found) for server in found))


def test_an_introducer_that_says_that_it_will_be_stopped_is_waited_for(servers):
    found = servers(12, mesh=1, keep_alive=4)
    wait_for_all(found)
    first, *others = found
    first.carrier.away(True)
    until(lambda: all(server.carrier._peers.streams["s000"].away for server in others))
    # Nothing answers any more, as of a process that is stopped.
    held = threading.Event()
    first.carrier._peers.post(held.wait)
    for server in others:
        server.carrier.send("s000", server.name.encode())
    time.sleep(8.0)
    assert all("s000" in server.carrier.members for server in others)
    held.set()
    first.carrier.away(False)
    assert sorted(first.messages(11)) == sorted([(server.name, server.name.encode()) for server in others])


def test_a_server_that_comes_late_is_known_to_all_and_knows_all(servers):
    found = servers(20, mesh=3)
    wait_for_all(found)
    late = servers.also("s100", peers={"s000": found[0].carrier.address}, introducer="s000")
    wait_for_all(found)
    late.carrier.send("s003", b"hello")
    assert found[3].messages(1) == [("s100", b"hello")]


def test_peers_that_never_come_keep_nobody_from_the_others(servers):
    """All know where all would listen, and of most nobody does."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nowhere = gone.getsockname()
    peers = {f"p{number:03}": nowhere for number in range(60)}
    first = servers.also("p005x", peers=peers)
    second = servers.also("p040x", peers=peers | {"p005x": first.carrier.address})
    until(lambda: first.carrier.members == second.carrier.members == ("p005x", "p040x"))


def test_a_server_that_cannot_be_reached_by_one_alone_is_lost_to_that_one(servers):
    """As where two nodes have no route to each other, and all others have: it shows when they talk."""
    found = servers(16, mesh=1, keep_alive=NEVER)
    wait_for_all(found)
    a, b = found[3], found[8]
    # Its time alone: on a busy machine, others might be silent for as long.
    a.carrier._peers.settings = a.carrier._peers.settings.replace(keep_alive=5.0)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        # What dials it waits for an answer.
        records = a.carrier._peers.census._records
        records[b.name] = records[b.name].replace(addresses=(silent.getsockname(),))
        a.carrier.send(b.name, b"into the void")
        until(lambda: b.name not in a.carrier.members)
        assert "is not reached in 5 s" in a.carrier.reason(b.name)
        assert all(b.name in server.carrier.members for server in found if server is not a)


@both_threads
def test_resets_cost_nobody_anything(servers):
    found = servers(16, mesh=2)
    wait_for_all(found)
    for turn in range(3):
        for server in found[::3]:
            for link in list(server.carrier._peers.streams.values()):
                reset(server.carrier, link)
        for server in found:
            for other in found:
                if other is not server:
                    server.carrier.send(other.name, b"%d" % turn)
        for server in found:
            assert {message for _, message in server.messages(15)} == {b"%d" % turn}
    assert all(server.carrier.members == names_of(found) for server in found)


def reset(carrier, stream):
    """Have a connection be reset, as a firewall does, on the thread of its carrier."""

    def end():
        if (connection := stream.connection) is not None:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            carrier._peers.end_connection(connection, ConnectionEnd("a test resets it", reset=True))

    carrier._peers.post(end)


# Members that say what is not so, or too much


def say(server, to, data):
    """Have a server send another one a report."""
    peers = server.carrier._peers
    stream = peers.streams[to.name]
    peers.post(lambda: peers.send_report(stream, data))


BAD = [
    b"",
    b"\xff",
    b"s004",
    ENTRIES.write((Entry("s", b"l" * 16, PRESENT),))[:-1],
    ENTRIES.write((Entry("s", b"l" * 16, PRESENT),)),
    ENTRIES.write((Entry("s004", b"l" * 16, LEFT),)),
    ENTRIES.write(()),
]


@pytest.mark.parametrize("data", BAD)
def test_a_member_that_reports_others_is_lost_to_the_introducer_and_so_to_all(servers, data):
    found = servers(6, mesh=2)
    wait_for_all(found)
    say(found[3], found[0], data)
    rest = [server for server in found if server is not found[3]]
    until(lambda: all(server.carrier.members == names_of(rest) for server in rest))
    until(lambda: found[3].carrier.members == ("s003",))


@pytest.mark.parametrize("data", BAD)
def test_a_member_that_reports_others_is_lost_to_the_one_that_hears_it(servers, data):
    found = servers(6, mesh=2)
    wait_for_all(found)
    found[3].carrier.send("s004", b"a connection")
    assert found[4].messages(1) == [("s003", b"a connection")]
    say(found[3], found[4], data)
    until(lambda: "s003" not in found[4].carrier.members)
    assert all(server.is_there for server in found)


def test_what_is_reported_of_another_process_changes_nothing(servers):
    found = servers(6, mesh=2)
    wait_for_all(found)
    for state in (ENDED, LEFT):
        say(found[0], found[4], ENTRIES.write((Entry("s003", os.urandom(16), state),)))
    say(found[0], found[4], ENTRIES.write((Entry("s004", os.urandom(16), LEFT),)))
    say(found[0], found[4], ENTRIES.write((Entry("s999", os.urandom(16), PRESENT),)))
    until(lambda: "s999" in found[4].carrier.members)
    assert set(found[4].carrier.members) == {*names_of(found), "s999"}


def test_another_process_under_the_name_of_a_present_one_ends_that(servers):
    found = servers(6, mesh=2)
    wait_for_all(found)
    first, second = (Entry("s999", os.urandom(16), PRESENT) for _ in range(2))
    over = first.replace(state=LEFT)
    # The reports of the first one come late, and once more.
    for entry in (first, second, over, first, over):
        say(found[0], found[4], ENTRIES.write((entry,)))
    say(found[0], found[4], ENTRIES.write((Entry("last", os.urandom(16), PRESENT),)))
    told = []
    until(lambda: told.append(found[4].next()) or ("last", True) in told)
    assert [here for who, here in told if who == "s999"] == [True, False, True]
    assert found[4].carrier._peers.census.present["s999"] == second.life


def test_who_loses_the_introducer_loses_all(servers, process):
    argv = [sys.executable, "-c", INTRODUCER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        port = int(first.stdout.readline())
        try:
            peers = {"first": ("127.0.0.1", port)}
            found = [servers.also(name, peers=peers, introducer="first", keep_alive=NEVER) for name in ("a", "b", "c")]
            until(lambda: all(server.carrier.members == ("a", "b", "c", "first") for server in found))
        finally:
            first.kill()
        until(lambda: all(server.carrier.members == (server.name,) for server in found))


def test_few_names_are_looked_up_at_a_time(servers, monkeypatch):
    asked, over = [], threading.Event()

    def resolved(host, port, kind, flags=0):
        if not flags:
            asked.append(host)
            over.wait(PATIENCE)
        raise OSError("no such name")

    monkeypatch.setattr(addresses, "resolved", resolved)
    servers.also("s", peers={f"p{number:04}": ("a.name", 9) for number in range(500)})
    until(lambda: len(asked) == limits.MAX_RESOLVING)
    time.sleep(0.5)
    assert len(asked) == limits.MAX_RESOLVING
    over.set()
    until(lambda: len(asked) >= 500)


def test_mesh_is_a_number():
    for wrong in (0, -1, 1.5, "8", None, True):
        with pytest.raises(ValueError, match="mesh is a number"):
            TCPCarrier("a", SECRET, mesh=wrong)
