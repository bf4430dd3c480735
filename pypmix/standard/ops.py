"""Every operation of PMIx as data: what a client can ask, and what a server asks of its host.

An engine's session takes these objects (`Session.submit`, `Session.run`), a host is handed them (`Upcall`). They are
checked when they are made, so that a mistake is an error at the call and no engine sees it.
"""

from __future__ import annotations

from pypmix.standard import types
from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.record import Record, RecordType
from pypmix.standard.types import Info, Pdata, Proc, Value, check_name

R = TypeVar("R", covariant=True)

SCOPE_LOCAL = 1
SCOPE_REMOTE = 2
SCOPE_GLOBAL = 3
SCOPE_INTERNAL = 4

RESERVED_PREFIX = "pmix"

RANGE_SESSION = 4
RANGE_CUSTOM = 6
RANGES = range(1, 8)
"""What data can be published to: `Range.RM` to `Range.PROC_LOCAL`."""

PERSIST_FIRST_READ = 1
PERSIST_PROC = 2
PERSIST_APP = 3
PERSISTENCES = range(5)
"""How long published data can last: `Persist.INDEF` to `Persist.SESSION`."""


class Op(Record, Generic[R], metaclass=RecordType):
    """Base of all operations; the type parameter is what the operation returns."""

    @property
    def name(self) -> str:
        """The operation's name as users call it, such as `fence`."""
        return type(self).__name__.lower()


def _key(key: str) -> None:
    check_name(key, types.MAX_KEYLEN, "a key")
    if not key:
        raise ValueError("a key must not be empty")


def _instances(name: str, items: object, kind: type) -> None:
    if not isinstance(items, tuple):
        raise TypeError(f"{name} must be a tuple, not {type(items).__name__}")
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{name} must hold {kind.__name__}s, not {type(item).__name__}")


class Put(Op[None]):
    """`PMIx_Put`: keep a value for the next commit.

    Keys that start with `pmix` belong to the Standard; the library keeps them to itself.
    """

    key: str
    value: Value
    scope: int = SCOPE_GLOBAL

    def __validate__(self) -> None:
        _key(self.key)
        if not isinstance(self.value, Value):
            raise TypeError(f"the value of {self.key!r} must be a Value, not {type(self.value).__name__}")
        if self.scope not in (SCOPE_LOCAL, SCOPE_REMOTE, SCOPE_GLOBAL, SCOPE_INTERNAL):
            raise ValueError(f"{self.scope!r} is no scope to put with: LOCAL, REMOTE, GLOBAL or INTERNAL")


class Commit(Op[None]):
    """`PMIx_Commit`: send the values that were put since the last one to the server."""


class Fence(Op[None]):
    """`PMIx_Fence`: wait until all procs have called it, and with `collect` exchange what they committed.

    No procs means all of the caller's nspace.
    """

    procs: tuple[Proc, ...] = ()
    collect: bool = False
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        _instances("procs", self.procs, Proc)
        _instances("directives", self.directives, Info)


class Get(Op[Value]):
    """`PMIx_Get`: the value that a proc put under a key, or what the job info says under it.

    Understood directives: `attrs.IMMEDIATE`, `attrs.OPTIONAL`, `attrs.TIMEOUT`, `attrs.DATA_SCOPE`,
    `attrs.GET_REFRESH_CACHE`, `attrs.NODE_INFO`, `attrs.APP_INFO`, `attrs.SESSION_INFO`, with `attrs.HOSTNAME`,
    `attrs.NODEID`, `attrs.APPNUM` and `attrs.SESSION_ID` to name which, and qualifiers.
    """

    proc: Proc
    key: str
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        _key(self.key)
        if not isinstance(self.proc, Proc):
            raise TypeError(f"get needs a Proc, not {type(self.proc).__name__}")
        _instances("directives", self.directives, Info)


def _published_key(key: str) -> None:
    _key(key)
    if key.startswith(RESERVED_PREFIX):
        raise ValueError(f"{key!r} starts with {RESERVED_PREFIX!r}: such keys are the Standard's and not published")


def _keys(keys: object) -> None:
    if not isinstance(keys, tuple):
        raise TypeError(f"keys must be a tuple, not {type(keys).__name__}")
    for key in keys:
        _published_key(key)
    if len(set(keys)) != len(keys):
        raise ValueError("a key is named twice")


class Publish(Op[None]):
    """`PMIx_Publish`: make values known to others under keys, independent of put and commit. Also an upcall.

    Understood directives: `attrs.TIMEOUT`, `attrs.ACCESS_PERMISSIONS`, and with `Range.CUSTOM` the procs in
    `attrs.EVENT_CUSTOM_RANGE`.
    """

    infos: tuple[Info, ...]
    range: int = RANGE_SESSION
    persistence: int = PERSIST_APP
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        _instances("infos", self.infos, Info)
        if not self.infos:
            raise ValueError("there is nothing to publish")
        _keys(tuple([info.key for info in self.infos]))
        if self.range not in RANGES:
            raise ValueError(f"{self.range!r} is no range to publish to")
        if self.persistence not in PERSISTENCES:
            raise ValueError(f"{self.persistence!r} is no persistence to publish with")
        _instances("directives", self.directives, Info)


class Lookup(Op[tuple[Pdata, ...]]):
    """`PMIx_Lookup`: what was published under keys, as far as the caller may see it. Also an upcall.

    The result is what was found, which may be less than all; where nothing was found, that is an error.
    Understood directives: `attrs.WAIT`, `attrs.TIMEOUT`, `attrs.RANGE`.
    """

    keys: tuple[str, ...]
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        _keys(self.keys)
        if not self.keys:
            raise ValueError("there is no key to look up")
        _instances("directives", self.directives, Info)


class Unpublish(Op[None]):
    """`PMIx_Unpublish`: take back what the caller published, all of it if no keys are named. Also an upcall.

    Understood directives: `attrs.RANGE`, `attrs.TIMEOUT`.
    """

    keys: tuple[str, ...] = ()
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        _keys(self.keys)
        _instances("directives", self.directives, Info)


class Abort(Op[None]):
    """`PMIx_Abort`: ask the host to end procs, all of the caller's nspace if none are named."""

    code: int
    message: str = ""
    procs: tuple[Proc, ...] = ()

    def __validate__(self) -> None:
        if not isinstance(self.code, int) or not -(2**31) <= self.code < 2**31:
            raise ValueError(f"an abort status is a 32-bit int, not {self.code!r}")
        if "\0" in self.message:
            raise ValueError("an abort message must not contain a NUL character")
        _instances("procs", self.procs, Proc)


class Finalize(Op[None]):
    """`PMIx_Finalize`: tell the server that this process is done.

    Understood directive: `attrs.EMBED_BARRIER`, a fence of the nspace before.
    """

    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        _instances("directives", self.directives, Info)


class ClientConnected(Op[None]):
    """Upcall `client_connected2`: a client has connected; an error refuses it."""

    proc: Proc
    pid: int | None = None
    release: str = ""
    directives: tuple[Info, ...] = ()


class ClientFinalized(Op[None]):
    """Upcall `client_finalized`: a client has called finalize."""

    proc: Proc


class ClientLost(Op[None]):
    """A client's connection ended without finalize; natives tell their hosts by an event, not an upcall."""

    proc: Proc


class ClientAborted(Op[None]):
    """Upcall `abort`: a client asks to end procs; none named means all of its nspace."""

    proc: Proc
    code: int
    message: str
    targets: tuple[Proc, ...] = ()
