"""Events on the native engine: their handlers' order beside C code, late answers, loss, and that nothing leaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from lib.native_programs import (
    EVENTS,
    LEAKED,
    orphans,
)

pytestmark = pytest.mark.timeout(120)


def test_each_event_comes_once_and_in_order(lone) -> None:
    lone(
        EVENTS
        + """
assert me.supports("events") and me.supports("notify")
first, second, rest = Heard(), Heard(), Heard()
notify(0)
one, two = on(first, LOAD, run=False), on(rest)
assert one != two
for n in range(1, 50):
    notify(n)
    assert submitted(me, NotifyEvent(OTHER, LOCAL, (Info("acme.n", Value(UINT32, n)),))) == (None, None)
until(lambda: len(rest) == 98 and len(first) == 50)
# who comes late gets what nobody has had, and nothing that somebody has
on(second, LOAD, OTHER)
time.sleep(0.3)
assert first.numbers == list(range(50)) and len(rest) == 98 and not second, (first.numbers, len(rest), len(second))
assert [delivery.notification.source for delivery in first] == [me.proc] * 50
assert {delivery.notification.range for delivery in first} == {PROC_LOCAL}
assert [info.key for delivery in (*first, *rest) for info in delivery.notification.infos] == ["acme.n"] * 148
me.run(DeregisterEventHandler(one))
error = caught(NotFound, me.run, DeregisterEventHandler(one))
assert error.operation == "deregister_event_handler" and error.engine == str(me.info)
assert submitted(me, DeregisterEventHandler(two)) == (None, None)
notify(50)
until(lambda: second.numbers == [50])
assert len(first) == 50 and not first.ends and not second.ends
me.run(Finalize())
me.close()
assert second.ends == [None] and not first.ends
assert threading.enumerate() == [threading.main_thread()]
"""
    )


def test_a_watched_session_brings_events_in_poll_and_starts_no_thread(lone) -> None:
    lone(
        EVENTS
        + """
import select
me.attach()
heard, threads = Heard(), []
def handler(delivery):
    threads.append(threading.current_thread())
    heard(delivery)
ids = []
me.submit(RegisterEventHandler(handler, (LOAD,)), lambda *outcome: ids.append(outcome))
while not ids:
    assert select.select([me.fileno()], [], [], 10)[0]
    me.poll()
for n in range(3):
    me.submit(NotifyEvent(LOAD, PROC_LOCAL, (Info("acme.n", Value(UINT32, n)),)), lambda *outcome: None)
while len(heard) < 3:
    assert select.select([me.fileno()], [], [], 10)[0]
    me.poll()
assert heard.numbers == [0, 1, 2] and set(threads) == {threading.main_thread()}
assert threading.enumerate() == [threading.main_thread()]
me.run(Finalize())
me.close()
"""
    )


def test_answers_may_come_late_from_any_thread_and_only_the_first_counts(lone) -> None:
    lone(
        EVENTS
        + """
kept, last = [], Heard()
on(kept.append, LOAD, pmix_evname=name("slow"), pmix_evfirst=YES)
on(last, LOAD)
for n in range(3):
    notify(n)
until(lambda: len(kept) == 3)
assert not last
caught(TypeError, kept[0].done, "x")
caught(OverflowError, kept[0].done, 2**40)
for delivery in reversed(kept):
    thread = threading.Thread(target=delivery.done, args=(-332, (Info("acme.found", Value(UINT32, 7)),)))
    thread.start()
    thread.join()
    delivery.done(COMPLETE)
until(lambda: len(last) == 3)
assert last.numbers == [2, 1, 0]
assert [info.key for info in last[0].results] == ["slow", "acme.found"]
# what is not answered is at the end, and an answer after that does nothing
notify(3)
until(lambda: len(kept) == 4)
me.run(Finalize())
me.close()
kept[3].done()
"""
    )


def test_a_handler_that_is_removed_while_an_event_of_it_is_unanswered(lone) -> None:
    """The library frees its own handler with the removal, and its chain reads it when the answer comes."""
    lone(
        EVENTS
        + """
for turn in range(3):
    kept, heard = [], Heard()
    first = on(kept.append, LOAD)
    for n in range(2):
        notify(n)
    until(lambda: len(kept) == 2)
    me.run(DeregisterEventHandler(first))
    # by now the library has done what it was told
    time.sleep(0.3)
    kept[turn % 2].done()
    second = on(heard, LOAD)
    notify(2)
    until(lambda: 2 in heard.numbers)
    kept[1 - turn % 2].done()
    me.run(DeregisterEventHandler(second))
me.run(Finalize())
me.close()
""",
        # What is freed is overwritten at once.
        MALLOC_PERTURB_="165",
        GLIBC_TUNABLES="glibc.malloc.tcache_count=0",
    )


FOREIGN = """
import ctypes

class CProc(ctypes.Structure):
    _fields_ = [("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]

class CInfo(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char * 512), ("flags", ctypes.c_uint64), ("type", ctypes.c_uint64),
                ("flag", ctypes.c_uint64), ("rest", ctypes.c_uint64 * 2)]

assert ctypes.sizeof(CInfo) == 552
libpmix = ctypes.CDLL(me.info.library)
ANSWER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p,
                          ctypes.c_void_p)
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(CProc), ctypes.POINTER(CInfo),
                           ctypes.c_size_t, ctypes.POINTER(CInfo), ctypes.c_size_t, ANSWER, ctypes.c_void_p)
alive = []

def foreign(note, code, answer=-331, directive=None):
    # a handler as C code of this process registers one
    def handler(id, status, source, infos, ninfos, results, nresults, done, cbdata):
        note([results[n].key.decode() for n in range(nresults)])
        done(answer, None, 0, None, None, cbdata)
    function = HANDLER(handler)
    infos = (CInfo * 1)(CInfo(directive or b"acme.x", 0, 1, True))
    alive.extend((function, infos))
    codes = (ctypes.c_int * 1)(code)
    status = libpmix.PMIx_Register_event_handler(codes, 1, infos, ctypes.c_size_t(1), function, None, None)
    assert status >= 0, status
"""


def test_handlers_in_c_and_in_python_share_one_chain(lone) -> None:
    lone(
        EVENTS
        + FOREIGN
        + """
calls = []
foreign(lambda results: calls.append(("C old", results)), LOAD)
foreign(lambda results: calls.append(("C first", results)), LOAD, directive=b"pmix.evfirst")
def python(delivery):
    calls.append(("python", [info.key for info in delivery.results]))
    delivery.done(-331, (Info("acme.handed", Value(UINT32, 5)),))
on(python, LOAD, pmix_evname=name("mine"))
rest = Heard()
on(rest)
for _ in range(20):
    del calls[:]
    notify(0)
    until(lambda: len(calls) == 3)
    assert [call[0] for call in calls] == ["C first", "python", "C old"], calls
    assert calls[0][1] == [] and len(calls[1][1]) == 1, calls
    assert {"mine", "acme.handed"} < set(calls[2][1]), calls
time.sleep(0.2)
assert len(rest) == 20, "a handler for all got events twice or not at all"
# whoever is done ends the chain of both
ended = []
foreign(lambda results: ended.append(results), OTHER)
on(Heard(COMPLETE), OTHER)
notify(0, OTHER)
time.sleep(0.3)
assert not ended
me.run(Finalize())
me.close()
"""
    )


def test_the_library_hears_of_its_groups_whatever_handlers_answer(lone) -> None:
    lone(
        EVENTS
        + FOREIGN
        + """
heard = []
foreign(heard.append, -161)
mine = Heard(COMPLETE)
on(mine, -161)
notify(1, -161)
until(lambda: len(heard) == 1 and mine.numbers == [1])
me.run(Finalize())
"""
    )


def test_mistakes_are_errors_and_harm_nothing(lone) -> None:
    lone(
        EVENTS
        + """
first = on(Heard(), LOAD, pmix_evfirst=YES)
for ask in (lambda op: me.run(op), lambda op: submitted(me, op)):
    outcome = []
    try:
        outcome.append(ask(RegisterEventHandler(print, (LOAD,), (Info("pmix.evfirst", YES),)))[1])
    except PMIxError as error:
        outcome.append(error)
    assert outcome[0].code == -144 and outcome[0].operation == "register_event_handler", outcome
caught(NotFound, me.run, RegisterEventHandler(print, (LOAD,), (Info("pmix.evbefore", name("nobody")),)))
caught(NotFound, me.run, DeregisterEventHandler(10**6))
def broken(delivery):
    raise RuntimeError("of this test's making")
on(broken, LOAD)
heard = Heard()
on(heard, LOAD, pmix_evappend=YES)
refused = (Info("acme.p", Value(POINTER, 4096)),)
caught(NotSupported, me.run, NotifyEvent(LOAD, PROC_LOCAL, refused))
notify(1)
until(lambda: heard.numbers == [1])
# results that the library has no form of are left out, and the chain goes on
odd = on(Heard(-331, refused), OTHER)
after = Heard()
on(after, OTHER, pmix_evappend=YES)
notify(2, OTHER)
until(lambda: after.numbers == [2])
me.run(NotifyEvent(-61, PROC_LOCAL))
me.run(Finalize())
"""
    )


def test_nothing_leaks(lone) -> None:
    lone(
        LEAKED
        + EVENTS
        + """
more = tuple(Info(f"acme.{n}", Value(STRING, "x" * 200)) for n in range(20))
heard = Heard(-331, more)
on(heard, LOAD, OTHER)

def raised():
    del heard[:]
    notify(0, more=more)
    notify(1, OTHER, LOCAL, more=(*more, Info("pmix.evnocache", YES)))
    until(lambda: len(heard) == 2)

def registered():
    me.run(DeregisterEventHandler(on(heard, -4300)))
    me.run(DeregisterEventHandler(on(heard, -4300, -4301, run=False)))
    me.run(DeregisterEventHandler(on(heard)))

# what the library keeps for those who come late fills its places first
for n in range(600):
    raised()
# results of 11 kilobytes each way would show
for work in (raised, registered):
    grown = leaked(work, 100)
    print(work.__name__, grown)
    assert grown < 3000, (work.__name__, grown)
me.run(Finalize())
"""
    )


def test_events_between_procs(pair) -> None:
    pair(
        EVENTS
        + """
heard, rest, unanswered = Heard(), Heard(), []
on(heard, LOAD, run=False)
on(rest, run=False)
on(unanswered.append, OTHER)
assert submitted(me, Fence()) == (None, None)
if me.proc.rank == 0:
    for n in range(30):
        notify(n, range=LOCAL)
    notify(1, OTHER, LOCAL)
    notify(1, -4300, LOCAL, (Info("pmix.evproc", Value(PROC, other)),))
until(lambda: len(heard) == 30 and unanswered and -4300 in [delivery.notification.code for delivery in rest])
assert heard.numbers == list(range(30))
assert {delivery.notification.source.rank for delivery in heard} == {0}
keys = {info.key for delivery in heard for info in delivery.notification.infos}
assert not [key for key in keys if "evname" in key or "evobject" in key or "internal" in key], keys
assert {delivery.notification.range for delivery in heard} == {LOCAL if me.proc.rank == 0 else None}
me.run(Fence())
me.run(Finalize())
me.close()
assert heard.ends == rest.ends == [None]
unanswered[0].done()
"""
    )


def test_the_loss_of_the_server_is_told_at_once(pair, tmp_path: Path) -> None:
    code = """
heard, lost = Heard(), Heard()
on(heard, LOAD)
on(lost, -61, -4242, run=False)
me.run(Fence())
both_here()
if me.proc.rank == 0:
    os.kill(os.getppid(), signal.SIGKILL)
until(lambda: lost and heard.ends and lost.ends, 15)
assert [delivery.notification.code for delivery in lost] == [-61], lost
assert [type(end) for end in (*heard.ends, *lost.ends)] == [LostConnection] * 2
assert lost[0].notification.range == PROC_LOCAL and not heard
caught(LostConnection, me.run, Fence())
me.run(Finalize())
me.close()
assert len(heard.ends) == len(lost.ends) == 1
"""
    reports = orphans(pair.launcher, EVENTS + code, tmp_path)
    assert reports == ["fine\n", "fine\n"], "\n".join(reports)


def test_threads_raise_and_register_at_the_same_time(lone) -> None:
    """Releases before 7 crash on this, where they are left to raise events on the threads of their callers."""
    lone(
        EVENTS
        + """
heard, end = [Heard() for _ in range(4)], time.monotonic() + 3
sent = [0] * 4
for n, each in enumerate(heard):
    on(each, LOAD - n)
def raising(n):
    while time.monotonic() < end:
        notify(sent[n], LOAD - n, more=(Info("pmix.evnocache", YES),) if n % 2 else ())
        sent[n] += 1
def registering(n):
    while time.monotonic() < end:
        me.run(DeregisterEventHandler(on(Heard(), -5000 - n, -5100)))
threads = [threading.Thread(target=each, args=(n,)) for n in range(4) for each in (raising, registering)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
until(lambda: [len(each) for each in heard] == sent, 5)
assert [each.numbers for each in heard] == [list(range(count)) for count in sent]
me.run(Finalize())
me.close()
"""
    )


def test_what_is_still_being_raised_does_not_hold_up_the_end(lone) -> None:
    """Releases before 7 hold a lock while they finalize that their progress thread needs to raise an event."""
    lone(
        EVENTS
        + FOREIGN
        + """
busy, go, ends = threading.Event(), threading.Event(), []
foreign(lambda results: (busy.set(), go.wait(20)), LOAD)
for code in (LOAD, OTHER):
    me.submit(NotifyEvent(code, PROC_LOCAL), lambda *outcome: ends.append(outcome))
    assert busy.wait(10)
threading.Timer(0.5, go.set).start()
me.run(Finalize())
me.close()
assert go.is_set() and len(ends) == 2
"""
    )
