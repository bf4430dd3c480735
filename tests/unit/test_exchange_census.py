"""Which servers are present, as an introducer reports them: on virtual time, without a socket."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from pypmix.engine.times import ENDING_SECONDS, GATHER_SECONDS
from pypmix.host.exchange.census import ENTRIES, KNOWN, Census, Entry
from pypmix.host.exchange.inprocess import VirtualTime
from pypmix.standard.errors import RemoteProtocolError

FIRST = "first"


class Peers:
    """The carrier of one process, as its census sees it."""

    def __init__(self, world, name, mesh):
        self.world = world
        self.name = name
        self.loop = world.clock
        self.closing = 0.0
        self.streams = {}
        self.told = []
        self.lives = []
        self.dialed = []
        self.sent = 0
        self.forgotten = []
        self.dialer = SimpleNamespace(
            meet=lambda *each: self.dialed.append(each), reach=self.reach, forget=self.forgotten.append
        )
        self.census = Census(self, FIRST, mesh, (("127.0.0.1", world.port()),))

    def reach(self, name):
        other = self.world.servers.get(name)
        if other is not None and name not in self.streams and self.name not in other.streams:
            self.world.connect(self, other)

    def send_report(self, stream, data):
        self.sent += 1
        self.world.carry(self, stream, data)

    def appear(self, name):
        self.told.append((name, True))
        self.lives.append(self.census.present[name])

    def lose(self, stream, reason):
        if self.streams.get(stream.name) is stream:
            self.vanish(stream.name, reason)

    def vanish(self, name, reason, quiet=False):
        self.streams.pop(name, None)
        if name in self.census.present:
            self.census.remove(name, in_order=not reason)
            self.told.append((name, False))
            self.census.lose_introducer(name)


class World:
    """Processes that connect, send reports and end; what one sends another stays in order and takes a while."""

    def __init__(self, mesh=1, seed=0):
        self.random = random.Random(seed)
        self.clock = VirtualTime()
        self.mesh = mesh
        self.ports = 1
        self.arrivals = {}
        self.servers = {}
        self.join(FIRST)

    def port(self):
        self.ports += 1
        return self.ports

    def join(self, name, translated=False):
        """Start a process, which connects with the introducer."""
        peers = self.servers[name] = Peers(self, name, self.mesh)
        if name != FIRST:
            self.connect(peers, self.servers[FIRST], translated)
        return peers

    def connect(self, one, other, translated=False):
        """Connect two processes, unless one of them does not admit the other."""
        pair = ((one, other), (other, one))
        if any(
            not here.census.admits(there.name, there.census.life) or here.census.counts_as_lost(there.census.life)
            for here, there in pair
        ):
            return
        for here, there in pair:
            address = ("127.0.0.1", 0 if translated and there is one else 9)
            stream = SimpleNamespace(name=there.name, life=there.census.life, address=address, connection=True)
            stream.peers = there
            here.streams[there.name] = stream
            new = there.name not in here.census.present
            here.census.add(stream)
            if new:
                here.appear(there.name)

    def later(self, one, other, call):
        pair = one, other
        due = max(self.arrivals.get(pair, 0.0), self.clock.now + self.random.random() * 0.05)
        self.arrivals[pair] = due
        self.clock.at(due, call)

    def carry(self, sender, stream, data):
        receiver = stream.peers

        def arrive():
            back = receiver.streams.get(sender.name)
            if back is not None and back.peers is sender:
                receiver.census.take(back, data)

        self.later(sender, receiver, arrive)

    def end(self, name, left, silently=False):
        """End a process: the servers that it is connected with notice it, each in its time, or the introducer alone."""
        peers = self.servers.pop(name)
        for stream in peers.streams.values():
            other = stream.peers

            if silently and other.name != FIRST:
                continue

            def notice(other=other):
                back = other.streams.get(name)
                if back is not None and back.peers is peers:
                    other.vanish(name, "" if left else "it has died")

            self.later(peers, other, notice)
        peers.streams.clear()

    def check(self):
        """All know the same servers, and each was reported as present and ended in turn."""
        lives = {name: peers.census.life for name, peers in self.servers.items()}
        for name, peers in self.servers.items():
            others = {other: life for other, life in lives.items() if other != name}
            assert peers.census.present == others, name
            here = set()
            for other, joined in peers.told:
                assert (other in here) != joined, (name, peers.told)
                (here.add if joined else here.discard)(other)
            assert here == set(others)
            # No process is reported as present twice.
            assert len(set(peers.lives)) == len(peers.lives)


def test_few_servers_dial_the_earlier_ones():
    world = World(mesh=4)
    servers = []
    for name in "abc":
        servers.append(world.join(name))
        world.clock.run()
    assert [[name for name, *_ in server.dialed] for server in servers] == [[], ["a"], ["a", "b"]]
    assert servers[2].dialed[0][1] == servers[0].census._addresses
    assert not any(server.census.sparse for server in servers)
    # The next one is too many.
    late = world.join("d")
    world.clock.run()
    world.check()
    assert late.dialed == [] and all(server.census.sparse for server in world.servers.values())
    assert late.census.addresses_of("a") == servers[0].census._addresses


def test_a_server_behind_an_address_translation_connects_with_all_itself():
    world = World()
    for name in "abc":
        world.join(name)
    world.clock.run()
    hidden = world.join("h", translated=True)
    world.clock.run()
    late = world.join("z")
    world.clock.run()
    world.check()
    assert set(hidden.streams) == {FIRST, *"abcz"}
    assert set(late.streams) == {FIRST, "h"}


def test_a_server_without_an_address_is_not_dialed():
    """As it listens at all addresses of its machine, and its address is translated on the way."""
    world = World(mesh=4)
    hidden = world.servers["h"] = Peers(world, "h", 4)
    hidden.census._addresses = ()
    world.connect(hidden, world.servers[FIRST], translated=True)
    world.clock.run()
    late = world.join("z")
    world.clock.run()
    assert late.dialed == []


def test_two_servers_behind_address_translations_are_present_once_they_have_met():
    """Neither may reach the other: until they are connected, it is not present, and is reached by a detour."""
    world = World()
    for name in "abc":
        world.join(name)
    world.clock.run()
    one, other = (world.join(name, translated=True) for name in "gh")
    world.clock.run()
    for here, there in ((one, other), (other, one)):
        assert set(here.census.present) == {FIRST, *"abc"}
        assert here.dialed == [(there.name, there.census._addresses, 0)]
    world.connect(one, other)
    world.clock.run()
    world.check()


def test_a_server_that_ends_before_it_was_met_is_no_longer_dialed():
    world = World()
    one, _ = (world.join(name, translated=True) for name in "gh")
    world.clock.run()
    assert one.dialed and not one.forgotten
    world.end("h", left=False)
    world.clock.run()
    assert one.forgotten == ["h"] and set(one.census.present) == {FIRST}


def test_who_loses_the_introducer_loses_all():
    world = World()
    for name in "abc":
        world.join(name)
    world.clock.run()
    world.end(FIRST, left=True)
    world.clock.run()
    for name, server in world.servers.items():
        assert server.census.present == {}
        assert {other for other, here in server.told if not here} == {FIRST, *"abc"} - {name}


def test_who_was_reported_as_ended_is_not_admitted():
    """The introducer may have lost a process that lives, and so all have."""
    world = World()
    lost, other = world.join("a"), world.join("b")
    world.clock.run()
    world.servers[FIRST].vanish("a", "it is silent")
    world.clock.run()
    assert other.told == [(FIRST, True), ("a", True), ("a", False)]
    assert other.census.counts_as_lost(lost.census.life)
    # Before its presence is reported.
    late = world.join("c")
    while "c" not in world.servers[FIRST].census._records:
        world.clock.step()
    world.servers[FIRST].vanish("c", "it is silent")
    world.clock.run()
    assert ("c", True) not in other.told and other.census.counts_as_lost(late.census.life)


def test_a_report_that_comes_late_makes_nobody_present_again():
    world = World()
    short, other = world.join("a"), world.join("b")
    world.clock.run()
    entry = world.servers[FIRST].census._records["a"]
    world.servers["a"].reach("b")
    world.end("a", left=True)
    world.clock.run()
    other.census.take(other.streams[FIRST], ENTRIES.write((entry,)))
    assert short.name not in other.census.present
    assert other.told == [(FIRST, True), ("a", True), ("a", False)]


def test_the_last_messages_of_a_server_are_waited_for_a_moment():
    world = World()
    server, other = world.join("a"), world.join("b")
    world.clock.run()
    server.reach("b")
    world.end("a", left=True, silently=True)
    world.clock.run(world.clock.now + ENDING_SECONDS)
    assert other.told[-1] == ("a", True)
    world.clock.run()
    assert other.told[-1] == ("a", False)


def test_servers_that_join_together_are_reported_together():
    world = World()
    for number in range(200):
        world.join(f"s{number:03}")
    world.clock.run()
    world.check()
    # Each receives what was known when it joined, and the later ones in few messages.
    assert world.servers[FIRST].sent < 200 * 4
    assert all(server.sent == 1 for name, server in world.servers.items() if name != FIRST)


def test_the_end_of_one_of_many_is_reported_at_once_and_more_ends_together():
    world = World()
    names = [f"s{number:03}" for number in range(200)]
    for name in names:
        world.join(name)
    world.clock.run()
    first = world.servers[FIRST]
    before = first.sent
    first.vanish("s000", "it is silent")
    world.clock.run(world.clock.now + 1.5 * GATHER_SECONDS)
    assert first.sent == before + 199
    for name in names[1:100]:
        first.vanish(name, "it is silent")
        world.clock.run(world.clock.now + 0.2 * GATHER_SECONDS)
    world.clock.run()
    # These took 20 times as long as it gathers, and another report follows after 5 times of that.
    assert first.sent - before <= 199 + 6 * 199


@pytest.mark.parametrize("seed", range(300))
def test_whatever_happens_all_know_the_same_servers_in_the_end(seed):
    world = World(mesh=1 + seed % 3, seed=seed)
    choose = world.random
    names = [f"s{number}" for number in range(6)]
    # Of few servers each is present by its connection alone.
    for name in names[:4]:
        world.join(name)
    world.clock.run()
    for _ in range(40):
        others = sorted(world.servers.keys() - {FIRST})
        event = choose.random()
        if event < 0.3:
            name = choose.choice(names)
            # A later process of that name is admitted once the end of the one before was noticed.
            if name not in world.servers and name not in world.servers[FIRST].census.present:
                world.join(name)
        elif event < 0.5 and others:
            world.end(choose.choice(others), left=choose.random() < 0.5, silently=choose.random() < 0.5)
        elif len(others) > 1:
            one, other = choose.sample(others, 2)
            if other in world.servers[one].census.present:
                world.servers[one].reach(other)
        world.clock.run(world.clock.now + choose.random() * 0.1)
    world.clock.run()
    world.check()


@pytest.mark.parametrize("entries", [(), (Entry("a", b"x" * 16),), (Entry("b", b"x" * 16),)])
def test_only_the_introducer_reports_others(entries):
    world = World()
    for name in "ab":
        world.join(name)
    world.clock.run()
    world.servers["a"].reach("b")
    for receiver in (FIRST, "b"):
        stream = world.servers[receiver].streams["a"]
        with pytest.raises(RemoteProtocolError):
            world.servers[receiver].census.take(stream, ENTRIES.write(entries))
    world.check()


def test_a_server_introduces_itself_once():
    world = World()
    server = world.join("a")
    world.clock.run()
    first = world.servers[FIRST]
    before = first.sent
    again = ENTRIES.write((Entry("a", server.census.life, KNOWN, (("127.0.0.1", 1),)),))
    with pytest.raises(RemoteProtocolError):
        first.census.take(first.streams["a"], again)
    assert first.sent == before and first.census.addresses_of("a") == server.census._addresses
