"""Publish, lookup and unpublish between ranks."""

from __future__ import annotations

import os
import time

from lib.aio import hear, sleep, tell
from lib.samples import samples
from pypmix import Persist, PMIxError


async def attempt(call):
    """Return what a call returns or raises, and how long it took."""
    began = time.monotonic()
    try:
        result = await call()
    except PMIxError as error:
        result = error
    return result, time.monotonic() - began


async def every_type(me):
    values = samples()
    if me.rank == 0:
        await me.publish(values)
        await tell("published")
    else:
        await hear("published")
    seen = {key: item.value for key, item in (await me.lookup(values)).items()}
    await me.fence(timeout=20)
    return seen


async def awaited(me, key):
    """Rank 1 publishes only when rank 0 has been asking for a while."""
    result = None
    if me.rank == 0:
        began = time.monotonic()
        await tell("asking")
        value, _ = await attempt(lambda: me.lookup(key, timeout=10))
        result = value, time.monotonic() - began
    else:
        await hear("asking")
        await sleep(0.3)
        await me.publish({key: "there"})
    await me.fence(timeout=20)
    return result


async def awaited_some(me):
    """Rank 0 waits for any two of three keys, of which one never comes."""
    result = None
    if me.rank == 0:
        await tell("asking")
        result, _ = await attempt(lambda: me.lookup(["one", "gone", "two"], timeout=float("inf"), count=2))
        result = {key: item.value for key, item in result.items()}
    else:
        await hear("asking")
        for number, key in enumerate(("one", "two")):
            await sleep(0.1)
            await me.publish({key: number})
    await me.fence(timeout=20)
    return result


async def missing(me):
    found = {
        "plain": await attempt(lambda: me.lookup("no.such.key")),
        "default": await attempt(lambda: me.lookup("no.such.key", default="fallback")),
        "several": await attempt(lambda: me.lookup(["no.such.key", "nor.this"])),
        "in time": await attempt(lambda: me.lookup("no.such.key", timeout=1)),
    }
    await me.fence(timeout=20)
    return found


async def partial(me, wait):
    if me.rank == 0:
        await me.publish({"here": 1, "here.too": 2})
    await me.fence(timeout=20)
    found = await me.lookup(["here", "gone", "here.too"], timeout=wait)
    await me.fence(timeout=20)
    return {key: item.value for key, item in found.items()}, found.missing


async def all_taken_back(me):
    await me.publish({f"first.{me.rank}": 1, f"second.{me.rank}": 2})
    await me.fence(timeout=20)
    if me.rank == 0:
        await me.unpublish()
    await me.fence(timeout=20)
    return [await me.lookup(f"{name}.{rank}", default="gone") for rank in (0, 1) for name in ("first", "second")]


async def foreign(me):
    """Rank 1 tries to take back what rank 0 has published."""
    if me.rank == 0:
        await me.publish({"mine": 1})
    await me.fence(timeout=20)
    error = None
    if me.rank == 1:
        error, _ = await attempt(lambda: me.unpublish("mine"))
    await me.fence(timeout=20)
    return error, await me.lookup("mine", default="gone")


def ended(pid):
    """Tell whether a process has ended, be it that its parent has not taken note yet."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


async def outlived(me):
    """Rank 1 publishes and ends; rank 0 looks what is left."""
    if me.rank == 1:
        await me.publish({"with.me": 1}, persist=Persist.PROC)
        await me.publish({"after.me": 2}, persist=Persist.SESSION)
        await tell("ending", str(os.getpid()))
        return None
    pid = int(await hear("ending"))
    while not ended(pid):
        await sleep(0.01)
    deadline = time.monotonic() + 5
    while await me.lookup("with.me", default="gone") != "gone" and time.monotonic() < deadline:
        # The launcher takes note of the end when its turn comes.
        await sleep(0.02)
    return await me.lookup("with.me", default="gone"), await me.lookup("after.me", default="gone")


async def refused(me):
    """Mistakes are errors at the call and leave everything else as it was."""
    errors = {}
    mistakes = {
        "nothing": lambda: me.publish({}),
        "long key": lambda: me.publish({"k" * 600: 1}),
        "empty key": lambda: me.publish({"": 1}),
        "key with NUL": lambda: me.publish({"a\0b": 1}),
        "reserved key": lambda: me.publish({"pmix.mine": 1}),
        "unsupported value": lambda: me.publish({"x": object()}),
        "no range": lambda: me.publish({"x": 1}, data_range=99),
        "no persistence": lambda: me.publish({"x": 1}, persist=77),
        "no keys": lambda: me.lookup([]),
        "empty lookup": lambda: me.lookup(""),
        "None": lambda: me.lookup(None),
        "negative wait": lambda: me.lookup("x", timeout=-1),
        "long unpublish": lambda: me.unpublish("k" * 600),
    }
    for name, mistake in mistakes.items():
        try:
            await mistake()
        except (TypeError, ValueError, OverflowError) as error:
            errors[name] = type(error).__name__
    await me.publish({f"good.{me.rank}": "kept"})
    kept = await me.lookup(f"good.{me.rank}")
    await me.fence(timeout=20)
    return errors, kept


async def lonely(me):
    errors = {}
    for name, call in {
        "publish": lambda: me.publish({"x": 1}),
        "lookup": lambda: me.lookup("x"),
        "unpublish": lambda: me.unpublish("x"),
    }.items():
        try:
            await call()
        except PMIxError as error:
            errors[name] = error
    return errors, [me.supports(name) for name in ("publish", "lookup", "lookup.wait", "unpublish")]


def interrupted(me):
    """A signal whose handler raises ends a lookup that waits for ever, and nothing else."""
    import signal

    class Enough(Exception):
        pass

    def enough(*_):
        raise Enough

    signal.signal(signal.SIGALRM, enough)
    seen = []
    for _ in range(3):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            me.lookup("never", timeout=float("inf"))
        except Enough:
            seen.append("interrupted")
    me.publish({f"fine.{me.rank}": 1})
    seen.append(me.lookup(f"fine.{me.rank}"))
    me.fence(timeout=20)
    return seen
