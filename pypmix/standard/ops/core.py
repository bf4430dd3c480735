"""The operations that every rank uses."""

from __future__ import annotations

from pypmix.standard import types
from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.codes import BOOL
from pypmix.standard.keys import COLLECT_DATA
from pypmix.standard.record import Record, RecordType
from pypmix.standard.types import App, Info, Proc, Query, Value, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

R = TypeVar("R", covariant=True)

SCOPE_LOCAL = 1
SCOPE_REMOTE = 2
SCOPE_GLOBAL = 3
SCOPE_INTERNAL = 4
DEL_LOCAL = 5
DEL_REMOTE = 6
DEL_GLOBAL = 7
DEL_INTERNAL = 8
DELETES = {DEL_LOCAL: SCOPE_LOCAL, DEL_REMOTE: SCOPE_REMOTE, DEL_GLOBAL: SCOPE_GLOBAL, DEL_INTERNAL: SCOPE_INTERNAL}
"""The scopes that delete a key, with the scopes of the deleted values."""
PUT_SCOPES = frozenset((SCOPE_LOCAL, SCOPE_REMOTE, SCOPE_GLOBAL, SCOPE_INTERNAL, *DELETES))

RESERVED_PREFIX = "pmix"

COLLECT = Info.unchecked(COLLECT_DATA, Value.unchecked(BOOL, True), 0)


_TUPLES: dict[str, type] = {f"tuple[{kind.__name__}, ...]": kind for kind in (App, Info, Proc, Query)}


_NAMES: dict[type, str] = {}


def _spelled(name: str) -> str:
    """Return the name of a class with underscores: `query_info` of `QueryInfo`."""
    return "".join(
        [
            "_" + c if n and c.isupper() and (name[n - 1].islower() or name[n + 1 : n + 2].islower()) else c
            for n, c in enumerate(name)
        ]
    ).lower()


class Op(Record, Generic[R], metaclass=RecordType):
    """Base of all operations; the type parameter is the type of the result.

    Fields that are declared as tuples of infos, procs, applications or queries are checked.
    """

    def __init_subclass__(cls) -> None:
        declared = cls.__declared__  # type: ignore[attr-defined]
        tuples = [(field, _TUPLES[kind]) for field, kind in declared.items() if kind in _TUPLES]
        cls.__tuples__ = tuple(tuples)  # type: ignore[attr-defined]
        if not tuples and cls.__validate__ is Op.__validate__:
            # Without checks, the constructor is faster.
            cls.__validate__ = Record.__validate__  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        """The operation's name in the Standard, such as `fence` or `query_info`."""
        kind = type(self)
        return _NAMES.get(kind) or _NAMES.setdefault(kind, _spelled(kind.__name__))

    def __validate__(self) -> None:
        for name, kind in type(self).__tuples__:  # type: ignore[attr-defined]
            items = getattr(self, name)
            if type(items) is not tuple or items:
                instances(name, items, kind)


class HostOp(Op[R]):
    """Base of the operations that only servers make, for their hosts, from checked data."""

    __validate__ = Record.__validate__


def check_key(key: str) -> None:
    check_name(key, types.MAX_KEYLEN, "a key")
    if not key:
        raise ValueError(f"{types.name_call()}a key must not be empty")


def check_scope(scope: int) -> None:
    if scope not in PUT_SCOPES:
        raise ValueError(f"{scope!r} is not a scope to put with: LOCAL, REMOTE, GLOBAL, INTERNAL or a DEL_ one")


def instances(name: str, items: object, kind: type) -> None:
    if not isinstance(items, tuple):
        raise TypeError(f"{types.name_call()}{name} must be a tuple, not {type(items).__name__}")
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{types.name_call()}{name} must hold {kind.__name__}s, not {type(item).__name__}")


def returned(result: Any, kind: type) -> tuple[Any, ...]:
    """Return the result of a host, an iterable of objects of a class or None, as a tuple."""
    items = () if result is None else tuple(result)
    instances("the answer", items, kind)
    return items


class Put(Op[None]):
    """`PMIx_Put`: keep a value, or the deletion of a key, for the next commit.

    Keys that start with `pmix` belong to the Standard, and the library does not commit them.
    """

    key: str
    value: Value
    scope: int = SCOPE_GLOBAL

    def __validate__(self) -> None:
        check_key(self.key)
        if not isinstance(self.value, Value):
            raise TypeError(f"the value of {self.key!r} must be a Value, not {type(self.value).__name__}")
        check_scope(self.scope)


class Commit(Op[None]):
    """`PMIx_Commit`: send the values since the last commit to the server."""


FENCE_PARTICIPANTS = "pypmix.fence.participants"
"""In a fence of a group, and in a query after one: the checksum of the procs that the caller expects to take part.

A server of the Python engine returns the procs that took part, or nothing if they are the expected ones.
"""


WITHDRAWAL = "pypmix.collective.withdrawal"
"""In a query: a client behind a library gives up a collective; the qualifiers have its kind and its procs.

A server of the Python engine no longer counts the caller, and answers its request with a timeout.
"""

WITHDRAWAL_KIND = "pypmix.collective.kind"
WITHDRAWAL_PROCS = "pypmix.collective.procs"


class Fence(Op["frozenset[Proc] | None"]):
    """`PMIx_Fence`: wait until all procs have called it, and with `collect` exchange their committed data.

    No procs means all of the caller's nspace. With `FENCE_PARTICIPANTS` the result is the set of the procs that took
    part, empty if they are the expected ones; it is None if the server does not report them.

    Understood directive: `attrs.TIMEOUT`.
    """

    procs: tuple[Proc, ...] = ()
    collect: bool = False
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        instances("procs", self.procs, Proc)
        instances("directives", self.directives, Info)


def collecting(directives: tuple[Info, ...]) -> tuple[Info, ...]:
    """Return the directives of a fence that exchanges data, which `PMIX_COLLECT_DATA` says once and first."""
    return (COLLECT, *[info for info in directives if info.key != COLLECT.key])


class Get(Op[Value]):
    """`PMIx_Get`: the value that a proc put under a key, or its value in the job info.

    Understood directives: `attrs.IMMEDIATE`, `attrs.OPTIONAL`, `attrs.TIMEOUT`, `attrs.DATA_SCOPE`,
    `attrs.GET_REFRESH_CACHE`, `attrs.NODE_INFO`, `attrs.APP_INFO`, `attrs.SESSION_INFO`, with `attrs.HOSTNAME`,
    `attrs.NODEID`, `attrs.APPNUM` and `attrs.SESSION_ID` to select one, and qualifiers.
    """

    proc: Proc
    key: str
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        check_key(self.key)
        if not isinstance(self.proc, Proc):
            raise TypeError(f"get needs a Proc, not {type(self.proc).__name__}")
        instances("directives", self.directives, Info)


class Abort(Op[None]):
    """`PMIx_Abort`: request the host to end procs, by default all of the caller's nspace."""

    code: int
    message: str = ""
    procs: tuple[Proc, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not isinstance(self.code, int) or not -(2**31) <= self.code < 2**31:
            raise ValueError(f"an abort status is a 32-bit int, not {self.code!r}")
        if "\0" in self.message:
            raise ValueError("an abort message must not contain a NUL character")


class Finalize(Op[None]):
    """`PMIx_Finalize`: finish the use of PMIx, and notify the server.

    Understood directive: `attrs.EMBED_BARRIER`, a fence of the nspace before.
    """

    directives: tuple[Info, ...] = ()
