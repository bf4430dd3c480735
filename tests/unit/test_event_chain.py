"""Proves that events run through the handlers of a process in the Standard's order, each once, whatever these do."""

from __future__ import annotations

import dis
import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypmix.engine import chain
from pypmix.engine.chain import Delivery, Handler, Handlers
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.enums import Range
from pypmix.standard.errors import NotFound, PMIxError, WouldDeadlock
from pypmix.standard.ops import Notification, NotifyEvent, RegisterEventHandler
from pypmix.standard.types import RANK_UNDEF, RANK_WILDCARD, DataArray, Info, Proc
from pypmix.standard.values import from_python

ME = Proc("job", 0)
PEER = Proc("job", 1)
STRANGER = Proc("other", 0)
HOST = Proc("host", 0)
COMPLETE = -334


def procs(*items: Proc) -> DataArray:
    return DataArray(codes.PROC, items)


class Process:
    """A process with handlers that note what they are called with; nothing is called before `settle`."""

    def __init__(self) -> None:
        self.handlers = Handlers(ME, "host", self.enter, self.tell, self.dropped)
        self.seen: list[tuple[str, int]] = []
        self.open: list[Delivery] = []
        self.told: list[tuple[Callable[[Any], None], object]] = []
        self.gone: list[Handler] = []
        self.inside = False
        self.ends: list[tuple[str, BaseException | None]] = []

    def enter(self, step: Callable[[], None]) -> None:
        assert not self.inside
        self.inside = True
        try:
            step()
        finally:
            self.inside = False

    def tell(self, function: Callable[[Any], None], argument: object) -> None:
        self.told.append((function, argument))

    def dropped(self, handler: Handler) -> None:
        self.gone.append(handler)

    def settle(self) -> None:
        while self.told:
            function, argument = self.told.pop(0)
            function(argument)

    def on(self, label: str, *wanted: int, act: Any = None, active: bool = True, **directives: object) -> Handler:
        """Register a handler; `act` is called with the delivery, which otherwise is answered at once."""

        def handler(delivery: Delivery) -> None:
            self.seen.append((label, delivery.notification.code))
            if act is None:
                delivery.done()
            else:
                act(delivery)

        infos = tuple([getattr(attrs, name)(value) for name, value in directives.items()])
        ended = self.ends.append
        op = RegisterEventHandler(handler, wanted, infos, lambda error: ended((label, error)))
        made = self.handlers.add(op)
        if active:
            self.handlers.activate(made)
        return made

    def raised(self, code: int, *infos: Info, source: Proc = PEER, range: int | None = None, keep: bool = True) -> None:
        self.handlers.start_chain(Notification(code, source, range, infos), keep)

    def labels(self, code: int, *infos: Info, source: Proc = PEER) -> list[str]:
        """Raise an event and return who was called."""
        self.seen.clear()
        self.raised(code, *infos, source=source)
        self.settle()
        return [label for label, _ in self.seen]


@pytest.fixture
def process() -> Process:
    return Process()


# The order


def test_categories_and_the_ends_of_the_chain(process: Process) -> None:
    process.on("last", EVENT_HDLR_LAST=True)
    process.on("default")
    process.on("multi", -1, -2)
    process.on("single", -1)
    process.on("first", -1, -2, EVENT_HDLR_FIRST=True)
    assert process.labels(-1) == ["first", "single", "multi", "default", "last"]
    assert process.labels(-2) == ["first", "multi", "default", "last"]
    assert process.labels(-3) == ["default", "last"]


def test_a_code_named_twice_is_one_code(process: Process) -> None:
    process.on("multi", -1, -2)
    process.on("single", -1, -1, EVENT_HDLR_APPEND=True)
    assert process.labels(-1) == ["single", "multi"]


def test_places_within_a_category(process: Process) -> None:
    process.on("a", -1, EVENT_HDLR_NAME="a")
    process.on("b", -1)
    process.on("append", -1, EVENT_HDLR_APPEND=True)
    process.on("prepend", -1, EVENT_HDLR_PREPEND=True)
    process.on("first", -1, EVENT_HDLR_FIRST_IN_CATEGORY=True)
    process.on("last", -1, EVENT_HDLR_LAST_IN_CATEGORY=True)
    process.on("after a", -1, EVENT_HDLR_AFTER="a")
    process.on("before a", -1, EVENT_HDLR_BEFORE="a")
    process.on("c", -1)
    process.on("append too", -1, EVENT_HDLR_APPEND=True)
    expected = ["first", "c", "prepend", "b", "before a", "a", "after a", "append", "append too", "last"]
    assert process.labels(-1) == expected


@pytest.mark.parametrize("place", ["FIRST", "LAST", "FIRST_IN_CATEGORY", "LAST_IN_CATEGORY"])
def test_one_place_is_for_one_handler(process: Process, place: str) -> None:
    directive = {f"EVENT_HDLR_{place}": True}
    holder = process.on("a", -1, EVENT_HDLR_NAME="a", **directive)
    with pytest.raises(PMIxError, match="'a'") as caught:
        process.on("b", -1, **directive)
    assert caught.value.code == statuses.ERR_EVENT_REGISTRATION
    assert process.labels(-1) == ["a"]
    process.handlers.remove(holder.id)
    process.on("b", -1, **directive)
    assert process.labels(-1) == ["b"]


def test_a_flag_that_is_off_is_none(process: Process) -> None:
    process.on("a", -1, EVENT_HDLR_FIRST=False)
    process.on("b", -1, EVENT_HDLR_FIRST=False, EVENT_HDLR_APPEND=True)
    assert process.labels(-1) == ["a", "b"]


@pytest.mark.parametrize("place", ["BEFORE", "AFTER"])
def test_an_unknown_neighbour_is_not_found(process: Process, place: str) -> None:
    with pytest.raises(NotFound, match="nobody"):
        process.on("a", -1, **{f"EVENT_HDLR_{place}": "nobody"})
    process.on("nameless", -1)
    with pytest.raises(NotFound):
        process.on("a", -1, **{f"EVENT_HDLR_{place}": ""})
    assert process.labels(-1) == ["nameless"]


@pytest.mark.parametrize(
    ("anchor", "place", "order"),
    [
        ("first", "AFTER", ["first", "x", "one", "many", "all", "last"]),
        ("last", "BEFORE", ["first", "one", "x", "many", "all", "last"]),
        ("many", "BEFORE", ["first", "one", "x", "many", "all", "last"]),
        ("all", "BEFORE", ["first", "one", "x", "many", "all", "last"]),
        ("first", "BEFORE", None),
        ("last", "AFTER", None),
        ("many", "AFTER", None),
        ("all", "AFTER", None),
    ],
)
def test_neighbours_in_other_categories(process: Process, anchor: str, place: str, order: list[str] | None) -> None:
    process.on("first", -1, EVENT_HDLR_NAME="first", EVENT_HDLR_FIRST=True)
    process.on("one", -1, EVENT_HDLR_NAME="one")
    process.on("many", -1, -2, EVENT_HDLR_NAME="many")
    process.on("all", EVENT_HDLR_NAME="all")
    process.on("last", -1, EVENT_HDLR_NAME="last", EVENT_HDLR_LAST=True)
    if order is None:
        with pytest.raises(PMIxError) as caught:
            process.on("x", -1, **{f"EVENT_HDLR_{place}": anchor})
        assert caught.value.code == statuses.ERR_EVENT_REGISTRATION
        return
    process.on("x", -1, **{f"EVENT_HDLR_{place}": anchor})
    assert process.labels(-1) == order


@pytest.mark.parametrize(("edge", "place"), [("FIRST_IN_CATEGORY", "BEFORE"), ("LAST_IN_CATEGORY", "AFTER")])
def test_nobody_stands_beyond_the_edge_of_a_category(process: Process, edge: str, place: str) -> None:
    process.on("edge", -1, EVENT_HDLR_NAME="edge", **{f"EVENT_HDLR_{edge}": True})
    with pytest.raises(PMIxError):
        process.on("x", -1, **{f"EVENT_HDLR_{place}": "edge"})


@pytest.mark.parametrize(
    "directives",
    [
        (attrs.EVENT_HDLR_FIRST(True), attrs.EVENT_HDLR_LAST(True)),
        (attrs.EVENT_HDLR_PREPEND(True), attrs.EVENT_HDLR_BEFORE("a")),
        (attrs.EVENT_HDLR_BEFORE("a"), attrs.EVENT_HDLR_BEFORE("b")),
    ],
)
def test_two_places_are_refused_at_the_call(directives: tuple[Info, ...]) -> None:
    with pytest.raises(ValueError, match="one place"):
        RegisterEventHandler(print, (-1,), directives)


@pytest.mark.parametrize(
    "info",
    [
        Info("pmix.evname", from_python(3)),
        Info("pmix.evbefore", from_python(True)),
        Info("pmix.evproc", from_python("job:0")),
        Info("pmix.evaffected", from_python(7)),
        Info("pmix.evrange", from_python(b"x")),
    ],
)
def test_a_directive_of_another_type_is_refused_at_the_call(info: Info) -> None:
    with pytest.raises(TypeError):
        RegisterEventHandler(print, (-1,), (info,))


def test_a_custom_range_has_procs_and_others_have_none() -> None:
    with pytest.raises(ValueError, match="needs the procs"):
        NotifyEvent(-1, Range.CUSTOM)
    with pytest.raises(ValueError, match="goes with"):
        NotifyEvent(-1, Range.SESSION, (attrs.EVENT_CUSTOM_RANGE(ME),))
    with pytest.raises(TypeError):
        NotifyEvent(-1, Range.CUSTOM, (Info("pmix.evrange", from_python("job")),))
    NotifyEvent(-1, Range.CUSTOM, (attrs.EVENT_CUSTOM_RANGE(procs(ME, PEER)),))


# What a handler wants to hear of


def test_default_handlers_are_kept_out(process: Process) -> None:
    process.on("first", EVENT_HDLR_FIRST=True)
    process.on("single", -1)
    process.on("default")
    assert process.labels(-1, attrs.EVENT_NON_DEFAULT(True)) == ["single"]
    assert process.labels(-1, attrs.EVENT_NON_DEFAULT(False)) == ["first", "single", "default"]


@pytest.mark.parametrize(
    ("wanted", "affected", "heard"),
    [
        (ME, None, True),
        (ME, ME, True),
        (ME, PEER, False),
        (ME, Proc("job", RANK_WILDCARD), True),
        (Proc("job", RANK_WILDCARD), PEER, True),
        (Proc("job", RANK_WILDCARD), STRANGER, False),
        (procs(ME, STRANGER), procs(PEER, STRANGER), True),
        (procs(ME, PEER), procs(STRANGER), False),
    ],
)
def test_affected_procs(process: Process, wanted: object, affected: object, heard: bool) -> None:
    def info(what: object) -> Info:
        return attrs.EVENT_AFFECTED_PROC(what) if isinstance(what, Proc) else attrs.EVENT_AFFECTED_PROCS(what)

    made = process.handlers.add(RegisterEventHandler(lambda d: process.seen.append(("x", 0)), (-1,), (info(wanted),)))
    process.handlers.activate(made)
    assert process.labels(-1, *([info(affected)] if affected else [])) == (["x"] if heard else [])


@pytest.mark.parametrize(
    ("directives", "heard"),
    [
        ({"RANGE": Range.SESSION}, [ME, PEER, STRANGER, HOST]),
        ({"RANGE": Range.GLOBAL}, [ME, PEER, STRANGER, HOST]),
        ({"RANGE": Range.LOCAL}, [ME, PEER, STRANGER, HOST]),
        ({"RANGE": Range.NAMESPACE}, [ME, PEER]),
        ({"RANGE": Range.PROC_LOCAL}, [ME]),
        ({"RANGE": Range.RM}, [HOST]),
        ({"RANGE": Range.CUSTOM, "EVENT_CUSTOM_RANGE": PEER}, [PEER]),
        ({"EVENT_CUSTOM_RANGE": procs(PEER, STRANGER)}, [PEER, STRANGER]),
        ({"EVENT_CUSTOM_RANGE": Proc("job", RANK_WILDCARD)}, [ME, PEER]),
        ({"RANGE": Range.NAMESPACE, "EVENT_CUSTOM_RANGE": Proc("other", RANK_WILDCARD)}, [STRANGER]),
        ({"RANGE": Range.PROC_LOCAL, "EVENT_CUSTOM_RANGE": PEER}, [PEER]),
    ],
)
def test_the_range_of_sources(process: Process, directives: dict[str, object], heard: list[Proc]) -> None:
    process.on("x", -1, **directives)
    sources = ME, PEER, STRANGER, HOST
    assert [source for source in sources if process.labels(-1, source=source)] == heard


def test_a_nameless_source_is_the_host(process: Process) -> None:
    process.on("x", -1, RANGE=Range.RM)
    assert process.labels(-1, source=Proc("", RANK_UNDEF)) == ["x"]


# Answers


def test_results_are_handed_on(process: Process) -> None:
    load = Info("acme.load", from_python(0.5))
    more = Info("acme.more", from_python(1))
    results: list[tuple[Info, ...]] = []

    def act(status: int, *infos: Info) -> Callable[[Delivery], None]:
        def answer(delivery: Delivery) -> None:
            results.append(delivery.results)
            delivery.done(status, infos)

        return answer

    process.on("c", act=act(-331))
    process.on("b", -1, -2, act=act(-333, more))
    process.on("a", -1, act=act(-332, load), EVENT_HDLR_NAME="acme.a")
    assert process.labels(-1) == ["a", "b", "c"]
    assert results[0] == ()
    assert [(info.key, info.value.data) for info in results[1]] == [("acme.a", -332), ("acme.load", 0.5)]
    assert [info.key for info in results[2]] == ["acme.a", "acme.load", "UNKNOWN", "acme.more"]
    assert results[2][2].value.data == -333
    assert results[2][2].value.type == codes.STATUS


def test_a_complete_event_goes_no_further(process: Process) -> None:
    process.on("last", EVENT_HDLR_LAST=True)
    process.on("b", -1, act=lambda delivery: delivery.done(COMPLETE))
    process.on("a", -1)
    assert process.labels(-1) == ["a", "b"]
    assert process.labels(-2) == ["last"]


def test_an_answer_that_comes_later(process: Process) -> None:
    process.on("b", -1)
    process.on("a", -1, act=process.open.append)
    assert process.labels(-1) == ["a"]
    thread = threading.Thread(target=lambda: process.open[0].done())
    thread.start()
    thread.join(10)
    process.settle()
    assert process.seen == [("a", -1), ("b", -1)]


def test_only_the_first_answer_counts(process: Process) -> None:
    process.on("c", -1)
    process.on("b", -1, act=process.open.append)
    process.on("a", -1, act=process.open.append)
    process.labels(-1)
    first = process.open[0]
    first.done()
    first.done(COMPLETE)
    process.settle()
    process.open[1].done(COMPLETE)
    process.open[1].done()
    first.done()
    process.settle()
    assert process.seen == [("a", -1), ("b", -1)]


@pytest.mark.parametrize(
    ("status", "results", "error"),
    [("0", (), TypeError), (1 << 31, (), OverflowError), (0, [], TypeError), (0, (1,), TypeError)],
)
def test_an_answer_of_the_wrong_kind_harms_nobody(
    process: Process, status: Any, results: Any, error: type[Exception]
) -> None:
    process.on("b", -1)
    process.on("a", -1, act=process.open.append)
    process.labels(-1)
    with pytest.raises(error):
        process.open[0].done(status, results)
    process.open[0].done()
    process.settle()
    assert process.seen == [("a", -1), ("b", -1)]


def test_an_answer_where_nobody_may_enter_can_be_given_again(process: Process) -> None:
    process.on("b", -1)
    process.on("a", -1, act=process.open.append)
    process.labels(-1)
    enter = process.handlers.enter

    def refuse(step: Callable[[], None]) -> None:
        raise WouldDeadlock("inside")

    process.handlers.enter = refuse
    with pytest.raises(WouldDeadlock):
        process.open[0].done()
    process.handlers.enter = enter
    process.open[0].done()
    process.settle()
    assert process.seen == [("a", -1), ("b", -1)]


def test_a_failing_handler_is_logged_and_answered(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    def fail(delivery: Delivery) -> None:
        raise ZeroDivisionError("oops")

    results = []
    process.on("b", -1, act=lambda delivery: (results.append(delivery.results), delivery.done()))
    process.on("a", -1, act=fail, EVENT_HDLR_NAME="acme")
    with caplog.at_level(logging.ERROR, "pypmix.events"):
        assert process.labels(-1) == ["a", "b"]
    assert "acme" in caplog.text
    assert "oops" in caplog.text
    ((info,),) = results
    assert (info.key, info.value.data) == ("acme", -1)


def test_a_failure_after_the_answer_does_not_change_it(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    def fail(delivery: Delivery) -> None:
        delivery.done(COMPLETE)
        raise ZeroDivisionError("oops")

    process.on("b", -1)
    process.on("a", -1, act=fail)
    with caplog.at_level(logging.ERROR, "pypmix.events"):
        assert process.labels(-1) == ["a"]
    assert "oops" in caplog.text


def test_an_interrupted_handler_does_not_stop_the_chain(process: Process) -> None:
    def interrupt(delivery: Delivery) -> None:
        raise KeyboardInterrupt

    process.on("b", -1)
    process.on("a", -1, act=interrupt)
    process.raised(-1)
    process.raised(-1)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            process.settle()
    process.settle()
    assert sorted(process.seen) == [("a", -1), ("a", -1), ("b", -1), ("b", -1)]


def opname(frame: FrameType) -> str:
    """Return the name of the opcode that a frame is about to carry out."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


def test_a_signal_handler_that_raises_does_not_silence_the_handlers(process: Process) -> None:
    """It is tried at each step until the handler is called, as CPython calls signal handlers after any call.

    But not at the marks of branches that Python 3.14 has: it calls none there, and an exception would not be caught.
    """
    function = chain.Handlers._make_calls
    process.on("handler", -1)
    for number in range(1, 1000):
        left = number

        def trace(step: Any, event: str, _: object) -> Any:
            nonlocal left
            if step.f_code is not function.__code__:
                return None
            step.f_trace_opcodes = True
            if event == "opcode" and not process.seen and opname(step) != "NOT_TAKEN":
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
            return trace

        process.seen.clear()
        process.raised(-1)
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at this when tracing begins.
        sys.settrace(trace)
        try:
            process.settle()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        process.handlers.recover()
        process.settle()
        assert process.labels(-1) == ["handler"], f"nothing comes any more after step {number}"
        if left:
            break
    assert 10 < number < 999


def test_a_chain_of_any_length_needs_no_deep_stack(process: Process) -> None:
    for number in range(5000):
        process.on(str(number), -1, EVENT_HDLR_APPEND=True)
    assert process.labels(-1) == list(map(str, range(5000)))


# Several events at a time


def test_every_event_has_its_own_chain(process: Process) -> None:
    process.on("b")
    process.on("a", act=process.open.append)
    for code in -1, -2, -3:
        process.raised(code)
    process.settle()
    assert process.seen == [("a", -1), ("a", -2), ("a", -3)]
    for delivery in process.open[1], process.open[0], process.open[2]:
        delivery.done()
        process.settle()
    assert process.seen[3:] == [("b", -2), ("b", -1), ("b", -3)]


def test_threads_do_not_change_the_order() -> None:
    seen: list[int] = []
    lock = threading.Lock()
    told: list[tuple[Callable[[Any], None], object]] = []

    def enter(step: Callable[[], None]) -> None:
        with lock:
            step()

    def handler(delivery: Delivery) -> None:
        seen.append(delivery.notification.code)
        delivery.done()

    handlers = Handlers(ME, "", enter, lambda f, a: told.append((f, a)), lambda handler: None)
    handlers.activate(handlers.add(RegisterEventHandler(handler)))
    number = 2000
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set() or told:
            try:
                function, argument = told.pop(0)
            except IndexError:
                continue
            function(argument)

    threads = [threading.Thread(target=serve) for _ in range(3)]
    for thread in threads:
        thread.start()
    for code in range(number):
        enter(lambda code=code: handlers.start_chain(Notification(code, PEER), True))  # type: ignore[misc]
    stop.set()
    for thread in threads:
        thread.join(20)
    assert seen == list(range(number))


def test_a_handler_may_raise_an_event_and_take_part_in_it(process: Process) -> None:
    def act(delivery: Delivery) -> None:
        if delivery.notification.code == -1:
            process.enter(lambda: process.raised(-2))
            process.settle()
        delivery.done()

    process.on("b")
    process.on("a", -1, -2, act=act)
    assert process.labels(-1) == ["a", "b", "a", "b"]
    assert [code for _, code in process.seen] == [-1, -1, -2, -2]


# Coming and going


def test_who_comes_during_a_chain_is_not_in_it(process: Process) -> None:
    process.on("b", -1)
    process.on("a", -1, act=process.open.append)
    process.labels(-1)
    process.on("new", -1, EVENT_HDLR_APPEND=True)
    process.open[0].done()
    process.settle()
    assert process.seen == [("a", -1), ("b", -1)]


def test_who_goes_during_a_chain_is_passed_by(process: Process) -> None:
    process.on("c", -1)
    gone = process.on("b", -1)
    process.on("a", -1, act=process.open.append)
    process.labels(-1)
    process.handlers.remove(gone.id)
    process.open[0].done()
    process.settle()
    assert process.seen == [("a", -1), ("c", -1)]


def test_who_goes_before_the_call_is_not_called(process: Process) -> None:
    process.on("b", -1)
    gone = process.on("a", -1)
    process.raised(-1)
    process.handlers.remove(gone.id)
    process.settle()
    assert process.seen == [("b", -1)]
    assert process.gone == [gone]


def test_the_answer_of_who_is_gone_counts(process: Process) -> None:
    process.on("b", -1)
    gone = process.on("a", -1, act=process.open.append)
    process.labels(-1)
    process.handlers.remove(gone.id)
    process.open[0].done(COMPLETE)
    process.settle()
    assert process.seen == [("a", -1)]


@pytest.mark.parametrize("id", [0, 1, 99])
def test_to_remove_what_is_not_there(process: Process, id: int) -> None:
    process.handlers.remove(process.on("a", -1).id)
    with pytest.raises(NotFound):
        process.handlers.remove(id)


def test_one_event_and_no_more(process: Process) -> None:
    process.on("a", EVENT_ONESHOT=True)
    process.on("b")
    process.raised(-1)
    process.raised(-2)
    process.settle()
    assert process.seen == [("b", -1), ("a", -1), ("b", -2)]
    assert len(process.gone) == 1
    with pytest.raises(NotFound, match="one event"):
        process.handlers.remove(process.gone[0].id)


def test_what_comes_too_early_is_kept(process: Process) -> None:
    early = process.on("early", -1, -2, active=False)
    process.on("other", -2)
    for code in -1, -3, -2, -1:
        process.raised(code)
    process.settle()
    assert process.seen == [("other", -2)]
    process.handlers.activate(early)
    process.settle()
    assert process.seen[1:] == [("early", -1), ("early", -1)]
    process.on("late", -3)
    process.settle()
    assert process.seen[3:] == [("late", -3)]
    process.on("too late", -1, -3)
    process.settle()
    assert len(process.seen) == 4


def test_what_must_not_be_kept_is_not(process: Process) -> None:
    process.raised(-1, attrs.EVENT_DO_NOT_CACHE(True))
    process.raised(-1, keep=False)
    process.on("late", -1)
    process.settle()
    assert not process.seen


def test_what_is_kept_is_bounded(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "MAX_KEPT", 3)
    process = Process()
    for code in range(-5, 0):
        process.raised(code)
    process.on("late")
    process.settle()
    assert [code for _, code in process.seen] == [-3, -2, -1]


def test_a_late_one_event_handler_takes_one(process: Process) -> None:
    process.raised(-1)
    process.raised(-1)
    process.on("a", -1, EVENT_ONESHOT=True)
    process.on("b", -1)
    process.settle()
    assert process.seen == [("a", -1), ("b", -1)]


def test_the_end_is_told_after_the_last_event(process: Process) -> None:
    process.on("b", -1)
    process.on("a", -1)
    process.on("pending", -1, active=False)
    process.handlers.remove(process.on("gone", -1).id)
    error = PMIxError("over")
    process.raised(-1)
    process.handlers.end(error)
    process.settle()
    assert process.seen == [("a", -1), ("b", -1)]
    assert sorted(process.ends) == [("a", error), ("b", error)]


# The library itself


def test_no_handler_keeps_an_event_from_the_library(process: Process) -> None:
    watched: list[int] = []

    def watcher(notification: Notification) -> None:
        watched.append(notification.code)

    process.handlers.watch(-1, watcher)
    process.on("first", EVENT_HDLR_FIRST=True, act=lambda delivery: delivery.done(COMPLETE))
    process.on("stuck", -1, act=process.open.append, EVENT_HDLR_APPEND=True)
    assert process.labels(-1, attrs.EVENT_NON_DEFAULT(True)) == ["stuck"]
    assert process.labels(-1) == ["first"]
    process.raised(-2)
    assert watched == [-1, -1]


# Against the Standard's rules

_CODES = st.sampled_from([(), (-1,), (-2,), (-1, -2), (-1, -2, -3)])
_PLACES = st.sampled_from(["", "FIRST", "LAST", "FIRST_IN_CATEGORY", "LAST_IN_CATEGORY", "PREPEND", "APPEND"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("on"), _CODES, _PLACES),
        st.tuples(st.sampled_from(["BEFORE", "AFTER"]), _CODES, st.integers(0, 9)),
        st.tuples(st.just("off"), st.integers(0, 9)),
        st.tuples(st.just("event"), st.sampled_from([-1, -2, -3, -4]), st.booleans()),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(_STEPS, st.booleans())
def test_whoever_comes_and_goes_the_order_is_the_standards(steps: list[Any], late: bool) -> None:
    """Each event is seen by all whom it concerns, once, in order; whether they answer at once or later."""
    process = Process()
    act = process.open.append if late else None
    standing: dict[str, tuple[Handler, str]] = {}
    relations: list[tuple[str, str]] = []

    def rank(name: str) -> int:
        handler, place = standing[name]
        return {"FIRST": -1, "LAST": 3}.get(place, handler.category)

    for number, (kind, *details) in enumerate(steps):
        name = str(number)
        if kind == "event":
            code, nondefault = details
            process.seen.clear()
            process.raised(code, attrs.EVENT_NON_DEFAULT(nondefault), keep=False)
            process.settle()
            while process.open:
                process.open.pop().done()
                process.settle()
            order = [label for label, _ in process.seen]
            concerned = [
                label
                for label, (handler, _) in standing.items()
                if (code in handler.codes if handler.codes else not nondefault)
            ]
            assert sorted(order) == sorted(concerned)
            assert list(map(rank, order)) == sorted(map(rank, order))
            for category in range(3):
                row = [standing[label][1] for label in order if rank(label) == category]
                assert "FIRST_IN_CATEGORY" not in row[1:]
                assert "LAST_IN_CATEGORY" not in row[:-1]
            for one, other in relations:
                if one in order and other in order:
                    assert order.index(one) < order.index(other)
        elif kind == "off":
            if standing:
                label = list(standing)[details[0] % len(standing)]
                process.handlers.remove(standing.pop(label)[0].id)
        elif kind == "on" or standing:
            wanted, place = details
            if kind == "on":
                directives: dict[str, object] = {f"EVENT_HDLR_{place}": True} if place else {}
            else:
                place = list(standing)[place % len(standing)]
                directives = {f"EVENT_HDLR_{kind}": place}
            refused = 0
            try:
                standing[name] = process.on(name, *wanted, act=act, EVENT_HDLR_NAME=name, **directives), place
            except PMIxError as error:
                refused = error.code
            if refused:
                assert refused == statuses.ERR_EVENT_REGISTRATION
                assert kind != "on" or place in [other for _, other in standing.values()]
                continue
            if kind != "on":
                relations.append((name, place) if kind == "BEFORE" else (place, name))
