"""Process sets: an ordered, immutable collection of procs, the sets that a server knows, and what changes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pypmix.standard import codes, keys
from pypmix.standard.errors import NotFound
from pypmix.standard.ops import QueryInfo
from pypmix.standard.record import Record
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Query, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn, Self, SupportsIndex, overload

    from pypmix.standard.ops import Get, Notification

MANY = 16
"""From how many procs on a set looks them up in a table."""


class ProcSet(tuple[Proc, ...]):
    """Procs in an order, each once: a tuple with the operators of sets, accepted wherever procs are.

    What `|`, `&`, `-` and `^` return has the order of the left operand, and behind it that of the right one; the other
    operand may be any iterable of procs, or a single proc. It is compared and hashed as the tuple that it is, so
    `issubset` and its like have no operators.

    Args:
        procs: The procs, or one; of those that come twice the first counts.
        name: The name of the process set that they are; None where they are none.
    """

    __hash__ = tuple.__hash__

    def __new__(cls, procs: Proc | Iterable[Proc] = (), name: str | None = None) -> Self:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a process set is a str, not {type(name).__name__}")
        return cls.unchecked(dict.fromkeys(_procs(procs)), name)

    @classmethod
    def unchecked(cls, procs: Iterable[Proc], name: str | None = None) -> Self:
        """Make one from procs that are known to be procs, each once, as an engine has them."""
        made = tuple.__new__(cls, procs)
        made.__dict__["name"] = name
        return made

    if TYPE_CHECKING:

        @property
        def name(self) -> str | None:
            """The name of the process set that these procs are; None where they are the result of an operator."""

        @overload
        def __getitem__(self, index: SupportsIndex) -> Proc: ...
        @overload
        def __getitem__(self, index: slice) -> ProcSet: ...
        def __getitem__(self, index: Any) -> Any: ...

    else:

        def __getitem__(self, index):
            found = tuple.__getitem__(self, index)
            return ProcSet.unchecked(found) if index.__class__ is slice else found

    def __contains__(self, proc: object) -> bool:
        return tuple.__contains__(self, proc) if len(self) < MANY else proc in self._table

    def __or__(self, other: Proc | Iterable[Proc]) -> ProcSet:
        theirs = _operand(other)
        return NotImplemented if theirs is None else ProcSet.unchecked(dict.fromkeys((*self, *theirs)))

    def __ror__(self, other: Proc | Iterable[Proc]) -> ProcSet:
        theirs = _operand(other)
        return NotImplemented if theirs is None else ProcSet.unchecked(dict.fromkeys((*theirs, *self)))

    def __and__(self, other: Proc | Iterable[Proc]) -> ProcSet:
        theirs = _operand(other)
        if theirs is None:
            return NotImplemented
        table = frozenset(theirs)
        return ProcSet.unchecked([proc for proc in self if proc in table])

    def __rand__(self, other: Proc | Iterable[Proc]) -> ProcSet:
        theirs = _operand(other)
        if theirs is None:
            return NotImplemented
        return ProcSet.unchecked(dict.fromkeys([proc for proc in theirs if proc in self]))

    def __sub__(self, other: Proc | Iterable[Proc]) -> ProcSet:
        theirs = _operand(other)
        if theirs is None:
            return NotImplemented
        table = frozenset(theirs)
        return ProcSet.unchecked([proc for proc in self if proc not in table])

    def __rsub__(self, other: Proc | Iterable[Proc]) -> ProcSet:
        theirs = _operand(other)
        if theirs is None:
            return NotImplemented
        return ProcSet.unchecked(dict.fromkeys([proc for proc in theirs if proc not in self]))

    def __xor__(self, other: Proc | Iterable[Proc]) -> ProcSet:
        theirs = _operand(other)
        if theirs is None:
            return NotImplemented
        table = frozenset(theirs)
        mine = [proc for proc in self if proc not in table]
        return ProcSet.unchecked(dict.fromkeys((*mine, *[proc for proc in theirs if proc not in self])))

    def __rxor__(self, other: Proc | Iterable[Proc]) -> ProcSet:
        theirs = _operand(other)
        return NotImplemented if theirs is None else ProcSet.unchecked(dict.fromkeys(theirs)) ^ self

    def issubset(self, other: Proc | Iterable[Proc]) -> bool:
        """Tell whether all of these are among others."""
        return self._table.issubset(_procs(other))

    def issuperset(self, other: Proc | Iterable[Proc]) -> bool:
        """Tell whether these hold all of others."""
        return self._table.issuperset(_procs(other))

    def isdisjoint(self, other: Proc | Iterable[Proc]) -> bool:
        """Tell whether none of these is among others."""
        return self._table.isdisjoint(_procs(other))

    @property
    def _table(self) -> frozenset[Proc]:
        found: frozenset[Proc] | None = self.__dict__.get("table")
        if found is None:
            found = self.__dict__["table"] = frozenset(self)
        return found

    def __setattr__(self, name: str, _value: object) -> NoReturn:
        raise AttributeError(f"a ProcSet does not change, nor does its {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a ProcSet does not change, nor does its {name}")

    def __reduce__(self) -> tuple[type[ProcSet], tuple[tuple[Proc, ...], str | None]]:
        return type(self), (tuple(self), self.name)

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={self.name!r}"
        return f"ProcSet({list(self)!r}{name})"

    def __str__(self) -> str:
        """The procs by nspace, with ranks that follow each other as one: `demo:0-3,7`."""
        spans: list[tuple[str, list[list[int]]]] = []
        for nspace, rank in self:
            if not spans or spans[-1][0] != nspace:
                spans.append((nspace, []))
            runs = spans[-1][1]
            if runs and runs[-1][-1] == rank - 1:
                runs[-1][1:] = [rank]
            else:
                runs.append([rank])
        return " ".join(
            [f"{nspace}:{','.join(['-'.join(map(_named, run)) for run in runs])}" for nspace, runs in spans]
        )


def _named(rank: int) -> str:
    return "*" if rank == RANK_WILDCARD else str(rank)


def _procs(procs: object) -> tuple[Proc, ...]:
    """Return procs, or one, as a tuple.

    Raises:
        TypeError: They are none.
    """
    # A proc is a tuple itself, and of no procs.
    if isinstance(procs, Proc):
        return (procs,)
    if isinstance(procs, str | bytes) or not hasattr(procs, "__iter__"):
        raise TypeError(f"procs are Proc objects, not {procs!r:.80}")
    found: tuple[Proc, ...] = tuple(procs)
    if type(procs) is not ProcSet:
        for proc in found:
            if not isinstance(proc, Proc):
                raise TypeError(f"procs are Proc objects, not {type(proc).__name__}")
    return found


def _operand(other: object) -> tuple[Proc, ...] | None:
    """Return the other operand's procs, None where it is not a collection."""
    if isinstance(other, str | bytes) or not hasattr(other, "__iter__"):
        return None
    return _procs(other)


class ProcSets(Mapping[str, ProcSet]):
    """The process sets that a server knew when it was asked, by name, in the order of their definition."""

    __slots__ = ("_sets",)

    def __init__(self, sets: Iterable[ProcSet] = ()) -> None:
        self._sets = {str(each.name): each for each in sets}

    def __getitem__(self, name: str) -> ProcSet:
        """Return the set of a name.

        Raises:
            NotFound: There was none of that name.
        """
        found = self._sets.get(name)
        if found is None:
            known = ", ".join(self._sets) or "none"
            raise UnknownSet(f"there is no process set {name!r}; known: {known}", operation="psets")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def of(self, proc: Proc) -> tuple[str, ...]:
        """Return the names of the sets that a proc is in."""
        return tuple([name for name, members in self._sets.items() if proc in members])

    def __repr__(self) -> str:
        rows = [f"{name!r}: {len(members)} proc{'s' * (len(members) != 1)}" for name, members in self._sets.items()]
        return f"{{{', '.join(rows)}}}"


class UnknownSet(NotFound, KeyError):
    """There is no process set of that name; as a `KeyError` it is what mappings raise."""

    def __str__(self) -> str:
        return NotFound.__str__(self)


class PsetChange(Record):
    """A process set has come or gone (`PMIX_PROCESS_SET_DEFINE`, `PMIX_PROCESS_SET_DELETE`).

    Args:
        kind: `define` or `delete`.
        name: The set's name.
        members: Its procs; of one that has gone those that it had, as far as the stream has seen it come, else none.
    """

    kind: str
    name: str
    members: ProcSet = ProcSet()


MAX_EARLY = 65536
"""Events that are kept while a stream begins."""

REFRESH = Info(keys.QUERY_REFRESH_CACHE, Value.unchecked(codes.BOOL, True))
"""The qualifier of a question for what the server knows now: libraries keep the answers."""


def names_op() -> QueryInfo:
    """Return the question for the names of all sets."""
    return QueryInfo((Query((keys.QUERY_PSET_NAMES,), (REFRESH,)),))


def members_op(name: str) -> QueryInfo:
    """Return the question for the members of a set."""
    return QueryInfo(
        (Query((keys.QUERY_PSET_MEMBERSHIP,), (Info(keys.PSET_NAME, Value(codes.STRING, name)), REFRESH)),)
    )


def size_op(nspace: str) -> QueryInfo:
    """Return the question for the size of a job."""
    qualifier = Info(keys.NSPACE, Value(codes.STRING, nspace))
    return QueryInfo((Query((keys.JOB_SIZE,), (qualifier,)),))


def optional(op: Get) -> bool:
    """Return True if a get is for the values that this process holds already."""
    return any(info.key == keys.OPTIONAL and info.value.data is not False for info in op.directives)


def names_in(value: Value) -> list[str]:
    """Return names, which the Standard has in an array and servers join with commas."""
    data = value.data
    found: Iterable[object] = data if isinstance(data, DataArray) else str(data or "").split(",")
    return [name for name in dict.fromkeys(found) if isinstance(name, str) and name]


def names_value(names: Iterable[str]) -> Value:
    """Return names as the Standard has them."""
    return Value.unchecked(codes.DATA_ARRAY, DataArray(codes.STRING, tuple(names)))


def members_in(value: Value) -> list[Proc]:
    """Return the procs of an array."""
    data = value.data
    found: Iterable[object] = data if isinstance(data, DataArray) else ()
    return [proc for proc in found if isinstance(proc, Proc)]


def change_in(event: Notification) -> tuple[str, list[Proc]]:
    """Return which set an event is about, and the members that it names; an empty name if it is about none."""
    name = ""
    members: list[Proc] = []
    for info in event.infos:
        if info.key == keys.PSET_NAME and isinstance(info.value.data, str):
            name = info.value.data
        elif info.key == keys.PSET_MEMBERS:
            members = members_in(info.value)
    return name, members


def begun_with(sets: Mapping[str, ProcSet], early: Iterable[PsetChange]) -> list[PsetChange]:
    """Return the sets that a stream begins with, each as a definition.

    Args:
        sets: What the server has answered.
        early: What has come by events until then: what servers have kept, and what happened meanwhile.
    """
    last = {change.name: change for change in early}
    found = [PsetChange("define", name, members) for name, members in sets.items()]
    told = [change for change in last.values() if change.name not in sets]
    return [change for change in found if last.get(change.name, change).kind == "define"] + [
        change for change in told if change.kind == "define"
    ]


def wild(procs: Iterable[Proc]) -> list[str]:
    """Return the nspaces all of whose procs are meant."""
    return list(dict.fromkeys([proc.nspace for proc in procs if proc.rank == RANK_WILDCARD]))


def spread(procs: Iterable[Proc], sizes: dict[str, int]) -> list[Proc]:
    """Return procs with those of whole jobs one by one, where it is known how many there are."""
    found = []
    for proc in procs:
        if proc.rank == RANK_WILDCARD and proc.nspace in sizes:
            found += Proc.unchecked_ranks(proc.nspace, range(sizes[proc.nspace]))
        else:
            found.append(proc)
    return found
