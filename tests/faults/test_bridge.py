"""Proves that servers that reach only the root agree, whoever is killed, stopped, slow or late, the root included.

The carriers, the exchanges and the streams between them are real, with their threads. The test makes the turns of the
keep-alive.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.crossing_world import LAUNCHER, World, finish, play
from pypmix.host.addresses import hang_up
from pypmix.host.exchange import Exchange, Hub, TCPCarrier, bridge
from pypmix.host.exchange.keepalive import LOST

pytestmark = pytest.mark.timeout(300)

ROUNDS = int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")) or 24
BLOCKS = 4
PATIENCE = 60.0
NEVER = 1e6
SECRET = b"a secret of the session"
ROOT = "root"

LEFT, KILLED, LOSS = "left", "killed", "loss"


def until(condition):
    """Wait until something is so; tell whether it is."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


class Line:
    """The stream of a server, which may be slow, and stand still as if the server were stopped."""

    def __init__(self, connection, pause):
        self.connection = connection
        self.goes = threading.Event()
        self.goes.set()
        self.pause = pause

    def read(self):
        data = self.connection.recv(1 << 16)
        self._stand()
        return data

    def write(self, data):
        self._stand()
        self.connection.sendall(data)

    def close(self):
        hang_up(self.connection)
        self.goes.set()

    def _stand(self):
        self.goes.wait()
        if self.pause:
            time.sleep(self.pause)


class Server:
    """A server, and what it hears: who has come and gone, and the numbers of broadcasts and messages to it alone.

    Attributes:
        end: How it has ended, empty while it lives.
        patient: Whether it had the time to say its last words.
        joined: Whether the root has it, as of the last turn.
        stood: Whether it may have stood still since it was last known to have answered.
        owed: The requests that it has made, with their answers.
    """

    def __init__(self, session, name):
        self.name = name
        self.end = ""
        self.stood = self.patient = self.joined = False
        self.log = []
        self.said = 0
        self.to = {}
        self.owed = []
        self.carrier = TCPCarrier(name, SECRET, listen=None, introducer=ROOT, keep_alive=NEVER)
        self.exchange = exchange = Exchange(self.carrier)
        exchange.follow(ROOT)
        if name == ROOT:
            exchange.detours.introduce_all()
        exchange.hear("all", lambda who, data: self.log.append((who, "all", int(data[:8]))))
        exchange.hear("one", lambda who, data: self.log.append((who, "one", int(data[:8]))))
        exchange.handle("double", lambda who, data, reply: reply(2 * data, None))
        exchange.watch(lambda who, here: self.log.append((who, "here" if here else "gone", 0)))
        exchange.start()
        ours, theirs = socket.socketpair()
        self.line = Line(ours, session.chance.choice((0, 0, 0, 0.002)))
        if name == ROOT:
            theirs.close()
        else:
            bridge.connect(session.root.carrier, self.line)
            self.carrier.attach(theirs, ROOT)

    def turn(self):
        """Make a turn of its keep-alive."""
        self.carrier._peers.post(self.carrier._peers.keep_alive.turn)

    @property
    def stands(self):
        return not self.line.goes.is_set()

    def broadcast(self, size=0):
        self.said += 1
        self.exchange.broadcast("all", b"%08d" % self.said + bytes(size))

    def tell(self, to, size=0):
        number = self.to[to] = self.to.get(to, 0) + 1
        self.exchange.tell(to, "one", b"%08d" % number + bytes(size))

    def ask(self, to):
        answers = []
        self.owed.append((to, answers))
        self.exchange.request(to, "double", b"%d" % len(self.owed), lambda *answer: answers.append(answer))

    def heard(self, name, kind):
        """Return the last number of another one, since it came last."""
        last = None
        for who, what, number in list(self.log):
            if who == name and what in ("here", kind):
                last = number or None
        return last


class Session:
    """Some servers and the root."""

    def __init__(self, seed):
        self.chance = Random(seed)
        self.root_lost = False
        self.made = []
        self.names = 0
        self.join(ROOT)
        self.root = self.made[0]
        for _ in range(self.chance.randint(2, 7)):
            self.join(self._name())

    @property
    def live(self):
        return [server for server in self.made if not server.end]

    def _name(self):
        self.names += 1
        return f"s{self.names:02}"

    def join(self, name):
        self.made.append(Server(self, name))

    def turn(self):
        """A turn of the keep-alive: whoever lives and does not stand still has answered at its end."""
        members = [server for server in self.live if server is not self.root]
        lively = [server.name for server in members if not server.stands]
        # Each takes part by now, unless it stands still.
        assert until(lambda: set(lively) <= set(self.root.carrier.members)), (lively, self.root.carrier.members)
        self.root.turn()
        posted = threading.Event()
        self.root.carrier._peers.post(posted.set)
        assert posted.wait(PATIENCE)

        def answered():
            streams = [stream for stream in list(self.root.carrier._peers.streams.values()) if stream.name in lively]
            # Only those that were silent are asked.
            return all(not stream.silent or stream.signs != stream.seen for stream in streams)

        assert until(answered), "one that lives does not answer"
        present = self.root.carrier.members
        for server in members:
            if server.joined and server.name not in present:
                assert server.stood, "one that has answered is lost"
                server.end = LOSS
            server.joined = server.name in present
            server.stood = server.stands

    def happen(self):
        chance = self.chance
        live = self.live
        server = chance.choice(live)
        other = chance.choice(live)
        may_end = server is not self.root
        size = chance.choice((0, 0, 0, 100, 2000, 5000))
        what = chance.random()
        if what < 0.2:
            server.broadcast(size)
        elif what < 0.45:
            if server is not other and other.name in server.exchange.members:
                server.tell(other.name, size)
        elif what < 0.6:
            server.ask(other.name)
        elif what < 0.68:
            if len(live) < 9:
                self.join(self._name())
        elif what < 0.77:
            if may_end:
                server.end = KILLED
                hang_up(server.line.connection)
        elif what < 0.81:
            if may_end and not server.stands and server.exchange.has(ROOT):
                server.broadcast()
                server.end = LEFT
                server.patient = not any(each.stands for each in self.made)
                with pytest.MonkeyPatch.context() as patch:
                    linger = PATIENCE if server.patient else 0.02
                    patch.setattr("pypmix.host.exchange.tcp.LINK_LINGER_SECONDS", linger)
                    server.exchange.close()
                assert not server.patient or until(lambda: server.name not in self.root.carrier.members)
        elif what < 0.87:
            if may_end:
                server.line.goes.clear()
                server.stood = True
        elif what < 0.92:
            server.line.goes.set()
        elif what < 0.97:
            for _ in range(chance.choice((1, 3, LOST - 1, LOST))):
                self.turn()
        else:
            time.sleep(0.01 * chance.random())

    def agree(self):
        """All that stood go on; then those who are there know it, and hear each other's words."""
        for server in self.made:
            server.line.goes.set()
        live = self.live
        names = tuple(sorted(server.name for server in live))
        assert until(lambda: all(server.exchange.members == names for server in live)), (
            names, [(server.name, server.exchange.members) for server in live],
        )  # fmt: skip
        for server in live:
            server.broadcast()
            for other in live:
                if other is not server:
                    server.tell(other.name)

        def heard(server, other):
            return (
                server.heard(other.name, "all") == other.said
                and server.heard(other.name, "one") == other.to[server.name]
            )

        for server in live:
            for other in live:
                assert other is server or until(lambda one=server, two=other: heard(one, two)), (
                    server.name, other.name, other.said, other.to, server.log,
                )  # fmt: skip

    def check(self):
        """What each has heard is whole and in order, what it has asked was answered once, and last words were heard.

        A root that was lost may have had some of these still.
        """
        for server in self.live:
            assert until(lambda one=server: all(answers for _, answers in one.owed)), (server.name, server.owed)
            for number, (to, answers) in enumerate(server.owed, 1):
                ((found, error),) = answers
                assert found == b"%d%d" % (number, number) if error is None else to != server.name, (to, answers)
            here, last = set(), {}
            for who, what, number in server.log:
                if what == "here":
                    assert who not in here
                    here.add(who)
                elif what == "gone":
                    here.remove(who)
                else:
                    assert who in here, (server.name, who, what, number)
                    assert last.get((who, what), number - 1) == number - 1, (server.name, who, what, number)
                    last[who, what] = number
        for server in () if self.root_lost else self.made:
            if server.patient and server.said > 1:
                # Whoever has heard it before has heard its last word before it went.
                for other in self.live:
                    words = [number for who, what, number in other.log if (who, what) == (server.name, "all")]
                    if server.said - 1 in words:
                        assert words[-1] == server.said, (other.name, server.name, server.said, other.log)

    def lose_root(self, silent):
        """The process of the root is killed, or it stands still for good."""
        self.root_lost = True
        self.root.end = KILLED
        live = self.live
        if silent:
            for server in live:
                server.line.goes.clear()
        else:
            for server in live:
                hang_up(server.line.connection)

        def alone(server):
            if silent:
                # Time goes on: what the root was about to send may still be heard after some turns.
                server.turn()
            return server.exchange.members == (server.name,)

        for server in live:
            assert until(lambda one=server: alone(one)), (server.name, server.exchange.members)
        for server in live:
            server.line.goes.set()

    def close(self):
        for server in self.made:
            server.line.goes.set()
        threads = [threading.Thread(target=server.exchange.close) for server in self.made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "one does not end"
        for server in self.made:
            server.line.connection.close()


def live(seed):
    """Let anything happen, and see what has become of it."""
    session = Session(seed)
    try:
        for _ in range(session.chance.randint(10, 120)):
            session.happen()
        if session.chance.random() < 0.7:
            session.agree()
            session.check()
        if session.chance.random() < 0.6:
            session.lose_root(session.chance.random() < 0.5)
            session.check()
    finally:
        session.close()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_whoever_is_lost_at_a_root(block):
    before = threading.active_count()
    for seed in range(block, ROUNDS, BLOCKS):
        try:
            live(seed)
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}") from error
    assert until(lambda: threading.active_count() <= before), threading.enumerate()


class Star(Hub):
    """A simulation of servers that reach only the launcher, each at its own pace.

    Args:
        random: What delays are drawn from.
    """

    def __init__(self, random):
        paces = {}

        def delay(sender, receiver):
            pace = paces.setdefault((sender, receiver), random.choice((0.0, 0.001, 0.01, 0.3)))
            return pace * random.random()

        super().__init__(delay=delay)

    def _pass(self, sender, receiver, call):
        if LAUNCHER in (sender.name, receiver.name):
            super()._pass(sender, receiver, call)


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(0, 6), st.integers(0, 4), st.booleans())
def test_what_crosses_over_a_root_ends_once_for_all_alike(seed, servers, departures, losses, killed):
    random = Random(seed)
    world = World(random, servers, Star(random), isolated=True)
    assert all(set(node.exchange.members) == set(world.names) for node in world.nodes.values())
    operations = play(world, 10, silent=True)
    for proc in random.sample(sorted(world.where), min(departures, len(world.where))):
        world.later(2, lambda proc=proc: world.depart(proc))
    for name in random.sample(sorted(world.nodes), min(losses, servers - 1)):
        world.later(3, lambda name=name: world.lose(name))
    if not killed:
        finish(world, operations)
        return
    # The root: each is alone then.
    world.later(3, lambda: world.hub.lose(LAUNCHER))
    world.clock.run()
    assert world.clock.now < 1000
    for node in world.nodes.values():
        if node.alive:
            assert node.exchange.members == (node.name,)
            assert all(len(asked.results) == 1 for asked in node.asked), (node.name, node.asked)
            assert not node.exchange.open(), (node.name, node.exchange.underway())
