"""Constructs under way: who meets whom, what the host is asked, and what comes of it."""

from __future__ import annotations

from pypmix.engine.base import ignore
from pypmix.engine.groups.states import Construction
from pypmix.engine.groups.talk import ABSENT, REACTS, VERDICT, flag, found, listed, proc, procs, size, text
from pypmix.engine.python.serverside.plans import is_infos, listed_all
from pypmix.engine.python.serverside.reactions import SPARING, Construct, Reactions
from pypmix.engine.python.serverside.topic import reason_of, status_of
from pypmix.engine.python.together import absent_of, directives_of, procs_of
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import NotifyEvent
from pypmix.standard.ops.core import instances
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.hosting import (
    GROUP_CANCEL,
    GROUP_CLAIMS,
    GROUP_CONSTRUCT,
    GROUP_LEADER_PROC,
    GROUP_ORDER,
    GROUP_ROUND,
    GroupUpcall,
)
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import RANK_VALID, RANK_WILDCARD, DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.python.collectives import Collective
    from pypmix.engine.python.server import Server, Ticket
    from pypmix.engine.python.serverdata import Process
    from pypmix.engine.python.serverside.groups import Groups
    from pypmix.engine.python.serverside.plans import Plan

    Shared = dict[Proc, tuple[Info, ...]]

CONSTRUCT = "group_construct"

OWN = frozenset({keys.GROUP_INFO, keys.GROUP_ENDPT_DATA, REACTS, keys.PROC_INFO_ARRAY})
"""Directives that each member gives for itself, and of which the host hears nothing, or in another form.

The last is what it has committed, which others get when they ask.
"""

HOST_PATIENCE = 10.0
"""Seconds for which a host is waited for that is to say whether a construct has ended before it was given up."""

OWED_SECONDS = 30.0
"""For how long procs are told that a construct has failed without them, if they call it after that."""

MAX_OWED = 4096
"""Of how many names that is remembered."""


class Outcome:
    """What a construct has made: the members by group rank, the context id, and what each member says of itself.

    Attributes:
        plan: What all of them have asked for, where that is plain.
    """

    __slots__ = ("context_id", "leader", "members", "partial", "plan", "shared")

    def __init__(
        self,
        members: tuple[Proc, ...],
        context_id: int | None,
        shared: Shared,
        leader: Proc | None = None,
        partial: bool = False,
    ) -> None:
        self.members = members
        self.context_id = context_id
        self.shared = shared
        self.leader = leader
        self.partial = partial
        self.plan: Plan | None = None


class Constructs:
    """The constructs under way on a server.

    Args:
        server: The machine.
        groups: The topic of groups.

    Attributes:
        under_way: They, by the group's name: several have one name where they have no proc in common.
        outcomes: What the host has made of those that are about to end well.
        owed: Who is told of a failure when it calls a construct, by the group's name.
        reactions: What follows from failures.
    """

    def __init__(self, server: Server, groups: Groups) -> None:
        self._server = server
        self._groups = groups
        self.under_way: dict[str, list[Construct]] = {}
        self.outcomes: dict[Collective[Process, Ticket], Outcome] = {}
        self.owed: dict[str, dict[Process, int]] = {}
        self.reactions = Reactions(groups.records, self.abort, self.settle)
        self._last_context_id = 0

    def meeting(self, name: str, process: Process, members: frozenset[Process], others: frozenset[Proc]) -> Construct:
        """Return the construct that a caller means.

        Raises:
            PMIxError: It names other procs than those with whom it would meet (`ERR_BAD_PARAM`).
        """
        for construct in self.under_way.get(name, ()):
            roster = construct.roster
            if (roster.members is members or roster.members == members) and _alike(roster.others, others):
                return construct
            if roster.members.isdisjoint(members):
                continue
            if process in roster.members:
                # Those who wait for it would wait for ever; and those whom it has named, for the others.
                self._owe(
                    name, (roster.members | members) - {process} - set(self._arrived(construct)), statuses.ERR_BAD_PARAM
                )
                self._give_up(construct, statuses.ERR_BAD_PARAM)
            raise PMIxError(f"others construct {name!r} of other procs", status=statuses.ERR_BAD_PARAM)
        construct = Construct(name)
        construct.roster = self._server.collectives.own(f"{CONSTRUCT} {name}", members, others, construct)
        return construct

    def new_context_id(self) -> int:
        """Return a context id that no other group of this server has had."""
        self._last_context_id += 1
        return self._last_context_id

    def is_running(self, construct: Construct) -> bool:
        return construct.collective is not None and self._server.collectives.is_running(construct.collective)

    @staticmethod
    def _arrived(construct: Construct) -> tuple[Process, ...]:
        return () if construct.collective is None else tuple(construct.collective.arrived)

    def of(self, collective: Collective[Process, Ticket]) -> Construct:
        construct = collective.roster.owner
        assert isinstance(construct, Construct)
        construct.collective = collective
        return construct

    def end(self, construct: Construct) -> None:
        """A construct is over."""
        running = self.under_way.get(construct.name, [])
        if construct in running:
            running.remove(construct)
        if not running:
            self.under_way.pop(construct.name, None)
        # They hold each other.
        construct.roster.owner = None

    def _owe(self, name: str, processes: frozenset[Process] | set[Process], status: int) -> None:
        """Have procs told, when they call a construct, that it has failed without them."""
        due = {process: status for process in processes if process.local and not process.left}
        if not due or len(self.owed) >= MAX_OWED:
            return
        owed = self.owed.setdefault(name, {})
        owed.update(due)

        def over() -> None:
            for process in due:
                owed.pop(process, None)
            if not owed and self.owed.get(name) is owed:
                del self.owed[name]

        self._server.clock.call_later(OWED_SECONDS, over)

    def _give_up(self, construct: Construct, status: int) -> None:
        """End a construct here and now, and have its other servers told."""
        collective = construct.collective
        if collective is None or not self._server.collectives.is_running(collective):
            return
        if construct.roster.others and not construct.asked:
            self.withdraw(construct, collective, status)
        self._server.collectives.finish(collective, status)

    def withdraw(self, construct: Construct, collective: Collective[Process, Ticket], status: int) -> None:
        """Have the other servers told, which wait for this one, that it is over here."""
        construct.cancelled = True
        status_info = Info(keys.LOCAL_COLLECTIVE_STATUS, Value(codes.STATUS, status))
        verdict = (text(VERDICT, "abort"),) if status == statuses.GROUP_CONSTRUCT_ABORT else ()
        infos = (status_info, *verdict, size(GROUP_ROUND, construct.round))
        op = GroupUpcall(GROUP_CONSTRUCT, construct.name, procs_of(collective), infos)
        self._server.host.upcall(op, ignore)

    def abort(self, construct: Construct, quiet: bool = False) -> None:
        """Somebody wants no such group, or nobody leads it: it ends so for all."""
        collective = construct.collective
        if collective is None or construct.cancelled or not self._server.collectives.is_running(collective):
            return
        construct.aborted = True
        self._owe(construct.name, set(collective.missing()), statuses.GROUP_CONSTRUCT_ABORT)
        if not quiet:
            self.reactions.aborted(construct)
            if construct.roster.others:
                to = procs(keys.EVENT_CUSTOM_RANGE, sorted(construct.roster.others))
                infos = (to, flag(keys.EVENT_NON_DEFAULT), text(keys.GROUP_ID, construct.name))
                self._server.host.upcall(NotifyEvent(statuses.GROUP_CONSTRUCT_ABORT, RANGE_CUSTOM, infos), ignore)
        if not construct.asked or construct.alone:
            if construct.asked:
                self.cancel(construct.name)
                construct.step(Construction.ABORTS)
            self._give_up(construct, statuses.GROUP_CONSTRUCT_ABORT)
            return
        # All servers must come to the same end: the host knows whether the group stood before this.
        construct.cancelled = True
        construct.step(Construction.GIVES_UP)

        def given_up(_result: object, error: BaseException | None) -> None:
            if not self.is_running(construct):
                return
            if error is not None:
                self._server.collectives.finish(collective, statuses.GROUP_CONSTRUCT_ABORT)
                return
            self._server.clock.call_later(
                HOST_PATIENCE, lambda: self._expire(collective, statuses.GROUP_CONSTRUCT_ABORT)
            )

        self._server.host.upcall(GroupUpcall(GROUP_CANCEL, construct.name), given_up)

    def late(self, collective: Collective[Process, Ticket]) -> bool:
        """The time of an operation has run out: with `OPTIONAL` those who have come to a construct are the group."""
        if collective.roster.kind != CONSTRUCT:
            return False
        construct = self.of(collective)
        if keys.GROUP_OPTIONAL not in construct.flags or construct.extended:
            return False
        construct.extended = True
        if construct.asked:
            construct.step(Construction.LATE)
            self.cancel(
                construct.name, (Info(keys.LOCAL_COLLECTIVE_STATUS, Value(codes.STATUS, statuses.ERR_TIMEOUT)),)
            )
            over = self._server.clock.call_later(HOST_PATIENCE, lambda: self._expire(collective, statuses.ERR_TIMEOUT))
            collective.timer = over
        else:
            missing = collective.missing()
            self._owe(construct.name, set(missing), statuses.ERR_TIMEOUT)
            self._server.collectives.without(collective, missing)
            # Where all of them have come, it waits for some that they add.
            self.settle(construct)
        return True

    def dropped(self, collective: Collective[Process, Ticket]) -> None:
        """Nobody is left of those who had called a construct."""
        construct = self.of(collective)
        self.end(construct)
        # Where other servers take part, the host learns from deaths that nobody is left.
        if construct.asked and not construct.roster.others:
            self.cancel(construct.name)
        construct.step(Construction.ENDS)

    def _expire(self, collective: Collective[Process, Ticket], status: int) -> None:
        self._server.collectives.finish(collective, status)

    def all_here(self, collective: Collective[Process, Ticket]) -> None:
        """All procs of this server that may come to a construct have come."""
        construct = self.of(collective)
        plan = construct.plan
        if plan is not None and plan.plain and not collective.gone:
            self._ask_construct(construct, collective)
        else:
            self.settle(construct)

    def settle(self, construct: Construct) -> None:
        """Go on with a construct, as far as its callers here let it."""
        collective = construct.collective
        if collective is None or not collective.asked or construct.asked or not self.is_running(construct):
            return
        self.reactions.look(construct)
        if construct.due or not self.is_running(construct) or construct.asked:
            return
        absent = construct.absent
        if not construct.roster.others and absent and not construct.sparing:
            collective.absent = absent
            self._server.collectives.finish(collective, statuses.ERR_PARTIAL_SUCCESS)
            return
        added = self.added(construct)
        if added and not construct.roster.others:
            bootstrapping = self._groups.bootstrapping
            if not construct.extended and bootstrapping.wait(construct.name, added, construct):
                construct.step(Construction.LACKS)
                return
            construct.lacking = bootstrapping.lacking(construct.name, added)
            if construct.lacking and not construct.sparing:
                collective.absent = construct.lacking
                self._server.collectives.finish(collective, statuses.ERR_PARTIAL_SUCCESS)
                return
        self._ask_construct(construct, collective)

    def resume(self, construct: Construct) -> None:
        """Those have come whom a construct adds."""
        self.settle(construct)

    @staticmethod
    def added(construct: Construct) -> tuple[Proc, ...]:
        assert construct.collective is not None
        infos = [info for _, said in construct.collective.said.values() for info in said]
        members = construct.here
        return tuple(dict.fromkeys([each for each in listed_all(infos, keys.GROUP_ADD_MEMBERS) if each not in members]))

    def _adds_others(self, construct: Construct) -> bool:
        """Tell whether a construct adds procs of other servers."""
        processes = [self._server.store.find(each) for each in self.added(construct)]
        return not all(process is not None and process.local for process in processes)

    def _ask_construct(self, construct: Construct, collective: Collective[Process, Ticket]) -> None:
        server = self._server
        others = construct.roster.others
        plan = construct.plan
        if plan is None or not plan.plain or collective.gone or construct.round > 1 or construct.extended:
            plan = None
        construct.alone = not others and (plan is not None or not self._adds_others(construct))
        shared: Shared = {}
        if plan is not None and plan.question is not None:
            members, directives, order = plan.question
        else:
            members, directives, order, shared = self._question(construct, collective)
            if plan is not None:
                plan.question = members, directives, order
        construct.state = Construction.step(construct.state, Construction.COMPLETE)

        def answer(result: object, error: BaseException | None) -> None:
            if not server.collectives.is_running(collective):
                return
            status = statuses.SUCCESS if error is None else status_of(error)
            if status == statuses.ERR_NOT_SUPPORTED and not others:
                status, result = statuses.SUCCESS, None
            if status == statuses.SUCCESS:
                try:
                    infos: tuple[Info, ...] = () if result is None else tuple(result)  # type: ignore[arg-type]
                    instances("the answer", infos, Info)
                    if (
                        others
                        and listed(infos, ABSENT)
                        and not any(info.key == keys.GROUP_MEMBERSHIP for info in infos)
                    ):
                        self._again(construct, infos)
                        return
                    outcome = None if plan is None else self._plain(construct, plan, infos)
                    if outcome is None:
                        outcome = self._outcome(construct, infos, shared, order)
                        if plan is not None and infos and infos[0].key == keys.GROUP_MEMBERSHIP:
                            self._remember(construct, plan, infos[0], outcome)
                    self.outcomes[collective] = outcome
                except (TypeError, ValueError) as problem:
                    server.host.log(f"the host answered construct of {construct.name!r} with nonsense: {problem}")
                    status = statuses.ERROR
            collective.absent = absent_of(error) if status != statuses.SUCCESS else None
            collective.reason = reason_of(error)
            what = Construction.AGREES if status == statuses.SUCCESS else Construction.REFUSES
            construct.state = Construction.step(construct.state, what)
            server.collectives.finish(collective, status)

        server.host.upcall(GroupUpcall(GROUP_CONSTRUCT, construct.name, members, directives), answer)

    def _question(
        self, construct: Construct, collective: Collective[Process, Ticket]
    ) -> tuple[tuple[Proc, ...], tuple[Info, ...], tuple[Proc, ...], Shared]:
        """Return what the host is asked: the procs and the directives; their order, and what each says of itself."""
        others = construct.roster.others
        shared = {process.proc: group_info(infos) for process, (_, infos) in collective.said.items()}
        guests = {} if others else self._guests(construct)
        for guest, infos in guests.items():
            shared[guest] = group_info(infos)
        given = [told(each, items) for each, items in sorted(shared.items()) if items]
        order = self._order(construct, collective)
        if guests:
            # They come last, in the order in which they are added.
            order = order or tuple(sorted({*construct.here} - {*construct.absent}))
            order += tuple([each for each in self.added(construct) if each in guests and each not in order])
        directives = [*directives_of(collective, OWN), *given]
        if construct.absent or construct.lacking:
            directives.append(procs(ABSENT, (*construct.absent, *construct.lacking)))
        if order:
            directives.append(procs(GROUP_ORDER, order))
        if construct.declared is not None:
            directives.append(proc(GROUP_LEADER_PROC, construct.declared))
        if others:
            directives.append(size(GROUP_ROUND, construct.round))
            if construct.claims:
                directives.append(procs(GROUP_CLAIMS, sorted(construct.claims)))
            if construct.extended:
                directives.append(Info(keys.LOCAL_COLLECTIVE_STATUS, Value(codes.STATUS, statuses.ERR_TIMEOUT)))
        members = procs_of(collective)
        if guests:
            members = tuple(sorted({*members, *guests}))
        return members, tuple(directives), order, shared

    def _plain(self, construct: Construct, plan: Plan, infos: tuple[Info, ...]) -> Outcome | None:
        """Return what a host has made of a plain construct if it answers the same as the last time, but for the number.

        Raises:
            ValueError: It makes no sense.
        """
        if plan.answer is None or len(infos) != 1 + plan.numbered or infos[0] is not plan.answer[0]:
            return None
        number: int | None = None
        if plan.numbered:
            if infos[1].key != keys.GROUP_CONTEXT_ID:
                return None
            number = self._number(infos[1])
        outcome = Outcome(plan.answer[1], number, {}, construct.leader)
        outcome.plan = plan
        return outcome

    @staticmethod
    def _remember(construct: Construct, plan: Plan, membership: Info, outcome: Outcome) -> None:
        """Note what a host has answered to a plain construct, if all that were named are the members, and just that."""
        if outcome.leader is not None or outcome.partial or outcome.shared:
            return
        if plan.answer is not None and plan.answer[1] == outcome.members:
            # Another server tells the same in other objects.
            outcome.members = plan.answer[1]
            outcome.plan = plan
            return
        others = construct.roster.others
        if len(outcome.members) == len(plan.members) + len(others) and {*outcome.members} == {*construct.here, *others}:
            plan.answered(membership, outcome.members)
            outcome.plan = plan

    def _number(self, info: Info) -> int:
        """Return the context id that an info holds.

        Raises:
            ValueError: It is none.
        """
        number = info.value.data
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 64:
            raise ValueError(f"{number!r} is no context id")
        self._last_context_id = max(self._last_context_id, number)
        return number

    def _guests(self, construct: Construct) -> dict[Proc, tuple[Info, ...]]:
        """Return who of this server has come to be added, and what each has given."""
        return self._groups.guests(construct.name, self.added(construct))

    def _again(self, construct: Construct, infos: tuple[Info, ...]) -> None:
        """Procs elsewhere have ended, and the callers here have not heard of it: they may react to that."""
        construct.step(Construction.AGAIN)
        construct.round += 1
        construct.leader = found(infos, GROUP_LEADER_PROC, Proc)
        construct.claims.clear()
        for failed in sorted(listed(infos, ABSENT)):
            if failed not in construct.told and self.is_running(construct):
                construct.told.add(failed)
                if failed == construct.leader or self._notifies(construct, infos):
                    self.reactions.failed(construct, failed)
        self.settle(construct)

    @staticmethod
    def _notifies(construct: Construct, infos: tuple[Info, ...]) -> bool:
        """Tell whether callers hear of members that end: servers come again for that, or for a leader alone."""
        return (
            keys.GROUP_NOTIFY_TERMINATION in construct.flags
            or is_set(infos, keys.GROUP_NOTIFY_TERMINATION)
            or construct.leader not in listed(infos, ABSENT)
        )

    def cancel(self, name: str, infos: tuple[Info, ...] = ()) -> None:
        """Tell the host that this server gives up what it is asked, or what other servers wait for."""
        self._server.host.upcall(GroupUpcall(GROUP_CANCEL, name, (), infos), ignore)

    def _order(self, construct: Construct, collective: Collective[Process, Ticket]) -> tuple[Proc, ...]:
        """Return the order that the callers here want, nothing where they do not agree."""
        said = collective.said
        for _, infos in said.values():
            final = listed(infos, keys.GROUP_FINAL_MEMBERSHIP_ORDER)
            if final:
                return self.flat(final)
        for process, (named, _) in said.items():
            if process.proc == construct.leader:
                return self.flat(named)
        # Equal requests are one object here.
        orders = {self.flat(named) for named in {id(named): named for named, _ in said.values()}.values()}
        return orders.pop() if len(orders) == 1 else ()

    def flat(self, named: tuple[Proc, ...]) -> tuple[Proc, ...]:
        """Return procs in order, each once, with those of a job for its wildcard where it is known."""
        flat: dict[Proc, None] = {}
        for each in named:
            space = self._server.store.get(each.nspace) if each.rank == RANK_WILDCARD else None
            if space is None:
                flat[each] = None
            else:
                flat.update(dict.fromkeys([process.proc for process in space.processes.values()]))
        return tuple(flat)

    def _outcome(
        self, construct: Construct, infos: tuple[Info, ...], shared: Shared, order: tuple[Proc, ...]
    ) -> Outcome:
        """Return what a host has made of a construct; what it does not tell is known here if all members are.

        Raises:
            TypeError: It is nothing that a host returns.
            ValueError: It makes no sense.
        """
        roster, collective = construct.roster, construct.collective
        assert collective is not None
        absent = (*construct.absent, *construct.lacking) if not roster.others else ()
        members: tuple[Proc, ...] = ()
        if all(info.key != keys.GROUP_MEMBERSHIP for info in infos):
            everyone = {*[process.proc for process in roster.members], *roster.others} - {*absent}
            members = tuple([each for each in order if each in everyone])
            members += tuple(sorted(everyone - {*members}))
            members += tuple([each for each in self.added(construct) if each not in everyone and not roster.others])
        members, context_id, shared = self.read(infos, shared, members)
        if absent and not construct.alone:
            # Who has ended since is a member on the other servers.
            absent = tuple([each for each in absent if each not in members])
        elif absent:
            members = tuple([each for each in members if each not in absent])
        inside = frozenset(members)
        # The host may know of the end of a caller before this server has read its last word.
        here = [process.proc for process in collective.arrived if process.registered]
        missing = [each for each in here if each not in inside]
        if missing:
            raise ValueError(f"{missing[0]} is not among the members")
        if context_id is None and not roster.others and self._wants_context_id(collective):
            context_id = self.new_context_id()
        leader = found(infos, GROUP_LEADER_PROC, Proc) if roster.others else construct.leader
        if roster.others:
            gone = listed(infos, ABSENT)
            if construct.leader in gone:
                self.reactions.selected(construct, leader)
            construct.flags |= {key for key in SPARING if is_set(infos, key)}
            absent = gone
        leader = leader if leader in members else None
        return Outcome(members, context_id, shared, leader, bool(absent) and keys.GROUP_OPTIONAL in construct.flags)

    def read(
        self, infos: tuple[Info, ...], shared: Shared, members: tuple[Proc, ...]
    ) -> tuple[tuple[Proc, ...], int | None, Shared]:
        """Return the members, the context id and what members say of themselves, as a host tells of them.

        Args:
            infos: What the host tells.
            shared: What the members here have said.
            members: The members as far as it does not tell.

        Raises:
            ValueError: It makes no sense.
        """
        context_id: int | None = None
        shared = dict(shared)
        for info in infos:
            data = info.value.data
            if info.key == keys.GROUP_MEMBERSHIP:
                if not isinstance(data, DataArray) or data.type != codes.PROC:
                    raise ValueError("the membership is no array of procs")
                members = tuple(dict.fromkeys(data.items))
            elif info.key == keys.GROUP_CONTEXT_ID:
                context_id = self._number(info)
            elif info.key == keys.GROUP_INFO and is_infos(info.value) and data.items[0].key == keys.PROCID:
                shared[data.items[0].value.data] = tuple(data.items[1:])
        if members and max([each[1] for each in members]) > RANK_VALID:
            raise ValueError("it does not tell which ranks of all are members")
        return members, context_id, shared

    @staticmethod
    def _wants_context_id(collective: Collective[Process, Ticket]) -> bool:
        return any(is_set(infos, keys.GROUP_ASSIGN_CONTEXT_ID) for _, infos in collective.said.values())


def group_info(infos: tuple[Info, ...]) -> tuple[Info, ...]:
    """Return what a member says of itself with a construct."""
    items: list[Info] = []
    for info in infos:
        if info.key == keys.GROUP_INFO:
            items += [item for item in info.value.data if item.key != keys.PROCID]
        elif info.key == keys.GROUP_ENDPT_DATA:
            items.append(info)
    return tuple(items)


def told(member: Proc, items: tuple[Info, ...]) -> Info:
    first = Info(keys.PROCID, Value(codes.PROC, member))
    return Info(keys.GROUP_INFO, Value(codes.DATA_ARRAY, DataArray(codes.INFO, (first, *items))))


def name_of(collective: Collective[Process, Ticket]) -> str:
    """Return the name of the group that an operation is about."""
    return collective.roster.operation.partition(" ")[2]


def _alike(some: frozenset[Proc], others: frozenset[Proc]) -> bool:
    """Tell whether these may be the same procs: whoever is on other servers may be named by the wildcard."""
    if some == others:
        return True
    whole = {each.nspace for each in some | others if each.rank == RANK_WILDCARD}
    rest = [each for each in some ^ others if each.nspace not in whole]
    return not rest and all(any(each.nspace == name for each in side) for name in whole for side in (some, others))
