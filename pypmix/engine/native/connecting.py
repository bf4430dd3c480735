"""Connect and disconnect as calls of the library."""

from __future__ import annotations

import os
from functools import partial

from pypmix.engine.connects import check_caller, id_of, understood
from pypmix.engine.groups.talk import found, listed
from pypmix.engine.native._ffi import lib
from pypmix.engine.native.asking import Asking, Row, items
from pypmix.engine.native.connection import NO_LIMIT
from pypmix.engine.native.groupport import has_own_server, own_named
from pypmix.engine.native.queries import QueriesTopic
from pypmix.engine.native.quirks import deadline
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.ops import Connect, Connected, Disconnect, QueryInfo
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_MADE,
    CONNECT_NAME,
    CONNECT_PROCS,
    CONNECT_TOKEN,
)
from pypmix.standard.ops.events import is_set
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Query, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.native.asking import Steps
    from pypmix.engine.native.connection import Connection

SPINNING = (4, 2, 0), (6, 0, 0)
"""The first release of servers that must not get a timeout, and the first later release that may.

Each caller's timeout restarts the same timer, which corrupts the server's list of timers: the server then spins for
ever, or hangs in its finalize.
"""

_FAILURES = {
    statuses.ERR_NOT_SUPPORTED: "the server's host does not offer it",
    statuses.ERR_TIMEOUT: "not all procs took part in time",
    statuses.ERR_PARTIAL_SUCCESS: "it ended without some of the procs",
    statuses.ERR_LOST_CONNECTION: "a participant has lost its connection to its server",
    statuses.ERR_NOT_FOUND: "the server knows no such connection, or not all of the procs",
}


class ConnectingTopic(Asking):
    """These operations of one session."""

    rows: Mapping[type, Row] = {
        Connect: Row(lib.PYPMIX_CONNECT, items(codes.PROC, "procs"), failures=_FAILURES, collective=True),
        Disconnect: Row(lib.PYPMIX_DISCONNECT, items(codes.PROC, "procs"), failures=_FAILURES, collective=True),
    }

    def __init__(self, session: Connection) -> None:
        super().__init__(session)
        self._queries = QueriesTopic(session)
        self._assigns = has_own_server(session)

    def directives(self, op: Any) -> tuple[Info, ...]:
        """Return the infos of an operation for the library; the engine itself applies the time limit."""
        floor, end = SPINNING
        given: tuple[Info, ...] = op.directives
        if floor <= self.session.server_release < end:
            return tuple([info for info in given if info.key != keys.TIMEOUT])
        return given

    def run(self, op: Any) -> Any:
        """Carry out an operation, wait for its end, and return its result."""
        return self.session.wait_for(op, self.submit)

    def submit(self, op: Any, done: Done[Any]) -> None:
        """Start an operation; `done` is called with its end."""
        named = own_named(self.session, op.procs)
        self.session.collectives.submit(op, named, done, partial(super().submit, op), deadline(op.directives))

    def limit(self, op: Any) -> float:
        # The library's request may outlast its caller.
        return NO_LIMIT

    def steps(self, op: Any) -> Steps:
        asked = self._adapt(op)
        yield from super().steps(asked)
        infos: tuple[Info, ...] = ()
        question = _question(asked)
        if question is not None:
            try:
                infos = yield from self._queries.steps(question)
            except NotFound:
                pass
        return self._made(op, infos)

    def _adapt(self, op: Any) -> Any:
        """Return an operation for the library; a connect that requests an nspace gets a token.

        The token identifies the connect in the query for its nspace, since the library does not return the nspace.

        Raises:
            NotSupported: The server does not know a directive.
            NotFound: A disconnect from procs that this process is not connected to; releases report it differently.
        """
        session = self.session
        op = op.replace(procs=own_named(session, op.procs))
        if not self._assigns and not session.singleton:
            try:
                op = op.replace(directives=understood(op.directives))
                check_caller(session.proc, op)
            except PMIxError as error:
                error.procs = op.procs
                raise
        if type(op) is Disconnect and self._assigns and all(proc[0] != session.proc[0] for proc in op.procs):
            raise session.failed(op.name, statuses.ERR_NOT_FOUND, _FAILURES[statuses.ERR_NOT_FOUND], op.procs)
        if type(op) is not Connect or not self._assigns or not is_set(op.directives, CONNECT_ASSIGN):
            return op
        token = Info(CONNECT_TOKEN, Value(codes.UINT64, int.from_bytes(os.urandom(8), "big")))
        return op.replace(directives=(*op.directives, token))

    def _made(self, op: Any, infos: tuple[Info, ...]) -> Connected | None:
        """Return the result of an operation, and note the procs that its nspace stands for."""
        session = self.session
        if type(op) is Disconnect:
            if session.groups is not None:
                stamps = [info.value.data for info in op.directives if info.key == keys.GROUP_ID]
                whole = (Proc(stamps[0], RANK_WILDCARD),) if stamps else op.procs
                session.groups.addresses.disconnected(whole, id_of(op.directives))
            return None
        made = found(infos, CONNECT_MADE, DataArray)
        infos = made.items if made is not None and made.type == codes.INFO else ()
        nspace, procs = found(infos, CONNECT_NAME, str) or "", listed(infos, CONNECT_PROCS) or op.procs
        if nspace:
            session.with_groups().addresses.connected(nspace, procs, id_of(op.directives))
        foreign = dict.fromkeys([proc.nspace for proc in procs if proc.nspace != session.proc.nspace])
        return Connected(nspace, procs, tuple(foreign))


def _question(op: Any) -> QueryInfo | None:
    """Return the query for the nspace that a connect was assigned; None if the connect did not request an nspace."""
    token = next((info for info in op.directives if info.key == CONNECT_TOKEN), None)
    return None if token is None else QueryInfo((Query((CONNECT_MADE,), (token,)),))
