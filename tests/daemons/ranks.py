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
            me.notify(LOAD, data_range=pypmix.Range.NAMESPACE)
        assert events.get(timeout=20).source.rank == 0
    assert me.lookup("port", timeout=20) == 4711
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


def known(me: pypmix.Client) -> None:
    """Rank 0 asks at once about jobs that it spawns on another node, while the daemon is busy with a rank's output."""
    me.fence(timeout=30)
    if me.rank == 0:
        sizes = [me.spawn(["sleep", "3"], n=2, info=[attrs.HOST("n1")]).size for _ in range(20)]
        say("sizes", set(sizes))
        me.publish({"over": True})
    else:
        while not me.lookup("over", default=False):
            for number in range(1000):
                say("busy", number)
    me.fence(timeout=50)


def mapped(me: pypmix.Client) -> None:
    """Rank 0 spawns procs that are mapped and ranked on the other nodes, and such that cannot be."""
    placed: list[dict[object, object]] = [
        {attrs.MAPBY: "slot"},
        {attrs.MAPBY: "core"},
        {attrs.MAPBY: "node"},
        {attrs.MAPBY: "NODE", attrs.RANKBY: "slot"},
        {attrs.RANKBY: "node", attrs.HOST: "n1,n2"},
        {attrs.PPR: "2:node", attrs.HOST: "n1,n2"},
        {attrs.MAPBY: "ppr:2:node", attrs.RANKBY: "node", attrs.HOST: "n2,n1"},
        {attrs.HOST: "n1:1,n2:3"},
        {attrs.HOST: "n1:1,n2", attrs.MAPBY: "slot:nooversubscribe"},
        {attrs.ADD_HOST: "n3:2", attrs.HOST: "n1:2", attrs.MAPBY: "node"},
    ]
    refused: list[dict[object, object]] = [
        {attrs.MAPBY: "ppr:1:node", attrs.HOST: "n1,n2"},
        {attrs.MAPBY: "ppr:4:node:nooversubscribe", attrs.HOST: "n1,n2"},
        {attrs.HOST: "n1:2", attrs.NO_OVERSUBSCRIBE: True},
        {attrs.MAPBY: "slot", attrs.PPR: "1:node"},
        {attrs.MAPBY: "elsewhere"},
        {attrs.RANKBY: "elsewhere"},
    ]
    if me.rank == 0:
        for number, info in enumerate((*placed, *refused)):
            words = " ".join(f"{attr.name}={value}" for attr, value in info.items())  # type: ignore[attr-defined]
            try:
                # It is there until it has been asked about.
                told = os.path.abspath(f"told.{number}")
                program = ["sh", "-c", f"until [ -e {told} ]; do sleep 0.02; done"]
                job = me.spawn(program, n=4, info=info)  # type: ignore[arg-type]
                nodes = [str(me.get(attrs.HOSTNAME, proc)) for proc in job]
                open(told, "w").close()
                say("placed", words, *nodes, job.wait(timeout=20))
            except PMIxError as error:
                say("refused", words, error.status.name, error.detail)
    me.fence(timeout=60)


def preloads(me: pypmix.Client) -> None:
    """Rank 0 spawns a program that is carried to the other node with what it reads, and what cannot be carried."""
    if me.rank == 0:
        files = {attrs.PRELOAD_FILES: "data/a,data/b", attrs.PRELOAD_BIN: True, attrs.HOST: "n1"}
        say("ended", me.spawn(["./tool", "data/a"], n=2, info=files).wait(timeout=30))
        for refused in ("nosuch", "data", "data/a,other/a"):
            try:
                me.spawn(["true"], info={attrs.PRELOAD_FILES: refused})
            except PMIxError as error:
                say("refused", refused, error.status.name, error.detail)
    me.fence(timeout=50)


def crowded(me: pypmix.Client) -> None:
    """Whether the node is said to be oversubscribed."""
    say("crowded", NODE, me.rank, me.get(attrs.NODE_OVERSUBSCRIBED, me.proc, timeout=0, default=None))
    me.fence(timeout=30)


def elastic(me: pypmix.Client) -> None:
    """Rank 0 has nodes join and leave, and spawns on them; the spawned form a group with those who were there."""
    parent = me.get(attrs.PARENT_ID, me.proc, timeout=0, default=None)
    if parent is None:
        with me.events(pypmix.EventCode.DVM_IS_READY, pypmix.EventCode.EVENT_NODE_OFFLINE) as events:
            me.fence(timeout=30)
            job = ""
            if me.rank == 0:
                me.control([me.proc]).request(info={attrs.JOB_CTRL_DEFINE_PSET: "early"})
                answer = me.allocate(pypmix.AllocDirective.EXTEND, timeout=60, info={attrs.ALLOC_NODE_LIST: "n2:2"})
                say("granted", answer[attrs.ALLOC_NODE_LIST])
                program = [sys.executable, __file__, "elastic"]
                job = me.spawn(program, n=2, info={attrs.SPAWN_TARGET: answer[attrs.ALLOC_ID]}).nspace
                me.publish({"job": job})
            event = events.get(timeout=60)
            say("grown", event.info[attrs.ALLOC_NODE_LIST], event.info[attrs.ALLOC_NODE_LIST])
            _meet(me, me.nspace, str(me.lookup("job", timeout=30)))
            if me.rank == 0:
                _change(me)
            me.fence(timeout=90)
            codes = []
            while len(codes) < 3:
                event = events.get(timeout=60)
                codes.append(event.code)
                if event.code == pypmix.EventCode.EVENT_NODE_OFFLINE:
                    say("offline", event.info[attrs.HOSTNAME])
    else:
        say("worked on", NODE)
        say("early is", [proc.rank for proc in me.psets["early"]])
        _meet(me, parent.nspace, me.nspace)
        me.lookup("leave", timeout=30)


def _meet(me: pypmix.Client, first: str, second: str) -> None:
    members = [Proc(nspace, rank) for nspace in (first, second) for rank in range(2)]
    with me.group("met", members, timeout=60) as group:
        me.fence(group, timeout=30)
        say("group of", group.size, "with", len(group.members))


def _change(me: pypmix.Client) -> None:
    """Release what was granted, and get more in other ways."""
    release = pypmix.AllocDirective.RELEASE
    try:
        me.allocate(release, timeout=30, info={attrs.ALLOC_NODE_LIST: "n2"})
    except PMIxError as error:
        say("refused", "busy" if error.status == pypmix.Status.ERR_RESOURCE_BUSY else error, "n2")
    me.publish({"leave": True})
    deadline = time.monotonic() + 30
    while True:
        try:
            say("released", me.allocate(release, timeout=30, info={attrs.ALLOC_NODE_LIST: "n2"})[attrs.ALLOC_NODE_LIST])
            break
        except PMIxError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    me.spawn(["sh", "-c", "echo spawned on $TEST_NODE"], info={attrs.ADD_HOST: "n3:2"}).wait(timeout=30)
    granted = me.allocate(timeout=60, info={attrs.ALLOC_NODE_LIST: "n2"})[attrs.ALLOC_ID]
    me.spawn(["sh", "-c", "echo back on $TEST_NODE"], info={attrs.SPAWN_TARGET: granted}).wait(timeout=30)
    say("target", "n3")


def taken(me: pypmix.Client) -> None:
    """The node of ranks 2 and 3 is taken away, while the others wait for them in a fence."""
    with me.events(pypmix.EventCode.EVENT_NODE_OFFLINE) as events:
        me.fence(timeout=30)
        say("up", me.rank)
        if NODE == "n1":
            time.sleep(60)
        try:
            me.fence(timeout=50)
        except PMIxError as error:
            say("fence without", sorted(proc.rank for proc in error.missing))
        say("offline", events.get(timeout=30).info[attrs.HOSTNAME])


if __name__ == "__main__":
    with pypmix.Client() as client:
        globals()[sys.argv[1]](client)
