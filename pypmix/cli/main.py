"""The entry point: starts `run` and programs of `compat` before the other commands are imported."""

from __future__ import annotations

import gc
import os
import sys

from pypmix.host.signals import outlive, signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Carry out a `pypmix` command line and exit with its code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until a job runs, Ctrl-C ends this as it ends any command: without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments and arguments[0] == "run":
        # Imported modules stay: to look through them for garbage would only cost time.
        gc.disable()
        outlive()
        from pypmix.cli.run import run

        code = run(arguments[1:])
        # The job has ended and all of it is closed. Taking the interpreter apart as well would cost some 5 ms.
        os._exit(code)
    if arguments and arguments[0] == "session":
        from pypmix.cli.session import session

        sys.exit(session(arguments[1:]))
    if arguments == ["node"]:
        gc.disable()
        from pypmix.host.daemon import main as serve

        os._exit(serve())
    if arguments == ["relay"]:
        outlive()
        from pypmix.host.rosters.relay import main as relay

        os._exit(relay())
    if arguments and arguments[0] == "compat":
        from pypmix.extras.commands.compat import is_program, run_program

        if is_program(arguments[1:]):
            run_program(arguments[1:])
            sys.exit(0)
    from pypmix.cli.app import app

    sys.exit(app(arguments))
