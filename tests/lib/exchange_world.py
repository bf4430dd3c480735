"""Servers that exchange contributions in memory."""

from __future__ import annotations

from lib.samples import samples
from pypmix.host.exchange import Crossing, Exchange, Hub
from pypmix.standard import attrs, codes
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import (
    FenceUpcall,
)
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value

PARTIAL, TIMEOUT, ABORT, BAD_PARAM, UNREACH, EXISTS = -52, -24, -165, -27, -25, -11


ALL = (Proc("job", RANK_WILDCARD),)


PLACES = {0: "a", 1: "b", 2: "b", 3: "c"}


JOB = JobInfo(
    "job",
    (attrs.JOB_SIZE(4), *[Info(name, value) for name, value in samples().items()]),
    ((attrs.HOSTNAME("h0"), attrs.NODEID(0)), (attrs.HOSTNAME("h1"),)),
    ((attrs.APPNUM(0),),),
    ((attrs.SESSION_ID(1),), ()),
    ((0, (attrs.LOCAL_RANK(0),)), (1, ()), (3, (attrs.LOCAL_RANK(1), attrs.HOSTNAME("h1")))),
)


class Asked:
    """An upcall, and how it was answered."""

    def __init__(self, op, requestor=None, uid=None, gid=None):
        self.op = op
        self.requestor = requestor
        self.uid = uid
        self.gid = gid
        self.ends = []

    def reply(self, result=None):
        self.ends.append(result)

    def fail(self, error):
        self.ends.append(error)

    @property
    def end(self):
        (end,) = self.ends
        return end


class Server:
    """What a crossing calls of a server, noted."""

    def __init__(self, name):
        self.proc = Proc(f"server-{name}", 0)
        self.jobs = {}
        self.heard = []
        self.committed = {}
        self.waiting = []
        self.limits = []
        self.error = None

    def register_nspace(self, job, local=None):
        assert local == ()
        if self.error is not None:
            raise self.error
        self.jobs[job.nspace] = job

    def deregister_nspace(self, nspace):
        del self.jobs[nspace]

    def notify(self, event):
        self.heard.append(event)

    def dmodex_request(self, proc, done, *, key, timeout):
        self.limits.append((key, timeout))
        if proc in self.committed:
            done(self.committed[proc], None)
        else:
            self.waiting.append((proc, done))


class World:
    """Three servers with a job, on virtual time."""

    def __init__(self):
        self.hub = Hub(delay=lambda _from, _to: 0.1)
        self.exchanges, self.crossings, self.servers, self.published = {}, {}, {}, []
        for name in "abc":
            carrier = self.hub.carrier(name)
            self.exchanges[name] = Exchange(carrier, later=self.hub.clock.later, now=self.hub.clock.time)
            self.servers[name] = Server(name)
            self.crossings[name] = Crossing(
                self.servers[name],
                self.exchanges[name],
                directory=lambda upcall, name=name: self.published.append((name, upcall)),
            )
            self.exchanges[name].start()
        self.hub.run()
        for crossing in self.crossings.values():
            crossing.register(JOB, PLACES)
        self.hub.run()

    def ask(self, name, op, *who):
        asked = Asked(op, *who)
        assert self.crossings[name].answer(asked)
        return asked

    def all_ask(self, op, names="abc"):
        """Have servers ask the same, or each what a function makes of its name."""
        asked = [self.ask(name, op(name) if callable(op) else op) for name in names]
        self.hub.run()
        return [each.end for each in asked]


def fence(name, procs=ALL, *infos):
    return FenceUpcall(procs, infos, f"<{name}>".encode())


def partial(*infos):
    return (*infos, Info(attrs.LOCAL_COLLECTIVE_STATUS.key, Value(codes.STATUS, PARTIAL)))
