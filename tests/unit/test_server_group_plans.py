"""Proves that a server means the same by requests of groups that it has read before, and answers the same."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from lib.group_party import NOTIFY, TOLERANT, Party, Several, job
from pypmix.engine.groups import talk
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.python.serverside.plans import Plan
from pypmix.standard import attrs, statuses
from pypmix.standard.ops import ClientFinalized
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.hosting import GROUP_CONSTRUCT, GROUP_LEADER_PROC, GroupUpcall
from pypmix.standard.types import Proc
from pypmix.wire.messages import Command, reply_layout

ASK = attrs.GROUP_ASSIGN_CONTEXT_ID(True)


class Numbering(Party):
    """A server whose host tells the members and a number, in the same objects where it is asked with the same."""

    numbers = count(500)
    asked = None, None, None

    def upcall(self, op, answer, process=None):
        self.upcalls.append(op)
        if not isinstance(op, GroupUpcall) or op.operation != GROUP_CONSTRUCT:
            answer((), None)
            return
        procs, directives, membership = self.asked
        if procs is not op.procs or directives is not op.directives:
            order = talk.listed(op.directives, "pypmix.grp.order") or op.procs
            membership = attrs.GROUP_MEMBERSHIP(order)
            self.asked = op.procs, op.directives, membership
        number = (attrs.GROUP_CONTEXT_ID(next(self.numbers)),) if is_set(op.directives, ASK.key) else ()
        answer((membership, *number), None)

    def results(self, tags):
        return [member.result(tag) for member, tag in zip(self.members, tags, strict=True)]

    def destruct(self, name="g"):
        tags = [member.destruct(name=name) for member in self.members]
        assert self.statuses(tags) == [statuses.SUCCESS] * len(tags)


@pytest.mark.parametrize("release", [(4, 2, 2), (4, 2, 9), (5, 0, 11), (6, 1, 0), (7, 0, 0)])
@pytest.mark.parametrize("buffer_type", [1, 2])
@pytest.mark.parametrize("number", [None, 0, 127, 128, 1 << 32])
def test_a_reply_in_parts_is_the_one_that_is_packed_in_one(release, buffer_type, number):
    members = job(3, 1, 200)
    layout = reply_layout(Command.GROUP_CONSTRUCT, release)
    whole = layout.encode(buffer_type, release, status=0, members=members, context_id=number)
    plan = Plan(members, ())
    assert [plan.reply((buffer_type, release), members, number) for _ in range(2)] == [whole] * 2


def test_groups_one_after_the_other():
    party = Numbering(3)
    procs = job(2, 0, 1)
    numbers = set()
    for name in ("a", "b", "a", "c"):
        results = party.results(party.construct(name=name, infos=(ASK,), procs=procs))
        assert [result["members"] for result in results] == [procs] * 3
        (number,) = {result["context_id"] for result in results}
        numbers.add(number)
        assert party.server.store.groups[name] == procs
        party.destruct(name)
    assert len(numbers) == 4
    assert party.is_clean()


def test_who_calls_twice_or_is_not_named_is_refused_although_others_have_said_the_same():
    party = Numbering(3)
    tags = party.construct(0, 1, procs=job(0, 1, 2))
    assert party.statuses(party.construct(0, procs=job(0, 1, 2))) == [statuses.ERR_EXISTS]
    tags += party.construct(2, procs=job(0, 1, 2))
    assert party.statuses(tags) == [statuses.SUCCESS] * 3
    tags = party.construct(0, procs=job(0, 1), name="h")
    assert party.statuses(party.construct(2, procs=job(0, 1), name="h"), (2,)) not in ([None], [statuses.SUCCESS])
    assert party.statuses([*tags, *party.construct(1, procs=job(0, 1), name="h")]) == [statuses.SUCCESS] * 2


def test_what_only_one_of_them_asks_for_holds_for_all():
    party = Numbering(3)
    party.results(party.construct(procs=job(0, 1, 2), name="before"))
    tags = party.construct(0, procs=job(0, 1, 2))
    tags += party.construct(1, infos=(ASK, NOTIFY), procs=job(0, 1, 2))
    tags += party.construct(2, procs=job(0, 1, 2))
    assert len({result["context_id"] for result in party.results(tags)} - {None}) == 1
    assert party.server.groups.records.get("g").notify
    (op,) = [op for op in party.upcalls if isinstance(op, GroupUpcall) and op.group == "g"]
    assert {ASK.key, NOTIFY.key} <= {info.key for info in op.directives}


@pytest.mark.parametrize("last", [True, False])
def test_a_group_that_somebody_has_left_is_destructed_by_the_rest(last):
    party = Numbering(3)
    for _ in range(2):
        party.results(party.construct(infos=(TOLERANT,)))
        tags = [party.members[0].destruct()]
        if last:
            tags.append(party.members[2].destruct())
        left = party.notify(1, statuses.GROUP_LEFT)
        if not last:
            tags.append(party.members[2].destruct())
        assert party.statuses(tags, (0, 2)) == [statuses.SUCCESS] * 2
        assert party.members[1].status(left) == statuses.SUCCESS
        assert party.is_clean()


def test_a_proc_that_ends_is_no_member_of_a_group_that_is_made_as_before():
    party = Numbering(3)
    for name in ("a", "b"):
        party.results(party.construct(name=name, infos=(TOLERANT,)))
    tags = party.construct(0, 1, infos=(TOLERANT,))
    party.die(2)
    assert party.statuses(tags) == [statuses.SUCCESS] * 2
    assert party.server.store.groups["g"] == job(0, 1)


def test_a_leader_of_another_server_is_told_although_nobody_here_has_said_anything_of_one():
    cluster = Several((0, 1), (2,))
    members = cluster.member(0), cluster.member(1)
    for leader in ((), (talk.proc(GROUP_LEADER_PROC, Proc("job", 2)),), ()):
        tags = [member.construct(procs=job(0, 1, 2)) for member in members]
        _, _, answer = cluster.asked()
        answer((attrs.GROUP_MEMBERSHIP(job(0, 1, 2)), *leader), None)
        results = [member.result(tag) for member, tag in zip(members, tags, strict=True)]
        assert [result["members"] for result in results] == [job(0, 1, 2)] * 2
        assert [tuple(result["group_info"]) for result in results] == [leader] * 2
        for member in members:
            member.destruct()
        cluster.asked()[2]((), None)
    assert not cluster.nodes[0].server.pending()


def test_answers_that_lead_to_questions_do_not_pile_up():
    done = threading.Event()
    session = ServerSession(lambda upcall: upcall.reply())
    left = 5000

    def answer(_result, error):
        nonlocal left
        assert error is None
        left -= 1
        if left:
            session.upcall(ClientFinalized(Proc("job", 0)), answer)
        else:
            done.set()

    try:
        session._reactor.call(lambda: session.upcall(ClientFinalized(Proc("job", 0)), answer))
        assert done.wait(60)
    finally:
        session.close()
