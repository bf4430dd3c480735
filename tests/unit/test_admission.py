"""Who is listened to: other users are turned away unread, and those who are refused often have to wait."""

from __future__ import annotations

import os

import pytest

from pypmix.engine.admission import BURST, MAX_USERS, Admission
from pypmix.engine.peeruid import UNKNOWN_USER
from pypmix.engine.python.server import Server
from pypmix.engine.times import MAX_DELAY, REFUSALS_PER_SECOND
from pypmix.standard import codes, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.types import Info, Proc, Value
from pypmix.wire.handshake import FLAG_CLIENT, Hello, encode_hello, native_credential

pytestmark = pytest.mark.timeout(20)


class Clock:
    def __init__(self):
        self.time = 0.0
        self.due = []

    def now(self):
        return self.time

    def call_later(self, delay, function):
        self.due.append((self.time + delay, function))

        class Timer:
            def cancel(self):
                pass

        return Timer()

    def pass_to(self, time):
        while (first := min(self.due, key=lambda entry: entry[0], default=None)) and first[0] <= time:
            self.due.remove(first)
            self.time = first[0]
            first[1]()
        self.time = time


class Host:
    def __init__(self):
        self.lines = []

    def upcall(self, op, answer, process=None):
        answer(None, None)

    def log(self, text):
        self.lines.append(text)


class Link:
    def __init__(self, uid):
        self.owner = None
        self.user = uid
        self.sent = b""
        self.closed = self.left = False

    def send(self, data):
        self.sent += data

    send_now = send

    def hold(self, held):
        pass

    def full(self):
        return False

    def close(self):
        self.closed = True

    def uid(self):
        return self.user

    def is_closed(self):
        return self.left


def job(nspace):
    return JobInfo(nspace, (Info("pmix.job.size", Value(codes.UINT32, 1)),), (), (), (), ())


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def server(clock):
    host = Host()
    found = Server(clock, host)
    found.lines = host.lines
    return found


def test_a_stranger_of_another_user_is_turned_away_unread(server):
    link = Link(4711)
    server.opened(link)
    assert link.closed and link.owner is None and link.sent == b""
    assert any("4711" in line for line in server.lines)
    assert not server.handshakes.incomplete


def test_root_is_heard(server):
    link = Link(0)
    server.opened(link)
    assert link.owner is not None and not link.closed


@pytest.mark.parametrize("uid", [None, UNKNOWN_USER])
def test_who_is_not_known_is_turned_away_unread(server, uid):
    link = Link(uid)
    server.opened(link)
    assert link.closed and link.owner is None and link.sent == b"" and not server.handshakes.incomplete
    assert ["does not tell whose" in line for line in server.lines] == [True]


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("early", [True, False])
def test_a_connection_that_was_closed_already_is_nothing_to_tell(server, early, left):
    """The kernel does not know whose a connection was: the message is for those that are open."""
    server.register_nspace(job("job"))
    server.register_client(Proc("job", 0), 1000, 1000)
    link = Link(UNKNOWN_USER if early else 1000)
    link.left = left
    server.opened(link)
    if not early:
        link.user = UNKNOWN_USER
        parts = (FLAG_CLIENT, None, None, "job", 0, "5.0.11", "v41", 1, "hash", ())
        link.owner.received(encode_hello(Hello("native", native_credential(1000, 1000), *parts)))
    assert link.closed and link.owner is None and not server.handshakes.incomplete
    assert len(server.lines) == (not left), server.lines


@pytest.mark.parametrize(
    ("owner", "welcome"), [(None, True), (UNKNOWN_USER, False), (4711, False), (0, True), (7, True)]
)
@pytest.mark.parametrize("security", [("munge",), ("native", "munge"), ("native", "unchecked")])
def test_who_may_prove_themselves_otherwise_is_heard(clock, security, owner, welcome):
    """Where the kernel tells of nobody, that is; a connection that it does not know is one too many."""
    assert Admission(clock.now, lambda uid: uid == 7, security).welcome(owner) == welcome


@pytest.mark.parametrize("security", [("native",), ("munge",), ("native", "munge"), ("native", "unchecked")])
@pytest.mark.parametrize("module", ["native", "munge"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("owner", [None, UNKNOWN_USER, 0, 7, 8])
def test_only_what_is_known_is_believed(clock, security, module, named, owner):
    """Each way to be believed is one of these three, and there is no fourth."""
    proven = owner in (0, 7)
    munged = owner is None and module == "munge"
    allowed = owner is None and named and "unchecked" in security
    admission = Admission(clock.now, lambda uid: True, security)
    if proven or munged or allowed:
        admission.check(owner, module, 7, named)
    else:
        with pytest.raises(PMIxError) as caught:
            admission.check(owner, module, 7, named)
        assert caught.value.code == statuses.ERR_INVALID_CRED


def test_users_are_heard_as_long_as_their_processes_are_expected(server):
    def heard():
        link = Link(4711)
        server.opened(link)
        return not link.closed

    assert not heard()
    server.register_nspace(job("a"))
    server.register_client(Proc("a", 0), 4711, 4711)
    server.register_client(Proc("a", 0), 4711, 4711)
    assert heard()
    server.deregister_client(Proc("a", 0))
    assert not heard()
    server.register_client(Proc("a", 0), 4711, 4711)
    assert heard()
    server.deregister_nspace("a")
    assert not heard()


def test_who_is_refused_too_often_waits_and_is_heard_in_the_end(server, clock):
    for _ in range(BURST):
        link = Link(0)
        server.opened(link)
        link.owner.received(b"\0" * 16)
        assert link.closed
    for _ in range(REFUSALS_PER_SECOND):
        server.handshakes.admission.refused(0)
    late = Link(0)
    server.opened(late)
    late.owner.received(b"\0" * 16)
    assert not late.closed
    other = Link(os.geteuid() + 1)
    server.register_nspace(job("other"))
    server.register_client(Proc("other", 0), other.user, 0)
    server.opened(other)
    other.owner.received(b"\0" * 16)
    assert other.closed
    clock.pass_to(clock.now() + 1.1)
    assert late.closed


def test_a_connection_that_ends_while_it_waits_is_forgotten(server, clock):
    for _ in range(BURST + REFUSALS_PER_SECOND):
        server.handshakes.admission.refused(0)
    server.opened(link := Link(0))
    link.owner.received(b"\0" * 16)
    link.owner.handle_disconnect()
    clock.pass_to(clock.now() + 5)
    assert not server.handshakes.incomplete and not link.sent


def test_refusals_are_forgiven_with_time(clock):
    admission = Admission(clock.now, lambda uid: True)
    for _ in range(BURST):
        admission.refused(7)
    assert admission.delay(7) == 0
    for _ in range(10_000):
        admission.refused(7)
    assert admission.delay(7) == MAX_DELAY
    clock.pass_to(10_000 / REFUSALS_PER_SECOND)
    assert admission.delay(7) < MAX_DELAY
    clock.pass_to(clock.now() + BURST / REFUSALS_PER_SECOND + 1)
    assert admission.delay(7) == 0
    assert not admission._refused


def test_the_number_of_users_remembered_is_bounded(clock):
    admission = Admission(clock.now, lambda uid: True)
    for uid in range(3 * MAX_USERS):
        admission.refused(uid)
    assert len(admission._refused) <= MAX_USERS
