"""Constructs between servers on virtual time."""

from __future__ import annotations

from pypmix.host.exchange import Crossing, Exchange, Hub
from pypmix.host.exchange.localserver import LOST
from pypmix.standard import attrs, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.types import Proc

NSPACE = "job"


ABORT, TIMEOUT, PARTIAL, NOT_FOUND = -165, -24, -52, -46


FLAGS = {
    "optional": attrs.GROUP_OPTIONAL(True),
    "tolerant": attrs.GROUP_FT_COLLECTIVE(True),
    "notify": attrs.GROUP_NOTIFY_TERMINATION(True),
}


class Asked:
    """An upcall, and how it was answered."""

    uid = gid = None

    def __init__(self, node, op, done, requestor):
        self.node = node
        self.requestor = requestor
        self.op = op
        self.done = done
        self.answered = 0

    def reply(self, result=None):
        self.end(result, None)

    def fail(self, error):
        assert isinstance(error, PMIxError) and error.code and str(error), error
        self.end(None, error)

    def end(self, result, error):
        self.answered += 1
        assert self.answered == 1, f"{self.op} was answered twice"
        if self.done is not None and self.node.alive:
            self.done(result, error)


class Node:
    """A server as the Standard's rules want it, and no more of one than its crossing sees."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.proc = Proc(f"server-{name}", 0)
        self.jobs = {}
        self.alive = True
        self.asked = []
        self.exchange = Exchange(world.hub.carrier(name), later=world.clock.later, now=world.clock.time)
        self.crossing = Crossing(self, self.exchange)
        self.exchange.start()

    def register_nspace(self, job, local=None):
        assert job.nspace not in self.jobs
        self.jobs[job.nspace] = job

    def deregister_nspace(self, nspace):
        del self.jobs[nspace]

    def notify(self, event):
        assert event.code in (*LOST, statuses.TALK), event

    def ask(self, op, done=None, requestor=None):
        if self.alive:
            asked = Asked(self, op, done, requestor)
            self.asked.append(asked)
            assert self.crossing.answer(asked)


class World:
    def __init__(self, random, servers, per_server=2):
        self.random = random
        self.hub = Hub(delay=lambda _from, _to: random.choice((0.0, 0.01, 0.1, 1.0)) * random.random())
        self.clock = self.hub.clock
        self.nodes = [Node(self, f"n{number}") for number in range(servers)]
        self.clock.run()
        self.constructs = []
        self.gone = set()
        self.where = {}
        places = {rank: self.nodes[rank % servers].name for rank in range(per_server * servers)}
        for rank in places:
            self.where[Proc(NSPACE, rank)] = self.nodes[rank % servers]
        for node in self.nodes:
            node.crossing.register(JobInfo(NSPACE, (attrs.JOB_SIZE(len(places)),)), places)
            # Of this job the others know nothing but where it is.
            node.crossing.register(JobInfo(f"own-{node.name}", (attrs.JOB_SIZE(1),)), {0: node.name})
            self.where[Proc(f"own-{node.name}", 0)] = node
        self.clock.run()

    def later(self, longest, call):
        self.clock.later(self.random.random() * longest, call)

    def depart(self, proc):
        if proc in self.gone or not self.where[proc].alive:
            return
        self.gone.add(proc)
        self.where[proc].crossing.departed(proc)
        for construct in self.constructs:
            if proc in construct.members:
                construct.look(self.where[proc])

    def lose(self, node):
        if node.alive and sum(other.alive for other in self.nodes) > 1:
            node.alive = False
            self.hub.lose(node.name)
            # The time of a process ends with it.
            for waiting in node.exchange.arrivals._held.values():
                waiting.timer.cancel()
            self.gone.update(proc for proc, home in self.where.items() if home is node)

    def finish(self):
        self.clock.run()
        assert self.clock.now < 1000
        for node in self.nodes:
            if not node.alive:
                continue
            for asked in node.asked:
                assert asked.answered == 1, (node.name, asked.op)
            assert not node.exchange.open() and not node.exchange.requests.load, node.name
            assert not node.exchange.collectives.coordinator.late
        for node in self.nodes:
            if node.alive:
                for nspace in (NSPACE, f"own-{node.name}"):
                    node.crossing.deregister(nspace)
        self.clock.run()
        for node in self.nodes:
            if node.alive:
                assert not node.jobs and not len(node.crossing._collectives.record)
