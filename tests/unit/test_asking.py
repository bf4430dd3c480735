"""Proves what a server asks its host on behalf of clients, what it answers by itself, and that no host can break it."""

from __future__ import annotations

import pytest

from lib.recorded import messages
from lib.server_world import Client, World
from pypmix.engine.python.serverside import asking
from pypmix.standard import attrs, codes, ops, statuses
from pypmix.standard.errors import NotSupported, PartialSuccess, PermissionDenied
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.limits import Limits
from pypmix.standard.structures import Cpuset, Topology
from pypmix.standard.types import DataArray, DeviceDistance, Info, Proc, ProcInfo, Query, Value
from pypmix.standard.values import to_python
from pypmix.wire.frames import TAG_HEARTBEAT, frame
from pypmix.wire.messages import Command, reply_layout, request_layout

RELEASE = (5, 0, 11)
INFO = Info("acme.what", Value(codes.STRING, "x"))
OTHER = Info("acme.else", Value(codes.UINT32, 7))
DISTANCE = DeviceDistance("uuid", "eth0", 4, 1, 2)
NO_NSPACE = -44

QUESTIONS = [
    (
        Command.LOG,
        {"timestamp": 17, "data": (INFO,), "directives": (OTHER,)},
        ops.Log((INFO,), (OTHER,), 17),
        None,
        {},
    ),
    (
        Command.ALLOC,
        {"directive": 1, "infos": (INFO,)},
        ops.AllocationRequest(1, (INFO,)),
        (OTHER,),
        {"infos": (OTHER,)},
    ),
    (
        Command.JOB_CONTROL,
        {"procs": (Proc("job", 1),), "infos": (INFO,)},
        ops.JobControl((Proc("job", 1),), (INFO,)),
        (OTHER, INFO),
        {"infos": (OTHER, INFO)},
    ),
    (Command.JOB_CONTROL, {"procs": (), "infos": ()}, ops.JobControl(), None, {"infos": ()}),
    (
        Command.MONITOR,
        {"monitor": INFO, "error": -300, "infos": (OTHER,)},
        ops.ProcessMonitor(INFO, -300, (OTHER,)),
        (),
        {"infos": ()},
    ),
    (
        Command.GET_CREDENTIAL,
        {"infos": (INFO,)},
        ops.GetCredential((INFO,)),
        ops.Credential(b"secret", (OTHER,)),
        {"credential": b"secret", "infos": (OTHER,)},
    ),
    (
        Command.VALIDATE_CRED,
        {"credential": b"secret", "infos": (INFO,)},
        ops.ValidateCredential(b"secret", (INFO,)),
        [OTHER],
        {"infos": (OTHER,)},
    ),
    (Command.FABRIC_REGISTER, {"infos": (INFO,)}, ops.FabricRegister((INFO,)), (OTHER,), {"infos": (OTHER,)}),
    (Command.FABRIC_UPDATE, {"index": 3}, ops.FabricUpdate(3), (OTHER,), {"infos": (OTHER,)}),
    (
        Command.COMPUTE_DEVICE_DISTANCES,
        {"topology": Topology(None), "cpuset": Cpuset("0-1"), "infos": (INFO,)},
        ops.ComputeDistances(Topology(None), Cpuset("0-1"), (INFO,)),
        (DISTANCE,),
        {"distances": (DISTANCE,)},
    ),
    (
        Command.QUERY,
        {"queries": (Query(("acme.what",)),)},
        ops.QueryInfo((Query(("acme.what",)),)),
        (INFO,),
        {"infos": (INFO,)},
    ),
]
NAMES = [type(op).__name__ for _, _, op, _, _ in QUESTIONS]


def text(value):
    return Value(codes.STRING, value)


def job(**changes):
    """Return the job info of five ranks on three nodes."""
    nodes = [("n0", 0, "0,1"), ("n1", 1, "2,3"), ("n2", 2, "4")]
    placed = ["n0", "n0", "n1", "n1", "n2"]
    return {
        "nodes": tuple(
            (
                attrs.HOSTNAME(name),
                attrs.NODEID(number),
                attrs.LOCAL_PEERS(ranks),
                attrs.HOSTNAME_ALIASES(f"{name}.x,lo"),
            )
            for name, number, ranks in nodes
        ),
        "procs": tuple((rank, (attrs.HOSTNAME(name), attrs.LOCAL_RANK(rank % 2))) for rank, name in enumerate(placed)),
        "apps": ((attrs.APPNUM(0), attrs.APP_SIZE(5)),),
        **changes,
    }


@pytest.fixture
def world():
    """A world whose host holds its answers until the test gives them."""
    made = World(size=0)
    made.server.deregister_nspace("job")
    made.add("job", 5, job=(attrs.JOB_NUM_APPS(1),), **job())
    return made


@pytest.fixture(params=[1, 2], ids=["plain", "described"])
def client(world, request):
    made = Client(world, 0, buffer_type=request.param).connect()
    world.upcalls.clear()
    world.askers.clear()
    world.answer = []
    return made


def reply(client, tag, command, release=RELEASE):
    client.read()
    return reply_layout(command, release).decode(client.replies[tag], client.buffer_type, release)


@pytest.mark.parametrize(("command", "fields", "op", "result", "answer"), QUESTIONS, ids=NAMES)
def test_a_request_is_an_upcall_and_its_result_the_reply(world, client, command, fields, op, result, answer):
    tag = client.ask(command, **fields)
    assert world.upcalls == [op]
    assert [(asker.proc, asker.uid) for asker in world.askers] == [(client.proc, 1000)]
    assert client.status(tag) is None
    ((operation, arrived),) = [(entry.operation, entry.arrived) for entry in world.server.pending()]
    assert (operation, arrived) == (op.name, (client.proc,))
    world.answer.pop()(result, None)
    assert reply(client, tag, command) == {**answer, "status": statuses.SUCCESS}
    assert not world.server.pending()


@pytest.mark.parametrize(("command", "fields", "op", "result", "answer"), QUESTIONS, ids=NAMES)
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotSupported("no"), statuses.ERR_NOT_SUPPORTED),
        (PermissionDenied("no"), -23),
        (PartialSuccess("some"), statuses.ERR_PARTIAL_SUCCESS),
        (KeyError("a fault"), statuses.ERROR),
    ],
    ids=["not supported", "denied", "partial", "fault"],
)
def test_what_the_host_refuses(world, client, command, fields, op, result, answer, error, status):
    tag = client.ask(command, **fields)
    world.answer.pop()(None, error)
    assert client.status(tag) == status
    assert client.link.owner.open


@pytest.mark.parametrize(("command", "fields", "op", "result", "answer"), QUESTIONS, ids=NAMES)
@pytest.mark.parametrize(
    "nonsense",
    [
        7,
        "text",
        b"bytes",
        object(),
        (1, 2),
        [None],
        {"a": 1},
        (Info.unchecked("acme.what", Value.unchecked(codes.UINT32, "no number"), 0),),
        (Info.unchecked("acme.what", 5, 0),),
        (Info.unchecked(5, INFO.value, 0),),
        (Info.unchecked("acme.what", Value.unchecked(4711, 1), 0),),
        ops.Credential("text", ()),
        ops.Credential(b"", (5,)),
        ops.Credential(b"", None),
        (DeviceDistance(5, None, "x", -1, 2**40),),
    ],
    ids=lambda nonsense: type(nonsense).__name__,
)
def test_a_host_that_answers_nonsense(world, client, command, fields, op, result, answer, nonsense):
    harmless = (command == Command.LOG) or (command == Command.GET_CREDENTIAL and nonsense == ops.Credential(b"", None))
    tag = client.ask(command, **fields)
    world.answer.pop()(nonsense, None)
    unasked = command == Command.QUERY and nonsense == (Info.unchecked(5, INFO.value, 0),)
    assert client.status(tag) == (
        statuses.SUCCESS if harmless else statuses.ERR_NOT_FOUND if unasked else statuses.ERROR
    )
    assert bool([line for line in world.logged if op.name in line and "job:0" in line]) is not (harmless or unasked)
    world.answer = True
    assert client.status(client.ask(Command.LOG, timestamp=0, data=(INFO,), directives=())) == statuses.SUCCESS


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        (Command.LOG, {"timestamp": 0, "data": (), "directives": ()}),
        (Command.QUERY, {"queries": ()}),
        (Command.QUERY, {"queries": (Query(()),)}),
        (Command.QUERY, {"queries": (Query(("k" * 600,)),)}),
    ],
)
def test_what_makes_no_sense_does_not_reach_the_host(world, client, command, fields):
    assert client.status(client.ask(command, **fields)) == statuses.ERR_BAD_PARAM
    assert not world.upcalls


def test_an_answer_that_comes_twice_or_too_late_harms_nobody(world, client):
    tag = client.ask(Command.GET_CREDENTIAL, infos=())
    client.ask(Command.LOG, timestamp=0, data=(INFO,), directives=())
    first, second = world.answer
    assert len(world.server.pending()) == 2
    client.die()
    assert not world.server.pending()
    first(ops.Credential(b"x"), None)
    second(None, None)
    assert not world.logged
    assert tag not in client.replies


def test_what_the_host_has_before_it_is_bounded(world, client):
    world.server.limits = Limits(requests=3)
    tags = [client.ask(Command.LOG, timestamp=0, data=(INFO,), directives=()) for _ in range(4)]
    assert client.status(tags[3]) == statuses.ERR_OUT_OF_RESOURCE
    for answer in world.answer:
        answer(None, None)
    assert [client.status(tag) for tag in tags] == [statuses.SUCCESS] * 3 + [statuses.ERR_OUT_OF_RESOURCE]
    again = client.ask(Command.LOG, timestamp=0, data=(INFO,), directives=())
    world.answer.pop()(None, None)
    assert client.status(again) == statuses.SUCCESS


def test_gets_and_requests_of_the_host_have_one_limit(world, client):
    world.server.limits = Limits(requests=2)
    get = client.get(1, "k")
    client.ask(Command.LOG, timestamp=0, data=(INFO,), directives=())
    refused = client.get(1, "other")
    assert client.status(refused) == statuses.ERR_OUT_OF_RESOURCE and client.status(get) is None
    world.answer.pop()(None, None)
    assert client.status(client.get(1, "other")) is None
    assert client.status(client.ask(Command.LOG, timestamp=0, data=(INFO,), directives=())) == (
        statuses.ERR_OUT_OF_RESOURCE
    )


def test_a_heartbeat_is_an_upcall_and_has_no_reply(world, client):
    client.link.owner.received(frame(0, TAG_HEARTBEAT, b""))
    world.answer.pop()(None, None)
    client.link.owner.received(frame(0, TAG_HEARTBEAT, b"\xff\xff"))
    client.read()
    assert world.upcalls == [ops.Heartbeat()] * 2
    assert {asker.proc for asker in world.askers} == {client.proc}
    assert not client.replies
    assert not client.pushed
    world.answer.pop()(None, NotSupported("no"))
    client.read()
    assert not client.replies


def test_heartbeats_do_not_pile_up_before_a_host(world, client):
    for _ in range(1000):
        client.link.owner.received(frame(0, TAG_HEARTBEAT, b""))
    assert world.upcalls == [ops.Heartbeat()]
    # One that is never answered does not keep the later ones back.
    world.advance(10)
    client.link.owner.received(frame(0, TAG_HEARTBEAT, b""))
    assert len(world.upcalls) == 2


def test_who_has_finalized_has_no_heartbeat(world, client):
    world.answer = True
    client.ask(Command.FINALIZE)
    world.upcalls.clear()
    client.link.owner.received(frame(0, TAG_HEARTBEAT, b""))
    assert not world.upcalls


# Queries.


def ask(world, client, *queries, result=None, error=None, release=RELEASE):
    tag = client.ask(Command.QUERY, queries=queries)
    world.answer.pop()(result, error)
    return reply(client, tag, Command.QUERY, release)


def query(*keys, **qualifiers):
    return Query(tuple(map(str, keys)), tuple(getattr(attrs, name)(value) for name, value in qualifiers.items()))


def value(world, client, key, error=None, **qualifiers):
    """Return what the server answers where the host has no answer."""
    fields = ask(world, client, query(key, **qualifiers), error=error or NotSupported("no"))
    return to_python(fields["infos"][0].value) if fields["infos"] else fields["status"]


def test_the_host_is_asked_first(world, client):
    fields = ask(world, client, query(attrs.QUERY_NAMESPACES), result=(attrs.QUERY_NAMESPACES("host's"),))
    assert fields == {"status": statuses.SUCCESS, "infos": (attrs.QUERY_NAMESPACES("host's"),)}


def test_what_the_host_leaves_out_is_added(world, client):
    world.add("other", 1)
    names = query(attrs.QUERY_NAMESPACES, "acme.what", attrs.JOB_SIZE)
    fields = ask(world, client, names, result=(INFO,))
    assert fields == {
        "status": statuses.SUCCESS,
        "infos": (attrs.QUERY_NAMESPACES("job,other"), INFO, attrs.JOB_SIZE(5)),
    }


def test_each_query_gets_its_own_answer(world, client):
    """The same key is asked for under different qualifiers, and the host answers in the order of the questions."""
    queries = query("acme.what", RANK=0), query("acme.what", RANK=1)
    first, second = (Info("acme.what", text(name)) for name in "ab")
    assert ask(world, client, *queries, result=(first, second))["infos"] == (first, second)


def test_a_query_is_bounded(world, client):
    many = [Query(tuple(f"acme.{n}" for n in range(each))) for each in (asking.MAX_KEYS, 1)]
    assert client.status(client.ask(Command.QUERY, queries=many)) == statuses.ERR_OUT_OF_RESOURCE
    assert not world.upcalls
    assert ask(world, client, many[0], result=())["status"] == statuses.ERR_NOT_FOUND


def test_a_host_may_pass_on_one_of_several_questions(world, client):
    """An undefined value stands for the question that it leaves to the server."""
    queries = [Query(("pmix.qry.ns",)), Query(("pmix.qry.ns",), (attrs.QUERY_REFRESH_CACHE(True),))]
    told = Info("pmix.qry.ns", Value(codes.UNDEF, None)), attrs.QUERY_NAMESPACES("host's")
    found = ask(world, client, *queries, result=told)["infos"]
    assert found == (attrs.QUERY_NAMESPACES("job"), attrs.QUERY_NAMESPACES("host's"))


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("4.2.2", statuses.SUCCESS),
        ("5.0.6", statuses.SUCCESS),
        ("5.0.7", statuses.ERR_PARTIAL_SUCCESS),
        ("7.0.0", statuses.ERR_PARTIAL_SUCCESS),
    ],
)
def test_a_partial_answer_is_told_so_that_the_client_takes_it(world, version, status):
    client = Client(world, 1, version=version).connect()
    world.answer = []
    fields = ask(world, client, query("acme.what", "acme.gone"), result=(INFO,))
    assert fields == {"status": status, "infos": (INFO,)}


@pytest.mark.parametrize(
    ("error", "status"),
    [(None, statuses.ERR_NOT_FOUND), (NotSupported("no"), statuses.ERR_NOT_SUPPORTED), (PermissionDenied("no"), -23)],
)
def test_a_query_that_nobody_answers(world, client, error, status):
    assert ask(world, client, query("acme.what", "pmix.qry.nothing"), error=error) == {"status": status, "infos": ()}


def test_own_answers(world, client):
    world.add("other", 2)
    assert value(world, client, attrs.QUERY_NAMESPACES) == "job,other"
    first, second = value(world, client, attrs.QUERY_NAMESPACE_INFO)
    assert [info.key for info in first.value.data.items] == ["pmix.nspace", "pmix.job.size", "pmix.job.napps"]
    assert second.value.data.items == (Info("pmix.nspace", text("other")), attrs.JOB_SIZE(2))
    (only,) = value(world, client, attrs.QUERY_NAMESPACE_INFO, NSPACE="other")
    assert only == second
    assert value(world, client, attrs.QUERY_NAMESPACE_INFO, NSPACE="gone") == statuses.ERR_NOT_SUPPORTED


def test_tables_of_procs(world, client):
    world.answer = True
    leaving = Client(world, 3).connect()
    leaving.ask(Command.FINALIZE)
    leaving.die()
    world.answer = []
    placed = ["n0", "n0", "n1", "n1", "n2"]
    table = [
        ProcInfo(Proc("job", rank), node, None, 0, state)
        for rank, (node, state) in enumerate(zip(placed, [6, 1, 1, 20, 1], strict=True))
    ]
    assert value(world, client, attrs.QUERY_PROC_TABLE) == table
    assert value(world, client, attrs.QUERY_PROC_TABLE, NSPACE="job") == table
    assert value(world, client, attrs.QUERY_PROC_TABLE, NSPACE="gone") == statuses.ERR_NOT_SUPPORTED
    world.server.register_nspace(JobInfo("far", (attrs.JOB_SIZE(2),)))
    world.server.register_client(Proc("far", 1), 1000, 100)
    assert [row.proc.rank for row in value(world, client, attrs.QUERY_PROC_TABLE, NSPACE="far")] == [0, 1]
    assert [row.proc.rank for row in value(world, client, attrs.QUERY_LOCAL_PROC_TABLE, NSPACE="far")] == [1]


def test_groups(world, client):
    assert value(world, client, attrs.QUERY_NUM_GROUPS) == 0
    members = Proc("job", 1), Proc("job", 0)
    world.server.store.groups["cells"] = members
    assert value(world, client, attrs.QUERY_NUM_GROUPS) == 1
    assert value(world, client, attrs.QUERY_GROUP_NAMES) == ["cells"]
    # The members of a group of the caller's own no host knows better.
    tag = client.ask(Command.QUERY, queries=(query(attrs.QUERY_GROUP_MEMBERSHIP, GROUP_ID="cells"),))
    assert not world.answer
    assert to_python(reply(client, tag, Command.QUERY, RELEASE)["infos"][0].value) == list(members)
    world.server.store.groups["others"] = (Proc("job", 4),)
    assert value(world, client, attrs.QUERY_GROUP_MEMBERSHIP, GROUP_ID="others") == [Proc("job", 4)]
    for qualifiers in ({"GROUP_ID": "gone"}, {}):
        assert value(world, client, attrs.QUERY_GROUP_MEMBERSHIP, **qualifiers) == statuses.ERR_NOT_SUPPORTED


def test_what_is_registered(world, client):
    assert value(world, client, attrs.JOB_SIZE) == 5
    assert value(world, client, attrs.JOB_SIZE, PROCID=Proc("job", 0xFFFFFFFE)) == 5
    assert value(world, client, attrs.APP_SIZE) == 5
    assert value(world, client, attrs.LOCAL_RANK, RANK=3) == 1
    assert value(world, client, attrs.HOSTNAME, PROCID=Proc("job", 4)) == "n2"
    assert value(world, client, attrs.LOCAL_PEERS) == "0,1"
    assert value(world, client, attrs.LOCAL_PEERS, HOSTNAME="n1") == "2,3"
    assert value(world, client, attrs.LOCAL_PEERS, HOSTNAME="n2.x") == "4"
    assert value(world, client, attrs.LOCAL_PEERS, NODEID=2) == "4"
    assert value(world, client, attrs.LOCAL_PEERS, HOSTNAME="gone") == statuses.ERR_NOT_SUPPORTED
    assert value(world, client, attrs.LOCAL_RANK, RANK=77) == statuses.ERR_NOT_SUPPORTED
    assert value(world, client, attrs.JOB_SIZE, NSPACE="gone") == statuses.ERR_NOT_SUPPORTED


def test_both_tell_of_what_they_support(world, client):
    keys = ask(
        world, client, query(attrs.QUERY_SUPPORTED_KEYS), result=(attrs.QUERY_SUPPORTED_KEYS("acme.what,pmix.qry.ns"),)
    )
    names = keys["infos"][0].value.data.split(",")
    assert names[:2] == ["acme.what", "pmix.qry.ns"]
    assert len(names) == len(set(names)) > 5
    theirs = DataArray(codes.INFO, (Info(str(attrs.HOST_FUNCTIONS), text("PMIx_Spawn")),))
    support = Info(str(attrs.QUERY_ATTRIBUTE_SUPPORT), Value(codes.DATA_ARRAY, theirs))
    told = ask(world, client, query(attrs.QUERY_ATTRIBUTE_SUPPORT), result=(support,))["infos"][0].value.data.items
    found = {info.key: info.value.data for info in told}
    assert found["pmix.host.fns"] == "PMIx_Spawn"
    assert "PMIx_Query_info" in found["pmix.srvr.fns"].split(",")
    assert ("PMIX_COLLECT_DATA", "pmix.collect") in [(attr.name, attr.key) for attr in found["PMIx_Fence"].items]


def test_odd_qualifiers_are_no_matter(world, client):
    odd = tuple(
        Info(key, Value(kind, data))
        for key, kind, data in [
            ("pmix.nspace", codes.UINT32, 5),
            ("pmix.rank", codes.STRING, "x"),
            ("pmix.procid", codes.STRING, "x"),
            ("pmix.hname", codes.UINT32, 1),
            ("pmix.nodeid", codes.STRING, "n"),
            ("pmix.appnum", codes.STRING, "n"),
            ("pmix.srvr.attrs", codes.UINT32, 7),
        ]
    )
    for key in ("pmix.qry.ns", "pmix.qry.ptable", "pmix.qry.peers", "pmix.qry.attrs", "pmix.job.size", "pmix.lpeers"):
        fields = ask(world, client, Query((key,), odd), error=NotSupported("no"))
        assert fields["status"] in (statuses.SUCCESS, statuses.ERR_NOT_SUPPORTED)
    assert not world.logged


# Peers and nodes.


@pytest.mark.parametrize(
    ("node", "nspace", "expected"),
    [
        (None, "job", [("job", 0), ("job", 1)]),
        ("", "job", [("job", 0), ("job", 1)]),
        ("n1", "job", [("job", 2), ("job", 3)]),
        ("n2.x", "job", [("job", 4)]),
        ("n2", None, [("job", 4), ("other", 0)]),
        ("n2", "", [("job", 4), ("other", 0)]),
        ("gone", "job", []),
        (None, "gone", NO_NSPACE),
    ],
)
def test_peers(world, client, node, nspace, expected):
    world.add("other", 1, procs=((0, (attrs.HOSTNAME("n2"),)),))
    tag = client.ask(Command.RESOLVE_PEERS, node=node, nspace=nspace)
    fields = reply(client, tag, Command.RESOLVE_PEERS)
    found = expected if isinstance(expected, list) else []
    assert [tuple(proc) for proc in fields["procs"]] == found
    assert fields["status"] == (statuses.SUCCESS if isinstance(expected, list) else expected)
    assert not world.upcalls
    qualifiers = {name: given for name, given in (("HOSTNAME", node), ("NSPACE", nspace)) if given}
    told = value(world, client, attrs.QUERY_RESOLVE_PEERS, **qualifiers)
    assert told == (found if isinstance(expected, list) else statuses.ERR_NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("nspace", "expected"),
    [("job", "n0,n1,n2"), (None, "n0,n1,n2,n7"), ("", "n0,n1,n2,n7"), ("other", "n7"), ("gone", NO_NSPACE)],
)
def test_nodes(world, client, nspace, expected):
    world.add("other", 1, nodes=((attrs.HOSTNAME("n7"), attrs.NODEID(7)),), procs=((0, (attrs.NODEID(7),)),))
    tag = client.ask(Command.RESOLVE_NODE, nspace=nspace)
    fields = reply(client, tag, Command.RESOLVE_NODE)
    if isinstance(expected, str):
        assert fields == {"status": statuses.SUCCESS, "nodes": expected}
        if nspace:
            assert value(world, client, attrs.QUERY_RESOLVE_NODE, NSPACE=nspace) == expected
    else:
        assert fields["status"] == expected


# What natives send and get.

ASKED = {15, 16, 17, 18, 19, 20, 21}


def exchanges():
    """Return recorded requests with their command, release and bytes."""
    found = {}
    for message in messages():
        if message.command in ASKED and message.layout.command is not None:
            name = message.layout.name.split()[0]
            found.setdefault(f"{name} {'.'.join(map(str, message.release))}", message)
    return found


RECORDED = exchanges()


def test_every_command_was_recorded():
    assert {message.command for message in RECORDED.values()} == ASKED


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_requests_are_upcalls(world, name):
    message = RECORDED[name]
    version = ".".join(map(str, message.release))
    client = Client(world, 0, version=version).connect()
    world.upcalls.clear()
    world.answer = []
    tag = client.send(message.data)
    (op,) = world.upcalls
    assert op.name.startswith(
        {15: "query", 16: "log", 17: "alloc", 18: "job", 19: "process", 20: "get", 21: "validate"}[message.command]
    )
    result = {16: None, 20: ops.Credential(b"c", (INFO,)), 15: (attrs.QUERY_NAMESPACES("x"),)}.get(
        message.command, (INFO,)
    )
    world.answer.pop()(result, None)
    layout = reply_layout(message.command, message.release)
    expected = {16: {}, 20: {"credential": b"c", "infos": (INFO,)}, 15: {"infos": result}}.get(
        message.command, {"infos": (INFO,)}
    )
    client.read()
    assert client.replies[tag] == layout.encode(1, message.release, status=statuses.SUCCESS, **expected)


def test_the_recorded_replies_of_natives_are_what_this_server_sends(world):
    """Where a recorded answer can be given by a host, the bytes of the reply are those of the native server."""
    checked = set()
    for message in messages():
        if message.command not in ASKED or message.layout.command is not None or message.command == Command.JOB_CONTROL:
            continue
        fields = message.layout.decode(message.data, 1, message.release)
        if fields["status"] != statuses.SUCCESS:
            continue
        client = Client(world, 0, version=".".join(map(str, message.release))).connect()
        world.answer = []
        request = RECORDED[next(name for name in RECORDED if RECORDED[name].command == message.command)]
        layout = request_layout(message.command, message.release)
        values = request.layout.decode(request.data, 1, request.release)
        if message.command == Command.QUERY:
            values = {"queries": (Query(tuple([info.key for info in fields["infos"]])),)}
        tag = client.send(layout.encode(1, message.release, **values))
        result = (
            ops.Credential(fields["credential"], fields["infos"]) if "credential" in fields else fields.get("infos")
        )
        world.answer.pop()(result, None)
        client.read()
        assert client.replies[tag] == message.data, message.layout.name
        checked.add(message.command)
        world.answer = True
        client.ask(Command.FINALIZE)
        client.die()
    assert checked >= {Command.QUERY, Command.LOG, Command.GET_CREDENTIAL, Command.ALLOC}
