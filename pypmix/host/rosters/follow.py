"""`python -m pypmix.host.rosters.follow VARIABLE`: a process that a resource manager has started to become a daemon.

It reads one line of JSON from its standard input, or from a variable: the launcher's addresses, a secret, and the
number of processes that meet. Its argument names the environment variable with its own number.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from pypmix._version import __version__
from pypmix.host.addresses import own_addresses
from pypmix.host.nodes import usable_cpus
from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.meet import Hello, follow, serve
from pypmix.host.rosters.proof import Secret
from pypmix.host.signals import outlive

NAMES = ("SLURMD_NODENAME", "PMIX_HOSTNAME")
"""Environment variables in which resource managers store the name of the node."""


TOLD = "PYPMIX_FOLLOW"
"""The variable with the line, if standard input does not reach all processes; child processes must not inherit it."""


def line_for(near: str, port: int, common: bytes, followers: int, patience: float) -> str:
    """Return the line for the processes.

    Args:
        near: One of the nodes: processes dial this machine's addresses that lead there.
        port: The port on which the launcher listens.
        common: The secret.
        followers: The number of processes, without the launcher.
        patience: Seconds that the processes have to meet.
    """
    meet = [[host, port] for host in own_addresses(near)]
    return json.dumps({"meet": meet, "secret": common.hex(), "size": followers + 1, "patience": patience})


def main(variable: str) -> int:
    """Meet the launcher, and become the daemon of this node."""
    outlive()
    node = next((os.environ[name] for name in NAMES if name in os.environ), socket.gethostname())
    try:
        told = json.loads(os.environ.pop(TOLD, "") or sys.stdin.buffer.readline())
        hello = Hello(int(os.environ[variable]) + 1, told["size"], node, __version__, usable_cpus())
        addresses = [(str(host), int(port)) for host, port in told["meet"]]
        proof = Secret(bytes.fromhex(told["secret"]))
        line, connection = follow(addresses, hello, proof, time.monotonic() + told["patience"])
    except RosterError as error:
        print(f"pypmix on {node}: {error}", file=sys.stderr)
        return 1
    except (ValueError, KeyError, TypeError) as error:
        print(f"pypmix on {node}: the launcher's line cannot be read: {error!r}", file=sys.stderr)
        return 1
    return serve(line, connection)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
