"""What the ranks of the tests of daemons do: `ranks.py NAME`."""

from __future__ import annotations

import os
import sys
import time

import pypmix
from pypmix import PMIxError, Proc, attrs

LOAD = pypmix.EventCode.custom(-4242)
NODE = os.environ.get("TEST_NODE", "")


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def work(me: pypmix.Client) -> None:
    """Values by a fence and directly, a group, an event, a published value, a query: all of it across nodes."""
    size = me.job.size
    me.put("color", f"c{me.rank}")
    me.commit()
    me.fence(collect=True, timeout=30)
    assert [me.get("color", rank) for rank in range(size)] == [f"c{rank}" for rank in range(size)]
    me.put("late", me.rank)
    me.commit()
    me.fence(timeout=30)
    assert [me.get("late", rank) for rank in range(size)] == list(range(size))
    evens = [proc for proc in me.job if proc.rank % 2 == 0]
    if me.proc in evens:
        with me.group("evens", evens, context_id=True, timeout=30) as group:
            assert group.size == len(evens)
            me.fence(group, timeout=30)
    with me.events(LOAD) as events:
        me.fence(timeout=30)
        if me.rank == 0:
            me.publish({"port": 4711})
            me.notify(LOAD, range=pypmix.Range.NAMESPACE)
        assert events.get(timeout=20).source.rank == 0
    assert me.lookup("port", wait=20) == 4711
    me.fence(timeout=30)
    say("worked", me.rank, me.node.hostname, NODE, os.getcwd(), os.environ.get("EXTRA", ""))


def wait(me: pypmix.Client) -> None:
    """Rank 0 waits in a fence for the others, who never come."""
    say("up", me.rank, os.getpid())
    if me.rank == 0:
        me.fence()
    time.sleep(60)


def survive(me: pypmix.Client) -> None:
    """The ranks of node n1 do not come to a fence; the others tell how it ends, and that they can go on."""
    lost: list[Proc] = []
    me.on(pypmix.EventCode.ERR_PROC_ABORTED)(lambda event: lost.append(event.info[attrs.EVENT_AFFECTED_PROC.key]))
    me.fence()
    say("up", me.rank)
    if NODE == "n1":
        time.sleep(60)
    began = time.monotonic()
    try:
        me.fence(timeout=50)
        say("fence ended well", me.rank)
    except PMIxError as error:
        say("fence", me.rank, error.code, sorted(proc.rank for proc in error.missing))
    say("seconds", round(time.monotonic() - began, 1))
    deadline = time.monotonic() + 10
    while len(lost) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    say("events", me.rank, sorted(proc.rank for proc in lost))


def spawn(me: pypmix.Client) -> None:
    """Rank 0 spawns procs on another node, by its name and by its address, and what cannot be found anywhere."""
    if me.rank == 0:
        for host in ("n1", "127.0.0.3"):
            job = me.spawn(["sh", "-c", "echo spawned on $TEST_NODE"], n=2, info=[attrs.HOST(host)])
            say("spawned", host, job.wait(timeout=20))
        try:
            me.spawn(["./nosuch"], n=3)
        except PMIxError as error:
            say("refused", error.code, error.detail)
    me.fence(timeout=50)


def crowded(me: pypmix.Client) -> None:
    """Whether the node is said to be oversubscribed."""
    say("crowded", NODE, me.rank, me.get(attrs.NODE_OVERSUBSCRIBED, me.proc, wait=False, default=None))
    me.fence(timeout=30)


if __name__ == "__main__":
    with pypmix.Client() as client:
        globals()[sys.argv[1]](client)
