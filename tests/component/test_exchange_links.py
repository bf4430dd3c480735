"""Connections between many servers: few of them, made when they are needed and let go; who is there is known to all."""

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
from pypmix.host.exchange import Exchange, TCPCarrier, codec, limits, roll, tcp
from pypmix.host.exchange.circle import ROLL
from pypmix.host.exchange.roll import ENTRY, LEFT, Entry, followers, neighbours
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
    """Return a function that makes servers which know each other by one of them, or as it is told."""
    made = []
    guest = getattr(request, "param", "") == "on a server"

    def make(count, **options):
        first = Server("s000", guest, **options).start()
        made.append(first)
        for number in range(1, count):
            made.append(Server(f"s{number:03}", guest, peers={"s000": first.carrier.address}, **options).start())
        return made

    def exchanges(count, **options):
        for _ in range(count):
            name = f"s{len(joined):03}"
            peers = {"s000": joined[0].carrier.address} if joined else {}
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


def are_neighbours(servers):
    ring = sorted(names_of(servers))
    return all(neighbours(ring, server.name) <= {*server.carrier.connected} for server in servers)


def test_who_follows_whom():
    ring = [f"s{number:04}" for number in range(1000)]
    follow = {name: followers(ring, name) for name in ring}
    assert {len(each) for each in follow.values()} == {10}
    for name in ring[::77]:
        assert neighbours(ring, name) == follow[name] | {other for other in ring if name in follow[other]}
    assert followers(["a"], "a") == neighbours(["a"], "a") == set()
    assert followers(["a", "b"], "b") == {"a"}


@pytest.mark.parametrize("count", [7, 8])
def test_few_are_all_connected(servers, count):
    found = servers(count, mesh=8)
    found[0].carrier.send("s001", b"nothing is lost by that")
    for server in found[1:]:
        # All know all: as a launcher tells them.
        for other in found[1:]:
            server.carrier.meet(other.name, (other.carrier.address,))
    wait_for_all(found)
    assert all(len(server.carrier.connected) == count - 1 for server in found)


@both_threads
def test_of_many_each_is_connected_with_few_and_knows_all(servers):
    found = servers(40, mesh=4, keep_alive=5)
    wait_for_all(found)
    until(lambda: are_neighbours(found))
    for server in found:
        comes = Counter()
        while not server.told.empty():
            comes[server.told.get()] += 1
        assert comes == Counter({(name, True): 1 for name in names_of(found) if name != server.name})
    # Those of the moments before, and of the first one that all have met, are let go: 11 neighbours are left.
    until(lambda: all(len(server.carrier.connected) <= 12 for server in found))
    assert are_neighbours(found)


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
def test_idle_connections_are_let_go_and_made_again_with_nothing_lost(servers):
    found = servers(16, mesh=2, keep_alive=3)
    wait_for_all(found)
    for turn in range(2):
        for sender in found:
            for receiver in found:
                if receiver is not sender:
                    sender.carrier.send(receiver.name, b"%d" % turn)
        for receiver in found:
            came = receiver.messages(15)
            assert {message for _, message in came} == {b"%d" % turn}
            assert len({sender for sender, _ in came}) == 15
        until(lambda: all(len(server.carrier.connected) <= 2 * 4 for server in found))
        assert are_neighbours(found)
    assert all(server.carrier.members == names_of(found) for server in found)


def test_messages_cross_connections_that_are_let_go(servers):
    """Connections are let go as soon as they are idle for a moment, while both sides go on sending."""
    found = servers(12, mesh=1, keep_alive=2)
    wait_for_all(found)
    a, b = found[0], next(s for s in found if s.name not in neighbours(sorted(names_of(found)), "s000") | {"s000"})
    sent = 0
    slept = 0
    end = time.monotonic() + 60
    while time.monotonic() < end and slept < 3:
        for one, other in ((a, b), (b, a)):
            one.carrier.send(other.name, b"%d" % sent)
        sent += 1
        slept += b.name not in a.carrier.connected
        time.sleep(2.1 if sent % 3 == 0 else 0.001)
    assert slept
    for one, other in ((a, b), (b, a)):
        assert one.messages(sent) == [(other.name, b"%d" % number) for number in range(sent)]


@both_threads
def test_who_leaves_has_gone_for_all(servers):
    found = servers(20, mesh=3)
    wait_for_all(found)
    for leaver in (found[7], found[0]):
        leaver.carrier.close()
        left = [server for server in found if server.is_there]
        until(lambda left=left: all(server.carrier.members == names_of(left) for server in left))
        assert all(server.carrier.reason(leaver.name) in ("", "others have seen its end") for server in left)


@both_threads
def test_what_is_sent_before_the_first_connection_arrives_before_its_sender_leaves(servers, patient):
    found = servers(20, mesh=1)
    wait_for_all(found)
    ring = sorted(names_of(found))
    a = found[3]
    b = next(server for server in found if server.name not in neighbours(ring, a.name) | {a.name, "s000"})
    a.carrier.send(b.name, b"last words")
    a.carrier.close()
    assert b.until_left(a.name) == [True, b"last words", False]


def far_pair(found, number=3):
    """Return a server and one that is not its neighbour."""
    ring = sorted(names_of(found))
    a = found[number]
    return a, next(server for server in found if server.name not in neighbours(ring, a.name) | {a.name, "s000"})


@both_threads
def test_what_is_sent_on_a_connection_that_was_let_go_arrives_before_its_sender_leaves(servers, patient):
    found = servers(12, mesh=1, keep_alive=2)
    wait_for_all(found)
    a, b = far_pair(found)
    a.carrier.send(b.name, b"first")
    until(lambda: a.carrier._peers.streams.get(b.name) is not None)
    until(lambda: a.carrier._peers.streams[b.name].asleep and a.carrier._peers.streams[b.name].number)
    a.carrier.send(b.name, b"last words")
    a.carrier.close()
    assert b.until_left(a.name) == [True, b"first", b"last words", False]


@both_threads
def test_what_is_sent_on_a_connection_that_is_reset_arrives_before_its_sender_leaves(servers, patient):
    found = servers(12, mesh=1)
    wait_for_all(found)
    a, b = far_pair(found)
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
def test_who_leaves_is_not_held_by_one_that_does_not_answer(servers):
    """What all others were sent arrives, and they are told of the departure, while that one still does not answer."""
    found = servers(12, mesh=1)
    wait_for_all(found)
    a, b = far_pair(found)
    others = [server for server in found if server not in (a, b)]
    held = threading.Event()
    b.carrier._peers.post(held.wait)  # until the end of the test
    for server in (b, *others):
        a.carrier.send(server.name, b"last words")
    a.carrier.close()
    for server in others:
        assert server.until_left(a.name) == [True, b"last words", False]
    held.set()


@both_threads
def test_what_is_told_to_all_arrives_before_its_sender_leaves(servers, patient, monkeypatch):
    """It goes by way of others, which take their time."""
    monkeypatch.setattr(limits, "MAX_MESH", 1)
    found = servers.exchanges(16, mesh=1)
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


PROGRAM = """
import sys
from pypmix.host.exchange import TCPCarrier
name, port, mesh, keep_alive = sys.argv[1:]
carrier = TCPCarrier(name, b"a secret of the session", peers={"s000": ("127.0.0.1", int(port))}, mesh=int(mesh),
                     keep_alive=float(keep_alive))
carrier.listen(lambda *_: None, lambda *_: None)
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process(servers):
    """Return a function that starts a server in a process of its own."""
    started = []

    def start(name, first, mesh, keep_alive):
        argv = [sys.executable, "-c", PROGRAM, name, str(first.carrier.address[1]), str(mesh), str(keep_alive)]
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
    victim = process(name, found[0], 2, NEVER)
    everyone = tuple(sorted((*names_of(found), name)))
    until(lambda: all(server.carrier.members == everyone for server in found))
    victim.kill()
    until(lambda: all(server.carrier.members == names_of(found) for server in found))


def test_who_is_stopped_is_lost_to_all_in_time_and_hears_so_when_it_goes_on(servers, process):
    found = servers(18, mesh=2, keep_alive=3)
    victim = process("s0005", found[0], 2, 3)
    everyone = tuple(sorted((*names_of(found), "s0005")))
    until(lambda: all(server.carrier.members == everyone for server in found))
    stop(victim.pid)
    until(lambda: all(server.carrier.members == names_of(found) for server in found))
    os.kill(victim.pid, signal.SIGCONT)
    time.sleep(1)
    assert all(server.carrier.members == names_of(found) for server in found)
    again = servers.also("s0005", peers={"s000": found[0].carrier.address}, mesh=2)
    until(lambda: all("s0005" in server.carrier.members for server in found))
    until(lambda: len(again.carrier.members) == 19)


def test_a_node_that_vanishes_before_its_neighbours_are_connected_is_lost_to_all_in_time(servers, process):
    """All have heard of it, and only one that is not its neighbour has a connection with it."""
    keep_alive = 4
    found = servers(18, mesh=2, keep_alive=keep_alive)
    wait_for_all(found)
    victim = process("s0105", found[0], 2, keep_alive)
    until(lambda: "s0105" in found[0].carrier.members)
    stop(victim.pid)
    until(lambda: all("s0105" in server.carrier.members for server in found))
    until(lambda: all(server.carrier.members == names_of(found) for server in found))


@pytest.mark.parametrize("names", [["s0105"], ["s0105", "s0106", "s0107", "s0108"]])
def test_nodes_that_vanish_without_a_word_are_lost_to_all_in_time(servers, process, names):
    """Among forty, in processes that are stopped; also such as are neighbours of each other."""
    keep_alive = 5
    found = servers(40 - len(names), mesh=4, keep_alive=keep_alive)
    victims = [process(name, found[0], 4, keep_alive) for name in names]
    everyone = tuple(sorted((*names_of(found), *names)))
    until(lambda: all(server.carrier.members == everyone for server in found))
    for victim in victims:
        stop(victim.pid)
    until(lambda: all(server.carrier.members == names_of(found) for server in found))
    until(lambda: are_neighbours(found))


def test_who_says_that_it_will_be_stopped_is_waited_for_by_those_that_have_no_connection_with_it(servers):
    found = servers(12, mesh=1, keep_alive=2)
    wait_for_all(found)
    found[5].carrier.away(True)
    time.sleep(0.5)
    # Nothing answers any more, as of a process that is stopped.
    held = threading.Event()
    found[5].carrier._peers.post(held.wait)
    for server in found:
        if server is not found[5]:
            server.carrier.send("s005", server.name.encode())
    time.sleep(5.0)
    others = [server for server in found if server is not found[5]]
    assert all("s005" in server.carrier.members for server in others)
    held.set()
    found[5].carrier.away(False)
    assert sorted(found[5].messages(11)) == sorted([(server.name, server.name.encode()) for server in others])


def test_a_server_that_comes_late_is_known_to_all_and_knows_all(servers):
    found = servers(20, mesh=3)
    wait_for_all(found)
    # By one that is not the first.
    late = servers.also("s100", peers={"s013": found[13].carrier.address}, mesh=3)
    wait_for_all(found)
    until(lambda: are_neighbours(found))
    late.carrier.send("s003", b"hello")
    assert found[3].messages(1) == [("s100", b"hello")]


def test_two_sessions_that_meet_become_one(servers):
    made = servers(10, mesh=2)
    other = servers.also("t000", mesh=2)
    for number in range(1, 10):
        servers.also(f"t{number:03}", peers={"t000": other.carrier.address}, mesh=2)
    until(lambda: all(len(server.carrier.members) == 10 for server in made))
    made[4].carrier.meet("t007", (made[17].carrier.address,))
    wait_for_all(made)


def test_peers_that_never_come_keep_nobody_from_the_others(servers):
    """All know where all would listen, and of most nobody does."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nowhere = gone.getsockname()
    peers = {f"p{number:03}": nowhere for number in range(60)}
    first = servers.also("p005x", peers=peers, mesh=4)
    second = servers.also("p040x", peers=peers | {"p005x": first.carrier.address}, mesh=4)
    until(lambda: first.carrier.members == second.carrier.members == ("p005x", "p040x"))


def test_a_server_that_cannot_be_reached_by_one_alone_is_lost_to_that_one(servers):
    """As where two nodes have no route to each other, and all others have: it shows when they talk."""
    found = servers(16, mesh=1, keep_alive=2.0)
    wait_for_all(found)
    until(lambda: are_neighbours(found))
    ring = sorted(names_of(found))
    a = found[3]
    b = next(server for server in found if server.name not in neighbours(ring, a.name) | {a.name, "s000"})
    until(lambda: b.name not in a.carrier.connected)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        # What dials it waits for an answer.
        a.carrier.meet(b.name, (silent.getsockname(),))
        if b.name in a.carrier._peers.streams:
            # They were neighbours while the others came.
            a.carrier._peers.streams[b.name].address = silent.getsockname()
        time.sleep(0.2)
        a.carrier.send(b.name, b"into the void")
        until(lambda: b.name not in a.carrier.members)
        assert "is not reached in 2 s" in a.carrier.reason(b.name)
        assert all(b.name in server.carrier.members for server in found if server is not a)


@both_threads
def test_a_reset_of_neighbours_costs_nobody_anything(servers):
    found = servers(16, mesh=2)
    wait_for_all(found)
    until(lambda: are_neighbours(found))
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


def say(server, to, *entries):
    """Have a server tell another one records of servers."""
    peers = server.carrier._peers
    stream = peers.streams[to.name]
    peers.post(lambda: peers.send_control(stream, codec.pack(ROLL, *entries)))


def test_a_member_that_says_that_another_has_left_is_believed_by_all_alike(servers):
    """Also by the one that is said to have left: it goes on alone, as if its process had ended for the others."""
    found = servers(16, mesh=2)
    wait_for_all(found)
    until(lambda: are_neighbours(found))
    victim, liar, other = found[6], found[3], found[4]
    say(liar, other, ENTRY.write(Entry(victim.name, victim.carrier._peers.circle.life, LEFT)))
    rest = [server for server in found if server is not victim]
    until(lambda: all(server.carrier.members == names_of(rest) for server in rest))
    until(lambda: victim.carrier.members == (victim.name,))
    for sender in rest:
        for receiver in rest:
            if receiver is not sender:
                sender.carrier.send(receiver.name, b"we go on")
    for server in rest:
        assert {message for _, message in server.messages(14)} == {b"we go on"}


def test_what_was_said_of_another_life_changes_nothing(servers):
    found = servers(16, mesh=2)
    wait_for_all(found)
    until(lambda: are_neighbours(found))
    for phase in (LEFT, LEFT - 1):
        say(found[3], found[4], ENTRY.write(Entry(found[6].name, os.urandom(16), phase)))
    say(found[3], found[4], ENTRY.write(Entry(found[4].name, os.urandom(16), LEFT)))
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nowhere = gone.getsockname()
    say(found[3], found[4], ENTRY.write(Entry("s0999", os.urandom(16), 0, (nowhere,))))
    until(lambda: all("s0999" in server.carrier.members for server in found))
    # It is not there: those whose neighbour it would be are refused, and say so.
    until(lambda: all(server.carrier.members == names_of(found) for server in found))


def test_another_process_under_the_name_of_one_that_is_there_comes_when_that_has_gone(servers):
    found = servers(8, mesh=2)
    wait_for_all(found)
    until(lambda: are_neighbours(found))
    with socket.create_server(("127.0.0.1", 0)) as place:
        first, second = (Entry("s0999", os.urandom(16), 0, (place.getsockname(),)) for _ in range(2))
        say(found[3], found[4], ENTRY.write(first), ENTRY.write(second), ENTRY.write(first.replace(phase=LEFT)))
        told = []
        until(lambda: told.append(found[4].next()) or told.count(("s0999", True)) == 2)
        assert [here for who, here in told if who == "s0999"] == [True, False, True]
        until(lambda: all(server.carrier._peers.circle.present.get("s0999") == second.life for server in found))


@pytest.mark.parametrize("data", [b"", b"\xff", b"s004", ENTRY.write(Entry("s", b"l" * 16))[:-1]])
def test_a_member_whose_records_do_not_parse_is_lost_to_the_one_that_hears_them(servers, data):
    found = servers(12, mesh=2)
    wait_for_all(found)
    until(lambda: are_neighbours(found))
    say(found[3], found[4], data)
    until(lambda: "s003" not in found[4].carrier.members)
    assert all(server.is_there for server in found)


def test_records_of_thousands_of_servers_that_are_not_there_cost_a_bounded_amount(servers, monkeypatch):
    """Of sockets, threads and memory; members talk to each other meanwhile."""
    monkeypatch.setattr(roll, "MAX_SERVERS", 1000)
    found = servers(8, mesh=4)
    wait_for_all(found)
    until(lambda: are_neighbours(found))
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nowhere = gone.getsockname()
    for number in range(40):
        names = [f"x{number * 50 + each:05}" for each in range(50)]
        for place, some in ((nowhere, names[:20]), (("no.invalid", 9), names[20:])):
            say(found[2], found[3], *(ENTRY.write(Entry(name, os.urandom(16), 0, (place,))) for name in some))
    until(lambda: len(found[3].carrier.members) == 1000)
    for sender in found:
        for receiver in found:
            if receiver is not sender:
                sender.carrier.send(receiver.name, b"we go on")
    for server in found:
        assert {message for _, message in server.messages(7)} == {b"we go on"}
    assert threading.active_count() < 100
    for server in found:
        assert len(server.carrier._peers.circle._roll._changes) <= 1000 + limits.MAX_ENDED
        assert len(server.carrier._peers.connections) < 100


def test_few_names_are_looked_up_at_a_time(servers, monkeypatch):
    asked, over = [], threading.Event()

    def resolved(host, port, kind, flags=0):
        if not flags:
            asked.append(host)
            over.wait(PATIENCE)
        raise OSError("no such name")

    monkeypatch.setattr(addresses, "resolved", resolved)
    servers.also("s", peers={f"p{number:04}": ("a.name", 9) for number in range(500)}, mesh=1000)
    until(lambda: len(asked) == limits.MAX_RESOLVING)
    time.sleep(0.5)
    assert len(asked) == limits.MAX_RESOLVING
    over.set()
    until(lambda: len(asked) >= 500)


def test_peers_by_the_thousand_are_not_dialed_all_at_once(servers):
    most = 0

    def met():
        nonlocal most
        most = max(most, len(second.carrier._peers.connections))
        return first.carrier.members == second.carrier.members == ("p0100x", "p0800x")

    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        peers = {f"p{number:04}": silent.getsockname() for number in range(1000)}
        first = servers.also("p0100x", mesh=4)
        second = servers.also("p0800x", peers=peers | {"p0100x": first.carrier.address}, mesh=4)
        until(met)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            assert met()
            time.sleep(0.05)
    assert 0 < most < 700


def test_mesh_is_a_number():
    for wrong in (0, -1, 1.5, "8", None, True):
        with pytest.raises(ValueError, match="mesh is a number"):
            TCPCarrier("a", SECRET, mesh=wrong)
