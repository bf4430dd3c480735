"""Publish, lookup and unpublish."""

from __future__ import annotations

from operator import itemgetter

from pypmix.standard.keys import PERSISTENCE, RANGE
from pypmix.standard.ops.core import RESERVED_PREFIX, Op, check_key
from pypmix.standard.types import Info, Pdata, name_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

RANGE_SESSION = 4
RANGE_CUSTOM = 6
RANGES = range(1, 8)
"""The ranges of published data: `Range.RM` to `Range.PROC_LOCAL`."""

PERSIST_FIRST_READ = 1
PERSIST_PROC = 2
PERSIST_APP = 3
PERSISTENCES = range(5)
"""The lifetimes of published data: `Persist.INDEF` to `Persist.SESSION`."""


def _published_key(key: str) -> None:
    check_key(key)
    if key.startswith(RESERVED_PREFIX):
        reason = "such keys are the Standard's and not published"
        raise ValueError(f"{name_call()}{key!r} starts with {RESERVED_PREFIX!r}: {reason}")


_KEY = itemgetter(0)
"""The key of an `Info`."""


def _keys(keys: object) -> None:
    if not isinstance(keys, tuple):
        raise TypeError(f"keys must be a tuple, not {type(keys).__name__}")
    for key in keys:
        _published_key(key)
    if len(set(keys)) != len(keys):
        raise ValueError(f"{name_call()}a key is named twice")


class Publish(Op[None]):
    """`PMIx_Publish`: publish values under keys, independent of put and commit. Also an upcall.

    Understood directives: `attrs.TIMEOUT`, `attrs.ACCESS_PERMISSIONS`, and with `Range.CUSTOM` the procs in
    `attrs.EVENT_CUSTOM_RANGE`.
    """

    infos: tuple[Info, ...]
    range: int = RANGE_SESSION
    persistence: int = PERSIST_APP
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not self.infos:
            raise ValueError("there is nothing to publish")
        _keys(tuple(map(_KEY, self.infos)))
        if self.range not in RANGES:
            raise ValueError(f"{self.range!r} is not a range to publish to")
        if self.persistence not in PERSISTENCES:
            raise ValueError(f"{self.persistence!r} is not a persistence to publish with")


def read_publish(infos: Iterable[Info]) -> Publish:
    """Return the operation of a request: its infos are the data, the terms and further directives in any order."""
    terms = {RANGE: RANGE_SESSION, PERSISTENCE: PERSIST_APP}
    data: list[Info] = []
    directives: list[Info] = []
    for info in infos:
        if info.key in terms:
            terms[info.key] = info.value.data
        else:
            (directives if info.key.startswith(RESERVED_PREFIX) else data).append(info)
    return Publish(tuple(data), terms[RANGE], terms[PERSISTENCE], tuple(directives))


class Lookup(Op[tuple[Pdata, ...]]):
    """`PMIx_Lookup`: the data published under keys that the caller may see. Also an upcall.

    The result may lack some keys; if no key was found, that is an error.
    Understood directives: `attrs.WAIT`, `attrs.TIMEOUT`, `attrs.RANGE`.
    """

    keys: tuple[str, ...]
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        _keys(self.keys)
        if not self.keys:
            raise ValueError("there is no key to look up")


class Unpublish(Op[None]):
    """`PMIx_Unpublish`: remove data that the caller published, by default all of it. Also an upcall.

    Understood directives: `attrs.RANGE`, `attrs.TIMEOUT`.
    """

    keys: tuple[str, ...] = ()
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        _keys(self.keys)
