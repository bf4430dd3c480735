"""Put, commit, fence and get between ranks."""

from __future__ import annotations

import time

from lib.aio import hear, sleep, tell
from lib.samples import samples
from pypmix import NotFound, NotSupported, PMIxError, Proc, Rank, Scope, attrs


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
    for name, value in values.items():
        await me.put(name, value)
    await me.fence(collect=True, timeout=20)
    peer = me.job[(me.rank + 1) % me.job.size]
    seen = {name: await me.raw.get(peer, name) for name in values}
    await me.fence(timeout=20)
    return seen


async def refreshed(me):
    """Who asks with a refresh sees the value that was changed since."""
    peer = me.job[(me.rank + 1) % me.job.size]
    await me.put("changing", "before")
    await me.fence(collect=True, timeout=20)
    before = await me.get("changing", peer)
    await me.fence(timeout=20)
    await me.put("changing", "after")
    await me.fence(collect=True, timeout=20)
    after = await me.get("changing", peer, info={attrs.GET_REFRESH_CACHE: True})
    await me.fence(timeout=20)
    return before, after


async def refreshed_without_a_fence(me):
    """A refresh sees what was committed since, with no collecting fence in between."""
    peer = me.job[(me.rank + 1) % me.job.size]
    await me.put("changing", "before")
    await me.fence(collect=True, timeout=20)
    before = await me.get("changing", peer)
    await me.fence(timeout=20)
    await me.put("changing", "after")
    await me.fence(timeout=20)
    after = (
        await me.get("changing", peer, refresh=True),
        (await me.raw.get(peer, "changing", {attrs.GET_REFRESH_CACHE: True})).data,
    )
    own = await me.get("changing", refresh=True)
    await me.fence(timeout=20)
    return before, after, own


async def refused_refresh(me):
    """Where a refresh would be without effect it is an error, and no old value."""
    await me.put("key", 1)
    await me.fence(collect=True, timeout=20)
    peer = me.job[(me.rank + 1) % me.job.size]
    error, _ = await attempt(lambda: me.get("key", peer, refresh=True))
    own = await me.get("key", refresh=True)
    await me.fence(timeout=20)
    return me.supports("get.refresh"), error, own


async def missing(me):
    """All the ways to ask for a key that nobody has."""
    peer = me.job[(me.rank + 1) % me.job.size]
    await me.put("something", 1)
    await me.fence(timeout=20)
    found = {
        "immediate": await attempt(lambda: me.get("no.such.key", peer, timeout=0)),
        "optional": await attempt(lambda: me.get("no.such.key", peer, optional=True)),
        "own": await attempt(lambda: me.get("no.such.key", timeout=0)),
        "default": await attempt(lambda: me.get("no.such.key", peer, default="fallback", timeout=0)),
    }
    await me.fence(timeout=20)
    return found


async def missing_reserved(me):
    """A key of the Standard that the host does not provide is missing at once, of ranks and of the job."""
    peer = me.job[(me.rank + 1) % me.job.size]
    job = Proc(me.nspace, Rank.WILDCARD)
    found = {
        "rank": await attempt(lambda: me.get(attrs.FABRIC_ENDPT, peer)),
        "job": await attempt(lambda: me.get(attrs.PARENT_ID, job)),
    }
    await me.fence(timeout=20)
    return found


async def missing_in_time(me, wait):
    peer = me.job[(me.rank + 1) % me.job.size]
    found = await attempt(lambda: me.get("no.such.key", peer, timeout=wait))
    await me.fence(timeout=20)
    return found


async def awaited(me):
    """Rank 0 asks for a key that rank 1 commits only when it knows that rank 0 is asking."""
    if me.rank == 0:
        began = time.monotonic()
        await tell("asking")
        value, _ = await attempt(lambda: me.get("late", me.job[1], timeout=10))
        result = value, time.monotonic() - began
    else:
        await hear("asking")
        await sleep(0.3)
        await me.put("late", "there")
        await me.commit()
        result = None
    await me.fence(timeout=20)
    return result


async def met(me, turns):
    """Rank 0 asks for each key while rank 1 commits it, now a little earlier and now a little later."""
    found = []
    for turn in range(turns):
        await me.fence(timeout=20)
        if me.rank == 0:
            found.append((await attempt(lambda turn=turn: me.get(f"met.{turn}", me.job[1], timeout=10)))[0])
        else:
            await me.put(f"met.{turn}", turn)
            started = time.perf_counter()
            while time.perf_counter() - started < turn % 10 * 20e-6:
                pass
            await me.commit()
    await me.fence(timeout=20)
    return found


async def awaited_through_another_commit(me):
    """While rank 0 waits for a key, rank 1 commits something else first."""
    if me.rank == 0:
        await tell("asking")
        result = await attempt(lambda: me.get("late", me.job[1], timeout=10))
    else:
        await hear("asking")
        await sleep(0.2)
        await me.put("early", "something else")
        await me.commit()
        await sleep(0.2)
        await me.put("late", "there")
        await me.commit()
        result = None
    await me.fence(timeout=20)
    return result


async def many_keys(me, count):
    for number in range(count):
        await me.put(f"key.{number}", number * me.rank)
    await me.fence(collect=True, timeout=20)
    total = 0
    for proc in me.job:
        for number in range(count):
            total += await me.get(f"key.{number}", proc)
    await me.fence(timeout=20)
    return total


async def refused_puts(me):
    """Mistakes are errors at the call and leave everything else as it was."""
    await me.put("good", "kept")
    errors = {}
    mistakes = {
        "long key": ("k" * 600, 1),
        "empty key": ("", 1),
        "key with NUL": ("a\0b", 1),
        "unsupported value": ("x", object()),
        "string with NUL": ("x", "a\0b"),
        "too large": ("x", 2**64),
    }
    for name, (key, value) in mistakes.items():
        try:
            await me.put(key, value)
        except (TypeError, ValueError, OverflowError) as error:
            errors[name] = error
    await me.fence(collect=True, timeout=20)
    peer = me.job[(me.rank + 1) % me.job.size]
    kept = await me.get("good", peer)
    try:
        await me.get("x", peer, timeout=0)
    except NotFound:
        errors["x was not put"] = True
    await me.fence(timeout=20)
    return errors, kept


async def deleted(me):
    """A key that its owner deletes is gone for everybody, those who have read it included, and can be put again."""
    peer = me.job[(me.rank + 1) % me.job.size]
    await me.put("draft", f"of {me.rank}")
    await me.put("kept", me.rank)
    await me.fence(collect=True, timeout=20)
    before = await me.get("draft", peer), await me.get("kept", peer)
    await me.fence(timeout=20)
    await me.put("draft", None, scope=Scope.DEL_GLOBAL)
    await me.fence(collect=True, timeout=20)
    own = await me.get("draft", default="gone", timeout=0)
    # The server tells of it in its own time.
    for _ in range(200):
        after = await me.get("draft", peer, default="gone", timeout=0)
        if after == "gone":
            break
        await me.get("never", peer, default=None, timeout=0)
    kept = await me.get("kept", peer)
    await me.fence(timeout=20)
    await me.put("draft", f"again of {me.rank}")
    await me.fence(collect=True, timeout=20)
    return before, own, after, kept, await me.get("draft", peer)


async def deleted_in_vain(me):
    """A server or library that cannot delete says so at the call, and the value stays."""
    await me.put("draft", "of mine")
    try:
        await me.put("draft", None, scope=Scope.DEL_GLOBAL)
    except NotSupported as error:
        return type(error).__name__, await me.get("draft")
    return None


async def too_much(me):
    """Rank 0 commits more than it may, one value after the other; the others read."""
    found = {}
    if me.rank == 0:
        try:
            await me.put("small", 1)
            for name in ("first", "second"):
                # More than half of a message: what is for all readers goes once.
                await me.put(name, bytes(20 << 20))
                await me.commit()
            await me.fence((me.proc,), timeout=20)
        except PMIxError as error:
            found["refused"] = type(error).__name__, int(error.status), str(error)
            # It is no worse off than before.
            await me.put("second", 2)
            await me.commit()
    elif me.rank == 1:
        await me.put("other", 77)
    error, _ = await attempt(lambda: me.fence(collect=True, timeout=40))
    if me.rank == 0:
        found["afterwards"] = error
        await me.fence(timeout=40)
        return found
    found["first"] = len(await me.get("first", me.job[0]))
    found["small"] = await me.get("small", me.job[0])
    found["of another"] = await me.get("other", me.job[1])
    found["fence"], _ = await attempt(lambda: me.fence(timeout=40))
    return found
