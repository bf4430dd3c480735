"""Many clients of a simulated server who ask for anything, and are lost at any moment; and what must hold of it all."""

from __future__ import annotations

import gc
from collections import Counter
from itertools import count
from types import BuiltinFunctionType, FunctionType, ModuleType

from lib.server_world import Client, World
from pypmix.engine.collective import machine as collectives
from pypmix.engine.groups import talk
from pypmix.engine.python import modex, serverdata
from pypmix.engine.python import node as machine
from pypmix.engine.python.serverside import asking, constructs, forwarding, grouprecords, handshakes
from pypmix.standard import attrs, codes, keys, ops, statuses
from pypmix.standard.enums import Range, Status
from pypmix.standard.errors import NotSupported, PermissionDenied
from pypmix.standard.ops import Notification, Output
from pypmix.standard.types import RANK_VALID, RANK_WILDCARD, App, DataArray, Info, Pdata, Proc, Query, Value
from pypmix.wire.frames import TAG_IOF, TAG_NOTIFY, frame
from pypmix.wire.messages import EVENT, IOF, Command, encode_fence, encode_get, reply_layout, request_layout

RELEASE = (5, 0, 11)
ALL_CODES = -(2**31)
SERIAL = "acme.serial"
HOST = Proc("host", 0)
WATCHER = Proc("watch", 0)
ALL_OUTPUT = ops.forwarding.STDOUT | ops.forwarding.STDERR

DEFINED = frozenset(int(status) for status in Status)
ENDS = {
    "fence": {statuses.SUCCESS, statuses.ERR_PARTIAL_SUCCESS, statuses.ERR_TIMEOUT},
    "commit": {statuses.SUCCESS},
    "get": {statuses.SUCCESS, statuses.ERR_NOT_FOUND, statuses.ERR_TIMEOUT},
}
"""How an operation may end where it is not up to the host."""

EVENTS = (-3001, -3002, ALL_CODES)
RANGES = (Range.SESSION, Range.NAMESPACE, Range.LOCAL, Range.GLOBAL, Range.RM, Range.PROC_LOCAL, Range.CUSTOM)

GROUPINGS = [talk.flag(key) for key in (keys.GROUP_OPTIONAL, keys.GROUP_NOTIFY_TERMINATION, keys.GROUP_FT_COLLECTIVE)]
GROUPINGS += [talk.flag(key) for key in (keys.GROUP_LEADER, talk.REACTS, keys.GROUP_ASSIGN_CONTEXT_ID)]

HELD = (
    machine.Peer,
    handshakes.Handshake,
    serverdata.Process,
    serverdata.Namespace,
    collectives.Collective,
    collectives.Membership,
    modex.Waiting,
    forwarding._Cache,
    forwarding._Pull,
    forwarding._Feed,
    asking._PendingRequest,
    constructs.Construct,
    grouprecords._KnownInvitation,
    serverdata.Group,
)
"""What a server holds because of somebody; the rest are bounded caches of messages."""


def held(*roots):
    """Return what of `HELD` can be reached, by following all references of data, closures and methods."""
    seen = {id(root) for root in roots}
    todo = list(roots)
    found = Counter()
    while todo:
        item = todo.pop()
        if isinstance(item, HELD):
            found[type(item).__name__] += 1
        if isinstance(item, FunctionType):
            following = [*(item.__closure__ or ()), *(item.__defaults__ or ())]
        else:
            following = gc.get_referents(item)
        for other in following:
            if id(other) in seen or isinstance(other, (type, ModuleType, BuiltinFunctionType, World)):
                continue
            seen.add(id(other))
            todo.append(other)
    return found


class Everybody(World):
    """A server with two jobs and a proc that watches; its host answers when the simulation says so, in any order."""

    def __init__(self):
        self.held = []
        self.patient = False
        self.interests = set()
        self.feeds = set()
        self.lost = Counter()
        self.numbers = count(1)
        self.children = []
        super().__init__(4)
        self.add("other", 2)
        self.add("watch", 1)
        self.procs = [Proc("job", rank) for rank in range(4)] + [Proc("other", rank) for rank in range(2)]
        self.clients = {proc: [] for proc in (*self.procs, WATCHER)}
        self.events = {}
        """Each event by its number: its code, whom it concerns, and its range."""
        self.pieces = {}
        self.read_pieces = set()
        self.outlived = set()
        self.requests = []

    # The host

    def upcall(self, op, answer, process=None):
        self.upcalls.append(op)
        if isinstance(op, ops.ClientLost):
            self.lost[op.proc] += 1
        if isinstance(op, ops.DeregisterEvents):
            self.interests -= set(op.codes or (ALL_CODES,))
        if isinstance(op, ops.IOFDeregister):
            self.feeds.remove(op.id)
        if self.patient and not isinstance(op, ops.ClientConnected):
            self.held.append((op, answer))
        else:
            self.reply(op, answer, 0)

    def reply(self, op, answer, how):
        """Answer an upcall: with what it asks for, or with one of two errors."""
        if how % 4 == 3:
            answer(None, NotSupported("not here") if how % 8 == 3 else PermissionDenied("not you"))
            return
        result = None
        if isinstance(op, ops.RegisterEvents):
            self.interests |= set(op.codes or (ALL_CODES,))
        elif isinstance(op, ops.IOFPull):
            result = next(self.numbers)
            self.feeds.add(result)
        elif isinstance(op, ops.Lookup):
            result = tuple([Pdata(HOST, key, Value(codes.UINT32, 1)) for key in op.keys])
        elif isinstance(op, ops.QueryInfo):
            result = ()
        elif isinstance(op, ops.Spawn):
            result = f"child{next(self.numbers)}"
            self.add(result, 2)
            self.children.append(result)
            for rank in range(2):
                self.procs.append(Proc(result, rank))
                self.clients[Proc(result, rank)] = []
        answer(result, None)

    def answer_all(self):
        while self.held:
            self.reply(*self.held.pop(0), 0)

    def end_job(self, nspace):
        """A spawned job is over: its procs are lost and it is forgotten."""
        for proc in [proc for proc in self.procs if proc.nspace == nspace]:
            self.procs.remove(proc)
            for client in self.clients.pop(proc):
                client.leave()
            self.server.deregister_client(proc)
        self.server.deregister_nspace(nspace)
        self.children.remove(nspace)
        # What it has written is kept for a while only.
        self.outlived |= {number for number, source in self.pieces.items() if source.nspace == nspace}

    def output(self, source, channel):
        number = next(self.numbers)
        self.pieces[number] = source
        self.server.forwarding.deliver(Output(source, channel, f"<{number}>".encode()))

    def notify(self, code, range, targets):
        """Raise an event of the host's."""
        _, infos = self.announced(code, range, targets, HOST, None)
        self.server.events.notify(Notification(code, HOST, range, infos))

    def announced(self, code, range, targets, source, sender):
        """Note an event, and who must get it; return its number and its infos."""
        number = next(self.numbers)
        infos = [Info(SERIAL, Value(codes.UINT32, number))]
        if targets:
            infos.append(attrs.EVENT_CUSTOM_RANGE(DataArray(codes.PROC, tuple(targets))))
        self.events[number] = code, source, range, targets
        for client in self.everybody():
            wants = code in client.registered or ALL_CODES in client.registered
            if client is not sender and wants and not client.finalized and self.concerns(number, client.proc):
                client.due.add(number)
        return number, tuple(infos)

    def concerns(self, number, proc):
        _, source, range, targets = self.events[number]
        if targets:
            return any(target in (proc, (proc.nspace, RANK_WILDCARD)) for target in targets)
        if range == Range.NAMESPACE:
            return proc.nspace == source.nspace
        return range not in (Range.RM, Range.PROC_LOCAL)

    def everybody(self):
        return [client for clients in self.clients.values() for client in clients]

    # What must hold at any time

    def check(self):
        self.made = []
        for client in self.everybody():
            client.read()
        for client, name, tag in self.requests:
            if tag in client.replies:
                status = client.status(tag)
                assert status in DEFINED, f"{name} of {client.proc} ended with {status}"
                assert name not in ENDS or status in ENDS[name], f"{name} of {client.proc} ended with {status}"
                client.ended(name, tag, status)
        self.requests = [entry for entry in self.requests if entry[2] in entry[0].asked]
        for group, members, context_id in self.made:
            for other, others, number in self.made:
                same = (others, number) == (members, context_id) or not {*others} & {*members}
                assert group != other or same, f"members of {group} do not agree on it"
        for client in self.everybody():
            assert not client.due, f"{client.proc} has not got the events {client.due}"
        for entry in self.server.pending():
            if entry.operation == "get":
                assert self.clients[entry.arrived[0]], f"a get waits whose reader {entry.arrived[0]} has gone"
                target = entry.missing[0]
                assert target.rank > RANK_VALID or not self.server.store.process(target).left, "a get waits for nobody"
            elif entry.label == "with the host":
                assert self.clients[entry.arrived[0]], f"the host is asked for {entry.arrived[0]}, who has gone"
        for proc, clients in self.clients.items():
            process = self.server.store.process(proc)
            if clients and all(client.finalized for client in clients):
                assert process.left
            if not clients and process.opened:
                assert process.left, f"{proc} has gone, and is waited for"

    def live_timers(self):
        return [entry for entry in self.timers if entry[2].function]


class Anybody(Client):
    """One connection: it asks for anything, and notes what it gets."""

    def __init__(self, world, proc, described):
        super().__init__(world, proc.rank, proc.nspace, buffer_type=2 if described else 1)
        self.registered = set()
        self.ever = set()
        self.codes_of = {}
        self.due = set()
        self.heard = set()
        self.pulls = {}
        self.constructs = {}
        self.got = set()
        self.finalized = False
        self.connect()

    def begin(self, name, command, **fields):
        layout = request_layout(command, RELEASE)
        return self.note(name, self.send(layout.encode(self.buffer_type, RELEASE, **fields)))

    def note(self, name, tag):
        self.world.requests.append((self, name, tag))
        return tag

    def ended(self, name, tag, status):
        """A request has ended."""
        if name == "register":
            wanted = self.codes_of.pop(tag)
            if status == statuses.SUCCESS:
                self.registered |= wanted
        elif name == "pull" and status == statuses.SUCCESS:
            layout = reply_layout(Command.IOF_PULL, RELEASE)
            self.pulls[layout.decode(self.replies[tag], self.buffer_type, RELEASE)["remote_id"]] = tag
        elif name == "construct":
            group = self.constructs.pop(tag)
            if status == statuses.SUCCESS:
                layout = reply_layout(Command.GROUP_CONSTRUCT, RELEASE)
                fields = layout.decode(self.replies[tag], self.buffer_type, RELEASE)
                assert self.proc in fields["members"], f"{self.proc} has constructed {group} and is no member"
                self.world.made.append((group, tuple(fields["members"]), fields["context_id"]))
        elif name == "finalize":
            self.finalized = True

    def read(self):
        super().read()
        pushed, self.pushed = self.pushed, []
        for tag, payload in pushed:
            assert tag in (TAG_NOTIFY, TAG_IOF)
            if tag == TAG_NOTIFY:
                self.event(EVENT.decode(payload, self.buffer_type, RELEASE))
            else:
                self.piece(IOF.decode(payload, self.buffer_type, RELEASE))

    def event(self, event):
        (number,) = [info.value.data for info in event["infos"] if info.key == SERIAL]
        code = self.world.events[number][0]
        assert number not in self.heard, f"{self.proc} got the event {number} twice"
        assert event["code"] == code and (code in self.ever or ALL_CODES in self.ever)
        assert self.world.concerns(number, self.proc), f"the event {number} does not concern {self.proc}"
        self.heard.add(number)
        self.due.discard(number)

    def piece(self, piece):
        data = piece["data"].decode()
        assert (piece["handler"], data) not in self.got, f"{self.proc} got the output {data} twice"
        self.got.add((piece["handler"], data))
        assert piece["source"] != self.proc
        self.world.read_pieces.add(int(data.strip("<>")))

    # What it may do; `a`, `b` and `c` are small numbers that choose how.

    def some_procs(self, a):
        """Return itself and some others."""
        chosen = {proc for bit, proc in enumerate(self.world.procs) if a >> bit & 1}
        return tuple(sorted(chosen | {self.proc}))

    def do_fence(self, a, b, c):
        infos = [attrs.COLLECT_DATA(True)] if b & 1 else []
        infos += [attrs.TIMEOUT(c % 4)] if c % 4 else []
        procs = self.some_procs(a) if b & 2 else (Proc(self.proc.nspace, RANK_WILDCARD),)
        self.note("fence", self.send(encode_fence(self.buffer_type, procs, infos)))

    def do_connect(self, a, b, c):
        command = (Command.CONNECTNB, Command.DISCONNECTNB)[b & 1]
        infos = (attrs.TIMEOUT(c % 4),) if c % 4 else ()
        self.begin("connect", command, procs=self.some_procs(a), infos=infos)

    def do_group(self, a, b, c):
        infos = (attrs.TIMEOUT(c % 4),) if c % 4 else ()
        name = f"group{b % 2}"
        if b & 2:
            procs = self.some_procs(a)
            infos += tuple([info for bit, info in enumerate(GROUPINGS) if c >> bit & 1])
            self.construct(name, procs, infos)
        else:
            self.begin("group", Command.GROUP_DESTRUCT, group=name, members=(), infos=infos)

    def do_gather(self, a, b, c):
        infos = (attrs.TIMEOUT(1 + c % 4),)
        if b & 1:
            added = talk.procs(keys.GROUP_ADD_MEMBERS, self.some_procs(a))
            infos += (talk.size(keys.GROUP_BOOTSTRAP, 1 + (b >> 1) % 2), added)
        self.construct(f"group{c % 2}", (self.proc,) if b & 1 else (), infos)

    def construct(self, name, procs, infos):
        tag = self.begin("construct", Command.GROUP_CONSTRUCT, group=name, procs=procs, infos=infos)
        self.constructs[tag] = name

    def do_group_fence(self, _a, b, c):
        procs = (Proc(f"group{b % 2}", RANK_WILDCARD),)
        infos = (attrs.TIMEOUT(1 + c % 4), *((talk.flag(keys.GROUP_FT_COLLECTIVE),) if c & 4 else ()))
        self.note("group fence", self.send(encode_fence(self.buffer_type, procs, infos)))

    def do_say(self, a, b, c):
        """Say something about a group that other members or the server take for true where it may be."""
        others = talk.procs(keys.EVENT_CUSTOM_RANGE, self.some_procs(a))
        code, *said = (
            (statuses.GROUP_LEFT,),
            (statuses.GROUP_INVITED,),
            (statuses.GROUP_CONSTRUCT_COMPLETE, talk.procs(keys.GROUP_MEMBERSHIP, self.some_procs(c))),
            (statuses.GROUP_CONSTRUCT_ABORT,),
            (statuses.GROUP_MEMBERSHIP_UPDATE, talk.procs(keys.GROUP_MEMBERSHIP, self.some_procs(c))),
            (statuses.GROUP_LEADER_SELECTED, talk.proc(keys.GROUP_LEADER, self.world.procs[c % len(self.world.procs)])),
            *[
                (statuses.TALK, talk.text(talk.SAYS, talk.REACTION), talk.proc(keys.EVENT_AFFECTED_PROC, proc), verdict)
                for proc in self.world.procs[:2]
                for verdict in [talk.text(talk.VERDICT, word) for word in (talk.CLAIM, talk.GO_ON, talk.ABORT)]
            ],
        )[b % 12]
        quiet = talk.flag(keys.EVENT_NON_DEFAULT), talk.flag(keys.EVENT_DO_NOT_CACHE)
        infos = (others, talk.text(keys.GROUP_ID, f"group{b % 2}"), *quiet, *said)
        self.begin("say", Command.NOTIFY, code=code, range=Range.CUSTOM, infos=infos)

    def do_commit(self, a, b, _):
        self.note("commit", self.commit((f"k{a % 3}", Value(codes.UINT32, b))))

    def do_get(self, a, b, c):
        proc = self.world.procs[a % len(self.world.procs)]
        infos = (attrs.TIMEOUT(c % 4),) if c % 4 else ()
        rank = RANK_WILDCARD - 1 if b == 7 else proc.rank
        self.note("get", self.send(encode_get(self.buffer_type, proc.nspace, rank, infos, f"k{b % 3}")))

    def do_publish(self, a, b, c):
        if b % 3 == 0:
            infos = (Info(f"p{a}", Value(codes.UINT32, c)),)
            self.begin("publish", Command.PUBLISHNB, uid=1000, infos=infos)
        else:
            command = (Command.LOOKUPNB, Command.UNPUBLISHNB)[b % 3 - 1]
            self.begin("lookup", command, uid=1000, keys=[f"p{a}"], infos=(attrs.WAIT(1),))

    def do_query(self, a, _b, _c):
        self.begin("query", Command.QUERY, queries=(Query((f"acme.{a}", "pmix.qry.ns")),))

    def do_log(self, a, _b, _c):
        infos = (Info("acme.x", Value(codes.UINT32, a)),)
        self.begin("log", Command.LOG, timestamp=0, data=infos, directives=())

    def do_register(self, a, _b, _c):
        wanted = {EVENTS[a % 3]} | ({EVENTS[0]} if a & 4 else set())
        tag = next(self.tags)
        self.codes_of[tag] = wanted
        self.ever |= wanted
        layout = request_layout(Command.REGEVENTS, RELEASE)
        payload = layout.encode(self.buffer_type, RELEASE, codes=sorted(wanted), infos=())
        self.asked[tag] = payload
        self.note("register", tag)
        self.link.owner.received(frame(0, tag, payload))

    def do_deregister(self, a, _b, _c):
        gone = EVENTS[a % 3]
        self.registered.discard(gone)
        for wanted in self.codes_of.values():
            wanted.discard(gone)
        layout = request_layout(Command.DEREGEVENTS, RELEASE)
        self.send(layout.encode(self.buffer_type, RELEASE, codes=[gone]), answered=False)

    def do_notify(self, a, b, c):
        range = RANGES[b % len(RANGES)]
        targets = self.some_procs(c) if range == Range.CUSTOM else ()
        code = EVENTS[a % 2]
        _, infos = self.world.announced(code, range, targets, self.proc, self)
        self.begin("notify", Command.NOTIFY, code=code, range=range, infos=infos)

    def do_spawn(self, a, _b, _c):
        infos = (attrs.FWD_STDOUT(True),) if a & 1 else ()
        self.begin("spawn", Command.SPAWNNB, infos=infos, apps=(App("x", ("x",)),))

    def do_pull(self, a, b, _c):
        source = Proc("", RANK_WILDCARD) if b == 7 else self.world.procs[a % len(self.world.procs)]
        local = next(self.world.numbers)
        self.begin("pull", Command.IOF_PULL, procs=(source,), infos=(), channels=ALL_OUTPUT, local_id=local)

    def do_unpull(self, _a, _b, _c):
        number = self.pulls.popitem()[0] if self.pulls else 99
        self.begin("unpull", Command.IOF_DEREG, infos=(), remote_id=number)

    def do_push(self, a, _b, _c):
        target = self.world.procs[a % len(self.world.procs)]
        self.begin("push", Command.IOF_PUSH, procs=(target,), infos=(), data=b"x")

    def do_finalize(self, _a, _b, _c):
        self.finalized = True
        self.begin("finalize", Command.FINALIZE)

    # How it goes

    def leave(self, cut=0):
        """Be lost, perhaps in the middle of a message."""
        self.read()
        if cut and self.link.owner is not None:
            self.link.owner.received(frame(0, 9999, bytes(40))[:cut])
        self.die()
        self.pushed.clear()
        self.due.clear()


ACTIONS = sorted(name for name in vars(Anybody) if name.startswith("do_"))
