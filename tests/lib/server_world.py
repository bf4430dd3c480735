"""A Python server without sockets, and clients whose messages a test delivers by hand."""

from __future__ import annotations

import heapq
from itertools import count

from pypmix.engine.python.server import Server
from pypmix.standard import attrs, codes
from pypmix.standard.errors import PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.releases import parse_release
from pypmix.standard.statuses import (
    ERR_INVALID_CRED,
)
from pypmix.standard.types import RANK_WILDCARD, Proc, Value
from pypmix.wire.codec import Unpacker
from pypmix.wire.frames import FrameReader, frame
from pypmix.wire.handshake import Hello, ReplyReader, encode_hello, native_credential
from pypmix.wire.messages import (
    Command,
    encode_commit,
    encode_fence,
    encode_get,
    encode_kval,
    read_get_object,
    reply_layout,
    request_layout,
)

UID, GID = 1000, 100


LOCAL, REMOTE, GLOBAL = 1, 2, 3


class Timer:
    def __init__(self, function):
        self.function = function

    def cancel(self):
        self.function = None


class Link:
    """The server's end of a connection; what it sends is kept until the client reads."""

    def __init__(self):
        self.owner = None
        self.out = []
        self.closed = False
        self.held = False
        # Root may be whoever its credential says.
        self.user = 0

    def uid(self):
        return self.user

    def is_closed(self):
        return self.closed

    def send(self, data):
        if not self.closed:
            self.out.append(data)

    send_now = send

    def hold(self, held):
        self.held = held

    def full(self):
        return False

    def close(self):
        self.closed = True


class Client:
    """A client's end: sends requests, collects replies by tag, and fails if one comes twice or for nothing."""

    def __init__(self, world, rank=0, nspace="job", user=0, **hello):
        self.world = world
        self.proc = Proc(nspace or "", rank or 0)
        self.link = Link()
        self.buffer_type = hello.get("buffer_type", 1)
        self.tags = count(101)
        self.asked = {}
        self.replies = {}
        self.pushed = []
        self.reader = FrameReader()
        self.greeting = ReplyReader()
        self.welcome = None
        self.link.user = user
        world.server.opened(self.link)
        fields = {
            "psec": "native",
            "credential": native_credential(UID, GID),
            "flag": 0,
            "uid": None,
            "gid": None,
            "nspace": nspace,
            "rank": rank,
            "version": "5.0.11",
            "bfrops": "v41",
            "buffer_type": 1,
            "gds": "hash",
        }
        version = {**fields, **hello}["version"]
        self.release = parse_release(version) if version[:1].isdigit() else (0, 0, 0)
        self.hello = encode_hello(Hello(**{**fields, **hello}))

    def connect(self):
        self.link.owner.received(self.hello)
        self.read()
        return self

    def read(self):
        data = b"".join(self.link.out)
        self.link.out.clear()
        if self.welcome is None:
            self.welcome = self.greeting.feed(data)
            data = self.greeting.rest if self.welcome else b""
        for tag, payload in self.reader.feed(data):
            if tag > 100:
                assert tag in self.asked, "a reply to nothing"
                del self.asked[tag]
                self.replies[tag] = payload
            else:
                self.pushed.append((tag, payload))

    def send(self, payload, answered=True):
        tag = next(self.tags)
        if answered:
            self.asked[tag] = payload
        self.link.owner.received(frame(0, tag, payload))
        self.read()
        return tag

    def status(self, tag):
        self.read()
        return Unpacker(self.replies[tag], self.buffer_type).one(codes.STATUS) if tag in self.replies else None

    def ask(self, command, **fields):
        return self.send(request_layout(command, (5, 0, 11)).encode(self.buffer_type, (5, 0, 11), **fields))

    def fence(self, *procs, infos=()):
        procs = procs or (Proc(self.proc.nspace, RANK_WILDCARD),)
        return self.send(encode_fence(self.buffer_type, procs, infos))

    def commit(self, *values, scope=GLOBAL):
        kvals = b"".join(encode_kval(self.buffer_type, key, value, self.release) for key, value in values)
        scopes = (LOCAL, REMOTE) if scope == GLOBAL else (scope,)
        return self.send(encode_commit(self.buffer_type, [(each, kvals) for each in scopes]))

    def get(self, rank, key, *infos, nspace=None):
        return self.send(encode_get(self.buffer_type, nspace or self.proc.nspace, rank, infos, key))

    def objects(self, tag):
        self.read()
        layout = reply_layout(Command.GETNB, self.release)
        objects = layout.decode(self.replies[tag], self.buffer_type, self.release)["objects"]
        return [read_get_object(data, self.buffer_type, self.release)[:2] for data in objects]

    def value(self, tag, rank, key, nspace=None):
        """Return what a client that files the reply away finds under the key."""
        found = None
        for proc, kvals in self.objects(tag):
            if proc == (nspace or self.proc.nspace, rank):
                found = dict(kvals).get(key, found)
        return found

    def die(self):
        owner, self.link.owner = self.link.owner, None
        self.link.closed = True
        self.asked.clear()
        if owner is not None:
            owner.handle_disconnect()


class World:
    """A server, its clock and its host."""

    def __init__(self, size=3, answer=True, limits=DEFAULTS, **job):
        self.time = 0.0
        self.timers = []
        self.number = count()
        self.upcalls = []
        self.askers = []
        self.logged = []
        self.answer = answer
        self.server = Server(self, self, limits=limits)
        self.add("job", size, **job)

    def add(self, nspace, size, **job):
        infos = (attrs.JOB_SIZE(size), *job.pop("job", ()))
        self.server.register_nspace(JobInfo(nspace, infos, **job))
        for rank in range(size):
            self.server.register_client(Proc(nspace, rank), UID, GID)

    def now(self):
        return self.time

    def call_later(self, delay, function):
        timer = Timer(function)
        heapq.heappush(self.timers, (self.time + delay, next(self.number), timer))
        return timer

    def upcall(self, op, answer, process=None):
        self.upcalls.append(op)
        self.askers.append(process)
        if self.answer is True:
            answer(None, None)
        else:
            self.answer.append(answer)

    def log(self, text):
        self.logged.append(text)

    def authenticate(self, credential, answer):
        if credential == b"good":
            answer((UID, GID), None)
        else:
            answer(None, PMIxError("munge refuses it", status=ERR_INVALID_CRED))

    def advance(self, seconds):
        end = self.time + seconds
        while self.timers and self.timers[0][0] <= end:
            self.time, _, timer = heapq.heappop(self.timers)
            if timer.function:
                timer.function()
        self.time = end

    def clients(self, *ranks, **hello):
        return [Client(self, rank, **hello).connect() for rank in ranks]


def text(value):
    return Value(codes.STRING, value)
