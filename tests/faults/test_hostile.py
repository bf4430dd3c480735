"""Proves that what an honest client is told never depends on what another one sends, whatever that is.

Honest clients carry out a plan on a server on virtual time, once alone and once while hostile ones, of the same job
and of another, send requests of all kinds, well-formed and not, repeat what the honest ones have sent, say what only
members of a group may, introduce themselves as others, and come and go. Every answer and event of the honest ones is
the same. Names of groups are for whoever comes first, so that the hostile ones do not take those that are still free.

`PYPMIX_FAULT_ROUNDS` says how many plans there are.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from lib.server_world import GID, UID, Client, World
from pypmix.engine.groups import talk
from pypmix.standard import attrs, codes, keys, ops, statuses
from pypmix.standard.enums import Range
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.structures import Cpuset, ResourceUnit, Topology
from pypmix.standard.types import RANK_WILDCARD, App, DataArray, Info, Pdata, Proc, Query, Value
from pypmix.wire.frames import TAG_NOTIFY, frame
from pypmix.wire.handshake import native_credential
from pypmix.wire.layout import Blocks, Counted, CountedEach, Flagged, One, Repeated
from pypmix.wire.messages import (
    COMMAND_NAMES,
    EVENT,
    Command,
    encode_commit,
    encode_kval,
    reply_layout,
    request_layout,
)

ROUNDS = max(240, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))
BLOCKS = 4

RELEASE = (5, 0, 11)
NEWEST = (7, 0, 0)
HONEST = (*[Proc("job", rank) for rank in range(3)], Proc("other", 0), Proc("other", 1))
HOSTILE = (Proc("job", 3), Proc("evil", 0))
CODE = -3001
SERIAL = "acme.serial"

COMMANDS = [command for command in COMMAND_NAMES if command != Command.GROUP_LEAVE]


class Host(World):
    """A server with three jobs, whose host knows what was published."""

    def __init__(self):
        self.published = {}
        super().__init__(4)
        self.add("other", 2)
        self.add("evil", 1)

    def upcall(self, op, answer, process=None):
        result = error = None
        if isinstance(op, ops.Publish):
            self.published.update({info.key: (process, info.value) for info in op.infos})
        elif isinstance(op, ops.Unpublish):
            for key in op.keys:
                if self.published.get(key, (None,))[0] == process:
                    del self.published[key]
        elif isinstance(op, ops.Lookup):
            found = [(key, self.published[key]) for key in op.keys if key in self.published]
            result = tuple([Pdata(HONEST[0], key, value) for key, (_, value) in found])
            if not result:
                result, error = None, PMIxError("not found", status=statuses.ERR_NOT_FOUND)
        elif isinstance(op, ops.Spawn):
            error = NotSupported("not here")
        elif isinstance(op, ops.QueryInfo):
            result = ()
        answer(result, error)


class Honest(Client):
    """A client that notes what it is told."""

    def __init__(self, world, proc, described):
        super().__init__(world, proc.rank, proc.nspace, buffer_type=2 if described else 1)
        self.connect()
        self.sent = []
        self.groups = set()
        self.kinds = {}
        self.told = {}
        self.events = []

    def begin(self, command, **fields):
        if command == Command.GROUP_CONSTRUCT:
            self.groups.add(fields["group"])
        self.give(command, request_layout(command, RELEASE).encode(self.buffer_type, RELEASE, **fields))

    def give(self, command, payload):
        self.sent.append(payload)
        self.kinds[self.send(payload)] = command

    def note(self):
        """Take in what has come."""
        self.read()
        for tag, payload in self.replies.items():
            if tag not in self.told:
                self.told[tag] = self.essence(self.kinds[tag], payload)
        for tag, payload in self.pushed:
            if tag == TAG_NOTIFY:
                event = EVENT.decode(payload, self.buffer_type, RELEASE)
                if event["source"] in HONEST:
                    serial = [info.value.data for info in event["infos"] if info.key == SERIAL]
                    self.events.append((event["code"], event["source"], *serial))
        self.pushed.clear()

    def essence(self, command, payload):
        """Return an answer but for the order of procs in it, and the context id of a group, which is counted."""
        if command not in (Command.GROUP_CONSTRUCT, Command.GETNB):
            return payload
        fields = reply_layout(command, RELEASE).decode(payload, self.buffer_type, RELEASE)
        return fields["status"], fields.get("members"), sorted(fields.get("objects", ()))


class Plan:
    """What honest clients do: a list of functions of the clients, made from a seed."""

    def __init__(self, seed):
        self.random = random = Random(seed)
        self.last = 0
        self.steps = []
        self.keys = []
        for client in range(len(HONEST)):
            self.step(client, Command.REGEVENTS, codes=[CODE], infos=())
        doings = [
            self.fence,
            self.fence,
            self.group,
            self.group,
            self.connection,
            self.event,
            self.publishing,
            self.get,
        ]
        for _ in range(random.randrange(3, 14)):
            random.choice(doings)()

    def fresh(self):
        self.last += 1
        return self.last

    def step(self, client, command, **fields):
        self.steps.append(lambda clients: clients[client].begin(command, **fields))

    def some(self):
        return sorted(self.random.sample(range(len(HONEST)), self.random.randint(1, len(HONEST))))

    def named(self, members):
        procs = [HONEST[member] for member in members]
        if {3, 4} <= set(members) and self.random.random() < 0.5:
            procs = [proc for proc in procs if proc.nspace == "job"] + [Proc("other", RANK_WILDCARD)]
        return tuple(procs)

    def commit(self, client):
        key, number = f"k{self.fresh()}", self.fresh()
        self.keys.append((HONEST[client], key))

        def do(clients):
            kind = clients[client].buffer_type
            kval = encode_kval(kind, key, Value(codes.UINT32, number))
            clients[client].give(Command.COMMIT, encode_commit(kind, [(1, kval), (2, kval)]))

        self.steps.append(do)

    def fence(self):
        members = self.some()
        for member in members:
            if self.random.random() < 0.6:
                self.commit(member)
        infos = (attrs.COLLECT_DATA(True),) if self.random.random() < 0.5 else ()
        procs = self.named(members)
        for member in members:
            self.step(member, Command.FENCENB, procs=procs, infos=infos)
        for _ in range(self.random.randrange(3)):
            self.get()

    def get(self):
        """Get what is there, what comes later, and what never comes."""
        reader = self.random.randrange(len(HONEST))
        owner = self.random.randrange(len(HONEST))
        choice = self.random.random()
        if self.keys and choice < 0.5:
            proc, key = self.random.choice(self.keys)
        elif choice < 0.8:
            proc, key = HONEST[owner], f"k{self.last + 1}"
        else:
            proc, key = HONEST[owner], "never"
        infos = (attrs.TIMEOUT(3),) if key == "never" else ()
        self.step(reader, Command.GETNB, nspace=proc.nspace, rank=proc.rank, infos=infos, key=key)
        if choice >= 0.5 and key != "never":
            self.commit(owner)

    def group(self):
        members, name = self.some(), f"good{self.fresh()}"
        infos = tuple(
            self.random.sample([talk.flag(keys.GROUP_ASSIGN_CONTEXT_ID), talk.flag(keys.GROUP_NOTIFY_TERMINATION)], 1)
        )
        procs = self.named(members)
        for member in members:
            self.step(member, Command.GROUP_CONSTRUCT, group=name, procs=procs, infos=infos)
        if self.random.random() < 0.5:
            for member in members:
                self.step(member, Command.FENCENB, procs=(Proc(name, RANK_WILDCARD),), infos=())
        if self.random.random() < 0.7:
            for member in members:
                self.step(member, Command.GROUP_DESTRUCT, group=name, members=(), infos=())

    def connection(self):
        members = self.some()
        procs = self.named(members)
        for command in (Command.CONNECTNB, Command.DISCONNECTNB):
            for member in members:
                self.step(member, command, procs=procs, infos=())

    def event(self):
        source, serial = self.random.randrange(len(HONEST)), self.fresh()
        infos = [Info(SERIAL, Value(codes.UINT32, serial))]
        range = self.random.choice((Range.CUSTOM, Range.NAMESPACE, Range.SESSION))
        if range == Range.CUSTOM:
            infos.append(attrs.EVENT_CUSTOM_RANGE(DataArray(codes.PROC, self.named(self.some()))))
        self.step(source, Command.NOTIFY, code=CODE, range=range, infos=tuple(infos))

    def publishing(self):
        owner, key = self.random.randrange(len(HONEST)), f"p{self.fresh()}"
        infos = (Info(key, Value(codes.UINT32, self.fresh())),)
        self.step(owner, Command.PUBLISHNB, uid=UID, infos=infos)
        self.step(self.random.randrange(len(HONEST)), Command.LOOKUPNB, uid=UID, keys=[key, "pnever"], infos=())


class Hostile:
    """Clients that send anything."""

    def __init__(self, world, seed, counted):
        self.world = world
        self.random = Random(seed)
        self.counted = counted
        self.clients = {}
        self.overheard = []
        self.groups = []

    def harm(self, honest):
        """Do something; what the honest clients have sent so far can be repeated."""
        random = self.random
        self.overheard += [payload for client in honest for payload in client.sent[-3:]]
        self.groups = sorted({group for client in honest for group in client.groups})
        for _ in range(random.randrange(4)):
            proc = random.choice(HOSTILE)
            client = self.clients.get(proc)
            if client is None or client.link.closed or client.link.owner is None or random.random() < 0.03:
                if client is not None and random.random() < 0.7:
                    client.die()
                client = self.clients[proc] = Client(
                    self.world,
                    proc.rank,
                    proc.nspace,
                    buffer_type=random.choice((1, 2)),
                    version=random.choice(("5.0.11", "7.0.0")),
                )
                client.connect()
                client.read = lambda: None
            what = random.choice(
                (self.ask, self.ask, self.ask, self.repeat, self.repeat, self.mangle, self.push, self.pretend)
            )
            self.counted[what.__name__] += 1
            what(client)

    def give(self, client, payload, tag=None):
        client.link.out.clear()
        if client.link.owner is not None and not client.link.closed:
            client.link.owner.received(frame(0, next(client.tags) if tag is None else tag, payload))

    def ask(self, client):
        self.give(client, self.request(client))

    def request(self, client):
        release = self.random.choice((RELEASE, NEWEST))
        while True:
            command = self.random.choice(COMMANDS)
            try:
                layout = request_layout(command, release)
            except NotSupported:
                continue
            fields = {field.name: self.field(command, field, client.buffer_type) for field in layout.fields}
            return layout.encode(client.buffer_type, release, **fields)

    def repeat(self, client):
        if self.overheard:
            self.give(client, self.random.choice(self.overheard[-40:]))

    def mangle(self, client):
        random = self.random
        data = bytearray(random.choice([self.request(client), *self.overheard[-10:]]))
        for _ in range(random.randrange(1, 4)):
            where = random.randrange(len(data) + 1)
            choice = random.randrange(4)
            if choice == 0 and where < len(data):
                data[where] ^= 1 << random.randrange(8)
            elif choice == 1:
                data[where:where] = random.choice((b"\xff" * 9, b"\x7f", bytes(4), random.randbytes(5)))
            elif choice == 2:
                del data[where:]
            else:
                del data[where : where + random.randrange(1, 6)]
        self.give(client, bytes(data))

    def push(self, client):
        """Send under a tag that is no request's, or what is no message."""
        if self.random.random() < 0.7:
            self.give(
                client,
                self.random.choice((b"", self.request(client), self.random.randbytes(30))),
                self.random.randrange(101),
            )
        elif client.link.owner is not None:
            client.link.out.clear()
            client.link.owner.received(self.random.randbytes(self.random.randrange(1, 80)))

    def pretend(self, _client):
        """Introduce itself as an honest proc, with a credential of somebody else."""
        proc = self.random.choice(HONEST)
        stranger = Client(self.world, proc.rank, proc.nspace, credential=native_credential(UID + 1, GID))
        stranger.connect()
        assert stranger.link.closed

    # What it puts into requests.

    def procs(self):
        among = [*HONEST, *HOSTILE, *[Proc(name, RANK_WILDCARD) for name in ("job", "other", "evil", "gone", "good3")]]
        return tuple(self.random.sample(among, self.random.randrange(5)))

    def infos(self):
        random = self.random
        some = [
            attrs.COLLECT_DATA(True),
            attrs.TIMEOUT(random.choice((0, 1, -1, 2**31 - 1))),
            attrs.EVENT_CUSTOM_RANGE(DataArray(codes.PROC, self.procs())),
            talk.text(keys.GROUP_ID, self.name()),
            talk.procs(keys.GROUP_MEMBERSHIP, self.procs()),
            talk.procs(keys.GROUP_ADD_MEMBERS, self.procs()),
            talk.proc(keys.GROUP_LEADER, random.choice(HONEST)),
            talk.proc(keys.EVENT_AFFECTED_PROC, random.choice(HONEST)),
            talk.text(talk.SAYS, talk.REACTION),
            talk.text(talk.VERDICT, random.choice((talk.CLAIM, talk.GO_ON, talk.ABORT))),
            talk.size(keys.GROUP_BOOTSTRAP, random.randrange(3)),
            talk.flag(keys.GROUP_OPTIONAL),
            talk.flag(keys.GROUP_FT_COLLECTIVE),
            talk.flag(keys.EVENT_NON_DEFAULT),
            Info(f"e{random.randrange(9)}", Value(codes.UINT32, random.randrange(9))),
            Info(
                random.choice(["pmix.range", "pmix.persist", "pmix.wait", "pmix.timeout", "pmix.grp.opt"]), self.junk()
            ),
        ]
        return tuple(random.sample(some, random.randrange(4)))

    def junk(self):
        return self.random.choice(
            (Value(codes.STRING, "junk"), Value(codes.UINT8, 255), Value(codes.INT, -5), Value(codes.UNDEF))
        )

    def name(self):
        return f"good{self.random.randrange(30)}"

    def field(self, command, field, kind):
        random = self.random
        if isinstance(field, Blocks):
            kval = encode_kval(kind, f"e{random.randrange(9)}", self.junk())
            return tuple([(random.randrange(5), kval * random.randrange(3)) for _ in range(random.randrange(3))])
        if isinstance(field, Flagged):
            return random.choice((None, random.choice(HONEST)))
        assert isinstance(field, One)
        if isinstance(field, Counted | CountedEach | Repeated):
            if field.type == codes.PROC:
                return self.procs()
            if field.type == codes.INFO:
                return self.infos()
            return tuple([self.one(command, field) for _ in range(random.randrange(3))])
        return self.one(command, field)

    def one(self, command, field):
        random = self.random
        if field.name == "group":
            return random.choice(("mine", *self.groups)) if command == Command.GROUP_CONSTRUCT else self.name()
        if field.name in ("code", "codes", "error", "status"):
            return random.choice(
                (CODE, -158, *range(-170, -158), statuses.TALK, statuses.JOIN_REQUEST, statuses.LEAVE_REQUEST, -7, 0)
            )
        simple = {
            codes.STRING: lambda: random.choice(("", "job", "gone", "k1", "k3", "e1", "p2", "x" * 600)),
            codes.BYTE_OBJECT: lambda: random.randbytes(random.randrange(20)),
            codes.INFO: lambda: random.choice(self.infos() or (attrs.TIMEOUT(1),)),
            codes.QUERY: lambda: Query(("pmix.qry.ns", "acme"), self.infos()),
            codes.APP: lambda: App("x", ("x",), info=self.infos()),
            codes.RESOURCE_UNIT: lambda: ResourceUnit(1, 2),
            codes.TOPO: lambda: Topology(None),
            codes.PROC_CPUSET: lambda: Cpuset(None),
            codes.BOOL: lambda: random.random() < 0.5,
            codes.PROC_RANK: lambda: random.choice((0, 1, 3, 99, RANK_WILDCARD, RANK_WILDCARD - 1)),
        }
        if field.type in simple:
            return simple[field.type]()
        return random.choice((0, 1, 2, 3, 4, 5, 6, 7, 127))


def carry_out(seed, hostile, counted=None):
    """Carry a plan out, and return all that each honest client was told."""
    world = Host()
    random = Random(seed)
    clients = [Honest(world, proc, random.random() < 0.5) for proc in HONEST]
    enemy = Hostile(world, seed, counted) if hostile else None
    for step in Plan(seed).steps:
        if enemy is not None:
            enemy.harm(clients)
        step(clients)
        for client in clients:
            client.note()
        if random.random() < 0.2:
            world.advance(random.choice((0, 0.1, 1)))
    for _ in range(5):
        if enemy is not None:
            enemy.harm(clients)
        world.advance(1)
    for client in clients:
        client.note()
        assert client.link.owner is not None and not client.link.closed, f"{client.proc} was cut off"
    return {client.proc: (client.told, client.events) for client in clients}


@pytest.mark.timeout(90 + ROUNDS // 4)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_others_send_changes_nothing(block):
    counted = Counter()
    for seed in range(block, ROUNDS, BLOCKS):
        alone, beset = carry_out(seed, False), carry_out(seed, True, counted)
        for proc in HONEST:
            assert beset[proc] == alone[proc], f"seed {seed}: {proc} is told something else"
        assert sum(len(told) for told, _ in alone.values()) > len(HONEST)
    assert min(counted.values()) > ROUNDS // BLOCKS, counted
    if "PYPMIX_FAULT_ROUNDS" in os.environ:
        print(f"\nhostile: {dict(counted)}")
