"""Proves what spawn sends and understands: the facade, the Python client's machine and the Python server's."""

from __future__ import annotations

import os

import pytest

from lib.fake_session import FakeSession
from lib.recorded import messages
from lib.server_world import UID, World
from lib.tool_world import Tool
from pypmix import Client, Proc, Rank, app, attrs
from pypmix.engine.apps import refusal
from pypmix.engine.python.client import Client as Machine
from pypmix.engine.python.client import ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.engine.python.serverside import spawning
from pypmix.standard import codes, ops, statuses
from pypmix.standard.errors import NotFound, NotSupported, OperationTimeout, PMIxError, RemoteProtocolError, Unreachable
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.types import Info, Value
from pypmix.types import App
from pypmix.wire.frames import TAG_IOF, FrameReader, frame
from pypmix.wire.jobinfo import encode_jobinfo
from pypmix.wire.messages import IOF, Command, encode_status, reply_layout, request_layout

ME = Proc("job", 1)
RELEASE = (5, 0, 11)
EXE_NOT_FOUND = -190


@pytest.fixture
def session(monkeypatch):
    fake = FakeSession()
    fake.answers[ops.Spawn] = "child"
    monkeypatch.setattr("pypmix.clientbase.open_client", lambda *_: fake)
    return fake


@pytest.fixture
def me(session):
    with Client() as client:
        yield client


def spawned(session):
    return next(op for op in session.ops if isinstance(op, ops.Spawn))


# The facade.


def test_a_command_is_an_application(me, session):
    job = me.spawn(["./worker", "--fast"], n=3, env={"A": "1"}, cwd="/", timeout=1.5, notify=False)
    op = spawned(session)
    assert op.apps == (App("./worker", ("./worker", "--fast"), ("A=1",), "/", 3),)
    assert [(item.key, item.value.data) for item in op.directives] == [("pmix.sp.time", 2)]
    assert job.nspace == "child"


def test_several_applications_are_one_job(me, session):
    first = app(["a"], n=2, info={attrs.PREFIX: "x"})
    me.spawn([first, App("b"), App(None, ("c", "d"))], notify=False)
    assert spawned(session).apps == (first, App("b", ("b",)), App("c", ("c", "d")))


def test_the_end_is_asked_for_before_there_is_one(me, session):
    session.answers[ops.RegisterEventHandler] = 1
    me.spawn(["a"])
    me.spawn(["b"])
    kinds = [type(op).__name__ for op in session.ops]
    assert kinds == ["RegisterEventHandler", "Spawn", "Spawn"]
    assert [item.key for item in spawned(session).directives] == ["pmix.notecomp"]


def end(session, nspace, *infos):
    """Raise the event that a job has ended at the handler that was registered."""
    handler = next(op for op in session.ops if isinstance(op, ops.RegisterEventHandler)).handler

    class Delivery:
        results = ()
        notification = ops.Notification(
            -145, Proc("server", 0), None, (attrs.EVENT_AFFECTED_PROC(Proc(nspace, Rank.WILDCARD)), *infos)
        )
        answered = 0

        def done(self, *_):
            self.answered += 1

    delivery = Delivery()
    handler(delivery)
    assert delivery.answered == 1


@pytest.mark.parametrize(
    ("infos", "code"),
    [
        ((), 0),
        ((attrs.JOB_TERM_STATUS(0),), 0),
        ((attrs.JOB_TERM_STATUS(3),), 3),
        ((attrs.JOB_TERM_STATUS(-1),), 1),
        ((attrs.JOB_TERM_STATUS(-1), attrs.EXIT_CODE(7)), 7),
    ],
)
def test_the_exit_code(me, session, infos, code):
    job = me.spawn(["a"])
    end(session, "other", attrs.EXIT_CODE(9))
    session.data[Proc("child", Rank.WILDCARD), "pmix.job.size"] = Value(codes.UINT32, 1)
    with pytest.raises(OperationTimeout) as caught:
        job.wait(0.05)
    assert caught.value.procs == (Proc("child", 0),)
    end(session, "child", *infos)
    assert (job.wait(1), job.wait()) == (code, code)


def test_a_wait_ends_with_the_session(me, session):
    job = me.spawn(["a"])
    handler = next(op for op in session.ops if isinstance(op, ops.RegisterEventHandler))
    error = Unreachable("gone")
    handler.ended(error)
    with pytest.raises(Unreachable):
        job.wait()
    me.spawn(["b"])
    assert sum(isinstance(op, ops.RegisterEventHandler) for op in session.ops) == 2


def test_who_is_not_told_of_the_end(me, session):
    with pytest.raises(NotSupported):
        me.spawn(["a"], notify=False).wait()
    session.answers[ops.RegisterEventHandler] = NotSupported("none here")
    with pytest.raises(NotSupported):
        me.spawn(["a"]).wait()


def test_a_spawned_job_reads_its_own_job_info(me, session):
    session.data[Proc("child", Rank.WILDCARD), "pmix.job.size"] = Value(codes.UINT32, 2)
    job = me.spawn(["a"], notify=False)
    assert (job.size, list(job), job[1]) == (2, [Proc("child", 0), Proc("child", 1)], Proc("child", 1))
    me.fence(job)
    assert session.ops[-1].procs == tuple(job)


def test_how_a_job_is_ended(me, session):
    job = me.spawn(["a"], notify=False)
    job.terminate()
    job.kill()
    job.signal(10)
    found = [(op.targets, op.directives[0].key, op.directives[0].value.data) for op in session.ops[-3:]]
    whole = (Proc("child", Rank.WILDCARD),)
    assert found == [
        (whole, "pmix.jctrl.term", True),
        (whole, "pmix.jctrl.kill", True),
        (whole, "pmix.jctrl.sig", 10),
    ]


def test_what_belongs_to_the_callers_own_place_is_not_passed_on():
    env = {
        "PMIX_NAMESPACE": "job",
        "PMIX_SERVER_URI41": "x",
        "PYPMIX_SERVER": "x",
        "PMIX_MCA_x": "1",
        "PYPMIX_ENGINE": "python",
        "HOME": "/",
    }
    assert app(["a"], env=env).env == ("PMIX_MCA_x=1", "PYPMIX_ENGINE=python", "HOME=/")


def test_who_the_parent_is(me, session):
    session.answers[ops.Get] = NotFound("no")
    assert me.parent is None
    session.data[ME, "pmix.parent"] = Value(codes.PROC, Proc("parent", 3))
    assert me.parent == Proc("parent", 3)


@pytest.mark.parametrize(
    ("mistake", "kind"),
    [
        (lambda me: me.spawn("./worker"), TypeError),
        (lambda me: me.spawn([]), ValueError),
        (lambda me: me.spawn([""]), ValueError),
        (lambda me: me.spawn(["a", 1]), TypeError),
        (lambda me: me.spawn(["a\0"]), ValueError),
        (lambda me: me.spawn(["a"], n=0), ValueError),
        (lambda me: me.spawn(["a"], n="2"), TypeError),
        (lambda me: me.spawn(["a"], n=2**31), OverflowError),
        (lambda me: me.spawn(["a"], env={"A=": "1"}), ValueError),
        (lambda me: me.spawn(["a"], env={"A": 1}), TypeError),
        (lambda me: me.spawn(["a"], cwd=3), TypeError),
        (lambda me: me.spawn(["a"], timeout=-1), ValueError),
        (lambda me: me.spawn([App("a")], n=2), ValueError),
        (lambda me: me.spawn([App("a"), "b"]), TypeError),
        (lambda me: me.spawn([App(None)]), ValueError),
    ],
)
def test_mistakes_are_errors_at_the_call_and_nothing_is_asked(me, session, mistake, kind):
    with pytest.raises(kind):
        mistake(me)
    assert not session.ops


# The client's machine.


def machine(buffer_type=1, release=RELEASE, tool=False):
    return Machine(ME, DataStore(ME, "host", release), ServerInfo("server.0", release, buffer_type, tool=tool))


def request(client, command):
    ((tag, payload),) = FrameReader().feed(bytes(client.unsent()))
    client.out = b"", []
    return tag, request_layout(command, RELEASE).decode(payload, client.buffer_type, RELEASE)


def reply(client, tag, payload):
    client.intake.chunks.append(frame(0, tag, payload))
    client.take(0.0)


def child(size=2):
    return JobInfo(
        "child",
        job=(attrs.JOB_SIZE(size),),
        procs=tuple((rank, (attrs.GLOBAL_RANK(rank + 10),)) for rank in range(size)),
    )


@pytest.mark.parametrize(
    ("given", "cmd", "argv"),
    [
        (App("/bin/a"), "/bin/a", ("a",)),
        (App("/bin/a", ("a", "-x")), "/bin/a", ("a", "-x")),
        (App("/bin/a", ("/other/a", "-x")), "/bin/a", ("/other/a", "-x")),
        (App("/bin/a", ("-x",)), "/bin/a", ("a", "-x")),
        (App(None, ("b/a", "-x")), "b/a", ("b/a", "-x")),
    ],
)
def test_what_is_missing_is_filled_in_as_libpmix_does(given, cmd, argv):
    client = machine()
    client.start(ops.Spawn((given,)), None, 0.0)
    _, fields = request(client, Command.SPAWNNB)
    assert fields["apps"] == (App(cmd, argv, (), os.getcwd()),)


@pytest.mark.parametrize("kind", [1, 2], ids=["plain", "described"])
def test_the_job_info_of_the_new_job_is_there_at_once(kind):
    client = machine(kind)
    call = client.start(ops.Spawn((App("a", ("a",), ("A=1",), "/", 2),), (attrs.HOST("here"),)), None, 0.0)
    tag, fields = request(client, Command.SPAWNNB)
    assert fields["infos"] == (attrs.HOST("here"),)
    assert fields["apps"] == (App("a", ("a",), ("A=1",), "/", 2),)
    reply(client, tag, encode_status(kind, 0) + encode_jobinfo(child(), kind, RELEASE))
    assert call.outcome == ("child", None)
    assert client.store.lookup(Proc("child", Rank.WILDCARD), "pmix.job.size").data == 2
    assert client.store.lookup(Proc("child", 1), "pmix.grank").data == 11
    assert client.store.lookup(ME, "pmix.grank") is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [(statuses.ERR_NOT_SUPPORTED, NotSupported), (EXE_NOT_FOUND, PMIxError), (-24, OperationTimeout)],
)
def test_what_the_host_could_not_do(status, kind):
    client = machine()
    call = client.start(ops.Spawn((App("a"),)), None, 0.0)
    reply(client, request(client, Command.SPAWNNB)[0], encode_status(1, status))
    error = call.outcome[1]
    assert type(error) is kind
    assert (error.code, error.operation) == (status, "spawn")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (EXE_NOT_FOUND, "there is no program 'a' or '/bin/b'"),
        (-177, "'a' or '/bin/b' cannot be executed"),
        (-233, "there is no folder '/nowhere'"),
        (-234, "for 3 procs"),
        (-1, "the host did not start the job"),
    ],
)
def test_why_the_host_did_not_start_it(status, text):
    apps = App("a", cwd="/nowhere"), App("/bin/b", cwd="/nowhere", maxprocs=2)
    assert text in refusal(ops.Spawn(apps), status)[0]


def test_a_spawn_has_a_time_limit_of_its_own():
    client = machine()
    call = client.start(ops.Spawn((App("a"),), (attrs.TIMEOUT(1), attrs.SPAWN_TIMEOUT(5))), lambda *_: None, 10.0)
    client.tick(15.4)
    assert call.outcome is None
    client.tick(15.6)
    assert isinstance(call.outcome[1], OperationTimeout)
    assert "within 5 s" in str(call.outcome[1])


def test_a_lone_process_cannot_spawn():
    client = Machine(ME, DataStore(ME, "host", RELEASE), None)
    assert isinstance(client.start(ops.Spawn((App("a"),)), None, 0.0).outcome[1], Unreachable)


@pytest.mark.parametrize("rest", [b"", b"\2\3\0", b"\2\3\xff"])
def test_answers_that_make_no_sense(rest):
    client = machine()
    call = client.start(ops.Spawn((App("a"),)), None, 0.0)
    reply(client, request(client, Command.SPAWNNB)[0], encode_status(1, 0) + rest)
    assert isinstance(call.outcome[1], PMIxError)


@pytest.mark.parametrize(("tool", "shown"), [(True, ("out", "err")), (False, ("", ""))])
def test_output_that_a_tool_asked_for_is_printed(capfd, tool, shown):
    client = machine(tool=tool)
    client.start(ops.Spawn((App("a"),), (attrs.FWD_STDOUT(True),)), None, 0.0)
    tag, _ = request(client, Command.SPAWNNB)
    reply(client, tag, encode_status(1, 0) + encode_jobinfo(child(), 1, RELEASE))
    for channel, data in ((2, b"out"), (4, b"err"), (2, b"")):
        fields = {"source": Proc("child", 0), "channel": channel, "handler": 0, "infos": (), "data": data}
        reply(client, TAG_IOF, IOF.encode(1, RELEASE, **fields))
    for call in client.finished:
        call.done(*call.outcome)
    assert capfd.readouterr() == shown


# The server's machine.


def ask(client, *apps, directives=()):
    return client.ask(Command.SPAWNNB, infos=directives, apps=apps)


@pytest.fixture(params=[1, 2], ids=["plain", "described"])
def world(request):
    world = World(1, answer=True)
    world.client = world.clients(0, buffer_type=request.param)[0]
    world.upcalls.clear()
    world.answer = []
    return world


def read(world, tag):
    world.client.read()
    kind = world.client.buffer_type
    return reply_layout(Command.SPAWNNB, RELEASE).decode(world.client.replies[tag], kind, RELEASE)


def test_the_host_is_asked_and_the_new_jobs_info_goes_back(world):
    given = App("/bin/a", ("a", "b"), ("A=1",), "/", 2, (attrs.PREFIX("p"),))
    tag = ask(world.client, given, directives=(attrs.HOST("here"),))
    assert world.upcalls == [ops.Spawn((given,), (attrs.HOST("here"),))]
    assert world.askers[-1].proc == Proc("job", 0)
    assert world.client.status(tag) is None
    world.add("child", 2)
    world.answer[0]("child", None)
    found = read(world, tag)
    assert (found["status"], found["nspace"]) == (0, "child")
    client = machine(world.client.buffer_type)
    call = client.start(ops.Spawn((App("a"),)), None, 0.0)
    reply(client, request(client, Command.SPAWNNB)[0], world.client.replies[tag])
    assert call.outcome == ("child", None)
    assert client.store.lookup(Proc("child", Rank.WILDCARD), "pmix.job.size").data == 2


def test_a_job_elsewhere_has_no_info_here(world):
    tag = ask(world.client, App("a"))
    world.answer[0]("remote", None)
    found = read(world, tag)
    assert (found["status"], found["nspace"], found["kvals"]) == (0, "remote", b"")


@pytest.mark.parametrize(
    ("result", "error", "status"),
    [
        (None, PMIxError("no", status=EXE_NOT_FOUND), EXE_NOT_FOUND),
        (None, NotSupported("no"), statuses.ERR_NOT_SUPPORTED),
        (None, None, -1),
    ],
)
def test_what_the_host_refuses(world, result, error, status):
    tag = ask(world.client, App("a"))
    world.answer[0](result, error)
    assert world.client.status(tag) == status


@pytest.mark.parametrize("apps", [(), (App(None),), (App("a", maxprocs=0),), (App("a", maxprocs=-1),)])
def test_what_is_no_job_is_refused_here(world, apps):
    assert world.client.status(ask(world.client, *apps)) == statuses.ERR_BAD_PARAM
    assert not world.upcalls


def test_spawns_under_way_are_shown_and_bounded(world, monkeypatch):
    monkeypatch.setattr(spawning, "MAX_SPAWNS", 2)
    tags = [ask(world.client, App("a")) for _ in range(3)]
    assert [(each.operation, each.arrived) for each in world.server.pending()] == [("spawn", (Proc("job", 0),))] * 2
    assert world.client.status(tags[2]) == statuses.ERR_OUT_OF_RESOURCE
    world.answer[0]("child", None)
    assert len(world.server.pending()) == 1
    ask(world.client, App("a"))
    world.client.die()
    assert not world.server.pending()


def test_a_caller_who_has_gone_harms_nobody(world):
    ask(world.client, App("a"), directives=(attrs.FWD_STDOUT(True),))
    world.client.die()
    world.answer[0]("child", None)
    world.server.forwarding.deliver(ops.Output(Proc("child", 0), 2, b"x"))


def test_requests_that_do_not_parse(world):
    payload = request_layout(Command.SPAWNNB, RELEASE).encode(
        world.client.buffer_type, RELEASE, infos=(Info("k", Value(codes.STRING, "v")),), apps=(App("a"),)
    )
    for length in range(3, len(payload)):
        tag = world.client.send(payload[:length])
        assert world.client.status(tag) not in (0, None)
    assert not world.upcalls
    with pytest.raises(RemoteProtocolError):
        request_layout(Command.SPAWNNB, RELEASE).decode(payload[:-1], world.client.buffer_type, RELEASE)


# Recorded traffic of native clients.


def recorded():
    found = []
    for message in messages():
        if message.command == Command.SPAWNNB and message.layout is request_layout(Command.SPAWNNB, message.release):
            found.append(message)
    return found


def test_a_request_is_the_bytes_that_natives_send():
    seen = recorded()
    assert seen
    for message in seen:
        fields = message.layout.decode(message.data, 1, message.release)
        client = machine(1, message.release)
        client.start(ops.Spawn(tuple(fields["apps"]), tuple(fields["infos"])), None, 0.0)
        ((_, payload),) = FrameReader().feed(bytes(client.unsent()))
        assert payload == message.data


@pytest.mark.parametrize(
    ("directives", "seen"),
    [((), [2, 4, 8]), ((attrs.FWD_STDERR(False),), [2, 8]), ((attrs.FWD_STDOUT(True),), [2, 4, 8])],
    ids=["nothing said", "excluded", "asked for"],
)
def test_tools_of_libpmix_get_the_output_of_their_jobs_unasked(directives, seen):
    world = World(1)
    world.server.tools.owner = UID
    tool = Tool(world).connect()
    world.answer = []
    ask(tool, App("a"), directives=directives)
    world.answer[0]("child", None)
    for channel in (2, 4, 8):
        world.server.forwarding.deliver(ops.Output(Proc("child", 0), channel, b"x"))
    tool.read()
    assert [IOF.decode(payload, 1, RELEASE)["channel"] for tag, payload in tool.pushed if tag == TAG_IOF] == seen


@pytest.mark.parametrize(
    ("number", "kind"), [(True, TypeError), (False, TypeError), (2.0, TypeError), ("2", TypeError), (0, ValueError)]
)
def test_a_number_of_procs_is_an_int(number, kind):
    with pytest.raises(kind, match=r"a number of procs is an int|at least one proc"):
        app(["a"], n=number)
