"""Proves what output forwarding sends and understands: the facade, the Python client's machine and the server's."""

from __future__ import annotations

import gc

import pytest

from lib.fake_session import FakeSession
from lib.server_world import World
from pypmix import Client, IOFChannel, NotInitialized, Output, Proc, Rank, attrs
from pypmix.engine.python.client import Client as Machine
from pypmix.engine.python.client import ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.engine.python.serverside import forwarding
from pypmix.standard import codes, ops, statuses
from pypmix.standard.errors import LostConnection, NotFound, NotSupported, PMIxError, Unreachable
from pypmix.standard.limits import Limits
from pypmix.standard.types import Value
from pypmix.types import App
from pypmix.wire.frames import TAG_IOF, TAG_IOF_CONTROL, FrameReader, frame
from pypmix.wire.messages import IOF, IOF_CONTROL, Command, encode_status, peek_command, reply_layout, request_layout

ME, OTHER, ALL = Proc("job", 1), Proc("other", 0), Proc("other", Rank.WILDCARD)
RELEASE, FLOW = (5, 0, 11), (7, 0, 0)
STDIN, STDOUT, STDERR, DIAG = 1, 2, 4, 8
XOFF, COMPLETE = -405, -173


# The facade.


@pytest.fixture
def session(monkeypatch):
    fake = FakeSession()
    fake.answers[ops.IOFPull] = 5
    fake.answers[ops.Get] = NotFound("no")
    monkeypatch.setattr("pypmix.clientbase.open_client", lambda *_: fake)
    return fake


@pytest.fixture
def me(session):
    with Client() as client:
        yield client


def pull(session):
    return next(op for op in session.ops if isinstance(op, ops.IOFPull))


def test_a_stream_pulls_while_it_is_open(me, session):
    with me.output(OTHER, IOFChannel.STDERR, info={attrs.IOF_TAG_OUTPUT: True}) as stream:
        op = pull(session)
        assert (op.procs, op.channels, op.directives) == ((OTHER,), STDERR, (attrs.IOF_TAG_OUTPUT(True),))
        assert stream.id == 5
        piece = Output(OTHER, STDERR, "grüße".encode())
        op.handler(piece)
        assert stream.get(1) == piece
        assert piece.text == "grüße"
        assert not any(isinstance(op, ops.IOFDeregister) for op in session.ops)
    stream.close()
    assert [op for op in session.ops if isinstance(op, ops.IOFDeregister)] == [ops.IOFDeregister(5)]


def test_a_stream_ends_when_all_channels_have_ended(me, session):
    session.data[ALL, "pmix.job.size"] = Value(codes.UINT32, 2)
    stream = me.output(ALL, STDOUT | STDERR).open()
    handler = pull(session).handler
    for rank in (0, 1):
        for channel in (STDOUT, STDERR):
            handler(Output(Proc("other", rank), channel, b"x"))
            handler(Output(Proc("other", rank), channel, b""))
    assert len(list(stream)) == 8
    stream.close()
    assert session.ops[-1] == ops.IOFDeregister(5)


def test_a_slow_reader_loses_the_oldest_and_is_told_how_many(me, session):
    with me.output(OTHER, buffer=2) as stream:
        for number in range(5):
            pull(session).handler(Output(OTHER, STDOUT, b"%d" % number))
        assert [stream.get().data, stream.get().data, stream.dropped] == [b"3", b"4", 3]


@pytest.mark.parametrize(("error", "kind"), [(LostConnection("gone"), LostConnection), (None, NotInitialized)])
def test_a_stream_ends_with_the_session(me, session, error, kind):
    with me.output(OTHER) as stream:
        pull(session).handler(Output(OTHER, STDOUT, b"last"))
        pull(session).ended(error)
        assert stream.get().data == b"last"
        with pytest.raises(kind):
            stream.get()
    assert not any(isinstance(op, ops.IOFDeregister) for op in session.ops)


def test_a_whole_job_is_pulled_by_its_wildcard_and_pushed_to_one_by_one(me, session):
    session.data[Proc("job", Rank.WILDCARD), "pmix.job.size"] = Value(codes.UINT32, 2)
    me.output(me.job).open()
    assert pull(session).procs == (Proc("job", Rank.WILDCARD),)
    me.input(me.job).write(b"x")
    assert session.ops[-1].procs == (Proc("job", 0), Proc("job", 1))


def pushed(session):
    return [op.data for op in session.ops if isinstance(op, ops.IOFPush)]


def test_input_is_written_in_pieces_and_ended(me, session):
    with me.input(OTHER) as file:
        assert file.write("ü") == 2
        assert file.write(b"x" * 5000) == 5000
        assert file.write(b"") == 0
    assert file.closed
    file.close()
    assert pushed(session) == ["ü".encode(), b"x" * 4096, b"x" * 904, b""]
    with pytest.raises(NotInitialized):
        file.write(b"more")
    me.input(OTHER).close()
    assert pushed(session)[-1] == b""


def test_the_end_of_input_may_be_answered_by_its_completion(me, session):
    session.answers[ops.IOFPush] = PMIxError("done", status=COMPLETE)
    me.input(OTHER).close()
    with pytest.raises(PMIxError):
        me.input(OTHER).write(b"x")


@pytest.mark.parametrize(
    ("mistake", "kind"),
    [
        (lambda me: me.output(None), TypeError),
        (lambda me: me.output("other"), TypeError),
        (lambda me: me.output([]), ValueError),
        (lambda me: me.output(OTHER, 0), ValueError),
        (lambda me: me.output(OTHER, STDIN), ValueError),
        (lambda me: me.output(OTHER, STDIN | STDOUT), ValueError),
        (lambda me: me.output(OTHER, 16), ValueError),
        (lambda me: me.output(OTHER, buffer=0), ValueError),
        (lambda me: me.input(None), TypeError),
        (lambda me: me.input([]), ValueError),
        (lambda me: me.input(OTHER).write(3), TypeError),
        (lambda me: me.input(OTHER).write(["x"]), TypeError),
    ],
)
def test_mistakes_are_errors_at_the_call_and_nothing_is_asked(me, session, mistake, kind):
    with pytest.raises(kind):
        mistake(me)
    assert not session.ops


# The client's machine.


class Side:
    """A client's machine, and what its server says to it."""

    def __init__(self, buffer_type=1, release=RELEASE):
        self.kind, self.release = buffer_type, release
        self.client = Machine(ME, DataStore(ME, "host", release), ServerInfo("server.0", release, buffer_type))
        self.pieces = []
        self.ends = []

    def start(self, op):
        return self.client.start(op, None, 0.0)

    def pull(self, procs=(OTHER,), channels=STDOUT | STDERR):
        return self.start(ops.IOFPull(procs, channels, (), self.pieces.append, self.ends.append))

    def sent(self):
        """Return the tag, the command and the fields of each message that was sent."""
        found = []
        for tag, payload in FrameReader().feed(bytes(self.client.unsent())):
            command = peek_command(payload, self.kind)
            found.append((tag, request_layout(command, self.release).decode(payload, self.kind, self.release)))
        self.client.out = b"", []
        return found

    def take(self, tag, payload):
        self.client.intake.chunks.append(frame(0, tag, payload))
        self.client.take(0.0)

    def tell(self):
        finished, self.client.finished[:] = list(self.client.finished), []
        for call in finished:
            call.done(*call.outcome)

    def opened(self, remote_id=77, **options):
        call = self.pull(**options)
        ((tag, fields),) = self.sent()
        layout = reply_layout(Command.IOF_PULL, self.release)
        self.take(tag, layout.encode(self.kind, self.release, status=0, remote_id=remote_id))
        assert call.outcome == (fields["local_id"], None)
        return fields["local_id"]

    def output(self, handler, data=b"x", source=OTHER, channel=STDOUT):
        fields = {"source": source, "channel": channel, "handler": handler, "infos": (), "data": data}
        self.take(TAG_IOF, IOF.encode(self.kind, self.release, **fields))
        self.tell()

    def control(self, xoff, source=ME, channel=STDIN):
        fields = {"source": source, "channel": channel, "xoff": xoff, "infos": ()}
        self.take(TAG_IOF_CONTROL, IOF_CONTROL.encode(self.kind, self.release, **fields))


@pytest.mark.parametrize("kind", [1, 2], ids=["plain", "described"])
def test_output_comes_to_whoever_has_pulled_it(kind):
    side = Side(kind)
    first, second = side.opened(70), side.opened(71, procs=(ALL, ME), channels=DIAG)
    assert first != second
    side.output(second, b"a", channel=DIAG)
    side.output(first, b"b")
    side.output(first, b"")
    assert side.pieces == [Output(OTHER, DIAG, b"a"), Output(OTHER, STDOUT, b"b"), Output(OTHER, STDOUT, b"")]


def test_what_a_pull_asks():
    side = Side()
    side.start(ops.IOFPull((ALL,), STDERR, (attrs.IOF_CACHE_SIZE(9),), side.pieces.append))
    ((_, fields),) = side.sent()
    assert (fields["procs"], fields["channels"]) == ((ALL,), STDERR)
    assert fields["infos"] == (attrs.IOF_CACHE_SIZE(9),)


def test_nothing_comes_after_a_deregistration(capfd):
    side = Side()
    number = side.opened()
    assert side.client.waiting()
    call = side.start(ops.IOFDeregister(number))
    ((tag, fields),) = side.sent()
    assert fields["remote_id"] == 77
    side.output(number, b"late")
    side.take(tag, encode_status(1, -1992085283))
    assert call.outcome == (None, None)
    assert not side.pieces
    assert not side.client.waiting()
    assert not side.client.at_loss
    assert capfd.readouterr() == ("", "")
    side.client.handle_disconnect("gone")
    side.tell()
    assert not side.ends


def test_a_pull_that_is_refused_leaves_nothing():
    side = Side()
    call = side.pull()
    side.take(side.sent()[0][0], encode_status(1, statuses.ERR_NOT_SUPPORTED))
    assert isinstance(call.outcome[1], NotSupported)
    assert not side.client.waiting()
    side.client.handle_disconnect("gone")
    side.tell()
    assert not side.ends


def test_a_pull_that_was_given_up_is_taken_back():
    side = Side()
    call = side.pull()
    side.client.abandon(call)
    ((tag, _),) = side.sent()
    side.take(tag, reply_layout(Command.IOF_PULL, RELEASE).encode(1, RELEASE, status=0, remote_id=3))
    ((tag, fields),) = side.sent()
    assert fields["remote_id"] == 3
    side.take(tag, encode_status(1, 0))
    assert not side.client.waiting()


def test_only_known_pulls_are_taken_back():
    side = Side()
    assert isinstance(side.start(ops.IOFDeregister(1)).outcome[1], NotFound)
    number = side.opened()
    side.start(ops.IOFDeregister(number))
    assert isinstance(side.start(ops.IOFDeregister(number)).outcome[1], NotFound)


@pytest.mark.parametrize(
    ("how", "kind"),
    [(lambda client: client.handle_disconnect("gone"), LostConnection), (lambda client: client.close(), None)],
)
def test_whoever_pulls_is_told_of_the_end(how, kind):
    side = Side()
    side.opened()
    side.opened()
    how(side.client)
    side.tell()
    assert [type(end) for end in side.ends] == [kind or type(None)] * 2


def test_output_for_nobody_is_printed_unless_somebody_pulls_it(capfd):
    side = Side()
    side.opened(channels=STDOUT)
    side.output(0, b"pulled")
    side.output(0, b"shown", channel=STDERR)
    side.output(0x7FFFFFFF, b" too", source=ME)
    assert capfd.readouterr() == (" too", "shown")
    assert not side.pieces


def test_output_that_does_not_parse_ends_the_connection():
    side = Side()
    side.opened()
    side.take(TAG_IOF, b"\2\x16\1")
    assert side.client.closed is not None
    side.tell()
    assert len(side.ends) == 1


def test_input_is_pushed():
    side = Side()
    calls = [side.start(ops.IOFPush((OTHER,), data)) for data in (b"x", b"")]
    sent = side.sent()
    assert [fields["data"] for _, fields in sent] == [b"x", b""]
    side.take(sent[0][0], encode_status(1, 0))
    side.take(sent[1][0], encode_status(1, statuses.ERR_NOT_FOUND))
    assert calls[0].outcome == (None, None)
    assert isinstance(calls[1].outcome[1], NotFound)
    assert not side.client.waiting()


@pytest.mark.parametrize("by_status", [True, False], ids=["status", "message"])
def test_input_waits_while_the_server_wants_none(by_status):
    side = Side(release=FLOW)
    first = side.start(ops.IOFPush((OTHER,), b"1"))
    ((tag, _),) = side.sent()
    if not by_status:
        side.control(True)
    side.take(tag, encode_status(1, XOFF if by_status else 0))
    assert first.outcome == (None, None)
    later = [side.start(ops.IOFPush((OTHER,), data)) for data in (b"2", b"3")]
    side.control(False, source=OTHER)
    side.control(False, channel=STDOUT)
    assert not side.sent()
    side.control(False, source=Proc("", Rank.WILDCARD))
    sent = side.sent()
    assert [fields["data"] for _, fields in sent] == [b"2", b"3"]
    side.take(sent[0][0], encode_status(1, 0))
    assert later[0].outcome == (None, None)
    side.control(True)
    held = side.start(ops.IOFPush((OTHER,), b"4"))
    side.client.handle_disconnect("gone")
    assert [type(call.outcome[1]) for call in (later[1], held)] == [LostConnection] * 2


def test_the_library_does_not_read_the_processs_own_input():
    side = Side()
    call = side.start(ops.IOFPush((OTHER,), b"", (attrs.IOF_PUSH_STDIN(True),)))
    assert type(call.outcome[1]) is NotSupported


@pytest.mark.parametrize("op", [ops.IOFPull((OTHER,), STDOUT), ops.IOFPush((OTHER,), b"x")])
def test_a_lone_process_has_nobody_to_ask(op):
    client = Machine(ME, DataStore(ME, "host", RELEASE), None)
    assert isinstance(client.start(op, None, 0.0).outcome[1], Unreachable)


# The server's machine.


@pytest.fixture(params=[1, 2], ids=["plain", "described"])
def world(request):
    world = World(3)
    world.all = world.clients(0, 1, 2, buffer_type=request.param)
    world.upcalls.clear()
    world.answer = []
    return world


def ask_pull(client, *procs, channels=STDOUT | STDERR, local_id=4, infos=()):
    return client.ask(Command.IOF_PULL, procs=procs, infos=infos, channels=channels, local_id=local_id)


def remote_id(client, tag):
    client.read()
    return reply_layout(Command.IOF_PULL, RELEASE).decode(client.replies[tag], client.buffer_type, RELEASE)["remote_id"]


def pulled(world, client, *procs, **options):
    """Have a client pull, and the host agree; return the server's id."""
    known = len(world.answer)
    tag = ask_pull(client, *procs, **options)
    for answer in world.answer[known:]:
        answer(900 + known, None)
    assert client.status(tag) == 0
    return remote_id(client, tag)


def drop(client, number):
    return client.ask(Command.IOF_DEREG, infos=(), remote_id=number)


def write(world, data=b"x", source=OTHER, channel=STDOUT):
    world.server.forwarding.deliver(Output(source, channel, data))


def got(client):
    """Return what came to a client: the handler, the source, the channel and the data of each piece."""
    client.read()
    found = []
    for tag, payload in client.pushed:
        assert tag == TAG_IOF
        fields = IOF.decode(payload, client.buffer_type, RELEASE)
        found.append((fields["handler"], fields["source"], fields["channel"], fields["data"] or b""))
    client.pushed.clear()
    return found


def test_output_goes_to_those_who_pull_it_and_to_nobody_else(world):
    first, second, third = world.all
    pulled(world, first, OTHER, channels=STDOUT, local_id=1)
    pulled(world, second, ALL, local_id=2)
    pulled(world, third, Proc("third", Rank.WILDCARD), local_id=3)
    write(world, b"a")
    write(world, b"b", channel=STDERR)
    write(world, b"c", source=Proc("other", 7))
    write(world, b"", source=Proc("other", 7))
    assert got(first) == [(1, OTHER, STDOUT, b"a")]
    assert got(second) == [
        (2, OTHER, STDOUT, b"a"),
        (2, OTHER, STDERR, b"b"),
        (2, Proc("other", 7), STDOUT, b"c"),
        (2, Proc("other", 7), STDOUT, b""),
    ]
    assert not got(third)


def test_each_pull_gets_its_own_copy_and_nobody_what_it_wrote_itself(world):
    first, _, _ = world.all
    pulled(world, first, OTHER, local_id=1)
    pulled(world, first, ALL, local_id=2)
    pulled(world, first, Proc("", Rank.WILDCARD), local_id=3)
    write(world)
    assert sorted(piece[0] for piece in got(first)) == [1, 2, 3]
    write(world, source=Proc("job", 0))
    assert not got(first)
    write(world, source=Proc("job", 1))
    assert [piece[0] for piece in got(first)] == [3]


def test_the_host_is_asked_once_and_told_of_the_last_end(world):
    first, second, _ = world.all
    number = pulled(world, first, OTHER)
    other = pulled(world, second, OTHER)
    again = pulled(world, second, OTHER)
    assert world.upcalls == [ops.IOFPull((OTHER,), STDOUT | STDERR)]
    assert first.status(drop(first, number)) == 0
    assert second.status(drop(second, other)) == 0
    assert len(world.upcalls) == 1
    assert second.status(drop(second, again)) == 0
    assert world.upcalls[1:] == [ops.IOFDeregister(900)]
    write(world)
    assert not got(first) + got(second)
    pulled(world, first, OTHER)
    assert len(world.upcalls) == 3


def test_other_procs_channels_or_directives_are_asked_for_anew(world):
    first, _, _ = world.all
    pulled(world, first, OTHER)
    pulled(world, first, ALL)
    pulled(world, first, OTHER, channels=DIAG)
    pulled(world, first, OTHER, infos=(attrs.IOF_COPY(True),))
    assert len(world.upcalls) == 4


def test_all_who_wait_get_the_hosts_answer(world):
    first, second, _ = world.all
    tags = [(client, ask_pull(client, OTHER)) for client in (first, second)]
    assert [client.status(tag) for client, tag in tags] == [None, None]
    world.answer[0](None, NotSupported("no"))
    assert [client.status(tag) for client, tag in tags] == [statuses.ERR_NOT_SUPPORTED] * 2
    write(world)
    assert not got(first)
    pulled(world, first, OTHER)
    assert [piece[3] for piece in got(first)] == [b"x"]


def test_a_host_that_gives_no_id_is_told_of_no_end(world):
    first, _, _ = world.all
    tag = ask_pull(first, OTHER)
    world.answer[0](None, None)
    first.status(drop(first, remote_id(first, tag)))
    assert len(world.upcalls) == 1


@pytest.mark.parametrize("how", ["dies", "finalizes", "is deregistered"])
def test_a_client_that_has_gone_pulls_nothing(world, how):
    first, second, _ = world.all
    pulled(world, first, OTHER)
    if how == "dies":
        first.die()
    elif how == "finalizes":
        first.send(request_layout(Command.FINALIZE, RELEASE).encode(first.buffer_type, RELEASE))
    else:
        world.server.deregister_nspace("job")
    assert ops.IOFDeregister(900) in world.upcalls
    write(world)
    assert not got(first)
    if how != "is deregistered":
        pulled(world, second, OTHER)
        assert [piece[3] for piece in got(second)] == [b"x"]


def test_a_client_that_goes_before_the_host_has_answered(world):
    first, _, _ = world.all
    ask_pull(first, OTHER)
    first.die()
    world.answer[0](5, None)
    assert world.upcalls[-1] == ops.IOFDeregister(5)


def test_pulls_belong_to_those_who_made_them(world):
    first, second, _ = world.all
    number = pulled(world, first, OTHER)
    assert second.status(drop(second, number)) == statuses.ERR_NOT_FOUND
    assert first.status(drop(first, number + 1)) == statuses.ERR_NOT_FOUND
    write(world)
    assert len(got(first)) == 1


@pytest.mark.parametrize(
    "fields", [{"procs": ()}, {"channels": 0}, {"channels": STDIN | STDOUT}, {"channels": 64}], ids=str
)
def test_what_is_no_pull_is_refused_here(world, fields):
    client = world.all[0]
    given = {"procs": (OTHER,), "infos": (), "channels": STDOUT, "local_id": 1, **fields}
    assert client.status(client.ask(Command.IOF_PULL, **given)) == statuses.ERR_BAD_PARAM
    assert not world.upcalls


def test_pulls_are_bounded(world, monkeypatch):
    world.server.limits = Limits(pulls=3)
    client = world.all[0]
    for _ in range(3):
        pulled(world, client, OTHER)
    assert client.status(ask_pull(client, OTHER)) == statuses.ERR_OUT_OF_RESOURCE
    world.server.limits = Limits(pulls=100)
    monkeypatch.setattr(forwarding, "MAX_NAMED", 5)
    assert client.status(ask_pull(client, OTHER, ME, ALL)) == statuses.ERR_OUT_OF_RESOURCE
    pulled(world, client, OTHER, ME)
    pulled(world, world.all[1], *[Proc("other", rank) for rank in range(5)])


# Output that comes before anybody has asked for it.


def test_early_output_is_kept_in_order_and_given_once(world):
    first, second, _ = world.all
    write(world, b"a")
    write(world, b"b", channel=STDERR)
    write(world, b"c")
    write(world, b"")
    pulled(world, first, ALL, channels=STDOUT)
    assert [piece[3] for piece in got(first)] == [b"a", b"c", b""]
    pulled(world, second, ALL)
    assert [piece[3] for piece in got(second)] == [b"b"]
    write(world, b"d")
    assert [piece[3] for piece in got(first) + got(second)] == [b"d", b"d"]


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "beside another"])
def test_what_comes_while_the_host_is_asked_stays_in_order(world, shared):
    first, second, _ = world.all
    write(world, b"a")
    if shared:
        pulled(world, second, ALL, local_id=2)
        got(second)
    tag = ask_pull(first, OTHER)
    write(world, b"b")
    write(world, b"c")
    assert not got(first)
    world.answer[-1](7, None)
    assert first.status(tag) == 0
    write(world, b"d")
    assert [piece[3] for piece in got(first)] == ([] if shared else [b"a"]) + [b"b", b"c", b"d"]
    assert [piece[3] for piece in got(second)] == ([b"b", b"c", b"d"] if shared else [])


def test_what_is_kept_is_bounded_and_begins_at_the_beginning(world, monkeypatch):
    monkeypatch.setattr(forwarding, "PIECE_COST", 0)
    for number in range(300):
        write(world, bytes([number & 255]) * 10_000)
    write(world, b"")
    pulled(world, world.all[0], ALL)
    pieces = [piece[3] for piece in got(world.all[0])]
    assert [piece[:1] for piece in pieces[:3]] == [b"\0", b"\1", b"\2"]
    assert (len(pieces), pieces[-1]) == (forwarding.CACHE_SIZE // 10_000 + 1, b"")


def test_a_spawn_says_what_is_kept_of_its_job(world, monkeypatch):
    monkeypatch.setattr(forwarding, "PIECE_COST", 0)
    world.add("other", 1)
    peer = world.server.peers(world.server.store.process(Proc("job", 0)))[0]
    world.server.forwarding.spawned(peer, "other", 0, (attrs.IOF_CACHE_SIZE(3), attrs.IOF_DROP_OLDEST(True)))
    for data in (b"1", b"2", b"3", b"4", b"5"):
        write(world, data)
    pulled(world, world.all[0], ALL)
    assert [piece[3] for piece in got(world.all[0])] == [b"3", b"4", b"5"]


def test_all_that_is_kept_together_is_bounded(world):
    world.server.limits = Limits(output=1 << 20)
    for number in range(5):
        write(world, b"x" * 300_000, source=Proc(f"n{number}", 0))
    pulled(world, world.all[0], Proc("", Rank.WILDCARD))
    assert [piece[1].nspace for piece in got(world.all[0])] == ["n2", "n3", "n4"]


def test_the_output_of_some_jobs_outlives_them(world):
    """A host that runs thousands of short jobs keeps nothing of most of them."""
    many = forwarding.MANY_OVER
    for number in range(3 * many):
        world.add(f"n{number}", 1)
        write(world, b"last", source=Proc(f"n{number}", 0))
        world.server.deregister_nspace(f"n{number}")
    assert len(world.server.forwarding._caches) == kept() == many
    pulled(world, world.all[0], Proc("", Rank.WILDCARD))
    assert [piece[1].nspace for piece in got(world.all[0])] == [f"n{number}" for number in range(2 * many, 3 * many)]
    assert not world.server.forwarding._caches
    assert not world.server.forwarding._ended_jobs
    assert kept() == 0


def kept():
    """Return how many jobs' output is in memory, a timer's included."""
    gc.collect()
    return sum(isinstance(each, forwarding._Cache) for each in gc.get_objects())


def test_the_bound_of_all_is_that_of_jobs_that_are_over(world):
    world.server.limits = Limits(output=1 << 20)
    for number in range(9):
        world.add(f"n{number}", 1)
        write(world, b"x" * 300_000, source=Proc(f"n{number}", 0))
        world.server.deregister_nspace(f"n{number}")
    assert len(world.server.forwarding._ended_jobs) == kept() == 3


def test_the_output_of_a_job_outlives_it(world):
    world.add("other", 1)
    write(world, b"last")
    world.server.deregister_nspace("other")
    pulled(world, world.all[0], ALL)
    assert [piece[3] for piece in got(world.all[0])] == [b"last"]


# Output that a spawn asked for.


def spawn(world, client, *directives):
    known = len(world.answer)
    client.ask(Command.SPAWNNB, infos=directives, apps=(App("a"),))
    world.add("other", 2)
    world.answer[known]("other", None)


def test_the_parent_gets_the_output_that_it_asked_for(world):
    first, second, _ = world.all
    write(world, b"early")
    spawn(world, first, attrs.FWD_STDOUT(True), attrs.FWD_STDERR(False))
    write(world, b"err", channel=STDERR)
    write(world, b"out")
    assert [piece[3] for piece in got(first)] == [b"early", b"out"]
    number = pulled(world, first, OTHER, channels=STDOUT, local_id=8)
    write(world, b"pulled")
    assert got(first) == [(8, OTHER, STDOUT, b"pulled")]
    drop(first, number)
    write(world, b"out")
    assert [piece[0] for piece in got(first)] == [forwarding.UNASKED]
    assert not got(second)
    world.server.deregister_nspace("other")
    write(world, b"late")
    assert not got(first)


# The form of output.


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        (attrs.IOF_TAG_OUTPUT, b"[2,0]<stdout>: one\n[2,0]<stdout>: two\n"),
        (attrs.IOF_TAG_FULLNAME_OUTPUT, b"[a@2,0]<stdout>: one\n[a@2,0]<stdout>: two\n"),
        (attrs.IOF_RANK_OUTPUT, b"[0]<stdout>: one\n[0]<stdout>: two\n"),
        (
            attrs.IOF_XML_OUTPUT,
            b'<stdout nspace="a@2" rank="0">one&#010;</stdout>\n<stdout nspace="a@2" rank="0">two&#010;</stdout>\n',
        ),
    ],
)
def test_each_line_is_tagged_however_it_is_cut(world, directive, expected):
    client = world.all[0]
    pulled(world, client, Proc("a@2", Rank.WILDCARD), infos=(directive(True),))
    for piece in (b"on", b"e\ntw", b"", b"o\n"):
        if piece:
            write(world, piece, source=Proc("a@2", 0))
    assert b"".join(piece[3] for piece in got(client)) == expected


def test_xml_is_sound_and_complete(world):
    client = world.all[0]
    pulled(world, client, ALL, infos=(attrs.IOF_XML_OUTPUT(True),))
    write(world, b"<&>\xff no end")
    assert not got(client)
    write(world, b"")
    assert [piece[3] for piece in got(client)] == [
        b'<stdout nspace="other" rank="0">&lt;&amp;&gt;&#255; no end</stdout>\n',
        b"",
    ]


def test_the_time_of_each_line(world, monkeypatch):
    monkeypatch.setattr("pypmix.engine.python.serverside.forwarding.time.ctime", lambda: "NOW")
    first, second, third = world.all
    pulled(world, first, OTHER, infos=(attrs.IOF_TIMESTAMP_OUTPUT(True),))
    pulled(world, second, OTHER, infos=(attrs.IOF_TIMESTAMP_OUTPUT(True), attrs.IOF_RANK_OUTPUT(True)))
    pulled(world, third, OTHER, infos=(attrs.IOF_TAG_OUTPUT(False),))
    write(world, b"x\n", channel=STDERR)
    seen = [b"".join(piece[3] for piece in got(client)) for client in world.all]
    assert seen == [b"[NOW]<stderr>: x\n", b"[NOW][0]<stderr>: x\n", b"x\n"]


# Input.


def push(client, data, *procs):
    return client.ask(Command.IOF_PUSH, procs=procs or (OTHER,), infos=(), data=data)


def test_input_goes_to_the_host_and_waits_for_it(world):
    first, second, _ = world.all
    tags = [push(first, b"x"), push(first, b""), push(second, b"y")]
    assert world.upcalls == [ops.IOFPush((OTHER,), b"x"), ops.IOFPush((OTHER,)), ops.IOFPush((OTHER,), b"y")]
    assert [process.proc.rank for process in world.askers[-3:]] == [0, 0, 1]
    assert first.status(tags[0]) is None
    world.answer[0](None, None)
    world.answer[1](None, PMIxError("no", status=COMPLETE))
    world.answer[2](None, NotSupported("no"))
    assert [first.status(tags[0]), first.status(tags[1]), second.status(tags[2])] == [
        0,
        COMPLETE,
        statuses.ERR_NOT_SUPPORTED,
    ]


def test_input_without_data_is_its_end(world):
    payload = request_layout(Command.IOF_PUSH, RELEASE).encode(
        world.all[0].buffer_type, RELEASE, procs=(OTHER,), infos=(), data=b""
    )
    for end in range(len(payload), 3, -1):
        world.upcalls.clear()
        tag = world.all[0].send(payload[:end])
        assert world.upcalls == [ops.IOFPush((OTHER,))] or world.all[0].status(tag) not in (0, None)


def test_input_on_its_way_to_the_host_is_bounded(world):
    world.server.limits = Limits(input=1000)
    first, second, _ = world.all
    push(first, b"x" * 500)
    assert first.status(push(first, b"x" * 500)) == statuses.ERR_OUT_OF_RESOURCE
    push(second, b"x" * 500)
    world.answer[0](None, None)
    tag = push(first, b"x" * 500)
    first.die()
    world.answer[-1](None, None)
    assert first.status(tag) is None


def test_requests_that_do_not_parse(world):
    client = world.all[0]
    payload = request_layout(Command.IOF_PULL, RELEASE).encode(
        client.buffer_type, RELEASE, procs=(OTHER, ALL), infos=(attrs.IOF_COPY(True),), channels=STDOUT, local_id=300
    )
    for length in range(3, len(payload)):
        assert client.status(client.send(payload[:length])) not in (0, None)
    assert not world.upcalls
