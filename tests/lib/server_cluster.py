"""Several simulated servers on one clock, joined by a host that exchanges what they ask in memory."""

from __future__ import annotations

from collections import defaultdict
from itertools import count

from lib.server_world import GID, UID, Client, World
from pypmix.engine.python.server import Server
from pypmix.engine.times import GET_SECONDS
from pypmix.standard import attrs, codes, ops, statuses
from pypmix.standard.errors import NotFound, PartialSuccess, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops.hosting import (
    GROUP_CANCEL,
    GROUP_CONSTRUCT,
    DirectModex,
    FenceUpcall,
    GroupUpcall,
)
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value

SHARED = ("pmix.grp.info",)
LOCAL_STATUS = "pmix.loc.col.st"


class Node:
    """One server, as its clients and its host see it."""

    def __init__(self, cluster, number):
        self.cluster = cluster
        self.number = number
        self.upcalls = []
        self.logged = []
        self.server = Server(cluster, self, Proc(f"server{number}", 0))

    def upcall(self, op, answer, process=None):
        self.upcalls.append(op)
        self.cluster.upcall(self, op, answer)

    def log(self, text):
        self.logged.append(text)

    def asked(self, kind):
        return [op for op in self.upcalls if isinstance(op, kind)]


class Cluster(World):
    """Servers, and a host that answers for all of them, at once or after `latency`.

    Args:
        layout: The ranks of the job on each server.
        latency: Seconds that each answer takes, or a function that tells.
        hold: Whether answers wait until `release`.
    """

    def __init__(self, *layout, latency=0.0, hold=False, register=True):
        self.time = 0.0
        self.timers = []
        self.number = count()
        self.latency = latency
        self.hold = hold
        self.held = []
        self.meetings = defaultdict(dict)
        self.context_ids = count(100)
        self.layout = layout
        self.lost = set()
        self.nodes = [Node(self, number) for number in range(len(layout))]
        if register:
            self.add_job("job", *layout)

    def add_job(self, nspace, *layout, procs=()):
        size = sum(map(len, layout))
        job = JobInfo(nspace, (attrs.JOB_SIZE(size),), procs=procs)
        for node, ranks in zip(self.nodes, layout, strict=True):
            node.server.register_nspace(job, tuple(ranks))
            for rank in ranks:
                node.server.register_client(Proc(nspace, rank), UID, GID)

    def home(self, proc):
        """Return the node of a proc."""
        for node in self.nodes:
            process = node.server.store.find(proc)
            if process is not None and process.local:
                return node
        return None

    def client(self, rank, nspace="job", **hello):
        node = self.home(Proc(nspace, rank))
        return Client(node, rank, nspace, **hello).connect()

    def everyone(self, **hello):
        return [self.client(rank, **hello) for rank in sorted(rank for ranks in self.layout for rank in ranks)]

    # The host

    def nodes_of(self, procs):
        """Return the nodes that have any of these procs."""
        found = []
        for node in self.nodes:
            for proc in procs:
                space = node.server.store.get(proc.nspace)
                ranks = [] if space is None else [p for p in space.processes.values() if p.local and not p.left]
                if any(proc.rank in (RANK_WILDCARD, process.proc.rank) for process in ranks):
                    found.append(node)
                    break
        return found

    def later(self, function):
        if self.hold:
            self.held.append(function)
            return
        latency = self.latency() if callable(self.latency) else self.latency
        if latency:
            self.call_later(latency, function)
        else:
            function()

    def release(self):
        self.hold = False
        while self.held:
            self.held.pop(0)()

    def upcall(self, node, op, answer):
        if isinstance(op, FenceUpcall):
            self.meet(node, ("fence", op.procs), op, answer)
        elif isinstance(op, GroupUpcall):
            if op.operation == GROUP_CANCEL:
                for meeting in [meeting for meeting in self.meetings if meeting[:2] == ("group", op.group)]:
                    self.cancel(meeting)
                answer(None, None)
            else:
                self.meet(node, ("group", op.group, op.operation, op.procs), op, answer)
        elif isinstance(op, ops.Connect | ops.Disconnect):
            self.meet(node, (type(op).__name__, op.procs), op, answer)
        elif isinstance(op, DirectModex):
            home = self.home(op.proc)
            if home is None:
                self.later(lambda: answer(None, NotFound("nobody has it")))
            else:
                told = {info.key: info.value.data for info in op.directives}
                home.server.modex.sharing.request(
                    op.proc,
                    lambda data, error: self.later(lambda: answer(data, error)),
                    told.get(attrs.REQUIRED_KEY.key, ""),
                    float(told.get(attrs.TIMEOUT.key, GET_SECONDS)),
                )
        elif isinstance(op, ops.ClientLost | ops.ClientFinalized):
            answer(None, None)
            self.gone(op.proc)
        elif isinstance(op, ops.ClientConnected):
            self.lost.discard(op.proc)
            answer(None, None)
        else:
            answer(None, None)

    def gone(self, proc):
        """Nobody has to wait for a proc any more."""
        self.lost.add(proc)
        self.look_again()

    def meet(self, node, name, op, answer):
        self.meetings[name].setdefault(node, []).append((op, answer))
        self.look_again()

    def cancel(self, name):
        for waiting in self.meetings.pop(name, {}).values():
            for _, answer in waiting:
                self.later(lambda answer=answer: answer(None, PartialSuccess("it was given up")))

    def look_again(self):
        """End what all servers that take part have come to."""
        for name in list(self.meetings):
            came = self.meetings[name]
            while came:
                op = next(iter(came.values()))[0][0]
                procs = op.procs
                needed = self.nodes_of(procs)
                if any(node not in came for node in needed):
                    break
                batch = [(node, *came[node].pop(0)) for node in list(came)]
                for node in [node for node in came if not came[node]]:
                    del came[node]
                self.finish(batch)
            if not came:
                self.meetings.pop(name, None)

    def finish(self, batch):
        ops_ = [op for _, op, _ in batch]
        partial = any(info.key == LOCAL_STATUS for op in ops_ for info in op.directives)
        partial = partial or any(self.covers(op, proc) for op in ops_ for proc in self.lost)
        if partial:
            error = PMIxError("not all came", status=statuses.ERR_PARTIAL_SUCCESS)
            for _, _, answer in batch:
                self.later(lambda answer=answer: answer(None, error))
            return
        result = None
        if isinstance(ops_[0], FenceUpcall):
            result = b"".join(op.data for op in ops_)
        elif isinstance(ops_[0], GroupUpcall) and ops_[0].operation == GROUP_CONSTRUCT:
            result = self.group(ops_)
        for _, _, answer in batch:
            self.later(lambda answer=answer: answer(result, None))

    @staticmethod
    def covers(op, lost):
        return any(proc in (lost, (lost.nspace, RANK_WILDCARD)) for proc in op.procs)

    def group(self, ops_):
        members = []
        for proc in ops_[0].procs:
            if proc.rank == RANK_WILDCARD:
                space = self.nodes[0].server.store.get(proc.nspace)
                members += [process.proc for process in space.processes.values()]
            else:
                members.append(proc)
        infos = [attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, tuple(members)))]
        if any(info.key == "pmix.grp.actxid" for op in ops_ for info in op.directives):
            infos.append(Info("pmix.grp.ctxid", Value(codes.SIZE, next(self.context_ids))))
        infos += [info for op in ops_ for info in op.directives if info.key in SHARED]
        return tuple(infos)
