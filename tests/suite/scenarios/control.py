"""Log, job control, monitors and credentials between ranks and their host."""

from __future__ import annotations

import os
import signal
import time

from lib.aio import hear, sleep, tell
from pypmix import AllocDirective, EventCode, OperationTimeout, PMIxError, attrs


async def attempt(call):
    """Return what a call returns or raises."""
    try:
        return await call()
    except PMIxError as error:
        return error


async def logged(me, to):
    if me.rank == 0:
        await me.log("acme says hello\n", to=to)
    await me.fence(timeout=20)
    # What the host writes may take a way of its own.
    await sleep(0.5)
    return "done"


async def logged_by_all(me):
    await me.log(f"acme hears rank {me.rank}\n", tag=True, timestamp=True)
    await me.fence(timeout=20)
    await sleep(0.5)
    return "done"


async def until(condition, seconds=10.0):
    """Wait for something that a signal or another process does; tell whether it came."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await sleep(0.01)
    return True


async def terminated(me):
    """Rank 0 asks rank 1 to end, which takes note and ends by itself."""
    seen = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    await me.fence(timeout=20)
    if me.rank == 0:
        await me.control(me.job[1]).terminate()
        await hear("ending")
        return None
    arrived = await until(lambda: seen)
    await tell("ending")
    return arrived


def state(pid):
    """Return the letter of a process's state, such as T for stopped; X where there is none any more."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2][0]
    except OSError:
        return "X"


async def killed(me):
    """Rank 0 has rank 1 killed, which would sleep for long; the launcher may then end rank 0 as well."""
    if me.rank == 1:
        await tell("pid", str(os.getpid()))
        await sleep(25)
        return "alive"
    pid = int(await hear("pid"))
    await me.control(me.job[1]).kill()
    return await until(lambda: state(pid) in "XZ", 5)


async def paused(me):
    """Rank 0 has rank 1 stopped and sees to it that it goes on."""
    if me.rank == 1:
        await tell("pid", str(os.getpid()))
        await me.fence(timeout=20)
        return "went on"
    pid = int(await hear("pid"))
    await me.control(me.job[1]).pause()
    stopped = await until(lambda: state(pid) == "T", 5)
    await me.control(me.job[1]).resume()
    resumed = await until(lambda: state(pid) != "T", 5)
    await me.fence(timeout=20)
    return stopped, resumed


async def unknown_targets(me):
    error = await attempt(lambda: me.control(type(me.proc)("no.such.nspace", 0)).signal(signal.SIGUSR1))
    await me.fence(timeout=20)
    return error


async def cleaned(me):
    """Rank 0 leaves a file and a folder of files, and has them removed when the job has ended."""
    folder = os.path.join(os.path.dirname(os.environ["PYPMIX_TEST_RESULTS"]), "left")
    if me.rank == 0:
        os.makedirs(f"{folder}/many/deep")
        for name in ("one", "kept", "many/two", "many/deep/three"):
            with open(f"{folder}/{name}", "w"):
                pass
        await me.control().register_cleanup(f"{folder}/one")
        await me.control().register_cleanup(f"{folder}/many", recursive=True)
    await me.fence(timeout=20)
    return os.path.exists(f"{folder}/one")


async def heard(events, seconds):
    """Return the next event, None if none comes in time."""
    try:
        return await events.get(timeout=seconds)
    except OperationTimeout:
        return None


async def alarmed(me):
    """A heart that beats is left alone; once it stops, an event says so."""
    quiet = arrived = None
    async with me.events(EventCode.MONITOR_HEARTBEAT_ALERT) as events:
        await me.fence(timeout=20)
        if me.rank == 0:
            await me.monitors.watch_heartbeat(1, id="mine")
            for _ in range(8):
                await me.monitors.send_heartbeat()
                await sleep(0.3)
            await tell("stopping")
        else:
            await hear("stopping")
        quiet = await heard(events, 0.05)
        event = await heard(events, 6)
        await me.fence(timeout=20)
        if me.rank == 0:
            await me.monitors.cancel("mine")
        arrived = event and (event.code.name, event.source)
    await me.fence(timeout=20)
    return quiet, arrived, me.job[0]


async def watched(me, path):
    """A file that grows is left alone; once it stops, an event says so."""
    async with me.events(EventCode.MONITOR_FILE_ALERT) as events:
        await me.fence(timeout=20)
        if me.rank == 0:
            with open(path, "w") as file:
                name = await me.monitors.watch_file(path, 1, size=True, drops=2)
                for _ in range(8):
                    file.write("x")
                    file.flush()
                    await sleep(0.3)
            await tell("stopping")
        else:
            await hear("stopping")
        quiet = await heard(events, 0.05)
        event = await heard(events, 8)
        await me.fence(timeout=20)
        if me.rank == 0:
            await me.monitors.cancel(name)
    await me.fence(timeout=20)
    return quiet, event and event.code.name


async def cancelled(me, path):
    """Monitors that were cancelled raise nothing."""
    event = None
    if me.rank == 0:
        async with me.events(EventCode.MONITOR_FILE_ALERT, EventCode.MONITOR_HEARTBEAT_ALERT) as events:
            with open(path, "w"):
                first = await me.monitors.watch_file(path, 1, size=True)
            second = await me.monitors.watch_heartbeat(1)
            await me.monitors.cancel(first)
            await me.monitors.cancel(second)
            event = await heard(events, 3)
    await me.fence(timeout=20)
    return event and event.code.name


async def credentials(me):
    """What rank 0 got, rank 1 has validated."""
    result = None
    if me.rank == 0:
        credential = await me.credentials.get()
        me_too = await me.credentials.validate(credential)
        await tell("credential", credential.data.hex())
        result = me_too[attrs.USERID], me_too[attrs.GRPID]
    else:
        data = bytes.fromhex(await hear("credential"))
        found = await me.credentials.validate(data)
        forged = await attempt(lambda: me.credentials.validate(data[:-1] + bytes([data[-1] ^ 1])))
        nonsense = await attempt(lambda: me.credentials.validate(b"nonsense"))
        result = found[attrs.USERID], found[attrs.GRPID], forged, nonsense
    await me.fence(timeout=20)
    return result, (os.getuid(), os.getgid())


async def not_offered(me):
    """What a host of one node has nothing to say to."""
    found = {
        "allocation": await attempt(lambda: me.allocate(AllocDirective.NEW, nodes=2)),
        "fabric": await attempt(lambda: me.fabric.register()),
        "update": await attempt(lambda: me.fabric.update(0)),
    }
    await me.fence(timeout=20)
    return found


async def distances(me):
    found = await attempt(lambda: me.fabric.compute_distances())
    await me.fence(timeout=20)
    return found


async def refused(me):
    """Mistakes are errors at the call and leave everything else as it was."""
    errors = {}
    mistakes = {
        "nothing to log": lambda: me.log({}),
        "no channel": lambda: me.log("x", to="nowhere"),
        "text with NUL": lambda: me.log("a\0b"),
        "no signal": lambda: me.control(me.job).signal(0),
        "nobody": lambda: me.control(None).kill(),
        "nspace for procs": lambda: me.control("job").terminate(),
        "no period": lambda: me.monitors.watch_heartbeat(0),
        "nothing to watch": lambda: me.monitors.watch_file("x", 5),
        "no directive": lambda: me.allocate(300),
        "no credential": lambda: me.credentials.validate("text"),
    }
    for name, mistake in mistakes.items():
        try:
            await mistake()
        except (TypeError, ValueError, OverflowError) as error:
            errors[name] = type(error).__name__
    await me.fence(timeout=20)
    return errors


async def lonely(me):
    calls = {
        "log": lambda: me.log("x"),
        "signal": lambda: me.control(me.proc).signal(signal.SIGUSR1),
        "allocate": lambda: me.allocate(nodes=1),
        "monitor": lambda: me.monitors.watch_heartbeat(1),
        "heartbeat": lambda: me.monitors.send_heartbeat(),
        "fabric": lambda: me.fabric.register(),
    }
    return {name: await attempt(call) for name, call in calls.items()}
