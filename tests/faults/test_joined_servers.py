"""Proves that on servers joined by crossings every operation ends, the same way for all, and leaves nothing."""

from __future__ import annotations

import os
from collections import defaultdict

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from faults.joined import Joined
from faults.world import held
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.enums import Status
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value
from pypmix.wire.messages import Command, encode_fence, encode_get, reply_layout, request_layout

EXAMPLES = max(250, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))
RELEASE = (5, 0, 11)
ABORTED = -165
DEFINED = frozenset(int(status) for status in Status) | {ABORTED}
FENCE_ENDS = {statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS, statuses.ERR_TIMEOUT}
KEYS = "abc"

LAYOUTS = [
    {"job": (0, 0, 1, 1)},
    {"job": (0, 1)},
    {"job": (0, 1, 2, 0, 1), "other": (1, 2)},
    {"job": (0, 1, 2, 3), "other": (0, 3), "lone": (2,)},
]
PAUSES = (0.0, 0.0, 0.01, 0.3, 2.5)
KINDS = (
    *("fence",) * 5, "commit", "commit", "get", "get", "construct", "destruct", "connect", "disconnect",
    "finalize", "finalize", "open", "open", "die",
)  # fmt: skip

STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 6), st.integers(0, 63), st.sampled_from(PAUSES)),
    min_size=1,
    max_size=80,
)


class Life:
    """One run of some servers and their clients, and what must hold of it."""

    def __init__(self, layout, delays):
        servers = 1 + max(max(places) for places in layout.values())
        numbers = iter(range(1 << 30))
        self.world = Joined(servers, lambda _from, _to: delays[next(numbers) % len(delays)])
        for nspace, places in layout.items():
            self.world.add_job(nspace, places)
        self.world.advance(5)
        self.procs = sorted(self.world.where)
        self.ended = set()
        self.clients = {}
        self.requests = []
        self.committed = {proc: dict.fromkeys(KEYS, 0) for proc in self.procs}
        self.values = defaultdict(set)
        self.groups = defaultdict(set)
        self.calls = defaultdict(int)
        self.outcomes = defaultdict(dict)
        self.seen = defaultdict(dict)
        self.opened = set()
        self.mixed = set()
        for proc in self.procs:
            self.open(proc)

    def open(self, proc):
        if proc in self.ended or proc in self.clients:
            return
        if proc in self.opened:
            # Who calls what for the how-manieth time cannot be told any more.
            self.mixed.add(proc)
        self.opened.add(proc)
        self.clients[proc] = self.world.client(proc, buffer_type=1 + len(self.opened) % 2)

    def party(self, proc, number):
        """Return who takes part: all of the job, or some of all jobs."""
        if number % 3 == 0:
            return (Proc(proc.nspace, RANK_WILDCARD),)
        return tuple(other for place, other in enumerate(self.procs) if other == proc or number >> place & 1)

    def members(self, procs):
        return {each for each in self.procs for proc in procs if each == proc or proc == (each.nspace, RANK_WILDCARD)}

    def limit(self, number):
        return (attrs.TIMEOUT(1 + number % 3),) if number % 5 == 4 else ()

    def ask(self, client, kind, payload, name=None):
        self.requests.append((client, kind, client.send(payload), name))

    def request(self, client, command, kind, name=None, **fields):
        payload = request_layout(command, RELEASE).encode(client.buffer_type, RELEASE, **fields)
        self.ask(client, kind, payload, name)

    def step(self, kind, who, number, pause):
        proc = self.procs[who % len(self.procs)]
        client = self.clients.get(proc)
        if kind == "open":
            self.open(proc)
        elif client is not None:
            getattr(self, f"do_{kind}")(proc, client, number)
        self.world.advance(pause)
        self.check()

    def do_fence(self, proc, client, number):
        procs = tuple(each for each in self.party(proc, number) if each.nspace == proc.nspace)
        members = frozenset(self.members(procs))
        infos = self.limit(number)
        if infos:
            self.mixed |= members
        call = self.calls[proc, members]
        self.calls[proc, members] += 1
        self.seen[members, call][proc] = dict(self.committed[proc])
        infos += (attrs.COLLECT_DATA(True),)
        self.ask(client, "fence", encode_fence(client.buffer_type, procs, infos), (members, call))

    def do_commit(self, proc, client, number):
        key = KEYS[number % 3]
        self.committed[proc][key] += 1
        self.values[proc, key].add(self.committed[proc][key])
        client.commit((key, Value(codes.UINT32, self.committed[proc][key])))

    def do_get(self, proc, client, number):
        other = self.procs[number % len(self.procs)]
        if self.world.where[proc].server.store.get(other.nspace) is None:
            return
        key = (*KEYS, "never")[number % 4]
        infos = self.limit(number) + ((attrs.GET_REFRESH_CACHE(True),) if number % 7 == 0 else ())
        payload = encode_get(client.buffer_type, other.nspace, other.rank, infos, key)
        self.ask(client, "get", payload, (other, key))

    def do_construct(self, proc, client, number):
        told = attrs.GROUP_INFO((Info("acme.note", Value(codes.UINT32, proc.rank)),))
        name = f"g{number % 2}"
        infos = (attrs.GROUP_ASSIGN_CONTEXT_ID(True), told, *self.limit(number))
        self.request(
            client,
            Command.GROUP_CONSTRUCT,
            "construct",
            name,
            group=name,
            procs=self.party(proc, number),
            infos=infos,
        )

    def do_destruct(self, proc, client, number):
        self.request(client, Command.GROUP_DESTRUCT, "destruct", group=f"g{number % 2}", members=(), infos=())

    def do_connect(self, proc, client, number):
        fields = {"procs": self.party(proc, number), "infos": self.limit(number)}
        self.request(client, Command.CONNECTNB, "connect", **fields)

    def do_disconnect(self, proc, client, number):
        fields = {"procs": self.party(proc, number), "infos": self.limit(number)}
        self.request(client, Command.DISCONNECTNB, "disconnect", **fields)

    def do_finalize(self, proc, client, number):
        """It has finalized what it has asked for as well, closes, and lives on."""
        self.mixed.add(proc)
        self.request(client, Command.FINALIZE, "finalize")
        self.world.advance(0)
        self.leave(proc)
        client.link.owner.handle_disconnect()

    def do_die(self, proc, client, number):
        if number % 2:
            self.leave(proc)
            client.die()
            self.exit(proc)

    def leave(self, proc):
        self.check()
        client = self.clients.pop(proc)
        self.requests = [entry for entry in self.requests if entry[0] is not client]

    def exit(self, proc):
        self.ended.add(proc)
        self.world.exit(proc)

    def check(self):
        for client, kind, tag, name in self.requests:
            client.read()
            if tag in client.replies:
                self.answered(client, kind, tag, name)
        self.requests = [entry for entry in self.requests if entry[2] not in entry[0].replies]

    def answered(self, client, kind, tag, name):
        status = client.status(tag)
        assert status in DEFINED
        if kind == "fence":
            assert status in FENCE_ENDS
            self.outcomes[name][client.proc] = status
            if status == statuses.SUCCESS:
                self.check_fence(client, *name)
        elif kind == "get":
            assert status in (statuses.SUCCESS, statuses.ERR_NOT_FOUND, statuses.ERR_TIMEOUT), status
            other, key = name
            if status == statuses.SUCCESS:
                value = client.value(tag, other.rank, key, nspace=other.nspace)
                assert value is None or value.data in self.values[name]
        elif kind == "construct" and status == statuses.SUCCESS:
            layout = reply_layout(Command.GROUP_CONSTRUCT, RELEASE)
            reply = layout.decode(client.replies[tag], client.buffer_type, RELEASE)
            self.groups[name, reply["context_id"]].add(reply["members"])

    def check_fence(self, client, members, call):
        """A collecting fence that succeeds has brought what all had committed when they called it."""
        if members & self.mixed:
            return
        assert self.seen[members, call].keys() == members
        for proc in members - {client.proc}:
            for key, least in self.seen[members, call][proc].items():
                if least:
                    infos = (attrs.IMMEDIATE(True),)
                    payload = encode_get(client.buffer_type, proc.nspace, proc.rank, infos, key)
                    tag = client.send(payload)
                    assert client.status(tag) == statuses.SUCCESS
                    assert client.value(tag, proc.rank, key).data >= least

    def end(self, order):
        """One after the other is lost, and those who are left get their answers; then nothing is left."""
        for number in (*order, *range(len(self.procs))):
            proc = self.procs[number % len(self.procs)]
            left = set(self.procs) - self.ended
            if proc in self.ended or (proc in self.clients and len(left) == 1):
                continue
            if proc in self.clients:
                client = self.clients[proc]
                self.leave(proc)
                client.die()
            self.exit(proc)
            self.world.advance(1)
            self.check()
        self.world.advance(60)
        self.check()
        assert not self.requests, f"{self.requests[0][1]} of the last one is not answered"
        for proc in list(self.clients):
            client = self.clients[proc]
            self.leave(proc)
            client.die()
            self.exit(proc)
        self.world.advance(60)
        self.world.check_empty(held)
        for (members, call), outcomes in self.outcomes.items():
            if not members & self.mixed:
                assert len(set(outcomes.values())) == 1, f"call {call} of {sorted(members)} ended as {outcomes}"
        for found in self.groups.values():
            assert len(found) == 1, "members of a group do not agree on it"


def play(layout, delays, steps, order):
    life = Life(layout, delays)
    for step in steps:
        life.step(*step)
    life.end(order)


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(LAYOUTS),
    st.lists(st.sampled_from((0.0, 0.01, 0.1, 1.5)), min_size=1, max_size=7),
    STEPS,
    st.lists(st.integers(0, 6), max_size=7),
)
@example({"job": (0, 1)}, [0.1], [("finalize", 0, 0, 0.0), ("fence", 1, 0, 0.0), ("open", 0, 0, 0.3)], [])
def test_every_operation_ends_the_same_way_for_all(layout, delays, steps, order):
    play(layout, delays, steps, order)
