"""A plugin of pytest that tries mutants: see `mutants.py`, which starts it.

Tests run in forks of one process, which has collected them: those of a file together, to see which switches each
reaches, and then for each mutant those that reach its switch. No mutant changes what the tests of another one see.
"""

from __future__ import annotations

import builtins
import functools
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol
from long.mutants import SWITCH

MOST_SECONDS = 120.0
"""CPU time that a fork for a mutant may take; a mutant that hangs is killed."""

MAP_SECONDS = 600.0
"""CPU time that the tests of one file may take without a mutant."""

BUSY = 5
"""How much longer each may take by the clock, on a machine that does other things."""

reached: set[int] = set()
active = -1


def is_active(switch: int) -> bool:
    """Note that a switch is reached, and return True if its mutant is tried."""
    reached.add(switch)
    return switch == active


setattr(builtins, SWITCH, is_active)


class Reach(NamedTuple):
    """What a test does without a mutant.

    Args:
        test: Its node id.
        switches: Those that it reaches.
        seconds: Its CPU time.
        passed: Whether it passes.
    """

    test: str
    switches: list[int]
    seconds: float
    passed: bool


def fails(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run a test, and return True if it fails."""
    return any(report.failed for report in runtestprotocol(item, nextitem=following, log=False))


def in_fork(function: Callable[[], Any], limit: float) -> Any:
    """Call a function in a fork, and return its result; None if it takes too long or the process dies.

    Args:
        function: The function; its result is JSON.
        limit: How many seconds of CPU time it may take.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(reader)
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 1))
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.dup2(null, 2)
            with os.fdopen(writer, "w") as file:
                json.dump([function()], file)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    data, deadline = b"", time.monotonic() + BUSY * limit
    while (left := deadline - time.monotonic()) > 0:
        if select.select([reader], [], [], left)[0]:
            piece = os.read(reader, 65536)
            if not piece:
                break
            data += piece
    os.close(reader)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)
    try:
        return json.loads(data)[0]
    except ValueError:
        return None


def map_file(items: Sequence[pytest.Item]) -> list[Reach]:
    """Run the tests of a file without a mutant."""
    found = []
    for item, following in zip(items, [*items[1:], None], strict=True):
        reached.clear()
        began = time.process_time()
        failed = fails(item, following)
        found.append(Reach(item.nodeid, sorted(reached), time.process_time() - began, not failed))
    return found


def mapped(items: Sequence[pytest.Item]) -> Iterator[Reach]:
    """Yield what each test reaches."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    for name, those in files.items():
        found = in_fork(functools.partial(map_file, those), MAP_SECONDS)
        if found is None:
            print(f"{name}: its process died or took over {MAP_SECONDS:g} s: its tests judge nothing", flush=True)
        for reach in found or ():
            yield Reach(*reach)


def in_order(reaching: Sequence[Reach], seconds: float) -> list[str]:
    """Return tests of a mutant that take some seconds together: first one of each function, and quick ones first."""
    turns: dict[str, int] = {}
    places = []
    for reach in sorted(reaching, key=lambda reach: (reach.seconds, reach.test)):
        function = reach.test.partition("[")[0]
        turns[function] = turns.get(function, 0) + 1
        places.append((turns[function], reach.seconds, reach.test))
    found: list[str] = []
    spent = 0.0
    for _, cost, test in sorted(places):
        if not found or spent + cost <= seconds:
            found.append(test)
            spent += cost
    return found


def first_failure(items: Sequence[pytest.Item], switch: int) -> str:
    """Run tests with a mutant until one fails, and return that; empty if none does."""
    global active
    active = switch
    for item, following in zip(items, [*items[1:], None], strict=True):
        if fails(item, following):
            return item.nodeid
    return ""


def try_mutant(items: Sequence[pytest.Item], switch: int) -> tuple[bool, str]:
    """Return whether tests kill a mutant, and which; a kill counts if the test alone fails once more."""
    found = in_fork(lambda: first_failure(items, switch), MOST_SECONDS)
    if found is None:
        return True, "a hang or a crash"
    again = [item for item in items if item.nodeid == found]
    return bool(again) and in_fork(lambda: first_failure(again, switch), MOST_SECONDS) != "", found


def pytest_runtestloop(session: pytest.Session) -> bool:
    number, seconds, results = json.loads(os.environ["PYPMIX_MUTANTS"])
    items = {item.nodeid: item for item in session.items}
    reaches = list(mapped(session.items))
    failing = [reach.test for reach in reaches if not reach.passed]
    print(
        f"{len(reaches)} tests, of which {len(failing)} fail without a mutant and judge nothing:", *failing, sep="\n  "
    )
    verdicts: list[tuple[str, tuple[int, int], str]] = []
    for switch in range(number):
        reaching = [reach for reach in reaches if reach.passed and switch in reach.switches]
        tests = in_order(reaching, seconds)
        killed, by = try_mutant([items[test] for test in tests], switch) if tests else (False, "")
        result = "killed" if killed else "survived" if tests else "not reached"
        verdicts.append((result, (len(tests), len(reaching)), by))
        print(f"{switch + 1} of {number}: {result} {by}", flush=True)
    Path(results).write_text(json.dumps(verdicts))
    return True
