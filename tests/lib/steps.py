"""Counts the steps of pypmix's own code: a measure of cost that does not depend on the machine or its load."""

from __future__ import annotations

import os
import sys

import pypmix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType
    from typing import Any

ROOT = os.path.dirname(pypmix.__file__) + os.sep


def count_steps(function: Callable[[], object], path: str = ROOT) -> int:
    """Return how many instructions of the interpreter a call carries out in this thread, in files below a path."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(path):
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def count_calls(function: Callable[[], object], path: str = ROOT) -> int:
    """Return how many functions in files below a path are called by a call, in this thread."""
    count = 0

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(path)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def find_growth(
    operations: Mapping[str, Callable[[Any], object]],
    happen: Callable[[Any], object],
    subject: Any,
    numbers: tuple[int, int],
    most: float,
) -> dict[str, tuple[int, int]]:
    """Return the operations that cost more after a long history than after a short one, with their steps.

    Args:
        operations: The operations, each called with the subject.
        happen: One step of the history, called with the subject.
        subject: What they are about.
        numbers: How many steps of the history come before each of the two measurements.
        most: By how many times the steps may grow.
    """

    def measure(number: int) -> dict[str, int]:
        for _ in range(number):
            happen(subject)
        found = {}
        for what, operation in operations.items():
            operation(subject)
            found[what] = min(count_steps(lambda operation=operation: operation(subject)) for _ in range(2))
        return found

    short, long = measure(numbers[0]), measure(numbers[1])
    return {what: (steps, long[what]) for what, steps in short.items() if not 0 < long[what] <= most * steps}
