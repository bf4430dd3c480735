"""Proves that servers at a switch agree, whoever is killed, stopped, slow or late at which moment, the switch included.

The switch, the carriers and the exchanges are real, with their threads. Turns of the keep-alive are made by the test.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.crossing_world import World, finish, play
from pypmix.host.addresses import hang_up
from pypmix.host.exchange import Exchange, Hub
from pypmix.host.exchange import switch as module
from pypmix.host.exchange.keepalive import LOST
from pypmix.host.exchange.switch import SocketStream, Switch, SwitchCarrier

pytestmark = pytest.mark.timeout(300)

ROUNDS = int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")) or 24
BLOCKS = 4
PATIENCE = 60.0
NEVER = 1e6
WAITING = 3000
"""Bytes that wait for a server from which on those that send to it are held: a few messages."""

LEFT, KILLED, LOSS = "left", "killed", "loss"


def until(condition):
    """Wait until something is so; tell whether it is."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


class Line(SocketStream):
    """The stream of a server, which may be slow, and stand still as if the server were stopped."""

    def __init__(self, connection, pause):
        super().__init__(connection)
        self.goes = threading.Event()
        self.goes.set()
        self.pause = pause

    def read(self):
        data = super().read()
        self._stand()
        return data

    def write(self, data):
        self._stand()
        super().write(data)

    def close(self):
        super().close()
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
        stood: Whether it may have stood still since it was last known to have answered.
        owed: The requests that it has made, with their answers.
    """

    def __init__(self, session, name):
        self.name = name
        self.end = ""
        self.stood = self.patient = False
        self.log = []
        self.said = 0
        self.to = {}
        self.owed = []
        ours, theirs = socket.socketpair()
        self.line = Line(ours, session.chance.choice((0, 0, 0, 0.002)))
        session.switch.attach(self.line)
        self.carrier = SwitchCarrier(name, theirs, keep_alive=NEVER)
        self.exchange = exchange = Exchange(self.carrier)
        exchange.hear("all", lambda who, data: self.log.append((who, "all", int(data[:8]))))
        exchange.hear("one", lambda who, data: self.log.append((who, "one", int(data[:8]))))
        exchange.handle("double", lambda who, data, reply: reply(2 * data, None))
        exchange.watch(lambda who, here: self.log.append((who, "here" if here else "gone", 0)))
        exchange.start()

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
    """Some servers and their switch."""

    def __init__(self, seed):
        self.chance = Random(seed)
        self.switch = Switch(keep_alive=NEVER)
        self.switch_lost = False
        self.made = []
        self.names = 0
        self.closing = []
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

    def streams(self):
        with self.switch._gate:
            return [line.stream for line in self.switch._lines]

    def turn(self):
        """A turn of the keep-alive: whoever lives and does not stand still has answered at its end."""
        self.switch._turn(0.01, False)
        lively = [server.line for server in self.live if not server.stands]

        def answered():
            with self.switch._gate:
                return all(
                    line.signs != line.seen or line.gone or line.stream not in lively for line in self.switch._lines
                )

        assert until(answered), "one that lives does not answer"
        left = self.streams()
        for server in self.live:
            if server.line not in left:
                assert server.stood, "one that has answered is lost"
                server.end = LOSS
            server.stood = server.stands

    def happen(self):
        chance = self.chance
        live = self.live
        if not live:
            return
        server = chance.choice(live)
        other = chance.choice(live)
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
            if len(live) > 1:
                server.end = KILLED
                hang_up(server.carrier._connection)
        elif what < 0.81:
            if len(live) > 1 and not server.stands:
                server.broadcast()
                server.end = LEFT
                server.patient = not any(each.stands for each in self.made)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(module, "LINK_LINGER_SECONDS", PATIENCE if server.patient else 0.02)
                    server.exchange.close()
                assert not server.patient or until(lambda: server.line not in self.streams())
        elif what < 0.87:
            if len([each for each in live if not each.stands]) > 1:
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

        A switch that was lost may have had some of these still.
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
        for server in () if self.switch_lost else self.made:
            if server.patient and server.said > 1:
                # Whoever has heard it before has heard its last word before it went.
                for other in self.live:
                    words = [number for who, what, number in other.log if (who, what) == (server.name, "all")]
                    if server.said - 1 in words:
                        assert words[-1] == server.said, (other.name, server.name, server.said, other.log)

    def lose_switch(self, silent):
        """The process of the switch is killed, or it stands still for good."""
        self.switch_lost = True
        live = self.live
        if silent:
            for server in live:
                server.line.goes.clear()
        else:
            for line in list(self.switch._lines):
                hang_up(line.stream._connection)

        def alone(server):
            if silent:
                # Time goes on: what the switch was about to write may still be heard after some turns.
                server.carrier._loop.post(server.carrier._turn)
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
        self.switch.close()
        assert until(lambda: not self.switch._lines), "the switch holds a stream"


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
            session.lose_switch(session.chance.random() < 0.5)
            session.check()
    finally:
        session.close()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_whoever_is_lost_at_a_switch(block, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING", WAITING)
    before = threading.active_count()
    for seed in range(block, ROUNDS, BLOCKS):
        try:
            live(seed)
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}") from error
    assert until(lambda: threading.active_count() <= before), threading.enumerate()


class Star(Hub):
    """A simulation of servers at a switch: all that is sent goes through one place, in one order for each receiver.

    Args:
        random: What delays are drawn from: each server has its own pace, both ways.
    """

    def __init__(self, random):
        super().__init__()
        self._random = random
        self._paces = {}
        self._free = {}

    def _carry(self, sender, receiver, call):
        self._way(("up", sender.name), lambda: self._way(("down", receiver.name), call))

    def _way(self, way, call):
        pace = self._paces.setdefault(way, self._random.choice((0.0, 0.001, 0.01, 0.3)))
        due = self._free[way] = max(self._free.get(way, 0.0), self.clock.now + pace * self._random.random())
        self.clock.at(due, call)


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(0, 6), st.integers(0, 4), st.booleans())
def test_what_crosses_over_a_switch_ends_once_for_all_alike(seed, servers, departures, losses, killed):
    random = Random(seed)
    world = World(random, servers, Star(random))
    operations = play(world, 10, silent=True)
    for proc in random.sample(sorted(world.where), min(departures, len(world.where))):
        world.later(2, lambda proc=proc: world.depart(proc))
    for name in random.sample(sorted(world.nodes), min(losses, servers - 1)):
        world.later(3, lambda name=name: world.lose(name))
    if not killed:
        finish(world, operations)
        return
    # The switch: each is alone then.
    world.later(3, lambda: [world.hub.part(*pair) for pair in combinations(world.names, 2)])
    world.clock.run()
    assert world.clock.now < 1000
    for node in world.nodes.values():
        if node.alive:
            assert node.exchange.members == (node.name,)
            assert all(len(asked.results) == 1 for asked in node.asked), (node.name, node.asked)
            assert not node.exchange.open(), (node.name, node.exchange.underway())
