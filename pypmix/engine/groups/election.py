"""The choice of a new leader after the leader of a group or of an invitation has failed.

Each participant informs its own handlers (`PMIX_GROUP_LEADER_FAILED`) and reports to the coordinator: the first living
participant in the order of the membership. The coordinator waits until all have reported, so that it knows everything
that any of them knows: an outcome of the invitation that the failed leader has announced to some, or a choice that an
earlier coordinator has announced to some. It then chooses the first participant that claims the lead, and announces it
to all (`PMIX_GROUP_LEADER_SELECTED`). The coordinator itself applies the choice only when its server has the
announcement: no process may act on a choice that might reach no other process. If the coordinator fails, the next one
asks all again. So there is one choice per term, whichever process dies at whatever time.

Programs on other libraries do not report. The coordinator waits for them at most `GRACE` seconds. A slow pypmix process
sends `WAIT` at once, and the coordinator waits for it as long as it lives.

Facts of libpmix 7: its client raises `LEADER_FAILED` {affected proc, group id} at its own process alone, ends the join
with that status, and makes no choice. Its applications may announce a leader by `LEADER_SELECTED`; such an event has no
term and is ignored here.
"""

from __future__ import annotations

from pypmix.engine.common import ignore
from pypmix.engine.groups.states import ElectionStates as States
from pypmix.engine.groups.talk import (
    ABORT,
    CLAIM,
    ERROR_STATUS,
    GO_ON,
    KEPT,
    SAYS,
    TERM,
    VERDICT,
    event,
    flag,
    found,
    keep,
    proc,
    say,
    size,
    text,
    verdict_of,
)
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import LostConnection, NotInitialized
from pypmix.standard.ops import Notification, NotifyEvent
from pypmix.standard.ops.events import RANGE_PROC_LOCAL, is_set
from pypmix.standard.record import Record
from pypmix.standard.types import DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.groups.agent import Agent, Timer

    Key = tuple[str, int, Proc]

HERE = "election here"
"""To the coordinator: the sender takes part, with its `VERDICT` once its handlers have answered."""

ASK = "election ask"
"""From a new coordinator: report to me, or send the result or the choice if you know it."""

WAIT = "election wait"
"""The sender runs pypmix and will report, or coordinate, without being asked."""

OUT = "election out"
"""The sender has nothing to do with the group."""

TELL = "election tell"
"""To a proc whose `HERE` contains `HOLDS`: send the result."""

KNOWN = "election known"
"""The sender knows the `RESULT` of the invitation."""

RESULT = "pypmix.grp.result"
"""The infos of a `PMIX_GROUP_CONSTRUCT_COMPLETE`, an array."""

HOLDS = "pypmix.grp.holds"
"""In `HERE`: that the sender knows the result. It is not sent at once: it may be long, and most others know it."""

ASKED = "pypmix.grp.asked"
"""In `HERE`: that it answers an `ASK`."""

FAILED = "pypmix.grp.failed"
"""The leader that has failed, a proc: two may have invited under one name."""

GRACE = 5.0
"""Seconds to wait for a process that has sent nothing."""

PATIENCE = 0.5
"""Seconds to wait for reports before the missing ones are asked for."""

_OVER = LostConnection, NotInitialized
"""The errors with which operations fail when the session ends."""


class LeaderChoice(Record):
    """The result of a choice.

    Args:
        leader: The new leader; None if no leader was chosen.
        status: `SUCCESS`; `ERR_NOT_FOUND` if no participant claims the lead; `PMIX_GROUP_CONSTRUCT_ABORT` if a
            participant has given the construct up.
    """

    leader: Proc | None
    status: int = statuses.SUCCESS


class _Election:
    def __init__(self, name: str, term: int, failed: Proc) -> None:
        self.name = name
        self.term = term
        self.failed = failed
        self.able: Callable[[], bool] | None = None
        self.decided: Callable[[LeaderChoice], None] = _ignored
        self.order: list[Proc] = []
        self.everybody: list[Proc] = []
        """All procs that have ever taken part, in the order of the membership; `order` has the procs that still do."""
        self.state = States.START
        self.head: Proc | None = None
        """The coordinator."""
        self.verdict = ""
        self.heard: dict[Proc, str] = {}
        """The verdicts in the order of the reports; an empty one while the handlers of that proc run."""
        self.doubted: set[Proc] = set()
        """The procs that this process has refused, which may have chosen without it: only answers to `ASK` count."""
        self.holders: list[Proc] = []
        """Participants that know the result; the first one is asked for it."""
        self.spoke: set[Proc] = set()
        self.silent: set[Proc] = set()
        self.timer: Timer | None = None

    @property
    def key(self) -> Key:
        return self.name, self.term, self.failed

    @property
    def coordinates(self) -> bool:
        """Whether this process is the coordinator."""
        return self.state in (States.WAITS, States.ASKS)

    def step(self, what: str) -> None:
        """Take a step of its state machine."""
        self.state = States.step(self.state, what)

    @property
    def result(self) -> tuple[str, Proc]:
        """The key of the result of the invitation in `Elections._results`."""
        return self.name, self.failed


class Elections:
    """The choices of leaders that this process takes part in: `agent.part("election")`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._port = agent.port
        self._me = agent.port.proc
        self._under_way: dict[Key, _Election] = {}
        self._past: dict[Key, LeaderChoice] = {}
        self._shown: dict[Key, None] = {}
        self._announced: dict[tuple[str, Proc], str] = {}
        """The failures that were reported to the handlers, and the verdict of the handlers so far."""
        self._early: dict[tuple[Key, Proc], Notification] = {}
        self._refused: dict[tuple[Key, Proc], None] = {}
        """The procs to which this process has answered that it does not take part."""
        self._results: dict[tuple[str, Proc], tuple[Info, ...]] = {}
        """The results of invitations, by the leader that sent them."""
        self._raising = False
        for says, listener in (
            (HERE, self._hear),
            (ASK, self._hear),
            (WAIT, self._waits),
            (OUT, self._stays_out),
            (TELL, self._tells_result),
            (KNOWN, self._knows_result),
        ):
            agent.hear(says, listener)
        agent.port.handlers.screen(statuses.GROUP_LEADER_FAILED, self._is_news_of_failure)
        agent.port.handlers.conclude(statuses.GROUP_LEADER_FAILED, self._handle_verdict)
        agent.port.handlers.screen(statuses.GROUP_LEADER_SELECTED, self._is_news_of_choice)
        self._port.watch(statuses.GROUP_LEADER_SELECTED, self._selected)
        agent.standing.follow(self._handle_exit)
        agent.standing.listen()

    # Reports of the other parts

    def begin(
        self,
        name: str,
        participants: Iterable[Proc],
        failed: Proc,
        *,
        term: int,
        decided: Callable[[LeaderChoice], None],
        announced: bool = False,
        wishes: bool = True,
        able: Callable[[], bool] | None = None,
    ) -> None:
        """Take part in the choice of a leader, as all other participants do when they know of the failure.

        The handlers of this process get `LEADER_FAILED`, unless they had it before, and their answer is its vote. The
        handlers of all participants get `LEADER_SELECTED` without further calls, with the `ERROR_STATUS` if no
        leader was chosen. A second call for the same group and term replaces the first one: an invitation may have
        become a group in the meantime.

        Args:
            name: The group's name.
            participants: The remaining procs in the order of the membership, which must be the same at all of them.
                Ended ones and the failed leader are skipped; the caller takes part whether it is listed or not.
            failed: The leader that has failed.
            term: The term of the new leader: one more than the term of the failed one.
            decided: Called once, possibly before this returns, with the `LeaderChoice`. The chosen leader may have
                ended in the meantime: check `agent.standing.has_exited`, and begin the next term then.
            announced: Whether the server has reported the failure; call this from the watcher of that event then.
            wishes: Whether to ask the handlers; False if this process knows that the leader has left.
            able: For an invitation: returns True if this process can lead; a claim of a handler counts only then, and
                a handler may give up by `PMIX_GROUP_CONSTRUCT_ABORT`. None for a complete group.
        """
        key = name, term, failed
        election = self._under_way.get(key)
        if election is None:
            election = _Election(name, term, failed)
            self._under_way[key] = election
        has_ended = self._agent.standing.has_exited
        living = (each for each in dict.fromkeys((*participants, self._me)) if each == self._me or not has_ended(each))
        election.order = [each for each in living if each != failed]
        election.everybody = list(dict.fromkeys(election.order + election.everybody))
        election.decided = decided
        election.able = able
        if wishes:
            self._tell_handlers(election, announced)
        else:
            election.verdict = election.verdict or GO_ON
        if self._under_way.get(key) is not election:
            return
        past = self._past.get(key)
        if past is not None:
            # A choice of this process itself takes effect only when its server has the announcement.
            if not election.coordinates:
                self._finish(election, past, States.HEARS)
            return
        election.doubted = {source for refused, source in self._refused if refused == key} - {failed, self._me}
        for source in election.doubted:
            del self._refused[key, source]
            self._say(ASK, election.key, (source,))
        for early in [early for early in self._early if early[0] == key]:
            kept = self._early.pop(early, None)
            if kept is not None:
                self._hear(kept)
        if self._under_way.get(key) is election:
            self._go(election)

    def remember(self, name: str, leader: Proc, infos: tuple[Info, ...]) -> None:
        """Keep the outcome of an invitation for participants that do not know it when the leader fails.

        Must be called before the group is `formed`, since that may show that the leader has failed.
        """
        for other in [other for other in self._results if self._agent.standing.state(other[0]) is None]:
            del self._results[other]
        self._results[name, leader] = infos

    def report(self, name: str, failed: Proc, infos: tuple[Info, ...]) -> None:
        """Report the outcome of an invitation of a failed leader: it counts if the choice has not been made."""
        for election in self._of(name, failed):
            if election.coordinates:
                self._learn(election, infos)
            elif election.head is not None:
                self._say(KNOWN, election.key, (election.head,), (_packed(infos),))

    def drop(self, name: str, failed: Proc) -> None:
        """Take no further part in a present or later choice in place of a leader: the invitation has ended here."""
        for election in self._of(name, failed):
            self._end(election, States.DROPS)
            others = [each for each in election.order if each != self._me]
            if others:
                self._say(OUT, election.key, others)
        self._refuse_early(lambda key: (key[0], key[2]) == (name, failed))

    def forget(self, name: str) -> None:
        """A group has ended here: drop its elections and results."""
        for election in [each for each in self._under_way.values() if each.name == name and each.able is None]:
            self.drop(name, election.failed)
        for result in [result for result in self._results if result[0] == name]:
            del self._results[result]
        self._refuse_early(lambda key: key[0] == name and not self._may_know(key))

    def _refuse_early(self, condition: Callable[[Key], bool]) -> None:
        """Answer to early reports of elections for which `over` is true that this process does not take part."""
        for key, source in [early for early in self._early if condition(early[0])]:
            del self._early[key, source]
            self._refuse(key, source)

    def _of(self, name: str, failed: Proc) -> list[_Election]:
        return [each for each in self._under_way.values() if (each.name, each.failed) == (name, failed)]

    def handle_disconnect(self, error: BaseException | None) -> None:
        """The session has ended."""
        for election in list(self._under_way.values()):
            self._end(election, States.LOST)
        self._results.clear()
        self._early.clear()
        self._refused.clear()

    # The handlers of this process

    def _tell_handlers(self, election: _Election, announced: bool) -> None:
        at = election.name, election.failed
        answer = self._announced.get(at)
        if answer is None:
            keep(self._announced, at, "")
            if not announced:
                infos = text(keys.GROUP_ID, election.name), proc(keys.EVENT_AFFECTED_PROC, election.failed)
                self._raising = True
                try:
                    self._port.handlers.start_chain(
                        Notification(statuses.GROUP_LEADER_FAILED, self._me, RANGE_PROC_LOCAL, infos), False
                    )
                finally:
                    self._raising = False
        elif answer:
            election.verdict = self._possible(election, answer)

    def _is_news_of_failure(self, event: Notification) -> bool:
        at = _failure(event)
        return self._raising or at is None or at not in self._announced

    def _handle_verdict(self, event: Notification, status: int, results: tuple[Info, ...]) -> None:
        at = _failure(event)
        if at is None:
            return
        verdict = verdict_of(status, results)
        keep(self._announced, at, verdict)
        for election in list(self._under_way.values()):
            if (election.name, election.failed) == at and not election.verdict:
                election.verdict = self._possible(election, verdict)
                if election.coordinates:
                    self._note(election, self._me, election.verdict)
                    self._check(election)
                elif election.head is not None:
                    self._report(election, election.head)

    def _possible(self, election: _Election, verdict: str) -> str:
        return GO_ON if verdict == CLAIM and election.able is not None and not election.able() else verdict

    # The coordinator

    def _go(self, election: _Election) -> None:
        head = next(each for each in election.order if each == self._me or each not in election.silent)
        if head != election.head:
            before, election.head = election.head, head
            if election.timer is not None:
                election.timer.cancel()
                election.timer = None
            election.step(States.COORDINATES if head == self._me else States.FOLLOWS)
            if head == self._me:
                self._note(election, self._me, election.verdict)
                if before is not None:
                    self._ask(election)
                else:
                    # The others report without being asked, unless they do not know of the failure yet.
                    election.timer = self._port.later(PATIENCE, lambda: self._ask(election))
            else:
                self._report(election, head)
                election.timer = self._port.later(GRACE, lambda: self._has_waited(election))
        self._check(election)

    def _ask(self, election: _Election) -> None:
        missing = [each for each in election.order if each not in election.heard]
        if missing:
            election.step(States.MISSES)
            self._say(ASK, election.key, missing)
            election.timer = self._port.later(GRACE, lambda: self._has_waited(election))

    def _has_waited(self, election: _Election) -> None:
        """Continue without the processes that have sent nothing: they do not run pypmix."""
        election.timer = None
        if election.coordinates:
            election.silent.update(set(election.order) - election.spoke - set(election.heard))
            self._check(election)
        elif election.head is not None:
            election.silent.add(election.head)
            self._go(election)

    def _check(self, election: _Election) -> None:
        """As the coordinator, choose if all reports have arrived."""
        if not election.coordinates or election.key in self._past:
            return
        heard = election.heard
        if any(each not in heard and each not in election.silent for each in election.order):
            return
        if election.holders and election.result not in self._results:
            return
        if election.able is not None and election.result not in self._results and ABORT in heard.values():
            self._decide(election, LeaderChoice(None, statuses.GROUP_CONSTRUCT_ABORT))
            return
        leader = next((each for each, verdict in heard.items() if verdict == CLAIM), None)
        if leader is not None:
            self._decide(election, LeaderChoice(leader))
        elif all(heard.values()):
            self._decide(election, LeaderChoice(None, statuses.ERR_NOT_FOUND))

    def _decide(self, election: _Election, outcome: LeaderChoice) -> None:
        # The announcement comes back to its sender and must not count twice.
        keep(self._past, election.key, outcome)
        mine = _announcement(election.key, outcome, tuple(election.order))

        def take_effect(_result: object, error: BaseException | None) -> None:
            if self._under_way.get(election.key) is election and not isinstance(error, _OVER):
                self._port.handlers.start_chain(Notification(mine.code, self._me, mine.range, mine.infos), True)
                self._finish(election, outcome, States.CHOOSES)

        others = tuple([each for each in election.order if each != self._me])
        if others:
            # If the session ends before its server has that, the others choose once more, in the same term.
            self._port.submit(_announcement(election.key, outcome, others), take_effect)
        else:
            take_effect(None, None)

    def _announce(self, key: Key, outcome: LeaderChoice, to: tuple[Proc, ...]) -> None:
        self._port.submit(_announcement(key, outcome, to), ignore)

    def _finish(self, election: _Election, outcome: LeaderChoice, what: str) -> None:
        keep(self._past, election.key, outcome)
        self._end(election, what)
        election.decided(outcome)
        if self._early:
            self._refuse_early(lambda key: key[0] == election.name and not self._may_know(key))

    def _end(self, election: _Election, what: str) -> None:
        election.step(what)
        if election.timer is not None:
            election.timer.cancel()
            election.timer = None
        self._under_way.pop(election.key, None)

    # Messages of the others

    def _hear(self, event: Notification) -> None:
        """Process a participant's report, or a new coordinator's request for one."""
        key, source = _about(event), event.source
        if key is None or self._agent.standing.has_exited(source):
            return
        election = self._under_way.get(key)
        if key in self._past:
            self._announce(key, self._past[key], (source,))
        elif election is None:
            if self._is_leaderless(key, source):
                self._follow(key, event)
            elif self._may_know(key):
                self._wait_for(key, event)
            else:
                self._refuse(key, source)
        elif found(event.infos, SAYS, str) == ASK:
            self._take_in(election, source)
            self._report(election, source, requested=True)
        else:
            self._take_report(election, source, event.infos)

    def _take_report(self, election: _Election, source: Proc, infos: tuple[Info, ...]) -> None:
        if source in election.doubted:
            if not is_set(infos, ASKED):
                self._say(ASK, election.key, (source,))
                return
            election.doubted.discard(source)
        self._take_in(election, source)
        if source not in election.heard:
            self._say(WAIT, election.key, (source,))
        self._note(election, source, found(infos, VERDICT, str) or "")
        holds = is_set(infos, HOLDS)
        if election.result in self._results:
            if not holds:
                self._say(KNOWN, election.key, (source,), (_packed(self._results[election.result]),))
        elif holds and source not in election.holders:
            election.holders.append(source)
            if election.holders == [source]:
                self._say(TELL, election.key, (source,))
        if self._under_way.get(election.key) is election:
            self._check(election)

    def _take_in(self, election: _Election, source: Proc) -> None:
        """Add a proc that was not known to take part, or had answered that it does not."""
        if source in election.order or self._agent.standing.has_exited(source):
            return
        if source not in election.everybody:
            election.everybody.append(source)
        election.order = [each for each in election.everybody if each == source or each in election.order]
        if election.head is not None:
            self._go(election)

    def _note(self, election: _Election, source: Proc, verdict: str) -> None:
        if election.heard.get(source) and source in election.heard:
            return
        election.heard.pop(source, None)
        election.heard[source] = verdict if verdict in (ABORT, CLAIM, GO_ON) else ""

    def called(self, name: str, failed: Proc) -> bool:
        """Take part in a choice that others have begun in place of a leader that left. Return True if there is one."""
        for (key, source), early in list(self._early.items()):
            if (key[0], key[2]) == (name, failed) and self._is_leaderless(key, source):
                self._follow(key, early)
                return True
        return False

    def _is_leaderless(self, key: Key, source: Proc) -> bool:
        """Return True if this process knows of no leader of its group, and a member chooses one."""
        return bool(self._agent.standing.lacks_leader(key[0], key[2], key[1], source))

    def _follow(self, key: Key, event: Notification) -> None:
        keep(self._early, (key, event.source), event)
        self._agent.standing.follow_choice(key[0], key[2], key[1])

    def _may_know(self, key: Key) -> bool:
        """Return True if this process takes part, or may do so later: more events of the failed leader may arrive."""
        standing = self._agent.standing
        gone = standing.has_exited(key[2]) or standing.has_departed(key[0], key[2])
        return self._takes_part(key) or not gone

    def _takes_part(self, key: Key) -> bool:
        return key in self._under_way or self._will_take_part(key)

    def _wait_for(self, key: Key, event: Notification) -> None:
        self._early[key, event.source] = event
        self._say(WAIT, key, (event.source,))
        if len(self._early) > KEPT:
            oldest, source = next(iter(self._early))
            del self._early[oldest, source]
            self._refuse(oldest, source)

    def _refuse(self, key: Key, source: Proc) -> None:
        keep(self._refused, (key, source), None)
        self._say(OUT, key, (source,))

    def _waits(self, event: Notification) -> None:
        election = self._find(event)
        if election is not None:
            election.spoke.add(event.source)
            if event.source == election.head and election.timer is not None:
                election.timer.cancel()
                election.timer = None

    def _stays_out(self, event: Notification) -> None:
        key = _about(event)
        if key is None:
            return
        # It may have asked before this process knew of a failure.
        self._early.pop((key, event.source), None)
        election = self._under_way.get(key)
        if election is not None:
            self._without(election, event.source)

    def _tells_result(self, event: Notification) -> None:
        key = _about(event)
        result = None if key is None else self._results.get((key[0], key[2]))
        if key is not None and result is not None:
            self._say(KNOWN, key, (event.source,), (_packed(result),))

    def _knows_result(self, event: Notification) -> None:
        election, infos = self._find(event), _unpacked(event.infos)
        if election is not None and infos is not None:
            self._learn(election, infos)

    def _find(self, event: Notification) -> _Election | None:
        key = _about(event)
        return None if key is None else self._under_way.get(key)

    def _learn(self, election: _Election, infos: tuple[Info, ...]) -> None:
        """The failed leader has reported to some proc that the group is complete: it is complete for all."""
        key = election.key
        if election.result in self._results or key in self._past:
            return
        if election.coordinates:
            # Before all else: it must not arrive after the choice.
            others = [each for each in election.order if each != self._me]
            if others:
                self._say(KNOWN, election.key, others, (_packed(infos),))
        self._agent.part("joining").apply_result(election.name, election.failed, infos)
        if key in self._under_way:
            self._check(self._under_way[key])

    def _handle_exit(self, proc: Proc) -> None:
        for election in list(self._under_way.values()):
            if self._under_way.get(election.key) is election:
                self._without(election, proc)
        for early in [early for early in self._early if early[1] == proc]:
            del self._early[early]
        if any(key[2] == proc for key, _ in self._early):
            # The other parts get the same event, and may take part then.
            self._port.later(0, lambda: self._refuse_early(lambda key: key[2] == proc and not self._takes_part(key)))

    def _without(self, election: _Election, source: Proc) -> None:
        if source in election.order and source != self._me:
            election.order.remove(source)
            election.heard.pop(source, None)
            if source in election.holders:
                asked = election.holders[0]
                election.holders.remove(source)
                if asked == source and election.holders:
                    self._say(TELL, election.key, election.holders[:1])
            if election.head is not None:
                self._go(election)

    # The choice

    def _is_news_of_choice(self, event: Notification) -> bool:
        key = _about(event)
        if key is None:
            return True
        news = key not in self._shown
        keep(self._shown, key, None)
        return news

    def _selected(self, event: Notification) -> None:
        key = _about(event)
        if key is None or key in self._past:
            return
        status = found(event.infos, ERROR_STATUS, int)
        outcome = LeaderChoice(
            found(event.infos, keys.GROUP_LEADER, Proc), statuses.SUCCESS if status is None else status
        )
        election = self._under_way.get(key)
        if election is None:
            if self._is_leaderless(key, event.source):
                keep(self._past, key, outcome)
                self._agent.standing.led(key[0], outcome.leader, key[1])
            elif self._will_take_part(key):
                keep(self._past, key, outcome)
            return
        if election.coordinates:
            # An earlier coordinator's choice has reached this process by way of another one: announce it to all.
            others = tuple([each for each in election.order if each not in (self._me, event.source)])
            if others:
                self._announce(key, outcome, others)
        self._finish(election, outcome, States.HEARS)

    # Small things

    def _will_take_part(self, key: Key) -> bool:
        """Return True if this process will take part as soon as it knows that a leader has failed."""
        name, term, failed = key
        for election in self._under_way.values():
            if election.name == name and election.term < term and failed in election.everybody:
                # It may be the chosen leader.
                return True
        state = self._agent.standing.state(name)
        if state is not None and state.leader == failed:
            return True
        return bool(self._agent.part("joining").follows(name, failed))

    def _report(self, election: _Election, to: Proc, *, requested: bool = False) -> None:
        infos = [flag(ASKED)] if requested else []
        if election.verdict:
            infos.append(text(VERDICT, election.verdict))
        if election.result in self._results:
            infos.append(flag(HOLDS))
        self._say(HERE, election.key, (to,), infos)

    def _say(self, says: str, key: Key, to: Iterable[Proc], infos: Iterable[Info] = ()) -> None:
        name, term, failed = key
        self._port.submit(say(says, name, to, (size(TERM, term), proc(FAILED, failed), *infos)), ignore)


def _announcement(key: Key, outcome: LeaderChoice, to: tuple[Proc, ...]) -> NotifyEvent:
    """Return the event that announces a choice."""
    name, term, failed = key
    what = Info(ERROR_STATUS, Value(codes.STATUS, outcome.status))
    if outcome.leader is not None:
        what = proc(keys.GROUP_LEADER, outcome.leader)
    return event(statuses.GROUP_LEADER_SELECTED, name, to, (what, size(TERM, term), proc(FAILED, failed)))


def _about(event: Notification) -> Key | None:
    """Return the key of the choice that an event is about; None for events of other libraries, which do not name it."""
    infos = event.infos
    name, term, failed = found(infos, keys.GROUP_ID, str), found(infos, TERM, int), found(infos, FAILED, Proc)
    return None if name is None or term is None or failed is None else (name, term, failed)


def _failure(event: Notification) -> tuple[str, Proc] | None:
    name, failed = found(event.infos, keys.GROUP_ID, str), found(event.infos, keys.EVENT_AFFECTED_PROC, Proc)
    return None if name is None or failed is None else (name, failed)


def _packed(infos: tuple[Info, ...]) -> Info:
    return Info(RESULT, Value(codes.DATA_ARRAY, DataArray(codes.INFO, infos)))


def _unpacked(infos: Iterable[Info]) -> tuple[Info, ...] | None:
    array = found(infos, RESULT, DataArray)
    if array is None or not all(isinstance(item, Info) for item in array.items):
        return None
    return tuple(array.items)


def _ignored(outcome: LeaderChoice) -> None:
    """Ignore an outcome that is no longer wanted."""
