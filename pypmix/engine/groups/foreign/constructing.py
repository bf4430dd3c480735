"""Constructs, destructs and fences of groups on servers that do not decide them: members make up for what they lack.

A construct is checked here, so that no server gets a request that makes it hang or crash. It gets the directives that
the server's release needs (`rules`), and is submitted. When the server has answered, the sizes of jobs that were named
as a whole are requested (`_complete`), then the members' infos if the answer lacks them (`collecting`), and `standing`
adds the group. A destruct goes to the server as a destruct while its record of the group is right; once members have
left or joined, the remaining members fence instead (`_gather`).

Each process decides the effect of an end of a participant by itself: a fault-tolerant group continues without the
participant, otherwise the server gets `LOSS_GRACE` seconds before the call is ended here. A call that ends here may
continue at the server, which counts callers: its name stays in `_busy` until the server has answered. If its caller
has given up, the caller's next call of the same operation takes it over.

A fence of a whole group goes to the server as a fence of its members. If one leaves or ends before it has called, a
fault-tolerant fence is repeated without it; any other one fails after `LOSS_GRACE`.
"""

from __future__ import annotations

from functools import partial

from pypmix.engine.collective.rules import DESTRUCT, is_ft
from pypmix.engine.common import TIMEOUT_GRACE, ignore
from pypmix.engine.groups.constructing import (
    Constructing,
    PendingCall,
    busy,
    failure_of,
    is_gathered,
    ranks_of,
    timed_out,
)
from pypmix.engine.groups.foreign.rules import (
    FORGETTING,
    GATHERING,
    ORDERED,
    SOON,
    TELLING,
    collect,
    directives_for,
    kept,
    missing,
)
from pypmix.engine.groups.standing import not_in
from pypmix.engine.groups.talk import DEPARTED, NEWS, SAYS, flag, found, listed, named, procs, text
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import LostConnection, NotFound, NotSupported, PartialSuccess, PMIxError
from pypmix.standard.naming import name_proc
from pypmix.standard.ops import Fence, Get, GroupConstruct, GroupDestruct, GroupResults, NotifyEvent
from pypmix.standard.ops.hosting import GROUP_LEADER_PROC
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.groups.addresses import Addresses
    from pypmix.engine.groups.agent import Agent, Timer
    from pypmix.standard.ops import Notification, Op

LOSS_GRACE = 2.0
"""Seconds that a server without support for groups gets to end an operation that names a proc that ended or left."""

RECORDED = 0.02, 0.1, 0.3
"""The delays of further destructs of a group that a library has not recorded yet: 6.x reports it too early."""

LEAVE_GRACE = 1.0
"""Seconds in which a member that the server reports as lost may turn out to have left the group."""

IMMEDIATE = Info(keys.IMMEDIATE, Value(codes.BOOL, True))
"""Makes a server that does not know a job answer so, instead of waiting for it."""

_GOES_ON = flag(keys.GROUP_NOTIFY_TERMINATION)


class _Call(PendingCall):
    """A construct, a destruct or a fence that this process has called, until it has ended here.

    Attributes:
        group: The name of the group.
        done: Called with the result; None afterwards.
        given_up: Whether its caller no longer waits.
        named: The participants, as far as they are known.
        timer: Ends the call at the caller's time limit.
        loss_timer: Ends the call some time after a participant has ended, or the server has reported the loss of one.
        lost: The participant that has ended, if it is known.
        asked: The number of unanswered engine operations for this call.
        fences: The fences among these operations.
        gathered: Whether the members destruct by a fence.
        tries: The delays of further tries, in seconds.
        sizes: The sizes of jobs that this process has asked for.
        ft: Whether a destruct or a fence continues without members that end.
    """

    def __init__(self, group: str, op: Any, done: Done[Any], named: tuple[Proc, ...]) -> None:
        super().__init__(op)
        self.group = group
        self.done: Done[Any] | None = done
        self.given_up = False
        self.named = named
        self.timer: Timer | None = None
        self.loss_timer: Timer | None = None
        self.lost: Proc | None = None
        self.asked = 0
        self.fences: list[Fence] = []
        self.gathered = False
        self.tries = list(RECORDED)
        self.sizes: dict[Proc, Value] = {}
        self.ft = False


class ForeignConstructing(Constructing):
    """The group collectives of one session, whose server decides little: `agent.constructing`."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self._fences: list[_Call] = []
        self._busy: set[str] = set()
        self._built: dict[str, tuple[Proc, ...]] = {}
        """The groups of which the server has a record, with their members at that time."""
        self._kept: set[str] = set()
        """The names of former groups that the server cannot be made to forget."""

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended; operations of its engine end with it."""
        for call in self._calls():
            self._end(call, None, error or LostConnection("the session was closed while this was under way"))

    def _calls(self) -> list[_Call]:
        return [*self._pending.values(), *self._fences]

    # Construct

    def construct(self, op: GroupConstruct, done: Done[GroupResults]) -> None:
        """Carry out a `GroupConstruct`."""
        name, port = op.group, self._port
        given = ranks_of(port, self._agent.addresses.expand(op.procs))
        if self._take_over(op, done, () if is_gathered(op) else given):
            return
        self._free(name)
        self._check(op, given)
        call = self._begin(op, done, () if is_gathered(op) else given)
        self._agent.standing.expected(name, call)
        told = tuple(sorted(given))
        directives = self._directives(op, given, told)
        port.submit(op.replace(procs=told, directives=directives), partial(self._constructed, call))
        for each in call.named:
            if self._agent.standing.has_exited(each):
                self._note_loss(call, each)

    def _check(self, op: GroupConstruct, named: tuple[Proc, ...]) -> None:
        """Refuse requests that no server can carry out, that some would never end, or that make libraries crash.

        Raises:
            PMIxError: There is such a group or nspace already, or the caller is not one of the procs.
            NotSupported: The server cannot do it.
        """
        name, port = op.group, self._port
        taken = self._agent.name_conflict(name)
        if taken:
            raise PMIxError(taken, status=statuses.ERR_EXISTS, procs=named)
        if name in self._kept:
            raise PMIxError(
                f"libpmix keeps the record of an earlier group {name!r}, which a member had left",
                status=statuses.ERR_EXISTS,
                procs=named,
                hint="take another name",
            )
        if op.procs and port.proc not in named:
            raise PMIxError("the caller is not one of the procs", status=statuses.ERR_BAD_PARAM, procs=named)
        added = any(info.key == keys.GROUP_ADD_MEMBERS for info in op.directives)
        if is_gathered(op) and port.server_release < GATHERING:
            raise NotSupported("the server makes a group of its own for each leader", hint=_GATHER_HINT)
        if added and not is_gathered(op):
            raise NotSupported("the server does not wait for added members", hint=_GATHER_HINT)

    def _directives(
        self, op: GroupConstruct, named: tuple[Proc, ...], participants: tuple[Proc, ...]
    ) -> tuple[Info, ...]:
        port = self._port
        directives = tuple([info for info in directives_for(op, port.server_release) if info.key != GROUP_LEADER_PROC])
        if port.server_release < TELLING:
            directives = kept(directives)
        directives = tuple([_expanded(self._agent.addresses, info) for info in directives])
        unknown = any(each.rank == RANK_WILDCARD for each in named)
        ordered = (
            not unknown
            and named != participants
            and not any(info.key == keys.GROUP_FINAL_MEMBERSHIP_ORDER for info in directives)
        )
        if ordered and not is_gathered(op) and port.server_release >= ORDERED:
            directives = (*directives, procs(keys.GROUP_FINAL_MEMBERSHIP_ORDER, named))
        return directives

    def _constructed(self, call: _Call, result: GroupResults | None, error: BaseException | None) -> None:
        op = call.op
        if call.done is None or error is not None or result is None:
            self._busy.discard(op.group)
            self._end(call, None, error)
            return
        jobs = [each for each in (*result.members, *call.named) if each.rank == RANK_WILDCARD]
        self._complete(
            call, result, [each for each in dict.fromkeys(jobs) if self._port.fetch(each, keys.JOB_SIZE) is None]
        )

    def _complete(self, call: _Call, result: GroupResults, unknown: list[Proc]) -> None:
        """Request the data that the answer lacks, and form the group.

        These are the sizes of jobs that were named as a whole, even by servers, and the members' infos, if the server
        gives them only to procs that ask.
        """
        if unknown:
            job = unknown.pop()

            def measured(size: Value | None, _error: BaseException | None) -> None:
                # Not all libraries keep it.
                if size is not None and isinstance(size.data, int):
                    call.sizes[job] = size
                self._complete(call, result, unknown)

            self._port.submit(Get(job, keys.JOB_SIZE, (IMMEDIATE, SOON)), measured)
            return
        call.named = ranks_of(self._port, call.named, call.sizes)
        members = ranks_of(self._port, result.members, call.sizes)
        lacking = missing(call.op, result)
        if not lacking or result.context_id is None:
            self._formed(call, result, members)
            return

        def collected(infos: tuple[Info, ...]) -> None:
            self._formed(call, result.replace(infos=(*result.infos, *infos)), members)

        collect(self._port, members or tuple(sorted(call.named)), lacking, result.context_id, collected)

    def _formed(self, call: _Call, result: GroupResults, members: tuple[Proc, ...]) -> None:
        op = call.op
        self._busy.discard(op.group)
        if call.done is None:
            return
        members = self._placed(call, members)
        partial = result.partial or any(each not in members for each in call.named if each.rank != RANK_WILDCARD)
        self._built[op.group] = members
        formed = self._record(op, result, members, call.leader)
        self._end(call, formed.replace(partial=True) if partial else formed)

    def _placed(self, call: _Call, members: tuple[Proc, ...]) -> tuple[Proc, ...]:
        """Return the members by group rank: the caller's order, if the server sorts them; see `collective.rules`."""
        wanted = call.named
        # Releases before 4.2.4 return no members: they are the procs that were named.
        members = members or tuple(sorted(wanted))
        if members != tuple(sorted(members)):
            # The server has decided, for all.
            return members
        final = listed(call.op.directives, keys.GROUP_FINAL_MEMBERSHIP_ORDER)
        for order in (final, wanted):
            if len(order) == len(members) and set(order) == set(members):
                return order
        return members

    # Destruct

    def destruct(self, op: GroupDestruct, done: Done[GroupResults]) -> None:
        """Carry out a `GroupDestruct`."""
        name, group = op.group, self._agent.standing.group(op.group)
        if group is None:
            raise not_in(name)
        ft = group.ft or group.notifies or is_ft(DESTRUCT, op.directives)
        if self._take_over(op, done):
            self._pending[name].ft = ft
            return
        self._free(name)
        members, lost = group.membership.members, tuple(group.lost)
        call = self._begin(op, done, (*members, *lost))
        call.ft = ft
        if lost and not call.ft:
            # The answer is the same as for a member that ends after the call.
            self._note_loss(call, lost[0])
        elif group.epoch == 1 and self._built.get(name) == members:
            directives = directives_for(op, self._port.server_release)
            self._submit(call, op.replace(directives=directives), self._destructed)
        else:
            call.named = members
            self._gather(call)

    def _gather(self, call: _Call) -> None:
        """Fence the present members; for a destruct, the server has no record of them, or it is out of date."""
        call.gathered = True
        members = tuple(sorted(call.named))
        if isinstance(call.op, Fence):
            self._submit(call, call.op.replace(procs=members), partial(self._fenced, call.named))
        else:
            told = tuple([info for info in call.op.directives if info.key != keys.TIMEOUT])
            self._submit(call, Fence(members, False, told), self._gathered)

    def _submit(self, call: _Call, op: Op[Any], finish: Any) -> None:
        def done(_result: object, error: BaseException | None) -> None:
            if isinstance(op, Fence):
                if op not in call.fences:
                    # It was given up.
                    return
                call.fences.remove(op)
            call.asked -= 1
            if not call.asked and not isinstance(call.op, Fence):
                self._busy.discard(call.group)
            finish(call, error)

        call.asked += 1
        if isinstance(op, Fence):
            call.fences.append(op)
        self._port.submit(op, done)

    def _destructed(self, call: _Call, error: BaseException | None) -> None:
        name = call.op.group
        if isinstance(error, NotFound) and call.done is not None and call.tries:
            self._busy.add(name)
            self._port.later(call.tries.pop(0), lambda: self._retry(call))
            return
        self._gathered(call, error)
        if isinstance(error, NotFound):
            self._forget(name)

    def _retry(self, call: _Call) -> None:
        op = call.op
        if call.done is None:
            self._busy.discard(op.group)
            return
        directives = directives_for(op, self._port.server_release)
        self._submit(call, op.replace(directives=directives), self._destructed)

    def _gathered(self, call: _Call, error: BaseException | None) -> None:
        if call.done is None or (error is not None and call.asked):
            return
        name = call.op.group
        if getattr(error, "code", 0) == statuses.ERR_LOST_CONNECTION:
            # The server may lose a member that leaves and ends before the event of its leaving arrives here.
            self._busy.add(name)
            self._lose_later(call, failure_of(statuses.ERR_PARTIAL_SUCCESS, name, call.named), LEAVE_GRACE)
        elif error is None or getattr(error, "code", 0) == statuses.ERR_PARTIAL_SUCCESS:
            self._dissolve(call, error)
        else:
            self._end(call, None, error)

    def _lose(self, call: _Call, error: BaseException) -> None:
        """A participant has ended, and the server has not ended the operation in time."""
        if isinstance(call.op, GroupDestruct) and call.done is not None:
            self._dissolve(call, error)
        else:
            self._end(call, None, error)

    def _dissolve(self, call: _Call, failure: BaseException | None) -> None:
        """Finish a destruct that has ended the group: make host and server forget it as well.

        Args:
            call: The destruct.
            failure: Its error, if a member was missing.
        """
        name, standing = call.op.group, self._agent.standing
        if failure is None and not call.gathered:
            # The server has forgotten it.
            self._forget(name)
            self._end(call, None, failure)
            return
        members, built = standing.members(name), self._built.get(name, ())
        gone = [each for each in built if each not in members]
        left = [each for each in gone if not standing.has_exited(each)]
        self._forget(name)
        kept = bool(built) and (self._port.recorded or self._port.server_release < FORGETTING)
        # A destruct of the group that the server has not answered continues there, and keeps its name busy.
        answered = call.asked == len(call.fences)
        if not kept or left or not answered:
            if kept and answered:
                # A destruct would wait for the members that have left.
                self._kept.add(name)
            self._tell_host(name, members)
            self._end(call, None, failure)
            return

        def forgotten(_result: object, error: BaseException | None) -> None:
            self._busy.discard(name)
            if error is not None:
                self._kept.add(name)
                self._tell_host(name, members)
            self._end(call, None, failure)

        def unanswered() -> None:
            self._tell_host(name, members)
            self._end(call, None, failure)

        self._busy.add(name)
        self._cancel_loss(call)
        call.loss_timer = self._port.later(LOSS_GRACE, unanswered)
        directives = directives_for(call.op, self._port.server_release)
        self._port.submit(call.op.replace(directives=(*directives, _GOES_ON)), forgotten)

    def _tell_host(self, name: str, members: tuple[Proc, ...]) -> None:
        """Make a host that records groups forget one: it accepts from any member that all have left."""
        infos = (
            procs(keys.EVENT_CUSTOM_RANGE, (self._port.proc,)),
            text(SAYS, NEWS),
            text(keys.GROUP_ID, name),
            procs(DEPARTED, members),
            flag(keys.EVENT_DO_NOT_CACHE),
        )
        self._port.submit(NotifyEvent(statuses.TALK, RANGE_CUSTOM, infos), ignore)

    def _forget(self, name: str) -> None:
        self._built.pop(name, None)
        self._agent.standing.dissolve(name)

    # Fence

    def fence(self, group: str, op: Fence, done: Done[None]) -> None:
        """Carry out a fence that names one group and nothing else: of its members, of which some may not call it."""
        given, state = found(op.directives, keys.GROUP_FT_COLLECTIVE, bool), self._agent.standing.group(group)
        call = _Call(group, op, done, tuple(sorted(self._agent.addresses.members(group))))
        call.ft = (state is not None and state.ft) if given is None else given
        self._fences.append(call)
        self._watch(call)
        self._gather(call)

    def _fenced(self, named: tuple[Proc, ...], call: _Call, error: BaseException | None) -> None:
        if call.ft and isinstance(error, PartialSuccess):
            # All others have called: a server completes the fences of a participant that ends.
            error = None
        if call.done is None or (error is not None and call.asked):
            return
        if call.ft and isinstance(error, NotFound | LostConnection) and call.named == named:
            # The server knows already that a participant has ended, and the event of it is on its way.
            self._lose_later(call, error)
        else:
            self._end(call, None, error)

    # Common to all

    def _free(self, name: str) -> None:
        """Refuse to put a second operation on a group to the server.

        Raises:
            PMIxError: There is one still.
        """
        if name in self._busy:
            raise busy(name)

    def _begin(self, op: GroupConstruct | GroupDestruct, done: Done[GroupResults], named: tuple[Proc, ...]) -> _Call:
        """Note an operation that is about to be put to the server."""
        call = self._pending[op.group] = _Call(op.group, op, done, named)
        self._busy.add(op.group)
        self._watch(call)
        return call

    def _watch(self, call: _Call) -> None:
        if not self._listening:
            self._listen()
        self._set_limit(call)

    def _take_over(
        self, op: GroupConstruct | GroupDestruct, done: Done[Any], named: tuple[Proc, ...] | None = None
    ) -> bool:
        """Wait for the answer to an earlier call of an operation, whose caller has given up.

        Args:
            op: The operation.
            done: Called with its end.
            named: The participants of a construct: those of the earlier call must be the same.

        Returns:
            False if there is no such call.
        """
        call = self._pending.get(op.group)
        if call is None or not call.given_up or type(call.op) is not type(op):
            return False
        if named is not None:
            if {*named} != {*call.named}:
                return False
            # The caller may name them in another order.
            call.named = named
        call.op, call.done, call.given_up = op, done, False
        self._set_limit(call)
        return True

    def give_up(self, op: Any) -> None:
        """The caller of an operation no longer waits; its next call of a construct or destruct takes this one over."""
        for call in [each for each in self._calls() if each.op is op]:
            call.given_up = True
            if call.timer is not None:
                call.timer.cancel()
            if isinstance(op, Fence):
                self._end(call, None, PMIxError("the caller no longer waits for this fence"))

    def _set_limit(self, call: _Call) -> None:
        limit = found(call.op.directives, keys.TIMEOUT, int) or 0
        call.timer = self._port.later(limit + TIMEOUT_GRACE, lambda: self._expire(call, limit)) if limit > 0 else None

    def _expire(self, call: _Call, limit: int) -> None:
        self._end(call, None, timed_out(limit, call.named))

    def _end(self, call: _Call, result: GroupResults | None, error: BaseException | None = None) -> None:
        """Return the result to the caller; an operation that the server has not answered keeps its name busy."""
        if call.done is None:
            return
        name = call.group
        if isinstance(call.op, Fence):
            self._fences.remove(call)
        else:
            del self._pending[name]
        self._cancel_loss(call)
        if call.timer is not None:
            call.timer.cancel()
        # The next fence of the same procs, such as that of the next destruct, continues them.
        for fence in call.fences:
            call.asked -= 1
            self._port.give_up(fence)
        call.fences.clear()
        if isinstance(call.op, GroupDestruct) and not call.asked:
            self._busy.discard(name)
        done, call.done = call.done, None
        if error is not None and isinstance(call.op, GroupConstruct):
            self._agent.standing.abandoned(name, call)
        done(result, error)

    # Events in the meantime

    def _listen(self) -> None:
        self._listening = True
        agent, port = self._agent, self._port
        self.expects_leaders()
        port.watch(statuses.GROUP_CONSTRUCT_ABORT, self._aborted)
        port.watch(statuses.GROUP_LEFT, self._departed)
        agent.port.handlers.screen(statuses.GROUP_LEFT, self._departed_late)
        agent.standing.follow(self._handle_exit)

    def _aborted(self, event: Notification) -> None:
        """A participant aborts a construct, and the server cannot do that itself."""
        name = named(event)
        call = self._pending.get(name)
        if call is not None and isinstance(call.op, GroupConstruct) and (not call.named or event.source in call.named):
            self._end(call, None, failure_of(statuses.GROUP_CONSTRUCT_ABORT, name, (event.source,)))

    def _departed(self, event: Notification) -> None:
        """A member has left while others are destructing, or in a fence."""
        name = named(event)
        for call in self._calls():
            if call.group == name and not isinstance(call.op, GroupConstruct):
                self._lack(call, event.source, has_left=True)

    def _departed_late(self, event: Notification) -> bool:
        """Take note that a member had left before it ended; the membership no longer changes."""
        if self._agent.standing.has_exited(event.source):
            self._departed(event)
        return True

    def _handle_exit(self, proc: Proc) -> None:
        for call in self._calls():
            self._lack(call, proc)

    def _lack(self, call: _Call, member: Proc, has_left: bool = False) -> None:
        """A participant has left or ended: continue without it, or let the call fail."""
        if member not in call.named:
            return
        if call.ft or (has_left and isinstance(call.op, GroupDestruct)):
            call.named = tuple([each for each in call.named if each != member])
            if call.lost in (None, member):
                self._cancel_loss(call)
            # It may have called before, and the others may call later: the fence that the others call ends.
            self._gather(call)
        else:
            self._note_loss(call, member)

    def _note_loss(self, call: _Call, proc: Proc) -> None:
        """A participant has ended, or has left during a fence that does not continue without it."""
        status = statuses.GROUP_CONSTRUCT_ABORT if isinstance(call.op, GroupConstruct) else statuses.ERR_PARTIAL_SUCCESS
        error = failure_of(status, call.group, (proc,))
        if isinstance(call.op, Fence):
            whose = name_proc(proc, self._port.proc.nspace)
            text = f"{whose} has left {call.group!r}, or has ended, without coming"
            error = PartialSuccess(text, status=status, procs=call.op.procs)
        error.missing = frozenset((proc,))
        if call.loss_timer is None:
            call.lost = proc
        self._lose_later(call, error)

    def _lose_later(self, call: _Call, error: BaseException, seconds: float = LOSS_GRACE) -> None:
        """A participant has ended or left; it may have called before, so the server gets some time to end the call."""
        if call.loss_timer is None:
            call.loss_timer = self._port.later(seconds, lambda: self._lose(call, error))

    def _cancel_loss(self, call: _Call) -> None:
        if call.loss_timer is not None:
            call.loss_timer.cancel()
            call.loss_timer = call.lost = None


def _expanded(addresses: Addresses, info: Info) -> Info:
    if info.key not in (keys.GROUP_ADD_MEMBERS, keys.GROUP_FINAL_MEMBERSHIP_ORDER):
        return info
    return procs(info.key, addresses.expand(listed((info,), info.key)))


_GATHER_HINT = "name all procs in the call of each of them"
