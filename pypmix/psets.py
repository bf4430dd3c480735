"""Process sets: an ordered, immutable collection of procs, the sets that a server knows, and their changes."""

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

    The results of `|`, `&`, `-` and `^` have the order of the left operand, followed by the order of the right one; the
    other operand may be any iterable of procs, or a single proc. Comparisons and hashes are those of a tuple, so
    `issubset` and the like have no operators.

    Args:
        procs: The procs, or one; of equal procs the first counts.
        name: The name of the process set with these procs; None if they are not a named set.

    Example:
        >>> even = ProcSet(me.job[::2])
        >>> others = me.job.procs - even
        >>> print(others, (even | others).name)
    """

    __hash__ = tuple.__hash__

    def __new__(cls, procs: Proc | Iterable[Proc] = (), name: str | None = None) -> Self:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a process set is a str, not {type(name).__name__}")
        return cls.unchecked(dict.fromkeys(_procs(procs)), name)

    @classmethod
    def unchecked(cls, procs: Iterable[Proc], name: str | None = None) -> Self:
        """Return a set of procs of an engine, whose types are not checked again."""
        made = tuple.__new__(cls, procs)
        made.__dict__["name"] = name
        return made

    if TYPE_CHECKING:

        @property
        def name(self) -> str | None:
            """The name of the process set with these procs; None for the result of an operator."""

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
        """Return True if the other procs include all of these.

        Example:
            >>> ProcSet([Proc("job", 0)]).issubset([Proc("job", 0), Proc("job", 1)])
            True
        """
        return self._table.issubset(_procs(other))

    def issuperset(self, other: Proc | Iterable[Proc]) -> bool:
        """Return True if these include all of the other procs.

        Example:
            >>> ProcSet([Proc("job", 0), Proc("job", 1)]).issuperset(Proc("job", 1))
            True
        """
        return self._table.issuperset(_procs(other))

    def isdisjoint(self, other: Proc | Iterable[Proc]) -> bool:
        """Return True if the other procs include none of these.

        Example:
            >>> ProcSet([Proc("job", 0)]).isdisjoint([Proc("job", 1)])
            True
        """
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
        TypeError: They are not procs.
    """
    # A proc is a tuple itself, but not of procs.
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
    """Return the other operand's procs; None if it is not a collection."""
    if isinstance(other, str | bytes) or not hasattr(other, "__iter__"):
        return None
    return _procs(other)


class ProcSets(Mapping[str, ProcSet]):
    """The process sets that a server knew when it was asked, by name, in the order of their definition.

    Example:
        >>> for name, procs in me.psets.items():
        ...     print(name, "has", len(procs), "processes")
    """

    __slots__ = ("_sets",)

    def __init__(self, sets: Iterable[ProcSet] = ()) -> None:
        self._sets = {str(each.name): each for each in sets}

    def __getitem__(self, name: str) -> ProcSet:
        """Return the set of a name.

        Raises:
            NotFound: The server had no set of this name.
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
        """Return the names of the sets that a proc is in.

        Example:
            >>> mine = me.psets.of(me.proc)
        """
        return tuple([name for name, members in self._sets.items() if proc in members])

    def __repr__(self) -> str:
        rows = [f"{name!r}: {len(members)} proc{'s' * (len(members) != 1)}" for name, members in self._sets.items()]
        return f"{{{', '.join(rows)}}}"


class UnknownSet(NotFound, KeyError):
    """The server has no process set of this name; a `KeyError`, too, as mappings raise it."""

    def __str__(self) -> str:
        return NotFound.__str__(self)


class PsetChange(Record):
    """A process set was defined or deleted (`PMIX_PROCESS_SET_DEFINE`, `PMIX_PROCESS_SET_DELETE`).

    Args:
        kind: `define` or `delete`.
        name: The set's name.
        members: Its procs; of a deleted set its former procs if the stream knew the set, else empty.

    Example:
        >>> with me.watch_psets() as changes:
        ...     for change in changes:
        ...         if change.kind == "delete":
        ...             print(change.name, "is deleted; it had", len(change.members), "processes")
    """

    kind: str
    name: str
    members: ProcSet = ProcSet()


MAX_EARLY = 65536
"""Events that are kept while a stream begins."""

REFRESH = Info(keys.QUERY_REFRESH_CACHE, Value.unchecked(codes.BOOL, True))
"""The qualifier that makes a query reach the server: libraries keep the answers of earlier queries."""


def names_op() -> QueryInfo:
    """Return the query for the names of all sets."""
    return QueryInfo((Query((keys.QUERY_PSET_NAMES,), (REFRESH,)),))


def members_op(name: str) -> QueryInfo:
    """Return the query for the members of a set."""
    return QueryInfo(
        (Query((keys.QUERY_PSET_MEMBERSHIP,), (Info(keys.PSET_NAME, Value(codes.STRING, name)), REFRESH)),)
    )


def size_op(nspace: str) -> QueryInfo:
    """Return the query for the size of a job."""
    qualifier = Info(keys.NSPACE, Value(codes.STRING, nspace))
    return QueryInfo((Query((keys.JOB_SIZE,), (qualifier,)),))


def optional(op: Get) -> bool:
    """Return True if a get is for the values that this process holds already."""
    return any(info.key == keys.OPTIONAL and info.value.data is not False for info in op.directives)


def names_in(value: Value) -> list[str]:
    """Return the names of a value: an array by the Standard, or a text with commas, as servers send it."""
    data = value.data
    found: Iterable[object] = data if isinstance(data, DataArray) else str(data or "").split(",")
    return [name for name in dict.fromkeys(found) if isinstance(name, str) and name]


def names_value(names: Iterable[str]) -> Value:
    """Return the value of names in the Standard's form, an array."""
    return Value.unchecked(codes.DATA_ARRAY, DataArray(codes.STRING, tuple(names)))


def members_in(value: Value) -> list[Proc]:
    """Return the procs of an array."""
    data = value.data
    found: Iterable[object] = data if isinstance(data, DataArray) else ()
    return [proc for proc in found if isinstance(proc, Proc)]


def change_in(event: Notification) -> tuple[str, list[Proc]]:
    """Return the name of the set that an event is about, and its members; an empty name if it is about none."""
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
        sets: The sets in the server's answer.
        early: The changes by events until the answer: the events that the server had kept, and later ones.
    """
    last = {change.name: change for change in early}
    found = [PsetChange("define", name, members) for name, members in sets.items()]
    told = [change for change in last.values() if change.name not in sets]
    return [change for change in found if last.get(change.name, change).kind == "define"] + [
        change for change in told if change.kind == "define"
    ]


def wild(procs: Iterable[Proc]) -> list[str]:
    """Return the nspaces that a wildcard names."""
    return list(dict.fromkeys([proc.nspace for proc in procs if proc.rank == RANK_WILDCARD]))


def spread(procs: Iterable[Proc], sizes: dict[str, int]) -> list[Proc]:
    """Replace the wildcard of each job by its procs if the size of the job is known."""
    found = []
    for proc in procs:
        if proc.rank == RANK_WILDCARD and proc.nspace in sizes:
            found += Proc.unchecked_ranks(proc.nspace, range(sizes[proc.nspace]))
        else:
            found.append(proc)
    return found
