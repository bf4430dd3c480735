"""Constructs of which nobody knows beforehand who takes part: leaders that know their number, and procs that they add.

Each caller is offered to the host at once, which may know of callers elsewhere. Where it has no such thing, the callers
of this server meet here.
"""

from __future__ import annotations

from collections import Counter

from pypmix.engine.collective.rules import (
    CONSTRUCT,
    MAX_LEADERS,
    all_leaders_came,
    bootstrap_order,
    is_ft,
    leader_count,
)
from pypmix.engine.common import Pending, ignore
from pypmix.engine.groups.talk import ABSENT, listed, proc, procs
from pypmix.engine.python.collectives import absent_of, status_info
from pypmix.engine.python.node import answer_failure, reason_of, status_of
from pypmix.engine.python.serverdata import Group
from pypmix.engine.python.serverside.constructs import OWN, group_info
from pypmix.engine.python.serverside.forming import Outcome, told, told_as
from pypmix.engine.times import HOST_GRACE
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops.core import instances
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.hosting import (
    GROUP_CANCEL,
    GROUP_CONSTRUCT,
    GROUP_GUEST,
    GROUP_LEADER_PROC,
    GROUP_ORDER,
    GroupUpcall,
)
from pypmix.standard.types import Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from pypmix.engine.collective.machine import Timer
    from pypmix.engine.python.node import Call, Node, Peer
    from pypmix.engine.python.processes import Process
    from pypmix.engine.python.serverside.constructs import Construct
    from pypmix.engine.python.serverside.forming import Forming, Shared

MAX_OFFERS = 4096
"""In how many groups one proc may wait for others at a time."""


class _Offer:
    """One caller: what it has given, and whether the host has it."""

    __slots__ = ("call", "count", "infos", "mine", "process", "since", "timer")

    def __init__(self, process: Process, call: Call, infos: tuple[Info, ...], count: int, since: float) -> None:
        self.process = process
        self.call = call
        self.infos = infos
        self.count = count
        self.since = since
        self.mine = False
        self.timer: Timer | None = None


class _Gathering:
    """The callers of one group, and what has become of those that have gone.

    Attributes:
        offers: The callers that wait.
        gone: How many leaders have ended.
        construct: The collective construct that waits for those whom it adds.
        asked: Whether the host is asked about the group as a whole.
        outcome: What the host has made of it.
    """

    __slots__ = ("asked", "construct", "gone", "offers", "outcome")

    def __init__(self) -> None:
        self.offers: dict[Process, _Offer] = {}
        self.gone = 0
        self.construct: Construct | None = None
        self.asked = False
        self.outcome: Outcome | None = None

    @property
    def infos(self) -> list[Info]:
        return [info for offer in self.offers.values() for info in offer.infos]

    @property
    def ft(self) -> bool:
        """Whether it goes on without procs that end."""
        return is_ft(CONSTRUCT, self.infos)

    @property
    def added(self) -> tuple[Proc, ...]:
        return tuple(dict.fromkeys([each for info in self.infos for each in listed((info,), keys.GROUP_ADD_MEMBERS)]))

    @property
    def late(self) -> tuple[Proc, ...]:
        """The added procs that have not come here."""
        came = {each.proc for each in self.offers}
        return tuple([each for each in self.added if each not in came])


class Bootstrapping:
    """Brings together callers that do not know each other.

    Args:
        server: The machine.
        groups: What knows the groups that stand.
    """

    def __init__(self, server: Node, groups: Forming) -> None:
        self._server = server
        self._groups = groups
        self._gatherings: dict[str, _Gathering] = {}
        self._counts: Counter[Process] = Counter()

    def offer(
        self, name: str, peer: Peer, tag: int, named: tuple[Proc, ...], infos: tuple[Info, ...], timeout: float
    ) -> None:
        """A client constructs a group as one of its leaders, or as one whom they add.

        Raises:
            PMIxError: It calls for the second time, it names others only, or too many wait already.
        """
        process = peer.process
        counts = [info.value.data for info in infos if info.key == keys.GROUP_BOOTSTRAP]
        count = counts[0] if counts else 0
        if not isinstance(count, int) or isinstance(count, bool) or (counts and not 0 < count <= MAX_LEADERS):
            raise PMIxError(f"{count!r} is no number of leaders", status=statuses.ERR_BAD_PARAM)
        if named and process.proc not in named:
            raise PMIxError("it is not one of the procs that it names", status=statuses.ERR_BAD_PARAM)
        if self._counts[process] >= MAX_OFFERS:
            raise PMIxError(f"it waits in {MAX_OFFERS} groups already", status=statuses.ERR_OUT_OF_RESOURCE)
        known = self._gatherings.get(name)
        if known is not None and process in known.offers:
            raise PMIxError(f"it constructs {name!r} already", status=statuses.ERR_EXISTS)
        gathering = self._gatherings.setdefault(name, _Gathering())
        offer = _Offer(process, (peer, tag), infos, count, self._server.clock.now())
        gathering.offers[process] = offer
        self._counts[process] += 1
        if timeout:
            offer.timer = self._server.clock.call_later(timeout, lambda: self._overdue(name, offer))
        directives = [info for info in infos if info.key not in OWN]
        items = group_info(infos)
        if items:
            directives.append(told(process.proc, items))
        directives.append(proc(GROUP_GUEST, process.proc))

        def answer(result: object, error: BaseException | None) -> None:
            if self._gatherings.get(name) is not gathering or gathering.offers.get(process) is not offer:
                return
            if status_of(error) == statuses.ERR_NOT_SUPPORTED:
                offer.mine = True
                self._look(name)
            elif error is not None:
                status, absent = status_of(error), absent_of(error)
                if status == statuses.ERR_TIMEOUT and absent is None:
                    absent = gathering.late
                self._failed(name, offer, status, absent, reason_of(error))
            else:
                self._made(name, gathering, offer, result)

        op = GroupUpcall(GROUP_CONSTRUCT, name, (process.proc,), tuple(directives))
        self._server.host.upcall(op, answer, process)
        if gathering.construct is not None:
            # All whom it adds are of this server, so no other one need be asked.
            gathering.construct.ask()

    # Those whom a collective construct adds

    def wait(self, construct: Construct) -> None:
        """A collective construct waits for procs of this server that it adds."""
        self._gatherings.setdefault(construct.name, _Gathering()).construct = construct

    @property
    def names(self) -> Collection[str]:
        """The names of the groups that somebody waits for."""
        return self._gatherings.keys()

    def guests(self, name: str, added: tuple[Proc, ...]) -> dict[Proc, tuple[Info, ...]]:
        """Return who of those that a construct adds has come here, and with which infos."""
        gathering = self._gatherings.get(name)
        if gathering is None:
            return {}
        return {process.proc: offer.infos for process, offer in gathering.offers.items() if process.proc in added}

    def over(self, name: str, status: int, outcome: Outcome | None) -> None:
        """A collective construct of procs of this server alone has ended: so it has for those whom it adds."""
        gathering = self._gatherings.get(name)
        if gathering is None:
            return
        gathering.construct = None
        for process, offer in list(gathering.offers.items()):
            if outcome is not None and process.proc in outcome.members:
                self._take(name, gathering, offer, withdraw=True)
                self._groups.reply({process: offer.call}, outcome, outcome.members)
            elif outcome is None and not offer.count:
                self._withdraw(name, offer)
                self._failed(name, offer, status)
        self._tidy(name)

    # Where the host knows of nobody else

    def _look(self, name: str) -> None:
        """See whether all have come to a group that only procs of this server construct."""
        gathering = self._gatherings.get(name)
        if gathering is None or gathering.asked:
            return
        if gathering.construct is not None:
            gathering.construct.ask()
            return
        offers = list(gathering.offers.values())
        try:
            count = leader_count([offer.count for offer in offers if offer.count])
        except PMIxError as problem:
            self._fail_all(name, problem.code)
            return
        leading = [offer.process.proc for offer in offers if offer.count]
        mine = all(offer.mine for offer in offers)
        if not mine or not all_leaders_came(count, len(leading), gathering.gone):
            return
        came = {offer.process.proc for offer in offers}
        missing = [each for each in gathering.added if each not in came]
        dead = [each for each in missing if (found := self._server.store.find(each)) is None or found.left]
        if dead and not gathering.ft:
            self._fail_all(name, statuses.GROUP_CONSTRUCT_ABORT, tuple(dead))
        elif len(dead) == len(missing):
            order = bootstrap_order([(each,) for each in leading], gathering.added)
            members = tuple([each for each in order if each in came])
            self._ask(name, gathering, members, bool(dead or gathering.gone))

    def _ask(self, name: str, gathering: _Gathering, members: tuple[Proc, ...], partial: bool) -> None:
        """All have come: the host gives the group its number, if one is wanted."""
        gathering.asked = True
        offers = [offer for offer in gathering.offers.values() if offer.process.proc in members]
        shared: Shared = {offer.process.proc: group_info(offer.infos) for offer in offers}
        skipped = {keys.GROUP_BOOTSTRAP, keys.GROUP_ADD_MEMBERS} | OWN
        plain = {info.key: info for offer in offers for info in offer.infos if info.key not in skipped}
        infos = [told(each, items) for each, items in sorted(shared.items()) if items]
        directives = (*plain.values(), *infos, procs(GROUP_ORDER, members))

        def answer(result: object, error: BaseException | None) -> None:
            if self._gatherings.get(name) is not gathering:
                return
            status = status_of(error)
            if status not in (statuses.SUCCESS, statuses.ERR_NOT_SUPPORTED):
                self._fail_all(name, status, absent_of(error), reason_of(error))
                return
            gathering.outcome = None
            outcome = self._read(result if error is None else None, shared, members)
            if outcome is None:
                self._fail_all(name, statuses.ERROR)
                return
            if outcome.context_id is None and is_set(gathering.infos, keys.GROUP_ASSIGN_CONTEXT_ID):
                outcome.context_id = self._groups.new_context_id()
            outcome.partial = partial and is_set(gathering.infos, keys.GROUP_OPTIONAL)
            callers = {offer.process: offer.call for offer in gathering.offers.values() if offer in offers}
            group = self._group(gathering.infos, outcome)
            for offer in offers:
                if offer.process in gathering.offers:
                    self._take(name, gathering, offer)
            self._tidy(name)
            self._groups.stands(name, outcome, group, callers)

        self._server.host.upcall(GroupUpcall(GROUP_CONSTRUCT, name, tuple(sorted(members)), directives), answer)

    def _group(self, infos: list[Info], outcome: Outcome) -> Group:
        flags = is_set(infos, keys.GROUP_NOTIFY_TERMINATION), is_set(infos, keys.GROUP_FT_COLLECTIVE)
        return Group(outcome.leader, *flags, outcome.context_id)

    def _read(self, result: object, shared: Shared, members: tuple[Proc, ...]) -> Outcome | None:
        try:
            infos: tuple[Info, ...] = () if result is None else tuple(result)  # type: ignore[arg-type]
            instances("the answer", infos, Info)
            members, context_id, shared = self._groups.read(infos, shared, members)
        except (TypeError, ValueError) as problem:
            self._server.host.log(f"the host answered a construct with nonsense: {problem}")
            return None
        leader = next((info.value.data for info in infos if info.key == GROUP_LEADER_PROC), None)
        partial = is_set(infos, keys.GROUP_OPTIONAL) and any(info.key == ABSENT for info in infos)
        return Outcome(members, context_id, shared, leader if isinstance(leader, Proc) else None, partial)

    def _made(self, name: str, gathering: _Gathering, offer: _Offer, result: object) -> None:
        """The host has brought a caller together with others."""
        process = offer.process
        if gathering.outcome is not None:
            outcome: Outcome | None = gathering.outcome
        else:
            outcome = self._read(result, {}, ())
        if outcome is None or process.proc not in outcome.members:
            self._failed(name, offer, statuses.ERROR)
            return
        first = gathering.outcome is None
        gathering.outcome = outcome
        theirs = [info for info in result if isinstance(info, Info)] if isinstance(result, tuple) else []
        group = self._group([*gathering.infos, *theirs], outcome)
        self._take(name, gathering, offer)
        self._tidy(name)
        if first and self._server.store.key_of(name, process.proc) is None:
            self._groups.stands(name, outcome, group, {process: offer.call}, agreed=True)
        else:
            self._groups.reply({process: offer.call}, outcome, outcome.members)

    # Ends

    def _take(self, name: str, gathering: _Gathering, offer: _Offer, withdraw: bool = False) -> None:
        """A caller waits no more."""
        del gathering.offers[offer.process]
        self._counts[offer.process] -= 1
        if not self._counts[offer.process]:
            del self._counts[offer.process]
        if offer.timer is not None:
            offer.timer.cancel()
        if withdraw:
            self._withdraw(name, offer)

    def _withdraw(self, name: str, offer: _Offer, *infos: Info) -> None:
        if not offer.mine:
            self._server.host.upcall(GroupUpcall(GROUP_CANCEL, name, (offer.process.proc,), infos), ignore)

    def _tidy(self, name: str) -> None:
        gathering = self._gatherings.get(name)
        if gathering is not None and not gathering.offers and gathering.construct is None:
            del self._gatherings[name]

    def _failed(
        self, name: str, offer: _Offer, status: int, absent: tuple[Proc, ...] | None = None, reason: str = ""
    ) -> None:
        gathering = self._gatherings[name]
        self._take(name, gathering, offer)
        self._tidy(name)
        peer, tag = offer.call
        answer_failure(peer, tag, told_as(status, peer), absent, reason)

    def _fail_all(self, name: str, status: int, absent: tuple[Proc, ...] | None = None, reason: str = "") -> None:
        for offer in list(self._gatherings[name].offers.values()):
            self._failed(name, offer, status, absent, reason)

    def _overdue(self, name: str, offer: _Offer) -> None:
        """The time of a caller has run out."""
        gathering = self._gatherings.get(name)
        if gathering is None or gathering.offers.get(offer.process) is not offer:
            return
        if offer.mine:
            self._fail_all(name, statuses.ERR_TIMEOUT, gathering.late)
            return

        def give_up() -> None:
            self._failed(name, offer, statuses.ERR_TIMEOUT, gathering.late)

        # The host may have made the group already, with this caller, and its word be on the way: it is given a moment.
        offer.timer = self._server.clock.call_later(HOST_GRACE, give_up)
        self._withdraw(name, offer, status_info(statuses.ERR_TIMEOUT))

    def departed(self, process: Process) -> None:
        """A proc has ended: it comes to nothing any more."""
        for name, gathering in list(self._gatherings.items()):
            offer = gathering.offers.get(process)
            if offer is not None:
                ft = gathering.ft
                self._take(name, gathering, offer)
                self._withdraw(name, offer, procs(ABSENT, (process.proc,)))
                if offer.count:
                    gathering.gone += 1
                if offer.mine and not ft:
                    self._fail_all(name, statuses.GROUP_CONSTRUCT_ABORT, (process.proc,))
                self._tidy(name)
            if name in self._gatherings and (offer is not None or process.proc in gathering.added):
                self._look(name)
            elif gathering.construct is not None:
                gathering.construct.ask()

    def disconnected(self, peer: Peer) -> None:
        """A connection has ended: nothing can be told on it any more."""
        for name, gathering in list(self._gatherings.items()):
            for offer in list(gathering.offers.values()):
                if offer.call[0] is peer and not peer.process.left and self._server.peers(peer.process):
                    self._take(name, gathering, offer, withdraw=True)
                    self._tidy(name)

    def pending(self) -> list[Pending]:
        """Return what waits for more callers."""
        found = []
        for name, gathering in self._gatherings.items():
            if not gathering.offers:
                continue
            arrived = tuple(sorted([process.proc for process in gathering.offers]))
            added = gathering.added
            if gathering.construct is not None:
                added = gathering.construct.added()
            missing = tuple([each for each in added if each not in arrived])
            since = min([offer.since for offer in gathering.offers.values()])
            leaders = max([offer.count for offer in gathering.offers.values()])
            label = f"{leaders} leaders" if leaders else "to be added"
            found.append(Pending(f"group_construct {name}", label, arrived, missing, since))
        return found
