"""Constructs and destructs of groups that the server decides: a client asks once, and records the answer.

The server checks a construct, waits for its callers, and decides on the members, their order, the leader, the context
id, and the effect of every failure. This process refuses only what the server cannot know: a name that it uses itself.

A session may send the request itself, between `begin` and `form`, or `drop` if the construct fails; and between
`begin_destruct` and `end_destruct`. For servers that decide less, `foreign.constructing` carries out both.
"""

from __future__ import annotations

from pypmix.engine.common import ignore
from pypmix.engine.groups.standing import Attempt, not_in
from pypmix.engine.groups.talk import (
    CLAIM,
    GO_ON,
    REACTION,
    REACTS,
    SAYS,
    VERDICT,
    flag,
    found,
    keep,
    named,
    only_hear,
    proc,
    text,
    verdict_of,
)
from pypmix.standard import keys, statuses
from pypmix.standard.errors import SUCCESSES, NotFound, OperationTimeout, PMIxError, ResourceBusy, error_for
from pypmix.standard.ops import GroupConstruct, GroupResults, NotifyEvent
from pypmix.standard.ops.events import RANGE_LOCAL
from pypmix.standard.ops.hosting import GROUP_LEADER_PROC
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.groups.agent import Agent, Port
    from pypmix.standard.ops import GroupDestruct, Notification
    from pypmix.standard.types import Value

SERVER_GRACE = 5.0
"""Seconds beyond the caller's time limit after which a construct ends here if the server has not answered."""

MAX_SELECTED = 256
"""The most selected leaders that are remembered for groups that this process has not called a construct of yet."""

REACTS_ALONE = (flag(REACTS),)
"""The directives of a construct without any of its caller."""

_ENDED = frozenset((*SUCCESSES, statuses.ERR_PARTIAL_SUCCESS, statuses.ERR_NOT_FOUND))
"""The statuses of a destruct after which the group does not exist."""


NO_CONTEXT_ID = 2**64 - 1
"""The context id that means none, for releases that cannot leave it out."""

UNOFFERED = "the server's host does not offer it"

FAILURES = {
    statuses.ERR_NOT_SUPPORTED: UNOFFERED,
    statuses.ERR_TIMEOUT: "not all members of {} had come when the time ran out",
    statuses.ERR_PARTIAL_SUCCESS: "a member of {} ended without coming",
    statuses.ERR_LOST_CONNECTION: "a member of {} has lost its connection to its server",
    statuses.ERR_EXISTS: "there is a group or an nspace {} already",
    statuses.ERR_NOT_FOUND: "the server does not know all of the procs, or not the group {}",
    statuses.ERR_BAD_PARAM: "the server does not take these procs for {}",
    statuses.ERR_NOT_A_MEMBER: "the caller is not a member of {}",
    statuses.GROUP_CONSTRUCT_ABORT: (
        "the construct of {} was given up: a member ended without coming, or somebody aborted it"
    ),
}
"""The texts for statuses of a construct or destruct; `{}` stands for the name in quotes."""


class PendingCall(Attempt):
    """A construct or destruct that the server has not answered.

    Attributes:
        op: The operation.
        leader: The leader of the group, if the server has announced it.
        withdrawn: Whether its caller has given up: the server gets the withdrawal before any later request.
    """

    __slots__ = ("leader", "op", "withdrawn")

    def __init__(self, op: Any, leader: Proc | None = None) -> None:
        self.op = op
        self.leader = leader
        self.withdrawn = False

    @property
    def use(self) -> str:
        return "" if self.withdrawn else f"a construct of a group {self.op.group!r} is under way"


class Constructing:
    """The constructs and destructs of one session: `agent.constructing`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._pending: dict[str, Any] = {}
        """The operations that the server has not answered, by the group's name."""
        self._selected: dict[str, Proc] = {}
        """The leaders of constructs that this process has not called yet."""
        self._listening = False
        self._watches_leaders = False

    def expects_leaders(self) -> None:
        """Listen for selected leaders from now on, also of constructs that this process has not called yet."""
        if not self._watches_leaders:
            self._watches_leaders = True
            self._port.watch(statuses.GROUP_LEADER_SELECTED, self._leads)

    def calls(self, name: str) -> bool:
        """Return True if a construct of a group is in progress here."""
        call = self._pending.get(name)
        return call is not None and not call.withdrawn and isinstance(call.op, GroupConstruct)

    def give_up(self, op: Any) -> None:
        """The caller of an operation gives up, and the server is about to be asked to withdraw it.

        The name is free for the caller's next operation at once.
        """
        for call in [each for each in self._pending.values() if each.op is op]:
            call.withdrawn = True

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended, and with it the requests."""
        self._pending.clear()

    # Construct

    def construct(self, op: GroupConstruct, done: Done[GroupResults]) -> None:
        """Carry out a `GroupConstruct` by a library, which gets no request that the server would refuse.

        libpmix 5.0 crashes after it was refused the name of a job.
        """
        if self._agent.is_job(op.group):
            raise PMIxError(f"there is a nspace {op.group!r} already", status=statuses.ERR_EXISTS, procs=op.procs)
        self.begin(op)
        limit = found(op.directives, keys.TIMEOUT, int) or 0
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            done(None, timed_out(limit, op.procs))

        # The server keeps the time, and may be late on a busy machine.
        timer = self._port.later(limit + SERVER_GRACE, expire) if limit > 0 else None

        def finish(result: GroupResults | None, error: BaseException | None) -> None:
            if timer is not None:
                timer.cancel()
            if expired:
                self.drop(op)
            elif error is not None or result is None:
                done(None, self._fail(op, error))
            else:
                done(self.form(op, result), None)

        self._port.submit(GroupConstruct(op.group, ranks_of(self._port, op.procs), reacting(op)), finish)

    def begin(self, op: GroupConstruct) -> None:
        """Prepare a construct, whose request is sent next.

        Raises:
            PMIxError: This process uses the name already, or is not one of the procs.
        """
        name, agent = op.group, self._agent
        self._check_free(name)
        taken = agent.standing.use_of(name)
        if taken:
            raise PMIxError(taken, status=statuses.ERR_EXISTS, procs=op.procs)
        me = self._port.proc
        if op.procs and me not in op.procs and Proc.unchecked(me[0], RANK_WILDCARD) not in op.procs:
            given = ranks_of(self._port, agent.addresses.expand(op.procs))
            if me not in given:
                raise PMIxError("the caller is not one of the procs", status=statuses.ERR_BAD_PARAM, procs=given)
        if not self._listening:
            self._listen()
        withdrawn, call = self._pending.get(name), PendingCall(op, self._selected.pop(name, None))
        self._pending[name] = call
        agent.standing.expected(name, call)
        if withdrawn is not None:
            agent.standing.abandoned(name, withdrawn)

    def form(self, op: GroupConstruct, result: GroupResults) -> GroupResults:
        """Record the group that a construct has formed. Return the results for its caller."""
        call = self._take(op)
        formed = self._record(op, result, result.members, None if call is None else call.leader)
        is_partial = result.partial or self._is_incomplete(op.procs, result.members)
        return formed.replace(partial=True) if is_partial else formed

    def _record(
        self, op: GroupConstruct, result: GroupResults, members: tuple[Proc, ...], leader: Proc | None
    ) -> GroupResults:
        """Record a group that was formed. Return the results for the caller.

        Args:
            op: The construct.
            result: The answer of the server.
            members: The members by group rank.
            leader: The leader, if the server has announced it.
        """
        name, directives, infos = op.group, op.directives, result.infos
        if infos:
            leader = leader or found(infos, GROUP_LEADER_PROC, Proc)
            infos = tuple([info for info in infos if info.key != GROUP_LEADER_PROC])
        if leader is None and directives:
            # Not all libraries pass on the leader with the answer.
            leads = found(directives, keys.GROUP_LEADER, bool)
            leader = self._port.proc if leads else found(directives, GROUP_LEADER_PROC, Proc)
        # If it has ended in the meantime, an optional construct has continued without it.
        leader = leader if leader in members else None
        formed: GroupResults = self._agent.standing.formed(
            name,
            members,
            context_id=result.context_id if directives and wants_context_id(directives) else None,
            leader=leader,
            infos=infos,
            directives=directives,
        )
        if leader == self._port.proc:
            self._agent.standing.tell_leader(name)
        return formed

    def _is_incomplete(self, named: tuple[Proc, ...], members: tuple[Proc, ...]) -> bool:
        """Return True if named procs are missing from the members: not all libraries pass on the status of that."""
        if not {*named}.difference(members):
            return False
        try:
            everyone = ranks_of(self._port, self._agent.addresses.expand(named))
        except NotFound:
            # A group has lost a rank in the meantime.
            return True
        return any(each[1] != RANK_WILDCARD for each in {*everyone}.difference(members))

    def _fail(self, op: GroupConstruct, error: BaseException | None) -> BaseException | None:
        """Forget a construct that has failed. Return its error."""
        self.drop(op)
        if getattr(error, "code", 0) != statuses.ERR_PARTIAL_SUCCESS:
            return error
        # The server reports an abort in this way to libraries that have no status for it.
        aborted = failure_of(statuses.GROUP_CONSTRUCT_ABORT, op.group, op.procs)
        aborted.missing = getattr(error, "missing", None)
        return aborted

    def drop(self, op: GroupConstruct) -> None:
        """Forget a construct that has failed."""
        call = self._take(op)
        if call is not None:
            self._agent.standing.abandoned(op.group, call)

    def _take(self, op: GroupConstruct | GroupDestruct) -> PendingCall | None:
        """Remove the call of an operation; return None if the next operation has taken its place."""
        call: PendingCall | None = self._pending.get(op.group)
        if call is None or call.op is not op:
            return None
        del self._pending[op.group]
        return call

    def _check_free(self, name: str) -> None:
        """Refuse a second operation on a group.

        Raises:
            PMIxError: The server has not answered an earlier one, whose caller still waits.
        """
        call = self._pending.get(name)
        if call is not None and not call.withdrawn:
            raise busy(name)

    # Destruct

    def destruct(self, op: GroupDestruct, done: Done[Any]) -> None:
        """Carry out a `GroupDestruct`."""
        self.begin_destruct(op)

        def finish(_result: object, error: BaseException | None) -> None:
            self.end_destruct(op, statuses.SUCCESS if error is None else getattr(error, "code", statuses.ERROR))
            done(None, error)

        self._port.submit(op, finish)

    def begin_destruct(self, op: GroupDestruct) -> tuple[Proc, ...]:
        """Prepare a destruct, whose request is sent next. Return the members.

        Raises:
            PMIxError: The caller is not a member, or the name has another operation.
        """
        group = self._agent.standing.group(op.group)
        if group is None:
            raise not_in(op.group)
        self._check_free(op.group)
        self._pending[op.group] = PendingCall(op)
        members: tuple[Proc, ...] = group.membership.members
        return members

    def end_destruct(self, op: GroupDestruct, status: int) -> None:
        """Record the end of a destruct."""
        self._take(op)
        if status in _ENDED:
            self._agent.standing.dissolve(op.group)

    # Events in the meantime

    def _listen(self) -> None:
        self._listening = True
        self.expects_leaders()
        for code in (statuses.GROUP_MEMBER_FAILED, statuses.GROUP_LEADER_FAILED):
            self._port.watch(code, only_hear)
            self._port.handlers.conclude(code, self._concluded)

    def _leads(self, event: Notification) -> None:
        name, leader = named(event), found(event.infos, keys.GROUP_LEADER, Proc)
        call = self._pending.get(name)
        if leader is None:
            return
        if call is not None:
            call.leader = leader
        elif self._port.handlers.is_host(event.source) and not self._agent.name_conflict(name):
            # The server informs all named procs; some of its libraries pass on nothing of that with the answer.
            keep(self._selected, name, leader, MAX_SELECTED)

    def _concluded(self, event: Notification, status: int, results: tuple[Info, ...]) -> None:
        """Report to the server how the handlers of this process have reacted to a failure during a construct."""
        name, affected = named(event), found(event.infos, keys.EVENT_AFFECTED_PROC, Proc)
        if affected is None or not self.calls(name):
            return
        infos = (
            text(SAYS, REACTION),
            text(keys.GROUP_ID, name),
            proc(keys.EVENT_AFFECTED_PROC, affected),
            text(VERDICT, verdict(event.code, status, results)),
            flag(keys.EVENT_DO_NOT_CACHE),
        )
        self._port.submit(NotifyEvent(statuses.TALK, RANGE_LOCAL, infos), ignore)


def verdict(code: int, status: int, results: tuple[Info, ...]) -> str:
    """Return the verdict of the handlers of an event on the failure that it reports."""
    wanted = verdict_of(status, results)
    return GO_ON if wanted == CLAIM and code != statuses.GROUP_LEADER_FAILED else wanted


def reacting(op: GroupConstruct) -> tuple[Info, ...]:
    """Return the directives of a construct for the server, which asks this process for reactions to failures."""
    given = op.directives
    if not given:
        return REACTS_ALONE if op.procs else ()
    given = tuple([info for info in given if info.key != GROUP_LEADER_PROC])
    return given if is_gathered(op) else (*given, *REACTS_ALONE)


def wants_context_id(directives: Iterable[Info]) -> bool:
    """Return True if the directives of a construct or an invitation ask for a context id."""
    return any(info.key == keys.GROUP_ASSIGN_CONTEXT_ID and info.value.data is not False for info in directives)


def is_gathered(op: GroupConstruct) -> bool:
    """Return True if a construct does not name all members: others call it as leaders, or are added."""
    return not op.procs or any(info.key == keys.GROUP_BOOTSTRAP for info in op.directives)


def results_of(
    infos: Iterable[Info],
    partial: bool = False,
    members: tuple[Proc, ...] = (),
    context_id: int | None = None,
) -> GroupResults:
    """Return the results of a construct from the answer of a server or a library.

    Args:
        infos: The infos of the answer.
        partial: Whether the answer reports that the group is not complete.
        members: The members, unless they are among the infos.
        context_id: The context id, unless it is among the infos.
    """
    others = []
    for info in infos:
        key, data = info.key, info.value.data
        if key == keys.GROUP_MEMBERSHIP and isinstance(data, DataArray):
            members = data.items
        elif key == keys.GROUP_CONTEXT_ID:
            context_id = data
        elif key != keys.GROUP_ID:
            others.append(info)
    return GroupResults(members, None if context_id == NO_CONTEXT_ID else context_id, tuple(others), partial)


def ranks_of(port: Port, procs: Iterable[Proc], sizes: Mapping[Proc, Value] | None = None) -> tuple[Proc, ...]:
    """Return procs, each once and by its rank where the size of its job is known.

    Args:
        port: The session.
        procs: The procs.
        sizes: The sizes of jobs that the session does not hold.
    """
    ranks: dict[Proc, None] = {}
    for each in procs:
        size = port.fetch(each, keys.JOB_SIZE) if each.rank == RANK_WILDCARD else None
        if size is None and sizes is not None:
            size = sizes.get(each)
        some = [each] if size is None else [Proc(each.nspace, rank) for rank in range(int(size.data))]
        ranks.update(dict.fromkeys(some))
    return tuple(ranks)


def failure_of(status: int, name: str, procs: tuple[Proc, ...]) -> PMIxError:
    """Return the error of a construct or destruct that ends with a status."""
    return error_for(status)(FAILURES[status].format(repr(name)), status=status, procs=procs)


def timed_out(limit: int, procs: tuple[Proc, ...]) -> OperationTimeout:
    """Return the error of an operation that the server has not answered in time."""
    return OperationTimeout(f"no answer of the server within {limit} s", status=statuses.ERR_TIMEOUT, procs=procs)


def busy(name: str) -> ResourceBusy:
    """Return the error for a second operation on a group whose first one the server has not answered.

    Servers count callers, so a second call would count for a member that has not called.
    """
    return ResourceBusy(
        f"the server still waits for the other members of {name!r}, on behalf of an earlier call",
        hint="an operation that was given up goes on there; take another name",
    )
