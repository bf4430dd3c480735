"""Other users of the machine: they get into no server, and no client talks to theirs.

The attackers are real processes of another user, and so are victims that are not root's. Each attack comes with an
honest client of the victim's own user.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import pypmix
from lib import machine
from lib.processes import stop
from pypmix.standard.types import App
from pypmix.wire.frames import frame
from pypmix.wire.handshake import FLAG_CLIENT, FLAG_TOOL_NEEDS_ID, Hello, encode_hello, native_credential
from pypmix.wire.messages import Command, request_layout

pytestmark = pytest.mark.timeout(90)

ATTACKER, VICTIM = 65533, 65532
"""Users whom nobody is."""

PYTHON = "/usr/bin/python3"
"""One that other users can run: that of the tests may lie below /root."""

WAIT = 30
RELEASE = (5, 0, 11)

HOST = """
import sys
from pypmix.host.job import Application
from pypmix.host.local import LocalHost
host = LocalHost([Application(tuple(sys.argv[1:]), 1)], own_process=True, grace=1)
sys.exit(host.run().code)
"""

RANK = """
import os, time
from pypmix import Client
from pypmix.standard.errors import PMIxError
beside = os.environ.pop("PYPMIX_SERVER_SOCKET", "")
for way, more in (("tcp", {}), ("unix", {"PYPMIX_SERVER_SOCKET": beside})):
    try:
        with Client(engine="python", singleton="forbid", env={**os.environ, **more}) as me:
            me.fence(timeout=10)
        print("way", way, "met", flush=True)
    except PMIxError as error:
        print("way", way, "failed", str(error).replace(chr(10), " "), flush=True)
print("served-at", os.environ["PMIX_NAMESPACE"], os.environ["PMIX_SERVER_URI41"].rpartition(":")[2], flush=True)
while True:
    time.sleep(60)
"""

NO_NETLINK = """
import ctypes, os, struct, sys
number = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
# Load the number of the call; if it is socket(), load its first argument; AF_NETLINK (16) is not supported.
program = b"".join(struct.pack("HBBI", *step) for step in (
    (0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, 16), (0x06, 0, 0, 0x00050000 | 97),
    (0x06, 0, 0, 0x7FFF0000)))
held = ctypes.create_string_buffer(program, len(program))
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Program(6, ctypes.addressof(held)))):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command in a sandbox where no netlink socket can be opened."""


def user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


@pytest.fixture(scope="module")
def place():
    """Return a folder that all users can read, with pypmix in it and a place that all can write to."""
    if os.geteuid() != 0:
        machine.lacking("root's rights, to run processes of other users")
    for name in ("setpriv", PYTHON, "unshare"):
        if not shutil.which(name):
            machine.lacking(f"`{name}`, to run processes of other users")
    folder = Path(tempfile.mkdtemp(prefix="pypmix-users-"))
    folder.chmod(0o755)
    try:
        shutil.copytree(
            Path(pypmix.__file__).parent, folder / "lib" / "pypmix", ignore=shutil.ignore_patterns("*.so", "*.pyc")
        )
        shutil.copy(Path(__file__).parents[1] / "lib" / "intruder.py", folder)
        (folder / "rank.py").write_text(RANK)
        for path in (folder / "lib").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        # A umask may have made them private.
        for path in (folder / "lib", folder / "intruder.py", folder / "rank.py"):
            path.chmod(0o755)
        open_to_all = folder / "open"
        open_to_all.mkdir()
        open_to_all.chmod(0o1777)
        yield folder
    finally:
        shutil.rmtree(folder)


class Victim:
    """A running job of a user, what it says, and what others want of it."""

    def __init__(self, place, uid, *wrap, command=(), **environment):
        self.place, self.uid = place, uid
        self.mark = place / "open" / f"mark-{os.urandom(4).hex()}"
        self.lines = []
        self.heard = threading.Condition()
        env = {"PATH": os.environ["PATH"], "TMPDIR": str(place / "open")}
        if not command:
            env["PYTHONPATH"] = str(place / "lib")
        command = command or [*user(uid), *wrap, PYTHON, "-c", HOST, PYTHON, str(place / "rank.py")]
        self.process = subprocess.Popen(
            command, cwd="/", env={**env, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.nspace, self.port = "", 0

    def open(self):
        _, self.nspace, port = self.line("served-at ").split()
        self.port = int(port)

    def _read(self):
        with self.process.stdout:
            for line in self.process.stdout:
                with self.heard:
                    self.lines.append(line.strip())
                    self.heard.notify_all()

    def line(self, needle):
        """Wait for a line and return it."""

        def found():
            return [line for line in self.lines if needle in line]

        with self.heard:
            assert self.heard.wait_for(found, WAIT), (needle, "\n".join(self.lines))
            return found()[0]

    def hello(self, **changes):
        fields = {
            "psec": "native",
            "credential": native_credential(self.uid, self.uid),
            "flag": FLAG_CLIENT,
            "uid": None,
            "gid": None,
            "nspace": self.nspace,
            "rank": 0,
            "version": "5.0.11",
            "bfrops": "v41",
            "buffer_type": 1,
            "gds": "hash",
        }
        return encode_hello(Hello(**{**fields, **changes}))

    def intrude(self, mode, hello=None, uid=ATTACKER):
        """Have a user spawn a program that leaves a mark; return what came of it."""
        app = App("/bin/sh", ("sh", "-c", f"id -u > {self.mark}"), (), None, 1, ())
        request = frame(0, 101, request_layout(Command.SPAWNNB, RELEASE).encode(1, RELEASE, infos=(), apps=(app,)))
        return intruder(self.place, uid, mode, self.port, (hello or self.hello()).hex(), request.hex())

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(WAIT)
        finally:
            self.process.kill()
            self.process.wait()
            self.reader.join(WAIT)
            self.mark.unlink(missing_ok=True)


def intruder(place, uid, *arguments, told=""):
    command = [*user(uid), PYTHON, str(place / "intruder.py"), *map(str, arguments)]
    done = subprocess.run(command, input=told, cwd="/", capture_output=True, text=True, timeout=2 * WAIT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def victim(place):
    """Start a job of a user."""
    started = []

    def start(uid, *wrap, **others):
        started.append(Victim(place, uid, *wrap, **others))
        started[-1].open()
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.mark.parametrize("uid", [0, VICTIM], ids=["root", "a user"])
def test_nobody_else_gets_in(victim, uid):
    """Neither as a rank whose name is known, nor as a tool, however the socket is dressed up."""
    job = victim(uid)
    assert job.line("way tcp ") == "way tcp met"
    assert job.line("way unix ") == "way unix met"
    tool = {"flag": FLAG_TOOL_NEEDS_ID, "uid": uid, "gid": uid, "nspace": None, "rank": None}
    outcome = {
        (mode, kind): job.intrude(mode, hello)
        for mode in ("plain", "device", "index", "mapped")
        for kind, hello in (("rank", job.hello()), ("tool", job.hello(**tool)))
    }
    assert set(outcome.values()) == {"refused"}, outcome
    assert not job.mark.exists()
    # Their own user, bound to a device: the kernel does not find the socket by its addresses, so nobody knows.
    if uid == 0:
        assert job.intrude("device", uid=uid) == "refused"
    assert job.intrude("plain", uid=uid) == "welcomed"


@pytest.mark.parametrize("uid", [0, VICTIM], ids=["root", "a user"])
def test_who_is_gone_before_it_is_accepted_is_not_believed(victim, uid):
    job = victim(uid)
    stop(job.process.pid)
    try:
        assert job.intrude("vanish") == "gone"
    finally:
        job.process.send_signal(signal.SIGCONT)
    # Connections are taken in the order in which they have come: once this one is refused, that one is over.
    assert job.intrude("plain") == "refused"
    time.sleep(0.2)
    assert not job.mark.exists(), "a program of another user ran"
    assert job.intrude("plain", uid=uid) == "welcomed"


def test_an_unmapped_user_namespace_proves_nothing(victim):
    """All users are one there, so that every user would be the job's own."""
    job = victim(VICTIM, "unshare", "--user")
    assert job.line("connections over TCP are refused").count("PYPMIX_SECURITY")
    stranger = job.hello(credential=native_credential(65534, 65534))
    assert job.intrude("plain", stranger) == "refused"
    assert job.intrude("device", stranger) == "refused"
    assert not job.mark.exists()


def test_an_operator_may_rely_on_the_nspace_alone(victim):
    job = victim(VICTIM, "unshare", "--user", PYPMIX_SECURITY="unchecked", PYPMIX_SERVER_OWNER="any")
    job.line("any process of this machine that knows a job")
    assert job.line("way tcp ") == "way tcp met"
    ids = {"credential": native_credential(65534, 65534)}
    tool = {"flag": FLAG_TOOL_NEEDS_ID, "uid": 65534, "gid": 65534, "nspace": None, "rank": None}
    assert job.intrude("plain", job.hello(**ids, **tool)) == "refused"
    assert job.intrude("plain", job.hello(**ids, nspace=f"{job.nspace[:-3]}x@1")) == "refused"
    assert not job.mark.exists()


def test_a_kernel_that_does_not_tell_lets_in_who_comes_over_the_socket_of_the_folder(victim):
    """A sandbox without netlink: no connection over TCP is taken, and the server says what to do."""
    job = victim(VICTIM, PYTHON, "-c", NO_NETLINK)
    line = job.line("connections over TCP are refused")
    assert "PYPMIX_SECURITY=munge" in line and "PYPMIX_SECURITY=unchecked" in line and "sock_diag" in line
    assert job.line("way unix ") == "way unix met"
    # The client cannot know either whose server it is.
    assert "does not tell whose server" in job.line("way tcp ")
    for uid in (ATTACKER, VICTIM):
        assert job.intrude("plain", uid=uid) == "refused"
    assert not job.mark.exists()


def test_no_network_is_needed(victim):
    """In a network namespace whose loopback interface is down, nobody can connect over TCP."""
    if machine.namespaces_lacking():
        machine.lacking(machine.namespaces_lacking())
    job = victim(0, "unshare", "--net")
    assert "cannot connect to itself" in job.line("connections over TCP are refused")
    assert job.line("way unix ") == "way unix met"
    assert "failed" in job.line("way tcp ")


def test_the_socket_of_the_folder_is_not_for_others(victim, place):
    job = victim(VICTIM)
    (path,) = (place / "open").glob("pypmix-*/pypmix-*")
    assert path.is_socket()
    command = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
    for uid, allowed in ((ATTACKER, False), (VICTIM, True)):
        done = subprocess.run([*user(uid), PYTHON, "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == allowed, done.stderr
    assert (
        "PermissionError"
        in subprocess.run([*user(ATTACKER), PYTHON, "-c", command], capture_output=True, text=True, check=False).stderr
    )
    assert job.process.poll() is None


@pytest.mark.parametrize("uid", [0, VICTIM], ids=["root", "a user"])
def test_the_nspace_is_nowhere_to_be_seen(victim, place, uid):
    job = victim(uid)
    hidden = job.nspace.partition("@")[0].rpartition("-")[2]
    # 40 random bits, beside the kernel's proof of the user.
    assert len(hidden) >= 8 and hidden.isalnum()
    assert intruder(place, ATTACKER, "look", place / "open", told=hidden) == "nothing"
    # It would have been found where it can be seen.
    assert intruder(place, uid, "look", place / "open", told=hidden) != "nothing"


NATIVE_RANK = (
    "port=$(env | sed -n 's/^PMIX_SERVER_URI.*:\\([0-9]*\\)$/\\1/p' | head -1); "
    "echo served-at $PMIX_NAMESPACE $port; exec sleep 100"
)


def test_a_native_server_admits_no_tool_of_somebody_else(victim, place):
    """The library takes a tool's word for its user, and does not say which connection it speaks of."""
    if not machine.extension():
        machine.lacking("the native engine")
    command = [sys.executable, "-m", "pypmix", "run", "--server-engine", "native", "-n", "1", "sh", "-c", NATIVE_RANK]
    job = victim(0, command=command)
    tool = job.hello(flag=FLAG_TOOL_NEEDS_ID, uid=0, gid=0, nspace=None, rank=None)
    assert {mode: job.intrude(mode, tool) for mode in ("plain", "device", "mapped")} == dict.fromkeys(
        ("plain", "device", "mapped"), "refused"
    )
    assert not job.mark.exists()
    # Nobody but the attackers was kept out.
    line = [sys.executable, "-m", "pypmix", "ps", "--pid", str(job.process.pid)]
    env = {**os.environ, "TMPDIR": str(place / "open")}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=WAIT, check=False)
    assert job.nspace in done.stdout, (done.stderr, job.lines)


CLIENT = """
import os, sys
from pypmix import Client
try:
    Client(engine="python", singleton="forbid").open()
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("uid", [0, VICTIM], ids=["root", "a user"])
@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("allowed", ["", str(ATTACKER), "any", "65531"])
def test_a_client_tells_nothing_to_a_server_of_somebody_else(place, uid, kind, allowed):
    path = str(place / "open" / f"fake-{os.urandom(4).hex()}") if kind == "unix" else ""
    fake = subprocess.Popen(
        [*user(ATTACKER), PYTHON, str(place / "intruder.py"), "serve", path], stdout=subprocess.PIPE, text=True
    )
    try:
        said = fake.stdout.readline().strip()
        uri = f"server.0;tcp4://127.0.0.1:{1 if path else said}"
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(place / "lib"),
            "PMIX_NAMESPACE": "job",
            "PMIX_RANK": "0",
            "PMIX_SERVER_URI41": uri,
            "PMIX_VERSION": "5.0.11",
            "PYPMIX_SERVER_OWNER": allowed,
        }
        if path:
            env["PYPMIX_SERVER_SOCKET"] = f"{uri} {path}"
        command = [*user(uid), PYTHON, "-c", CLIENT]
        done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=WAIT, check=False)
        told = int(fake.stdout.readline())
    finally:
        fake.kill()
        fake.wait()
        fake.stdout.close()
        if path:
            os.unlink(path)
    if allowed in ("", "65531"):
        assert told == 0
        assert "Unreachable" in done.stdout and str(ATTACKER) in done.stdout, done.stdout + done.stderr
    else:
        assert told > 0, done.stdout + done.stderr


def test_a_native_client_asks_too(place):
    """Before the library connects, which looks at nothing."""
    if not machine.extension():
        machine.lacking("the native engine")
    fake = subprocess.Popen(
        [*user(ATTACKER), PYTHON, str(place / "intruder.py"), "serve", ""], stdout=subprocess.PIPE, text=True
    )
    try:
        uri = f"server.0;tcp4://127.0.0.1:{fake.stdout.readline().strip()}"
        env = {
            **os.environ,
            "PMIX_NAMESPACE": "job",
            "PMIX_RANK": "0",
            "PMIX_VERSION": "4.2.2",
            "PYPMIX_ENGINE": "native",
        }
        env |= {"PMIX_SERVER_URI41": uri, "PMIX_SERVER_URI4": uri}
        command = [sys.executable, "-c", CLIENT.replace('"python"', '"native"')]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=WAIT, check=False)
        assert "Unreachable" in done.stdout and f"user {ATTACKER}" in done.stdout, done.stdout + done.stderr
    finally:
        fake.kill()
        fake.wait()
        fake.stdout.close()


MAPPINGS = {
    "none": ["unshare", "--user"],
    "root": ["unshare", "--user", "--map-root-user"],
    "itself": ["unshare", "--user", "--map-current-user"],
    "another": ["unshare", "--user", "--map-user=4711", "--map-group=4711"],
}
"""User namespaces, as containers without root's rights have them, and how they map their user."""

TRANSPORTS = {"unix": {}, "tcp": {"PYPMIX_SERVER_SOCKET": ""}}

INSIDE = """
import os, sys
from pypmix import Client
for name, value in (pair.split("=") for pair in sys.argv[1:]):
    os.environ[name] = value
with Client(engine="python", singleton="forbid") as me:
    me.fence(timeout=20)
    print("met as user", os.geteuid(), flush=True)
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("uid", [0, VICTIM])
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_ranks_in_user_namespaces_of_any_mapping_are_of_their_user(
    place: Path, mapping: str, uid: int, transport: str
) -> None:
    """The kernel tells the server whose they are, whatever they call themselves."""
    words = MAPPINGS[mapping]
    if not machine.answer(*user(uid), *words, "echo", "inside"):
        machine.lacking(f"user namespaces, by {' '.join(words)}")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(place / "lib"), "TMPDIR": str(place / "open")}
    # Without a map the client cannot tell its server's owner from any other.
    env |= {"PYPMIX_SERVER_OWNER": "any"} if mapping == "none" else {}
    changed = [f"{name}={value}" for name, value in TRANSPORTS[transport].items()]
    command = [*user(uid), PYTHON, "-m", "pypmix", "run", "-n", "2", *words, PYTHON, "-c", INSIDE, *changed]
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=2 * WAIT, check=False)
    assert done.returncode == 0, done.stderr
    seen = {"none": 65534, "root": 0, "itself": uid, "another": 4711}[mapping]
    assert done.stdout.splitlines() == [f"met as user {seen}"] * 2


def test_a_client_that_cannot_tell_the_owner_of_its_server_says_so() -> None:
    program = "from pypmix import Client; Client(engine='python', singleton='forbid').open()"
    command = [sys.executable, "-m", "pypmix", "run", "-n", "1", "unshare", "--user", sys.executable, "-c", program]
    if not machine.answer("unshare", "--user", "echo", "inside"):
        machine.lacking("user namespaces")
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode != 0
    assert "PYPMIX_SERVER_OWNER" in done.stderr and "as user 65534" in done.stderr, done.stderr


@pytest.mark.parametrize("wrap", [[], ["unshare", "--user", "--map-user=65532"]])
def test_another_user_does_not_get_in_by_a_map(place: Path, victim, wrap: list[str]) -> None:
    """Who calls himself the victim inside is still himself to the kernel."""
    job = victim(VICTIM)
    words = [*user(ATTACKER), *wrap, PYTHON, "-c", "import sys; print('inside')"]
    if wrap and not machine.answer(*words):
        machine.lacking("user namespaces")
    dial = (
        "import os, socket, sys\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.settimeout(10)\n"
        "try:\n    s.sendall(bytes.fromhex(sys.argv[2])); print('answer', s.recv(64))\n"
        "except OSError as error: print('answer', type(error).__name__)\n"
    )
    words = [*user(ATTACKER), *wrap, PYTHON, "-c", dial, str(job.port), job.hello().hex()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT, check=True)
    assert done.stdout.strip() in ("answer b''", "answer ConnectionResetError", "answer BrokenPipeError"), done.stdout
    assert any(f"user {ATTACKER}" in line for line in job.lines) or job.line(f"user {ATTACKER}")


@pytest.mark.usefixtures("place")
def test_a_native_server_warns_where_other_users_run_processes() -> None:
    """Any of them can end it: whether it does not open at all, or runs, that is said first."""
    words = [sys.executable, "-m", "pypmix", "run", "--server-engine", "native", "-n", "1", "true"]
    # Its user is the other one by the time that it prints.
    there = subprocess.Popen([*user(VICTIM), "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE)
    try:
        assert there.stdout is not None and there.stdout.readline()
        warned = subprocess.run(words, capture_output=True, text=True, timeout=WAIT, check=False).stderr
        python = [word for word in words if word not in ("--server-engine", "native")]
        quiet = subprocess.run(python, capture_output=True, text=True, timeout=WAIT, check=False).stderr
    finally:
        there.kill()
        there.communicate()
    assert f"user {VICTIM}" in warned and "can end a server of libpmix" in warned, warned
    assert "can end" not in quiet


CALLS = """
import sys
from pypmix.extras.frameworks.agent import Calls
calls = Calls(b"a function")
print(calls.name, flush=True)
sys.stdin.read()
print("given back", calls.close(), flush=True)
"""
"""Hands a function to the ranks of a node, until its standard input ends."""

CALLED = """
import socket, sys
found = b""
with socket.socket(socket.AF_UNIX) as calls:
    calls.settimeout(20)
    calls.connect("\\0" + sys.argv[1])
    try:
        while piece := calls.recv(4096):
            found += piece
            for frame in ((0).to_bytes(4, "big"), b"a pickle"):
                calls.sendall(len(frame).to_bytes(8, "big") + frame)
    except OSError:
        pass
print("read", found)
"""


@pytest.mark.parametrize(
    ("wrap", "uid", "served"), [([], VICTIM, True), ([], ATTACKER, False), (["unshare", "-U"], ATTACKER, False)]
)
def test_the_functions_of_ranks_are_nobody_elses(place: Path, wrap: list[str], uid: int, served: bool) -> None:
    """In a user namespace without a map all others seem to be of the victim's own user."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(place / "lib")}
    pipe = subprocess.PIPE
    victim = subprocess.Popen([*user(VICTIM), *wrap, PYTHON, "-c", CALLS], env=env, stdin=pipe, stdout=pipe, text=True)
    try:
        assert victim.stdout is not None
        name = victim.stdout.readline().strip()
        words = [*user(uid), PYTHON, "-c", CALLED, name]
        read = subprocess.run(words, env=env, capture_output=True, text=True, timeout=WAIT, check=True).stdout
        given, _ = victim.communicate("", WAIT)
    finally:
        victim.kill()
        victim.wait()
    assert ("a function" in read, "a pickle" in given) == (served, served), (read, given)
