"""Run at the start of every Python process of a test's job: a signal makes it write the stacks of its threads."""

import os

_folder = os.environ.get("PYPMIX_TEST_STACKS")
if _folder:
    import faulthandler
    import signal

    _file = open(os.path.join(_folder, str(os.getpid())), "a")  # noqa: SIM115 - faulthandler needs it for ever
    # Launchers and daemons take the real-time signals, to pass them on.
    faulthandler.register(signal.SIGURG, file=_file, all_threads=True)
