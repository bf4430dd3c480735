"""Several simulated servers, each with a real crossing, which talk over a hub on virtual time."""

from __future__ import annotations

from itertools import count

from lib.server_world import GID, UID, Client, World
from pypmix.engine.python.server import Server
from pypmix.host.exchange import Crossing, Exchange, Hub
from pypmix.standard import attrs, ops
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.types import Proc


class Asked:
    """An upcall, answered once; the answer comes a moment later, as on another thread."""

    def __init__(self, node, op, answer, process):
        self.node = node
        self.op = op
        self.requestor = process.proc if process else None
        self.uid = self.gid = 1
        self._answer = answer

    def reply(self, result=None):
        self._done(result, None)

    def fail(self, error):
        assert isinstance(error, PMIxError), error
        self._done(None, error)

    def _done(self, result, error):
        answer, self._answer = self._answer, None
        assert answer is not None, f"{self.op} was answered twice"
        self.node.world.call_later(0, lambda: answer(result, error))


class Node:
    """A server with its crossing, as its clients see it; and what the crossing calls of a session."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.proc = Proc(f"server-{name}", 0)
        self.logged = []
        self.published = []
        self.server = Server(world, self, self.proc)
        clock = world.hub.clock
        self.exchange = Exchange(world.hub.carrier(name), later=clock.later, now=clock.time)
        self.crossing = Crossing(self, self.exchange)

    def log(self, text):
        self.logged.append(text)

    def upcall(self, op, answer, process=None):
        self.world.call_later(0, lambda: self._answer(Asked(self, op, answer, process)))

    def _answer(self, asked):
        op = asked.op
        if isinstance(op, ops.ClientConnected):
            self.crossing.connected(op.proc)
        elif isinstance(op, ops.ClientFinalized):
            self.crossing.finalized(op.proc)
        elif isinstance(op, ops.ClientLost):
            self.crossing.departed(op.proc)
        elif self.crossing.answer(asked):
            return
        else:
            asked.fail(NotSupported("no"))
            return
        asked.reply()

    def register_nspace(self, job, local=None):
        self.server.register_nspace(job, local)

    def deregister_nspace(self, nspace):
        self.server.deregister_nspace(nspace)

    def notify(self, event):
        self.server.events.notify(event)

    def dmodex_request(self, proc, done, *, key="", timeout=0.0):
        def answer(data, error):
            self.world.call_later(0, lambda: done(data, error))

        self.world.call_later(0, lambda: self.server.modex.sharing.request(proc, answer, key, timeout))


class Joined(World):
    """Servers that know of each other's procs what they tell each other.

    Args:
        servers: How many.
        delay: Returns how many seconds a message from one to another takes.
    """

    def __init__(self, servers, delay):
        self.hub = Hub(delay=delay)
        self.number = count()
        self.nodes = [Node(self, f"n{number}") for number in range(servers)]
        self.where = {}
        for node in self.nodes:
            node.exchange.start()
        self.hub.run()

    def add_job(self, nspace, places):
        """Register a job with the servers that have procs of it.

        Args:
            nspace: Its name.
            places: The number of the server of each rank.
        """
        job = JobInfo(nspace, (attrs.JOB_SIZE(len(places)),))
        names = {rank: self.nodes[number].name for rank, number in enumerate(places)}
        for number in sorted(set(places)):
            node = self.nodes[number]
            local = tuple(rank for rank, place in enumerate(places) if place == number)
            node.crossing.register(job, names)
            node.register_nspace(job, local)
            for rank in local:
                node.server.register_client(Proc(nspace, rank), UID, GID)
                self.where[Proc(nspace, rank)] = node

    def now(self):
        return self.hub.clock.now

    def call_later(self, delay, function):
        return self.hub.clock.later(delay, function)

    def advance(self, seconds):
        self.hub.run(self.hub.clock.now + seconds)

    def client(self, proc, **hello):
        client = Client(self.where[proc], proc.rank, proc.nspace, **hello).connect()
        self.advance(0)
        client.read()
        return client

    def exit(self, proc):
        """A process has ended, as its host sees it."""
        node = self.where[proc]
        node.server.deregister_client(proc)
        self.call_later(0, lambda: node.crossing.departed(proc))

    def check_empty(self, held):
        """Nothing is left, once all jobs are deregistered."""
        for node in self.nodes:
            for nspace in {proc.nspace for proc, home in self.where.items() if home is node}:
                node.server.deregister_nspace(nspace)
                node.crossing.deregister(nspace)
        self.advance(120)
        for node in self.nodes:
            assert not node.logged, node.logged
            assert not node.server.pending()
            left = held(node.server)
            assert not left, f"{node.name} still holds {dict(left)}"
            exchange, crossing = node.exchange, node.crossing
            assert not exchange.open() and not crossing._modexes
            assert not len(crossing._places) and not crossing._local._borrowed
            assert not len(crossing._incarnations)
            assert not node.server.modex.sharing._requests and not node.server.modex._fetching
            collectives = node.server.collectives
            assert not collectives._gone and not collectives._finalized and not collectives.opened
