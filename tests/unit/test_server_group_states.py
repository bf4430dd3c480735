"""Proves that constructs on a server go through the states of the table that the documentation draws, through all."""

from __future__ import annotations

from collections import Counter

import pytest

from lib.group_member import ABORT
from lib.group_party import LEAD, NOTIFY, OPTIONAL, REACTS, Party, Several, added, job
from pypmix.engine.collective.machine import CollectiveState
from pypmix.engine.groups import talk
from pypmix.engine.states import IllegalStep, NextStates
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.enums import Range
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import DataArray, Proc
from pypmix.wire.messages import Command

SECONDS = attrs.TIMEOUT(3)


@pytest.fixture
def seen(monkeypatch):
    """All changes of states from now on: a state, what has happened, and the state after that."""
    seen = Counter()

    def watched(self, state):
        try:
            after = dict.__getitem__(self, state)
        except IllegalStep:
            # The server would answer its client with an error, and go on.
            after = "nothing that is in the table"
        if self.machine is CollectiveState:
            seen[state, self.what, after] += 1
        return after

    monkeypatch.setattr(NextStates, "__getitem__", watched, raising=False)
    return seen


def abort(member):
    """A caller wants no such group."""
    infos = (attrs.EVENT_CUSTOM_RANGE(Proc("job", 1)), talk.text(keys.GROUP_ID, "g"))
    member.ask(Command.NOTIFY, code=statuses.GROUP_CONSTRUCT_ABORT, range=Range.CUSTOM, infos=infos)


def agree(answer, *ranks):
    answer((attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, job(*ranks))),), None)


def asked(*infos, layout=((0,), (1,))):
    """Return servers whose host is asked about a construct, the first member, and how the host answers."""
    cluster = Several(*layout)
    members = [cluster.member(rank) for rank in layout[0]]
    everyone = job(*[rank for ranks in layout for rank in ranks])
    for member in members:
        member.construct(*infos, procs=everyone)
    return cluster, members[0], cluster.asked()[2]


def failures():
    """Members fail while callers come, and while the host is asked."""
    party = Party(4)
    party.construct(0, infos=(LEAD, NOTIFY, REACTS))
    party.die(3)
    party.die(2)
    for rank in (3, 2):
        party.react(0, Proc("job", rank), talk.GO_ON)
    abort(party.members[0])
    party = Party(3)
    party.construct(0, infos=(NOTIFY, REACTS))
    party.die(2)
    party.react(0, Proc("job", 2), talk.ABORT)
    cluster, _, answer = asked(NOTIFY)
    answer((talk.procs(talk.ABSENT, job(1)),), None)
    cluster.asked()[2](None, PMIxError("no", status=ABORT))


def additions():
    """Some whom it adds come late, or not at all, and a caller fails meanwhile."""
    for end in ("they come", "the time runs out", "a caller fails", "the others go on without it"):
        party = Party(4)
        add = talk.procs(keys.GROUP_ADD_MEMBERS, job(2, 3))
        party.construct(0, 1, infos=(add, SECONDS, LEAD, NOTIFY, REACTS), procs=job(0, 1))
        if end == "they come":
            added(party, 2)
            added(party, 3)
        elif end != "the time runs out":
            party.die(1)
            if end == "the others go on without it":
                party.react(0, Proc("job", 1), talk.GO_ON)
        party.advance(5)


def ends():
    """The host is asked, and somebody has other ideas or no time."""
    _, zero, answer = asked()
    abort(zero)
    agree(answer, 0, 1)
    _, zero, answer = asked()
    abort(zero)
    answer(None, PMIxError("given up", status=ABORT))
    cluster, zero, answer = asked(OPTIONAL, SECONDS)
    cluster.advance(4)
    abort(zero)
    answer((talk.procs(talk.ABSENT, job(1)),), None)
    cluster, zero, _ = asked(OPTIONAL, SECONDS)
    abort(zero)
    cluster.advance(60)
    cluster, zero, _ = asked(layout=((0, 1),))
    abort(zero)
    cluster, zero, _ = asked(OPTIONAL, SECONDS, layout=((0, 1),))
    cluster.advance(4)
    abort(zero)
    cluster, _, _ = asked(SECONDS)
    cluster.advance(5)


def one_after_the_other():
    """A member fences again while the host has its first fence, and one of a lone server's procs never comes."""
    cluster = Several((0,), (1,))
    client = cluster.member(0).client
    for limit in ((), (), (SECONDS,)):
        client.fence(*job(0, 1), infos=limit)
    cluster.advance(3)
    for _ in range(2):
        (held,) = cluster.held
        cluster.held.clear()
        held[1](b"", None)
    party = Party(2)
    party.construct(0)
    party.die(1)


def test_every_change_of_state_is_in_the_table_and_each_of_them_comes_about(seen):
    failures()
    additions()
    ends()
    one_after_the_other()
    rows = {(row.state, row.what, row.next) for row in CollectiveState.ROWS}
    assert set(seen) - rows == set()
    assert rows - set(seen) == set()
