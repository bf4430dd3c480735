"""No number from outside makes a wait fail: what sleeps until something is due in centuries, sleeps and wakes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import pytest

from lib.fake_server import serving
from pypmix.arguments import limit, seconds
from pypmix.cli.options import parse
from pypmix.cli.usage import UsageError
from pypmix.engine.alarms import Alarms
from pypmix.engine.common import LONGEST_SLEEP, sleep_for
from pypmix.engine.native.quirks import deadline
from pypmix.engine.python.reactor import Reactor
from pypmix.engine.python.session import open_client
from pypmix.engine.python.transport import parse_address
from pypmix.host.loop import Loop
from pypmix.standard import codes
from pypmix.standard.errors import Unreachable
from pypmix.standard.ops import Fence
from pypmix.standard.types import Info, Value, decimal
from pypmix.wire.messages import encode_status

FAR = (2_147_484.0, 1e7, 2.0**31, 1e12, 2.0**64, math.inf)
DIGITS = "9" * 5000
"""More of them than Python makes a number of."""


@pytest.mark.parametrize("far", FAR)
def test_the_loop_of_a_server_serves_on_beside_a_far_timer(far: float) -> None:
    log: list[str] = []
    reactor = Reactor("far", log.append)
    reactor.start()
    try:
        reactor.call(lambda: reactor.call_later(far, lambda: log.append("early")))
        time.sleep(0.02)
        assert reactor.call(lambda: 7) == 7
    finally:
        reactor.stop()
    assert log == []


@pytest.mark.parametrize("far", FAR)
def test_the_loop_of_a_host_runs_on_beside_a_far_timer(far: float) -> None:
    loop = Loop()
    came: list[int] = []
    loop.later(far, lambda: came.append(1))
    timer = threading.Timer(0.05, lambda: loop.post(lambda: came.append(7)))
    timer.start()
    loop.run(lambda: bool(came))
    timer.join()
    loop.close()
    assert came == [7]


@pytest.mark.parametrize("far", FAR)
def test_alarms_ring_although_one_is_far(far: float) -> None:
    alarms, rung = Alarms(), threading.Event()
    try:
        alarms.later(far, lambda: None)
        time.sleep(0.02)
        alarms.later(0.05, rung.set)
        assert rung.wait(20)
    finally:
        alarms.close()


def test_a_limit_in_the_library_is_one_that_threads_can_wait_for() -> None:
    assert deadline((Info("pmix.timeout", Value(codes.UINT64, 2**64 - 1)),)) < threading.TIMEOUT_MAX


@pytest.mark.parametrize("type", [codes.INT, codes.UINT32, codes.UINT64])
def test_a_client_waits_however_long_it_may(type: int) -> None:
    most = {codes.INT: 2**31 - 1, codes.UINT32: 2**32 - 1, codes.UINT64: 2**64 - 1}[type]
    with serving() as server:
        session = open_client(server.env)

        def answer(_command: int, _payload: bytes) -> bytes:
            time.sleep(0.1)
            return encode_status(1, 0)

        server.answer = answer
        op = Fence(directives=(Info("pmix.timeout", Value(type, most)),))
        # As a blocking call, behind one, and beside the thread that looks after calls nobody waits for.
        session.run(op)
        ended = threading.Event()
        session.submit(op, lambda _result, _error: ended.set())
        others = [threading.Thread(target=session.run, args=(op,)) for _ in range(2)]
        for other in others:
            other.start()
        for other in others:
            other.join(20)
            assert not other.is_alive()
        assert ended.wait(20)
        session.close()


@pytest.mark.parametrize("read", [seconds, limit])
@pytest.mark.parametrize("bad", [math.nan, -1, -0.001, -math.inf, -(10**400)])
def test_what_is_no_time_is_refused_at_the_call(read: Callable[[float], object], bad: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        read(bad)


@pytest.mark.parametrize("bad", [0, math.inf, 2**31, 2**31 - 0.5, 10**400])
def test_what_no_c_int_holds_is_refused_at_the_call(bad: float) -> None:
    with pytest.raises(ValueError, match="less than 2"):
        seconds(bad)


def test_limits_of_waits_in_this_process() -> None:
    assert [limit(each) for each in (None, math.inf, 10**400, 2**31, 2**31 - 1, 0)] == [None] * 4 + [2**31 - 1, 0]
    assert seconds(2**31 - 1).value.data == 2**31 - 1


def test_how_long_to_sleep() -> None:
    assert [sleep_for(each) for each in (-1, 0, 3.5, math.inf)] == [0, 0, 3.5, LONGEST_SLEEP]
    assert LONGEST_SLEEP * 1000 < 2**31


@pytest.mark.parametrize("text", [DIGITS, "²", "١", "-1", "+1", " 1", "", "1_0", "4294967245.", "18446744073709551616"])
def test_texts_that_are_no_numbers(text: str) -> None:
    assert decimal(text) is None


def test_texts_that_are_numbers() -> None:
    assert [decimal("0"), decimal("007"), decimal("4294967245"), decimal("4294967246")] == [0, 7, 4294967245, None]


@pytest.mark.parametrize("name", ["PMIX_RANK", "PMIX_SERVER_URI41"])
@pytest.mark.parametrize("text", [DIGITS, "²"])
def test_an_environment_with_digits_that_are_no_number(name: str, text: str) -> None:
    with serving() as server:
        env = server.env | {name: text if name == "PMIX_RANK" else f"server.{text};tcp4://127.0.0.1:1"}
        with pytest.raises(Unreachable):
            open_client(env)
    with pytest.raises(Unreachable):
        parse_address(f"tcp4://127.0.0.1:{text}")


@pytest.mark.parametrize("given", [["-n", DIGITS], ["--stdin", DIGITS], ["--timeout", "nan"], ["--timeout", "-1"]])
def test_options_that_are_no_numbers(given: list[str]) -> None:
    with pytest.raises(UsageError):
        parse([*given, "true"], {})
