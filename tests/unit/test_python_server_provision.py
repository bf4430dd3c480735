"""Proves what a server takes in from its host besides jobs: process sets, resources, variables, inventories, values."""

from __future__ import annotations

import os

import pytest

from lib.server_world import Client, World, text
from pypmix.engine.python import provision
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.serving import ServerOptions
from pypmix.standard import attrs, codes, ops, statuses
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.structures import ResourceUnit
from pypmix.standard.types import RANK_UNDEF, RANK_WILDCARD, DataArray, Envar, Info, Proc, Query, Value
from pypmix.standard.values import to_python
from pypmix.wire.frames import TAG_NOTIFY
from pypmix.wire.jobinfo import decode_jobinfo
from pypmix.wire.messages import EVENT, Command, reply_layout, request_layout

RELEASE = (5, 0, 11)
NEW = (7, 0, 0)
DEFINE, DELETE = -55, -56
ZERO, ONE = Proc("job", 0), Proc("job", 1)


@pytest.fixture
def world():
    return World()


def query(client, key, *qualifiers):
    tag = client.ask(Command.QUERY, queries=(Query((key,), qualifiers),))
    reply = reply_layout(Command.QUERY, RELEASE).decode(client.replies[tag], 1, RELEASE)
    return to_python(reply["infos"][0].value) if reply["status"] == statuses.SUCCESS else reply["status"]


def events(client):
    client.read()
    found = [EVENT.decode(payload, 1, RELEASE) for tag, payload in client.pushed if tag == TAG_NOTIFY]
    client.pushed.clear()
    return [(event["code"], {info.key: to_python(info.value) for info in event["infos"]}) for event in found]


# Process sets


def psets(world):
    return world.server.psets


def test_clients_hear_of_process_sets_early_or_late(world):
    early, late = world.clients(0, 1)
    early.ask(Command.REGEVENTS, codes=[DEFINE, DELETE], infos=())
    psets(world).define("ocean", (ZERO, ONE))
    (event,) = events(early)
    assert event == (DEFINE, {"pmix.evnondef": True, "pmix.pset.nm": "ocean", "pmix.pset.mems": [ZERO, ONE]})
    late.ask(Command.REGEVENTS, codes=[DEFINE, DELETE], infos=())
    assert events(late) == [event]
    psets(world).delete("ocean")
    assert events(early) == [(DELETE, {"pmix.evnondef": True, "pmix.pset.nm": "ocean"})]


def test_process_sets_are_told_to_who_asks(world):
    client, *_ = world.clients(0)
    psets(world).define("ocean", (ZERO, ONE))
    psets(world).define("all", (Proc("job", RANK_WILDCARD),))
    assert query(client, "pmix.qry.psetnum") == 2
    assert query(client, "pmix.qry.psets") == "ocean,all"
    assert query(client, "pmix.qry.pmems", attrs.PSET_NAME("ocean")) == [ZERO, ONE]
    assert query(client, "pmix.qry.pmems", attrs.PSET_NAME("ice")) == statuses.ERR_NOT_FOUND
    names = "pmix.pset.nms"
    assert client.value(client.get(1, names), 1, names) == text("ocean,all")
    assert client.value(client.get(2, names), 2, names) == text("all")
    psets(world).delete("all")
    assert client.status(client.get(2, names)) == statuses.ERR_NOT_FOUND
    assert query(client, "pmix.qry.psets") == "ocean"


def test_process_sets_that_cannot_be(world, monkeypatch):
    psets(world).define("ocean", (ZERO,))
    for name, status in (
        ("ocean", statuses.ERR_EXISTS),
        ("job", statuses.ERR_EXISTS),
        ("", statuses.ERR_BAD_PARAM),
        ("a,b", statuses.ERR_BAD_PARAM),
    ):
        with pytest.raises(PMIxError) as caught:
            psets(world).define(name, (ZERO,))
        assert caught.value.code == status
    with pytest.raises(ValueError, match="255"):
        psets(world).define("x" * 300, (ZERO,))
    with pytest.raises(TypeError):
        psets(world).define("new", ("job:0",))
    with pytest.raises(NotFound):
        psets(world).delete("ice")
    with pytest.raises(PMIxError) as caught:
        psets(world).define("new", ())
    assert caught.value.code == statuses.ERR_BAD_PARAM
    for proc in (Proc("gone", 0), Proc("gone", RANK_WILDCARD), Proc("job", 1000), Proc("job", RANK_UNDEF)):
        with pytest.raises(NotFound) as unknown:
            psets(world).define("new", (ZERO, proc))
        assert unknown.value.procs == (proc,)
    psets(world).define("far", (ZERO, Proc("gone", 0)), elsewhere=True)
    with pytest.raises(NotFound):
        psets(world).define("new", (Proc("job", 1000),), elsewhere=True)
    monkeypatch.setattr("pypmix.engine.psets.MAX_PSETS", 2)
    with pytest.raises(PMIxError) as caught:
        psets(world).define("new", (ZERO,))
    assert caught.value.code == statuses.ERR_OUT_OF_RESOURCE


# Resources, and what the host stores


def job_of(client):
    tag = client.ask(Command.REQ)
    return {info.key: to_python(info.value) for info in decode_jobinfo(client.replies[tag], 1, RELEASE).job}


def test_resources_are_part_of_every_jobs_info(world):
    early, *_ = world.clients(0)
    assert "acme.gpu" not in job_of(early)
    world.server.store.register_resources((Info("acme.gpu", text("fast")), attrs.JOB_SIZE(99)))
    assert job_of(early)["acme.gpu"] == "fast"
    assert job_of(early)["pmix.job.size"] == 3
    world.add("late", 1)
    assert job_of(Client(world, 0, "late").connect())["acme.gpu"] == "fast"
    # Who has its job info already asks: for its job, or for itself.
    assert early.value(early.get(RANK_WILDCARD, "acme.gpu"), RANK_WILDCARD, "acme.gpu") == text("fast")
    assert early.value(early.get(0, "acme.gpu"), 0, "acme.gpu") == text("fast")
    assert query(early, "acme.gpu") == "fast"
    early.commit(("acme.gpu", text("mine")))
    assert early.value(early.get(0, "acme.gpu"), 0, "acme.gpu") == text("mine")
    world.server.store.deregister_resources((Info("acme.gpu", text("")), Info("acme.none", text(""))))
    assert "acme.gpu" not in job_of(early)
    assert early.status(early.get(RANK_WILDCARD, "acme.gpu")) == statuses.ERR_NOT_FOUND


def test_values_that_the_host_stores_are_for_this_servers_clients(world):
    client, *_ = world.clients(0, 1)
    store = world.server.store
    store.store_internal(ONE, "acme.rack", text("7"))
    store.store_internal(ONE, "pmix.locstr", text("NM0:CR1"))
    store.store_internal(Proc("job", RANK_WILDCARD), "acme.job", text("x"))
    assert client.value(client.get(1, "acme.rack"), 1, "acme.rack") == text("7")
    assert client.value(client.get(1, "pmix.locstr"), 1, "pmix.locstr") == text("NM0:CR1")
    assert client.value(client.get(RANK_WILDCARD, "acme.job"), RANK_WILDCARD, "acme.job") == text("x")
    assert job_of(client)["acme.job"] == "x"
    assert store.process(ONE).shared() == []
    for proc in (Proc("job", 9), Proc("none", 0), Proc("none", RANK_WILDCARD)):
        with pytest.raises(NotFound):
            store.store_internal(proc, "acme.rack", text("7"))


# A whole session


@pytest.fixture
def session():
    logged = []
    asked = []
    session = ServerSession(asked.append, ServerOptions("srv", "node0"), logged.append)
    session.logged, session.asked = logged, asked
    yield session
    session.close()


def test_variables_of_a_job_reach_its_clients(session, monkeypatch):
    monkeypatch.setenv("ACME_PATH", "/usr")
    monkeypatch.setenv("ACME_KEPT", "old")
    changes = (
        attrs.SET_ENVAR(Envar("ACME_SET", "1")),
        attrs.ADD_ENVAR(Envar("ACME_KEPT", "new")),
        attrs.ADD_ENVAR(Envar("ACME_ADDED", "new")),
        attrs.PREPEND_ENVAR(Envar("ACME_PATH", "/first", ":")),
        attrs.APPEND_ENVAR(Envar("ACME_PATH", "/last", ":")),
        attrs.FIRST_ENVAR(Envar("ACME_PATH", "/usr", ":")),
        attrs.SET_ENVAR(Envar("ACME_GONE", "1")),
        attrs.UNSET_ENVAR("ACME_GONE"),
    )
    blob = Info("acme.network", text("42"))
    given = session.setup_application("job", (*changes, blob))
    assert given == (*changes, blob)
    before = session.client_env(ZERO)
    session.setup_local_support("job", given)
    env = session.client_env(ZERO)
    assert {name: value for name, value in env.items() if name not in before} == {
        "ACME_SET": "1",
        "ACME_ADDED": "new",
        "ACME_PATH": "/usr:/first:/last",
    }
    assert session.client_env(Proc("other", 0)) == {
        **before,
        "PMIX_NAMESPACE": "other",
    }
    session.register_nspace(JobInfo("job", (attrs.JOB_SIZE(1),)))
    session.deregister_nspace("job")
    assert session.client_env(ZERO) == before


def test_an_application_may_take_its_launchers_parameters_along(session, monkeypatch):
    for name in [name for name in os.environ if name.startswith(provision.PARAMETERS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMPI_MCA_btl", "self")
    monkeypatch.setenv("PMIX_MCA_gds", "hash")
    assert session.setup_application("job", ()) == ()
    given = session.setup_application("job", (attrs.SETUP_APP_ENVARS(True),))
    assert [to_python(info.value) for info in given] == [Envar("OMPI_MCA_btl", "self"), Envar("PMIX_MCA_gds", "hash")]
    session.setup_local_support("job", given)
    assert session.client_env(ZERO)["OMPI_MCA_btl"] == "self"


@pytest.mark.parametrize(
    "info", [attrs.UNSET_ENVAR(""), Info("pmix.envar.set", text("A=1")), attrs.SET_ENVAR(Envar("A=B", "1"))]
)
def test_changes_that_name_no_variable(session, info):
    for call in (session.setup_application, session.setup_local_support):
        with pytest.raises(PMIxError) as caught:
            call("job", (info,))
        assert caught.value.code == statuses.ERR_BAD_PARAM


def test_a_node_tells_what_it_has_and_keeps_what_others_tell(session):
    (node,) = session.collect_inventory(())
    assert node.key == "pmix.node.arr"
    items = {info.key: to_python(info.value) for info in node.value.data.items}
    assert items["pmix.hname"] == "node0"
    assert items["pmix.srvr.pidinfo"] == os.getpid()
    assert 0 < items["pmix.alloc.ncpus"] <= (os.cpu_count() or 1)
    with pytest.raises(NotFound):
        session.collect_inventory((attrs.HOSTNAME("node1"),))
    other = Info(
        "pmix.node.arr", Value(codes.DATA_ARRAY, DataArray(codes.INFO, (attrs.HOSTNAME("node1"), attrs.NODEID(1))))
    )
    session.deliver_inventory((node, other), ())
    assert session.collect_inventory((attrs.HOSTNAME("node1"),)) == (other,)
    for bad in (attrs.HOSTNAME("x"), Info("pmix.node.arr", Value(codes.DATA_ARRAY, DataArray(codes.INFO, ())))):
        with pytest.raises(PMIxError) as caught:
            session.deliver_inventory((bad,), ())
        assert caught.value.code == statuses.ERR_BAD_PARAM


def test_a_session_passes_on_what_its_host_gives(session):
    session.register_nspace(JobInfo("job", (attrs.JOB_SIZE(2),)), (0,))
    session.define_process_set("ocean", (ZERO,))
    with pytest.raises(PMIxError):
        session.define_process_set("ocean", (ZERO,))
    session.delete_process_set("ocean")
    session.register_resources((Info("acme.gpu", text("fast")),))
    session.deregister_resources((Info("acme.gpu", text("")),))
    session.store_internal(ONE, "acme.rack", text("7"))
    with pytest.raises(ValueError, match="key"):
        session.store_internal(ONE, "", text("7"))
    found = []
    session.dmodex_request(ONE, lambda data, error: found.append(error))
    session.pending()
    assert isinstance(found[0], NotFound)
    session.dmodex_request(ONE, lambda data, error: 1 // 0)
    session.pending()
    assert len(session.logged) == 1
    session.dmodex_request(ZERO, lambda data, error: found.append(error))
    session.close()
    session.dmodex_request(ZERO, lambda data, error: found.append(error))
    assert len(found) == 3
    assert all(isinstance(error, PMIxError) for error in found)


def test_a_second_reply_is_logged_by_name(session):
    session.upcall(ops.ClientFinalized(ZERO), lambda result, error: None)
    (upcall,) = session.asked
    upcall.reply()
    assert not session.logged
    upcall.fail(NotFound("no"))
    assert session.logged == ["the host replied twice to client_finalized: only the first reply counts"]


# Commands of newer clients


@pytest.mark.parametrize(
    ("command", "fields", "op", "result", "reply"),
    [
        (
            Command.SESSION_CTRL,
            {"session": 7, "infos": (attrs.SESSION_SIGNAL(9),)},
            ops.SessionControl(7, (attrs.SESSION_SIGNAL(9),)),
            (attrs.SESSION_ID(7),),
            {"infos": (attrs.SESSION_ID(7),)},
        ),
        (
            Command.RESBLK,
            {"directive": 1, "block": "b", "units": (ResourceUnit(1, 4),), "infos": ()},
            ops.ResourceBlock(1, "b", (ResourceUnit(1, 4),), ()),
            None,
            {},
        ),
    ],
)
def test_sessions_and_resource_blocks_are_the_hosts(command, fields, op, result, reply):
    world = World(answer=[])
    client = Client(world, 0, version="7.0.0")
    client.connect()
    world.answer.pop()(None, None)
    client.read()
    tag = client.send(request_layout(command, NEW).encode(1, NEW, **fields))
    assert world.upcalls[-1] == op
    world.answer.pop()(result, None)
    client.read()
    assert reply_layout(command, NEW).decode(client.replies[tag], 1, NEW) == {"status": statuses.SUCCESS, **reply}


def test_the_bytes_of_sessions_and_resource_blocks():
    """As OpenPMIx packs them: each field a pack of its own, the count of an array before it where it has any."""
    world = World(answer=[])
    client = Client(world, 0, version="6.1.0")
    client.connect()
    world.answer.pop()(None, None)
    session = bytes((2, 35, 2, 0x87, 1, 2, 0))
    client.send(session)
    assert world.upcalls[-1] == ops.SessionControl(135)
    #              command  directive  the block's name   units    their types and counts     no infos
    block = bytes((2, 34, 2, 2, 2, 10)) + b"rack\0" + bytes((2, 2, 4, 1, 3, 2, 0xC8, 1, 2, 0))
    client.send(block)
    assert world.upcalls[-1] == ops.ResourceBlock(2, "rack", (ResourceUnit(1, 3), ResourceUnit(2, 200)))
    old = Client(world, 1, version="5.0.11")
    old.connect()
    world.answer.pop()(None, None)
    assert old.status(old.send(session)) == statuses.ERR_NOT_SUPPORTED


# Registrations that wait for the first client


JOB = JobInfo("waiting", procs=((0, ()), (1, ())), job=(attrs.JOB_SIZE(2),))


@pytest.fixture
def put_off(session):
    """A session with a job that waits, and what has been registered of it."""
    session.register_later(JOB.nspace, lambda opened: opened.register_nspace(JOB))
    session.register_clients((Proc("waiting", 0), Proc("waiting", 1)), 1, 2)
    session.deregister_client(Proc("waiting", 1))
    return session


def is_made(session):
    return "_server" in vars(session)


def test_a_job_without_clients_needs_no_machine(put_off):
    put_off.deregister_nspace("waiting")
    put_off.close()
    assert not is_made(put_off)


def test_the_first_use_registers_what_has_waited_in_its_order(put_off):
    put_off.store_internal(Proc("waiting", 0), "acme.rack", text("7"))
    assert not is_made(put_off)
    assert put_off.pending() == []
    store = put_off._server.store
    zero, one = [store.process(Proc("waiting", rank)) for rank in (0, 1)]
    assert (zero.registered, zero.uid, zero.gid, one.registered) == (True, 1, 2, False)
    assert put_off.logged == []
    # From now on nothing waits.
    put_off.register_later("next", lambda opened: opened.register_nspace(JOB.replace(nspace="next")))
    assert store.process(Proc("next", 0)).local


def test_jobs_that_end_before_the_first_client_leave_nothing(put_off):
    for number in range(100):
        job = JOB.replace(nspace=f"job{number}")
        put_off.register_later(job.nspace, lambda opened, job=job: opened.register_nspace(job))
        put_off.register_clients((Proc(job.nspace, 0),), 1, 2)
        put_off.deregister_client(Proc(job.nspace, 0))
        put_off.deregister_nspace(job.nspace)
    assert [*put_off._put_off] == ["waiting"]
    assert not is_made(put_off)


def test_a_server_prepares_for_clients_when_it_is_asked_to(put_off):
    put_off.prepare()
    assert put_off._server.store.process(Proc("waiting", 0)).registered


def test_a_job_that_waits_is_registered_once(put_off):
    with pytest.raises(PMIxError) as caught:
        put_off.register_later("waiting", lambda opened: None)
    assert caught.value.status == statuses.ERR_EXISTS


def test_an_error_of_a_registration_that_has_waited_is_logged(session):
    session.register_later("bad", lambda opened: opened.register_nspace(JOB, (5,)))
    session.register_later("waiting", lambda opened: opened.register_nspace(JOB))
    assert session.pending() == []
    assert session._server.store.process(Proc("waiting", 0)).local
    assert len(session.logged) == 1 and "cannot be registered" in session.logged[0]
