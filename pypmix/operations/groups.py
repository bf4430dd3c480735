# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Groups that all of their members construct and destruct together."""

from __future__ import annotations

from pypmix.group import GroupView
from pypmix.operations.base import Asks
from pypmix.requests.groups import construct_op, destruct_op

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from pypmix.requests import Infos, Procs
    from pypmix.standard.ops import GroupResults


class Group(GroupView):
    """A group that the caller is a member of; `group` of a client makes one.

    Entering it as a context manager constructs the group, leaving destructs it; both wait for all members. An
    exception that leaves the block destructs nothing: the others need not be on their way to their ends.
    """

    def __init__(self, client: Asks, op: Any, timeout: float | None) -> None:
        super().__init__(op.group, client._session.proc)
        self._client = client
        self._op = op
        self._destruct_op = destruct_op(op.group, timeout, None)

    def construct(self) -> Self:
        """`PMIx_Group_construct`: see `group_construct`; returns the group itself."""
        self._results = self._client._run(self._op)
        return self

    def destruct(self) -> None:
        """`PMIx_Group_destruct`: see `group_destruct`; does nothing where the group does not stand."""
        if self._results is not None:
            self._client._run(self._destruct_op)
            self._results = None

    def __enter__(self) -> Self:
        return self if self.is_open else self.construct()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.destruct()


class Groups(Asks):
    """Groups that all of their members construct and destruct together."""

    def group(
        self,
        name: str,
        procs: Procs,
        *,
        context_id: bool = False,
        timeout: float | None = None,
        info: Infos = None,
    ) -> Group:
        """`PMIx_Group_construct` and `PMIx_Group_destruct`: a group for the length of a `with` block.

        Args:
            name: What to call it, as for `group_construct`.
            procs: All members, the caller among them; `Proc(nspace, Rank.WILDCARD)` is a whole job.
            context_id: Ask the host for a number that no other group has.
            timeout: Seconds to wait for all to come, to the construct and to the destruct; no limit by default.
            info: Further infos or a mapping, for the construct.

        Returns:
            The group, a collection of its members; it is constructed when it is entered.

        Raises:
            TypeError, ValueError: An argument is none of these.

        PMIx Standard: "Process Sets and Groups", `PMIx_Group_construct`.
        """
        return Group(self, construct_op(name, procs, context_id, timeout, info), timeout)

    def group_construct(
        self,
        name: str,
        procs: Procs,
        *,
        context_id: bool = False,
        timeout: float | None = None,
        info: Infos = None,
    ) -> GroupResults:
        """`PMIx_Group_construct`: make a group of procs, of whatever jobs; all of them have to call it.

        Afterwards `Proc(name, Rank.WILDCARD)` stands for all of them in a `fence`, and the group rank of each is its
        place in the membership.

        Args:
            name: What to call it: at most 255 bytes, and neither the name of a job nor of another group that stands.
            procs: All members, the caller among them; `Proc(nspace, Rank.WILDCARD)` is a whole job.
            context_id: Ask the host for a number that no other group has, such as MPI libraries need.
            timeout: Seconds to wait for all to come; no limit by default. Whole seconds, a fraction is rounded up. Take
                another name after it has run out: some servers still wait for the others under this one.
            info: Further infos or a mapping, such as `attrs.GROUP_INFO`.

        Returns:
            The members by group rank, and the context id where the caller has asked for one.

        Raises:
            OperationTimeout: Not all had come in time; `missing` names them if the server tells.
            PartialSuccess: A member ended without coming.
            PMIxError: There is a group or a job of this name already (`ERR_EXISTS`), the caller is not one of the
                procs (`ERR_BAD_PARAM`), or a member ended without coming (`GROUP_CONSTRUCT_ABORT`).
            NotSupported: The server's host constructs no groups, or the library does not understand how the server
                answers.

        PMIx Standard: "Process Sets and Groups", `PMIx_Group_construct`.
        """
        return self._run(construct_op(name, procs, context_id, timeout, info))

    def group_destruct(self, name: str, *, timeout: float | None = None, info: Infos = None) -> None:
        """`PMIx_Group_destruct`: take a group apart; all of its members have to call it. Its name is free afterwards.

        Args:
            name: The group's name.
            timeout: Seconds to wait for all to come; no limit by default.
            info: Further infos or a mapping.

        Raises:
            NotFound: The caller is in no group of this name.
            OperationTimeout: Not all had come in time; the group stands as before.

        PMIx Standard: "Process Sets and Groups", `PMIx_Group_destruct`.
        """
        self._run(destruct_op(name, timeout, info))
