"""What scenarios use besides pypmix, in the form that blocks; `lib.aio` is the same to be awaited."""

from __future__ import annotations

import os
import threading
import time

from pypmix import Client

__all__ = ["Client", "hear", "psets", "sleep", "tell", "together"]

sleep = time.sleep


def _mark(name: str) -> str:
    return os.path.join(os.environ["PYPMIX_TEST_MARKS"], name)


def write(name: str, text: str) -> None:
    draft = _mark(f".{name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(draft, _mark(name))


def read(name: str, deadline: float) -> str | None:
    """Return what was told under a name, None if nothing yet; `AssertionError` past the deadline."""
    try:
        with open(_mark(name), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        if time.monotonic() > deadline:
            raise AssertionError(f"nobody told {name!r} in time") from None
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
    found = [None] * len(calls)

    def make(number: int) -> None:
        try:
            found[number] = calls[number]()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=make, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
