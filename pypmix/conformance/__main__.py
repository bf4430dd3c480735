"""A rank that tries a promise, or is of a job that such a rank has spawned.

python -m pypmix.conformance try ENGINE CHECK WORD SECONDS    try a promise, and report with the word
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
"""Characters of an error that are reported: a report has to fit into one write to a pipe."""

LATE = 5
"""Seconds after its time after which a rank ends that cannot even say where it waits."""


def client(engine: str) -> Client:
    """Return the client of a rank; an empty engine is the one that clients choose themselves."""
    return Client(engine=engine or None, singleton="forbid")


async def take_part(check: Check, engine: str, found: dict[str, Any]) -> None:
    """Run the program of a check, and note what there is to report."""
    async with client(engine) as me:
        found |= {"rank": int(me.rank), "size": me.job.size, "node": me.node.hostname, "client": str(me.engine)}
        found["server"] = os.environ.get("PMIX_VERSION", "")
        try:
            found["result"] = await check.program(me)
        except Untestable as reason:
            found["untestable"] = str(reason)
        except NotSupported as error:
            found["untestable"] = f"not supported: {_line(error)}"


async def within(check: Check, engine: str, seconds: float) -> dict[str, Any]:
    """Try a promise, and return what to report."""
    found: dict[str, Any] = {"rank": int(os.environ.get("PMIX_RANK", 0))}
    task = asyncio.ensure_future(take_part(check, engine, found))
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        found["hangs"] = _place(task.get_coro())
    elif (error := task.exception()) is not None:
        found["error"] = f"{type(error).__name__}: {_line(error)}"
    return found


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:LONGEST]


def _place(coroutine: Any) -> str:
    """Return the line of this package that a coroutine waits in."""
    place = "its start"
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        path = frame.f_code.co_filename
        if os.path.dirname(path) == HERE and path != __file__:
            place = linecache.getline(path, frame.f_lineno).strip()
        elif path == __file__ and "client" in frame.f_locals.get("found", ()):
            place = "the end of its client"
        coroutine = coroutine.cr_await
    return place


async def grow_up(engine: str) -> None:
    """Be a rank of a spawned job."""
    async with client(engine) as me:
        await jobs.child(me)


def main(role: str, engine: str, *words: str) -> int:
    """Be a rank, and return its exit code."""
    if role == "child":
        signal.alarm(2 * WAIT)
        asyncio.run(grow_up(engine))
        return 0
    name, word, seconds = words
    signal.alarm(int(float(seconds)) + LATE)
    loop = asyncio.new_event_loop()
    found = loop.run_until_complete(within(CHECKS[name][1], engine, float(seconds)))
    report(word, found)
    if "hangs" in found:
        # What it waits for may keep it from ending in good order.
        os._exit(1)
    return 1 if "error" in found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
