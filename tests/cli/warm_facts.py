"""Writes what a process has, for warm ranks and started ones alike."""

import json
import os
import signal
import sys

import __main__

OURS = ("PMIX_", "PMI_", "PYPMIX_")

files = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
facts = {
    "parent": os.getppid(),
    "argv": sys.argv,
    "command": sys.orig_argv[1:],
    "file": globals().get("__file__"),
    "name": __name__,
    "doc": __doc__,
    "path": sys.path,
    "main": sorted(name for name in vars(__main__) if name.startswith("__")),
    "flags": str(sys.flags),
    "folder": os.getcwd(),
    "group": os.getpgrp() == os.getpid(),
    "descriptors": sorted(os.readlink(file).partition(":")[0] for file in files if os.path.exists(file)),
    "signals": {each.name: str(signal.getsignal(each)) for each in signal.Signals},
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "standard": [
        (each.name, each.mode, each.encoding, each.errors, each.line_buffering, each.write_through, each.isatty())
        for each in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "environment": {name: text for name, text in os.environ.items() if not name.startswith(OURS)},
    "variables": sorted(name for name in os.environ if name.startswith(OURS)),
    "threads": len(os.listdir("/proc/self/task")),
}
print(json.dumps(facts))
