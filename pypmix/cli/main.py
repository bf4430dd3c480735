"""The entry point: hands `run` over before anything slow is imported."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Carry out a `pypmix` command line and exit with its code.

    typer and rich take longer to import than `pypmix run` takes to start a small job, so that one command is
    read by a table of its own (`pypmix.cli.options`).
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until a job is under way, Ctrl-C ends this as it ends any command: without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments and arguments[0] == "run":
        from pypmix.cli.run import run

        code = run(arguments[1:])
        # The job is over and all of it is closed. To take the interpreter apart as well would cost some 5 ms.
        os._exit(code)
    if arguments and arguments[0] == "compat":
        from pypmix.cli.compat import is_program

        if is_program(arguments[1:]):
            from pypmix.compat.loader import run as run_program

            # Outside of typer, so that what the program raises is shown as Python shows it.
            run_program(arguments[1:])
            sys.exit(0)
    from pypmix.cli.app import app

    app(arguments, prog_name="pypmix")
    sys.exit(0)
