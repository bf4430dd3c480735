"""Counts the steps of pypmix's own code: a measure of cost that does not depend on the machine or its load."""

from __future__ import annotations

import os
import sys

import pypmix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
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
