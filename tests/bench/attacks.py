"""Measures what the honest ranks of a job notice of attacks on their server: the latency of fences, phase by phase.

    python tests/bench/attacks.py [--seconds 4] [--ranks 4] [phase ...]

A job under `pypmix run` fences all the time, with data, reads what the others have put, and asks its host for
something; this program connects to its server as strangers do, and as further connections of rank 1, and does harm for
some seconds at a time. Printed are, of each phase, the median, the 99th percentile and the maximum of a collecting
fence, those of a question to the host, and the server's processor time and memory. On a busy machine only phases of one
run compare.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pypmix.standard import codes
from pypmix.standard.types import Info, Proc, Query, Value
from pypmix.wire.encode import flex
from pypmix.wire.frames import FrameReader, frame
from pypmix.wire.handshake import FLAG_CLIENT, Hello, encode_hello, native_credential
from pypmix.wire.messages import Command, encode_commit, encode_fence, encode_get, encode_kval, request_layout

RELEASE = (5, 0, 11)
NAME = "attacked"


def victim(seconds: float, out: str) -> None:
    """What each rank of the job runs."""
    import pypmix
    from pypmix import attrs

    told = {"fence": [], "host": [], "wrong": 0}
    fresh = {attrs.GET_REFRESH_CACHE: True}
    with pypmix.Client() as me:
        if me.rank == 0:
            with open(f"{out}.tmp", "w") as file:
                file.write(f"{os.environ['PMIX_SERVER_URI41'].rpartition(':')[2]} {me.nspace} {os.getppid()}")
            os.rename(f"{out}.tmp", f"{out}.ready")
            me.publish({"known": 1})
        peers = list(me.job)
        end = time.monotonic() + seconds
        number = 0
        while True:
            if me.rank == 0:
                me.put("over", time.monotonic() > end)
            me.put("number", me.rank + 1000 * number)
            begin = time.monotonic()
            me.fence(collect=True)
            told["fence"].append((time.time(), time.monotonic() - begin))
            for peer in peers:
                seen = me.get("number", peer, info=fresh) if peer != me.proc else me.rank + 1000 * number
                told["wrong"] += seen != peer.rank + 1000 * number
            if me.rank == 0 and number % 8 == 0:
                begin = time.monotonic()
                me.lookup("known")
                told["host"].append((time.time(), time.monotonic() - begin))
            over = me.get("over", peers[0], info=fresh if me.rank else None)
            me.fence()
            number += 1
            if over:
                break
        Path(f"{out}.{me.rank}").write_text(json.dumps(told))


class Target(NamedTuple):
    """A server under attack."""

    port: int
    nspace: str
    pid: int
    seconds: float

    @property
    def going(self) -> Callable[[], bool]:
        end = time.monotonic() + self.seconds
        return lambda: time.monotonic() < end

    def connect(self, timeout: float = 5.0) -> socket.socket:
        found = socket.socket()
        found.settimeout(timeout)
        found.connect(("127.0.0.1", self.port))
        return found

    def hello(self, rank: int) -> bytes:
        credential = native_credential(os.geteuid(), os.getegid())
        given = Hello("native", credential, FLAG_CLIENT, None, None, self.nspace, rank, "5.0.11", "v41", 1, "hash")
        return encode_hello(given)

    def memory(self) -> tuple[int, int]:
        """Return what the server has in memory now, and had at the most, in MiB."""
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(lines["VmRSS"].split()[0]) >> 10, int(lines["VmHWM"].split()[0]) >> 10

    def processor(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Peer:
    """A further connection of a rank, whose requests are made by hand."""

    def __init__(self, target: Target, rank: int = 1) -> None:
        self.socket = target.connect(30)
        self.socket.sendall(target.hello(rank))
        answer = b""
        while len(answer) < 8:
            piece = self.socket.recv(8 - len(answer))
            if not piece:
                raise ConnectionError("refused")
            answer += piece
        self.reader = FrameReader(1 << 30)
        self.tag = 100

    def call(self, payload: bytes) -> bytes:
        self.tag += 1
        self.socket.sendall(frame(0, self.tag, payload))
        while True:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("closed")
            for tag, answer in self.reader.feed(data):
                if tag == self.tag:
                    return answer

    def pour(self, payload: bytes, going: Callable[[], bool], read: bool) -> int:
        """Send a request as often as the socket takes it, and read the answers or leave them."""
        data = b"".join([frame(0, 101 + number, payload) for number in range(500)])
        sent = 0
        rest = memoryview(b"")
        self.socket.setblocking(False)
        while going():
            ready = select.select([self.socket] if read else [], [self.socket], [], 0.1)
            try:
                if ready[0] and not self.socket.recv(1 << 20):
                    break
                if ready[1]:
                    rest = rest or memoryview(data)
                    gone = self.socket.send(rest)
                    sent += gone
                    rest = rest[gone:]
            except BlockingIOError:
                continue
            except OSError:
                break
        return sent * 500 // len(data)

    def close(self) -> None:
        self.socket.close()


def request(command: int, **fields: object) -> bytes:
    return request_layout(command, RELEASE).encode(1, RELEASE, **fields)


def publishing(data: bytes) -> bytes:
    """A publish whose one value is made by hand."""
    return request(Command.PUBLISHNB, uid=0, infos=())[:-1] + b"\1\2\4k\0\0" + data


def mutated(data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(random.randint(1, 6)):
        where = random.randrange(len(found) + 1)
        kind = random.randrange(6)
        if kind == 0 and where < len(found):
            found[where] ^= 1 << random.randrange(8)
        elif kind == 1:
            found[where:where] = random.randbytes(random.randint(1, 8))
        elif kind == 2:
            del found[where : where + random.randint(1, 9)]
        elif kind == 3:
            found[where : where + 4] = random.choice((b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff", b"\x80\0\0\0"))
        elif kind == 4:
            found[where:where] = found[where : where + 32] * random.randint(1, 8)
        else:
            del found[where:]
        found = found or bytearray(1)
    return bytes(found)


# Strangers.


def quiet(target: Target) -> str:
    time.sleep(target.seconds)
    return ""


def random_bytes(target: Target) -> str:
    going, number, size = target.going, 0, 0
    while going():
        data = random.randbytes(random.choice((1, 16, 100, 5000, 200_000)))
        if random.random() < 0.5:
            data = target.hello(0)[:16] + data
        number += 1
        try:
            with target.connect() as one:
                one.sendall(data)
                size += len(data)
        except OSError:
            continue
    return f"{number} connections, {size} bytes"


def mutated_hellos(target: Target) -> str:
    going, number = target.going, 0
    while going():
        number += 1
        try:
            with target.connect() as one:
                one.sendall(mutated(target.hello(0)))
        except OSError:
            continue
    return f"{number} connections"


def half_open(target: Target) -> str:
    going, all_of_them = target.going, []
    while going() and len(all_of_them) < 5000:
        try:
            all_of_them.append(target.connect())
        except OSError:
            time.sleep(0.01)
    while going():
        time.sleep(0.05)
    for one in all_of_them:
        one.close()
    return f"{len(all_of_them)} connections"


def slowloris(target: Target) -> str:
    going, hello, sent = target.going, target.hello(0), 0
    all_of_them: dict[socket.socket, int] = {}
    while going():
        while len(all_of_them) < 900 and going():
            try:
                all_of_them[target.connect()] = 0
            except OSError:
                break
        for one, position in list(all_of_them.items()):
            try:
                one.send(hello[position : position + 1])
                all_of_them[one] = (position + 1) % (len(hello) - 1)
                sent += 1
            except OSError:
                del all_of_them[one]
                one.close()
        time.sleep(0.05)
    for one in all_of_them:
        one.close()
    return f"{sent} bytes, one at a time"


def connects(target: Target) -> str:
    going, counts = target.going, [0] * 4

    def work(place: int) -> None:
        while going():
            try:
                target.connect().close()
                counts[place] += 1
            except OSError:
                continue

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{sum(counts)} connections"


def hello_and_reset(target: Target) -> str:
    going, number = target.going, 0
    while going():
        try:
            one = target.connect()
            one.sendall(target.hello(0))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
            number += 1
        except OSError:
            continue
    return f"{number} connections"


# Further connections of rank 1.


def mutated_messages(target: Target) -> str:
    going, number, size, ends = target.going, 0, 0, 0
    peer: Peer | None = None
    known = (
        encode_get(1, target.nspace, 2, (), "k"),
        encode_commit(1, [(3, encode_kval(1, "zz", Value(codes.STRING, "x")))]),
        request(Command.QUERY, queries=(Query(("pmix.qry.ns",), ()),)),
        request(Command.LOOKUPNB, uid=0, keys=("no key",), infos=()),
        request(Command.REGEVENTS, codes=(-5, -7), infos=()),
    )
    while going():
        try:
            peer = peer or Peer(target)
            data = frame(0, random.choice((0, 1, 2, 3, 4, 101, 200, 2**32 - 1)), mutated(random.choice(known)))
            if random.random() < 0.1:
                data = mutated(data)
            peer.socket.sendall(data)
            number, size = number + 1, size + len(data)
            while select.select([peer.socket], [], [], 0)[0]:
                if not peer.socket.recv(1 << 16):
                    raise ConnectionError
        except OSError:
            ends += 1
            if peer is not None:
                peer.close()
            peer = None
    return f"{number} messages, {size} bytes, {ends} connections ended"


def large_commits(target: Target) -> str:
    peer, going, number = Peer(target), target.going, 0
    message = encode_commit(1, [(1, encode_kval(1, "big", Value(codes.BYTE_OBJECT, bytes(30 << 20))))])
    while going():
        peer.call(message)
        number += 1
    peer.call(encode_commit(1, [(5, encode_kval(1, "big", Value(codes.BOOL, True)))]))
    peer.close()
    return f"{number} commits of 30 MiB"


def commits_without_end(target: Target) -> str:
    peer, going, number = Peer(target), target.going, 0
    while going() and target.memory()[0] < 3000:
        value = Value(codes.BYTE_OBJECT, bytes(4 << 20))
        peer.call(encode_commit(1, [(1, encode_kval(1, f"big{number}", value))]))
        number += 1
    for each in range(number):
        peer.call(encode_commit(1, [(5, encode_kval(1, f"big{each}", Value(codes.BOOL, True)))]))
    peer.close()
    return f"{number} commits of 4 MiB under other keys"


def oversize(target: Target) -> str:
    going, number = target.going, 0
    while going():
        try:
            peer = Peer(target)
            length = random.choice((0xFFFFFFFF, 0x80000000, 100 << 20))
            peer.socket.sendall(struct.pack("!iIII", 0, 101, length, 0) + bytes(100))
            peer.socket.recv(100)
            peer.close()
            number += 1
        except OSError:
            continue
    return f"{number} lengths"


def deep_nesting(target: Target) -> str:
    peer, going, number = Peer(target), target.going, 0
    kinds = (b"\x27\x27\1", b"\x15", b"\x27\x18\1\4a\0\0", b"\x27\x29\1\2\4a\0\1")
    while going():
        peer.call(publishing(random.choice(kinds) * random.randint(1, 3000)))
        number += 1
    peer.close()
    return f"{number} messages"


def bomb_values(target: Target) -> str:
    peer, going, number = Peer(target), target.going, 0
    many = 1 << 18
    message = publishing(b"\x27" + flex(codes.VALUE) + flex(many) + bytes(many))
    while going():
        peer.call(message)
        number += 1
    peer.close()
    return f"{number} arrays of {many} values"


def reconnects(target: Target) -> str:
    going, number = target.going, 0
    while going():
        try:
            Peer(target).close()
            number += 1
        except OSError:
            continue
    return f"{number} connections with a handshake"


def many_connections(target: Target) -> str:
    going, peers, refused = target.going, [], 0
    while going():
        try:
            peers.append(Peer(target))
        except OSError:
            refused += 1
            time.sleep(0.001)
    for peer in peers:
        peer.close()
    return f"{len(peers)} connections kept, {refused} refused"


def half_messages(target: Target) -> str:
    going, sent = target.going, 0
    peers = [Peer(target, number % 4) for number in range(30)]
    for peer in peers:
        peer.socket.sendall(struct.pack("!iIII", 0, 101, 32 << 20, 0))
        peer.socket.setblocking(False)
    limit = dict.fromkeys(peers, 31 << 20)
    while going():
        for peer in list(limit):
            try:
                gone = peer.socket.send(bytes(min(65536, limit[peer])))
            except BlockingIOError:
                continue
            except OSError:
                del limit[peer]
                continue
            sent += gone
            limit[peer] -= gone
        if not any(limit.values()):
            time.sleep(0.05)
    found = target.memory()[0]
    for peer in peers:
        peer.close()
    return f"{sent} bytes of 30 messages, {len(limit)} connections left, the server then had {found} MiB"


def pipelined_gets(target: Target) -> str:
    number = Peer(target).pour(encode_get(1, target.nspace, 2, (), "number"), target.going, read=True)
    return f"{number} gets"


def pipelined_lookups(target: Target) -> str:
    payload = request(Command.LOOKUPNB, uid=0, keys=("known",), infos=())
    return f"{Peer(target).pour(payload, target.going, read=True)} lookups"


def pipelined_queries(target: Target) -> str:
    payload = request(
        Command.QUERY,
        queries=(Query(("pmix.qry.proctab",), (Info("pmix.nspace", Value(codes.STRING, target.nspace)),)),),
    )
    return f"{Peer(target).pour(payload, target.going, read=True)} queries"


def pipelined_fences(target: Target) -> str:
    number = Peer(target).pour(encode_fence(1, [Proc(target.nspace, 1)]), target.going, read=True)
    return f"{number} fences of itself"


def heartbeats(target: Target) -> str:
    peer, going, number = Peer(target), target.going, 0
    data = frame(0, 1, b"") * 2000
    while going():
        peer.socket.sendall(data)
        number += 2000
    peer.close()
    return f"{number} heartbeats"


def unread_replies(target: Target) -> str:
    peer = Peer(target)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    number = peer.pour(b"\2\0", target.going, read=False)
    found = target.memory()[0]
    peer.close()
    return f"{number} requests, the server then had {found} MiB"


PHASES: tuple[Callable[[Target], str], ...] = (
    quiet,
    pipelined_gets,
    pipelined_fences,
    pipelined_lookups,
    pipelined_queries,
    heartbeats,
    unread_replies,
    mutated_messages,
    large_commits,
    commits_without_end,
    oversize,
    deep_nesting,
    bomb_values,
    reconnects,
    half_messages,
    quiet,
    # These have whoever comes later wait, of the same user.
    many_connections,
    random_bytes,
    mutated_hellos,
    half_open,
    slowloris,
    connects,
    hello_and_reset,
    quiet,
)


def figures(times: list[float]) -> str:
    if not times:
        return f"{'none':>28}"
    found = sorted(times)
    p50, p99, most = (found[int(len(found) * part)] * 1e3 for part in (0.5, 0.99, 0.9999))
    return f"{len(found):6} {p50:7.2f} {p99:7.1f} {most:7.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--victim", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("phases", nargs="*")
    options = parser.parse_args()
    if options.victim:
        victim(float(options.victim[0]), options.victim[1])
        return 0
    names = [phase.__name__ for phase in PHASES]
    unknown = set(options.phases) - set(names)
    if unknown:
        parser.error(f"there is no {unknown}: they are {', '.join(dict.fromkeys(names))}")
    phases = [phase for phase in PHASES if not options.phases or phase.__name__ in ("quiet", *options.phases)]
    random.seed(options.seed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    length = (options.seconds + 1.5) * len(phases) + 3
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out"
        rank = [sys.executable, __file__, "--victim", str(length), out]
        command = [sys.executable, "-m", "pypmix", "run", "-n", str(options.ranks), *rank]
        with open(f"{folder}/log", "w+") as log, subprocess.Popen(command, stderr=log) as job:
            while not os.path.exists(f"{out}.ready"):
                if job.poll() is not None:
                    log.seek(0)
                    print(log.read(), file=sys.stderr)
                    return 1
                time.sleep(0.02)
            port, nspace, pid = Path(f"{out}.ready").read_text().split()
            target = Target(int(port), nspace, int(pid), options.seconds)
            time.sleep(1)
            spans = []
            for phase in phases:
                begin, processor = time.time(), target.processor()
                try:
                    said = phase(target)
                except Exception as error:
                    said = f"FAILED: {error!r}"
                span = time.time() - begin
                share = (target.processor() - processor) / span * 100
                spans.append((phase.__name__, begin, begin + span, share, *target.memory(), said))
                print(f"{phase.__name__}: {said}", flush=True)
                time.sleep(1)
            code = job.wait(120)
            log.seek(0)
            lines = log.read().splitlines()
        told = json.loads(Path(f"{out}.0").read_text()) if code == 0 else {"fence": [], "host": [], "wrong": -1}
    if code:
        print(*lines[-20:], sep="\n")
    print(f"\nexit {code}, {told['wrong']} wrong values in {len(told['fence'])} fences, {len(lines)} lines logged")
    titles = f"{'p50':>7} {'p99':>7} {'max':>7}"
    print(f"{'ms':22}{'fences':>6} {titles} |{'asks':>6} {titles} | cpu rss/max MiB")
    for name, begin, end, share, now, most, _ in spans:
        columns = []
        for kind in ("fence", "host"):
            columns.append(figures([taken for at, taken in told[kind] if begin <= at - taken / 2 <= end]))
        print(f"{name:22}{columns[0]} |{columns[1]} | {share:3.0f}% {now}/{most}")
    return code


if __name__ == "__main__":
    sys.exit(main())
