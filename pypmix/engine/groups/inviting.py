"""Invitations on the leader's side: the invited procs, their answers, and the outcome.

The leader alone decides, with every server, as in the Standard and in libpmix, whose leaders decide in the client. Our
servers only record the outcome: a leader may run libpmix, and other servers do not know invitations, so this machine is
needed in any case, and a server that decides would be a second owner of the members and their order.

Facts of libpmix 7's client, which the other side may run:

- Its answers name no group: they come from the invited proc, with the leader as custom range, and hold the proc's own
  puts under `pmix.pdata`. They are taken for the oldest invitation that this proc has not answered.
- Its join ends when `CONSTRUCT_COMPLETE` or `CONSTRUCT_ABORT` arrives that names its group or none. From the former it
  gives its caller the group id, `pmix.grp.mbrs` (an array of procs) and `pmix.grp.ctxid` (a number), and stores the
  values of arrays under `pmix.pdata`: first `pmix.procid`, then maybe `pmix.datascope`, then values. It ignores all
  else, even a membership that it cannot read, and then it has no group.
- It also takes the join for ended when the leader has ended; to its program a new leader's invitation is a new one.
- As the leader it invites with the group id alone, names the other invited procs only in the custom range, is not a
  member unless it invites itself, has one rule (all procs, or with `OPTIONAL` the procs that accept), and asks for a
  context id by a job control without targets.
"""

from __future__ import annotations

from pypmix.engine.common import ignore
from pypmix.engine.groups.constructing import ranks_of, wants_context_id
from pypmix.engine.groups.standing import Attempt
from pypmix.engine.groups.states import AnswerStates
from pypmix.engine.groups.states import InvitationStates as States
from pypmix.engine.groups.talk import (
    ABORT,
    REASON,
    TERM,
    event,
    flag,
    found,
    listed,
    named,
    proc,
    procs,
    say,
    size,
    text,
    timeout_in,
    verdict_of,
)
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import ConstructAborted, NotFound, PMIxError
from pypmix.standard.naming import common_job, name_proc
from pypmix.standard.ops import (
    GroupAnswer,
    GroupConstruct,
    GroupDestruct,
    GroupInvite,
    GroupInviteControl,
    GroupResults,
    JobControl,
    Notification,
)
from pypmix.standard.ops.events import RANGE_NAMESPACE, RANGE_PROC_LOCAL, is_set
from pypmix.standard.ops.groups import ACCEPTED, DECLINED, FAILED
from pypmix.standard.ops.publishing import RANGE_SESSION
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.base import Done
    from pypmix.engine.groups.agent import Agent, Timer

PENDING = AnswerStates.PENDING

INVITATION = "pypmix.grp.invitation"
"""The invitation that a message is about, a string: a name may be used again."""

VERSION = "pypmix.grp.version"
"""The version of the list of invited procs, a `SIZE`: the leader counts its changes."""

PARTIAL = "pypmix.grp.partial"
"""In `CONSTRUCT_COMPLETE`: whether an invited proc is missing from the members, a bool."""

MEMBERS = "invitation members"
"""From the leader: the procs that are invited now."""

MEMBERS_KNOWN = "invitation members known"
"""To the leader: the sender knows the members."""

GIVES_UP = "invitation gives up"
"""To a new leader: the sender's handlers have given the construct up."""

REMINDS = "invitation reminds"
"""From the leader to procs that have not answered, with the whole invitation: servers may lose events they keep."""

GONE = "invitation gone"
"""To a proc that accepts: the invitation does not exist, or no longer."""

REMIND_AFTER, REMIND_UNTIL = 0.5, 16.0
"""The seconds after which silent procs are reminded: first and last; the time doubles with each reminder."""

RANGE_GLOBAL = 5


CONTRIBUTIONS = frozenset({keys.GROUP_INFO, keys.GROUP_ENDPT_DATA, keys.PROC_INFO_ARRAY})
"""The keys of the infos that each member contributes."""

ROUTING = frozenset(
    {
        keys.EVENT_CUSTOM_RANGE,
        keys.EVENT_NON_DEFAULT,
        keys.GROUP_ID,
        keys.GROUP_MEMBERSHIP,
        INVITATION,
        VERSION,
        TERM,
        keys.GROUP_LEADER,
        PARTIAL,
    }
)
"""The keys that events about invitations use themselves."""


class InvitationRecord(Attempt):
    """The facts about an invitation that its leader and the invited procs share.

    Args:
        name: The group's name.
        infos: The infos of a message about the invitation.

    Attributes:
        token: Identifies the invitation; empty if the leader runs another library.
        term: The number of its leader.
        version: The version of the list of invited procs.
        directives: The directives of the first leader.
        done: Called with the outcome.
    """

    def __init__(self, name: str, infos: tuple[Info, ...] = ()) -> None:
        self.name = name
        self.read(infos)
        self.directives: tuple[Info, ...] = ()
        self.done: Done[GroupResults] | None = None

    def read(self, infos: tuple[Info, ...]) -> None:
        """Read token, term and version from the infos of a message."""
        self.token = found(infos, INVITATION, str) or ""
        self.term = found(infos, TERM, int) or 1
        self.version = found(infos, VERSION, int) or 1

    @property
    def stamp(self) -> tuple[Info, ...]:
        """The infos that identify the invitation in a message."""
        return text(INVITATION, self.token), size(TERM, self.term), size(VERSION, self.version)


class LedInvitation(InvitationRecord):
    """An invitation that this process leads."""

    def __init__(self, name: str, token: str, order: Iterable[Proc], directives: tuple[Info, ...]) -> None:
        super().__init__(name)
        self.token = token
        self.order = list(order)
        """The invited procs and the leader, in the order of the membership."""
        self.invitees: dict[Proc, str] = {}
        """The answer of each invited proc, a state of `AnswerStates`."""
        self.contributions: dict[Proc, tuple[Info, ...]] = {}
        self.directives = directives
        self.answers: Callable[[GroupAnswer], None] | None = None
        self.complete = False
        self.state = States.START
        self.missing = False
        """Whether a proc was dropped or replaced."""
        self.context: int | None = None
        self.waits_for_context = False
        self.judged: set[tuple[int, Proc]] = set()
        """The answers that the handlers of this process have not processed yet."""
        self.ours: set[Proc] = set()
        """Procs that run pypmix, and have accepted."""
        self.unsure: set[Proc] = set()
        """Procs that have accepted and may not know yet which others are invited."""
        self.timers: list[Timer] = []
        self.reminder: Timer | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it is complete, or given up."""
        return self.state != States.UNDER_WAY

    @property
    def use(self) -> str:
        return f"an invitation of the caller's to a group {self.name!r} is under way"

    def step(self, proc: Proc, what: str) -> None:
        """Take a step of the state of a proc that is invited, or is to be."""
        self.invitees[proc] = AnswerStates.step(self.invitees.get(proc, AnswerStates.START), what)

    def take_out(self, proc: Proc) -> None:
        """Remove a proc from the invitation."""
        self.step(proc, AnswerStates.LEFT_OUT)
        del self.invitees[proc]


class Inviting:
    """The invitations that this process leads."""

    def __init__(self, agent: Agent) -> None:
        from os import urandom

        self._agent = agent
        self._port = agent.port
        self._me = agent.port.proc
        self._session = urandom(6).hex()
        self._count = 0
        self._under_way: dict[str, LedInvitation] = {}
        port = agent.port
        for says, listener in (
            (MEMBERS_KNOWN, self._knows_members),
            (GIVES_UP, self._gives_up),
        ):
            agent.hear(says, listener)
        for code, watcher in (
            (statuses.GROUP_INVITE_ACCEPTED, self._accepted),
            (statuses.GROUP_INVITE_DECLINED, self._declined),
            (statuses.GROUP_CONSTRUCT_ABORT, self._aborted),
        ):
            port.watch(code, watcher)
        for code in (statuses.GROUP_INVITE_ACCEPTED, statuses.GROUP_INVITE_DECLINED, statuses.GROUP_INVITE_FAILED):
            agent.port.handlers.conclude(code, self._concluded)
        agent.standing.follow(self._handle_exit)

    def leads(self, name: str) -> bool:
        """Return True if this process leads an invitation to a group of this name."""
        return name in self._under_way

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended."""
        for invitation in list(self._under_way.values()):
            self._end(invitation, States.LOST)
            self._agent.standing.abandoned(invitation.name, invitation)
            if invitation.done is not None:
                invitation.done(None, error if error is not None else PMIxError("the session has ended"))

    # Requests of the caller

    def invite(self, op: GroupInvite, done: Done[GroupResults]) -> None:
        """Carry out a `GroupInvite`."""
        name = op.group
        invited = self._concrete(op.procs)
        if not invited:
            raise PMIxError("no proc is invited", status=statuses.ERR_BAD_PARAM)
        taken = self._agent.name_conflict(name)
        if taken:
            raise PMIxError(taken, status=statuses.ERR_EXISTS, procs=invited)
        self._count += 1
        token = f"{self._session}:{self._count}"
        invitation = LedInvitation(name, token, (self._me,), op.directives)
        invitation.done = done
        invitation.answers = op.answers
        invitation.contributions[self._me] = contributed(self._me, op.directives)
        self._under_way[name] = invitation
        self._agent.standing.expected(name, invitation)
        self._ask_for_context(invitation)
        self._set_timer(invitation)
        self._add(invitation, [each for each in invited if each != self._me])
        self._advance(invitation)

    def control(self, op: GroupInviteControl, done: Done[None]) -> None:
        """Carry out a `GroupInviteControl`."""
        invitation = self._under_way.get(op.group)
        if invitation is None:
            raise NotFound(
                f"no invitation of the caller's to a group {op.group!r} is under way",
                hint="it has come to its end: see what the invite has returned",
            )
        dropped, added = self._concrete(op.drop), self._concrete(op.invite)
        for each in dropped:
            if each not in invitation.invitees:
                raise NotFound(f"{each} is not invited to {op.group!r}", procs=(each,))
        for each in added:
            if each == self._me or (each not in dropped and invitation.invitees.get(each) in (PENDING, ACCEPTED)):
                raise PMIxError(f"{each} is invited to {op.group!r} already", status=statuses.ERR_EXISTS, procs=(each,))
        done(None, None)
        if op.abort:
            self._abort(invitation, "the leader has given it up")
            return
        for each in dropped:
            self._leave_out(invitation, each)
        if dropped or added:
            self._change(invitation, added)
        invitation.complete = invitation.complete or op.complete
        self._advance(invitation)

    def _concrete(self, named: Iterable[Proc]) -> tuple[Proc, ...]:
        """Return the procs, each once, by their own ranks."""
        procs = ranks_of(self._port, self._agent.addresses.expand(named))
        for each in procs:
            if each.rank == RANK_WILDCARD:
                raise NotFound(f"how many ranks {each.nspace!r} has is not known here", procs=(each,))
        return procs

    # The invited procs

    def take_over(
        self,
        record: InvitationRecord,
        members: tuple[Proc, ...],
        contributions: tuple[Info, ...],
        done: Done[GroupResults],
    ) -> None:
        """Lead an invitation whose leader has failed: all procs that had accepted accept again.

        This process invites all of them again. A library of pypmix answers for its program, as soon as it knows that
        this process leads; a program on another library decides again.

        Args:
            record: The invitation as this process knows it, in its own term.
            members: The invited procs.
            contributions: The contributions of this process.
            done: Called with the outcome.
        """
        name, has_ended = record.name, self._agent.standing.has_exited
        order = [each for each in dict.fromkeys(members) if each == self._me or not has_ended(each)]
        if self._me not in order:
            order.append(self._me)
        invitation = LedInvitation(name, record.token, order, record.directives)
        invitation.term, invitation.version, invitation.done = record.term, record.version, done
        for each in order:
            if each != self._me:
                invitation.step(each, AnswerStates.IS_INVITED)
        invitation.contributions[self._me] = contributions
        self._under_way[name] = invitation
        self._ask_for_context(invitation)
        self._set_timer(invitation)
        self._send_invited(invitation, list(invitation.invitees))
        self._advance(invitation)

    def give_up(self, name: str, why: str) -> bool:
        """End an invitation of this process. Return False if it has ended already."""
        invitation = self._under_way.get(name)
        if invitation is None:
            return False
        self._abort(invitation, why)
        return True

    def _add(self, invitation: LedInvitation, added: Iterable[Proc]) -> None:
        """Invite procs; ended procs count as failed at once."""
        added = list(dict.fromkeys(added))
        invitation.order = list(dict.fromkeys(invitation.order + added))
        for each in added:
            invitation.step(each, AnswerStates.IS_INVITED)
        self._send_invited(invitation, [each for each in added if not self._agent.standing.has_exited(each)])
        for each in added:
            if not invitation.is_finished and self._agent.standing.has_exited(each):
                self._failed(invitation, each, "it has ended")

    def _change(self, invitation: LedInvitation, added: Iterable[Proc]) -> None:
        """Invite further procs, and send the new list to the procs that have accepted.

        The group is complete only when they know the list: a member that has got the result and then loses the leader
        must know all others that may have got it, too.
        """
        invitation.version += 1
        added = list(added)
        invitation.order = list(dict.fromkeys(invitation.order + added))
        self._tell_members(invitation, list(invitation.invitees))
        self._add(invitation, added)

    def _tell_members(self, invitation: LedInvitation, to: list[Proc]) -> None:
        to = [each for each in to if not self._agent.standing.has_exited(each)]
        states = invitation.invitees
        invitation.unsure.update(each for each in to if each in invitation.ours and states[each] == ACCEPTED)
        if to:
            infos = (*invitation.stamp, procs(keys.GROUP_MEMBERSHIP, invitation.order))
            self._port.submit(say(MEMBERS, invitation.name, to, infos), ignore)

    def _invited_with(self, invitation: LedInvitation) -> tuple[Info, ...]:
        """Return the infos of the event that invites procs."""
        asked = [info for info in invitation.directives if info.key not in CONTRIBUTIONS | ROUTING]
        return (procs(keys.GROUP_MEMBERSHIP, invitation.order), *invitation.stamp, *asked)

    def _remind(self, invitation: LedInvitation, wait: float) -> None:
        """Repeat the invitation, now and then, for silent procs; programs on other libraries do not notice."""
        invitation.reminder = None
        silent = [each for each, state in invitation.invitees.items() if state == PENDING]
        if silent:
            infos = (*self._invited_with(invitation), flag(keys.EVENT_DO_NOT_CACHE))
            self._port.submit(say(REMINDS, invitation.name, silent, infos), ignore)
            if wait < REMIND_UNTIL:
                invitation.reminder = self._port.later(2 * wait, lambda: self._remind(invitation, 2 * wait))

    def _send_invited(self, invitation: LedInvitation, to: list[Proc]) -> None:
        if not to:
            return
        infos = self._invited_with(invitation)
        if not self._port.support.keeps_events and invitation.reminder is None:
            call = self._port.later(REMIND_AFTER, lambda: self._remind(invitation, REMIND_AFTER))
            invitation.reminder = call

        def sent(_: object, error: BaseException | None) -> None:
            if error is not None:
                self._abort(invitation, "the invitation could not be sent", error)

        self._port.submit(event(statuses.GROUP_INVITED, invitation.name, to, infos), sent)

    def _leave_out(self, invitation: LedInvitation, proc: Proc) -> None:
        """Remove a proc from the invitation, and inform it unless it has declined."""
        state = invitation.invitees[proc]
        invitation.take_out(proc)
        invitation.order.remove(proc)
        invitation.contributions.pop(proc, None)
        invitation.unsure.discard(proc)
        invitation.judged -= {each for each in invitation.judged if each[1] == proc}
        invitation.missing = True
        if state != DECLINED and not self._agent.standing.has_exited(proc):
            self._send_abort(invitation, (proc,), "the leader goes on without it")

    # Answers of the invited procs

    def _accepted(self, event: Notification) -> None:
        invitation = self._find(event) or self._find_later(event)
        if invitation is None:
            self._refuse(event)
            return
        if self._note_acceptance(invitation, event):
            # Its handlers run next, and may still object.
            invitation.judged.add((event.code, event.source))

    def _note_acceptance(self, invitation: LedInvitation, event: Notification) -> bool:
        source, infos = event.source, event.infos
        version = found(infos, VERSION, int)
        if invitation.invitees.get(source) not in (PENDING, FAILED) or self._agent.standing.has_exited(source):
            return False
        invitation.step(source, AnswerStates.ACCEPTS)
        invitation.contributions[source] = contributed(source, infos)
        if version is not None:
            invitation.ours.add(source)
            self._compare(invitation, source, version, listed(infos, keys.GROUP_MEMBERSHIP))
        rest = tuple([info for info in infos if info.key not in ROUTING])
        self._answer(invitation, GroupAnswer(ACCEPTED, source, "", rest))
        return True

    def _compare(self, invitation: LedInvitation, source: Proc, version: int, members: tuple[Proc, ...]) -> None:
        """Make sure that a proc that has accepted and this process know the same membership."""
        if version < invitation.version:
            self._tell_members(invitation, [source])
        elif version > invitation.version and self._me in members:
            # The previous leader has informed others of a change, and failed before it could inform this process.
            ended = self._agent.standing.has_exited
            invitation.version = version
            invitation.order = [each for each in dict.fromkeys(members) if each == self._me or not ended(each)]
            known = list(invitation.invitees)
            for each in known:
                if each not in invitation.order:
                    invitation.take_out(each)
            new = [each for each in invitation.order if each not in known and each != self._me]
            for each in new:
                invitation.step(each, AnswerStates.IS_INVITED)
            self._send_invited(invitation, new)
            self._tell_members(invitation, [each for each in invitation.invitees if each != source])

    def _refuse(self, event: Notification) -> None:
        """Inform a proc that answers an invitation that this process does not lead."""
        name, token = found(event.infos, keys.GROUP_ID, str), found(event.infos, INVITATION, str)
        if name is not None and token is not None:
            self._port.submit(say(GONE, name, (event.source,), (text(INVITATION, token),)), ignore)

    def _declined(self, event: Notification) -> None:
        invitation = self._find(event)
        if invitation is None or invitation.invitees.get(event.source) not in (PENDING, FAILED, ACCEPTED):
            return
        reason = found(event.infos, REASON, str) or ""
        rest = tuple([info for info in event.infos if info.key not in ROUTING and info.key != REASON])
        self._lose(invitation, AnswerStates.DECLINES, event.code, GroupAnswer(DECLINED, event.source, reason, rest))

    def _failed(self, invitation: LedInvitation, proc: Proc, reason: str) -> None:
        self._lose(invitation, AnswerStates.FAILS, statuses.GROUP_INVITE_FAILED, GroupAnswer(FAILED, proc, reason))
        infos = (text(keys.GROUP_ID, invitation.name), _affected(proc), text(REASON, reason))
        self._port.handlers.start_chain(
            Notification(statuses.GROUP_INVITE_FAILED, self._me, RANGE_PROC_LOCAL, infos), False
        )

    def _lose(self, invitation: LedInvitation, what: str, code: int, answer: GroupAnswer) -> None:
        """Record that a proc does not accept; the handlers of its event decide what follows."""
        invitation.step(answer.proc, what)
        invitation.contributions.pop(answer.proc, None)
        invitation.unsure.discard(answer.proc)
        invitation.judged.add((code, answer.proc))
        self._answer(invitation, answer)

    def _answer(self, invitation: LedInvitation, answer: GroupAnswer) -> None:
        if invitation.answers is not None:
            self._port.tell(invitation.answers, answer)

    def _handle_exit(self, proc: Proc) -> None:
        for invitation in list(self._under_way.values()):
            if invitation.invitees.get(proc) in (PENDING, ACCEPTED):
                self._failed(invitation, proc, "it has ended")
                self._advance(invitation)

    def _out_of_time(self, invitation: LedInvitation, seconds: float) -> None:
        for each in [each for each, state in invitation.invitees.items() if state == PENDING]:
            if not invitation.is_finished:
                self._failed(invitation, each, f"it has not answered within {seconds:g} s")
        self._advance(invitation)

    def _concluded(self, event: Notification, status: int, results: tuple[Info, ...]) -> None:
        """The handlers of this process have processed an answer."""
        source = event.source
        if event.code == statuses.GROUP_INVITE_FAILED:
            failed = found(event.infos, keys.EVENT_AFFECTED_PROC, Proc)
            source = source if failed is None else failed
        judged = event.code, source
        name = found(event.infos, keys.GROUP_ID, str)
        for invitation in list(self._under_way.values()):
            if judged in invitation.judged and name in (None, invitation.name):
                invitation.judged.discard(judged)
                self._judge(invitation, source, status, results)
                return

    def _judge(self, invitation: LedInvitation, proc: Proc, status: int, results: tuple[Info, ...]) -> None:
        state = invitation.invitees.get(proc)
        if verdict_of(status, results) == ABORT:
            whose = self._name(invitation, proc)
            self._abort(invitation, f"a handler of the leader's has given it up at the answer of {whose}")
            return
        if state in (DECLINED, FAILED):
            added = [each for each in listed(results, keys.GROUP_ADD_MEMBERS) if each != self._me]
            added = [each for each in added if invitation.invitees.get(each) not in (PENDING, ACCEPTED)]
            if added:
                self._leave_out(invitation, proc)
                self._change(invitation, added)
            elif is_set(results, keys.GROUP_OPTIONAL):
                self._leave_out(invitation, proc)
                self._change(invitation, ())
            elif not (invitation.answers or invitation.complete or is_set(invitation.directives, keys.GROUP_OPTIONAL)):
                what = "has declined" if state == DECLINED else "has failed"
                self._abort(invitation, f"{self._name(invitation, proc)} {what}, and the group was not optional")
                return
        self._advance(invitation)

    def _name(self, invitation: LedInvitation, proc: Proc) -> str:
        """Return the name of a proc as all invited procs read it: members of other jobs have a rank 1, too."""
        return name_proc(proc, common_job((self._me, *invitation.invitees)))

    def _find(self, event: Notification) -> LedInvitation | None:
        """Return the invitation that a message is about, which libpmix does not name."""
        name, source, token = named(event), event.source, found(event.infos, INVITATION, str)
        if not name:
            under_way = self._under_way.values()
            return next((each for each in under_way if each.invitees.get(source) == PENDING), None)
        invitation = self._under_way.get(name)
        if invitation is None or source not in invitation.invitees or token not in (None, "", invitation.token):
            return None
        return invitation

    def _find_later(self, event: Notification) -> LedInvitation | None:
        """Find the invitation for an acceptance by a proc that only the previous leader invited."""
        invitation = self._under_way.get(named(event))
        version, members = found(event.infos, VERSION, int) or 0, listed(event.infos, keys.GROUP_MEMBERSHIP)
        if invitation is None or found(event.infos, INVITATION, str) != invitation.token:
            return None
        if version > invitation.version and event.source in members:
            self._compare(invitation, event.source, version, members)
        return invitation if event.source in invitation.invitees else None

    # Messages of the others' libraries

    def _knows_members(self, event: Notification) -> None:
        invitation = self._find(event)
        if invitation is not None and found(event.infos, VERSION, int) == invitation.version:
            invitation.unsure.discard(event.source)
            self._advance(invitation)

    def _gives_up(self, event: Notification) -> None:
        invitation = self._find(event)
        if invitation is None:
            self._refuse(event)
        else:
            self._abort(invitation, f"a handler of {self._name(invitation, event.source)} has given it up")

    def _aborted(self, event: Notification) -> None:
        """Any participant may raise the event that gives the construct up."""
        invitation = self._under_way.get(named(event))
        if invitation is None:
            return
        if event.source == self._me:
            self._abort(invitation, "the leader has given it up", event=event)
        elif event.source in invitation.invitees:
            self._abort(invitation, f"{self._name(invitation, event.source)} has given it up")

    # The context id

    def _ask_for_context(self, invitation: LedInvitation) -> None:
        """Take the context id of a group of this process alone, as hosts give one with each construct."""
        if not wants_context_id(invitation.directives):
            return
        invitation.waits_for_context = True
        name, directives = f"pypmix:{invitation.token}:{invitation.term}", (flag(keys.GROUP_ASSIGN_CONTEXT_ID),)

        def constructed(results: GroupResults | None, _error: BaseException | None) -> None:
            if results is None:
                # The library misreads this server's answers to constructs.
                control = JobControl((), (*directives, text(keys.GROUP_ID, invitation.name)))
                self._port.submit(control, controlled)
                return
            self._port.submit(GroupDestruct(name), ignore)
            self._set_context(invitation, results.context_id)

        def controlled(infos: tuple[Info, ...] | None, _error: BaseException | None) -> None:
            self._set_context(invitation, found(infos or (), keys.GROUP_CONTEXT_ID, int))

        self._port.submit(GroupConstruct(name, (self._me,), directives), constructed)

    def _set_context(self, invitation: LedInvitation, context: int | None) -> None:
        invitation.context = context
        invitation.waits_for_context = False
        self._advance(invitation)

    # The end

    def _set_timer(self, invitation: LedInvitation) -> None:
        seconds = timeout_in(invitation.directives)
        if seconds:
            call = self._port.later(seconds, lambda: self._out_of_time(invitation, seconds))
            invitation.timers.append(call)

    def _advance(self, invitation: LedInvitation) -> None:
        """Complete the group if nothing is left to wait for."""
        if invitation.is_finished or invitation.judged or invitation.unsure or invitation.waits_for_context:
            return
        if PENDING in invitation.invitees.values() or (invitation.answers and not invitation.complete):
            return
        self._complete(invitation)

    def _complete(self, invitation: LedInvitation) -> None:
        self._end(invitation, States.COMPLETES)
        name, states = invitation.name, invitation.invitees
        members = tuple([each for each in invitation.order if each == self._me or states[each] == ACCEPTED])
        shared = tuple([info for each in members for info in invitation.contributions.get(each, ())])
        partial = invitation.missing or len(members) <= len(states)
        infos = [
            procs(keys.GROUP_MEMBERSHIP, members),
            proc(keys.GROUP_LEADER, self._me),
            *invitation.stamp,
            flag(PARTIAL, partial),
        ]
        if invitation.context is not None:
            infos.append(size(keys.GROUP_CONTEXT_ID, invitation.context))
        infos += shared
        ended = self._agent.standing.has_exited
        without = tuple([each for each, state in states.items() if state == FAILED and not ended(each)])
        if without:
            self._send_abort(invitation, without, "the group was made without it")
        self._agent.part("election").remember(name, self._me, tuple(infos))
        results = self._agent.standing.formed(
            name,
            members,
            context_id=invitation.context,
            leader=self._me,
            infos=shared,
            directives=invitation.directives,
            term=invitation.term,
        )
        results = results.replace(partial=partial)

        def sent(_: object, error: BaseException | None) -> None:
            if invitation.done is None:
                return
            if error is not None:
                self._agent.standing.dissolve(name)
                invitation.done(None, error)
            else:
                invitation.done(results, None)

        self._port.submit(event(statuses.GROUP_CONSTRUCT_COMPLETE, name, members, infos), sent)

    def _abort(
        self,
        invitation: LedInvitation,
        why: str,
        cause: BaseException | None = None,
        event: Notification | None = None,
    ) -> None:
        """Give an invitation up, for all.

        Args:
            invitation: The invitation.
            why: The reason, in words.
            cause: The error for the caller.
            event: The event of this process that has informed some procs already.
        """
        if invitation.is_finished:
            return
        self._end(invitation, States.GIVES_UP)
        ended = self._agent.standing.has_exited
        to = [each for each in (self._me, *invitation.invitees) if not ended(each)]
        self._send_abort(invitation, [each for each in to if event is None or not self._has_reached(event, each)], why)
        self._agent.standing.abandoned(invitation.name, invitation)
        if cause is None:
            states = invitation.invitees
            cause = ConstructAborted(
                f"there is no group {invitation.name!r}: {why}",
                operation="group_invite",
                procs=invitation.order,
                missing=[each for each, state in states.items() if state != ACCEPTED],
            )
        if invitation.done is not None:
            invitation.done(None, cause)

    def _has_reached(self, event: Notification, proc: Proc) -> bool:
        if proc == self._me:
            return True
        targets = listed(event.infos, keys.EVENT_CUSTOM_RANGE)
        if targets:
            return proc in targets or Proc(proc.nspace, RANK_WILDCARD) in targets
        if event.range == RANGE_NAMESPACE:
            return proc.nspace == self._me.nspace
        return event.range in (RANGE_SESSION, RANGE_GLOBAL)

    def _send_abort(self, invitation: LedInvitation, to: Iterable[Proc], why: str) -> None:
        to = tuple(to)
        if to:
            infos = (*invitation.stamp, text(REASON, why))
            self._port.submit(event(statuses.GROUP_CONSTRUCT_ABORT, invitation.name, to, infos), ignore)

    def _end(self, invitation: LedInvitation, what: str) -> None:
        invitation.state = States.step(invitation.state, what)
        del self._under_way[invitation.name]
        for timer in filter(None, (*invitation.timers, invitation.reminder)):
            timer.cancel()


def contributed(source: Proc, infos: Iterable[Info]) -> tuple[Info, ...]:
    """Return the contributions of a proc to the infos of all members: each an array that begins with the proc."""
    result = []
    for info in infos:
        if info.key in CONTRIBUTIONS:
            data = info.value.data
            items = data.items if isinstance(data, DataArray) and data.type == codes.INFO else (info,)
            if not items or items[0].key != keys.PROCID:
                items = (proc(keys.PROCID, source), *items)
            elif items[0].value.data != source:
                continue
            result.append(Info(info.key, Value(codes.DATA_ARRAY, DataArray(codes.INFO, tuple(items)))))
    return tuple(result)


def _affected(failed: Proc) -> Info:
    return proc(keys.EVENT_AFFECTED_PROC, failed)
