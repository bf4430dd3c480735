"""Groups on the native engine: what it hears of events itself, who waits for what, and that nothing is left behind."""

from __future__ import annotations

import pytest

from lib.native_programs import EVENTS

pytestmark = pytest.mark.timeout(120)

GROUPS = (
    EVENTS
    + """
from pypmix.standard.ops import *

def construct(name, *directives, run=True):
    op = GroupConstruct(name, (Proc(me.proc.nspace, 1), Proc(me.proc.nspace, 0)), directives)
    return me.run(op) if run else submitted(me, op)

SECONDS = Info("pmix.timeout", Value(INT, 20))
"""
)


def test_the_library_itself_hears_of_events_before_any_handler(lone) -> None:
    lone(
        EVENTS
        + """
events = me.topic("events")
inside = events._inbox.enter
watched = []
watcher = watched.append
inside(lambda: events.watch(LOAD, watcher))
until(lambda: events._interests[LOAD].id is not None)
swallowing = Heard(COMPLETE)
one = on(swallowing, LOAD)
notify(1)
until(lambda: len(swallowing) == 1)
assert [event.code for event in watched] == [LOAD]
# what the library wants to hear outlives the handlers
me.run(DeregisterEventHandler(one))
notify(2)
until(lambda: len(watched) == 2)
again = on(swallowing, LOAD)
# who comes late gets what no handler has had
until(lambda: swallowing.numbers == [1, 2])
me.run(DeregisterEventHandler(again))
me.run(Finalize())
me.close()
assert threading.enumerate() == [threading.main_thread()]
"""
    )


def test_a_singleton_has_no_groups(lone) -> None:
    lone(
        GROUPS
        + """
caught(Unreachable, construct, "acme.g")
assert type(construct("acme.g", run=False)[1]) is Unreachable
caught(Unreachable, me.run, GroupLeave("acme.g"))
on(Heard(), -159)
assert me.group_state("acme.g") is None and not me.supports("group.invite")
"""
    )


def test_groups_that_stand_change_and_end_with_their_session(pair) -> None:
    if pair.launcher != "prterun":
        pytest.skip("it has no groups")
    pair(
        GROUPS
        + """
assert construct("acme.g", SECONDS).members == (Proc(me.proc.nspace, 1), me.proc if me.proc.rank == 0 else other)
state = me.group_state("acme.g")
assert [proc.rank for proc in state.members] == [1, 0] and state.epoch == 1
whole = Proc("acme.g", RANK_WILDCARD)
me.run(Fence((whole,), False, (SECONDS,)))
assert submitted(me, Fence((whole,), True, (SECONDS,))) == (None, None)
me.run(Put("acme.k", Value(UINT32, me.proc.rank)))
me.run(Commit())
me.run(Fence((whole,), True, (SECONDS,)))
for rank in (0, 1):
    assert me.run(Get(Proc("acme.g", rank), "acme.k")).data == 1 - rank
    assert submitted(me, Get(Proc("acme.g", rank), "acme.k"))[0].data == 1 - rank
    assert me.fetch_local(Proc("acme.g", rank), "acme.k").data == 1 - rank
caught(NotFound, me.run, Get(Proc("acme.g", 2), "acme.k"))
assert me.run(Get(whole, "pmix.job.size")).data == 2
changes, ends = [], []
me.run(GroupWatch("acme.g", changes.append, ends.append))
if me.proc.rank == 1:
    me.run(GroupLeave("acme.g"))
    assert me.group_state("acme.g") is None
    caught(NotFound, me.run, Fence((whole,), False, (SECONDS,)))
else:
    until(lambda: changes)
    assert changes[0].procs == (other,) and me.group_state("acme.g").members == (me.proc,)
    me.run(GroupDestruct("acme.g", (SECONDS,)))
until(lambda: ends == [None])
me.run(Fence())
# the end of the session ends who waits for a group, and all threads
construct("acme.h", SECONDS)
me.run(Fence())
outcome = []
if me.proc.rank == 0:
    me.submit(GroupConstruct("acme.late", (me.proc, other), (SECONDS,)), lambda *end: outcome.append(end))
    time.sleep(0.2)
    assert not outcome
me.run(Finalize())
me.close()
assert me.proc.rank or isinstance(outcome[0][1], PMIxError)
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
"""
    )
