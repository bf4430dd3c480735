"""A Slurm of two nodes on this machine, for as long as a test session: `srun --mpi=pmix` as another launcher.

Its daemons (munged, slurmctld, a slurmd for each node) listen on the loopback interface only, have all of their state
in a folder, and end with the process that started them. One allocation of both nodes stays for the whole session, in
which each job of a test is a step: that saves the scheduler's time, and a job that fails holds up no other.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lib import processes

NODES = ("sn1", "sn2")
READY = 30.0
"""Seconds that the daemons get to come up; they need one."""

PLUGINS = "/usr/lib/*-linux-gnu/slurm-wlm/mpi_pmix.so"
DAEMONS = ("munged", "slurmctld", "slurmd")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

COMMON = """
ClusterName=pypmix
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
ReturnToService=2
InactiveLimit=0
MailProg=/bin/true
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""
"""What every Slurm of the tests has in its configuration."""

AFFINITY = ("TaskPlugin=task/none", "TaskPlugin=task/affinity\nTaskPluginParam=None")
"""What a Slurm has instead that binds tasks if `srun` is called with `--cpu-bind`."""

CONFIGURATION = """
KillWait=2
SlurmctldHost=localhost(127.0.0.1)
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={ports[0]}
TmpFS={folder}/%n
SelectType=select/linear
NodeName={nodes[0]} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=64
NodeName={nodes[1]} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=64
"""


@functools.cache
def release() -> str:
    """Return the release of Slurm that is installed; empty if none is."""
    srun = shutil.which("srun")
    if srun is None:
        return ""
    told = subprocess.run([srun, "--version"], capture_output=True, text=True, timeout=20)
    return told.stdout.split()[-1] if told.stdout else ""


def lacking() -> str:
    """Return what keeps tests from Slurm, empty if nothing does."""
    missing = [name for name in (*DAEMONS, "srun", "setpriv") if not shutil.which(name, path=PATH)]
    if missing or not glob.glob(PLUGINS):
        text = ", ".join(missing) or "mpi_pmix.so"
        return f"{text} (Debian's munge, slurmctld, slurmd, slurm-client and slurm-wlm-basic-plugins)"
    return "root's rights, to start slurmd" if os.geteuid() != 0 else ""


class Cluster:
    """Two nodes and an allocation of both.

    Attributes:
        folder: What the daemons write to.
        configuration: The path of its `slurm.conf`.
        job: The allocation's number.
        binds: Whether `srun --cpu-bind` binds tasks.
    """

    def __init__(self, folder: Path, binds: bool = False) -> None:
        self.folder = folder
        self.configuration = folder / "slurm.conf"
        self.job = ""
        self.binds = binds
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the daemons, and take the allocation."""
        for name in ("state", "munge", *NODES):
            (self.folder / name).mkdir(mode=0o700)
        self.folder.chmod(0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        text = COMMON.replace(*AFFINITY) if self.binds else COMMON
        text += CONFIGURATION
        self.configuration.write_text(text.format(folder=self.folder, ports=_free_ports(3), nodes=NODES))
        socket_path = self.folder / "munge.socket"
        self._daemon(
            "munged",
            *("--foreground", "--force", "--num-threads=2", f"--key-file={key}", f"--socket={socket_path}"),
            *(f"--{name}={self.folder}/munge/{name}" for name in ("pid-file", "log-file", "seed-file")),
        )
        deadline = time.monotonic() + READY
        self._until(deadline, "munged", socket_path.exists)
        self._daemon("slurmctld", "-D", "-f", str(self.configuration))
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node, "-f", str(self.configuration))
        self._until(deadline, "the nodes", lambda: self._ask("sinfo", "-h", "-o", "%t").split() == ["idle"])
        self._ask("salloc", "--no-shell", "-N", str(len(NODES)), "-J", "tests")
        self._until(deadline, "the allocation", self._allocated)

    def stop(self) -> None:
        """End the daemons; munged is last, since the others cannot speak to each other without it."""
        if self.job:
            self._ask("scancel", self.job)
        for daemon in (*self._daemons[1:], *self._daemons[:1]):
            daemon.terminate()
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # Now and then one that ends a step hangs in that, and slurmd does not wait for it.
        processes.kill(str(self.configuration), variable="SLURM_CONF")

    def command(self, nodes: int) -> list[str]:
        """Return the beginning of the command that runs a step on some of the nodes."""
        srun = ["srun", f"--jobid={self.job}", "--overlap", "--overcommit", "--mpi=pmix", "--kill-on-bad-exit=1"]
        return ["env", f"SLURM_CONF={self.configuration}", *srun, f"--nodelist={','.join(NODES[:nodes])}", f"-N{nodes}"]

    def _environment(self) -> dict[str, str]:
        return {"PATH": PATH, "SLURM_CONF": str(self.configuration), "HOME": str(self.folder), "LC_ALL": "C"}

    def _daemon(self, *command: str) -> None:
        with (self.folder / f"daemon{len(self._daemons)}").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    # Not even a killed session leaves them.
                    ["setpriv", "--pdeathsig", "KILL", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment(),
                    cwd=self.folder,
                )
            )

    def _ask(self, *command: str) -> str:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=self._environment(),
            timeout=READY,
        )
        return done.stdout

    def _allocated(self) -> bool:
        self.job = self._ask("squeue", "-h", "-t", "RUNNING", "-o", "%A").strip()
        return bool(self.job)

    def _until(self, deadline: float, what: str, there: object) -> None:
        while not there():  # type: ignore[operator]
            if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in self._daemons):
                logs = [path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("daemon*"))]
                raise RuntimeError(f"Slurm: {what} did not come up\n" + "\n".join(logs))
            time.sleep(0.05)


def _free_ports(number: int) -> Sequence[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


running: Cluster | None = None
"""The cluster of this session, once a test has needed it."""


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Slurm for the rest of the session."""
    global running
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        running = cluster
        yield cluster
    finally:
        running = None
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)
