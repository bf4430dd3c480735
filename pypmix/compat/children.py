"""`import pmix` for the child programs of a program, while it runs."""

from __future__ import annotations

import os
from pathlib import Path

TOPLEVEL = Path(__file__).resolve().parent / "toplevel"
"""The folder with a `pmix.py` that provides `pypmix.compat`."""

VARIABLE = "PYTHONPATH"


def provide() -> None:
    """Add the folder to `PYTHONPATH`, for all Python programs that this process starts."""
    paths = [each for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each and each != str(TOPLEVEL)]
    os.environ[VARIABLE] = os.pathsep.join([str(TOPLEVEL), *paths])


def environment(variables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the environment of an application to spawn, with the folder if this process has it in `PYTHONPATH`.

    The host that starts the application may lack the folder.

    Args:
        variables: The variables that the program set, as `NAME=value`.
    """
    path = os.environ.get(VARIABLE, "")
    if str(TOPLEVEL) not in path.split(os.pathsep) or any(each.startswith(f"{VARIABLE}=") for each in variables):
        return variables
    return (*variables, f"{VARIABLE}={path}")
