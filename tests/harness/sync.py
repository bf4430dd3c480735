"""What scenarios use besides pypmix, in the form that blocks; `harness.aio` is the same to be awaited."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pypmix import Client

__all__ = ["Client", "hear", "psets", "sleep", "tell", "together"]

sleep = time.sleep


def _mark(name: str) -> Path:
    return Path(os.environ["PYPMIX_TEST_MARKS"]) / name


def write(name: str, text: str) -> None:
    mark = _mark(name)
    draft = mark.with_name(f".{name}.{os.getpid()}")
    draft.write_text(text)
    draft.rename(mark)


def read(name: str, deadline: float) -> str | None:
    """Return what was told under a name, None if nothing yet; `AssertionError` past the deadline."""
    mark = _mark(name)
    if mark.exists():
        return mark.read_text()
    if time.monotonic() > deadline:
        raise AssertionError(f"nobody told {name!r} in time")
    return None


def psets(me):
    """Return the process sets that the client's server knows, which is a property here and a method there."""
    return me.psets


def tell(name: str, text: str = "") -> None:
    """Let the other ranks, and the test, know that this point has been reached; goes around PMIx."""
    write(name, text)


def hear(name: str, seconds: float = 10.0) -> str:
    """Wait until somebody has told `name`, and return the text."""
    deadline = time.monotonic() + seconds
    while (text := read(name, deadline)) is None:
        time.sleep(0.002)
    return text


def together(*calls):
    """Make calls at the same time, and return what each returned or raised."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(calls)) as pool:
        begun = [pool.submit(call) for call in calls]
    return [each.exception() or each.result() for each in begun]
