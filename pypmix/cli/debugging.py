"""The debugger of `pypmix run --debug`: its command line, and the ranks that wait for the one under it."""

from __future__ import annotations

import os
import re
import shlex

from pypmix.cli.usage import UsageError
from pypmix.standard import keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pypmix.host.job import Application

PYTHON = re.compile(r"python[\d.]*t?")

WITH_VALUE = ("-W", "-X")
"""Options of Python that have a value in a separate word."""


def debug_terms(rank: int, command: str, apps: Sequence[Application], fill: bool) -> dict[str, Any]:
    """Return the terms of a job that has a rank under a debugger.

    Args:
        rank: The rank.
        command: The debugger's command; empty for pdb or gdb.
        apps: The applications of the job.
        fill: Whether the number of ranks is not known yet.

    Raises:
        UsageError: There is no such rank, or the command does not parse.
    """
    size, first = sum([app.np for app in apps]), 0
    if rank >= size and not fill:
        raise UsageError(f"--debug takes one of the ranks 0 to {size - 1}, not {rank}")
    for app in apps:
        first += app.np
        if rank < first:
            break
    words = debugged_words(app.argv, command)
    stops = ((keys.DEBUG_STOP_IN_INIT, ""),) if size > 1 or fill else ()
    return {"debugger": (str(rank), *words), "stops": stops}


def debugged_words(argv: Sequence[str], command: str = "") -> list[str]:
    """Return the command line that runs a program under a debugger.

    Args:
        argv: The program and its arguments.
        command: The debugger's command; empty for pdb for Python programs and gdb for others.

    Raises:
        UsageError: The command does not parse.
    """
    if command:
        try:
            return [*shlex.split(command), *argv]
        except ValueError as error:
            raise UsageError(f"--debugger {command!r:.80} does not parse: {error}") from None
    place = python_program(argv)
    if place:
        return [*argv[:place], "-m", "pdb", *argv[place:]]
    return ["gdb", "--args", *argv]


def python_program(argv: Sequence[str]) -> int:
    """Return the place of the script, or of `-m`, in a command line of Python; 0 if it does not run one."""
    if not PYTHON.fullmatch(os.path.basename(argv[0])):
        return 0
    place = 1
    while place < len(argv) and argv[place].startswith("-") and argv[place] not in ("-", "-c", "-m"):
        place += 2 if argv[place] in WITH_VALUE else 1
    return 0 if place >= len(argv) or argv[place] in ("-", "-c") else place
