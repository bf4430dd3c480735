"""Proves that a client which is lost in the middle of anything leaves the others answered, and the server empty."""

from __future__ import annotations

import os

from faults.world import ACTIONS, ALL_OUTPUT, WATCHER, Anybody, Everybody, held
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.wire.messages import Command

EXAMPLES = 250 * max(1, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")) // 50)

SMALL = st.integers(0, 7)
STEPS = st.one_of(
    st.tuples(st.sampled_from(ACTIONS), SMALL, SMALL, SMALL, SMALL),
    st.tuples(st.sampled_from(ACTIONS), SMALL, SMALL, SMALL, SMALL),
    st.tuples(st.just("connect"), SMALL, SMALL),
    st.tuples(st.just("lose"), SMALL, st.integers(0, 40)),
    st.tuples(st.just("patience"), st.booleans()),
    st.tuples(st.just("answer"), SMALL, SMALL),
    st.tuples(st.just("output"), SMALL, st.booleans()),
    st.tuples(st.just("raise"), SMALL, SMALL),
    st.tuples(st.just("wait"), st.sampled_from((0.5, 2.5, 60, 130))),
    st.tuples(st.just("end job"), SMALL),
)


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
        world.notify(-3001 - args[0] % 2, 4, tuple(world.procs[: args[1] % 3]))
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


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=20, max_size=120), SMALL)
def test_who_is_lost_in_the_middle_of_anything(steps, last):
    world = Everybody()
    for proc in world.procs:
        world.clients[proc].append(Anybody(world, proc, False))
    for step in steps:
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
    assert world.read_pieces == set(world.pieces)

    for client in world.everybody():
        lose(world, client)
    for nspace in ("job", "other", "watch", *world.children):
        world.server.deregister_nspace(nspace)
    world.advance(60)
    assert not world.live_timers()
    assert not world.server.pending()
    assert not world.feeds, "the host delivers output that nobody wants"
    assert not world.interests, "the host reports events that nobody wants"
    assert not world.logged
    left = held(world.server, *[entry[2] for entry in world.timers])
    assert not left, f"the server still holds {dict(left)}"
