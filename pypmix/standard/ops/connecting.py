"""Connecting procs of different jobs."""

from __future__ import annotations

from pypmix.standard.ops.core import Op
from pypmix.standard.record import Record
from pypmix.standard.types import Info, Proc

CONNECT_ASSIGN = "pypmix.conn.nspace"
"""A connect: the caller understands an nspace of the connection's own."""

CONNECT_ID = "pypmix.conn.id"
"""A connect: what tells it from another one of the same procs; in its events too."""

CONNECT_NOTIFY_EACH = "pypmix.conn.each"
"""A connect or disconnect: the participants get an event of each one that comes."""

CONNECT_NOTIFY_REQ = "pypmix.conn.req"
"""A connect: the others hear that they are asked to come."""

CONNECT_OPTIONAL = "pypmix.conn.opt"
"""A connect: who ends without coming is left out."""

CONNECT_EARLY_TERM = "pypmix.conn.early"
"""A connect: members may end without a disconnect."""

CONNECT_XCHG_ONLY = "pypmix.conn.xchg"
"""A connect: job info alone, and no nspace."""

CONNECT_NAME = "pypmix.conn.name"
"""An event: the nspace of the connection."""

CONNECT_PROCS = "pypmix.conn.procs"
"""An event: all who are to come."""

CONNECT_TOKEN = "pypmix.conn.token"
"""A connect by a library, which returns no nspace: by what its caller asks for that afterwards."""

CONNECT_MADE = "pypmix.conn.made"
"""A query: what the connect of a token has made."""


class Connected(Record):
    """The result of a connect. A host that assigns an nspace replies this to a `Connect`; engines return it.

    Args:
        nspace: The nspace that stands for the participants from now on; empty where none was assigned.
        procs: The participants; the place of each is its rank in that nspace.
        foreign: The nspaces whose job info came along; a host leaves it out.
        directives: The flags that participants of any server have set (`CONNECT_EARLY_TERM`, `CONNECT_NOTIFY_EACH`),
            for the server that its host tells them; engines leave it out.
    """

    nspace: str = ""
    procs: tuple[Proc, ...] = ()
    foreign: tuple[str, ...] = ()
    directives: tuple[Info, ...] = ()


class Connect(Op[Connected]):
    """`PMIx_Connect`: treat procs as one application; all of them call it. Also an upcall.

    When it ends, the caller holds the job info of the others' nspaces. Understood directives: `attrs.TIMEOUT`, and
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
    """`PMIx_Disconnect`: take a connect of the same procs back, or one by its nspace; all call it. Also an upcall."""

    procs: tuple[Proc, ...]
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not self.procs:
            raise ValueError("there are no procs")
