"""Servers notice others that no longer answer, in a time that is stated, and those hear of it when they go on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from types import SimpleNamespace

import pytest

from lib.processes import stop
from pypmix.host.exchange import Exchange, TCPCarrier, codec, keepalive
from pypmix.host.exchange.keepalive import PING, TURNS, KeepAlive

pytestmark = pytest.mark.timeout(90)

SECRET = b"a secret of the session"
SECONDS = 3.0
MARGIN = 10.0
"""For a machine that has other things to do."""


class World:
    """Servers on virtual time, all connected with all."""

    def __init__(self, names, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(keepalive, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.stopped = set()
        self.kept = {}
        self.pings = 0
        self.lost = {}
        self.links = {name: {other: self._stream(other) for other in names - {name}} for name in names}
        self.servers = {name: KeepAlive(self._peers(name), float(TURNS)) for name in names}

    def _stream(self, name):
        return SimpleNamespace(name=name, signs=0, seen=0, silent=0, away=False, number=b"1")

    def _peers(self, name):
        """Return the others as a server sees them: it sends them frames, and ends the streams that it has lost."""

        def lose(stream, _reason):
            if self.links[name].pop(stream.name, None) is not None:
                self.lost.setdefault(name, {})[stream.name] = self.now

        def send_control(stream, data):
            self._send(name, stream, data)

        return SimpleNamespace(name=name, streams=self.links[name], send_control=send_control, lose=lose)

    def _send(self, name, stream, data):
        self.pings += data[0] == PING
        back = self.links[stream.name].get(name)
        if back is None:
            return
        if stream.name in self.stopped:
            self.kept.setdefault(stream.name, []).append((back, data))
        else:
            back.signs += len(data)
            self.take(stream.name, back, data)

    def take(self, name, stream, data):
        self.servers[name].take(stream, data)

    def run(self, turns):
        for _ in range(turns):
            self.now += 1
            for name, server in self.servers.items():
                if name not in self.stopped:
                    server.turn()

    def report_away(self, name, away):
        frame = self.servers[name].set_away(away)
        for stream in list(self.links[name].values()):
            self._send(name, stream, frame)

    def resume(self, name):
        """A server goes on: it reads first what has come meanwhile."""
        self.stopped.discard(name)
        for stream, data in self.kept.pop(name, []):
            self.take(name, stream, data)


def servers(count):
    return {f"s{number:03}" for number in range(count)}


def test_the_cost_of_a_turn_is_bounded(monkeypatch):
    world = World(servers(40), monkeypatch)
    world.run(20)
    assert world.lost == {}
    # Of two quiet servers one pings the other in a turn, at most.
    assert world.pings <= 20 * 40 * 39 / 2


@pytest.mark.parametrize("first", [0, 20, 63])
def test_a_block_of_neighbours_that_stops_is_lost_to_all_within_the_time(monkeypatch, first):
    names = sorted(servers(64))
    world = World(set(names), monkeypatch)
    world.run(5)
    world.stopped = {names[(first + number) % 64] for number in range(20)}
    begin = world.now
    world.run(TURNS + 1)
    alive = set(names) - world.stopped
    assert set(world.lost) == alive
    for name in alive:
        assert world.lost[name].keys() == world.stopped
        assert max(world.lost[name].values()) - begin <= TURNS


def test_who_answers_in_time_is_not_lost(monkeypatch):
    names = servers(9)
    world = World(names, monkeypatch)
    world.run(5)
    for _ in range(5):
        world.stopped = {"s004"}
        world.run(5)
        world.resume("s004")
        world.run(3)
    assert world.lost == {}


def test_who_goes_on_too_late_ends_what_it_has_and_costs_nobody_else_his_place(monkeypatch):
    names = servers(9)
    world = World(names, monkeypatch)
    world.run(5)
    world.stopped = {"s004"}
    world.run(TURNS + 20)
    world.resume("s004")
    world.run(TURNS + 20)
    others = names - {"s004"}
    assert world.lost["s004"].keys() == others
    assert all(world.lost[name].keys() == {"s004"} for name in others)


def test_who_says_that_it_will_be_stopped_is_not_lost_until_it_was_back(monkeypatch):
    names = servers(9)
    world = World(names, monkeypatch)
    world.run(5)
    world.report_away("s004", True)
    world.stopped = {"s004"}
    world.run(100)
    world.resume("s004")
    world.report_away("s004", False)
    world.run(100)
    assert world.lost == {}
    world.stopped = {"s004"}
    world.run(TURNS + 1)
    assert world.lost.keys() == names - {"s004"}


CHILD = """
import sys, time
from pypmix.host.exchange import TCPCarrier
carrier = TCPCarrier.in_folder(sys.argv[1], sys.argv[2], keep_alive=float(sys.argv[3]))
carrier.listen(lambda *what: None, lambda *what: print(*what, flush=True))
time.sleep(120)
"""


@contextlib.contextmanager
def process(name, folder, code=CHILD):
    command = [sys.executable, "-c", code, name, os.fspath(folder), str(SECONDS)]
    env = {**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.fixture
def carriers(tmp_path):
    made = []

    def make(name):
        told = SimpleQueue()
        carrier = TCPCarrier.in_folder(name, tmp_path / "m", keep_alive=SECONDS)
        made.append(carrier)
        carrier.listen(lambda *what: told.put(what), lambda *what: told.put(what))
        return carrier, told

    yield make
    for carrier in made:
        carrier.close()


def test_a_process_that_is_stopped_is_lost_in_time_and_learns_that_it_is_out(tmp_path, carriers):
    a, told = carriers("a")
    with process("z", tmp_path / "m") as child:
        assert told.get(timeout=30) == ("z", True)
        assert child.stdout.readline() == "a True\n"
        _, others = carriers("b")
        assert {others.get(timeout=30) for _ in range(2)} == {("a", True), ("z", True)}
        assert told.get(timeout=30) == ("b", True)
        assert child.stdout.readline() == "b True\n"
        stop(child.pid)
        begin = time.monotonic()
        assert told.get(timeout=SECONDS + MARGIN) == others.get(timeout=SECONDS + MARGIN) == ("z", False)
        assert time.monotonic() - begin > SECONDS / 2
        assert "has not answered for" in a.reason("z")
        child.send_signal(signal.SIGCONT)
        assert sorted(child.stdout.readline() for _ in range(2)) == ["a False\n", "b False\n"]
    with pytest.raises(Empty):
        told.get(timeout=0.1)


BUSY = """
import sys, time
from pypmix.host.exchange import TCPCarrier
carrier = TCPCarrier.in_folder(sys.argv[1], sys.argv[2], keep_alive=float(sys.argv[3]))
carrier.listen(lambda *what: None, lambda *what: print(*what, flush=True))
while True:
    sum(range(1 << 16))
"""


def test_a_process_that_is_busy_is_not_lost(tmp_path, carriers):
    """Its carrier's thread answers, also while another one never waits."""
    _, told = carriers("a")
    with process("z", tmp_path / "m", BUSY):
        assert told.get(timeout=30) == ("z", True)
        with pytest.raises(Empty):
            told.get(timeout=2 * SECONDS)


def test_a_host_that_blocks_is_not_lost(tmp_path):
    """What answers requests elsewhere may take its time; the carrier's thread stays free."""
    exchanges = [Exchange(TCPCarrier.in_folder(name, tmp_path / "m", keep_alive=1.0)) for name in "ab"]
    release, ends = threading.Event(), SimpleQueue()

    def answer(_sender, data, done):
        threading.Thread(target=lambda: (release.wait(30), done(data, None)), daemon=True).start()

    exchanges[0].handle("slow", answer)
    for exchange in exchanges:
        exchange.watch(lambda *what: ends.put(what))
        exchange.start()
    exchanges[1].when_present("ab", lambda *end: ends.put(end), timeout=30)
    assert {ends.get(timeout=30) for _ in range(3)} == {("a", True), ("b", True), (None, None)}
    exchanges[1].request("a", "slow", b"it", lambda *end: ends.put(end))
    with pytest.raises(Empty):
        ends.get(timeout=3.0)
    release.set()
    assert ends.get(timeout=30) == (b"it", None)
    for exchange in exchanges:
        exchange.close()


def test_what_is_no_time_limit_is_refused():
    for bad in (0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="keep_alive"):
            TCPCarrier("a", SECRET, keep_alive=bad)


@pytest.mark.parametrize("data", [b"", b"\x04", codec.pack(4, b"\xff"), codec.pack(6), b"\x04\0"])
def test_any_bytes_make_an_error_or_nothing(monkeypatch, data):
    world = World(servers(2), monkeypatch)
    link = world.links["s000"]["s001"]
    with contextlib.suppress(codec.RemoteProtocolError):
        world.take("s000", link, data)
    assert world.lost == {}
