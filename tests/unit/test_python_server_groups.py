"""Proves how servers construct and destruct groups and connect jobs, and what their hosts are told of it."""

from __future__ import annotations

import pytest

from lib.group_member import ABORT, ALL, MIDDLE, NEW, OLD, Member, context, group_info, note
from lib.server_cluster import Cluster
from lib.server_world import Client, World
from pypmix.standard import attrs, codes, ops, statuses
from pypmix.standard.errors import NotSupported, OperationTimeout, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops.hosting import GROUP_CANCEL, DirectModex, FenceUpcall, GroupUpcall
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc, Value
from pypmix.wire.additions import decode_late, greeting
from pypmix.wire.messages import Command

CONTEXT = attrs.GROUP_ASSIGN_CONTEXT_ID(True)


def plain(op):
    """Return what a server asks of its host, without what only a host of pypmix understands."""
    return op.replace(directives=tuple([info for info in op.directives if not info.key.startswith("pypmix.")]))


def members(cluster, *versions, **hello):
    return [Member(client(cluster, rank, version, **hello), version) for rank, version in enumerate(versions)]


def client(cluster, rank, version, **hello):
    if isinstance(cluster, Cluster):
        return cluster.client(rank, version=version, **hello)
    return Client(cluster, rank, version=version, **hello).connect()


REFUSAL = NotSupported("no groups")


class Alone(World):
    """One server whose host does not care for groups, or says what it is told to."""

    def __init__(self, reply=REFUSAL):
        self.reply = reply
        super().__init__(2)

    def upcall(self, op, answer, process=None):
        self.upcalls.append(op)
        if isinstance(op, GroupUpcall | ops.Connect):
            if isinstance(self.reply, BaseException):
                answer(None, self.reply)
            else:
                answer(self.reply, None)
        else:
            answer(None, None)


# On one server


@pytest.mark.parametrize("reply", [NotSupported("no groups"), None, ()], ids=["not supported", "none", "nothing"])
def test_a_server_needs_no_host_for_its_own_procs(reply):
    world = Alone(reply)
    zero, one = members(world, OLD, NEW)
    tags = zero.construct(CONTEXT, group_info(note("a"))), one.construct(group_info(note("b")))
    assert zero.result(tags[0])["context_id"] == 1
    result = one.result(tags[1])
    assert (result["members"], result["context_id"]) == ((Proc("job", 0), Proc("job", 1)), 1)
    told = [group_info(note(word), proc=Proc("job", rank)) for rank, word in enumerate("ab")]
    assert list(result["group_info"]) == told
    upcalls = [op for op in world.upcalls if isinstance(op, GroupUpcall)]
    assert [plain(op) for op in upcalls] == [GroupUpcall(0, "g", (ALL,), (CONTEXT, *told))]
    qualifier = Info("pmix.grp.ctxid", Value(codes.SIZE, 1), 8)
    tag = zero.client.get(1, "acme.note", qualifier)
    assert b"b" in zero.client.replies[tag]
    tags = zero.destruct(), one.destruct(members=result["members"])
    assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    assert [op.operation for op in world.upcalls if isinstance(op, GroupUpcall)] == [0, 1]
    assert not world.server.store.groups


def test_directives_come_once_and_what_members_give_of_themselves_from_each():
    world = Alone()
    zero, one = members(world, NEW, NEW)
    endpoints = [Info("pmix.grp.endpt", Value(codes.BYTE_OBJECT, data)) for data in (b"0", b"1")]
    off = attrs.GROUP_ASSIGN_CONTEXT_ID(False)
    zero.construct(off, attrs.TIMEOUT(9), endpoints[0], Info("acme.x", Value(codes.UINT32, 1)))
    one.construct(attrs.TIMEOUT(5), CONTEXT, endpoints[1], Info("pmix.pdata", Value(codes.BYTE_OBJECT, b"")))
    (op,) = [op for op in world.upcalls if isinstance(op, GroupUpcall)]
    # The limit that is over first counts.
    assert {CONTEXT, attrs.TIMEOUT(5), Info("acme.x", Value(codes.UINT32, 1))}.issubset(op.directives)
    assert [info.key for info in op.directives].count("pmix.timeout") == 1
    told = [group_info(endpoint, proc=Proc("job", rank)) for rank, endpoint in enumerate(endpoints)]
    assert list(plain(op).directives[3:]) == told


@pytest.mark.parametrize("error", [PMIxError("full", status=statuses.ERR_OUT_OF_RESOURCE), RuntimeError("bug")])
def test_a_host_may_refuse_a_group(error):
    world = Alone(error)
    zero, one = members(world, MIDDLE, NEW)
    tags = zero.construct(), one.construct()
    status = getattr(error, "code", statuses.ERROR)
    assert [zero.status(tags[0]), one.status(tags[1])] == [status] * 2
    assert not world.server.store.groups


@pytest.mark.parametrize(
    "nonsense",
    [
        7,
        ("x",),
        (attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, (Proc("job", 0),))),),
        (Info("pmix.grp.mbrs", Value(codes.STRING, "all")),),
        (Info("pmix.grp.ctxid", Value(codes.STRING, "7")),),
    ],
)
def test_nonsense_of_a_host_is_an_error_and_logged(nonsense):
    world = Alone(nonsense)
    zero, one = members(world, MIDDLE, MIDDLE)
    tags = zero.construct(), one.construct()
    assert [zero.status(tags[0]), one.status(tags[1])] == [statuses.ERROR] * 2
    assert len(world.logged) == 1
    assert not world.server.store.groups


def test_the_host_may_order_the_members_and_choose_the_context_id():
    world = Alone((attrs.GROUP_MEMBERSHIP(DataArray(codes.PROC, (Proc("job", 1), Proc("job", 0)))), context(77)))
    zero, one = members(world, MIDDLE, NEW)
    tags = zero.construct(CONTEXT), one.construct()
    for member, tag in zip((zero, one), tags, strict=True):
        result = member.result(tag)
        assert (result["members"], result["context_id"]) == ((Proc("job", 1), Proc("job", 0)), 77)
    world.reply = NotSupported("now alone")
    tag = zero.construct(CONTEXT, name="h", procs=(Proc("job", 0),))
    assert zero.result(tag)["context_id"] == 78


def test_a_name_is_taken_once():
    world = Alone()
    zero, one = members(world, MIDDLE, MIDDLE)
    zero.construct()
    one.construct()
    assert zero.status(zero.construct()) == statuses.ERR_EXISTS
    assert zero.status(zero.construct(name="job")) == statuses.ERR_EXISTS


# Across servers


def test_members_of_all_servers_agree():
    cluster = Cluster((0, 2), (1, 3))
    group = members(cluster, OLD, MIDDLE, NEW, NEW)
    tags = [member.construct(CONTEXT, group_info(note(str(rank)))) for rank, member in enumerate(group)]
    expected = tuple(Proc("job", rank) for rank in range(4))
    results = [member.result(tag) for member, tag in zip(group, tags, strict=True)]
    assert {result["context_id"] for result in results} == {100}
    assert all(result["members"] == expected for result in results[1:])
    told = [group_info(note(str(rank)), proc=proc) for rank, proc in enumerate(expected)]
    assert [list(result["group_info"]) for result in results[2:]] == [told] * 2
    for node, ranks in zip(cluster.nodes, ((0, 2), (1, 3)), strict=True):
        mine = [told[rank] for rank in ranks]
        assert [plain(op) for op in node.asked(GroupUpcall)] == [GroupUpcall(0, "g", (ALL,), (CONTEXT, *mine))]
    # Clients of older releases ask for what the others have said, and nobody is asked for it.
    qualifier = Info("pmix.grp.ctxid", Value(codes.SIZE, 100), 8)
    for member, rank in ((group[0], 3), (group[1], 0)):
        tag = member.client.get(rank, "acme.note", qualifier)
        assert str(rank).encode() in member.client.replies[tag]
    assert not any(node.asked(DirectModex) for node in cluster.nodes)


def test_a_group_is_an_address_in_fences_across_servers():
    cluster = Cluster((0, 2), (1, 3))
    group = members(cluster, MIDDLE, MIDDLE, MIDDLE, MIDDLE)
    some = tuple(Proc("job", rank) for rank in (0, 1, 2))
    for member in group[:3]:
        member.construct(procs=some)
    tags = [member.client.fence(Proc("g", RANK_WILDCARD), infos=(attrs.COLLECT_DATA(True),)) for member in group[:2]]
    # Who names the procs themselves means the same.
    tags.append(group[2].client.fence(*some))
    assert [member.status(tag) for member, tag in zip(group, tags, strict=False)] == [statuses.SUCCESS] * 3
    assert {op.procs for node in cluster.nodes for op in node.asked(FenceUpcall)} == {some}


def test_a_destruct_is_everybodys():
    cluster = Cluster((0,), (1,))
    group = members(cluster, MIDDLE, NEW)
    for member in group:
        member.construct()
    everyone = (Proc("job", 0), Proc("job", 1))
    tags = [group[0].destruct(members=everyone)]
    assert group[0].status(tags[0]) is None
    tags.append(group[1].destruct(members=everyone))
    assert [member.status(tag) for member, tag in zip(group, tags, strict=True)] == [statuses.SUCCESS] * 2
    assert not any(node.server.store.groups for node in cluster.nodes)
    assert group[0].status(group[0].destruct(members=everyone)) == statuses.ERR_NOT_FOUND


@pytest.mark.parametrize("layout", [((0, 1),), ((0,), (1,)), ((0, 1), (2,))], ids=["one", "two", "two with three"])
def test_a_destruct_that_is_called_again_fails_when_the_first_one_has_ended_the_group(layout):
    """A client that gives up a destruct which the host decides calls again; the others have no reason to."""
    cluster = Cluster(*layout)
    group = members(cluster, *[NEW] * sum(map(len, layout)))
    everyone = tuple([member.client.proc for member in group])
    for member in group:
        member.construct(procs=everyone)
    cluster.hold = True
    first = [member.destruct(members=everyone) for member in group]
    again = [group[-1].destruct(members=everyone) for _ in range(3)]
    assert [member.status(tag) for member, tag in zip(group, first, strict=True)] == [None] * len(group)
    cluster.release()
    assert [member.status(tag) for member, tag in zip(group, first, strict=True)] == [statuses.SUCCESS] * len(group)
    assert [group[-1].status(tag) for tag in again] == [statuses.ERR_NOT_FOUND] * 3
    assert not any(node.server.pending() for node in cluster.nodes)


def test_a_destruct_by_other_members_does_not_outlast_the_group():
    """A client gives up its destruct and calls again when it knows that a member has left; the others do not."""
    cluster = Cluster((0,), (1,), (2,))
    group = members(cluster, NEW, NEW, NEW)
    for member in group:
        member.construct()
    cluster.hold = True
    everyone = tuple([member.client.proc for member in group])
    first = [member.destruct(members=everyone) for member in group]
    # That another member has left is known to one server.
    cluster.nodes[0].server.groups.records._leave("g", Proc("job", 1))
    again = group[0].destruct(members=everyone)
    assert group[0].status(again) is None
    cluster.release()
    assert [member.status(tag) for member, tag in zip(group, first, strict=True)] == [statuses.SUCCESS] * 3
    assert group[0].status(again) == statuses.ERR_NOT_FOUND
    assert not any(node.server.pending() for node in cluster.nodes)
    given_up = [op for op in cluster.nodes[0].asked(GroupUpcall) if op.operation == GROUP_CANCEL]
    assert given_up == [GroupUpcall(GROUP_CANCEL, "g", (Proc("job", 0), Proc("job", 2)))]


def test_members_of_another_job_on_another_server():
    cluster = Cluster((0,), (1,))
    cluster.nodes[1].server.register_nspace(JobInfo("far", (attrs.JOB_SIZE(1),)))
    cluster.nodes[1].server.register_client(Proc("far", 0), 1000, 100)
    procs = (Proc("far", 0), Proc("job", 0))
    here = Member(cluster.client(0))
    there = Member(Client(cluster.nodes[1], 0, "far").connect())
    tags = here.construct(procs=procs), there.construct(procs=procs)
    assert [here.result(tags[0])["members"], there.result(tags[1])["members"]] == [procs, procs]
    tags = here.client.fence(Proc("g", RANK_WILDCARD)), there.client.fence(Proc("g", RANK_WILDCARD))
    assert [here.status(tags[0]), there.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]


def test_a_host_without_groups_cannot_make_one_across_servers():
    cluster = Cluster((0,), (1,))
    (zero,) = members(cluster, MIDDLE)
    cluster.nodes[0].upcall = lambda op, answer, process=None: answer(None, NotSupported("none"))
    assert zero.status(zero.construct()) == statuses.ERR_NOT_SUPPORTED
    assert not cluster.nodes[0].server.store.groups


# Who is lost, and who is late


class Patient(Cluster):
    """Keeps the answers of group upcalls for the test to give."""

    def upcall(self, node, op, answer):
        if isinstance(op, GroupUpcall) and op.operation != 3:
            node.upcalls[-1] = op
            self.held.append((op, answer))
        else:
            super().upcall(node, op, answer)


def test_a_member_lost_while_the_host_is_at_it_ends_the_construct():
    cluster = Patient((0, 1))
    zero, one = members(cluster, MIDDLE, NEW)
    tag = zero.construct()
    one.construct()
    one.client.die()
    assert zero.status(tag) == statuses.ERR_PARTIAL_SUCCESS
    assert [op.operation for op in cluster.nodes[0].asked(GroupUpcall)] == [0, 3]
    assert cluster.nodes[0].asked(GroupUpcall)[1] == GroupUpcall(3, "g", (ALL,))
    cluster.held[0][1]((), None)
    assert not cluster.nodes[0].server.store.groups
    assert not cluster.nodes[0].server.pending()


def test_a_member_lost_while_other_servers_are_asked_is_the_hosts_business():
    # It knows of the death as well, and whether the group stood before that: all servers must come to one end.
    cluster = Patient((0, 1), (2,))
    zero, one = members(cluster, MIDDLE, NEW)
    tag = zero.construct()
    one.construct()
    one.client.die()
    assert zero.status(tag) is None
    cluster.held[0][1](None, PMIxError("a member has ended", status=ABORT))
    assert zero.status(tag) == statuses.ERR_PARTIAL_SUCCESS
    assert not cluster.nodes[0].server.store.groups
    assert not cluster.nodes[0].server.pending()


def test_a_member_lost_before_ends_the_construct_on_all_servers():
    cluster = Cluster((0, 1), (2,))
    group = members(cluster, NEW, NEW, NEW)
    tags = [group[0].construct(), group[2].construct()]
    group[1].client.die()
    assert [group[0].status(tags[0]), group[2].status(tags[1])] == [ABORT, ABORT]
    assert not any(node.server.store.groups for node in cluster.nodes)


def test_the_last_member_that_goes_takes_the_construct_along():
    cluster = Patient((0,), (1,))
    (zero,) = members(cluster, MIDDLE)
    zero.construct()
    zero.client.die()
    assert [op.operation for op in cluster.nodes[0].asked(GroupUpcall)] == [0]
    cluster.held[0][1]((), None)
    assert not cluster.nodes[0].server.store.groups


@pytest.mark.parametrize("kind", ["construct", "destruct"])
def test_a_timeout_covers_the_host_who_is_told(kind):
    cluster = Patient((0,), (1,))
    (zero,) = members(cluster, MIDDLE)
    operation = 0
    if kind == "destruct":
        cluster.nodes[0].server.store.groups["g"] = (Proc("job", 0), Proc("job", 1))
        operation = 1
    tag = getattr(zero, kind)(attrs.TIMEOUT(5))
    cluster.advance(6)
    assert zero.status(tag) == statuses.ERR_TIMEOUT
    assert [op.operation for op in cluster.nodes[0].asked(GroupUpcall)] == [operation, 3]
    cluster.held[0][1]((), None)
    assert ("g" in cluster.nodes[0].server.store.groups) == (kind == "destruct")


def test_a_group_ends_with_its_last_member_here():
    cluster = Cluster((0, 1), (2,))
    group = members(cluster, MIDDLE, MIDDLE, MIDDLE)
    for member in group:
        member.construct()
    group[0].client.die()
    assert "g" in cluster.nodes[0].server.store.groups
    group[1].client.die()
    assert "g" not in cluster.nodes[0].server.store.groups
    assert "g" in cluster.nodes[1].server.store.groups


# Connect


def connect(client, *procs, infos=(), command=Command.CONNECTNB):
    return client.ask(command, procs=procs, infos=infos)


def test_jobs_of_different_servers_connect():
    cluster = Cluster((0,), (1,))
    far = JobInfo("far", (attrs.JOB_SIZE(1),))
    cluster.nodes[1].server.register_nspace(far)
    cluster.nodes[1].server.register_client(Proc("far", 0), 1000, 100)
    zero, there = cluster.client(0), Client(cluster.nodes[1], 0, "far").connect()
    procs = Proc("far", 0), Proc("job", 0)
    cluster.hold = True
    tags = connect(zero, *procs), connect(there, *reversed(procs))
    assert zero.status(tags[0]) is None
    # The host tells this server of the other job before it answers.
    cluster.nodes[0].server.register_nspace(far, ())
    cluster.release()
    assert [zero.status(tags[0]), there.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]
    assert b"far" in zero.replies[tags[0]]
    assert cluster.nodes[0].asked(ops.Connect) == [ops.Connect(procs, ())]
    tags = [connect(each, *procs, command=Command.DISCONNECTNB) for each in (zero, there)]
    assert [zero.status(tags[0]), there.status(tags[1])] == [statuses.SUCCESS, statuses.SUCCESS]


def test_a_connect_to_a_job_that_nobody_knows_fails():
    world = Alone(None)
    zero = Client(world, 0).connect()
    assert zero.status(connect(zero, Proc("job", 0), Proc("nowhere", RANK_WILDCARD))) == statuses.ERR_NOT_FOUND


def test_the_timeout_of_a_connect_covers_the_host():
    world = World(answer=[])
    client = Client(world, 0)
    client.connect()
    world.answer.pop()(None, None)
    tag = connect(client, Proc("job", 0), infos=(attrs.TIMEOUT(3),))
    world.advance(4)
    assert client.status(tag) == statuses.ERR_TIMEOUT
    world.answer.pop()(None, None)
    assert not world.server.pending()


def test_a_host_names_because_of_whom_a_connect_failed():
    world = Alone(OperationTimeout("late", missing=(Proc("far", 3),)))
    zero = Client(world, 0, infos=(greeting("1"),)).connect()
    tag = connect(zero, Proc("job", 0))
    assert decode_late(zero.replies[tag], 1) == (Proc("far", 3),)
