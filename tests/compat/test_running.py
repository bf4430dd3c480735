"""Errors become the status ints of the official binding; callbacks run in order, and none of their errors is lost."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest

from pypmix import PMIxError, Status
from pypmix.compat.running import attempt, callback, in_callback, named_after, schedule_answer, status_of

LIMIT = 30


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PMIxError("late", status=Status.ERR_TIMEOUT), -24),
        (PMIxError("no failure", status=Status.SUCCESS), -1),
        (TypeError("kind"), -18),
        (ValueError("range"), -27),
        (OverflowError("range"), -27),
        (RecursionError("a dict that contains itself"), -27),
    ],
)
def test_an_error_has_a_status(error, status):
    def fail():
        raise error

    assert attempt(fail) == (status, None)
    assert attempt(lambda: 5) == (0, 5)


def test_an_error_that_nobody_expects_is_logged(caplog):
    assert status_of(RuntimeError("a mistake in here")) == -1
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert caplog.records[0].exc_info[1].args == ("a mistake in here",)


def test_what_stands_behind_a_status_is_in_the_log(caplog):
    caplog.set_level(logging.INFO, "pypmix.compat")
    status_of(PMIxError("what has happened", operation="fence"))
    assert "fence: what has happened" in caplog.text


def test_callbacks_run_in_order_on_a_thread_of_their_own():
    seen, ended = [], threading.Event()
    for number in range(100):
        callback(seen.append, number)
    callback(lambda: (seen.append(in_callback()), ended.set()))
    assert ended.wait(LIMIT)
    assert seen == [*range(100), True]
    assert not in_callback()


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt()])
def test_a_callback_that_fails_is_logged_and_the_next_one_is_called(caplog, error):
    told, ended = [], threading.Event()

    def fails():
        raise error

    schedule_answer(fails, (), told.append)
    callback(ended.set)
    assert ended.wait(LIMIT)
    assert len(told) == 1
    assert "fails failed" in caplog.text
    assert caplog.records[0].exc_info is not None


def test_an_answer_that_fails_too_stops_nothing(caplog):
    ended = threading.Event()

    def fails(*_error):
        raise ValueError("again")

    schedule_answer(fails, (), fails)
    callback(ended.set)
    assert ended.wait(LIMIT)
    assert "could not be told" in caplog.text


def test_the_log_names_the_function_of_the_program(caplog):
    ended = threading.Event()

    def theirs():
        """What the program has given."""

    def ours():
        raise ValueError("of theirs")

    callback(named_after(theirs, ours))
    callback(ended.set)
    assert ended.wait(LIMIT)
    assert "theirs failed" in caplog.text


CHILD = """
import os, threading
from pypmix.compat.running import callback
ready = threading.Event()
callback(ready.set)
ready.wait(30)
if os.fork() == 0:
    callback(os._exit, 5)
    threading.Event().wait(30)
    os._exit(1)
os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_child_calls_its_own_callbacks():
    # Python says on standard error what it thinks of a fork beside threads.
    assert subprocess.run([sys.executable, "-c", CHILD], capture_output=True, timeout=90).returncode == 5
