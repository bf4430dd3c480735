"""Processes that are started alike meet, prove to each other that they belong together, and get their lines."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from lib import machine
from pypmix._version import __version__
from pypmix.host import tls
from pypmix.host.rosters import meet
from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.meet import Hello, Meeting, follow
from pypmix.host.rosters.proof import Secret

SECRET = Secret(b"s" * 32)
OTHER = Secret(b"o" * 32)
LINE = b'{"secret": "topsecret"}\n'


class Process(threading.Thread):
    """A follower on a thread: it answers, and reads until the launcher has gone."""

    def __init__(self, port: int, hello: Hello, proof: Secret = SECRET, patience: float = 10.0) -> None:
        super().__init__()
        self.terms = [("127.0.0.1", port)], hello, proof, time.monotonic() + patience
        self.line, self.error, self.rest = b"", "", b""
        self.start()

    def run(self) -> None:
        try:
            self.line, connection = follow(*self.terms)
        except RosterError as error:
            self.error = str(error)
            return
        with connection:
            connection.sendall(b"ready\n")
            self.rest = connection.recv(100)


def hello(place: int, size: int = 3, version: str = __version__) -> Hello:
    return Hello(place, size, f"n{place}", version, 4, 2)


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


def gets_its_line(meeting: Meeting, found: meet.Follower, other: Process) -> None:
    """Begin the process that has come, end the meeting, and see that the process was told its line."""
    found.begin(LINE)
    os.close(found.stdin)
    os.close(found.stdout)
    meeting.close()
    other.join(10)
    assert other.line == LINE


def test_all_meet_and_get_their_lines() -> None:
    meeting = Meeting(3, SECRET)
    others = [Process(meeting.port, hello(place)) for place in (2, 1)]
    found = meeting.wait(soon())
    assert {place: each.hello for place, each in found.items()} == {1: hello(1), 2: hello(2)}
    for follower in found.values():
        follower.begin(LINE)
        os.write(follower.stdin, LINE)
        assert os.read(follower.stdout, 100) == b"ready\n"
        assert follower.ended() is None
    # The end of its standard input.
    os.close(found[1].stdin)
    others[1].join(10)
    assert os.read(found[1].stdout, 100) == b""
    assert found[1].ended() == 0
    assert others[0].is_alive()
    meeting.close()
    others[0].join(10)
    assert [(each.line, each.rest, each.error) for each in others] == [(LINE, b"", "")] * 2
    os.close(found[2].stdin)
    for follower in found.values():
        os.close(follower.stdout)


def test_one_that_comes_before_the_launcher() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    early = Process(port, hello(1, 2))
    time.sleep(2 * meet.RETRY)
    meeting = Meeting(2, SECRET, [port])
    (found,) = meeting.wait(soon()).values()
    found.begin(LINE)
    os.close(found.stdin)
    os.close(found.stdout)
    meeting.close()
    early.join(10)
    assert early.line == LINE


def test_another_secret_is_refused_on_both_sides() -> None:
    meeting = Meeting(2, SECRET)
    other = Process(meeting.port, hello(1, 2), OTHER, 0.5)
    with pytest.raises(RosterError) as caught:
        meeting.wait(soon(2))
    other.join(10)
    meeting.close()
    assert "0 of the 1 other processes have come, without 1 (port " in str(caught.value)
    assert "it does not prove that it belongs to this session (another secret, or another user)" in str(caught.value)
    assert "it does not take this process's proof" in other.error


def test_a_refusal_is_told_although_the_launcher_has_gone_since() -> None:
    meeting = Meeting(2, SECRET)
    other = Process(meeting.port, hello(1, 2), OTHER, 1.5)
    with pytest.raises(RosterError, match="does not prove"):
        meeting.wait(soon(0.8))
    meeting.close()
    other.join(10)
    assert "it does not take this process's proof" in other.error and "firewall" not in other.error


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (hello(1, 2, "1999.1"), "its pypmix is 1999.1, and the launcher's"),
        (hello(1, 4), "it counts 4 processes, and the launcher 2"),
    ],
)
def test_one_that_does_not_fit_is_told_so(wrong: Hello, words: str) -> None:
    meeting = Meeting(2, SECRET)
    other = Process(meeting.port, wrong)
    other.join(10)
    meeting.close()
    assert f"the launcher refuses this process: {words}" in other.error


def test_a_place_is_taken_once() -> None:
    meeting = Meeting(3, SECRET)
    first = Process(meeting.port, hello(1))
    deadline = soon()
    while not meeting._followers:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    second = Process(meeting.port, hello(1), patience=0.5)
    second.join(10)
    assert "it refuses this process: another process has its place 1 already" in second.error
    meeting.close()
    first.join(10)
    assert first.error == "the launcher has gone before the session began; it has said why"


def test_one_that_is_started_again_has_its_place() -> None:
    meeting = Meeting(3, SECRET)
    meet._dial(("127.0.0.1", meeting.port), hello(1), SECRET, soon()).close()
    others = [Process(meeting.port, hello(place)) for place in (1, 2)]
    found = meeting.wait(soon())
    for place in 2, 1:
        found[place].begin(LINE)
        os.close(found[place].stdin)
        os.close(found[place].stdout)
    meeting.close()
    for other in others:
        other.join(10)
        assert (other.line, other.error) == (LINE, "")


def test_one_that_is_stopped_when_it_is_to_begin_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting(2, SECRET)
    silent = meet._dial(("127.0.0.1", meeting.port), hello(1, 2), SECRET, soon())
    (found,) = meeting.wait(soon()).values()
    monkeypatch.setattr(meet, "HANDSHAKE", 0.1)
    with pytest.raises(OSError, match=r"^the process there has not answered for 0\.1 s$"):
        found.begin(LINE)
    meeting.close()
    silent.close()


def test_those_that_have_gone_are_missing() -> None:
    meeting = Meeting(2, SECRET)
    meet._dial(("127.0.0.1", meeting.port), hello(1, 2), SECRET, soon()).close()
    with pytest.raises(RosterError, match="0 of the 1 other processes have come, without 1"):
        meeting.wait(soon(1))
    meeting.close()


def test_a_launcher_that_ends_without_a_word_may_be_started_again() -> None:
    """As one that was killed: it does not tell the others that it gives up."""
    first = Meeting(2, SECRET)
    other = Process(first.port, hello(1, 2))
    (found,) = first.wait(soon()).values()
    found.stop()
    first.close()
    second = Meeting(2, SECRET, [first.port])
    gets_its_line(second, next(iter(second.wait(soon()).values())), other)


def test_connections_that_say_nothing_do_not_hold_up_the_others() -> None:
    meeting = Meeting(2, SECRET)
    silent = [socket.create_connection(("127.0.0.1", meeting.port)) for _ in range(50)]
    for connection in silent[:25]:
        connection.sendall(os.urandom(200))
    other = Process(meeting.port, hello(1, 2))
    (found,) = meeting.wait(soon()).values()
    gets_its_line(meeting, found, other)
    for connection in silent:
        connection.close()


def test_strangers_that_come_again_and_again_do_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meet, "UNPROVED", 8)
    meeting = Meeting(2, SECRET)
    silent = [socket.create_connection(("127.0.0.1", meeting.port)) for _ in range(40)]
    other = Process(meeting.port, hello(1, 2))
    over = threading.Event()

    def come_again() -> None:
        while not over.wait(0.2):
            silent.append(socket.create_connection(("127.0.0.1", meeting.port)))

    stranger = threading.Thread(target=come_again)
    stranger.start()
    try:
        (found,) = meeting.wait(soon()).values()
    finally:
        over.set()
        stranger.join()
    gets_its_line(meeting, found, other)
    for connection in silent:
        connection.close()


def test_a_process_in_between_learns_nothing() -> None:
    """It has no secret: it ends the encryption on both sides and passes on what each says."""
    meeting = Meeting(2, SECRET)
    middle = socket.create_server(("127.0.0.1", 0))

    def between() -> None:
        connection, _ = middle.accept()
        victim = tls.context(dials=False).wrap_socket(connection, server_side=True)
        onward = socket.create_connection(("127.0.0.1", meeting.port))
        launcher = tls.context(dials=True).wrap_socket(onward)
        for _ in range(2):
            meet._send(launcher, meet._receive(victim))
        with pytest.raises(RosterError):
            meet._receive(launcher)
        victim.close()
        launcher.close()
        middle.close()

    thread = threading.Thread(target=between)
    thread.start()
    other = Process(middle.getsockname()[1], hello(1, 2), patience=0.5)
    with pytest.raises(RosterError, match="does not prove that it belongs to this session"):
        meeting.wait(soon(2))
    thread.join(10)
    other.join(10)
    meeting.close()
    assert not other.line
    assert other.error


def test_a_launcher_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(RosterError, match=f"is not reached: 127.0.0.1 port {port}: Connection refused; does it run"):
        follow([("127.0.0.1", port)], hello(1, 2), SECRET, soon(0))
    with pytest.raises(RosterError, match="no-such-host.invalid port 1: Name or service not known"):
        follow([("no-such-host.invalid", 1)], hello(1, 2), SECRET, soon(0))


def test_secrets_in_files(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"s" * 32 + b"\n")
    path.chmod(0o600)
    assert Secret.in_file(str(path)).check(b"x", SECRET.make(b"x"))
    assert not OTHER.check(b"x", SECRET.make(b"x"))
    assert not SECRET.check(b"y", SECRET.make(b"x"))
    path.chmod(0o644)
    with pytest.raises(RosterError, match=f"others than its owner can read or write the secret {path}: chmod 600"):
        Secret.in_file(str(path))
    path.chmod(0o600)
    os.chown(path, 4711, -1)
    with pytest.raises(RosterError, match="belongs to user 4711"):
        Secret.in_file(str(path))
    for other, words in ((tmp_path, "is not a file"), (tmp_path / "gone", "No such file")):
        with pytest.raises(RosterError, match=words):
            Secret.in_file(str(other))
    with pytest.raises(RosterError, match="can be guessed"):
        Secret(b"short")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b'{"place": 1}', b"[" * 3000])
def test_hellos_that_are_none(data: bytes) -> None:
    with pytest.raises(RosterError):
        Hello.read(data)


SQUAT = """
import socket, sys, time
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print(flush=True)
time.sleep(60)
"""


def test_a_port_that_another_user_has_taken_is_told(caplog: pytest.LogCaptureFixture) -> None:
    if os.geteuid() or not shutil.which("setpriv"):
        machine.lacking("root's rights and `setpriv`, to run a process of another user")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "/usr/bin/python3", "-c", SQUAT, str(port)]
    squatter = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert squatter.stdout is not None and squatter.stdout.readline()
        told = f"user 65533 listens on port {port} of this node, where this session was to meet"
        with pytest.raises(RosterError, match=f"{told}: --meet HOST:PORT"):
            Meeting(2, SECRET, [port])
        Meeting(2, SECRET, [port, 0]).close()
        assert told in caplog.text
    finally:
        squatter.kill()
        squatter.communicate()
