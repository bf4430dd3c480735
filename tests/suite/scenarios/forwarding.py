"""Output of procs that others read, and input that they write."""

from __future__ import annotations

import hashlib
import sys

from lib.aio import hear, sleep, tell
from pypmix import IOFChannel, OperationTimeout, PMIxError, Proc, Rank, attrs

LINES = """
import sys
import pypmix
from lib.sync import hear
with pypmix.Client() as me:
    hear("go", 20)
    print(f"one of {me.rank}", flush=True)
    print(f"error of {me.rank}", file=sys.stderr, flush=True)
    print(f"two of {me.rank} \\u00fc", end="", flush=True)
"""

MUCH = """
import random, sys
import pypmix
from lib.sync import hear
with pypmix.Client() as me:
    hear("go", 20)
    data = random.Random(me.rank).randbytes(300_000)
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
"""

ECHO = """
import sys
while True:
    line = sys.stdin.readline()
    if not line:
        break
    print("got " + line, end="", flush=True)
print("end", flush=True)
"""


def command(code, *words):
    return [sys.executable, "-X", "utf8", "-c", code, *words]


async def attempt(call):
    try:
        return repr(await call())
    except PMIxError as error:
        return error


async def rest(output):
    """Return what comes until a stream ends."""
    pieces = []
    async for piece in output:
        pieces.append(piece)
    return pieces


def joined(pieces):
    """Return what each proc wrote to each channel."""
    found = {}
    for piece in pieces:
        key = piece.source.rank, IOFChannel(piece.channel).name
        found[key] = found.get(key, b"") + piece.data
    return {key: data for key, data in found.items() if data}


async def pulled(me, early=False, channels=IOFChannel.STDOUT | IOFChannel.STDERR):
    """Rank 0 reads what its child writes, until it ends; what is early was all written before it asks."""
    result = None
    if me.rank == 0:
        job = await me.spawn(command(LINES), n=2)
        if early:
            await tell("go")
            await sleep(1.5)
        async with me.output(job, channels) as output:
            await tell("go")
            pieces = await rest(output)
        result = joined(pieces), {piece.source.nspace for piece in pieces} == {job.nspace}, output.dropped
    await me.fence(timeout=20)
    return result


async def much(me, early=False):
    """A child writes much, before rank 0 asks for it and after, or all of it after."""
    result = None
    if me.rank == 0:
        job = await me.spawn(command(MUCH), n=2)
        if early:
            await tell("go")
        async with me.output(job, buffer=100_000) as output:
            await tell("go")
            found = joined(await rest(output))
        result = {key: (len(data), hashlib.sha256(data).hexdigest()) for key, data in found.items()}, output.dropped
    await me.fence(timeout=20)
    return result


async def two_readers(me):
    """Both ranks read the output of a job that rank 0 has spawned, one of a single proc."""
    if me.rank == 0:
        job = await me.spawn(command("import sys, lib.sync as s; s.hear('go', 20); " + "print('x' * 10)"), n=2)
        await tell("nspace", job.nspace)
        procs = job.procs
    else:
        procs = [Proc(await hear("nspace", 20), 1)]
    found = []
    async with me.output(procs, IOFChannel.STDOUT) as output:
        await me.fence(timeout=20)
        if me.rank == 0:
            await tell("go")
        try:
            while sum(len(piece.data) for piece in found) < 11 * len(procs):
                found.append(await output.get(timeout=10))
        except OperationTimeout:
            pass
    await me.fence(timeout=20)
    return joined(found)


async def slow(me):
    """A reader that reads nothing until all has come."""
    result = None
    if me.rank == 0:
        code = "import sys, time\nfor n in range(30): print(n, flush=True); time.sleep(0.01)"
        job = await me.spawn(command(code))
        async with me.output(job, buffer=5) as output:
            await job.wait(20)
            await me.get("no.such.key", timeout=0, default=None)
            kept = len(output)
            pieces = await rest(output)
        result = kept, len(pieces), output.dropped > 0
    await me.fence(timeout=20)
    return result


async def own_job(me):
    """Rank 0 reads what rank 1 of its own job writes."""
    found = []
    async with me.output(me.job[1], IOFChannel.STDOUT) if me.rank == 0 else me.output(me.job[0], 8) as output:
        await me.fence(timeout=20)
        if me.rank == 1:
            print("hello from 1", flush=True)
        else:
            while b"hello from 1\n" not in joined(found).get((1, "STDOUT"), b""):
                found.append(await output.get(timeout=10))
        await me.fence(timeout=20)
    return joined(found)


async def echoed(me):
    """Rank 0 writes to its child and reads what it answers."""
    result = None
    if me.rank == 0:
        job = await me.spawn(command(ECHO), stdin=True)
        pieces = []
        async with me.output(job) as output:
            async with me.input(job[0]) as stdin:
                await stdin.write("first\n")
                while b"got first\n" not in joined(pieces).get((0, "STDOUT"), b""):
                    pieces.append(await output.get(timeout=10))
                await me.input(job).write(b"x" * 9_999 + b"\n")
            pieces += await rest(output)
        result = joined(pieces)
    await me.fence(timeout=20)
    return result


async def pushed(me):
    """Rank 0 writes to its child, which tells what it reads."""
    result = None
    if me.rank == 0:
        job = await me.spawn(
            command("import sys; from lib.sync import tell; tell('read', sys.stdin.readline())"), stdin=True
        )
        await me.input(job[0]).write("a line\n")
        result = await hear("read", 20)
    await me.fence(timeout=20)
    return result


async def to_all(me):
    """Both procs of a child read the same."""
    result = None
    if me.rank == 0:
        job = await me.spawn(command("import sys; print(sys.stdin.read())"), n=2, stdin=Rank.WILDCARD)
        async with me.output(job) as output:
            async with me.input(job) as stdin:
                await stdin.write(b"for all")
            result = joined(await rest(output))
    await me.fence(timeout=20)
    return result


async def printed(me):
    """Rank 0 has its child's output printed as its own."""
    if me.rank == 0:
        job = await me.spawn(command("print('from the child')"), info={attrs.FWD_STDOUT: True})
        await job.wait(20)
    await me.fence(timeout=20)


async def refused(me):
    found = {}
    if me.rank == 0:
        nobody = Proc("no.such.nspace", 0)
        found["push"] = await attempt(lambda: me.input(nobody).write(b"x"))
        found["pull"] = await attempt(lambda: me.output(nobody).open())
    await me.fence(timeout=20)
    return found


async def lonely(me):
    stream = me.output(me.proc)
    return (
        await attempt(lambda: stream.open()),
        await attempt(lambda: me.input(me.proc).write(b"x")),
        me.supports("output"),
        me.supports("input"),
    )
