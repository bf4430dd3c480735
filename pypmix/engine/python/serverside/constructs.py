"""One group construct at a server that has callers of it.

All callers name the same procs. A construct is a collective operation (see `pypmix.engine.collective.machine`) with
additional steps between the last caller and the host's decision:

- **Failures.** If a leader has declared itself or callers want events of failures, the remaining callers get an event
  of each proc that ends, and libraries of pypmix answer with a reaction: continue, abort, or claim to lead. The host is
  asked only after all reactions (`REACTING`). Among procs of this server alone the first claimant leads; with other
  servers the host gets all claims and chooses. A leader alone gets the failures of members, and its knowledge ends
  with it: so the next leader, or all callers if none is chosen, get the failures again that only it had got.
- **Added procs.** Members may add procs that call the same construct without naming any (`Bootstrap`). If all added
  procs are of this server, the construct waits for them (`ADDING`); otherwise the host brings them together.
- **Rounds.** The host may answer that procs of other servers are absent whose end is not known to the callers here. The
  callers get the events and may react, and the host is asked again: the next round.
- **Giving up.** An abort, or the time limit of an optional construct, has to end it on all servers in the same way, and
  the others may have formed the group already. So this server informs the host (`GIVEN_UP`), and the host's decision
  holds if it arrives within `HOST_PATIENCE`.
"""

from __future__ import annotations

from functools import partial

from pypmix.engine.collective.machine import CollectiveState, Kind
from pypmix.engine.collective.rules import (
    CONSTRUCT,
    CONSTRUCT_FT,
    OrderProposal,
    agreed_order,
    bootstrap_order,
    final_order,
    placed,
)
from pypmix.engine.common import ignore
from pypmix.engine.groups.talk import (
    ABORT,
    ABSENT,
    CLAIM,
    DECLARES,
    ERROR_STATUS,
    REACTS,
    SAYS,
    VERDICT,
    flag,
    found,
    listed,
    proc,
    procs,
    size,
    text,
)
from pypmix.engine.python.collectives import (
    answer_failures,
    combine_directives,
    committed_data,
    committed_infos,
    gone_procs,
    procs_of,
    status_info,
    submit,
    take_committed,
)
from pypmix.engine.python.node import answer_failure
from pypmix.engine.python.serverdata import Group
from pypmix.engine.python.serverside.forming import ABORTED, Outcome, member_info, told_as
from pypmix.engine.python.serverside.plans import listed_all
from pypmix.engine.times import HOST_PATIENCE
from pypmix.standard import codes, keys, statuses
from pypmix.standard.ops import NotifyEvent
from pypmix.standard.ops.core import returned
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.hosting import (
    COMMITTED,
    GROUP_CANCEL,
    GROUP_CLAIMS,
    GROUP_CONSTRUCT,
    GROUP_LEADER_PROC,
    GROUP_ORDER,
    GROUP_ROUND,
    GroupUpcall,
)
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.collective.machine import Collective, Said
    from pypmix.engine.python.node import Call
    from pypmix.engine.python.processes import Process
    from pypmix.engine.python.serverside.forming import Forming, Shared
    from pypmix.engine.python.serverside.plans import Plan


OWN = frozenset({keys.GROUP_INFO, keys.GROUP_ENDPT_DATA, REACTS, keys.PROC_INFO_ARRAY})
"""Directives that each member gives for itself; the host does not get them, or gets them in another form.

The last is its committed data, which others get on request.
"""


TELLS_ABSENT = (7, 0, 0)
"""The first release whose servers report the missing members of a fault tolerant construct."""

_MAY_ASK = CollectiveState.READY, CollectiveState.REACTING


class Construct:
    """A running construct, with its callers of this server.

    Attributes:
        name: The group's name.
        plan: The request of all callers, if they are the same; None otherwise.
        flags: The directives of `CONSTRUCT_FT` that any caller has given.
        lacking: The added procs that have not joined.
        leader: The leader, of any server: the first caller that has declared itself, or the leader chosen since then.
        declared: The caller of this server that has declared itself.
        reacting: The callers whose library sends reactions to failures.
        reported: The failed procs, each with the leader that alone has got the event; None if all callers have.
        due: The callers whose reaction is awaited, by the failed proc.
        claims: The callers that want to lead after the leader has failed.
        aborted: Whether a participant has aborted it, or no leader was found.
        alone: Whether all named and all added procs are of this server.
        cancelled: Whether this server has given it up and informed the host.
        extended: Whether its time limit has passed, and the server waits for the host a little longer.
        round: How often this server has reported the state of its callers to the other servers.
        outcome: The group, after the host's decision.
        as_asked: Whether the group is exactly the group of `plan`, and the host has answered as before.
    """

    __slots__ = (
        "_groups",
        "_order",
        "_shared",
        "aborted",
        "alone",
        "as_asked",
        "cancelled",
        "claims",
        "collective",
        "declared",
        "due",
        "extended",
        "flags",
        "lacking",
        "leader",
        "name",
        "outcome",
        "plan",
        "reacting",
        "reported",
        "round",
        "server",
    )

    is_open = False
    """Whether its callers do not know each other; see `Bootstrap`."""

    left_out = OWN | {keys.GROUP_FINAL_MEMBERSHIP_ORDER}
    """Directives that are not sent to the host unchanged."""

    def __init__(self, groups: Forming, collective: Collective[Process, Call]) -> None:
        self.server = groups.server
        self.collective = collective
        self._groups = groups
        # `Membership.id`: a call costs as much as the rest of this method.
        self.name = collective.membership.operation.partition(" ")[2]
        self.plan: Plan | None = None
        self.flags: set[str] = set()
        self.lacking: tuple[Proc, ...] = ()
        self.leader: Proc | None = None
        self.declared: Proc | None = None
        self.reacting: set[Process] = set()
        self.reported: dict[Proc, Proc | None] = {}
        self.due: dict[Proc, set[Process]] = {}
        self.claims: set[Proc] = set()
        self.aborted = False
        self.alone = True
        self.cancelled = False
        self.extended = False
        self.round = 1
        self.outcome: Outcome | None = None
        self.as_asked = False
        self._shared: Shared = {}
        self._order: tuple[Proc, ...] = ()

    @property
    def here(self) -> list[Proc]:
        """The procs of this server that take part."""
        return [process.proc for process in self.collective.membership.members]

    def procs(self) -> tuple[Proc, ...]:
        """Return the procs that take part, in order."""
        return procs_of(self.collective)

    def called(self, process: Process, plan: Plan) -> None:
        """Apply the request of a proc that is about to join."""
        if self.plan is not plan:
            self.plan = None if self.collective.arrived else plan
        if plan.ft:
            self.flags |= plan.ft
            self.collective.ft = True
        if plan.leads and self.declared is None:
            self.declared = process.proc
            if self.leader is None:
                self.leader = process.proc
            self._pass_on_leader(process)
        if plan.reacts:
            self.reacting.add(process)

    def _pass_on_leader(self, process: Process) -> None:
        """Report the leader to other servers if this one waits for more callers: it may end before they join."""
        collective = self.collective
        others = collective.membership.others
        if others and collective.awaited > 1:
            infos = (
                procs(keys.EVENT_CUSTOM_RANGE, sorted(others)),
                text(keys.GROUP_ID, self.name),
                text(SAYS, DECLARES),
                flag(keys.EVENT_NON_DEFAULT),
                flag(keys.EVENT_DO_NOT_CACHE),
            )
            self.server.host.upcall(NotifyEvent(statuses.TALK, RANGE_CUSTOM, infos), ignore, process)

    def added(self) -> tuple[Proc, ...]:
        """Return the procs that its callers add, in the order of these and not of their calls."""
        infos = self.directives_by_caller()
        members = frozenset(self.here)
        return tuple(dict.fromkeys([each for each in listed_all(infos, keys.GROUP_ADD_MEMBERS) if each not in members]))

    def directives_by_caller(self) -> list[Info]:
        """Return the directives of all callers, in the order of the callers' procs."""
        said = sorted(self.collective.said.items(), key=_by_proc)
        return [info for _, (_, infos) in said for info in infos]

    def missing(self) -> tuple[Proc, ...]:
        collective = self.collective
        if CollectiveState.ADDING not in (collective.state, collective.ended_in):
            return tuple(sorted([member.proc for member in collective.missing()]))
        added = self.added()
        came = self._groups.guests(self.name, added)
        return tuple([each for each in added if each not in came])

    # Upcalls

    def ask(self) -> None:
        """Ask the host, unless it waits for reactions of callers or for added procs."""
        collective = self.collective
        if collective.state == CollectiveState.ADDING:
            collective.step(CollectiveState.ADDED_CHANGED)
        elif collective.state not in _MAY_ASK:
            return
        if collective.gone:
            self.look()
            if not collective.is_running:
                return
        if self.due:
            if collective.state == CollectiveState.READY:
                collective.step(CollectiveState.PARTICIPANT_FAILED)
            return
        if collective.state == CollectiveState.REACTING:
            collective.step(CollectiveState.ALL_REACTED)
        plan, others = self.plan, collective.membership.others
        if plan is None or not plan.plain or collective.gone or self.round > 1 or self.extended:
            if not others and self._wait_for_added():
                return
            plan = self.plan = None
            self.alone = not others and not self._adds_others()
        else:
            self.alone = not others
        if plan is not None and plan.question is not None:
            members, directives, self._order = plan.question
        else:
            members, directives = self._question()
            if plan is not None:
                plan.question = members, directives, self._order
        if not self.alone:
            directives = (*directives, *committed_infos(committed_data(self.server, collective)))
        submit(self.server, collective, GroupUpcall(GROUP_CONSTRUCT, self.name, members, directives), is_optional=True)

    def _wait_for_added(self) -> bool:
        """Wait for added procs or fail, if all procs are of this server and some are absent.

        Returns:
            True if the host must not be asked now.
        """
        collective = self.collective
        absent = () if collective.ft else gone_procs(self.collective)
        added = () if absent or (self.plan is not None and self.plan.plain) else self.added()
        if added and not self._adds_others():
            store = self.server.store
            came = self._groups.guests(self.name, added)
            lacking = tuple([each for each in added if each not in came])
            living = [each for each in lacking if (process := store.find(each)) is not None and not process.left]
            if living and not self.extended:
                collective.step(CollectiveState.ADDED_MISSING)
                return True
            self.lacking = lacking
            absent = () if collective.ft else lacking
        if absent:
            collective.absent = absent
            collective.finish(statuses.ERR_PARTIAL_SUCCESS)
        return bool(absent)

    def _adds_others(self) -> bool:
        """Return True if it adds procs of other servers."""
        return any(self.server.store.here(each) is None for each in self.added())

    def _question(self) -> tuple[tuple[Proc, ...], tuple[Info, ...]]:
        """Return the procs and the directives for the host; keep the order and the group info of the callers."""
        others, said, added = self.collective.membership.others, self.collective.said, self.added()
        guests = {} if others else self._groups.guests(self.name, added)
        order, members = self._arranged([each for each in added if each in guests])
        says = [*[(process.proc, infos) for process, (_, infos) in said.items()], *guests.items()]
        shared = self._shared = {each: items for each, infos in says if (items := group_info(infos))}
        gone = gone_procs(self.collective)
        self._order = order
        directives = [
            *combine_directives(self.collective, self.left_out),
            *[member_info(*each) for each in sorted(shared.items())],
        ]
        if gone or self.lacking:
            directives.append(procs(ABSENT, (*gone, *self.lacking)))
        if order:
            directives.append(procs(GROUP_ORDER, order))
        if final := self.final_order():
            directives.append(procs(keys.GROUP_FINAL_MEMBERSHIP_ORDER, final))
        if self.declared is not None:
            directives.append(proc(GROUP_LEADER_PROC, self.declared))
        if others:
            directives.append(size(GROUP_ROUND, self.round))
            if self.claims:
                directives.append(procs(GROUP_CLAIMS, sorted(self.claims)))
            if self.extended:
                directives.append(status_info(statuses.ERR_TIMEOUT))
        return members, tuple(directives)

    def final_order(self) -> tuple[Proc, ...]:
        """Return the final order of the members that counts, as its caller names them; empty if none gives one."""
        key = keys.GROUP_FINAL_MEMBERSHIP_ORDER
        return final_order(
            [((process.proc,), listed(infos, key)) for process, (_, infos) in self.collective.said.items()]
        )

    def _arranged(self, guests: list[Proc]) -> tuple[tuple[Proc, ...], tuple[Proc, ...]]:
        """Return the order that the callers agree on, empty if they do not, and the future members, sorted.

        Args:
            guests: The added procs that have called.
        """
        said = self.collective.said
        flat = {id(named): self._groups.flat(named) for named, _ in said.values()}
        order = self._groups.flat(self.final_order()) or agreed_order(
            OrderProposal(flat[id(named)], process.proc == self.leader) for process, (named, _) in said.items()
        )
        if not guests:
            return order, self.procs()
        present = placed(order, {*self.here}.difference(gone_procs(self.collective)))
        return bootstrap_order(present, guests, order), tuple(sorted({*self.procs(), *guests}))

    # Results

    def take(self, result: object) -> int | None:
        """Read the host's answer: the group, or procs of other servers that have ended."""
        try:
            returned_infos = returned(result, Info) if result else ()
            infos = tuple([info for info in returned_infos if info.key != COMMITTED]) if returned_infos else ()
            stands = not (self.collective.membership.others and listed(infos, ABSENT)) or any(
                info.key == keys.GROUP_MEMBERSHIP for info in infos
            )
            if stands:
                self.outcome = self._as_before(infos) or self._outcome(infos)
                if returned_infos:
                    take_committed(self.server, self.collective, returned_infos, self.outcome.members)
        except (TypeError, ValueError) as problem:
            self.server.host.log(f"the host answered construct of {self.name!r} with nonsense: {problem}")
            return statuses.ERROR
        if stands:
            return statuses.SUCCESS
        self._begin_next_round(infos)
        return None

    def _begin_next_round(self, infos: tuple[Info, ...]) -> None:
        """Start the next round: report procs of other servers that have ended to the callers, which may react."""
        self.collective.step(CollectiveState.NEXT_ROUND)
        self.round += 1
        leader = found(infos, GROUP_LEADER_PROC, Proc)
        if self.leader in self.reported and leader != self.leader:
            self._select(leader)
        self.leader = leader
        self.claims.clear()
        absent = listed(infos, ABSENT)
        # The host starts a round if callers want events of members that end, or only for a leader that has ended.
        notify = (
            keys.GROUP_NOTIFY_TERMINATION in self.flags
            or is_set(infos, keys.GROUP_NOTIFY_TERMINATION)
            or self.leader not in absent
        )
        for failed in sorted(absent):
            if self._is_unreported(failed) and self.collective.is_running:
                if failed == self.leader or notify:
                    self._fail_proc(failed)
                else:
                    self.reported[failed] = None
        self.ask()

    def _as_before(self, infos: tuple[Info, ...]) -> Outcome | None:
        """Return the group if it is the last one of the plan except for the context id; None otherwise.

        Raises:
            ValueError: The context id is not valid.
        """
        plan = self.plan
        if plan is None or not plan.answer or len(infos) != plan.numbered or self.collective.membership.others:
            return None
        number: int | None = None
        if plan.numbered:
            if infos[0].key != keys.GROUP_CONTEXT_ID:
                return None
            number = self._groups.number_in(infos[0])
        self.as_asked = True
        return Outcome(plan.answer, number, {}, self.leader)

    def _outcome(self, infos: tuple[Info, ...]) -> Outcome:
        """Return the group from the host's answer; missing parts are added from the requests.

        Raises:
            TypeError: An info has a value of the wrong type.
            ValueError: The answer is not valid.
        """
        collective, membership, plan = self.collective, self.collective.membership, self.plan
        absent = () if membership.others else (*gone_procs(self.collective), *self.lacking)
        members: tuple[Proc, ...] = ()
        if all(info.key != keys.GROUP_MEMBERSHIP for info in infos):
            added = () if membership.others or (plan is not None and plan.plain) else self.added()
            members = placed(self._order, {*self.here, *membership.others, *added} - {*absent})
        members, context_id, shared = self._groups.read(infos, self._shared, members)
        if absent and not self.alone:
            # Procs that have ended since are members on the other servers.
            absent = tuple([each for each in absent if each not in members])
        elif absent:
            members = tuple([each for each in members if each not in absent])
        inside = frozenset(members)
        # The host may know of the end of a caller before this server has read its last message.
        missing = [each.proc for each in collective.arrived if each.registered and each.proc not in inside]
        if missing:
            raise ValueError(f"{missing[0]} is not among the members")
        numbered = any(is_set(said, keys.GROUP_ASSIGN_CONTEXT_ID) for _, said in collective.said.values())
        if context_id is None and numbered and not membership.others:
            context_id = self._groups.new_context_id()
        leader = self.leader
        if membership.others:
            leader, absent = found(infos, GROUP_LEADER_PROC, Proc), listed(infos, ABSENT)
            if self.leader in absent:
                self._select(leader)
            self.flags |= {key for key in CONSTRUCT_FT if is_set(infos, key)}
        leader = leader if leader in inside else None
        partial = bool(absent) and keys.GROUP_OPTIONAL in self.flags
        if plan is not None and not (leader or partial or shared):
            self.as_asked = plan.keep_members(members)
            # Keep one tuple of members for all groups of the plan.
            members = plan.answer if self.as_asked else members
        return Outcome(members, context_id, shared, leader, partial, absent)

    def complete(self, status: int) -> None:
        """Answer the callers, and record the group if the construct has succeeded."""
        groups, outcome, collective = self._groups, self.outcome, self.collective
        groups.forget(self, status, outcome if status == statuses.SUCCESS else None)
        if status == statuses.SUCCESS and outcome is not None:
            group = Group(outcome.leader, self.flags, outcome.context_id)
            plan = self.plan if self.as_asked else None
            if plan is None or not groups.stands_as_asked(self.name, collective, plan, outcome, group):
                groups.stands(self.name, outcome, group, dict(collective.arrived), agreed=not self.alone)
                self._tell_of_absent(outcome.absent)
            return
        if collective.is_forwarded:
            self._cancel(status)
        elif status == statuses.ERR_TIMEOUT and not self.cancelled and self._is_due():
            # Its callers have not reacted to a failure in time.
            self._withdraw(status)
        if collective.membership.others and self.leader in self.reported and not self.aborted:
            self._select(None)
        if status not in ABORTED:
            answer_failures(collective, status or statuses.ERROR)
            return
        for peer, tag in collective.arrived.values():
            answer_failure(peer, tag, told_as(status, peer), collective.absent, collective.reason)

    def _tell_of_absent(self, absent: tuple[Proc, ...]) -> None:
        """Report to programs on libpmix the members that had ended before a fault tolerant construct.

        Servers of libpmix do so from 7.0 on, when the group exists, and programs written for them wait for it.
        """
        if keys.GROUP_FT_COLLECTIVE not in self.flags:
            return
        calls = self.collective.arrived.items()
        on_library = [each.proc for each, (peer, _) in calls if peer.release >= TELLS_ABSENT and not peer.is_own_engine]
        for failed in absent:
            # The callers have got the events of the others while they waited.
            if on_library and failed not in self.reported:
                self._tell(statuses.GROUP_MEMBER_FAILED, on_library, (proc(keys.EVENT_AFFECTED_PROC, failed),))

    def _is_due(self) -> bool:
        """Return True if the other servers wait for the request of this server in a later round."""
        return self.round > 1 and self.collective.ended_in != CollectiveState.DECIDED

    def discard(self) -> None:
        """Forget the construct, whose callers have all disconnected."""
        self._groups.forget(self, statuses.GROUP_CONSTRUCT_ABORT, None)
        # If other servers take part, the host is informed by the reports of the callers' deaths.
        if self.collective.is_forwarded and not self.collective.membership.others:
            self._cancel()

    def guests_over(self, status: int, outcome: Outcome | None) -> None:
        """Another construct of the name, of procs of this server alone, has ended, and so it has for its guests."""

    # Giving up

    def give_up(self, status: int) -> None:
        """End it on this server at once, and inform the other servers."""
        collective = self.collective
        if collective.is_running:
            if collective.membership.others and not collective.is_forwarded:
                self._withdraw(status)
            collective.finish(status)

    def report_timeout(self) -> None:
        if not self.cancelled:
            self._withdraw(statuses.ERR_TIMEOUT)

    def _withdraw(self, status: int) -> None:
        """Inform the other servers, which wait for this one, that the construct has ended here."""
        self.cancelled = True
        verdict = (text(VERDICT, "abort"),) if status == statuses.GROUP_CONSTRUCT_ABORT else ()
        infos = (status_info(status), *verdict, size(GROUP_ROUND, self.round))
        self.server.host.upcall(GroupUpcall(GROUP_CONSTRUCT, self.name, self.procs(), infos), ignore)

    def _cancel(self, status: int = statuses.SUCCESS) -> None:
        """Report to the host that this server gives up the construct."""
        self._groups.cancel(self.name, self.procs(), status)

    def abort(self, quiet: bool = False) -> None:
        """Abort the construct for all procs, because a participant aborts it or it has no leader.

        Args:
            quiet: Do not raise the event of the abort.
        """
        collective = self.collective
        if self.cancelled or not collective.is_running:
            return
        self.aborted = True
        self._groups.owe(self.name, set(collective.missing()), statuses.GROUP_CONSTRUCT_ABORT)
        if not quiet:
            self._tell(statuses.GROUP_CONSTRUCT_ABORT, self.here)
            if collective.membership.others:
                to = procs(keys.EVENT_CUSTOM_RANGE, sorted(collective.membership.others))
                infos = (to, flag(keys.EVENT_NON_DEFAULT), text(keys.GROUP_ID, self.name))
                self.server.host.upcall(NotifyEvent(statuses.GROUP_CONSTRUCT_ABORT, RANGE_CUSTOM, infos), ignore)
        if not collective.is_forwarded or self.alone:
            self.give_up(statuses.GROUP_CONSTRUCT_ABORT)
            return
        # All servers must have the same result: the host knows whether the group was formed before this.
        self.cancelled = True
        collective.step(CollectiveState.GIVEN_UP)

        def end_construct() -> None:
            collective.finish(statuses.GROUP_CONSTRUCT_ABORT)

        def given_up(_result: object, error: BaseException | None) -> None:
            if error is not None:
                end_construct()
            elif collective.is_running:
                self.server.clock.call_later(HOST_PATIENCE, end_construct)

        self.server.host.upcall(GroupUpcall(GROUP_CANCEL, self.name, self.procs()), given_up)

    def handle_timeout(self) -> bool:
        """Handle the time limit: with `OPTIONAL` the callers until now form the group."""
        if keys.GROUP_OPTIONAL not in self.flags or self.extended:
            return False
        self.extended = True
        collective = self.collective
        if collective.is_forwarded:
            collective.step(CollectiveState.GIVEN_UP)
            self._cancel(statuses.ERR_TIMEOUT)
            collective.expire(HOST_PATIENCE, statuses.ERR_TIMEOUT)
        else:
            missing = collective.missing()
            self._groups.owe(self.name, set(missing), statuses.ERR_TIMEOUT)
            collective.without(missing)
            # Nothing is missing if the construct waits only for added procs.
            self.ask()
        return True

    # Failures, and the callers' reactions

    def look(self) -> None:
        """Report failures on this server to the callers, unless procs of other servers take part.

        While no caller leads, failures of members are reported only after all procs have joined.
        """
        collective = self.collective
        if collective.membership.others or not collective.gone:
            return
        for failed in sorted(gone_procs(collective), key=lambda proc: proc != self.leader):
            if self.leader in self.due or not collective.is_running:
                # The other failures are reported to the next leader.
                return
            if keys.GROUP_OPTIONAL in self.flags or not self._is_unreported(failed):
                continue
            # A later caller may be the leader, and then only the leader gets the failures of members.
            may_be_led = self.leader is None and collective.state == CollectiveState.GATHERING
            if failed == self.leader or (keys.GROUP_NOTIFY_TERMINATION in self.flags and not may_be_led):
                self._fail_proc(failed)

    def _fail_proc(self, failed: Proc) -> None:
        """Report the failure of a proc, and wait for the callers' reactions."""
        leads = failed == self.leader
        recipient = None if leads or self.leader in self.reported else self.leader
        self.reported[failed] = recipient
        targets = self.here if recipient is None else [recipient]
        came = self.reacting.intersection(self.collective.arrived)
        waiting = {each for each in came if each.proc in targets and not each.left}
        if waiting:
            self.due[failed] = waiting
        self._tell(
            statuses.GROUP_LEADER_FAILED if leads else statuses.GROUP_MEMBER_FAILED,
            targets,
            (proc(keys.EVENT_AFFECTED_PROC, failed),),
        )
        if leads and not waiting:
            self._choose()

    def _is_unreported(self, failed: Proc) -> bool:
        """Return True if neither the present leader nor all callers have got the event of a failure."""
        return failed not in self.reported or self.reported[failed] not in (None, self.leader)

    def reacted(self, process: Process, failed: Proc | None, verdict: str | None) -> None:
        """Apply a caller's reaction to the failure of a proc."""
        if verdict == ABORT:
            self.abort()
            return
        if failed is None or process not in self.due.get(failed, ()):
            return
        if verdict == CLAIM and failed == self.leader:
            self.claims.add(process.proc)
        self._settled(process, failed)

    def departed(self, process: Process, crashed: bool) -> None:
        """Handle the end of a proc of this server: stop waiting for its reactions."""
        collective = self.collective
        if collective.is_forwarded:
            if crashed and process in collective.gone and not collective.membership.others and not collective.ft:
                if self.alone:
                    collective.finish(statuses.ERR_PARTIAL_SUCCESS)
                else:
                    self.abort(quiet=True)
            return
        self.dismiss(process)
        if collective.is_running:
            self.look()
            self.ask()

    def dismiss(self, process: Process) -> None:
        """Stop waiting for the reactions of a caller that has ended, or no longer waits for the construct."""
        self.reacting.discard(process)
        self.claims.discard(process.proc)
        for failed in list(self.due):
            if process in self.due.get(failed, ()):
                self._settled(process, failed)

    def _settled(self, process: Process, failed: Proc) -> None:
        waiting = self.due[failed]
        waiting.discard(process)
        if waiting:
            return
        del self.due[failed]
        if failed == self.leader:
            self._choose()
            self.look()
        if not self.due:
            self.ask()

    def _choose(self) -> None:
        """Choose the leader after all reactions: the first claimant in the order of procs."""
        if self.collective.membership.others:
            return
        winner = min(self.claims, default=None)
        self.claims.clear()
        self._select(winner)
        if winner is None and not self.collective.ft:
            self.abort(quiet=True)

    def _select(self, winner: Proc | None) -> None:
        """Set the leader and announce it, or announce that the group has no leader."""
        self.leader = winner
        if winner is not None:
            self.collective.ft = True
            infos: tuple[Info, ...] = (proc(keys.GROUP_LEADER, winner),)
        else:
            infos = (Info(ERROR_STATUS, Value(codes.STATUS, statuses.ERR_NOT_FOUND)),)
        self._tell(statuses.GROUP_LEADER_SELECTED, self.here, infos)

    def _tell(self, code: int, to: list[Proc], infos: tuple[Info, ...] = ()) -> None:
        self._groups.records.tell(code, self.name, to, infos)


def construct_kind(groups: Forming, record: type[Construct], **functions: Any) -> Kind:
    """Return the kind of constructs with records of a class, and further functions of the kind."""
    return Kind(
        CONSTRUCT,
        record.ask,
        record.take,
        record.complete,
        begin=partial(record, groups),
        handle_timeout=record.handle_timeout,
        report_timeout=record.report_timeout,
        discard=record.discard,
        missing=record.missing,
        **functions,
    )


def _by_proc(contribution: tuple[Process, Said]) -> Proc:
    return contribution[0].proc


def group_info(infos: tuple[Info, ...]) -> tuple[Info, ...]:
    """Return the group info and endpoint data that a member gives with a construct."""
    items: list[Info] = []
    for info in infos:
        if info.key == keys.GROUP_INFO:
            items += [item for item in info.value.data if item.key != keys.PROCID]
        elif info.key == keys.GROUP_ENDPT_DATA:
            items.append(info)
    return tuple(items)
