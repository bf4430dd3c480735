"""Connecting procs of different jobs."""

from __future__ import annotations

from pypmix.standard.ops.core import Op
from pypmix.standard.record import Record
from pypmix.standard.types import Info, Proc

CONNECT_ASSIGN = "pypmix.conn.nspace"
"""A connect: the caller supports an nspace of the connection."""

CONNECT_ID = "pypmix.conn.id"
"""A connect: its id among connects of the same procs; also in its events."""

CONNECT_NOTIFY_EACH = "pypmix.conn.each"
"""A connect or disconnect: the participants receive an event for each proc that joins."""

CONNECT_NOTIFY_REQ = "pypmix.conn.req"
"""A connect: the other procs receive an event that requests them to join."""

CONNECT_OPTIONAL = "pypmix.conn.opt"
"""A connect: procs that exit without joining are left out."""

CONNECT_EARLY_TERM = "pypmix.conn.early"
"""A connect: members may end without a disconnect."""

CONNECT_XCHG_ONLY = "pypmix.conn.xchg"
"""A connect: only exchange job info, without an nspace."""

CONNECT_NAME = "pypmix.conn.name"
"""An event: the nspace of the connection."""

CONNECT_PROCS = "pypmix.conn.procs"
"""An event: all expected participants."""

CONNECT_TOKEN = "pypmix.conn.token"
"""A connect by a library, which returns no nspace: the token with which its caller queries it afterwards."""

CONNECT_MADE = "pypmix.conn.made"
"""A query: the connection that the connect of a token has made."""


class Connected(Record):
    """The result of a connect. Engines return it, and a host that assigns an nspace replies it to a `Connect`.

    Args:
        nspace: The nspace of the participants; empty if none was assigned.
        procs: The participants, in the order of their ranks in the nspace.
        foreign: The nspaces whose job info was received; a host leaves it empty.
        directives: The flags that participants of any server have set (`CONNECT_EARLY_TERM`, `CONNECT_NOTIFY_EACH`),
            for the server of the host; engines leave it empty.
    """

    nspace: str = ""
    procs: tuple[Proc, ...] = ()
    foreign: tuple[str, ...] = ()
    directives: tuple[Info, ...] = ()


class Connect(Op[Connected]):
    """`PMIx_Connect`: treat procs as one application; all of them call it. Also an upcall.

    When it completes, the caller has the job info of the others' nspaces. Understood directives: `attrs.TIMEOUT`, and
    between processes with pypmix the `CONNECT_*` keys of this module. A host that is asked for an nspace
    (`CONNECT_ASSIGN`) replies `Connected`, or None to assign none.
    """

    procs: tuple[Proc, ...]
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not self.procs:
            raise ValueError("there are no procs")


class Disconnect(Op[None]):
    """`PMIx_Disconnect`: end a connection, by its procs or its nspace; all call it. Also an upcall.

    Understood directive: `attrs.TIMEOUT`.
    """

    procs: tuple[Proc, ...]
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not self.procs:
            raise ValueError("there are no procs")
