"""Proves that what procs of two servers do together ends for all of them, with one outcome, whoever is lost when."""

from __future__ import annotations

import os
from collections import defaultdict
from random import Random

import pytest

from faults.world import held
from lib.server_cluster import Cluster
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.enums import Status
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.wire.messages import Command, encode_fence, encode_get, reply_layout, request_layout

ROUNDS = max(240, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))
BLOCKS = 4
RELEASE = (5, 0, 11)
LAYOUT = (0, 1, 2), (3, 4)
RANKS = [rank for ranks in LAYOUT for rank in ranks]
ALL = Proc("job", RANK_WILDCARD)
DEFINED = frozenset(int(status) for status in Status)
FENCE_ENDS = {statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS, statuses.ERR_TIMEOUT}


class Life:
    """One life of two servers, and what must hold of it."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.cluster = Cluster(*LAYOUT, latency=lambda: self.random.choice((0, 0.1, 1, 3)))
        self.clients = {rank: self.connect(rank) for rank in RANKS}
        self.requests = []
        self.calls = defaultdict(int)
        self.outcomes = defaultdict(set)
        self.groups = defaultdict(set)
        self.committed = defaultdict(int)
        self.timed = set()

    def connect(self, rank):
        client = self.cluster.client(rank, buffer_type=self.random.choice((1, 2)))
        client.life = next(self.cluster.number)
        return client

    def some(self, rank):
        if self.random.random() < 0.5:
            return (ALL,)
        chosen = {other for other in RANKS if self.random.random() < 0.5} | {rank}
        return tuple(Proc("job", other) for other in sorted(chosen))

    def timeout(self):
        return (attrs.TIMEOUT(self.random.choice((1, 2))),) if self.random.random() < 0.2 else ()

    def ask(self, client, kind, payload, name=None):
        self.requests.append((client, kind, client.send(payload), name))

    def do_fence(self, rank, client):
        procs = self.some(rank)
        infos = self.timeout()
        name = "fence", procs, self.calls[client.life, procs]
        self.calls[client.life, procs] += 1
        if infos:
            self.timed.add(procs)
        if self.random.random() < 0.5:
            infos += (attrs.COLLECT_DATA(True),)
        self.ask(client, "fence", encode_fence(client.buffer_type, procs, infos), name)

    def do_commit(self, rank, client):
        self.committed[rank] += 1
        client.commit((f"k{self.random.randrange(3)}", Value(codes.UINT32, self.committed[rank])))

    def do_get(self, rank, client):
        other = self.random.choice(RANKS)
        refresh = (attrs.GET_REFRESH_CACHE(True),) if self.random.random() < 0.2 else ()
        key = f"k{self.random.randrange(3)}"
        payload = encode_get(client.buffer_type, "job", other, (*self.timeout(), *refresh), key)
        self.ask(client, "get", payload)

    def do_group(self, rank, client):
        name = f"g{self.random.randrange(2)}"
        if self.random.random() < 0.3:
            command, fields = Command.GROUP_DESTRUCT, {"members": ()}
        else:
            note = Info("acme.note", Value(codes.UINT32, rank))
            told = Info("pmix.grp.info", attrs.GROUP_INFO((note,)).value)
            command, fields = Command.GROUP_CONSTRUCT, {"procs": self.some(rank)}
            fields["infos"] = (attrs.GROUP_ASSIGN_CONTEXT_ID(True), told, *self.timeout())
        fields = {"group": name, "infos": self.timeout(), **fields}
        payload = request_layout(command, RELEASE).encode(client.buffer_type, RELEASE, **fields)
        self.ask(client, "construct" if command == Command.GROUP_CONSTRUCT else "destruct", payload, name)

    def do_connect(self, rank, client):
        fields = {"procs": self.some(rank), "infos": self.timeout()}
        layout = request_layout(Command.CONNECTNB, RELEASE)
        self.ask(client, "connect", layout.encode(client.buffer_type, RELEASE, **fields))

    def do_finalize(self, rank, client):
        if self.random.random() < 0.2:
            client.ask(Command.FINALIZE)
            self.leave(rank)

    def do_die(self, rank, client):
        if self.random.random() < 0.4:
            self.leave(rank)

    def leave(self, rank):
        """A client is lost, and what it has asked with it."""
        self.check()
        client = self.clients.pop(rank)
        self.requests = [entry for entry in self.requests if entry[0] is not client]
        client.die()

    def step(self):
        rank = self.random.choice(RANKS)
        client = self.clients.get(rank)
        if client is None:
            if self.random.random() < 0.3:
                self.clients[rank] = self.connect(rank)
            return
        actions = [self.do_fence] * 4 + [self.do_commit, self.do_get, self.do_get, self.do_group, self.do_connect]
        self.random.choice([*actions, self.do_finalize, self.do_die])(rank, client)
        if self.random.random() < 0.5:
            self.cluster.advance(self.random.choice((0.1, 0.5, 4)))

    def check(self):
        for client, kind, tag, name in self.requests:
            client.read()
            if tag not in client.replies:
                continue
            status = client.status(tag)
            assert status in DEFINED
            if kind == "fence":
                assert status in FENCE_ENDS
                self.outcomes[name].add((client.life, status))
            elif kind == "get":
                assert status in (statuses.SUCCESS, statuses.ERR_NOT_FOUND, statuses.ERR_TIMEOUT)
            elif kind == "construct" and status == statuses.SUCCESS:
                layout = reply_layout(Command.GROUP_CONSTRUCT, RELEASE)
                reply = layout.decode(client.replies[tag], client.buffer_type, RELEASE)
                self.groups[name, reply["context_id"]].add(reply["members"])
        self.requests = [entry for entry in self.requests if entry[2] not in entry[0].replies]

    def end(self):
        """All but one are lost, and that one gets all its answers; then nothing is left."""
        self.check()
        survivor = self.random.choice(sorted(self.clients)) if self.clients else None
        for rank in RANKS:
            if rank != survivor:
                if rank in self.clients:
                    self.leave(rank)
                home = self.cluster.home(Proc("job", rank))
                home.server.deregister_client(Proc("job", rank))
                self.cluster.gone(Proc("job", rank))
        self.cluster.advance(60)
        self.check()
        if survivor is not None:
            assert not self.clients[survivor].asked, "a request of the survivor has no answer"
            self.leave(survivor)
        for node in self.cluster.nodes:
            assert not node.logged
            node.server.deregister_nspace("job")
        self.cluster.advance(60)
        for node in self.cluster.nodes:
            assert not node.server.pending()
            left = held(node.server)
            assert not left, f"server {node.number} still holds {dict(left)}"
        for members in self.groups.values():
            assert len(members) == 1, "members of a group do not agree on it"


@pytest.mark.parametrize("block", range(BLOCKS))
def test_whoever_is_lost_all_others_are_answered(block):
    for seed in range(block, ROUNDS, BLOCKS):
        life = Life(seed)
        try:
            for _ in range(life.random.randrange(10, 80)):
                life.step()
                life.check()
            life.end()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("block", range(BLOCKS))
def test_members_agree_on_fences(block):
    """Nobody comes back and nothing is timed here, so that the calls of all can be told apart."""
    for seed in range(block, ROUNDS, BLOCKS):
        life = Life(seed)
        life.timeout = lambda: ()
        procs = (ALL, *[Proc("job", rank) for rank in RANKS])[: life.random.choice((1, 6))]
        life.some = lambda rank, procs=procs: procs
        for _ in range(life.random.randrange(10, 60)):
            rank = life.random.choice(RANKS)
            if rank not in life.clients:
                continue
            chance = life.random.random()
            if chance < 0.04:
                life.do_die(rank, life.clients[rank])
            elif chance < 0.2:
                life.do_commit(rank, life.clients[rank])
            else:
                life.do_fence(rank, life.clients[rank])
            life.cluster.advance(life.random.choice((0, 0.1, 1)))
            life.check()
        life.cluster.advance(60)
        life.check()
        for name, outcomes in life.outcomes.items():
            assert len({status for _, status in outcomes}) == 1, f"seed {seed}: {name} ended as {outcomes}"
        life.end()
