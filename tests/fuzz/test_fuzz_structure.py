"""Structured messages cost what their length allows, and nobody else's results depend on them.

The measure is memory for each byte and processor time for each byte and message, besides exceptions. A short run is a
part of the tests; `PYPMIX_FUZZ_SECONDS` sets how long each of these runs, `PYPMIX_FUZZ_SEED` with what it begins, and
`tox -e fuzz` is the long one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from fuzz.structure import BOMBS, LEAST, NSPACE, RELEASES, REPLIES, REQUESTS, Maker, text

from lib.server_world import GID, UID, Client, World
from pypmix.engine.python.client import Client as Machine
from pypmix.engine.python.client import ServerInfo as Found
from pypmix.engine.python.datastore import DataStore
from pypmix.standard import codes, ops
from pypmix.standard.errors import NotFound, PMIxError, RemoteProtocolError
from pypmix.standard.types import Info, Pdata, Proc, Value
from pypmix.standard.values import from_python
from pypmix.wire import handshake, jobinfo, modex
from pypmix.wire.codec import Unpacker, kvals, split_kvals
from pypmix.wire.encode import flex, zigzag
from pypmix.wire.frames import MAX_MESSAGE, frame
from pypmix.wire.layout import Blocks, Counted, CountedEach, One
from pypmix.wire.messages import COMMAND_NAMES, Command, peek_command

SECONDS = float(os.environ.get("PYPMIX_FUZZ_SECONDS", "7"))
SEED = int(os.environ.get("PYPMIX_FUZZ_SEED", "1"))
MOST = int(os.environ.get("PYPMIX_FUZZ_BYTES", str(1 << 16)))
pytestmark = pytest.mark.timeout(90 + 3 * SECONDS)

MEMORY = 64
"""Bytes that a decode may take for each byte that came, the copies of it included."""

SLACK = 1 << 20
"""Bytes that it may take besides: caches of keys and the like."""

BYTE = 25e-6
"""Processor seconds for a byte: ten times what it takes here, for other machines."""

MESSAGE = 1.5
"""Processor seconds for a message on the thread that serves everybody; as above."""

WORTH = 2048
"""Shorter messages say nothing of how cost grows."""


@pytest.fixture(scope="module", autouse=True)
def small_collections() -> Iterator[None]:
    """Collections pass over what a test session has made before, which is no cost of a message."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Cost:
    """What messages have cost: the worst of each kind."""

    def __init__(self) -> None:
        self.bytes = self.rounds = 0
        self.memory: dict[str, float] = {}
        self.time: dict[str, float] = {}
        self.longest: dict[str, float] = {}

    def of(self, name: str, data: bytes, call: Callable[[], Any], measured: bool) -> Any:
        """Make a call that a message leads to, and hold its cost against the limits."""
        self.bytes += len(data)
        if measured:
            tracemalloc.start()
        started = time.thread_time()
        try:
            return call()
        except (RemoteProtocolError, NotFound):
            return None
        finally:
            spent = time.thread_time() - started
            if measured:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                if len(data) >= WORTH:
                    self.memory[name] = max(self.memory.get(name, 0.0), peak / len(data))
                assert peak < SLACK + MEMORY * len(data), f"{name}: {peak} bytes for {len(data)}: {data[:80].hex()}"
            else:
                if len(data) >= WORTH:
                    self.time[name] = max(self.time.get(name, 0.0), spent / len(data))
                self.longest[name] = max(self.longest.get(name, 0.0), spent)
                assert spent < max(0.2, BYTE * len(data)), f"{name}: {spent} s for {len(data)} bytes: {data[:80].hex()}"

    def told(self, what: str) -> str:
        """Return the figures as a line."""
        shown = [f"{what}: {self.rounds} rounds, {self.bytes} bytes"]
        for label, found, unit in (
            ("memory", self.memory, "x"),
            ("time", self.time, "s/B"),
            ("longest", self.longest, "s"),
        ):
            if found:
                name = max(found, key=lambda each: found[each])
                shown.append(f"worst {label} {found[name]:.3g} {unit} ({name})")
        return "; ".join(shown)


def rounds(cost: Cost, most: int = MOST) -> Iterator[Maker]:
    """Yield a maker for each round, until the time is over."""
    end = time.monotonic() + SECONDS
    for seed in count(SEED * 1_000_000):
        if time.monotonic() > end:
            return
        cost.rounds += 1
        yield Maker(seed, most)


def test_decoders() -> None:
    cost = Cost()
    for maker in rounds(cost):
        pick = maker.random.choice
        release, kind = pick(RELEASES), pick((1, 1, 1, 2))
        measured = maker.random.random() < 0.15
        layouts = pick((REQUESTS, REPLIES))[release]
        layout = layouts[pick(tuple(layouts))]
        data = maker.message(layout, kind)
        cost.of(layout.name, data, lambda: layout.decode(data, kind, release), measured)  # noqa: B023
        data = maker.kvals(kind)
        cost.of("kvals", data, lambda: kvals(data, 0, kind, release), measured)  # noqa: B023
        cost.of("split_kvals", data, lambda: split_kvals(data, kind, release), measured)  # noqa: B023
        cost.of("packs of KVAL", data, lambda: kvals(b"\0" * 99 + data, 0, kind, release), measured)  # noqa: B023
        data = text(NSPACE) + data
        cost.of("job info", data, lambda: jobinfo.decode_jobinfo(b"\2" + data, 1, release), measured)  # noqa: B023
        data = maker.blob(kind)
        cost.of("modex", data, lambda: modex.decode_modex(data), measured)  # noqa: B023
        data = maker.broken(b"\2" + maker.value())
        cost.of("value", data, lambda: Unpacker(data, 1, release).one(21), measured)  # noqa: B023
        data = b"\2\x27" + maker.bomb()
        cost.of("array", data, lambda: Unpacker(data, 1, release).one(21), maker.random.random() < 0.5)  # noqa: B023
        data = _hello(maker)
        cost.of("hello", data, lambda: handshake.HelloReader().feed(data), measured)  # noqa: B023
    print(cost.told("decoders"))


def _hello(maker: Maker) -> bytes:
    infos = [maker.info() for _ in range(maker.random.choice((1, 2, 9)))]
    body = b"native\0\0\0\0\x08" + bytes(8) + b"\0job\0\0\0\0\1" + b"5.0.11\0v41\0\1hash\0"
    body += b"\2" + bytes((len(infos),)) + bytes((2 * len(infos),)) + b"".join(infos)
    return handshake._HEADER.pack(-1, 0xFFFFFFFF, len(body), 0) + body


class Host(World):
    """A world whose host answers each upcall as one would, with an error, or late."""

    def __init__(self, maker: Maker) -> None:
        self.maker = maker
        self.late: list[Callable[[], None]] = []
        super().__init__(4)

    def upcall(self, op: Any, answer: Any, process: Any = None) -> None:
        choice = self.maker.random.random()
        honest = type(op) in (ops.ClientConnected, ops.ClientFinalized, ops.ClientLost)

        def reply() -> None:
            if choice < 0.2 and not honest:
                answer(None, PMIxError("no", status=-47))
            else:
                answer(RESULTS.get(op.name, lambda: ())(), None)

        if choice < 0.8 or honest or isinstance(op, ops.FenceUpcall):
            reply()
        else:
            self.late.append(reply)


FENCED = ("fence", "direct_modex")
RESULTS: dict[str, Callable[[], Any]] = {
    "spawn": lambda: "job2",
    "lookup": lambda: (Pdata(Proc(NSPACE, 0), "k", Value(3, "v")),),
    "get_credential": lambda: ops.Credential(b"x", ()),
    **{
        name: lambda: None for name in ("publish", "unpublish", "log", "abort", "connect", "disconnect", "notify_event")
    },
    **{name: lambda: b"" for name in FENCED},
}


class Honest:
    """A client of this engine: its machine, over the link of a world."""

    def __init__(self, world: World, rank: int) -> None:
        self.client = Client(world, rank)
        self.store = DataStore(self.client.proc, "n0", (5, 0, 11))
        self.machine = Machine(self.client.proc, self.store, Found("server.0", (5, 0, 11), 1, False))
        hello = handshake.HelloReader().feed(self.client.hello)
        assert hello is not None
        opening = self.machine.connect(hello, None)
        self.pump()
        assert opening.outcome == (None, None)

    def pump(self) -> None:
        link = self.client.link
        for _ in range(4):
            data = bytes(self.machine.unsent())
            self.machine.out[1].append(len(data))
            self.machine.sent()
            if data:
                link.owner.received(data)
            if link.out:
                self.machine.intake.chunks.append(b"".join(link.out))
                link.out.clear()
                self.machine.take(0.0)

    def start(self, op: Any) -> Any:
        call = self.machine.start(op, None, 0.0)
        self.pump()
        return call


def _meeting(world: World, honest: list[Honest], hostile: Client, number: int) -> None:
    """Two honest ranks exchange values in a fence with a hostile one, as if that were not hostile."""
    procs = tuple(Proc(NSPACE, rank) for rank in (1, 2, 3))
    for each in honest:
        each.start(ops.Put("own", from_python(number * 10 + each.client.proc.rank)))
        each.start(ops.Commit())
    calls = [each.start(ops.Fence(procs, collect=True)) for each in honest]
    if hostile.link.owner is None:
        hostile = Client(world, 1).connect()
    hostile.fence(*procs, infos=(Info("pmix.collect", Value(1, True)),))
    for each, call in zip(honest, calls, strict=True):
        each.pump()
        assert call.outcome == (None, None), call.outcome
    one, other = honest
    for each, peer in ((one, other), (other, one)):
        call = each.start(ops.Get(peer.client.proc, "own", (Info("pmix.get.refresh", Value(1, True)),)))
        assert call.outcome is not None
        value, error = call.outcome
        assert error is None, error
        assert value.data == number * 10 + peer.client.proc.rank


def test_a_server_and_its_honest_clients() -> None:
    cost = Cost()
    commands: Counter[int] = Counter()
    world: Host | None = None
    for maker in rounds(cost):
        if world is None or cost.rounds % 200 == 0:
            world = Host(maker)
            honest = [Honest(world, rank) for rank in (2, 3)]
        world.maker = maker
        release, kind = maker.random.choice(RELEASES), maker.random.choice((1, 1, 2))
        version = ".".join(map(str, release))
        hostile = Client(world, 1, version=version, buffer_type=kind).connect()
        hostile.asked = _Any()
        for tag in range(101, 101 + maker.random.choice((1, 3, 8))):
            command, data = maker.request(release, kind)
            if Command.FINALIZE in (command, _command(data, kind)):
                # Who leaves makes fences with it fail, as it should.
                continue
            commands[command] += 1
            owner = hostile.link.owner
            if owner is None:
                break
            cost.of(f"command {command}", data, lambda: owner.received(frame(0, tag, data)), False)  # noqa: B023
            hostile.link.out.clear()
            assert cost.longest[f"command {command}"] < MESSAGE
        world.advance(maker.random.choice((0, 0, 0.5, 3)))
        for late in world.late:
            late()
        world.late.clear()
        for each in honest:
            each.pump()
            assert each.machine.closed is None
        _meeting(world, honest, hostile, cost.rounds)
        hostile.die()
        faults = [line for line in world.logged if "fault" in line]
        assert not faults, f"seed {cost.rounds - 1 + SEED * 1_000_000}: {faults[0]}"
    assert cost.rounds < 300 or len(commands) > 25
    print(cost.told("server"))


def _command(data: bytes, kind: int) -> int:
    try:
        return peek_command(data, kind)
    except RemoteProtocolError:
        return -1


class _Any(dict[int, bytes]):
    """Any tag, as if it had been asked for."""

    def __contains__(self, tag: object) -> bool:
        return True

    def __delitem__(self, tag: int) -> None:
        pass


OPS: tuple[Callable[[], Any], ...] = (
    lambda: ops.Get(Proc(NSPACE, 3), "k"),
    lambda: ops.Get(Proc(NSPACE, 0xFFFFFFFE), "pmix.univ.size", (Info("pmix.get.refresh", Value(1, True)),)),
    lambda: ops.Fence((Proc(NSPACE, 0xFFFFFFFE),), collect=True),
    lambda: ops.Commit(),
    lambda: ops.Lookup(("k",)),
    lambda: ops.Publish((Info("k", Value(3, "v")),), 3, 1),
    lambda: ops.Connect((Proc(NSPACE, 0xFFFFFFFE),)),
    lambda: ops.QueryInfo((_query(),)),
    lambda: ops.Spawn((_app(),), ()),
    lambda: ops.GetCredential(),
    lambda: ops.GroupConstruct("g", (Proc(NSPACE, 0xFFFFFFFE),)),
    lambda: ops.ResolvePeers(None, NSPACE),
    lambda: ops.ResolveNodes(NSPACE),
)


def _query() -> Any:
    from pypmix.standard.types import Query

    return Query(("pmix.qry.ns",), ())


def _app() -> Any:
    from pypmix.standard.types import App

    return App("true", ("true",), (), None, 1, ())


def test_a_client_of_a_hostile_server() -> None:
    cost = Cost()
    ended: Counter[str] = Counter()
    for maker in rounds(cost):
        world = Host(maker)
        honest = Honest(world, 0)
        honest.client.link.owner = _Mute()
        machine = honest.machine
        for _ in range(6):
            if machine.closed is not None:
                break
            op = maker.random.choice(OPS)()
            try:
                call = machine.start(op, None, 0.0)
            except PMIxError:
                continue
            honest.pump()
            if not call.tag:
                continue
            command = next((number for number, kind in COMMANDS.items() if isinstance(op, kind)), Command.FENCENB)
            data = maker.message(REPLIES[(5, 0, 11)][command], 1)
            tag = maker.random.choice((call.tag, call.tag, call.tag, call.tag, 0, 2, 3, 4))

            def deliver() -> None:
                machine.intake.chunks.append(frame(0, tag, data))  # noqa: B023
                machine.take(0.0)  # noqa: B023

            cost.of(op.name, data, deliver, maker.random.random() < 0.1)
            ended["open" if call.outcome is None else "ok" if call.outcome[1] is None else "error"] += 1
            if call.outcome is not None and call.outcome[1] is not None:
                assert isinstance(call.outcome[1], PMIxError), call.outcome[1]
        machine.close()
    assert cost.rounds < 300 or min(ended["ok"], ended["error"]) > 10
    print(cost.told("client"), dict(ended))


COMMANDS: dict[int, type] = {
    Command.GETNB: ops.Get,
    Command.COMMIT: ops.Commit,
    Command.LOOKUPNB: ops.Lookup,
    Command.PUBLISHNB: ops.Publish,
    Command.CONNECTNB: ops.Connect,
    Command.SPAWNNB: ops.Spawn,
    Command.QUERY: ops.QueryInfo,
    Command.GET_CREDENTIAL: ops.GetCredential,
    Command.GROUP_CONSTRUCT: ops.GroupConstruct,
    Command.RESOLVE_PEERS: ops.ResolvePeers,
    Command.RESOLVE_NODE: ops.ResolveNodes,
}


class _Mute:
    """Who hears requests and answers nothing."""

    def received(self, data: bytes) -> None:
        pass

    def lost(self, reason: str = "") -> None:
        pass


def _largest(maker: Maker, layout: Any, type: int, element: bytes) -> Iterator[bytes]:
    """Yield messages as large as they may be, with equal elements in one field each time."""
    room = LARGEST - 4096
    count = room // len(element)
    array = flex(type) + flex(count) + element * count
    info = text("k") + b"\0\x27" + array
    kval = maker.pack(28, text("k") + flex(type) + element)
    for place, bulk in enumerate(layout.fields):
        parts = []
        for field in layout.fields:
            if field is not bulk:
                parts.append(maker._field(field, 1))
            elif isinstance(field, Blocks):
                block = kval * (room // len(kval))
                parts.append(b"\2\3\2\1" + flex(len(block)) + block)
            elif isinstance(field, Counted) and field.type == codes.INFO:
                parts.append(b"\2\1" + maker.pack(codes.INFO, info))
            elif isinstance(field, Counted | CountedEach) and place < 9:
                least = LEAST.get(field.type, b"\1")
                each = least if isinstance(field, Counted) else maker.pack(field.type, least)
                many = room // len(each)
                packed = zigzag(many) if isinstance(field, Counted) else b""
                parts.append(b"\2" + flex(many) + packed + each * many)
            elif isinstance(field, One) and field.type == codes.INFO:
                parts.append(maker.pack(codes.INFO, info))
            else:
                break
        else:
            yield maker.pack(codes.COMMAND, bytes((layout.command,))) + b"".join(parts)


LONG = SECONDS > 60
LARGEST = MAX_MESSAGE if LONG else 1 << 20
LARGE = BOMBS if LONG else ((codes.VALUE, b"\0"), (codes.NODE_STATS, LEAST[codes.NODE_STATS]))
ASKED = sorted(REQUESTS[(7, 0, 0)]) if LONG else [Command.COMMIT, Command.FENCENB, Command.LOOKUPNB, Command.QUERY]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", ASKED, ids=COMMAND_NAMES.get)
def test_the_largest_messages(command: int) -> None:
    """The one thread of a server is soon there for others again, whatever 32 MiB of one of them hold."""
    longest, what = 0.0, 0
    for number, (type, element) in enumerate(LARGE):
        maker = Maker(number, 100)
        world = Host(maker)
        hostile = Client(world, 1, version="7.0.0").connect()
        for data in _largest(maker, REQUESTS[(7, 0, 0)][command], type, element):
            hostile.asked = _Any()
            owner = hostile.link.owner
            if owner is None:
                hostile = Client(world, 1, version="7.0.0").connect()
                owner = hostile.link.owner
            message = frame(0, 101, data)
            started = time.thread_time()
            owner.received(message)
            spent = time.thread_time() - started
            hostile.link.out.clear()
            if spent > longest:
                longest, what = spent, type
    print(f"{COMMAND_NAMES[command]}: {longest * 1000:.0f} ms (type {what})")
    assert longest < MESSAGE


def test_the_memory_of_the_largest_messages() -> None:
    """What a server makes of 32 MiB, besides copies, is bounded by the work that a message may be."""
    data = b"\6" + b"\2\0" + b"\2\1\2" + text("k") + b"\0\x27"
    for type, element in BOMBS:
        count = (LARGEST - 4096) // len(element)
        message = b"\2" + data + flex(type) + flex(count) + element * count
        tracemalloc.start()
        try:
            with contextlib.suppress(RemoteProtocolError):
                REQUESTS[(7, 0, 0)][6].decode(message, 1, (7, 0, 0))
            assert tracemalloc.get_traced_memory()[1] < LARGEST + (96 << 20), type
        finally:
            tracemalloc.stop()


def test_a_hello_costs_little_before_anybody_knows_whose_it_is() -> None:
    body = b"native\0\0\0\0\x08" + bytes(8) + b"\0job\0\0\0\0\1" + b"5.0.11\0v41\0\1hash\0"
    for type, element in BOMBS:
        count = (handshake.MAX_HELLO - 200) // len(element)
        infos = b"\2\1\2" + text("k") + b"\0\x27" + flex(type) + flex(count) + element * count
        data = handshake._HEADER.pack(-1, 0xFFFFFFFF, len(body + infos), 0) + body + infos
        tracemalloc.start()
        started = time.thread_time()
        try:
            with contextlib.suppress(RemoteProtocolError):
                handshake.HelloReader().feed(data)
            assert tracemalloc.get_traced_memory()[1] < 16 * len(data), type
            assert time.thread_time() - started < 0.5
        finally:
            tracemalloc.stop()


def test_the_figures_of_this_world() -> None:
    """Honest clients do exchange values in it when nobody is hostile."""
    world = Host(Maker(1, 100))
    honest = [Honest(world, rank) for rank in (2, 3)]
    _meeting(world, honest, Client(world, 1).connect(), 7)
    assert (UID, GID) == (1000, 100)
