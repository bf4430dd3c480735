"""A host whose native server leaves groups to it gathers leaders, keeps a record and answers queries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pypmix.host.groups import was_broken
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.host.loop import Loop
from pypmix.host.nodegroups import NodeGroups
from pypmix.host.rank import CONNECTED, Rank
from pypmix.host.serving import ServingManager
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.ops import Connect, GroupUpcall, NotifyEvent, QueryInfo
from pypmix.standard.ops.events import number_in
from pypmix.standard.ops.hosting import GROUP_ORDER
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Query, Value

GROUP = "acme.cells"
LEFT, LOAD = -160, -4242
PROCS = tuple([Proc("demo", rank) for rank in range(4)])


class Asked:
    """An upcall, and what has become of it."""

    def __init__(self, op, requestor=None):
        self.op = op
        self.requestor = requestor
        self.result = None
        self.error = None
        self.done = False

    def reply(self, result=None):
        self.result = result
        self.done = True

    def fail(self, error):
        self.error = error
        self.done = True


class Server:
    """A native server, as far as crossings use one: it knows of no groups."""

    proc = Proc("rm", 0)

    def register_nspace(self, job, local=None):
        raise AssertionError("it knows the job")

    def groups(self):
        raise NotSupported("the library does not tell of its groups")


class Host:
    """A host of one node with a job of four ranks."""

    def __init__(self):
        self.loop = Loop()
        node = SimpleNamespace(number=0, hostname="node0", server=Server())
        self.nodes = (node,)
        ranks = [Rank(proc, f"rank {proc.rank}", node) for proc in PROCS]
        for rank in ranks:
            rank.pid, rank.alive, rank.stage = 1, True, CONNECTED
        job = JobLayout(
            nspace="demo",
            apps=(Application(("true",), np=4),),
            nodes=(NodeLayout("node0", (0, 1, 2, 3), 0, 0, 0),),
            session=1,
            tmpdir="",
            wdir="",
        )
        self.jobs = {"demo": SimpleNamespace(job=job, ranks=ranks)}
        self.crossings = NodeGroups(self)

    def ask(self, op, requestor=None):
        asked = Asked(op, requestor)
        assert self.crossings.answer(self.nodes[0], asked)
        return asked

    def turn(self, *asked):
        """Run until all are answered; where none is named, until nothing is left to do now."""
        if asked:
            self.loop.later(5, lambda: pytest.fail("nothing was answered"))
            self.loop.run(lambda: all(each.done for each in asked))
        else:
            over = []
            self.loop.later(0.05, lambda: over.append(True))
            self.loop.run(lambda: bool(over))

    def get(self, op):
        asked = self.ask(op, PROCS[0])
        self.turn(asked)
        if asked.error is not None:
            raise asked.error
        return asked.result


@pytest.fixture
def host():
    made = Host()
    yield made
    made.crossings.close()
    made.loop.close()


def members_in(infos):
    return next(info.value.data.items for info in infos if info.key == attrs.GROUP_MEMBERSHIP.key)


def query(key, name=GROUP):
    return QueryInfo((Query((key.key,), (attrs.GROUP_ID(name),)),))


def standing(host):
    (info,) = host.get(QueryInfo((Query((attrs.QUERY_GROUP_NAMES.key,), ()),)))
    return info.value.data.items


def leads(rank, number, *added):
    infos = [attrs.GROUP_BOOTSTRAP(number)]
    if added:
        infos.append(Info(attrs.GROUP_ADD_MEMBERS.key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, added))))
    return GroupUpcall(0, GROUP, (PROCS[rank],), tuple(infos))


def test_leaders_and_those_whom_they_add_come_one_by_one(host):
    first = host.ask(leads(2, 2, PROCS[0]))
    host.turn()
    assert not first.done
    second = host.ask(leads(1, 2))
    host.turn()
    assert not first.done and not second.done
    added = host.ask(GroupUpcall(0, GROUP))
    host.turn(first, second, added)
    assert [members_in(each.result) for each in (first, second, added)] == [(PROCS[1], PROCS[2], PROCS[0])] * 3


def test_who_is_in_a_group_until_it_is_destructed(host):
    host.get(GroupUpcall(0, GROUP, (Proc("demo", RANK_WILDCARD),)))
    assert standing(host) == (GROUP,)
    (info,) = host.get(query(attrs.QUERY_GROUP_MEMBERSHIP))
    assert info.value.data.items == PROCS
    with pytest.raises(PMIxError, match="no such group"):
        host.get(query(attrs.QUERY_GROUP_MEMBERSHIP, "acme.others"))
    host.get(GroupUpcall(1, GROUP, PROCS))
    assert standing(host) == ()


def test_a_group_whose_members_are_all_named_is_decided_at_once(host, monkeypatch):
    """No part of the exchange between nodes has a turn: the answer is there when the call returns."""
    monkeypatch.setattr("pypmix.host.crossings.Crossings", lambda *_: pytest.fail("one node needs no exchange"))
    order = Info(attrs.GROUP_FINAL_MEMBERSHIP_ORDER.key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, PROCS[::-1])))
    shared = Info(attrs.GROUP_ENDPT_DATA.key, Value(codes.BYTE_OBJECT, b"x"))
    ids = iter((7, 8))
    host.next_context_id = lambda: next(ids)
    numbered = host.ask(GroupUpcall(0, GROUP, PROCS, (attrs.GROUP_ASSIGN_CONTEXT_ID(True), order, shared)))
    plain = host.ask(GroupUpcall(0, "acme.others", PROCS[:2], (attrs.GROUP_ASSIGN_CONTEXT_ID(False),)))
    assert members_in(numbered.result) == PROCS[::-1] and shared in numbered.result
    assert attrs.GROUP_CONTEXT_ID(7) in numbered.result
    assert plain.result == (attrs.GROUP_MEMBERSHIP(PROCS[:2]),)
    assert host.ask(GroupUpcall(1, GROUP, PROCS)).result == ()
    assert host.ask(QueryInfo((Query((attrs.QUERY_GROUP_NAMES.key,), ()),))).result[0].value.data.items == (
        "acme.others",
    )


def test_a_server_that_reports_a_failure_ends_the_construct(host):
    late = attrs.LOCAL_COLLECTIVE_STATUS(statuses.ERR_TIMEOUT)
    with pytest.raises(PMIxError) as caught:
        host.get(GroupUpcall(0, GROUP, PROCS, (late,)))
    assert caught.value.code == statuses.ERR_TIMEOUT
    assert members_in(host.get(GroupUpcall(0, GROUP, PROCS, (late, attrs.GROUP_OPTIONAL(True))))) == PROCS
    with pytest.raises(PMIxError) as caught:
        host.get(GroupUpcall(1, GROUP, PROCS, (attrs.LOCAL_COLLECTIVE_STATUS(statuses.ERR_LOST_CONNECTION),)))
    assert caught.value.code == statuses.ERR_LOST_CONNECTION


def test_members_that_join_are_told_of_a_member_that_had_ended(host):
    told = []
    host.nodes[0].server.notify = told.append
    host.crossings.departed(host.nodes[0], PROCS[3])
    formed = attrs.GROUP_ID(GROUP), attrs.GROUP_MEMBERSHIP(PROCS)
    host.turn(host.ask(NotifyEvent(statuses.GROUP_CONSTRUCT_COMPLETE, 5, formed), PROCS[0]))
    host.loop.run_posted()
    (info,) = host.get(query(attrs.QUERY_GROUP_MEMBERSHIP))
    assert info.value.data.items == PROCS[:3]
    assert [event.code for event in told] == [statuses.TALK]
    assert Info("pypmix.grp.ended", Value(codes.DATA_ARRAY, DataArray(codes.PROC, (PROCS[3],)))) in told[0].infos


def test_procs_of_jobs_that_are_not_on_the_node(host):
    with pytest.raises(PMIxError) as caught:
        host.get(GroupUpcall(0, GROUP, (*PROCS, Proc("other", 0))))
    assert caught.value.code == statuses.ERR_NOT_FOUND
    host.get(GroupUpcall(0, GROUP, PROCS))
    host.crossings.deregister("demo")
    del host.jobs["demo"]
    assert standing(host) == ()
    with pytest.raises(PMIxError) as caught:
        host.get(GroupUpcall(0, GROUP, PROCS))
    assert caught.value.code == statuses.GROUP_CONSTRUCT_ABORT and caught.value.missing == set(PROCS)


def test_what_a_native_server_asks_of_a_group_is_answered_in_its_turn(host):
    answered = []
    manager = SimpleNamespace(loop=host.loop, answer=lambda _node, upcall: answered.append(upcall))
    broken = Asked(GroupUpcall(0, GROUP, PROCS, (attrs.LOCAL_COLLECTIVE_STATUS(-61),)))
    first, second = Asked(GroupUpcall(1, GROUP, PROCS)), Asked(GroupUpcall(0, GROUP, PROCS))
    for upcall in (broken, first, second):
        host.loop.post(lambda upcall=upcall: ServingManager._group(manager, host.nodes[0], upcall))
    host.loop.run_posted()
    assert answered == [first, second]
    host.turn()
    host.loop.later(1, lambda: answered.append("late"))
    host.loop.run(lambda: len(answered) > 2)
    assert answered[2] is broken


def test_who_leaves_or_ends_is_in_no_group(host):
    host.get(GroupUpcall(0, GROUP, PROCS))
    left = host.ask(NotifyEvent(LEFT, 5, (attrs.GROUP_ID(GROUP),)), PROCS[2])
    host.crossings.departed(host.nodes[0], PROCS[1])
    host.turn(left)
    (info,) = host.get(query(attrs.QUERY_GROUP_MEMBERSHIP))
    assert info.value.data.items == (PROCS[0], PROCS[3])


def test_a_construct_of_which_a_member_has_ended(host):
    host.crossings.departed(host.nodes[0], PROCS[1])
    with pytest.raises(PMIxError, match="have gone") as caught:
        host.get(GroupUpcall(0, GROUP, PROCS))
    assert caught.value.code == -165 and caught.value.missing == {PROCS[1]}
    broken = attrs.LOCAL_COLLECTIVE_STATUS(-61)
    told = GroupUpcall(0, GROUP, PROCS, (attrs.GROUP_FT_COLLECTIVE(True), broken))
    assert was_broken(told) and not was_broken(GroupUpcall(0, GROUP, PROCS))
    assert members_in(host.get(told)) == (PROCS[0], PROCS[2], PROCS[3])


@pytest.mark.parametrize(
    "op",
    [
        Connect(PROCS),
        NotifyEvent(LOAD, 5, ()),
        QueryInfo((Query((attrs.QUERY_NUM_PSETS.key,), ()),)),
        QueryInfo((Query((attrs.QUERY_NUM_GROUPS.key, attrs.QUERY_NUM_PSETS.key), ()),)),
    ],
)
def test_what_is_not_about_groups_stays_with_the_server(host, op):
    assert not host.crossings.answer(host.nodes[0], Asked(op))


@pytest.mark.parametrize("key", ["pmix.grp.add", GROUP_ORDER, attrs.GROUP_FINAL_MEMBERSHIP_ORDER.key])
@pytest.mark.parametrize(
    "value",
    [
        Value(codes.STRING, "x"),
        Value(codes.BOOL, True),
        Value(codes.UINT64, 2**64 - 1),
        Value(codes.UNDEF, None),
        Value(codes.DATA_ARRAY, DataArray(codes.STRING, ("y",))),
    ],
)
def test_directives_of_another_type_are_a_bad_param(host, key, value):
    op = GroupUpcall(0, "g", PROCS, (Info(key, value),))
    with pytest.raises(PMIxError) as caught:
        host.get(op)
    assert caught.value.code == statuses.ERR_BAD_PARAM
    assert key in str(caught.value)


@pytest.mark.parametrize("value", [Value(codes.STRING, "1"), Value(codes.UINT64, 2**32), Value(codes.BOOL, True)])
def test_a_number_of_another_type_is_a_bad_param(value):
    with pytest.raises(PMIxError) as caught:
        number_in((Info("pmix.loc.col.st", value),), "pmix.loc.col.st")
    assert caught.value.code == statuses.ERR_BAD_PARAM
    assert number_in((Info("a", Value(codes.STATUS, -25)),), "a") == -25
    assert number_in((), "a") is None
