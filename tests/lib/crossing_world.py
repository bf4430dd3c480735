"""Servers on virtual time that carry out collectives between them."""

from __future__ import annotations

from pypmix.host.exchange import Crossing, Exchange, Hub
from pypmix.host.exchange.localserver import LOST
from pypmix.standard import attrs, codes
from pypmix.standard.errors import PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Connect, DirectModex, Disconnect, FenceUpcall, GroupUpcall
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value

NSPACE = "job"
LAUNCHER = "!launcher"
DESCRIBE, FORGET = "launcher.describe", "launcher.forget"
"""The topics by which the launcher of a world describes jobs, and has them forgotten."""


KINDS = ("fence", "fence", "construct", "destruct", "connect", "disconnect")


SUCCESS = "success"


class Asked:
    """An upcall, and how it was answered."""

    requestor = None
    uid = gid = None

    def __init__(self, op):
        self.op = op
        self.results = []

    def reply(self, result=None):
        self.results.append((SUCCESS, result))

    def fail(self, error):
        assert isinstance(error, PMIxError), error
        assert error.code, error
        assert str(error)
        self.results.append((error.code, error))


class Node:
    """A server with nothing behind it, its exchange and its crossing."""

    def __init__(self, world, name):
        self.name = name
        self.world = world
        self.proc = Proc(f"server-{name}", 0)
        self.jobs = {}
        self.alive = True
        self.gone = set()
        self.asked = []
        self.exchange = Exchange(world.hub.carrier(name), later=world.clock.later, now=world.clock.time)
        if world.isolated and name == LAUNCHER:
            self.exchange.detours.introduce_all()
        self.crossing = Crossing(self, self.exchange, launcher=LAUNCHER if world.launched else "")
        self.exchange.handle(DESCRIBE, self.described)
        self.exchange.hear(FORGET, lambda _sender, nspace: self.crossing.deregister(nspace.decode()))
        self.exchange.start()

    def described(self, _sender, number, answer):
        job, places = self.world.jobs[int(number)]
        self.crossing.place(job, places, int(number) + 1)
        answer(b"", None)

    def register_nspace(self, job, local=None):
        assert local == ()
        assert job.nspace not in self.jobs
        self.jobs[job.nspace] = job

    def deregister_nspace(self, nspace):
        del self.jobs[nspace]

    def notify(self, event):
        assert event.code in LOST, event

    def dmodex_request(self, proc, done, *, key, timeout):
        if proc.rank % 3:
            self.world.clock.later(0.5, lambda: done(str(proc).encode(), None))

    def ask(self, op):
        if self.alive:
            asked = Asked(op)
            self.asked.append(asked)
            assert self.crossing.answer(asked)
            return asked
        return None


class World:
    """Some servers, each with some procs of one job and with a job of its own; with a launcher in half of the cases.

    Args:
        random: The source of what happens.
        servers: How many there are, the launcher's apart.
        hub: How their messages travel.
        isolated: Whether they reach only the launcher.
    """

    def __init__(self, random, servers, hub=None, *, isolated=False):
        self.random = random
        self.isolated = isolated
        self.launched = isolated or random.random() < 0.5
        self.jobs = []
        self.hub = hub or Hub(delay=lambda _from, _to: random.choice((0.0, 0.01, 0.1, 1.0)) * random.random())
        self.clock = self.hub.clock
        self.launcher = Node(self, LAUNCHER) if self.launched else None
        self.nodes = {f"n{number}": Node(self, f"n{number}") for number in range(servers)}
        self.clock.run()
        ranks = range(random.randint(servers, 3 * servers))
        names = list(self.nodes)
        self.places = {rank: names[rank % servers] for rank in ranks}
        self.jobs.append((JobInfo(NSPACE, (attrs.JOB_SIZE(len(ranks)),)), self.places))
        self.jobs += [(JobInfo(f"own-{name}", (attrs.JOB_SIZE(1),)), {0: name}) for name in names]
        self.begin()
        self.clock.run()
        self.where = {Proc(NSPACE, rank): name for rank, name in self.places.items()}
        self.where |= {Proc(f"own-{name}", 0): name for name in names}

    @property
    def names(self):
        """The names of all servers."""
        return ((LAUNCHER,) if self.launched else ()) + tuple(self.nodes)

    def begin(self):
        """Make the jobs known: those that have procs of them register them, or the launcher describes them to all."""
        if self.launcher is None:
            for job, places in self.jobs:
                for name in sorted(set(places.values())):
                    self.nodes[name].crossing.register(job, places)
            return
        for number in range(len(self.jobs)):
            self.launcher.described("", number, lambda *_: None)
            for name in self.nodes:
                self.launcher.exchange.request(name, DESCRIBE, b"%d" % number, lambda *_: None)

    def end(self):
        """Have the jobs forgotten."""
        for job, places in self.jobs:
            if self.launcher is not None:
                self.launcher.crossing.deregister(job.nspace)
                self.launcher.exchange.broadcast(FORGET, job.nspace.encode())
            else:
                for name in sorted(set(places.values())):
                    if self.nodes[name].alive:
                        self.nodes[name].crossing.deregister(job.nspace)

    def later(self, longest, call):
        self.clock.later(self.random.random() * longest, call)

    def operation(self, number, *, silent):
        """Have the servers of some procs ask for something at different times, some of them perhaps never."""
        random = self.random
        kind = random.choice(KINDS)
        members = random.sample(sorted(self.where), random.randint(1, len(self.where)))
        named = tuple(members)
        if kind == "fence" and random.random() < 0.3:
            named = (Proc(NSPACE, RANK_WILDCARD),)
            members = [proc for proc in self.where if proc.nspace == NSPACE]
        servers = sorted({self.where[proc] for proc in members})
        quiet = random.sample(servers, random.randint(0, len(servers))) if silent else ()
        limits = (attrs.TIMEOUT(random.randint(1, 3)),) if silent else ()
        asked = {}

        def ask(name):
            node = self.nodes[name]
            local = [proc for proc in members if self.where[proc] == name]
            if all(proc in node.gone for proc in local) and random.random() < 0.5:
                return
            infos = limits
            if any(proc in node.gone for proc in local) and random.random() < 0.5:
                infos = (*limits, Info(attrs.LOCAL_COLLECTIVE_STATUS.key, Value(codes.STATUS, -52)))
            asked[name] = node.ask(self.op(kind, number, name, named, infos))

        for name in servers:
            if name not in quiet:
                self.later(2, lambda name=name: ask(name))
        return kind, servers, asked, (kind, frozenset(members)) if kind in KINDS[:2] + KINDS[4:] else number

    def op(self, kind, number, name, named, infos):
        if kind == "fence":
            return FenceUpcall(named, infos, f"<{number} {name}>".encode())
        if kind == "connect":
            return Connect(named, infos)
        if kind == "disconnect":
            return Disconnect(named, infos)
        wanted = (attrs.GROUP_ASSIGN_CONTEXT_ID(True),) if number % 2 else ()
        told = (attrs.GROUP_INFO((attrs.HOSTNAME(name),)),)
        return GroupUpcall(int(kind == "destruct"), f"group {number}", named, (*infos, *wanted, *told))

    def depart(self, proc):
        node = self.nodes[self.where[proc]]
        if node.alive:
            node.gone.add(proc)
            node.crossing.departed(proc)

    def lose(self, name):
        if self.nodes[name].alive:
            self.nodes[name].alive = False
            self.hub.lose(name)

    def check(self, operations):
        alive = [node for node in self.nodes.values() if node.alive]
        for node in alive:
            for asked in node.asked:
                assert len(asked.results) == 1, (node.name, asked.op, asked.results)
            exchange = node.exchange
            assert not exchange.open() and not exchange.requests.load, (node.name, exchange.underway())
            assert not node.crossing._modexes
            launcher = (LAUNCHER,) if self.launched else ()
            assert exchange.members == tuple(sorted((*launcher, *[other.name for other in alive])))
        fences = {}
        context_ids = {}
        for number, (kind, _servers, asked, _) in enumerate(operations):
            results = [
                each.results[0][1]
                for each in asked.values()
                if each and each.results[:1] and each.results[0][0] == SUCCESS
            ]
            if kind == "fence":
                for result in results:
                    # Whoever has got a contribution has got the same others with it.
                    for part in result.split(b">")[:-1]:
                        assert fences.setdefault(part, result) == result
            elif kind == "construct":
                assert len(set(results)) <= 1
                for result in results[:1]:
                    keys = [info.key for info in result]
                    assert keys[0] == attrs.GROUP_MEMBERSHIP.key
                    found = [info.value.data for info in result if info.key == attrs.GROUP_CONTEXT_ID.key]
                    assert len(found) == number % 2
                    for context_id in found:
                        assert context_ids.setdefault(context_id, number) == number


def play(world, count, *, silent=False):
    operations = [world.operation(number, silent=silent) for number in range(count)]
    for node in world.nodes.values():
        for _ in range(2):
            world.later(
                2,
                lambda node=node: node.ask(DirectModex(world.random.choice(sorted(world.where)), (attrs.TIMEOUT(4),))),
            )
    return operations


def finish(world, operations):
    world.clock.run()
    assert world.clock.now < 1000
    world.check(operations)
    world.end()
    world.clock.run()
    for node in world.nodes.values():
        if node.alive:
            assert not len(node.crossing._places)
            assert not node.jobs, node.name
