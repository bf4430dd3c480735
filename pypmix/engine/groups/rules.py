"""The groups that a session is a member of, and what both engines even out about them."""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.errors import ERR_BAD_PARAM, ERR_EXISTS, ERR_RESOURCE_BUSY, NotFound, PMIxError
from pypmix.standard.ops import GroupConstruct, GroupResults
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.standard.ops import GroupDestruct
    from pypmix.standard.releases import Release

    Fetch = Callable[[Proc, str], Value | None]

ASSIGN_CONTEXT_ID = "pmix.grp.actxid"
CONTEXT_ID = "pmix.grp.ctxid"
GROUP_ID = "pmix.grp.id"
MEMBERSHIP = "pmix.grp.mbrs"
JOB_SIZE = "pmix.job.size"
TIMEOUT = "pmix.timeout"

ONLY_WITH_CONTEXT_ID: tuple[Release, Release] = (5, 0, 0), (6, 0, 0)
"""Servers, from and before which release, that may refuse a construct which asks for no context id.

PRRTE 3 is such a host: asked for one, it constructs the group, so that everybody asks it.
"""

TIMED: Release = (6, 0, 0)
"""The first release of servers that are told of a timeout.

Those before 4.2.4 crash when it has run out, and those of 5.0 give all that the group does later a timeout. The time
runs in the engine as well, so the caller sees no difference.
"""

ANSWERS: tuple[Release, ...] = (4, 2, 4), (6, 0, 0)
"""The releases from which a server's answer to a construct has another form than before."""

NO_CONTEXT_ID = 2**64 - 1
"""What stands for none where a release has no way to leave it out."""

_ASSIGN = Info(ASSIGN_CONTEXT_ID, Value(codes.BOOL, True))


def answer_form(release: Release) -> int:
    """Return which form a release's answers to a construct have."""
    return sum(release >= floor for floor in ANSWERS)


def wants_context_id(op: GroupConstruct) -> bool:
    """Tell whether a construct asks for a context id."""
    return any(info.key == ASSIGN_CONTEXT_ID and info.value.data is not False for info in op.directives)


def directives_for(op: GroupConstruct | GroupDestruct, server: Release) -> tuple[Info, ...]:
    """Return the directives of an operation as a server of this release has to be given them."""
    given = op.directives
    if server < TIMED:
        given = tuple([info for info in given if info.key != TIMEOUT])
    floor, end = ONLY_WITH_CONTEXT_ID
    if floor <= server < end and isinstance(op, GroupConstruct) and not wants_context_id(op):
        given = (*[info for info in given if info.key != ASSIGN_CONTEXT_ID], _ASSIGN)
    return given


class Groups:
    """The groups of one session.

    Args:
        proc: Whose session it is.
    """

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._members: dict[str, tuple[Proc, ...]] = {}
        self._under_way: set[str] = set()

    def begin(self, name: str) -> None:
        """Note that an operation on a group is put to the server.

        Raises:
            PMIxError: There is one still. Servers count callers and not who they are, so that a second call would
                stand for a member that has not come.
        """
        if name in self._under_way:
            raise PMIxError(
                f"the server still waits for the other members of {name!r}, on behalf of an earlier call",
                status=ERR_RESOURCE_BUSY,
                hint="an operation that was given up goes on there; take another name",
            )
        self._under_way.add(name)

    def end(self, name: str) -> None:
        """Note that the server has answered an operation on a group."""
        self._under_way.discard(name)

    def constructed_of(self, op: GroupConstruct, fetch: Fetch) -> tuple[Proc, ...]:
        """Return the procs of a construct as a server is to be told of them: each by its rank, in order.

        Whoever names them in another way, or order, would mean another group to some servers; others give the ranks
        in the group in the order in which one of the callers names them, or return a wildcard as it came.

        Args:
            op: The construct.
            fetch: Returns what this process holds of a proc under a key.

        Raises:
            PMIxError: No server could carry it out, and some libraries would crash, or wait for ever: there is such a
                group or nspace already, or the caller is not one of the procs.
        """
        name, procs = op.group, self._members_of(op, fetch)
        if name in self._members or name == self._proc.nspace:
            what = "nspace" if name == self._proc.nspace else "group"
            raise PMIxError(f"there is a {what} {name!r} already", status=ERR_EXISTS, procs=procs)
        if self._proc not in procs:
            raise PMIxError(f"the caller {self._proc} is not one of the procs", status=ERR_BAD_PARAM, procs=procs)
        return procs

    def check_destruct(self, name: str) -> tuple[Proc, ...]:
        """Return the members of a group; `NotFound` if the caller is in none of this name."""
        members = self._members.get(name)
        if members is None:
            raise NotFound(f"the caller is not in a group {name!r}")
        return members

    def expand(self, procs: Iterable[Proc]) -> tuple[Proc, ...]:
        """Return the procs, each once, and those of groups under their own names.

        Raises:
            NotFound: A group has no such rank.
        """
        if not self._members:
            return tuple(dict.fromkeys(procs))
        found: dict[Proc, None] = {}
        for proc in procs:
            members = self._members.get(proc.nspace)
            if members is None:
                found[proc] = None
            elif proc.rank == RANK_WILDCARD:
                found.update(dict.fromkeys(members))
            elif proc.rank < len(members):
                found[members[proc.rank]] = None
            else:
                raise NotFound(f"the group {proc.nspace!r} has no rank {proc.rank}", procs=(proc,))
        return tuple(found)

    def formed(self, op: GroupConstruct, infos: Iterable[Info], fetch: Fetch) -> GroupResults:
        """Note that a group stands, and return what is told of it.

        Args:
            op: What has constructed it.
            infos: What the server or the library tells of it.
            fetch: Returns what this process holds of a proc under a key.
        """
        members: tuple[Proc, ...] = ()
        context_id = None
        others = []
        for info in infos:
            key, data = info.key, info.value.data
            if key == MEMBERSHIP and isinstance(data, DataArray):
                members = data.items
            elif key == CONTEXT_ID:
                context_id = data
            elif key != GROUP_ID:
                others.append(info)
        # Releases before 4.2.4 tell of no members: they are those who were named.
        members = members or self._members_of(op, fetch)
        self._members[op.group] = members
        if not wants_context_id(op) or context_id == NO_CONTEXT_ID:
            context_id = None
        return GroupResults(members, context_id, tuple(others))

    def gone(self, name: str) -> None:
        """Note that a group is no more."""
        self._members.pop(name, None)

    def _members_of(self, op: GroupConstruct, fetch: Fetch) -> tuple[Proc, ...]:
        """Return the procs of a construct, each by its rank where its job is known, in order."""
        found: set[Proc] = set()
        for proc in self.expand(op.procs):
            size = fetch(proc, JOB_SIZE) if proc.rank == RANK_WILDCARD else None
            found.update([proc] if size is None else [Proc(proc.nspace, rank) for rank in range(int(size.data))])
        return tuple(sorted(found))
