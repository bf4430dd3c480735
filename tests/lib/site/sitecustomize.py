"""Run at the start of every Python process of a test's job: a signal makes it write the stacks of its threads."""

import os

_folder = os.environ.get("PYPMIX_TEST_STACKS")
if _folder:
    import faulthandler
    import signal

    _file = open(os.path.join(_folder, str(os.getpid())), "a")  # noqa: SIM115 - faulthandler needs it for ever
    faulthandler.register(signal.SIGRTMIN + 7, file=_file, all_threads=True)
