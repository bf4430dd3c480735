"""An exchange gathers, asks and tells; what goes wrong ends every operation, for all alike, and leaves nothing."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypmix.engine import times
from pypmix.engine.alarms import MANY, Alarms
from pypmix.host.exchange import Exchange, ExchangeTimeout, Hub, ServerLost, VirtualTime, codec, limits
from pypmix.host.exchange.codec import NUMBER
from pypmix.host.exchange.errors import pack_error
from pypmix.host.exchange.kinds import CANCEL, GATHER, OUTCOME, Outcome, Part, pack_gathered
from pypmix.host.exchange.participant import GIVE_UP
from pypmix.host.exchange.places import Party
from pypmix.host.exchange.strand import Strand
from pypmix.standard.errors import LostConnection, NotFound, NotSupported, PMIxError, RemoteProtocolError, Unreachable

pytestmark = pytest.mark.timeout(60)

BAD_PARAM, OUT_OF_RESOURCE, GENERIC = -27, -29, -1


class World:
    """Exchanges on one hub, on virtual time, and what their operations came to."""

    def __init__(self, *names, delay=0.1):
        self.hub = Hub(delay=lambda _from, _to: delay)
        self.clock = self.hub.clock
        self.exchanges = {}
        self.ends = {}
        for name in names:
            self.join(name)
        self.hub.run()

    def join(self, name):
        exchange = Exchange(self.hub.carrier(name), later=self.clock.later, now=self.clock.time)
        self.exchanges[name] = exchange
        exchange.start()
        return exchange

    def __getitem__(self, name):
        return self.exchanges[name]

    def done(self, name):
        """Return a callback whose calls are noted under a name."""
        return lambda *end: self.ends.setdefault(name, []).append((*end, round(self.clock.now, 3)))

    def gather(self, name, data=b"", names=None, signature=b"s", **options):
        return self[name].allgather(signature, names or list(self.exchanges), data, self.done(name), **options)

    def end(self, name):
        """Return the only end that was noted under a name, without its time."""
        (end,) = self.ends.pop(name)
        return end[0] if end[1] is None else end[1]

    def check_empty(self):
        for exchange in self.exchanges.values():
            assert not exchange.open(), exchange.name
            assert not exchange.requests.load
            assert not exchange.underway()


@pytest.fixture
def world():
    return World("a", "b", "c")


def test_all_get_what_all_have_given(world):
    for name in "cab":
        world.gather(name, name.encode() * 3, status=ord(name))
    world.hub.run()
    results = [world.end(name) for name in "abc"]
    assert results[0].blobs == {"a": b"aaa", "b": b"bbb", "c": b"ccc"}
    assert list(results[0].blobs) == ["a", "b", "c"]
    assert results[0].statuses == {"a": 97, "b": 98, "c": 99}
    assert results[0].absent == ()
    assert results[1] == results[2] == results[0]
    world.check_empty()


def test_rounds_of_one_signature_stay_in_order(world):
    for name in "abc":
        for number in range(3):
            world.gather(name, f"{name}{number}".encode())
            if name == "a":
                world.hub.run()
    world.hub.run()
    for name in "abc":
        got = [end[0].blobs for end in world.ends[name]]
        assert got == [{each: f"{each}{number}".encode() for each in "abc"} for number in range(3)]
    world.check_empty()


def test_signatures_and_participants_keep_apart(world):
    world.gather("a", b"1", "ab", b"one")
    world.gather("b", b"2", "bc", b"two")
    world.gather("b", b"3", "ab", b"one")
    world.gather("c", b"4", "bc", b"two")
    world.hub.run()
    assert world.end("a").blobs == {"a": b"1", "b": b"3"}
    assert world.end("c").blobs == {"b": b"2", "c": b"4"}
    world.check_empty()


def test_alone_it_ends_at_once(world):
    world.gather("b", b"x", "b")
    assert world.end("b").blobs == {"b": b"x"}
    with pytest.raises(ValueError, match="not a participant"):
        world.gather("b", b"x", "ac")


def test_participants_that_disagree_are_told(world):
    world.gather("a", b"", "ab")
    world.gather("b", b"", "abc")
    world.hub.run()
    error = world.end("b")
    assert error.code == BAD_PARAM
    assert "servers a, b, c" in str(error)
    world.gather("b", b"", "ab")
    world.hub.run()
    assert world.end("a") == world.end("b")
    world.check_empty()


@pytest.mark.parametrize("limited", ["a", "c"])
def test_a_timeout_ends_it_for_all_and_names_who_is_missing(world, limited):
    for name in "ac":
        world.gather(name, timeout=3 if name == limited else 0)
    world.hub.run()
    for name in "ac":
        ((result, error, when),) = world.ends.pop(name)
        assert result is None
        assert isinstance(error, ExchangeTimeout)
        assert error.servers == ("b",)
        assert "server b" in str(error)
        assert 3 <= when <= 3.5
    world.check_empty()
    # Nothing of it is left for the next one.
    for name in "abc":
        world.gather(name, name.encode())
    world.hub.run()
    assert world.end("a") == world.end("b") == world.end("c")


def test_a_timeout_that_comes_too_late_changes_nothing(world):
    world = World("a", "b", delay=2.0)
    world.gather("b", b"1", timeout=3)
    world.hub.run(world.clock.now + 1.5)
    world.gather("a", b"2")
    world.hub.run()
    assert world.end("a") == world.end("b")
    world.check_empty()


def test_a_coordinator_that_says_nothing_is_named(world):
    world["a"].arrivals._read = lambda *_: None
    world.gather("b", timeout=2)
    world.hub.run()
    ((_, error, when),) = world.ends.pop("b")
    assert error.servers == ("a",)
    assert when == pytest.approx(2 + times.DECISION_SECONDS, abs=0.5)


def test_who_gives_up_ends_it_for_all(world):
    mine = world.gather("b")
    world.gather("c")
    world.hub.run()
    mine.cancel(PMIxError("no longer", status=-165))
    mine.cancel(PMIxError("twice", status=-1))
    world.hub.run()
    for name in "bc":
        error = world.end(name)
        assert error.code == -165
        assert error.detail == "no longer"
    mine.cancel(PMIxError("after its end", status=-1))
    world.hub.run()
    world.check_empty()


@pytest.mark.parametrize("lost", ["a", "b", "c"])
@pytest.mark.parametrize("contributed", [True, False])
def test_a_server_that_is_lost_ends_what_it_takes_part_in(world, lost, contributed):
    names = [name for name in "abc" if contributed or name != lost]
    for name in names[:2]:
        world.gather(name)
    world.hub.run()
    world.hub.lose(lost)
    del world.exchanges[lost]
    world.hub.run()
    for name in set(names[:2]) - {lost}:
        error = world.end(name)
        assert isinstance(error, ServerLost)
        assert error.servers == (lost,)
        assert lost in str(error)
    for name in world.exchanges:
        world.gather(name, b"", "abc")
        world.hub.run()
        assert world.end(name).servers == (lost,)
    world.check_empty()


def test_an_answer_counts_before_the_news_that_its_sender_has_left(world):
    for name in "abc":
        world.gather(name)
    b = world["b"]
    arrive, change = b.arrivals.take, b._changed

    def both(sender, message):
        # The turn of b is taken while the decision and the end of the connection come.
        b.soon(arrive, sender, message)
        if world["a"].open() == 0:
            b.soon(change, "a", False)

    world.hub._carriers["b"]._on_message = both
    world.hub.run()
    assert list(world.end("b").blobs) == ["a", "b", "c"]


def test_a_server_that_leaves_with_its_answer_takes_nothing_from_the_others():
    world = World("a", "b", "c")
    world.hub._delay = lambda sender, to: 0.5 if (sender, to) == ("a", "c") else 0.1
    world.gather("a")
    world.gather("c")
    world["b"].allgather(b"s", "abc", b"", lambda *_: world["b"].close())
    world.hub.run()
    assert list(world.end("a").blobs) == list(world.end("c").blobs) == ["a", "b", "c"]


def test_a_loss_that_only_one_sees_ends_it_for_all(world):
    for name in "ab":
        world.gather(name)
    world.hub.run()
    world["b"]._changed("c", False)
    world.hub.run()
    assert world.end("b").servers == world.end("a").servers == ("c",)
    world.check_empty()


def test_a_server_that_comes_back_takes_part_again(world):
    world.hub.lose("b")
    world.hub.run()
    world.gather("c", b"3", "abc")
    world.hub.run()
    assert isinstance(world.end("c"), ServerLost)
    world.join("b")
    world.hub.run()
    for name in "abc":
        world.gather(name, name.encode())
    world.hub.run()
    assert world.end("a") == world.end("b") == world.end("c")
    world.check_empty()


def test_a_server_that_has_not_come_yet_is_waited_for():
    world = World("b", "c")
    for name in "bc":
        world.gather(name, name.encode(), "abc")
    late = world.gather("c", b"", "ac", b"never", timeout=1)
    assert late.coordinator == "a"
    world.hub.run()
    assert world.ends.pop("c")[0][1].servers == ("a",)
    assert not world.ends
    world.join("a")
    world.gather("a", b"a", "abc")
    world.hub.run()
    assert world.end("a").blobs == {"a": b"a", "b": b"b", "c": b"c"}
    assert world.end("b") == world.end("c")
    world.check_empty()


def test_the_absent_are_not_waited_for(world):
    gone = set()
    world["a"].absences(lambda signature, name, given: (signature, name) in gone)
    world.gather("a", b"1")
    world.gather("b", b"2")
    world.hub.run()
    gone.add((b"s", "c"))
    world["a"].review()
    world.hub.run()
    assert world.end("a").absent == ("c",)
    assert world.end("b").blobs == {"a": b"1", "b": b"2"}
    world.check_empty()


def test_what_waits_is_bounded(world, monkeypatch):
    monkeypatch.setattr(limits, "MAX_ANSWERING", 5)
    monkeypatch.setattr(limits, "MAX_ASKED", 6)
    for _ in range(6):
        world.gather("b")
    world.hub.run()
    assert world.end("b").code == OUT_OF_RESOURCE
    world["a"].handle("never", lambda *_: None)
    for _ in range(7):
        world["c"].request("a", "never", b"", world.done("asked"))
    world.hub.run()
    assert [end[1].code for end in world.ends.pop("asked")] == [OUT_OF_RESOURCE] * 2
    world.hub.lose("c")
    del world.exchanges["c"]
    world.hub.lose("b")
    del world.exchanges["b"]
    world.hub.run()
    world.check_empty()


def test_what_is_too_long_fails_and_harms_nobody(world, monkeypatch):
    from pypmix.host.exchange import inprocess

    monkeypatch.setattr(inprocess, "MAX_MESSAGE", 1000)
    world["a"].handle("grow", lambda _sender, data, answer: answer(data * 100, None))
    world["b"].request("a", "grow", b"x" * 500, world.done("grown"))
    world["b"].request("a", "grow", b"x" * 1001, world.done("sent"))
    world.gather("c", b"x" * 1001)
    for name in "ab":
        world.gather(name, b"x" * 600, "ab", b"together")
    world.hub.run()
    assert world.end("grown").code == OUT_OF_RESOURCE
    assert world.end("sent").code == OUT_OF_RESOURCE
    assert world.end("c").code == OUT_OF_RESOURCE
    assert len(world.end("a").blobs) == 2
    assert world.end("b").code == OUT_OF_RESOURCE
    world.check_empty()


def test_requests_are_answered(world):
    answers = []
    world["a"].handle("double", lambda _sender, data, answer: answer(data * 2, None))
    world["a"].handle("later", lambda sender, _data, answer: answers.append((sender, answer)))
    world["a"].handle("fail", lambda *_: (_ for _ in ()).throw(NotFound("nothing here")))
    for name in "ab":
        world[name].request("a", "double", b"xy", world.done("double"))
        world[name].request("a", "fail", b"", world.done("fail"))
        world[name].request("a", "unknown", b"", world.done("unknown"))
        world[name].request("a", "later", b"", world.done("later"))
    world.hub.run()
    assert [end[:2] for end in world.ends.pop("double")] == [(b"xyxy", None)] * 2
    for end in world.ends.pop("fail"):
        assert isinstance(end[1], NotFound)
        assert end[1].detail == "nothing here"
        assert end[1].operation == "fail"
    assert all(isinstance(end[1], NotSupported) for end in world.ends.pop("unknown"))
    assert sorted(sender for sender, _ in answers) == ["a", "b"]
    for _, answer in answers:
        answer(b"1", None)
        answer(b"2", None)
    world.hub.run()
    assert [end[0] for end in world.ends.pop("later")] == [b"1", b"1"]
    world.check_empty()


def test_a_handler_that_breaks_is_logged_and_answers_with_an_error(world, caplog):
    world["a"].handle("broken", lambda *_: 1 / 0)
    world["b"].request("a", "broken", b"", world.done("b"))
    world.hub.run()
    error = world.end("b")
    assert error.code == GENERIC
    assert "division by zero" in str(error)
    assert "ZeroDivisionError" in caplog.text


def test_requests_end_without_an_answer(world):
    world["a"].handle("never", lambda *_: None)
    world["b"].request("a", "never", b"", world.done("late"), timeout=2)
    world["b"].request("nobody", "never", b"", world.done("nobody"))
    world.hub.run()
    late = world.end("late")
    assert isinstance(late, ExchangeTimeout)
    assert late.servers == ("a",)
    assert isinstance(world.end("nobody"), Unreachable)
    world["c"].request("a", "never", b"", world.done("lost"))
    world.hub.run()
    assert [each.signature for each in world["c"].underway()] == [b"never"]
    world.hub.lose("a")
    world.hub.run()
    assert world.end("lost").servers == ("a",)
    world["c"].request("a", "never", b"", world.done("gone"))
    assert world.end("gone").servers == ("a",)


def test_an_answer_to_a_server_that_is_gone_does_not_reach_its_successor(world):
    answers = []
    world["a"].handle("later", lambda sender, _data, answer: answers.append(answer))
    world["b"].request("a", "later", b"", world.done("old"))
    world.hub.run()
    world.hub.lose("b")
    world.hub.run()
    world.join("b")
    world.hub.run()
    world["b"].request("a", "never", b"", world.done("new"))
    world["a"].handle("never", lambda *_: None)
    world.hub.run()
    answers[0](b"for the old one", None)
    world.hub.run()
    assert "new" not in world.ends


def test_news_reach_those_who_hear(world, caplog):
    for name in "abc":
        world[name].hear("news", lambda sender, data, name=name: world.ends.setdefault(name, []).append((sender, data)))
    world["b"].broadcast("news", b"1")
    world["b"].tell("a", "news", b"2")
    world["b"].tell("b", "news", b"3")
    world["b"].tell("nobody", "news", b"4")
    world["b"].tell("a", "gossip", b"5")
    world.hub.run()
    assert world.ends == {"a": [("b", b"1"), ("b", b"2")], "b": [("b", b"3")], "c": [("b", b"1")]}
    assert "gossip" in caplog.text


def test_members_come_and_go(world):
    seen = []
    world["a"].watch(lambda name, here: seen.append((name, here)))
    world["a"].when_present(["a", "b"], world.done("now"))
    world["a"].when_present(["d"], world.done("soon"), timeout=50)
    world["a"].when_present(["d", "e"], world.done("never"), timeout=5)
    assert world.end("now") is None
    world.join("d")
    world.hub.run()
    assert world.end("soon") is None
    assert world.end("never").servers == ("e",)
    assert world["a"].members == ("a", "b", "c", "d")
    world.exchanges.pop("d").close()
    world.hub.run()
    assert seen == [("d", True), ("d", False)]
    assert world["a"].members == ("a", "b", "c")
    with pytest.raises(ValueError, match="already"):
        world.hub.carrier("a")
    world.check_empty()


class Moments:
    """A carrier whose moments the test chooses; what is sent stays in it."""

    name = "a"

    def __init__(self):
        self.members = ("a",)
        self.sent = []

    def listen(self, *listeners):
        self.arrived, self.changed = listeners

    def send(self, to, data):
        self.sent.append(to)

    def close(self):
        pass


def test_who_is_there_can_be_told():
    """The carrier knows of one that has come, or gone, a moment before the exchange."""
    carrier = Moments()
    clock = VirtualTime()
    exchange = Exchange(carrier, later=clock.later, now=clock.time)
    exchange.start()

    def told():
        carrier.sent.clear()
        for name in exchange.members[1:]:
            exchange.tell(name, "news", b"")
        assert tuple(carrier.sent) == exchange.members[1:]
        return carrier.sent

    carrier.members = ("a", "b")
    assert not told()
    carrier.changed("b", True)
    assert told() == ["b"]
    carrier.members = ("a",)
    assert told() == ["b"]
    carrier.changed("b", False)
    assert not told()
    carrier.changed("b", True)
    exchange.close()
    assert exchange.members == ("a",)


def test_a_server_has_come_before_it_is_heard():
    """Its first message may come while this server is still at something else."""
    carrier = Moments()
    clock = VirtualTime()
    exchange = Exchange(carrier, later=clock.later, now=clock.time)
    seen = []
    exchange.hear("news", lambda sender, data: seen.append((sender, data)))
    exchange.watch(lambda name, here: seen.append((name, here)))
    exchange.watch(lambda name, here: seen.append((name, here, "too")))
    exchange.start()

    def busy():
        carrier.changed("b", True)
        carrier.arrived("b", codec.pack(codec.TELL, codec.TEXT.write("news"), b"1"))
        carrier.changed("b", False)
        carrier.changed("b", True)
        carrier.arrived("b", codec.pack(codec.TELL, codec.TEXT.write("news"), b"2"))

    exchange.soon(busy)
    came, went = [("b", True), ("b", True, "too")], [("b", False), ("b", False, "too")]
    assert seen == [*came, ("b", b"1"), *went, *came, ("b", b"2")]


def test_after_close_everything_has_ended(world):
    world.gather("a")
    world["a"].handle("never", lambda *_: None)
    world["a"].request("b", "never", b"", world.done("asked"))
    world["a"].when_present(["z"], world.done("awaited"))
    world["a"].close()
    world["a"].close()
    for name in ("a", "asked", "awaited"):
        assert isinstance(world.end(name), LostConnection)
    world.gather("a")
    assert isinstance(world.end("a"), LostConnection)
    world.hub.run()
    world.check_empty()


@given(st.binary(max_size=200), st.integers(0, 9))
@settings(max_examples=300)
def test_any_bytes_are_dropped_or_mean_something(data, kind):
    world = World("a", "b")
    world.gather("a", b"1")
    world["a"].handle("t", lambda _sender, data, answer: answer(data, None))
    for message in (data, bytes((kind,)) + data, codec.pack(kind, *[data[at::3] for at in range(kind)])):
        world.hub.send(world["b"]._carrier, "a", message)
        try:
            world["a"].arrivals._read("b", message)
        except RemoteProtocolError:
            pass
    world.hub.run()
    world.ends.clear()
    world["b"].request("a", "t", b"still here", world.done("asked"))
    world.hub.run()
    assert world.end("asked") == b"still here"


def mine_of(name):
    return Part(0, GATHER, "s", Party((), lambda _proc: None), ("a", "b", "c"), data=b"forged " + name.encode())


def test_results_of_others_than_the_coordinator_count_nothing(world):
    mine = world.gather("b")
    world.hub.run()
    forged = OUTCOME.write(Outcome(data=pack_gathered([(name, mine_of(name)) for name in "abc"], ())))
    for number in range(2 * mine.number):
        world["c"]._carrier.send("b", codec.pack(codec.ANSWER, NUMBER.write(number), forged))
        world["c"]._carrier.send("b", codec.pack(codec.REFUSED, pack_error(number, PMIxError("forged"))))
    world["c"].tell("a", GIVE_UP, CANCEL.write((mine.number, -1, "forged", ())))
    world.hub.run()
    assert not world.ends
    for name in "ac":
        world.gather(name, b"true")
    world.hub.run()
    assert world.end("b").blobs["c"] == b"true"


def test_what_is_no_bytes_is_refused_at_the_call(world):
    exchange = world["a"]
    for call in (
        lambda: exchange.allgather(b"s", "abc", "text", print),
        lambda: exchange.allgather("s", "abc", b"", print),
        lambda: exchange.request("b", "t", None, print),
        lambda: exchange.tell("b", "t", 7),
        lambda: exchange.broadcast("t", []),
    ):
        with pytest.raises(TypeError, match="bytes, not"):
            call()
    with pytest.raises(ValueError, match="seconds"):
        exchange.allgather(b"s", "abc", b"", print, timeout=-1)
    with pytest.raises(ValueError, match="seconds"):
        exchange.request("b", "t", b"", print, timeout=float("nan"))
    exchange.handle("t", lambda _sender, _data, answer: answer("text", None))
    world["b"].request("a", "t", b"", world.done("b"))
    world.hub.run()
    assert "bytes, not str" in str(world.end("b"))
    world.check_empty()


def test_turns_come_one_at_a_time_from_any_thread():
    strand = Strand()
    seen = []
    inside = threading.Lock()

    def call(number):
        assert inside.acquire(blocking=False)
        time.sleep(0)
        seen.append(number)
        inside.release()

    threads = [
        threading.Thread(target=lambda base=base: [strand(call, base + n) for n in range(200)])
        for base in range(0, 4000, 1000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    strand(call, -1)
    assert len(seen) == 801
    for base in range(0, 4000, 1000):
        own = [number for number in seen if base <= number < base + 1000]
        assert own == sorted(own)


def test_a_callback_that_breaks_harms_no_other(world, caplog):
    world["a"].watch(lambda *_: 1 / 0)
    world["a"].watch(lambda *end: world.ends.setdefault("second", []).append(end))
    world["a"].allgather(b"s", "abc", b"", lambda *_: 1 / 0)
    world["a"].allgather(b"t", "abc", b"", world.done("a"))
    world.hub.lose("b")
    world.hub.run()
    assert isinstance(world.end("a"), ServerLost)
    assert world.ends["second"] == [("b", False)]
    assert caplog.text.count("ZeroDivisionError") == 2


def test_virtual_time_goes_from_one_call_to_the_next():
    clock = VirtualTime()
    seen = []
    clock.later(2, lambda: seen.append((2, clock.now)))
    clock.later(1, lambda: (seen.append((1, clock.now)), clock.later(0.5, lambda: seen.append((1.5, clock.now)))))
    clock.later(1, lambda: seen.append(("never", clock.now))).cancel()
    assert clock.step()
    clock.run(1.2)
    assert clock.now == 1.2
    clock.run()
    assert seen == [(1, 1), (1.5, 1.5), (2, 2)]
    assert not clock.step()


def test_alarms_go_off_in_time_or_not_at_all():
    alarms = Alarms()
    seen = []
    done = threading.Event()
    for _ in range(3 * MANY):
        alarms.later(3600, seen.append).cancel()
    assert len(alarms._alarms.due) < 2 * MANY
    alarms.later(0.05, lambda: (seen.append(2), done.set()))
    alarms.later(0.01, lambda: seen.append(1))
    assert done.wait(10)
    assert seen == [1, 2]
    alarms.close()
    alarms._thread.join(10)
    assert not alarms._thread.is_alive()
    alarms.close()


def test_in_one_process_the_carriers_run_where_they_are_posted():
    from queue import SimpleQueue

    calls = SimpleQueue()
    seen = []
    hub = Hub(calls.put)
    left, right = hub.carrier("left"), hub.carrier("right")
    for carrier in (left, right):
        carrier.listen(
            lambda sender, message, carrier=carrier: seen.append((carrier.name, sender, message)),
            lambda name, here, carrier=carrier: seen.append((carrier.name, name, here)),
        )
    assert left.members == ("left",)
    left.send("right", b"1")
    left.send("right", b"2")
    left.close()
    while not calls.empty():
        calls.get()()
    assert seen == [
        ("right", "left", True), ("right", "left", b"1"), ("right", "left", b"2"), ("right", "left", False),
    ]  # fmt: skip
    assert right.members == ("right",)
