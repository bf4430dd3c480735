"""Proves that no process escapes that a job has left behind."""

from __future__ import annotations

import os

import pytest

from pypmix.host import orphans

pytestmark = pytest.mark.timeout(30)


def test_what_the_dead_leave_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that ends between being listed and being collected makes its children this process's."""
    living = {10: {11, 12}, 11: set[int](), 12: {13}, 13: set[int]()}
    mine = {10, 99}

    def wait(pid: int, _options: int) -> tuple[int, int]:
        # 10 and 12 end just now.
        if pid in (10, 12):
            mine.remove(pid)
            mine.update(living[pid])
            return pid, 0
        return 0, 0

    monkeypatch.setattr(orphans, "children", lambda: set(mine))
    monkeypatch.setattr(os, "waitpid", wait)
    assert orphans.collect({99}) == {11, 13}
    assert mine == {11, 13, 99}
