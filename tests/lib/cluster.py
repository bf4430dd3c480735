"""Machines for tests: nodes with names, addresses, files and processes of their own, and a `sshd` on each.

They are namespaces of this kernel, made as root and held up by `netns.py`. The nodes `n1`, `n2`, ... have the addresses
10.77.0.1, 10.77.0.2, ... and fd00:77::1, ... (by the names `n1v6`, ...) on a network that leads nowhere else; so two
clusters, of two pytest workers, have the same addresses and do not meet. `/tmp`, `/run` and `/dev/shm` are each node's
own. All else is as on this machine, of which the session's folder of temporary files is shared too, at its place.

Nothing of a cluster outlives it, and a cluster does not outlive the process that made it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from lib import machine, processes
from lib.processes import Process

READY = 30.0
"""Seconds that what is started for the cluster gets to come up; it needs less than one."""

SETTLE = 10.0
"""Seconds that processes get to end after what they belong to has ended."""

PROGRAMS = ("ip", "ss", "nsenter", "ssh", "ssh-keygen")
SSHD = "/usr/sbin/sshd"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SSH_CONFIG = """
Host *
    User root
    IdentityFile {folder}/key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
    ControlPath none
"""

SSHD_CONFIG = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
PrintMotd no
PidFile none
MaxStartups 200
MaxSessions 200
Subsystem sftp internal-sftp
"""


NETWORK = "10.77.0"
NETWORK6 = "fd00:77"
"""What the nodes' addresses begin with, those of IPv4 and of IPv6."""


class HasPid(Protocol):
    pid: int


@functools.cache
def lacking() -> str:
    """Return what keeps tests from making nodes, empty if nothing does."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    missing += [name for name in (SSHD,) if not os.path.exists(name)]
    if missing:
        return f"{', '.join(missing)} (Debian's iproute2, util-linux, openssh-client and openssh-server)"
    return machine.namespaces_lacking()


_libc = ctypes.CDLL(None, use_errno=True)
NEWPID = 0x20000000


def _children_in(namespace: int) -> None:
    """Let the processes that this thread starts from now on belong to a PID namespace."""
    if _libc.setns(namespace, NEWPID) < 0:
        raise OSError(ctypes.get_errno(), "setns")


class Node:
    """A node of a cluster.

    Attributes:
        name: Its host name.
        address: Its IPv4 address.
        address6: Its IPv6 address.
        pid: Its first process, which does nothing.
        tmp: Where its `/tmp` lies on this machine.
        services: Processes that were started to be there for as long as the cluster is.
        permanent: Those, and what they have started for good.
    """

    def __init__(self, name: str, number: int, folder: Path) -> None:
        self.name = name
        self.address = f"{NETWORK}.{number}"
        self.address6 = f"{NETWORK6}::{number:x}"
        self.tmp = folder / name
        self.pid = 0
        self.services: list[subprocess.Popen[Any]] = []
        self.permanent: set[int] = set()

    def enter(self, command: Sequence[str], *, pid: bool = True) -> list[str]:
        """Return the command that runs another one on the node.

        It is a process of this machine that waits for one of the node; see `start` for one that is of the node.
        """
        kinds = ("net", "mount", "uts", "ipc", *(("pid",) if pid else ()))
        return ["nsenter", *(f"--{kind}=/proc/{self.pid}/ns/{_file(kind)}" for kind in kinds), "--", *command]

    def popen(self, command: Sequence[str], *, cwd: str | os.PathLike[str] = "/tmp", **options: Any) -> Any:
        """Start a process on the node as `subprocess.Popen` does; it is a child of this one."""
        line = self.enter(["env", "-C", os.fspath(cwd), *command], pid=False)
        own, there = (os.open(f"/proc/{which}/ns/pid", os.O_RDONLY) for which in ("self", self.pid))
        try:
            # No other thread's processes are concerned, but this thread can start no thread meanwhile.
            _children_in(there)
            try:
                return subprocess.Popen(line, **options)
            finally:
                _children_in(own)
        finally:
            os.close(own)
            os.close(there)

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a process on the node: this one's without what points elsewhere, and more."""
        return {**machine.clean_environment(), "TMPDIR": "/tmp", "HOSTNAME": self.name, **(more or {})}

    def start(self, *command: str | os.PathLike[str], env: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Start a process on the node, with text from and to it where pipes are asked for.

        Args:
            command: The command line.
            env: Additions to the environment.
            options: As those of `subprocess.Popen`.
        """
        settings = {"stdin": subprocess.DEVNULL, "text": True, "start_new_session": True, **options}
        return self.popen([os.fspath(word) for word in command], env=self.environment(env), **settings)

    def run(
        self, *command: str | os.PathLike[str], timeout: float = READY, check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a process on the node to its end.

        Raises:
            AssertionError: It failed, unless that is not to be checked, or did not end in time; the text says what it
                has printed, and what runs on the node.
        """
        line = " ".join(map(os.fspath, command))
        process = self.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            running = processes.tree(self.processes())
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"{self.name}: {line}: no end in {timeout:g} s\n{running}\n{out}\n{err}") from None
        done = subprocess.CompletedProcess(list(command), process.returncode, out, err)
        assert not check or done.returncode == 0, f"{self.name}: {line}: exit code {done.returncode}\n{out}\n{err}"
        return done

    def processes(self) -> list[Process]:
        """Return the processes that live on the node, but for those that belong to the cluster."""
        namespace = os.readlink(f"/proc/{self.pid}/ns/pid")
        own = {self.pid, *self.permanent}
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in own and _link(f"/proc/{name}/ns/pid") == namespace:
                process = processes.read(int(name))
                if process and process.state not in "ZX":
                    found.append(process)
        return found

    def serve(self, *command: str, log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[Any]:
        """Start a process that belongs to the cluster."""
        # Not one of the test that happens to be the first which needs it.
        settings = {**self.environment(env), "PATH": PATH}
        settings.pop("PYPMIX_TEST_OWNER", None)
        with log.open("wb") as out:
            service = self.popen(
                command, env=settings, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self.services.append(service)
        self.permanent.add(service.pid)
        return service

    def settled(self) -> None:
        """Take all that runs on the node now for something that is there for as long as the cluster is."""
        self.permanent.update(process.pid for process in self.processes())

    def __repr__(self) -> str:
        return f"<Node {self.name}>"


def _file(kind: str) -> str:
    return {"mount": "mnt"}.get(kind, kind)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


class Cluster:
    """Nodes that are joined by a network.

    Args:
        size: How many nodes there are.
        folder: An empty folder for what the cluster writes down; it is not removed.
        shared: Folders of this machine that the nodes see at their places, even below `/tmp`.

    Attributes:
        nodes: The nodes by name.
        folder: The cluster's folder; nodes see it too.
        ssh_config: The configuration with which `ssh` reaches the nodes; on the nodes it is the system's own.
    """

    def __init__(self, size: int, folder: Path, shared: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.ssh_config = folder / "ssh_config"
        self.nodes = {name: Node(name, number, folder) for number in range(1, size + 1) for name in (f"n{number}",)}
        self._shared = [folder, *shared]
        self._guard: subprocess.Popen[str] | None = None
        self._down: set[str] = set()
        self._cuts: set[tuple[str, str]] = set()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def open(self) -> Cluster:
        """Make the nodes, with a `sshd` on each.

        Raises:
            RuntimeError: They did not come up; the text says why.
        """
        self.folder.chmod(0o755)
        for node in self:
            node.tmp.mkdir()
            node.tmp.chmod(0o1777)
        keys = self._make_keys()
        binds = self._configure(keys)
        specification = {
            "nodes": [
                {
                    "name": node.name,
                    "addresses": [f"{node.address}/24", *([f"{node.address6}/64"] if ipv6() else [])],
                    "tmp": str(node.tmp),
                }
                for node in self
            ],
            "hub": ["10.77.0.254/24", *(["fd00:77::fe/64"] if ipv6() else [])],
            "binds": binds,
            "keep": self._kept(),
        }
        with (self.folder / "netns.log").open("w") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", str(Path(__file__).with_name("netns.py")), json.dumps(specification)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # What ends pytest, as ^C does, shall not end it first.
                start_new_session=True,
                env={"PATH": PATH},
                cwd="/",
            )
        assert self._guard.stdout is not None
        ready, _, _ = select.select([self._guard.stdout], [], [], READY)
        line = self._guard.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise RuntimeError(f"the nodes did not come up\n{(self.folder / 'netns.log').read_text()}")
        for node, pid in zip(self, json.loads(line)["nodes"], strict=True):
            node.pid = pid
        for node in self:
            node.serve(SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config"), log=self.folder / f"{node.name}.sshd")
        for node in self:
            self.until(f"sshd on {node.name}", functools.partial(self.listening, node, 22))
        return self

    def close(self) -> None:
        """End all that runs on the nodes, and the nodes."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None and guard.stdout is not None
        guard.stdin.close()
        try:
            guard.wait(SETTLE)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        guard.stdout.close()
        for node in self:
            # A first process is there until all of its namespace have been waited for.
            for service in node.services:
                service.wait(SETTLE)

    def _kept(self) -> list[str]:
        """Return the folders that nodes need and that lie below what they have for themselves."""
        needed = [*self._shared, machine.ROOT, Path(sys.prefix), Path(sys.base_prefix), machine.provision.FOLDER]
        inside = {str(path.resolve()) for path in needed if path.exists()}
        return sorted(path for path in inside if path.startswith(("/tmp/", "/run/", "/dev/shm/")))

    def _make_keys(self) -> Path:
        keys = self.folder / "ssh"
        keys.mkdir(mode=0o700)
        for name in ("key", "host_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", str(keys / name)]
            subprocess.run(command, check=True, timeout=READY, stdin=subprocess.DEVNULL, capture_output=True)
        return keys

    def _configure(self, keys: Path) -> list[list[str]]:
        """Write the files by which nodes and `ssh` know each other; return those that nodes see in place of others."""
        names = [(node.address, node.name) for node in self]
        names += [(node.address6, f"{node.name}v6") for node in self]
        lines = ["127.0.0.1 localhost", "::1 localhost", "10.77.0.254 hub", *(" ".join(pair) for pair in names)]
        known = (keys / "host_key.pub").read_text()
        texts = {
            "hosts": "\n".join(lines) + "\n",
            "resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
            "ssh_config": SSH_CONFIG.format(folder=keys),
            "sshd_config": SSHD_CONFIG.format(folder=keys),
            "bashrc": "",
        }
        (keys / "known_hosts").write_text("".join(f"{address},{name} {known}" for address, name in names))
        for name, text in texts.items():
            (self.folder / name).write_text(text)
        places = {"hosts": "/etc/hosts", "resolv.conf": "/etc/resolv.conf", "ssh_config": "/etc/ssh/ssh_config"}
        # A shell that sshd starts would read what this user has it do; the nodes would wait for each other there.
        places["bashrc"] = os.path.expanduser("~/.bashrc")
        return [[str(self.folder / name), place] for name, place in places.items() if os.path.exists(place)]

    def listening(self, node: Node, port: int) -> bool:
        """Tell whether something listens on a port of a node."""
        for name in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{node.pid}/net/{name}").read_text().splitlines()[1:]:
                    words = line.split()
                    if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                        return True
        return False

    def until(self, what: str, there: Callable[[], object], seconds: float = READY) -> None:
        """Wait until something is so.

        Raises:
            AssertionError: It is not so in time; the text says what runs on the nodes.
        """
        deadline = time.monotonic() + seconds
        while not there():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {seconds:g} s\n{self.report()}")
            time.sleep(0.01)

    def report(self) -> str:
        """Return what runs on the nodes, for a person."""
        return "\n".join(f"on {node.name}:\n{processes.tree(node.processes())}" for node in self)

    def wait_gone(self, seconds: float = SETTLE) -> str:
        """Wait until nothing runs on any node but what belongs to the cluster; return what still does."""
        deadline = time.monotonic() + seconds
        while any(node.processes() for node in self):
            if time.monotonic() > deadline:
                return self.report()
            time.sleep(0.02)
        return ""

    @staticmethod
    def kill(process: HasPid) -> None:
        """End a process by SIGKILL."""
        os.kill(process.pid, signal.SIGKILL)

    @staticmethod
    def stop(process: HasPid) -> None:
        """Let a process stand still."""
        processes.stop(process.pid)

    @staticmethod
    def resume(process: HasPid) -> None:
        """Let a process that stands still go on."""
        os.kill(process.pid, signal.SIGCONT)

    def link_down(self, name: str) -> None:
        """Pull the cable of a node: nothing comes or goes, and nobody is told."""
        self._ip_of_the_hub("link", "set", name, "down")
        self._down.add(name)

    def link_up(self, name: str) -> None:
        """Plug the cable of a node in again."""
        self._ip_of_the_hub("link", "set", name, "up")
        self._down.discard(name)

    def reset(self, name: str, spared: Sequence[int] = (22,)) -> int:
        """Reset the connections of a node with others, as a firewall does that forgets them; return how many.

        Args:
            name: The node.
            spared: The ports whose connections stay.
        """
        words = ["state", "established", "(", "dst", f"{NETWORK}.0/24", "or", "dst", f"[{NETWORK6}::/64]", ")"]
        for port in spared:
            words += ["and", "sport", "!=", f":{port}", "and", "dport", "!=", f":{port}"]
        command = ["nsenter", f"--net=/proc/{self[name].pid}/ns/net", "ss", "--kill", "-Htn", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=READY, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return len(done.stdout.splitlines())

    def cut(self, a: str, b: str) -> None:
        """Let two nodes no longer reach each other; what one sends the other vanishes."""
        self._cuts.add((a, b))
        for one, other in ((self[a], self[b]), (self[b], self[a])):
            for address in self._addresses(other):
                # No machine on the network has this address of hardware.
                word = ("neigh", "replace", address, "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "eth0")
                one_ip(one, *word)

    def mend(self, a: str, b: str) -> None:
        """Let two nodes reach each other again."""
        self._cuts.discard((a, b))
        for one, other in ((self[a], self[b]), (self[b], self[a])):
            for address in self._addresses(other):
                one_ip(one, "neigh", "del", address, "dev", "eth0")

    @staticmethod
    def _addresses(node: Node) -> list[str]:
        return [node.address, *([node.address6] if ipv6() else [])]

    def _ip_of_the_hub(self, *words: str) -> None:
        assert self._guard is not None
        _do("nsenter", f"--net=/proc/{self._guard.pid}/ns/net", "ip", *words)

    @contextlib.contextmanager
    def unshared(self, folder: str | os.PathLike[str]) -> Iterator[None]:
        """Give each node an empty folder of its own in place of a shared one; to be called when nothing uses it."""
        for node in self:
            _do(*node.enter(["mount", "-t", "tmpfs", "none", os.fspath(folder)]))
        try:
            yield
        finally:
            for node in self:
                _do(*node.enter(["umount", "--lazy", os.fspath(folder)]))

    def restore(self) -> str:
        """Put everything as it was at the beginning; return what had been left on the nodes."""
        for name in sorted(self._down):
            self.link_up(name)
        for a, b in sorted(self._cuts):
            self.mend(a, b)
        left = self.wait_gone()
        while found := [process for node in self for process in node.processes()]:
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.02)
        for node in self:
            for path in node.tmp.iterdir():
                # The mount points of what nodes share stay.
                if not any(Path("/tmp", path.name) in Path(kept).parents for kept in self._kept()):
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        return left


def one_ip(node: Node, *words: str) -> None:
    """Carry out a command of `ip` in the network of a node."""
    _do("nsenter", f"--net=/proc/{node.pid}/ns/net", "ip", *words)


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


@functools.cache
def ipv6() -> bool:
    """Tell whether this kernel has IPv6."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6):
        return os.path.exists("/proc/net/if_inet6")
    return False


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of three nodes for the rest of the session."""
    if lacking():
        machine.lacking(lacking())
    found = Cluster(3, tmp_path_factory.mktemp("nodes"), [tmp_path_factory.getbasetemp()])
    try:
        yield found.open()
    finally:
        found.close()


@pytest.fixture
def cluster(three_nodes: Cluster) -> Iterator[Cluster]:
    """Three nodes, on which nothing may be left after the test."""
    yield three_nodes
    left = three_nodes.restore()
    if left:
        pytest.fail(f"left on nodes:\n{left}", pytrace=False)
