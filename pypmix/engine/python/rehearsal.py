"""A server that clients can be opened and finalized with before ranks are forked, to warm up the interpreter.

Functions that have run are specialised, attributes are in the type cache, symbols of libraries are bound. Otherwise
each rank would repeat that on its own copy of the pages.
"""

from __future__ import annotations

import _socket

from pypmix._version import __version__
from pypmix.engine.peeruid import check_server
from pypmix.engine.python import session, transport
from pypmix.engine.python.transport import Connection
from pypmix.standard import codes, statuses
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.releases import NEWEST, release_text
from pypmix.standard.types import Proc
from pypmix.wire.codec import PLAIN, Packer
from pypmix.wire.frames import TAG_DYNAMIC, frame
from pypmix.wire.handshake import encode_reply
from pypmix.wire.jobinfo import encode_jobinfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from pypmix.engine.python.client import Client
    from pypmix.engine.python.session import Dial

_PROC = Proc("rehearsal@1", 0)
_SERVER = "rehearsal@0"

ENVIRONMENT = {
    "PMIX_NAMESPACE": _PROC.nspace,
    "PMIX_RANK": str(_PROC.rank),
    "PMIX_SERVER_URI41": f"{_SERVER}.0;tcp4://127.0.0.1:1",
    "PMIX_VERSION": release_text(NEWEST),
    "PMIX_SECURITY_MODE": "native",
    "PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_NON_DESC",
    "PMIX_GDS_MODULE": "hash",
    "PMIX_HOSTNAME": "localhost",
    "PYPMIX_SERVER": f"{_SERVER} {__version__}",
    "PYPMIX_SERVER_ENGINE": "python",
    "PYPMIX_ENGINE": "auto",
}
"""The environment of a client that is to be opened."""


class Rehearsal:
    """Replaces the server in `ENVIRONMENT` while clients open in this process, one after the other.

    The answers wait in a client's socket before its requests. So no other process or thread is needed, and the client
    uses the same modules as with a server.
    """

    def __init__(self) -> None:
        self._job = encode_reply(statuses.SUCCESS, 0) + frame(0, TAG_DYNAMIC + 1, encode_jobinfo(_job(), PLAIN, NEWEST))
        self._farewell = frame(0, TAG_DYNAMIC + 2, Packer(PLAIN, NEWEST).pack(codes.STATUS, statuses.SUCCESS).bytes())
        self._other = _socket.socket()
        self._dialer = session.dialer

    def __enter__(self) -> Self:
        session.dialer = self._make_dial
        return self

    def __exit__(self, *_: object) -> None:
        session.dialer = self._dialer
        self._other.close()

    def _make_dial(self, env: Mapping[str, str], name: str, address: str) -> Dial:
        self._dialer(env, name, address)
        # This fails, and uses the same functions as a connection to a server.
        transport.connect_local("/")

        def dial(machine: Client) -> Connection:
            self._other.close()
            ours, self._other = _socket.socketpair()
            check_server(ours, _SERVER, ())
            self._other.send(self._job)
            return Connection(ours, machine)

        return dial

    def finish(self) -> None:
        """Let the open client finalize."""
        self._other.send(self._farewell)
        self._other.shutdown(_socket.SHUT_WR)


def _job() -> JobInfo:
    """Return a job with info about more procs than the caller."""
    job = session.lone_job(_PROC, "localhost")
    ((_, own),) = job.procs
    return JobInfo(job.nspace, job.job, job.nodes, job.apps, (), ((0, own), (1, own)))
