"""`pypmix compat`: run, check and serve programs that were written for the official binding."""

from __future__ import annotations

import sys

from pypmix.cli.usage import USAGE
from pypmix.compat import loader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def is_program(words: Sequence[str]) -> bool:
    """Return True if the command line after `compat` names a program to run, and not another action."""
    return bool(words) and (words[0] == "-m" or not words[0].startswith("-"))


def run_program(words: Sequence[str]) -> None:
    """Run a program, whose name and arguments stand after `compat`."""
    loader.run(words)


def compat(scripts: Sequence[str], install: bool, uninstall: bool, check: bool) -> int:
    """Check scripts, install or uninstall; returns the exit code."""
    if install + uninstall + check != 1 or bool(scripts) != check:
        print(
            "pypmix compat: name a script to run, or one of --check SCRIPT..., --install, --uninstall", file=sys.stderr
        )
        return USAGE
    if check:
        from pypmix.compat.check import main

        return main(list(scripts))
    try:
        if install:
            print(f"`import pmix` is pypmix.compat now: {loader.install()}")
        else:
            removed = loader.uninstall()
            print(f"removed {removed}" if removed else "nothing was installed")
    except (loader.ForeignModule, OSError) as error:
        print(f"pypmix compat: {error}", file=sys.stderr)
        return 1
    return 0
