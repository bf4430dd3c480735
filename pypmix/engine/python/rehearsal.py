"""A client without a server, opened and finalized before ranks are forked to warm up the interpreter.

Functions that have run are specialised, attributes are in the type cache, symbols of libraries are bound. Otherwise
each rank would repeat that on its own copy of the pages. The other end of the connection answers like a server of this
engine.
"""

from __future__ import annotations

import _socket

from pypmix._version import __version__
from pypmix.engine.peeruid import check_server
from pypmix.engine.python.session import lone_job, open_client
from pypmix.engine.python.transport import Connection
from pypmix.standard import codes, statuses
from pypmix.standard.releases import release_text
from pypmix.standard.types import Proc
from pypmix.wire.codec import PLAIN, Packer
from pypmix.wire.frames import TAG_DYNAMIC, frame
from pypmix.wire.handshake import encode_reply
from pypmix.wire.jobinfo import encode_jobinfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pypmix.engine.base import ClientSession
    from pypmix.engine.python.client import Client
    from pypmix.standard.types import Info

_PROC = Proc("rehearsal@1", 0)
_SERVER = "rehearsal@0"
_RELEASE = (7, 0, 0)

ENVIRONMENT = {
    "PMIX_NAMESPACE": _PROC.nspace,
    "PMIX_RANK": str(_PROC.rank),
    "PMIX_SERVER_URI41": f"{_SERVER}.0;tcp4://127.0.0.1:1",
    "PMIX_VERSION": release_text(_RELEASE),
    "PMIX_SECURITY_MODE": "native",
    "PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_NON_DESC",
    "PMIX_GDS_MODULE": "hash",
    "PMIX_HOSTNAME": "localhost",
    "PYPMIX_SERVER": f"{_SERVER} {__version__}",
    "PYPMIX_SERVER_ENGINE": "python",
    "PYPMIX_ENGINE": "auto",
}
"""The environment of a client that is to be opened by `open_rehearsal`."""


def open_rehearsal(env: Mapping[str, str], directives: tuple[Info, ...]) -> ClientSession:
    """Open a client of the job in `ENVIRONMENT`."""
    return open_client(env, directives, dial=_dial)


class _Answered(_socket.socket):
    """An end of a socket pair that has what is sent answered: a hello, and a finalize."""

    answers: list[bytes]
    other: _socket.socket

    def send(self, data: bytes, *flags: int) -> int:  # type: ignore[override]
        sent = super().send(data, *flags)
        self.other.send(self.answers.pop(0))
        if not self.answers:
            self.other.close()
        return sent


def _dial(machine: Client) -> Connection:
    ours, theirs = _socket.socketpair()
    check_server(ours, _SERVER, ())
    connection = _Answered(fileno=ours.detach())
    job = encode_jobinfo(lone_job(_PROC, "localhost"), PLAIN, _RELEASE)
    success = Packer(PLAIN, _RELEASE).pack(codes.STATUS, statuses.SUCCESS).bytes()
    connection.answers = [
        encode_reply(statuses.SUCCESS, 0) + frame(0, TAG_DYNAMIC + 1, job), frame(0, TAG_DYNAMIC + 2, success)
    ]  # fmt: skip
    connection.other = theirs
    return Connection(connection, machine)
