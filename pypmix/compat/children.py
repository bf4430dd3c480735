"""`import pmix` for the programs that a program starts, for as long as it runs."""

from __future__ import annotations

import os
from pathlib import Path

TOPLEVEL = Path(__file__).resolve().parent / "toplevel"
"""The folder that holds a `pmix.py`, which is `pypmix.compat`."""

VARIABLE = "PYTHONPATH"


def provide() -> None:
    """Have all Python programs that this process starts find it."""
    paths = [each for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each and each != str(TOPLEVEL)]
    os.environ[VARIABLE] = os.pathsep.join([str(TOPLEVEL), *paths])


def environment(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the environment of an application that is spawned: a host starts it, which does not know of the folder.

    Args:
        given: What the program has named, as `NAME=value`.
    """
    path = os.environ.get(VARIABLE, "")
    if str(TOPLEVEL) not in path.split(os.pathsep) or any(each.startswith(f"{VARIABLE}=") for each in given):
        return given
    return (*given, f"{VARIABLE}={path}")
