"""Connect and disconnect as calls of the library."""

from __future__ import annotations

from pypmix.engine.native._ffi import lib
from pypmix.engine.native.asking import Asking, Row
from pypmix.engine.native.quirks import TIMEOUT
from pypmix.standard import codes
from pypmix.standard.errors import ERR_NOT_SUPPORTED, ERR_TIMEOUT
from pypmix.standard.ops import Connect, Disconnect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pypmix.standard.types import Info

SPINNING = (4, 2, 0), (6, 0, 0)
"""Releases, from and before, of servers that are told of no timeout.

Each caller's timeout starts the same timer anew, which ruins their list of timers: they spin for ever after that, or
hang in their own finalize.
"""

_FAILURES = {
    ERR_NOT_SUPPORTED: "the server's host does not offer it",
    ERR_TIMEOUT: "not all procs took part in time",
}


def _procs(topic: Asking, op: Any, given: Any) -> None:
    topic.marshal.fill(given.items, codes.PROC, op.procs)


class Topic(Asking):
    """These operations of one session."""

    def directives(self, op: Any) -> tuple[Info, ...]:
        """Return the infos that go with an operation; the engine itself ends one whose time is over."""
        floor, end = SPINNING
        given: tuple[Info, ...] = op.directives
        if floor <= self.session.server_release < end:
            return tuple([info for info in given if info.key != TIMEOUT])
        return given

    rows: Mapping[type, Row] = {
        Connect: Row(lib.PYPMIX_CONNECT, _procs, failures=_FAILURES),
        Disconnect: Row(lib.PYPMIX_DISCONNECT, _procs, failures=_FAILURES),
    }
