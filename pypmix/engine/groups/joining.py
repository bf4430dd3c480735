"""Invitations on the invited side: accepted or declined, and their outcome.

An invitation has one leader at a time, which decides the outcome: complete or given up. If it fails first, the invited
procs elect another one (`election`), which takes the invitation over; procs that had accepted accept again without
their programs. The election finds an outcome that the failed leader has sent to some procs; it then holds for all.

For the invitations of libpmix 7 and the answers that it expects see `inviting`. It names the other invited procs only
in the custom range of the event; if a server does not pass that on, no other leader can be elected.
"""

from __future__ import annotations

from pypmix.engine.common import ignore
from pypmix.engine.groups.election import LeaderChoice
from pypmix.engine.groups.inviting import (
    GIVES_UP,
    GONE,
    INVITATION,
    MEMBERS,
    MEMBERS_KNOWN,
    PARTIAL,
    REMINDS,
    ROUTING,
    VERSION,
    InvitationRecord,
    contributed,
)
from pypmix.engine.groups.states import InviteeStates
from pypmix.engine.groups.talk import (
    ABORT,
    REASON,
    SAYS,
    TERM,
    event,
    found,
    keep,
    listed,
    named,
    proc,
    procs,
    say,
    text,
    timeout_in,
    verdict_of,
)
from pypmix.standard import keys, statuses
from pypmix.standard.errors import OperationTimeout, PMIxError, error_for
from pypmix.standard.naming import name_proc
from pypmix.standard.ops import GroupJoin, GroupResults, Notification
from pypmix.standard.ops.events import RANGE_PROC_LOCAL
from pypmix.standard.types import RANK_WILDCARD, Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.groups.agent import Agent, Timer

HANDED_ON = (keys.GROUP_NOTIFY_TERMINATION, keys.GROUP_OPTIONAL, keys.GROUP_FT_COLLECTIVE, keys.GROUP_ASSIGN_CONTEXT_ID)
"""The directives of an invitation that hold for all of its members."""

MAX_OPEN = 1024
"""The most invitations that wait for this process's program; further ones are declined."""

Key = tuple[str, Proc]


class _ReceivedInvitation(InvitationRecord):
    """An invitation to this process; the last ones that have ended are kept.

    A program may answer late, and a leader that does not know of the end may ask again.
    """

    def __init__(self, name: str, origin: Proc, infos: tuple[Info, ...] = ()) -> None:
        super().__init__(name, infos)
        self.origin = origin
        """The proc that has invited this process, by which its program knows the invitation."""
        self.leader = origin
        self.inviter = origin
        """The last leader that has invited this process: a new one does so when it knows that it leads."""
        self.members: tuple[Proc, ...] = ()
        """All invited procs and the leader; empty if they are not known."""
        self.contributions: tuple[Info, ...] = ()
        self.state = InviteeStates.START
        self.gives_up = False
        self.made: tuple[Proc, ...] = ()
        """The members, if the event that completes the group arrived after the end of its leader."""
        self.timer: Timer | None = None
        self.results: GroupResults | None = None
        self.error: BaseException | None = None
        """The outcome, if the program had not answered before it."""
        self.reason = ""
        """Why this process is not in the group."""
        self.left = False
        """Whether this process had accepted and has ended the invitation all the same: a leader may not know that."""

    @property
    def key(self) -> Key:
        return self.name, self.origin

    @property
    def joins(self) -> bool:
        """Whether the program has accepted."""
        return self.state in (InviteeStates.JOINS, InviteeStates.WAITS, InviteeStates.LEADS_AND_JOINS)

    @property
    def leads(self) -> bool:
        """Whether this process has taken it over."""
        return self.state in (InviteeStates.LEADS, InviteeStates.LEADS_AND_JOINS)

    @property
    def failed(self) -> bool:
        """Whether the leader has failed and has not been replaced."""
        return self.state in (InviteeStates.LEADERLESS, InviteeStates.WAITS)

    @property
    def may_answer(self) -> bool:
        """Whether the leader waits for an answer: it lives, and has invited this process."""
        return self.inviter == self.leader and not self.failed and not self.leads

    @property
    def use(self) -> str:
        return f"the caller is about to join another group {self.name!r}" if self.joins or self.leads else ""

    def step(self, what: str) -> None:
        """Take a step of its state machine."""
        self.state = InviteeStates.step(self.state, what)


class Joining:
    """The invitations to this process."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._me = agent.port.proc
        self._open: dict[Key, _ReceivedInvitation] = {}
        self._past: dict[Key, _ReceivedInvitation] = {}
        agent.hear(MEMBERS, self._members_changed)
        agent.hear(GONE, self._handle_withdrawal)
        agent.hear(REMINDS, self._is_reminded)
        agent.port.handlers.conclude(statuses.GROUP_LEADER_FAILED, self._failure_answered)
        agent.port.handlers.screen(statuses.GROUP_INVITED, self._is_news)
        agent.standing.follow(self._handle_exit)
        # Outcomes first: an invitation may have one already when it arrives.
        for code, watcher in (
            (statuses.GROUP_CONSTRUCT_COMPLETE, self._completed),
            (statuses.GROUP_CONSTRUCT_ABORT, self._aborted),
            (statuses.GROUP_INVITED, self._invited),
        ):
            agent.port.watch(code, watcher)

    # Questions of the other parts

    def follows(self, name: str, leader: Proc) -> bool:
        """Return True if this process is known to be invited to a group of this name by this leader."""
        return any(record.name == name and leader in (record.leader, record.origin) for record in self._open.values())

    def apply_result(self, name: str, failed: Proc, infos: tuple[Info, ...]) -> None:
        """A leader that has failed has reported to some process that the group is complete."""
        for record in [each for each in self._led_by(failed, name) if each.failed]:
            if record.joins and self._me in listed(infos, keys.GROUP_MEMBERSHIP):
                self._formed(record, infos)
            else:
                self._end_with(record, statuses.GROUP_CONSTRUCT_ABORT, "the group was made without the caller")

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended."""
        for record in list(self._open.values()):
            if not record.leads:
                self._finish(record, None, error if error is not None else PMIxError("the session has ended"))
        # `Inviting` ends the invitations that this process leads.
        self._past.clear()

    # Joining and declining

    def join(self, op: GroupJoin, done: Done[GroupResults]) -> None:
        """Carry out a `GroupJoin`."""
        if op.leader == self._me:
            raise PMIxError("the caller leads this invitation", status=statuses.ERR_BAD_PARAM, procs=(op.leader,))
        record = self._find(op.group, op.leader)
        if record is None:
            past = self._past.get((op.group, op.leader))
            if past is not None and self._answer_late(op, past, done):
                return
            record = self._unheard(op)
        if record.joins:
            whose = name_proc(op.leader, self._me.nspace)
            raise PMIxError(
                f"the caller has accepted the invitation of {whose} to {op.group!r} before",
                status=statuses.ERR_EXISTS,
            )
        if record.leads and not op.accept:
            # Its handler has claimed what its program declines.
            self._agent.part("inviting").give_up(record.name, op.reason or "the leader has declined")
            done(None, None)
            return
        if not op.accept:
            self._decline(record, op.reason, done)
            return
        taken = "" if record.leads else self._agent.name_conflict(op.group)
        if taken:
            self._decline(record, f"{self._me} is in another group of this name, or about to", None)
            raise PMIxError(taken, status=statuses.ERR_EXISTS, hint="the invitation was declined")
        self._accept(record, op, done)

    def _answer_late(self, op: GroupJoin, past: _ReceivedInvitation, done: Done[GroupResults]) -> bool:
        """Answer a program whose invitation has ended already. Return False if no outcome is kept for it."""
        if past.results is None and past.error is None:
            return False
        del self._past[op.group, op.leader]
        done(past.results if op.accept else None, past.error if op.accept else None)
        return True

    def _find(self, name: str, leader: Proc) -> _ReceivedInvitation | None:
        record = self._open.get((name, leader))
        if record is None:
            others = [each for each in self._open.values() if each.name == name and each.leader == leader]
            record = others[0] if others else None
        return record

    def _unheard(self, op: GroupJoin) -> _ReceivedInvitation:
        """Return a record for an invitation that the program has received, and this part has not.

        The program passes the infos of the invitation in its directives, with its own contributions.
        """
        record = _ReceivedInvitation(op.group, op.leader, op.directives)
        record.members = listed(op.directives, keys.GROUP_MEMBERSHIP)
        record.directives = tuple([info for info in op.directives if info.key in HANDED_ON])
        self._take_in(record)
        return record

    def _take_in(self, record: _ReceivedInvitation) -> None:
        before, self._open[record.key] = self._open.get(record.key), record
        self._past.pop(record.key, None)
        self._agent.standing.expected(record.name, record)
        if before is not None and before is not record:
            self._agent.standing.abandoned(record.name, before)

    def _accept(self, record: _ReceivedInvitation, op: GroupJoin, done: Done[GroupResults]) -> None:
        record.step(InviteeStates.ACCEPTS)
        record.done = done
        record.contributions = contributed(self._me, op.directives)
        seconds = timeout_in(op.directives)
        if seconds:
            record.timer = self._port.later(seconds, lambda: self._out_of_time(record, seconds))
        if not record.leads and not record.failed and self._agent.standing.has_exited(record.leader):
            self._leader_failed(record)
        elif record.may_answer:
            self._send_acceptance(record)

    def _send_acceptance(self, record: _ReceivedInvitation) -> None:
        infos = (*record.stamp, *record.contributions)
        if record.term > 1:
            infos = (procs(keys.GROUP_MEMBERSHIP, record.members), *infos)

        def sent(_: object, error: BaseException | None) -> None:
            if error is not None and self._open.get(record.key) is record:
                self._finish(record, None, error)

        self._port.submit(event(statuses.GROUP_INVITE_ACCEPTED, record.name, (record.leader,), infos), sent)

    def _decline(self, record: _ReceivedInvitation, reason: str, done: Done[Any] | None) -> None:
        may_answer, record.reason = record.may_answer, reason
        self._close(record, InviteeStates.DECLINES)
        self._choose_no_more(record)

        def sent(_: object, error: BaseException | None) -> None:
            if done is not None:
                done(None, error)

        if may_answer:
            self._send_decline(record.name, record.leader, record.stamp, reason, sent)
        else:
            sent(None, None)

    def _send_decline(self, name: str, leader: Proc, stamp: tuple[Info, ...], reason: str, sent: Done[None]) -> None:
        infos = (*stamp, text(REASON, reason)) if reason else stamp
        self._port.submit(event(statuses.GROUP_INVITE_DECLINED, name, (leader,), infos), sent)

    def _out_of_time(self, record: _ReceivedInvitation, seconds: float) -> None:
        """Give up; if the leader completes the group all the same, this process leaves it at once."""
        record.timer = None
        why = "its time to join has run out"
        error = OperationTimeout(
            f"the group {record.name!r} was not complete within {seconds:g} s",
            operation="group_join",
            procs=record.members,
        )
        done, record.done = record.done, None
        if record.leads:
            if not self._agent.part("inviting").give_up(record.name, why):
                # The group is complete, and only the event of that is still to arrive.
                record.done = done
                return
        else:
            may_answer, record.left, record.reason = record.may_answer, True, why
            self._close(record, InviteeStates.TIME_OUT)
            self._choose_no_more(record)
            if may_answer:
                self._send_decline(record.name, record.leader, record.stamp, why, ignore)
        if done is not None:
            done(None, error)

    # Events of the leader

    def _is_news(self, event: Notification) -> bool:
        """Return True if the program should see this invitation; repeated ones are answered here."""
        name, news = named(event), InvitationRecord(named(event), event.infos)
        if not name:
            return True
        if event.source == self._me:
            # Servers of 4.2 may name the receiver of a kept event as its source; the leader's reminder corrects it.
            inviting = self._agent.made("inviting")
            return not news.token or (inviting is not None and inviting.leads(name))
        for record in self._open.values():
            if (
                record.name == name
                and record.token == news.token
                and (news.token or event.source in (record.origin, record.leader))
            ):
                # A leader repeats an invitation if the server is late; it has the answer, or will get it.
                if news.term > 1 and record.inviter != event.source:
                    record.inviter = event.source
                    self._answer_again(record)
                return False
        for past in [each for each in self._past.values() if news.token and each.token == news.token]:
            if past.inviter != event.source:
                # A new leader does not know that this process has ended the invitation.
                past.inviter = event.source
                reason = past.reason or "it is not invited any more"
                self._send_decline(name, event.source, news.stamp[:1], reason, ignore)
                return False
            if news.version <= past.version:
                # The server has kept it, and the leader has repeated it in the meantime.
                return False
        if len(self._open) >= MAX_OPEN:
            self._send_decline(name, event.source, news.stamp[:1], "it has too many invitations", ignore)
            return False
        return True

    def _answer_again(self, record: _ReceivedInvitation) -> None:
        """Answer a new leader for the program, if both know that it leads."""
        if not record.may_answer:
            return
        if record.gives_up:
            self._port.submit(say(GIVES_UP, record.name, (record.leader,), record.stamp), ignore)
        elif record.joins:
            self._send_acceptance(record)

    def _invited(self, event: Notification) -> None:
        name = named(event)
        if not name or event.source == self._me:
            return
        record = self._open.get((name, event.source))
        if record is None or not record.joins or record.token:
            record = _ReceivedInvitation(name, event.source)
        record.read(event.infos)
        members = listed(event.infos, keys.GROUP_MEMBERSHIP) or self._in_range(event)
        record.members = tuple(dict.fromkeys(members))
        record.directives = tuple([info for info in event.infos if info.key not in ROUTING])
        self._take_in(record)
        if self._agent.standing.has_exited(record.leader):
            self._leader_failed(record)

    def _is_reminded(self, event: Notification) -> None:
        """The leader reminds of an invitation: it may have arrived, or the server still holds it, or has lost it."""
        token = found(event.infos, INVITATION, str)
        if any(past.token == token for past in self._past.values()):
            # The last answer of this process to it may still be on its way.
            return
        if any((record.token, record.name) == (token, named(event)) for record in self._open.values()):
            return
        infos = tuple([info for info in event.infos if info.key not in (SAYS, keys.EVENT_DO_NOT_CACHE)])
        self._port.handlers.start_chain(Notification(statuses.GROUP_INVITED, event.source, event.range, infos), True)

    def _in_range(self, event: Notification) -> tuple[Proc, ...]:
        """Return the leader and the procs it has invited, as far as the range of its event names them."""
        targets = listed(event.infos, keys.EVENT_CUSTOM_RANGE)
        if not targets or any(each.rank == RANK_WILDCARD for each in targets):
            return ()
        return event.source, *targets

    def _members_changed(self, event: Notification) -> None:
        token, version = found(event.infos, INVITATION, str), found(event.infos, VERSION, int) or 0
        for record in self._led_by(event.source, named(event)):
            if not record.failed and token == record.token and version >= record.version:
                record.members = listed(event.infos, keys.GROUP_MEMBERSHIP)
                record.version = version
                self._port.submit(say(MEMBERS_KNOWN, record.name, (event.source,), record.stamp), ignore)

    def _handle_withdrawal(self, event: Notification) -> None:
        for record in self._led_by(event.source, named(event)):
            why = "the invitation was withdrawn, or its time is over"
            self._end_with(record, statuses.GROUP_CONSTRUCT_ABORT, why)

    def _led_by(self, leader: Proc, name: str) -> list[_ReceivedInvitation]:
        """Return the open invitations of a leader to groups of a name; an empty one stands for all."""
        return [each for each in self._open.values() if each.leader == leader and name in ("", each.name)]

    def _completed(self, event: Notification) -> None:
        name, token, infos = named(event), found(event.infos, INVITATION, str), event.infos
        if not name or event.source == self._me:
            return
        if found(infos, keys.GROUP_LEADER, Proc) is None:
            infos = (*infos, proc(keys.GROUP_LEADER, event.source))
        infos = tuple([info for info in infos if info.key != keys.EVENT_CUSTOM_RANGE])
        for record in [each for each in self._led_by(event.source, name) if each.joins and not each.leads]:
            if token in (None, record.token):
                if record.failed:
                    # Others may have got the answer that this process does not know it.
                    record.made = listed(infos, keys.GROUP_MEMBERSHIP)
                    self._agent.part("election").report(name, record.leader, infos)
                else:
                    self._formed(record, infos)
                return
        members = listed(infos, keys.GROUP_MEMBERSHIP)
        for past in [past for key, past in self._past.items() if key[0] == name and past.left]:
            if past.token == (token or ""):
                past.left = False
                self._leave(name, members)

    def _leave(self, name: str, members: tuple[Proc, ...]) -> None:
        """Leave a group that a leader has completed although this process has ended its invitation."""
        if self._me in members:
            others = [each for each in members if each != self._me]
            self._port.submit(_departure_event(name, others, self._me), ignore)

    def _aborted(self, event: Notification) -> None:
        name, token = named(event), found(event.infos, INVITATION, str)
        why = found(event.infos, REASON, str) or "the leader has given it up"
        for record in [each for each in self._led_by(event.source, name) if token in (None, each.token)]:
            if not record.leads:
                self._end_with(record, statuses.GROUP_CONSTRUCT_ABORT, why)
        seen = any(each.token == token for each in (*self._open.values(), *self._past.values()))
        if name and token and event.source != self._me and not seen:
            # The invitation itself arrives later if a server has kept it for a handler; that group cannot be joined.
            record = _ReceivedInvitation(name, event.source, event.infos)
            self._take_in(record)
            self._end_with(record, statuses.GROUP_CONSTRUCT_ABORT, why)

    # A leader that fails

    def _handle_exit(self, proc: Proc) -> None:
        for record in list(self._open.values()):
            if record.leader == proc and not record.failed and not record.leads:
                self._leader_failed(record)

    def _leader_failed(self, record: _ReceivedInvitation) -> None:
        if not record.failed:
            record.step(InviteeStates.LEADER_FAILS)
        failed = record.leader
        # The others may know that this process leads before it knows that itself, and answer.
        self._agent.part("inviting")
        others = [each for each in record.members if each != failed]
        if not others:
            infos = text(keys.GROUP_ID, record.name), proc(keys.EVENT_AFFECTED_PROC, failed)
            self._port.handlers.start_chain(
                Notification(statuses.GROUP_LEADER_FAILED, self._me, RANGE_PROC_LOCAL, infos), False
            )
            self._end_with(record, statuses.GROUP_LEADER_FAILED, f"its leader {failed} has failed")
            return
        self._agent.part("election").begin(
            record.name,
            others,
            failed,
            term=record.term + 1,
            decided=lambda outcome: self._decided(record, outcome),
            able=lambda: not self._agent.name_conflict(record.name, record),
        )

    def _failure_answered(self, event: Notification, status: int, results: tuple[Info, ...]) -> None:
        """Apply the answer of a handler that gives up, even if there is a new leader already."""
        name, failed = named(event), found(event.infos, keys.EVENT_AFFECTED_PROC, Proc)
        if failed is None or verdict_of(status, results) != ABORT:
            return
        for record in list(self._open.values()):
            if record.name == name and failed in (record.leader, record.origin):
                record.gives_up = True
                self._answer_again(record)

    def _decided(self, record: _ReceivedInvitation, outcome: LeaderChoice) -> None:
        if self._open.get(record.key) is not record or not record.failed:
            return
        leader = outcome.leader
        if leader is None:
            if outcome.status == statuses.GROUP_CONSTRUCT_ABORT:
                why = "an invited proc has given it up when the leader failed"
                infos = (text(keys.GROUP_ID, record.name), *record.stamp, text(REASON, why))
                aborted = Notification(statuses.GROUP_CONSTRUCT_ABORT, self._me, RANGE_PROC_LOCAL, infos)
                self._end_with(record, statuses.GROUP_CONSTRUCT_ABORT, why)
                self._port.handlers.start_chain(aborted, False)
            else:
                why = f"its leader, {name_proc(record.leader, self._me.nspace)}, has failed, and no proc wanted to lead"
                self._end_with(record, statuses.GROUP_LEADER_FAILED, why)
            return
        record.term += 1
        record.members = tuple([each for each in record.members if each != record.leader])
        record.leader = leader
        if leader == self._me:
            if self._agent.name_conflict(record.name, record):
                self._refuse_to_lead(record)
            else:
                self._take_over(record)
            return
        record.step(InviteeStates.IS_LED)
        if self._agent.standing.has_exited(leader):
            self._leader_failed(record)
        else:
            self._answer_again(record)

    def _refuse_to_lead(self, record: _ReceivedInvitation) -> None:
        """Abort: this process has joined another group of this name since its claim."""
        why = f"its leader {self._me} is in another group of this name"
        others = [each for each in record.members if each != self._me and not self._agent.standing.has_exited(each)]
        if others:
            infos = (*record.stamp, text(REASON, why))
            self._port.submit(event(statuses.GROUP_CONSTRUCT_ABORT, record.name, others, infos), ignore)
        self._end_with(record, statuses.GROUP_CONSTRUCT_ABORT, why)

    def _take_over(self, record: _ReceivedInvitation) -> None:
        record.step(InviteeStates.IS_CHOSEN)

        def done(results: GroupResults | None, error: BaseException | None) -> None:
            if isinstance(error, PMIxError):
                error.operation = "group_join"
            if self._open.get(record.key) is record:
                self._finish(record, results, error)

        self._agent.part("inviting").take_over(record, record.members, record.contributions, done)

    # The end

    def _formed(self, record: _ReceivedInvitation, infos: tuple[Info, ...]) -> None:
        members = listed(infos, keys.GROUP_MEMBERSHIP)
        leader = found(infos, keys.GROUP_LEADER, Proc)
        self._agent.part("election").remember(record.name, record.leader, infos)
        results: GroupResults = self._agent.standing.formed(
            record.name,
            members,
            context_id=found(infos, keys.GROUP_CONTEXT_ID, int),
            leader=leader if leader in members else None,
            infos=tuple([info for info in infos if info.key not in ROUTING and info.key != keys.GROUP_CONTEXT_ID]),
            directives=record.directives,
            term=found(infos, TERM, int) or 1,
        )
        partial = found(infos, PARTIAL, bool)
        if partial is None:
            partial = bool(set(record.members) - set(members) - {record.origin})
        self._finish(record, results.replace(partial=partial), None)

    def _end_with(self, record: _ReceivedInvitation, status: int, why: str) -> None:
        error = error_for(status)(
            f"there is no group {record.name!r}: {why}",
            status=status,
            operation="group_join",
            procs=record.members,
        )
        self._finish(record, None, error)

    def _finish(self, record: _ReceivedInvitation, results: GroupResults | None, error: BaseException | None) -> None:
        done, record.done = record.done, None
        if done is None:
            record.results, record.error = results, error
        if error is not None:
            record.reason = "it has ended the invitation"
            record.left = record.joins and not record.made
        self._close(record, InviteeStates.STANDS if error is None else InviteeStates.ENDS)
        if error is not None:
            self._choose_no_more(record)
            self._leave(record.name, record.made)
        if done is not None:
            done(results, error)

    def _close(self, record: _ReceivedInvitation, what: str) -> None:
        if record.timer is not None:
            record.timer.cancel()
            record.timer = None
        self._open.pop(record.key, None)
        # They may be large.
        record.contributions = record.directives = ()
        keep(self._past, record.key, record)
        record.step(what)
        self._agent.standing.abandoned(record.name, record)

    def _choose_no_more(self, record: _ReceivedInvitation) -> None:
        elections = self._agent.made("election")
        if elections is not None:
            elections.drop(record.name, record.leader)


def _departure_event(name: str, members: list[Proc], leaver: Proc) -> Any:
    return event(statuses.GROUP_LEFT, name, members, (proc(keys.EVENT_AFFECTED_PROC, leaver),))
