"""Proves that a client which is lost in the middle of anything leaves the others answered, and the server empty."""

from __future__ import annotations

import os
import time
from random import Random

import pytest

from faults.world import ACTIONS, ALL_OUTPUT, WATCHER, Anybody, Everybody, held
from pypmix.engine.times import OUTPUT_SECONDS
from pypmix.standard.enums import Range
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.wire.messages import Command

ROUNDS = max(300, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))
BLOCKS = 6

SHRINK_SECONDS = 10.0


def steps(seed):
    """Return what happens in one life of the server."""
    random = Random(seed)

    def small():
        return random.randrange(8)

    def step():
        chance = random.random()
        if chance < 0.6:
            return random.choice(ACTIONS), small(), small(), small(), small()
        return random.choice(
            (
                ("connect", small(), small()),
                ("connect", small(), small()),
                ("lose", small(), random.randrange(41)),
                ("lose", small(), 0),
                ("patience", random.random() < 0.5),
                ("answer", small(), small()),
                ("answer", small(), small()),
                ("output", small(), random.random() < 0.5),
                ("raise", small(), small()),
                ("wait", random.choice((0.5, 2.5, 60, 130))),
                ("end job", small()),
            )
        )

    return [step() for _ in range(random.randrange(10, 150))]


def take(world, step):
    """Take one step; what makes no sense at the moment is none."""
    kind, *args = step
    connected = [client for client in world.everybody() if client.proc != WATCHER]
    if kind == "connect":
        proc = world.procs[args[0] % len(world.procs)]
        if len(world.clients[proc]) < 2:
            world.clients[proc].append(Anybody(world, proc, args[1] & 1))
    elif kind == "lose":
        if connected:
            lose(world, connected[args[0] % len(connected)], args[1])
    elif kind == "patience":
        world.patient = args[0]
    elif kind == "answer":
        if world.held:
            world.reply(*world.held.pop(args[0] % len(world.held)), args[1])
    elif kind == "output":
        world.output(world.procs[args[0] % len(world.procs)], 2 if args[1] else 4)
    elif kind == "raise":
        targets = tuple(world.procs[: args[1] % 3])
        world.notify(-3001 - args[0] % 2, Range.CUSTOM if targets else Range.SESSION, targets)
    elif kind == "wait":
        world.advance(args[0])
    elif kind == "end job":
        if world.children:
            world.end_job(world.children[args[0] % len(world.children)])
    else:
        able = [client for client in connected if not client.finalized]
        if able:
            getattr(able[args[0] % len(able)], kind)(*args[1:])


def lose(world, client, cut=0):
    """A connection breaks; the host hears of it once, if its proc has not finalized and has no other."""
    proc = client.proc
    before = world.lost[proc]
    world.clients[proc].remove(client)
    was_left = world.server.store.process(proc).left
    client.leave(cut)
    others = [other for other in world.clients[proc] if not other.finalized]
    expected = 0 if client.finalized or others or was_left else 1
    assert world.lost[proc] - before == expected


def live(happens, last):
    """Let all this happen, then let everybody go, and see that nothing is left."""
    world = Everybody()
    for proc in world.procs:
        world.clients[proc].append(Anybody(world, proc, False))
    for step in happens:
        take(world, step)
        world.check()

    # All but one are lost. Nothing of the one is left without an answer.
    able = [client for client in world.everybody() if not client.finalized]
    survivor = able[last % len(able)] if able else None
    for client in world.everybody():
        if client is not survivor:
            lose(world, client)
            world.check()
    for proc in world.procs:
        if survivor is None or proc != survivor.proc:
            world.server.deregister_client(proc)
    world.patient = False
    world.answer_all()
    world.advance(10)
    world.check()
    if survivor is not None:
        assert not survivor.asked, "a request of a survivor has no answer"

    # What nobody has read of the output is still there.
    watcher = Anybody(world, WATCHER, False)
    world.clients[WATCHER].append(watcher)
    infos = {"procs": (Proc("", RANK_WILDCARD),), "infos": (), "channels": ALL_OUTPUT, "local_id": 1}
    watcher.begin("pull", Command.IOF_PULL, **infos)
    world.check()
    assert world.read_pieces >= world.pieces.keys() - world.outlived, "output is lost"

    for client in world.everybody():
        lose(world, client)
    for nspace in ("job", "other", "watch", *world.children):
        world.server.deregister_nspace(nspace)
    world.advance(130)
    assert not world.live_timers()
    assert not world.server.pending()
    assert not world.feeds, "the host delivers output that nobody wants"
    assert not world.interests, "the host reports events that nobody wants"
    assert not world.logged
    left = held(world.server, *[entry[2] for entry in world.timers])
    assert not left, f"the server still holds {dict(left)}"


def fails(happens, last):
    """Return where it fails, None if it does not."""
    try:
        live(happens, last)
    except Exception as error:
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        return type(error).__name__, trace.tb_frame.f_code.co_name, trace.tb_lineno
    return None


def shrunk(happens, last, failure):
    """Leave out what the failure does not need, as far as the time allows."""
    deadline = time.monotonic() + SHRINK_SECONDS
    size = len(happens) // 2
    while size:
        at = 0
        while at < len(happens) and time.monotonic() < deadline:
            fewer = happens[:at] + happens[at + size :]
            if fails(fewer, last) == failure:
                happens = fewer
            else:
                at += size
        size //= 2
    return happens


LIVES = {
    "a second connection is lost after the first one has finalized": [
        ("do_finalize", 0, 1, 4, 6),
        ("connect", 6, 0),
        ("lose", 1, 6),
    ],
    "a client has gone when the host has agreed to its pull": [
        ("output", 0, False),
        ("patience", True),
        ("do_pull", 3, 0, 4, 2),
        ("lose", 3, 0),
        ("patience", False),
        ("answer", 0, 0),
    ],
    "an event is kept longer than its sender's job": [("do_notify", 5, 0, 3, 1)],
}


@pytest.mark.parametrize("name", LIVES)
def test_what_went_wrong_once(name):
    live(LIVES[name], 1)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_who_is_lost_in_the_middle_of_anything(block):
    for seed in range(block, ROUNDS, BLOCKS):
        happens = steps(seed)
        failure = fails(happens, seed)
        if failure is not None:
            happens = shrunk(happens, seed, failure)
            print(f"seed {seed}:", *happens, sep="\n  ")
            live(happens, seed)
            pytest.fail(f"seed {seed} failed only once: {failure}")


def test_output_of_a_job_that_is_over_is_kept_for_a_while_only():
    world = Everybody()
    client = Anybody(world, world.procs[0], False)
    client.do_spawn(0, 0, 0)
    (nspace,) = world.children
    world.output(Proc(nspace, 0), 2)
    world.end_job(nspace)
    # What comes last may come after the end.
    world.output(Proc("gone", 0), 2)
    world.advance(OUTPUT_SECONDS - 1)
    assert held(world.server)["_Cache"] == 2
    world.advance(1)
    assert not held(world.server)["_Cache"]
