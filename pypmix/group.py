"""What a member reads of its group."""

from __future__ import annotations

from pypmix.standard.errors import NotInitialized
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pypmix.standard.ops import GroupResults
    from pypmix.standard.types import Info


class GroupView:
    """An ordered collection of the members, as a job is one of its procs; it may be passed wherever procs are wanted.

    Args:
        name: The group's name.
        caller: Whose view it is.
    """

    def __init__(self, name: str, caller: Proc) -> None:
        self._name = name
        self._caller = caller
        self._results: GroupResults | None = None

    @property
    def name(self) -> str:
        """The group's name."""
        return self._name

    @property
    def is_open(self) -> bool:
        """Whether the group stands."""
        return self._results is not None

    @property
    def proc(self) -> Proc:
        """The group as an address, which is its name as an nspace with `Rank.WILDCARD`."""
        return Proc(self._name, RANK_WILDCARD)

    @property
    def procs(self) -> tuple[Proc, ...]:
        """All members, by group rank; empty where neither the server nor the library tells."""
        return self._formed().members

    @property
    def members(self) -> tuple[Proc, ...]:
        """The same as `procs`, by the Standard's name."""
        return self._formed().members

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.procs)

    @property
    def rank(self) -> int:
        """The caller's group rank, which is its place among the members."""
        return self.procs.index(self._caller)

    @property
    def context_id(self) -> int | None:
        """The number that the host has given this group and no other; None if the caller did not ask for one."""
        return self._formed().context_id

    @property
    def infos(self) -> tuple[Info, ...]:
        """What else the server or the library tells of the group, such as the members' `attrs.GROUP_INFO`."""
        return self._formed().infos

    def _formed(self) -> GroupResults:
        if self._results is None:
            raise NotInitialized(
                f"the group {self._name!r} does not stand", operation="group", hint="use it in a `with` block"
            )
        return self._results

    def __getitem__(self, rank: int) -> Proc:
        if not 0 <= rank < self.size:
            raise IndexError(f"group {self._name} has ranks 0 to {self.size - 1}, not {rank}")
        return self.procs[rank]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Proc]:
        return iter(self.procs)

    def __contains__(self, proc: object) -> bool:
        return proc in self.procs

    def __repr__(self) -> str:
        return f"<Group {self._name} of {self.size}>" if self.is_open else f"<Group {self._name}, not constructed>"
