"""Timers on the loop of a server: made and cancelled on any thread, called on the loop's."""

from __future__ import annotations

import threading

from pypmix.engine.python.reactor import Guest, Reactor
from pypmix.host.exchange import Exchange, TCPCarrier

SECRET = b"s" * 32


def test_timers_of_other_threads_are_called_on_the_loop() -> None:
    reactor = Reactor("timers", lambda _text: None)
    reactor.start()
    try:
        loop = Guest(reactor)
        called: list[str] = []
        done, made = threading.Event(), threading.Event()
        # The loop takes nothing in until all is made and cancelled.
        loop.post(lambda: made.wait(30) and None)
        loop.later(0.0, lambda: called.append("cancelled")).cancel()
        loop.later(0.0, lambda: called.append(threading.current_thread().name))
        # Made on the loop, after both.
        loop.later(0.0, lambda: loop.later(0.0, done.set) and None)
        made.set()
        assert done.wait(30)
        assert called == ["timers"]
    finally:
        reactor.stop()
    assert loop.later(0.0, lambda: None).call is not None, "a closed loop keeps the call, and never makes it"


def test_an_exchange_on_a_loop_has_no_thread_of_its_own() -> None:
    reactor = Reactor("server", lambda _text: None)
    reactor.start()
    exchange = Exchange(TCPCarrier("n1", SECRET))
    try:
        exchange.live_on(Guest(reactor))
        exchange.start()
        names: list[str] = []
        done = threading.Event()

        def ring() -> None:
            names.append(threading.current_thread().name)
            done.set()

        exchange.later(0.0, ring)
        assert done.wait(30)
        assert names == ["server"]
        assert not any(each.name == "pypmix-carrier-n1" for each in threading.enumerate())
    finally:
        exchange.close()
        reactor.stop()
