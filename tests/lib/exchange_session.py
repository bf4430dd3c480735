"""Sessions of several servers, whose messages are counted."""

from __future__ import annotations

from collections import Counter

from lib.exchange_world import Asked, Server
from pypmix.host.exchange import Crossing, Exchange, Hub
from pypmix.standard import attrs
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.types import Proc


class Counting(Hub):
    """A hub that counts messages, and bytes, by sender; and loses what `drop` says."""

    def __init__(self, **options):
        super().__init__(**options)
        self.messages = Counter()
        self.bytes = Counter()
        self.drop = lambda _sender, _to, _message: False

    def send(self, carrier, to, message):
        self.messages[carrier.name] += 1
        self.bytes[carrier.name] += len(message)
        if not self.drop(carrier.name, to, message):
            super().send(carrier, to, message)


class Session:
    """Some servers with a rank or more each; who registers the job, and when, is the test's business."""

    def __init__(self, count, ranks=1):
        self.hub = Counting(delay=lambda _from, _to: 0.01)
        self.names = [f"n{number:03}" for number in range(count)]
        self.places = {rank: self.names[rank // ranks] for rank in range(count * ranks)}
        self.exchanges, self.crossings, self.servers = {}, {}, {}
        for name in self.names:
            self.add(name)
        self.hub.run()
        self.hub.messages.clear()
        self.hub.bytes.clear()

    def add(self, name):
        clock = self.hub.clock
        self.exchanges[name] = Exchange(self.hub.carrier(name), later=clock.later, now=clock.time)
        self.servers[name] = Server(name)
        self.crossings[name] = Crossing(self.servers[name], self.exchanges[name])
        self.exchanges[name].start()

    def wait(self, seconds):
        self.hub.run(self.hub.clock.now + seconds)

    def register(self, *names, job="job", places=None):
        for name in names:
            self.crossings[name].register(JobInfo(job, (attrs.JOB_SIZE(1),)), places or self.places)

    def ask(self, name, op):
        asked = Asked(op)
        assert self.crossings[name].answer(asked)
        return asked

    def has(self, name, job="job"):
        return self.crossings[name]._places.of(job)


LAUNCHER = "!launcher"
DESCRIBE = "describe"


class LaunchedSession:
    """A launcher and some servers with a rank each, or more; `slow` are pairs between which messages take longer."""

    def __init__(self, count, ranks=1):
        self.slow = {}
        self.hub = Counting(delay=lambda *pair: self.slow.get(pair, 0.01))
        self.names = [f"n{number:03}" for number in range(count)]
        self.places = {rank: self.names[rank // ranks] for rank in range(count * ranks)}
        self.exchanges, self.crossings, self.servers = {}, {}, {}
        for name in (LAUNCHER, *self.names):
            self.add(name)
        self.hub.run()
        self.hub.messages.clear()

    def add(self, name):
        clock = self.hub.clock
        exchange = self.exchanges[name] = Exchange(self.hub.carrier(name), later=clock.later, now=clock.time)
        self.servers[name] = Server(name)
        self.crossings[name] = Crossing(self.servers[name], exchange, launcher=LAUNCHER)
        exchange.hear(DESCRIBE, lambda _sender, number: self.place(name, int(number)))
        exchange.start()

    def wait(self, seconds):
        self.hub.run(self.hub.clock.now + seconds)

    def place(self, name, number):
        self.crossings[name].place(JobInfo(f"job{number}" if number > 1 else "job", ()), self.places, number)

    def describe(self, number=1):
        self.place(LAUNCHER, number)
        self.exchanges[LAUNCHER].broadcast(DESCRIBE, b"%d" % number)

    def ask(self, name, op):
        asked = Asked(op)
        assert self.crossings[name].answer(asked)
        return asked

    def has_departed(self, name, rank):
        return self.crossings[name]._places.has_departed(Proc("job", rank))
