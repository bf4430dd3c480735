"""Proves that the tracker ends every operation exactly once, whoever joins, leaves or is late."""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypmix.engine.collective.machine import Collectives, CollectiveState, Kind
from pypmix.engine.states import IllegalStep
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.types import Proc


class Member:
    def __init__(self, rank):
        self.proc = Proc("job", rank)
        self.opened = 1

    def __repr__(self):
        return str(self.proc)


class Clock:
    def __init__(self):
        self.time = 0.0
        self.timers = []
        self.number = count()

    def now(self):
        return self.time

    def call_later(self, delay, function):
        entry = [self.time + delay, next(self.number), function]
        heapq.heappush(self.timers, entry)
        return type("Timer", (), {"cancel": lambda self: entry.__setitem__(2, None)})()

    def advance(self, seconds):
        end = self.time + seconds
        while self.timers and self.timers[0][0] <= end:
            self.time, _, function = heapq.heappop(self.timers)
            if function:
                function()
        self.time = end


class World:
    def __init__(self, size):
        self.clock = Clock()
        self.ended = []
        self.times = []
        self.asked = []
        self.members = [Member(rank) for rank in range(size)]
        self.tracker = Collectives(self.clock)
        self.kinds = {
            name: Kind(name, self.ask, lambda collective, result: None, self.done) for name in ("fence", "connect")
        }

    def ask(self, collective):
        collective.step(CollectiveState.SUBMITTED)
        self.asked.append(collective)

    def done(self, collective, status):
        self.ended.append((status, dict(collective.arrived)))
        self.times.append(self.clock.time)

    def membership(self, *ranks, operation="fence"):
        return self.tracker.membership(self.kinds[operation], [self.members[rank] for rank in ranks])

    def join(self, ranks, rank, ticket, **more):
        self.tracker.join(self.membership(*ranks), self.members[rank], ticket, **more)

    def tickets(self):
        return [(status, sorted(arrived.values())) for status, arrived in self.ended]


@pytest.fixture
def world():
    return World(4)


def test_ends_when_the_last_one_arrives(world):
    world.join((0, 1, 2), 0, "a")
    world.join((0, 1, 2), 2, "c")
    assert not world.ended
    world.join((0, 1, 2), 1, "b")
    assert world.tickets() == [(statuses.SUCCESS, ["a", "b", "c"])]
    assert not world.tracker.pending()


def test_order_and_repetition_of_procs_do_not_matter(world):
    assert world.membership(2, 0, 1) is world.membership(0, 1, 2, 2)
    assert world.membership(0, 1) is not world.membership(0, 1, 2)
    assert world.membership(0, 1) is not world.membership(0, 1, operation="connect")


def test_a_second_call_belongs_to_the_next_operation(world):
    world.join((0, 1), 0, "first")
    world.join((0, 1), 0, "second")
    assert not world.ended
    world.join((0, 1), 1, "other first")
    assert world.tickets() == [(statuses.SUCCESS, ["first", "other first"])]
    world.join((0, 1), 1, "other second")
    assert world.tickets()[1] == (statuses.SUCCESS, ["other second", "second"])


def test_different_sets_run_side_by_side(world):
    world.join((0, 1), 0, "01")
    world.join((0, 2), 0, "02")
    world.join((0, 2), 2, "20")
    assert world.tickets() == [(statuses.SUCCESS, ["02", "20"])]
    assert [entry.missing for entry in world.tracker.pending()] == [(Proc("job", 1),)]


def test_pending_says_who_and_since_when(world):
    world.clock.advance(5)
    world.join((0, 1, 2), 1, "b")
    world.clock.advance(5)
    world.join((0, 1, 2), 2, "c")
    (entry,) = world.tracker.pending()
    assert (entry.operation, entry.since) == ("fence", 5)
    assert entry.arrived == (Proc("job", 1), Proc("job", 2))
    assert entry.missing == (Proc("job", 0),)


def test_the_others_go_on_without_a_lost_one(world):
    world.join((0, 1, 2), 0, "a")
    world.join((0, 1, 2), 1, "b")
    world.tracker.leave(world.members[2], is_failed=True)
    assert world.tickets() == [(statuses.ERR_PARTIAL_SUCCESS, ["a", "b"])]


def test_a_lost_one_takes_its_contribution_along(world):
    world.join((0, 1, 2), 0, "a")
    world.join((0, 1, 2), 1, "b")
    world.tracker.leave(world.members[0], is_failed=True)
    world.join((0, 1, 2), 2, "c")
    assert world.tickets() == [(statuses.ERR_PARTIAL_SUCCESS, ["b", "c"])]


def test_a_finalized_one_is_missed_by_what_is_under_way(world):
    world.join((0, 1), 0, "a")
    world.tracker.leave(world.members[1], is_failed=False)
    assert world.tickets() == [(statuses.ERR_PARTIAL_SUCCESS, ["a"])]


def test_a_finalized_one_that_may_come_back_is_waited_for(world):
    world.tracker.leave(world.members[1], is_failed=False)
    world.join((0, 1), 0, "a")
    assert not world.ended
    world.tracker.readmit(world.members[1])
    world.join((0, 1), 1, "b")
    assert world.tickets() == [(statuses.SUCCESS, ["a", "b"])]


def test_who_opens_again_is_not_failed_by_the_others_last_finalize(world):
    world.members[0].opened = 2
    world.join((0, 1), 0, "a")
    world.tracker.leave(world.members[1], is_failed=False)
    assert not world.ended
    world.members[1].opened = 2
    world.tracker.readmit(world.members[1])
    world.join((0, 1), 1, "b")
    assert world.tickets() == [(statuses.SUCCESS, ["a", "b"])]


def test_who_opens_again_alone_is_told_when_the_other_ends(world):
    world.members[0].opened = 2
    world.join((0, 1), 0, "a")
    world.tracker.leave(world.members[1], is_failed=False)
    world.tracker.stop_expecting(world.members[1])
    assert world.tickets() == [(statuses.ERR_PARTIAL_SUCCESS, ["a"])]


def test_a_finalized_one_that_has_ended_is_not_waited_for(world):
    world.tracker.leave(world.members[1], is_failed=False)
    world.join((0, 1), 0, "a")
    world.tracker.stop_expecting(world.members[1])
    world.join((0, 1), 0, "again")
    assert world.tickets() == [(statuses.ERR_PARTIAL_SUCCESS, ["a"]), (statuses.ERR_PARTIAL_SUCCESS, ["again"])]


def test_what_an_ended_one_contributed_counts(world):
    world.join((0, 1), 0, "a")
    world.tracker.leave(world.members[0], is_failed=False)
    world.tracker.stop_expecting(world.members[0])
    world.join((0, 1), 1, "b")
    assert world.tickets() == [(statuses.SUCCESS, ["a", "b"])]


def test_what_a_finalized_one_contributed_counts(world):
    world.join((0, 1), 0, "a")
    world.tracker.leave(world.members[0], is_failed=False)
    world.join((0, 1), 1, "b")
    assert world.tickets() == [(statuses.SUCCESS, ["a", "b"])]


def test_who_was_lost_before_is_not_waited_for(world):
    world.tracker.leave(world.members[1], is_failed=True)
    world.join((0, 1), 0, "a")
    assert world.tickets() == [(statuses.ERR_PARTIAL_SUCCESS, ["a"])]
    world.tracker.readmit(world.members[1])
    world.join((0, 1), 0, "a")
    assert len(world.ended) == 1


def test_who_comes_back_can_still_join_what_went_on_without_it(world):
    world.join((0, 1, 2), 0, "a")
    world.tracker.leave(world.members[1], is_failed=False)
    world.tracker.readmit(world.members[1])
    world.join((0, 1, 2), 1, "b")
    world.join((0, 1, 2), 2, "c")
    assert world.tickets() == [(statuses.ERR_PARTIAL_SUCCESS, ["a", "b", "c"])]


def test_nobody_left_is_nobody_answered(world):
    world.join((0, 1), 0, "a")
    world.tracker.leave(world.members[0], is_failed=True)
    assert not world.ended
    assert not world.tracker.pending()


def test_a_withdrawn_contribution_is_awaited_again(world):
    world.join((0, 1, 2), 0, "a")
    world.join((0, 1, 2), 1, "b")
    world.tracker.withdraw(world.members[1], lambda ticket: ticket == "b")
    world.join((0, 1, 2), 2, "c")
    assert not world.ended
    world.join((0, 1, 2), 1, "b2")
    assert world.tickets() == [(statuses.SUCCESS, ["a", "b2", "c"])]


def test_a_member_that_left_the_group_calls_another_operation(world):
    def call(rank, group, ticket):
        found = world.tracker.find_membership(world.membership(0, 1, 2), group, world.members[rank])
        world.tracker.join(found, world.members[rank], ticket)

    call(0, "acme", "group 0")
    world.tracker.remove_from_group("acme", world.members[2])
    # It names the procs now, which are the members that the group had.
    call(2, "", "all 2")
    call(1, "acme", "group 1")
    assert world.tickets() == [(statuses.ERR_PARTIAL_SUCCESS, ["group 0", "group 1"])]
    call(0, "", "all 0")
    call(1, "", "all 1")
    assert world.tickets()[1:] == [(statuses.SUCCESS, ["all 0", "all 1", "all 2"])]


def test_a_withdrawal_leaves_what_its_member_has_not_called_and_what_is_not_void(world):
    world.join((0, 1, 2), 0, "a")
    world.join((0, 1, 3), 1, "b")
    world.tracker.withdraw(world.members[1], lambda ticket: ticket == "void")
    world.join((0, 1, 3), 0, "c")
    world.join((0, 1, 3), 3, "d")
    assert world.tickets() == [(statuses.SUCCESS, ["b", "c", "d"])]
    world.join((0, 1, 2), 1, "e")
    world.join((0, 1, 2), 2, "f")
    assert world.tickets()[1:] == [(statuses.SUCCESS, ["a", "e", "f"])]


def test_who_names_the_procs_meets_the_older_operation_before_that_of_a_group(world):
    _, second, third = world.members[:3]
    procs = world.membership(0, 1, 2)
    world.tracker.join(procs, second, "first")
    group = world.tracker.find_membership(procs, "group", second)
    assert group is not procs
    world.tracker.join(group, second, "second")
    assert world.tracker.find_membership(procs, "", third) is procs
    world.tracker.join(procs, third, "first of the third")
    assert world.tracker.find_membership(procs, "", third) is group


def test_timeout_answers_those_who_wait(world):
    world.join((0, 1, 2), 0, "a", timeout=3)
    world.clock.advance(2)
    world.join((0, 1, 2), 1, "b", timeout=3)
    world.clock.advance(0.9)
    assert not world.ended
    world.clock.advance(0.1)
    assert world.tickets() == [(statuses.ERR_TIMEOUT, ["a", "b"])]
    world.join((0, 1, 2), 2, "c")
    assert [entry.arrived for entry in world.tracker.pending()] == [(Proc("job", 2),)]


def test_a_time_limit_stays_when_its_giver_is_lost(world):
    world.join((0, 1, 2), 0, "a", timeout=3)
    world.join((0, 1, 2), 1, "b", timeout=9)
    world.tracker.leave(world.members[0], is_failed=True)
    world.clock.advance(2.9)
    assert not world.ended
    world.clock.advance(0.1)
    assert world.tickets() == [(statuses.ERR_TIMEOUT, ["b"])]


def test_a_timer_does_not_outlive_its_operation(world):
    world.join((0, 1), 0, "a", timeout=3)
    world.join((0, 1), 1, "b")
    world.join((0, 1), 0, "next")
    world.clock.advance(10)
    assert world.tickets() == [(statuses.SUCCESS, ["a", "b"])]


def test_nobody_can_begin_without_end(world):
    for number in range(DEFAULTS.collectives):
        world.join((0, 1), 0, number)
    with pytest.raises(PMIxError) as info:
        world.join((0, 1), 0, "one more")
    assert info.value.code == statuses.ERR_OUT_OF_RESOURCE
    world.join((0, 1, 2), 2, "somebody else")
    world.join((0, 1), 1, "the other")
    world.join((0, 1), 0, "room again")


SETS = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(lambda ranks: tuple(sorted(set(ranks))))
STEPS = st.one_of(
    st.tuples(st.just("join"), st.integers(0, 3), SETS, st.sampled_from((0, 0, 5))),
    st.tuples(st.just("leave"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("back"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.integers(1, 6)),
)


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=40))
def test_every_call_ends_once(steps):
    world = World(4)
    tickets = count()
    open_calls = {}
    void = Counter()
    left_ever = set()
    seen = 0
    left = set()
    for kind, *args in steps:
        if kind == "join":
            rank, ranks, timeout = args
            ranks = tuple(sorted({*ranks, rank}))
            if rank in left:
                continue
            ticket = next(tickets)
            open_calls[ticket] = rank, ranks, timeout and world.clock.time + timeout
            world.join(ranks, rank, ticket, timeout=timeout)
        elif kind == "leave":
            rank, lost = args
            if rank in left:
                continue
            left.add(rank)
            left_ever.add(rank)
            if lost:
                # What it contributes is void, not the time that it gave.
                void.update(call[1:] for call in open_calls.values() if call[0] == rank and call[2])
                open_calls = {ticket: call for ticket, call in open_calls.items() if call[0] != rank}
            world.tracker.leave(world.members[rank], lost)
        elif kind == "back":
            left.discard(args[0])
            world.tracker.readmit(world.members[args[0]])
        else:
            world.clock.advance(args[0])
        for (status, arrived), time in zip(world.ended[seen:], world.times[seen:], strict=True):
            calls = [open_calls.pop(ticket) for ticket in arrived.values()]
            (ranks,) = {call[1] for call in calls}
            assert {call[0] for call in calls} == {member.proc.rank for member in arrived}
            if status == statuses.ERR_TIMEOUT:
                # It is over when somebody's limit is: one of those who wait, or of one operation that lost who gave it.
                if time not in {call[2] for call in calls}:
                    assert void[ranks, time] > 0
                    void[ranks, time] -= 1
            else:
                assert status == statuses.SUCCESS or left_ever & set(ranks)
        seen = len(world.ended)
        shown = Counter(proc.rank for entry in world.tracker.pending() for proc in entry.arrived)
        assert shown == Counter(call[0] for call in open_calls.values())
        assert all(entry.arrived and entry.missing for entry in world.tracker.pending())
    for member in world.members:
        world.tracker.leave(member, is_failed=False)
    finished = {ticket for _, arrived in world.ended[seen:] for ticket in arrived.values()}
    assert finished == set(open_calls)
    assert not world.tracker.pending()


# Operations in which the host has a say


FAR = (Proc("far", 0),)


def asking(world, *ranks, others=FAR):
    return world.tracker.membership(world.kinds["fence"], [world.members[rank] for rank in ranks], others)


def test_the_host_is_asked_when_all_members_have_come(world):
    membership = asking(world, 0, 1)
    world.tracker.join(membership, world.members[0], "a", contribution=("procs", "infos"))
    assert not world.asked
    world.tracker.join(membership, world.members[1], "b")
    (collective,) = world.asked
    assert collective.said == {world.members[0]: ("procs", "infos")}
    assert not world.ended
    assert collective.finish(statuses.SUCCESS)
    assert world.tickets() == [(statuses.SUCCESS, ["a", "b"])]
    assert not collective.finish(statuses.SUCCESS)


def test_one_operation_of_a_membership_is_before_the_host_at_a_time(world):
    membership = asking(world, 0)
    for ticket in "abc":
        world.tracker.join(membership, world.members[0], ticket)
    assert len(world.asked) == 1
    world.asked[0].finish(statuses.ERR_TIMEOUT)
    assert [sorted(collective.arrived.values()) for collective in world.asked] == [["a"], ["b"]]
    world.tracker.leave(world.members[0], is_failed=True)
    assert len(world.asked) == 2
    assert not world.tracker.pending()


def test_who_is_lost_before_the_host_is_asked_is_told_to_it(world):
    membership = asking(world, 0, 1)
    for ticket in ("a", "b"):
        world.tracker.join(membership, world.members[0], ticket)
        world.tracker.join(membership, world.members[1], ticket)
    world.tracker.leave(world.members[1], is_failed=True)
    first = world.asked[0]
    assert (first.status, first.lost) == (statuses.SUCCESS, False)
    first.finish(statuses.SUCCESS)
    assert world.asked[1].status == statuses.ERR_PARTIAL_SUCCESS


def test_other_procs_make_another_membership(world):
    assert asking(world, 0) is not asking(world, 0, others=(Proc("far", 1),))
    assert asking(world, 0) is asking(world, 0)
    assert not asking(world, 0, others=()).asks


def test_what_crosses_does_not_wait_for_who_has_finalized(world):
    world.tracker.leave(world.members[1], is_failed=False)
    world.tracker.join(asking(world, 0, 1), world.members[0], "a")
    (collective,) = world.asked
    assert collective.status == statuses.ERR_PARTIAL_SUCCESS
    collective.finish(statuses.ERR_PARTIAL_SUCCESS)
    world.members[0].opened = 2
    world.tracker.join(asking(world, 0, 1), world.members[0], "opened again")
    assert len(world.asked) == 1
    world.members[1].opened = 2
    world.tracker.readmit(world.members[1])
    world.tracker.join(asking(world, 0, 1), world.members[1], "b")
    assert world.asked[1].status == statuses.SUCCESS


def test_a_step_that_the_table_does_not_have_is_an_error_that_says_which(world):
    world.tracker.join(asking(world, 0), world.members[0], "a")
    (collective,) = world.asked
    with pytest.raises(IllegalStep, match="CollectiveState: .* cannot happen in the state 'with the host'"):
        collective.step(CollectiveState.ALL_JOINED)
    assert collective.state == CollectiveState.FORWARDED


def test_the_limit_that_is_over_first_counts(world):
    world.join((0, 1, 2), 0, "a", timeout=10)
    world.clock.advance(1)
    world.join((0, 1, 2), 1, "b", timeout=2)
    world.clock.advance(1.9)
    assert not world.ended
    world.clock.advance(0.1)
    assert world.tickets() == [(statuses.ERR_TIMEOUT, ["a", "b"])] and world.times == [3.0]


def test_a_caller_that_gives_up_is_waited_for_again(world):
    world.join((0, 1, 2), 0, "a")
    world.join((0, 1, 2), 1, "b")
    assert world.tracker.retract(world.members[0], "a")
    assert not world.tracker.retract(world.members[0], "a")
    world.join((0, 1, 2), 2, "c")
    assert not world.ended
    world.join((0, 1, 2), 0, "again")
    assert world.tickets() == [(statuses.SUCCESS, ["again", "b", "c"])]


@pytest.mark.parametrize("remaining", [0, 9])
def test_the_limit_of_a_caller_that_gives_up_does_not_end_its_next_call(world, remaining):
    world.join((0, 1, 2), 1, "b", timeout=remaining)
    world.join((0, 1, 2), 0, "a", timeout=3)
    world.clock.advance(2)
    assert world.tracker.retract(world.members[0], "a")
    world.join((0, 1, 2), 0, "again")
    world.clock.advance(6.5)
    assert not world.ended
    world.clock.advance(1)
    assert world.tickets() == ([(statuses.ERR_TIMEOUT, ["again", "b"])] if remaining else [])


def test_a_caller_that_gives_up_after_its_limit_has_passed_ends_it_for_all(world):
    world.join((0, 1, 2), 1, "b", timeout=9)
    world.join((0, 1, 2), 0, "a", timeout=3)
    # The server was late to look at its clock.
    world.clock.time = 3.5
    assert world.tracker.retract(world.members[0], "a")
    assert world.tickets() == [(statuses.ERR_TIMEOUT, ["b"])]
    world.join((0, 1, 2), 0, "again")
    world.clock.advance(30)
    assert world.tickets()[1:] == []


def test_nothing_is_left_of_the_only_caller_that_gives_up(world):
    world.join((0, 1), 0, "a", timeout=3)
    assert world.tracker.retract(world.members[0], "a")
    assert not world.tracker.pending()
    world.clock.advance(5)
    assert not world.ended


def test_it_is_too_late_to_give_up_what_is_above(world):
    members = [world.members[0]]
    above = world.tracker.membership(world.kinds["fence"], members, remote=[Proc("job", 9)])
    world.tracker.join(above, world.members[0], "a", contribution=((), ()))
    assert len(world.asked) == 1
    assert not world.tracker.retract(world.members[0], "a")
    world.asked[0].finish(statuses.SUCCESS)
    assert world.tickets() == [(statuses.SUCCESS, ["a"])]
