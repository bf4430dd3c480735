"""`python -m pypmix.host.rosters.follow VARIABLE`: a process that a resource manager has started to become a daemon.

It reads one line of JSON from its standard input: where the launcher listens, a secret, and how many processes meet.
Its own number is in the variable of the environment that its argument names. Where that is its rank in a PMIx job, only
rank 0 has a standard input, and tells the others by a fence.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from pypmix._version import __version__
from pypmix.host.nodes import usable_cpus
from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.meet import Hello, follow, serve
from pypmix.host.rosters.proof import Secret
from pypmix.standard.errors import PMIxError

NAMES = ("SLURMD_NODENAME", "PMIX_HOSTNAME")
"""Variables in which resource managers tell the name of the node."""


RANK = "PMIX_RANK"
TOLD = "pypmix.told"

PATIENCE = 60.0
"""Seconds for all procs of a PMIx job to come."""


def _shared() -> bytes:
    """Return the line that rank 0 of this PMIx job reads."""
    from pypmix.client import Client

    with Client(engine="python") as me:
        if me.rank == 0:
            me.put(TOLD, sys.stdin.buffer.readline())
        me.fence(collect=True, timeout=PATIENCE)
        return bytes(me.get(TOLD, proc=me.job[0]))


def main(variable: str) -> int:
    """Meet the launcher, and become the daemon of this node."""
    node = next((os.environ[name] for name in NAMES if name in os.environ), socket.gethostname())
    try:
        told = json.loads(_shared() if variable == RANK else sys.stdin.buffer.readline())
        hello = Hello(int(os.environ[variable]) + 1, told["size"], node, __version__, usable_cpus())
        addresses = [(str(host), int(port)) for host, port in told["meet"]]
        proof = Secret(bytes.fromhex(told["secret"]))
        line, connection = follow(addresses, hello, proof, time.monotonic() + told["patience"])
    except (RosterError, PMIxError) as error:
        print(f"pypmix on {node}: {error}", file=sys.stderr)
        return 1
    except (ValueError, KeyError, TypeError) as error:
        print(f"pypmix on {node}: the launcher's line cannot be read: {error!r}", file=sys.stderr)
        return 1
    return serve(line, connection)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
