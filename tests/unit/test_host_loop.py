"""Proves that no wake-up of the host's loop is lost."""

from __future__ import annotations

import os
import threading

import pytest

from pypmix.host import loop as loop_module
from pypmix.host.loop import Loop

pytestmark = pytest.mark.timeout(30)


def test_what_is_posted_while_a_wake_up_is_taken_in_does_not_put_the_loop_to_sleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Loop()
    done: list[str] = []
    read = os.read

    def slow(fd: int, size: int) -> bytes:
        """Another thread posts just before the pipe is read."""
        if not done:
            done.append("early")
            loop.post(lambda: done.append("while"))
        return read(fd, size)

    monkeypatch.setattr(loop_module.os, "read", slow)
    late = threading.Timer(0.3, loop.post, [lambda: done.append("after")])
    late.start()
    given_up = loop.later(10, lambda: done.append("nobody woke the loop"))
    loop.post(lambda: done.append("first"))
    loop.run(lambda: len(done) > 3)
    given_up.cancel()
    late.join()
    loop.close()
    assert sorted(done) == ["after", "early", "first", "while"]


def test_a_posted_call_may_have_the_others_carried_out() -> None:
    loop = Loop()
    done: list[str] = []
    loop.post(loop.run_posted)
    loop.post(lambda: done.append("first"))
    loop.post(lambda: done.append("second"))
    loop.run_posted()
    loop.close()
    assert done == ["first", "second"]
