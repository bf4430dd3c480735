"""Proves that the server's loop runs calls and timers, sends in one piece, keeps order, and lets go of everything."""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from lib.leftovers import nothing_left
from lib.reactor_loop import WAIT, Loop
from pypmix.engine.python import reactor as module
from pypmix.engine.python.reactor import Guest, Link, Reactor
from pypmix.standard.errors import NotInitialized
from pypmix.standard.limits import DEFAULTS, Limits


@pytest.fixture
def loop():
    loop = Loop()
    yield loop
    loop.reactor.stop()


def receive(client, size):
    data = b""
    while len(data) < size:
        piece = client.recv(1 << 20)
        assert piece, "the connection ended"
        data += piece
    return data


def test_a_call_returns_or_raises(loop):
    assert loop.reactor.call(lambda: threading.current_thread().name) == "loop"
    with pytest.raises(ZeroDivisionError):
        loop.reactor.call(lambda: 1 // 0)
    assert loop.reactor.call(lambda: loop.reactor.call(lambda: 5)) == 5


def test_what_is_sent_at_once_keeps_its_place(loop):
    client, owner = loop.connect()
    many = b"x" * (8 << 20)

    def turn():
        owner.link.send_now(b"1")
        owner.link.send(b"2")
        owner.link.send_now(b"3")

    with client:
        loop.reactor.call(turn)
        assert receive(client, 3) == b"123"
        # More than the socket takes: the rest goes when there is room, and what comes later waits for that.
        loop.reactor.call(lambda: [owner.link.send_now(many), owner.link.send_now(b"4"), owner.link.send(b"5")])
        assert receive(client, len(many) + 2) == many + b"45"


def test_what_is_sent_at_once_to_nobody_ends_the_connection_after_the_turn(loop):
    client, owner = loop.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    lost = []

    def turn():
        client.close()  # without a farewell
        for _ in range(3):
            owner.link.send_now(b"anybody there?")
            lost.append(owner.ended.is_set())

    loop.reactor.call(turn)
    assert owner.ended.wait(WAIT)
    assert lost == [False] * 3


def test_calls_from_many_threads(loop):
    done = []
    threads = [
        threading.Thread(target=lambda: [loop.reactor.call(lambda: done.append(1)) for _ in range(100)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert len(done) == 400


def test_the_loop_does_not_wake_itself_and_yet_runs_what_it_posts(loop, monkeypatch):
    woken = []
    write = os.eventfd_write
    done = threading.Event()

    def due():
        # Timers run behind the calls of a turn.
        monkeypatch.setattr(module.os, "eventfd_write", lambda fd, value: woken.append(fd) or write(fd, value))
        loop.reactor.post(lambda: loop.reactor.post(done.set))

    loop.reactor.post(lambda: loop.reactor.call_later(0.01, due))
    assert done.wait(WAIT)
    assert not woken


def test_timers(loop):
    fired = []
    over = threading.Event()

    def plan():
        loop.reactor.call_later(0.06, lambda: fired.append("late"))
        loop.reactor.call_later(0.02, lambda: fired.append("early"))
        loop.reactor.call_later(0.03, lambda: 1 // 0)
        loop.reactor.call_later(0.04, lambda: fired.append("never")).cancel()
        loop.reactor.call_later(0.08, over.set)

    started = time.monotonic()
    loop.reactor.call(plan)
    assert over.wait(WAIT)
    assert time.monotonic() - started >= 0.08
    assert fired == ["early", "late"]
    assert "ZeroDivisionError" in loop.log[0]


def test_cancelled_timers_do_not_pile_up(loop):
    def churn():
        for _ in range(10_000):
            loop.reactor.call_later(1000, print).cancel()
        return len(loop.reactor._timers.due)

    assert loop.reactor.call(churn) < 1000


def test_an_idle_loop_costs_nothing(loop):
    client, _ = loop.connect()
    with client:
        loop.reactor.call(lambda: loop.reactor.call_later(1000, print))
        turns = loop.reactor.call(lambda: time.thread_time())
        time.sleep(0.3)
        assert loop.reactor.call(lambda: time.thread_time()) - turns < 0.02


def test_messages_of_a_turn_go_out_in_one_piece():
    sent = []

    class Socket:
        def send(self, data):
            sent.append(bytes(data))
            return len(data)

    stub = SimpleNamespace(dirty=[], limits=DEFAULTS, watch=lambda link, events: None)
    link = Link(stub, Socket())
    link.send(b"one")
    link.send(b"two")
    assert not sent
    assert stub.dirty == [link]
    link.flush()
    assert sent == [b"onetwo"]


def test_what_a_slow_reader_gets_is_whole_and_in_order(loop):
    client, owner = loop.connect()
    with client:
        pieces = [bytes((number,)) * 100_000 for number in range(200)]
        for piece in pieces:
            loop.reactor.call(lambda piece=piece: owner.link.send(piece))
        expected = b"".join(pieces)
        assert receive(client, len(expected)) == expected
        client.sendall(b"still there")
        assert owner.came.wait(WAIT)


def test_who_does_not_read_is_dropped_and_nobody_else(loop):
    loop.reactor.limits = Limits(unread=1 << 20)
    lazy, owner = loop.connect()
    with lazy:
        other, other_owner = loop.connect()
        with other:
            for _ in range(200):
                loop.reactor.call(lambda: owner.link.send(b"x" * 100_000))
                if owner.ended.is_set():
                    break
            assert owner.ended.is_set()
            assert "does not read" in owner.reason
            loop.reactor.call(lambda: other_owner.link.send(b"hello"))
            assert receive(other, 5) == b"hello"


def test_one_message_may_be_longer_than_the_bound(loop):
    loop.reactor.limits = Limits(unread=1 << 10)
    client, owner = loop.connect()
    with client:
        loop.reactor.call(lambda: owner.link.send(b"x" * (8 << 20)))
        assert len(receive(client, 8 << 20)) == 8 << 20


def test_close_sends_what_was_said_before(loop):
    client, owner = loop.connect()
    with client:

        def end():
            owner.link.send(b"farewell")
            owner.link.close()
            owner.link.close()

        loop.reactor.call(end)
        assert receive(client, 8) == b"farewell"
        assert client.recv(1) == b""
    assert not owner.ended.is_set()


def test_the_other_side_closes(loop):
    client, owner = loop.connect()
    client.close()
    assert owner.ended.wait(WAIT)
    assert owner.reason == ""
    loop.reactor.call(lambda: owner.link.send(b"into the void"))
    loop.reactor.call(lambda: owner.link.close())


def test_a_reset_ends_only_that_connection(loop):
    client, owner = loop.connect()
    other, other_owner = loop.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    assert owner.ended.wait(WAIT)
    with other:
        other.sendall(b"x")
        assert other_owner.came.wait(WAIT)


def test_a_fault_of_an_owner_ends_only_that_connection(loop):
    client, owner = loop.connect()
    other, other_owner = loop.connect()
    owner.received = lambda data: 1 // 0
    with client, other:
        client.sendall(b"x")
        assert owner.ended.wait(WAIT)
        assert "ZeroDivisionError" in loop.log[0]
        other.sendall(b"x")
        assert other_owner.came.wait(WAIT)


def test_a_copy_of_the_socket_in_a_child_keeps_nothing_alive(loop):
    client, owner = loop.connect()
    with client:
        copy = loop.reactor.call(lambda: os.dup(owner.link.socket.fileno()))
        try:
            loop.reactor.call(owner.link.close)
            assert client.recv(1) == b""
            spent = loop.reactor.call(time.thread_time)
            time.sleep(0.2)
            assert loop.reactor.call(time.thread_time) - spent < 0.02
        finally:
            os.close(copy)


def test_a_burst_of_connections():
    loop = Loop(echo=True)
    try:
        clients = [socket.create_connection(loop.address, timeout=WAIT) for _ in range(300)]
        for client in clients:
            client.sendall(b"ping")
        for client in clients:
            assert receive(client, 4) == b"ping"
            client.close()
    finally:
        loop.reactor.stop()


def test_no_descriptor_left_is_a_pause_and_no_end(loop):
    first, _ = loop.connect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.dup(0)
    queued = socket.socket()
    queued.settimeout(WAIT)
    try:
        os.close(spare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(queued.fileno(), first.fileno()) + 1, hard))
        # Descriptors below the limit that are free would still be given out.
        held = []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        queued.connect(loop.address)
        deadline = time.monotonic() + WAIT
        while not loop.log and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "accepted" in loop.log[0]
        spent = loop.reactor.call(time.thread_time)
        time.sleep(0.2)
        assert loop.reactor.call(time.thread_time) - spent < 0.05
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert loop.accepted.acquire(timeout=WAIT)
    queued.sendall(b"x")
    assert loop.owners[-1].came.wait(WAIT)
    queued.close()
    first.close()


def test_stop_lets_go_of_everything():
    with nothing_left(0):
        loop = Loop()
        client, owner = loop.connect()
        loop.reactor.stop()
        loop.reactor.stop()
        assert client.recv(1) == b""
        client.close()
        assert not owner.ended.is_set()
    with pytest.raises(NotInitialized):
        loop.reactor.call(lambda: None)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(loop.address, timeout=WAIT)


def test_stop_from_the_loop_itself():
    loop = Loop()
    loop.reactor.call(loop.reactor.stop)
    loop.reactor.stop()
    with pytest.raises(NotInitialized):
        loop.reactor.post(lambda: None)


def test_a_loop_that_never_started_can_be_stopped():
    with nothing_left(0):
        reactor = Reactor("idle", print)
        reactor.stop()
        reactor.stop()


def stop_while_called(reactor):
    """Stop a loop that three threads call, and return how these have ended."""
    outcomes = []

    def caller():
        try:
            while True:
                reactor.call(lambda: None)
        except NotInitialized:
            outcomes.append("closed")

    threads = [threading.Thread(target=caller) for _ in range(3)]
    for thread in threads:
        thread.start()
    reactor.stop()
    for thread in threads:
        thread.join(WAIT)
    return outcomes


def test_calls_that_race_with_stop_end():
    for _ in range(20):
        assert stop_while_called(Loop().reactor) == ["closed"] * 3


def test_connections_without_a_name_come_after_those_of_clients(loop):
    order = []
    pairs = [loop.connect() for _ in range(40)]
    known = pairs[-1][1]
    known.link.is_client = True
    for _, owner in pairs:
        owner.received = lambda data, owner=owner: order.append(owner)
    holds, held = threading.Event(), threading.Event()
    loop.reactor.post(lambda: (holds.set(), held.wait(WAIT)))
    # Else the loop may wake up for that and the first of these at once.
    assert holds.wait(WAIT)
    for client, _ in pairs:
        client.sendall(b"x")
    held.set()
    deadline = time.monotonic() + WAIT
    while len(order) < len(pairs):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    # They all had come when the loop looked, and the last one of them is the client's.
    assert order[0] is known
    for client, _ in pairs:
        client.close()


def test_who_is_held_is_not_read_from_and_loses_nothing(loop):
    client, owner = loop.connect()
    loop.reactor.call(lambda: owner.link.hold(True))
    client.sendall(b"1")
    client.close()
    assert not owner.came.wait(0.1)
    assert not owner.ended.is_set()
    loop.reactor.call(lambda: owner.link.hold(False))
    assert owner.came.wait(WAIT)
    assert owner.ended.wait(WAIT)
    assert owner.data == b"1"


def test_who_does_not_take_its_answers_is_not_read_from(loop):
    client, owner = loop.connect()
    size = 64 << 20
    with client:
        loop.reactor.call(lambda: owner.link.send(bytes(size // 2)))
        loop.reactor.call(lambda: owner.link.send(bytes(size // 2)))
        assert loop.reactor.call(owner.link.full)
        client.sendall(b"more")
        assert not owner.came.wait(0.1)
        assert not owner.emptied.is_set()
        receive(client, size)
        assert owner.emptied.wait(WAIT)
        assert owner.came.wait(WAIT)
    assert not loop.log


def test_much_that_is_taken_at_once_stops_nothing(loop):
    """A turn in which a lot is sent and nothing is left waiting is no reason to stop reading."""
    client, owner = loop.connect()
    with client:

        def turn():
            owner.link.send(bytes(2 << 20))
            assert owner.link.full()
            owner.link.hold(True)
            owner.link.hold(False)

        for _ in range(5):
            thread = threading.Thread(target=receive, args=(client, 2 << 20))
            thread.start()
            loop.reactor.call(turn)
            thread.join()
            assert owner.emptied.wait(WAIT)
            owner.emptied.clear()
            owner.came.clear()
            client.sendall(b"on")
            assert owner.came.wait(WAIT)


def test_a_guest_is_called_when_its_descriptor_is_ready_until_it_forgets_it(loop):
    guest = Guest(loop.reactor)
    here, there = os.pipe()
    came = threading.Semaphore(0)

    def ready():
        os.read(here, 1)
        came.release()

    loop.reactor.call(lambda: guest.watch(here, select.EPOLLIN, ready))
    for _ in range(3):
        os.write(there, b"x")
        assert came.acquire(timeout=WAIT)
    loop.reactor.call(lambda: guest.unwatch(here))
    os.write(there, b"x")
    loop.reactor.call(lambda: None)
    assert not came.acquire(blocking=False)
    os.close(here)
    os.close(there)


def test_a_guest_that_another_one_of_the_turn_has_forgotten_is_not_called(loop):
    guest = Guest(loop.reactor)
    pipes = [os.pipe() for _ in range(2)]
    called = []

    def ready(own, other):
        called.append(own)
        guest.unwatch(own)
        guest.unwatch(other)

    def begin():
        (first, _), (second, _) = pipes
        guest.watch(first, select.EPOLLIN, lambda: ready(first, second))
        guest.watch(second, select.EPOLLIN, lambda: ready(second, first))
        for _, write in pipes:
            os.write(write, b"x")

    loop.reactor.call(begin)
    loop.reactor.call(lambda: None)
    assert len(called) == 1
    for fd in [fd for pipe in pipes for fd in pipe]:
        os.close(fd)


def test_a_guest_that_fails_again_and_again_does_not_take_all_of_the_time(loop, monkeypatch):
    monkeypatch.setattr(module, "ACCEPT_PAUSE", 0.05)
    guest = Guest(loop.reactor)
    here, there = os.pipe()
    tries = []
    again = threading.Event()

    def fail():
        tries.append(time.monotonic())
        if len(tries) == 3:
            again.set()
        raise ZeroDivisionError

    loop.reactor.call(lambda: guest.watch(here, select.EPOLLIN, fail))
    os.write(there, b"x")
    assert again.wait(WAIT)
    loop.reactor.call(lambda: guest.unwatch(here))
    assert all(after - before >= 0.05 for before, after in zip(tries, tries[1:], strict=False))
    assert any("ZeroDivisionError" in text for text in loop.log)
    loop.reactor.call(lambda: None)
    os.close(here)
    os.close(there)


# Where another thread makes the turns


class Watcher:
    """A thread that has attached, and comes whenever there is something, unless it is held up.

    Attributes:
        seen: What `poll` has raised.
    """

    def __init__(self, reactor):
        self.reactor = reactor
        self.seen = []
        self.free = threading.Event()
        self.free.set()
        self.held = threading.Event()
        self.work = []
        self._attached = threading.Event()
        self._ends = False
        self.thread = threading.Thread(target=self._live, name="watcher")
        self.thread.start()
        assert self._attached.wait(WAIT)

    def _live(self):
        self.reactor.attach()
        fd = os.dup(self.reactor.fileno())
        self._attached.set()
        while not self._ends:
            if not self.free.is_set():
                self.held.set()
                assert self.free.wait(WAIT)
            while self.work:
                self.work.pop()()
            if select.select([fd], [], [], 0.002)[0]:
                try:
                    self.reactor.poll()
                except BaseException as error:
                    self.seen.append(error)
        os.close(fd)

    def hold(self):
        """Keep it from coming."""
        self.held.clear()
        self.free.clear()
        assert self.held.wait(WAIT)

    def do(self, function):
        """Run a function on it, outside of a turn, and return or raise what it does."""
        outcome, ended = [], threading.Event()

        def run():
            try:
                outcome.append((function(), None))
            except BaseException as error:
                outcome.append((None, error))
            ended.set()

        self.work.append(run)
        assert ended.wait(WAIT)
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    def end(self):
        self._ends = True
        self.free.set()
        self.thread.join(WAIT)


@pytest.fixture
def watched():
    with nothing_left(WAIT):
        loop = Loop()
        watcher = Watcher(loop.reactor)
        yield loop, watcher
        watcher.free.set()
        loop.reactor.stop()
        watcher.end()
    assert not any(isinstance(error, Exception) for error in watcher.seen)


def name():
    return threading.current_thread().name


def test_who_has_attached_makes_the_turns(watched, monkeypatch):
    monkeypatch.setattr(module, "ATTACHED_SECONDS", 2)
    loop, watcher = watched
    threads = []
    client, owner = loop.connect()
    came = owner.received
    owner.received = lambda data: (threads.append(name()), came(data))
    for number in range(20):
        owner.came.clear()
        client.sendall(b"x")
        assert owner.came.wait(WAIT)
        assert owner.data == b"x" * (number + 1)
    assert loop.reactor.call(name) == "watcher"
    assert watcher.do(lambda: loop.reactor.call(name)) == "watcher"
    assert watcher.do(lambda: loop.reactor.call(lambda: loop.reactor.call(name))) == "watcher"
    with pytest.raises(ZeroDivisionError):
        watcher.do(lambda: loop.reactor.call(lambda: 1 // 0))
    assert set(threads) == {"watcher"}
    client.close()
    assert owner.ended.wait(WAIT)


def test_where_nobody_comes_the_own_thread_makes_the_turns_until_somebody_does(watched, monkeypatch):
    loop, watcher = watched
    client, owner = loop.connect()
    threads = []
    came = owner.received
    owner.received = lambda data: (threads.append(name()), loop.owners[0].link.send(data), came(data))
    watcher.hold()
    for number in range(20):
        if number:
            # It is waited for once, not for each of them.
            monkeypatch.setattr(module, "ATTACHED_SECONDS", 10 * WAIT)
        client.sendall(b"x")
        assert receive(client, 1) == b"x"
    assert threads == ["loop"] * 20
    assert loop.reactor.call(name) == "loop"
    watcher.free.set()
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        client.sendall(b"x")
        assert receive(client, 1) == b"x"
        if threads[-60:] == ["watcher"] * 60:
            break
    else:
        pytest.fail("the own thread goes on")
    client.close()


def test_timers_are_due_wherever_the_turns_are_made(watched):
    loop, watcher = watched
    for held in (False, True):
        if held:
            watcher.hold()
        for delay in (0.2, 0.05, 0.01):
            due = threading.Event()
            begin = time.monotonic()
            loop.reactor.call(lambda delay=delay, due=due: loop.reactor.call_later(delay, due.set))
            assert due.wait(WAIT)
            assert time.monotonic() - begin >= delay
    # An earlier one does not wait for those that were known before.
    due = threading.Event()
    late = loop.reactor.call(lambda: loop.reactor.call_later(1000, print))
    watcher.free.set()
    watcher.do(lambda: loop.reactor.call(lambda: loop.reactor.call_later(0.05, due.set)))
    assert due.wait(WAIT)
    late.cancel()


def test_what_is_posted_keeps_its_order_on_any_thread(watched):
    loop, watcher = watched
    order = []

    def both():
        loop.reactor.post(lambda: order.append(1))
        loop.reactor.post(lambda: order.append(2))
        loop.reactor.call(lambda: order.append(3))

    watcher.do(both)
    assert order == [1, 2, 3]
    ended = threading.Event()
    # What a turn posts is for the next one, which nobody has to wait for.
    watcher.do(lambda: loop.reactor.call(lambda: loop.reactor.post(lambda: loop.reactor.post(ended.set))))
    assert ended.wait(WAIT)


def test_what_answers_in_a_turn_goes_out_at_its_end(watched, monkeypatch):
    loop, watcher = watched
    client, owner = loop.connect()
    watcher.do(lambda: loop.reactor.in_turn(lambda: loop.reactor.post(lambda: owner.link.send(b"answer"))))
    assert receive(client, 6) == b"answer"
    assert watcher.do(lambda: loop.reactor.in_turn(lambda: loop.reactor.in_turn(name))) == "watcher"
    client.close()


def test_what_interrupts_a_turn_costs_its_connection_alone(watched):
    loop, watcher = watched
    broken, victim = loop.connect()
    client, owner = loop.connect()

    def interrupted(_data):
        raise KeyboardInterrupt

    victim.received = interrupted
    broken.sendall(b"x")
    assert victim.ended.wait(WAIT)
    assert broken.recv(1) == b""
    client.sendall(b"y")
    assert owner.came.wait(WAIT)
    with pytest.raises(KeyboardInterrupt):
        watcher.do(lambda: loop.reactor.call(lambda: interrupted(b"")))
    assert loop.reactor.call(name) == "watcher"
    assert [type(error) for error in watcher.seen] == [KeyboardInterrupt]
    assert any("dropped because of a fault" in text for text in loop.log)
    broken.close()
    client.close()


@pytest.mark.parametrize("where", ["elsewhere", "watcher", "turn", "held"])
def test_a_watched_loop_can_be_stopped_from_everywhere(where):
    with nothing_left(WAIT):
        loop = Loop()
        watcher = Watcher(loop.reactor)
        client, _ = loop.connect()
        if where == "watcher":
            watcher.do(loop.reactor.stop)
        elif where == "turn":
            watcher.do(lambda: loop.reactor.call(loop.reactor.stop))
        elif where == "held":
            watcher.hold()
        loop.reactor.stop()
        watcher.free.set()
        assert client.recv(1) == b""
        for use in (loop.reactor.post, loop.reactor.call):
            with pytest.raises(NotInitialized):
                use(print)
            with pytest.raises(NotInitialized):
                watcher.do(lambda use=use: use(print))
        watcher.end()
        client.close()


def test_calls_that_race_with_the_stop_of_a_watched_loop_end():
    for _ in range(20):
        loop = Loop()
        watcher = Watcher(loop.reactor)
        outcomes = stop_while_called(loop.reactor)
        watcher.end()
        assert outcomes == ["closed"] * 3
        assert not watcher.seen


def test_a_signal_handler_may_call_the_loop_whose_turns_its_thread_makes():
    script = """
import os, select, signal, threading, time
from pypmix.engine.python.reactor import Reactor
reactor = Reactor("loop", print)
reactor.start()
reactor.attach()
calls = []
signal.signal(signal.SIGUSR1, lambda *_: calls.append(reactor.call(lambda: 5)))
def disturb():
    for _ in range(2000):
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.0002)
thread = threading.Thread(target=disturb)
thread.start()
while thread.is_alive():
    reactor.poll()
thread.join()
reactor.stop()
assert set(calls) == {5} and len(calls) > 100, len(calls)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
