"""A rank that tests a promise, or a rank of a job that was spawned by such a rank.

python -m pypmix.conformance try ENGINE CHECK WORD SECONDS    test a promise, and report with the word
python -m pypmix.conformance child ENGINE ...                 see `jobs.child`
"""

from __future__ import annotations

import asyncio
import linecache
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from pypmix import NotSupported
from pypmix.aio import Client
from pypmix.conformance import jobs
from pypmix.conformance.check import WAIT, Untestable
from pypmix.conformance.checks import CHECKS
from pypmix.reports import report

if TYPE_CHECKING:
    from pypmix.conformance.check import Check

HERE = os.path.dirname(__file__)
LONGEST = 500
"""The most characters of an error in a report, which has to fit into one write to a pipe."""

LATE = 5
"""Seconds after its time limit until a rank is killed if it cannot report where it waits."""


def client(engine: str) -> Client:
    """Make the client of a rank; with an empty engine, clients choose the engine."""
    return Client(engine=engine or None, singleton="forbid")


async def run_check(check: Check, engine: str, entry: dict[str, Any]) -> None:
    """Run the program of a check, and add its results to the report."""
    async with client(engine) as me:
        entry |= {"rank": int(me.rank), "size": me.job.size, "node": me.node.hostname, "client": str(me.engine)}
        entry["server"] = os.environ.get("PMIX_VERSION", "")
        try:
            entry["result"] = await check.program(me)
        except Untestable as reason:
            entry["untestable"] = str(reason)
        except NotSupported as error:
            entry["untestable"] = f"not supported: {_first_line(error)}"


async def test(check: Check, engine: str, seconds: float) -> dict[str, Any]:
    """Test a promise within a time limit, and return the report."""
    entry: dict[str, Any] = {"rank": int(os.environ.get("PMIX_RANK", 0))}
    task = asyncio.ensure_future(run_check(check, engine, entry))
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        entry["hangs"] = _find_line(task.get_coro())
    elif (error := task.exception()) is not None:
        entry["error"] = f"{type(error).__name__}: {_first_line(error)}"
    return entry


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:LONGEST]


def _find_line(coroutine: Any) -> str:
    """Return the line of this package in which a coroutine waits."""
    place = "its start"
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        path = frame.f_code.co_filename
        if os.path.dirname(path) == HERE and path != __file__:
            place = linecache.getline(path, frame.f_lineno).strip()
        elif path == __file__ and "client" in frame.f_locals.get("entry", ()):
            place = "the end of its client"
        coroutine = coroutine.cr_await
    return place


async def run_child(engine: str) -> None:
    """Run a rank of a spawned job."""
    async with client(engine) as me:
        await jobs.child(me)


def main(role: str, engine: str, *words: str) -> int:
    """Run a rank, and return its exit code."""
    if role == "child":
        signal.alarm(2 * WAIT)
        asyncio.run(run_child(engine))
        return 0
    name, word, seconds = words
    signal.alarm(int(float(seconds)) + LATE)
    loop = asyncio.new_event_loop()
    entry = loop.run_until_complete(test(CHECKS[name][1], engine, float(seconds)))
    report(word, entry)
    if "hangs" in entry:
        # The operation that hangs may also prevent a normal exit.
        os._exit(1)
    return 1 if "error" in entry else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
