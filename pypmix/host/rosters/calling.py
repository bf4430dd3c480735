"""`python -m pypmix.host.rosters.calling`: a rank that calls a Python function, and gives back what that returns.

The process of the engine that has started the daemon of this node gives it the function (`pypmix.host.rosters.agent`).
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback

from pypmix.host.rosters.agent import CALL, peer_uid, receive, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main() -> int:
    """Call the function; return 0 if it has returned, and 1 if it has raised an exception."""
    import cloudpickle

    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + os.environ[CALL])
        if peer_uid(connection) != os.geteuid():
            print("pypmix: what hands out functions here belongs to another user", file=sys.stderr)
            return 1
        code, result = _carry_out(receive(connection))
        try:
            data = cloudpickle.dumps(result)
        except Exception as error:
            code, data = 1, cloudpickle.dumps((False, None, _told(error), time.time()))
        number = int(os.environ["PMIX_RANK"])
        send(connection, number.to_bytes(4, "big"))
        send(connection, data)
    return code


def _carry_out(data: bytes) -> tuple[int, tuple[bool, Any, str, float]]:
    """Return the exit code; and whether the function has returned, what, or which exception it has raised and when."""
    import cloudpickle

    try:
        function, arguments, keywords = cloudpickle.loads(data)
        return 0, (True, function(*arguments, **keywords), "", time.time())
    except Exception as error:
        told = _told(error)
        try:
            cloudpickle.loads(cloudpickle.dumps(error))
        except Exception:
            return 1, (False, None, told, time.time())
        return 1, (False, error.with_traceback(None), told, time.time())


def _told(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


if __name__ == "__main__":
    sys.exit(main())
