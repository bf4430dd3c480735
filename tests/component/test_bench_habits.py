"""The bench of what programs do after their start: each of its jobs runs and is timed."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import habits

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("habit", habits.HABITS)
def test_a_job_of_each_habit_is_timed(habit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    found = habits.measure(habit, 2, 3)
    assert set(found) == set(habits.FIGURES)
    assert all(figure > 0 for figure in found.values())
