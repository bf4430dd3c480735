"""Proves on real nodes that whoever is hit at any moment, operations end, people are told why, and nothing is left.

A job of two ranks on each of three machines does every collective while one of them, a daemon, the launcher, the guard,
the agent that started a daemon, a cable or a whole machine is hit. `PYPMIX_FAULT_ROUNDS` is how many jobs are hit, and
`PYPMIX_FAULT_SEED` what chooses the moments; `tox -e nodefaults` does hundreds.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import machine, processes
from lib.cluster import Cluster, Node
from lib.job import Job
from lib.leftovers import paths_in
from lib.processes import Process

PROGRAM = Path(__file__).with_name("shaken.py")
ROUNDS = max(0, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))
SEED = int(os.environ.get("PYPMIX_FAULT_SEED", "1"))
SLURM = os.environ.get("PYPMIX_FAULT_SLURM") == "1"
"""Whether jobs are those of Slurm; otherwise they are started by ssh, or by hand on each machine."""
RUN = [sys.executable, "-m", "pypmix", "run"]

NODES = ("n1", "n2", "n3")
EACH = 2
RANKS = EACH * len(NODES)
STEPS = 150

LOST = 45.0
"""Seconds in which a machine that no longer answers counts as lost."""

LONGEST = 20.0
"""Seconds within which an operation ends where a process was hit, whatever its own limit is."""

GONE = 20.0
"""Seconds within which all processes and files are gone after the launcher."""

PATIENCE = 30.0
"""Seconds for which processes that were started alike wait for each other, by default."""

QUIET = ("nobody", "a short cut", "a short stop", "a guard", "resets")
"""What a job does not notice."""

ANY = ("any cut", "any stop", "any cut between two", "any stop of a daemon", "any stop of the launcher")
"""What takes some time, which may be that of a keep-alive or not: a job goes on, or has lost machines."""

MEETING = 7777
"""The port where daemons that are started by hand meet the launcher."""

STARTS = (" by ssh", " on this machine", f"which meet at n1:{MEETING}")
"""The ends of lines that name nodes before anything is lost."""

KEEP_ALIVE = 6.0
"""Seconds after which a machine that does not answer is lost, in such a round."""

BY_SIGNALS = ("a rank", "a daemon", "two daemons", "the launcher", "TERM", "INT", "a rank stands still", "two hits")
HITS = (*QUIET, *BY_SIGNALS, "an agent", *ANY)
HITS_OF_SLURM = ("nobody", "a guard", *BY_SIGNALS, "the engine")
"""Not the network, nor whole machines: it takes Slurm itself long to find back to them."""

LONG = ("a long cut", "a long stop")
SECOND = ("a rank", "a daemon", "the launcher", "TERM", "a guard", "an agent", "a short cut", "a short stop")
"""What may be hit twice in a row."""

IN_CI = ("a daemon", "the launcher", "a rank", "a short cut", "resets")


def rounds() -> list[tuple[str, int]]:
    """Return what is hit, and with which seed: everything in turn, and what takes long now and then."""
    if not ROUNDS:
        return [(what, SEED * 1000 + number) for number, what in enumerate(IN_CI)]
    hits = HITS_OF_SLURM if SLURM else HITS
    found = [(hits[number % len(hits)], SEED * 100_003 + number) for number in range(ROUNDS)]
    for place in range(20, 0 if SLURM else ROUNDS, 40):
        found[place] = (LONG[place // 40 % len(LONG)], found[place][1])
    return found


class Shaken:
    """A job over the machines that is hit.

    Args:
        cluster: The machines.
        folder: An empty folder that all of them see.
        what: What is going to be hit.
        chance: What decides.
    """

    def __init__(self, cluster: Cluster, folder: Path, what: str, chance: random.Random) -> None:
        self.cluster = cluster
        self.folder = folder
        self.told = folder / "told"
        self.told.mkdir()
        self.keep = chance.random() < 0.5
        self.patience = chance.choice((4, 40))
        self.way = chance.choice(("salloc", "srun") if SLURM else ("ssh", "ssh", "symmetric"))
        program = [sys.executable, str(PROGRAM), str(chance.randrange(10**6)), str(STEPS), str(self.patience), *NODES]
        self.job = Job([], folder / "job", {"TMPDIR": "/tmp"}, limit=150, popen=cluster["n1"].popen)
        own = {name: text for name, text in self.job.environment.items() if name.startswith("PYPMIX_TEST_")}
        own |= {"PYTHONPATH": self.job.environment["PYTHONPATH"], "FAULTS_FOLDER": str(self.told)}
        own |= {"FAULTS_MIXED": "1"} if machine.extension() and chance.random() < 0.3 else {}
        settings = [f"{name}={text}" for name, text in own.items()]
        self.options = ["-n", str(RANKS), "--map-by", f"ppr:{EACH}:node", "--oversubscribe"]
        self.options += ["--keep-going"] if self.keep else []
        self.options += ["--keep-alive", f"{KEEP_ALIVE:g}"] if what in ANY else []
        self.line = [*self.options, "env", *settings, *program]
        self.others: list[subprocess.Popen[str]] = []
        self.hits: list[str] = []

    def start(self) -> None:
        if self.way == "ssh":
            self.job.command = [*RUN, "--host", ",".join(f"{name}:8" for name in NODES), *self.line]
        elif self.way == "salloc":
            self.job.command = ["salloc", "--quiet", "-N3", "--ntasks-per-node=4", *RUN, *self.line]
        elif self.way == "srun":
            self.job.command = ["srun", "-N3", "--ntasks-per-node=1", "--cpus-per-task=4", *RUN, *self.line]
        else:
            secret = self.folder / "secret"
            secret.touch(0o600)
            secret.write_text(secrets.token_hex(32))
            meet = ["--meet", f"n1:{MEETING}", "--secret-file", str(secret)]
            for place in (1, 2):
                words = [*RUN, "--symmetric", f"{place}/{len(NODES)}", *meet, *self.line]
                self.others.append(self.cluster[NODES[place]].start(*words, stdout=-1, stderr=subprocess.STDOUT))
            self.job.command = [*RUN, "--symmetric", f"0/{len(NODES)}", *meet, *self.line]
        self.job.start()

    # What runs there

    def ranks(self, node: Node) -> dict[int, Process]:
        """Return the ranks of the job on a machine that have come."""
        found = {}
        for process in node.processes():
            if str(PROGRAM) in process.command and process.command.startswith(sys.executable):
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                    values = dict(word.partition(b"=")[::2] for word in words)
                    if b"PMIX_RANK" in values:
                        found[int(values[b"PMIX_RANK"])] = process
        return found

    def launcher(self) -> int:
        """Return the launcher's process on the first machine."""
        if self.way in ("ssh", "symmetric"):
            return self.job.pid
        found = [each for each in self.cluster["n1"].processes() if each.command.startswith(" ".join(RUN))]
        parents = {each.pid for each in found}
        return next((each.pid for each in found if each.parent not in parents), 0)

    def daemon(self, node: Node) -> Process | None:
        """Return the process that serves the ranks of a machine."""
        known = {process.pid: process for process in node.processes()}
        parents = [known[rank.parent] for rank in self.ranks(node).values() if rank.parent in known]
        return parents[0] if parents else None

    def up(self) -> int:
        return len(list(self.told.glob("up.*")))

    def story(self) -> str:
        options = f"{self.way}, {self.hits}, keep={self.keep}, patience={self.patience}"
        return f"{options}\n{self.cluster.report()}\n{self.job.report()}"

    # What is hit

    def hit(self, what: str, chance: random.Random) -> list[str]:
        """Do it, and return the machines that are lost by it."""
        names = chance.sample(NODES, len(NODES))
        nodes = [self.cluster[name] for name in names]
        if what == "two hits":
            for each in chance.choices(SECOND[: 5 if SLURM else None], k=2):
                self.hits.append(each)
                self.hit(each, chance)
                time.sleep(chance.choice((0, chance.uniform(0, 1))))
        elif what == "a rank":
            for _, rank in sorted(self.ranks(nodes[0]).items())[:1]:
                _kill(rank.pid)
        elif what in ("a daemon", "two daemons"):
            return self._kill_daemons(nodes[: 1 if what == "a daemon" else 2])
        elif what == "a guard":
            for process in nodes[0].processes():
                if "pypmix-guard" in process.command:
                    _kill(process.pid)
        elif what == "an agent":
            return self._kill_agent(names[0])
        elif what == "the launcher":
            _kill(self.launcher())
        elif what == "the engine":
            for process in self.cluster["n1"].processes():
                if process.command.startswith("srun "):
                    _kill(process.pid)
        elif what == "resets":
            found = 0
            for _ in range(chance.randint(2, 8)):
                found += self.cluster.reset(chance.choice(NODES), (22, MEETING))
                time.sleep(chance.uniform(0, 0.7))
            self.hits.append(f"{found} connections")
        elif what in ("TERM", "INT"):
            if launcher := self.launcher():
                _kill(launcher, signal.Signals[f"SIG{what}"])
        elif what == "a rank stands still":
            for _, rank in sorted(self.ranks(nodes[0]).items())[:1]:
                self._pause([rank], chance.uniform(0.1, 3))
        elif "between" in what:
            self.cluster.cut(*names[:2])
            time.sleep(chance.uniform(0.5, 3) * KEEP_ALIVE)
            self.cluster.mend(*names[:2])
        elif "cut" in what or "stop" in what:
            seconds = {"a": chance.uniform(0.1, 5), "any": chance.uniform(0.3, 2) * KEEP_ALIVE}[what.split()[0]]
            seconds = LOST if "long" in what else seconds
            if "stop" in what:
                self._pause(self._found(what, nodes[0]), seconds)
            else:
                self.cluster.link_down(names[0])
                time.sleep(seconds)
                self.cluster.link_up(names[0])
            if "long" in what and names[0] == "n1":
                # The launcher is on the first machine. One that was cut off has lost both others; one that was stopped
                # is told that it is lost itself, and all daemons end.
                return ["n2", "n3"] if "cut" in what else list(NODES)
            if "long" in what:
                return [names[0]]
        return []

    def _found(self, what: str, node: Node) -> list[Process]:
        """Return what is to stand still: a daemon, the launcher, or a whole machine."""
        if "the launcher" in what:
            return [each for each in (processes.read(self.launcher()),) if each is not None]
        if "a daemon" in what:
            return [each for each in (self.daemon(node),) if each is not None]
        return node.processes()

    def _kill_daemons(self, nodes: list[Node]) -> list[str]:
        lost = []
        for node in nodes:
            daemon = self.daemon(node)
            if daemon is not None:
                _kill(daemon.pid)
                lost.append(node.name)
        return lost

    def _kill_agent(self, name: str) -> list[str]:
        """Kill what stands for a daemon on the launcher's machine."""
        for process in self.cluster["n1"].processes():
            if process.command.startswith("ssh ") and f" {name} " in process.command:
                _kill(process.pid)
                return [name]
        return []

    def _pause(self, found: list[Process], seconds: float) -> None:
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    # What must be so

    def check(self, what: str, lost: list[str]) -> None:
        job = self.job.wait()
        story = f"{what}, lost {lost}: {self.story()}"
        assert not job.hung, story
        for process in self.others:
            try:
                # It waits for a launcher that has not come yet.
                process.wait(PATIENCE + GONE)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"no end on another machine: {story}") from None
        said = [process.stdout.read() for process in self.others if process.stdout is not None]
        story += "".join(f"\n--- another said\n{text}" for text in said)
        slow = "cut" in what or "stop" in what or what == "the engine"
        # A step whose srun was killed goes on: Slurm itself does not notice it.
        left = self.cluster.wait_gone(LOST if slow else GONE)
        assert not left, f"left:\n{left}\n{story}"
        # Where a process and its guard are killed one after the other, nobody is left who could remove their files. So
        # it is where a second process of srun outlives the first for a moment: it has Slurm kill all of the step.
        alone = "a guard" in self.hits and {"the launcher", "a daemon"} & {*self.hits}
        files = [] if alone or what == "the engine" else self._files()
        assert not files, f"left {files}: {story}"
        broken = {path.name: path.read_text() for path in self.told.glob("broken.*")}
        assert not broken, f"{broken}: {story}"
        self._check_operations(what, story)
        self._check_end(what, lost, story)
        for text in (job.stderr, *said):
            assert "failed in the upcall" not in text, story
            if what not in ("INT", "the launcher", "two hits", "the engine"):
                assert "Traceback" not in text.replace("BrokenPipeError", ""), story

    def _check_operations(self, what: str, story: str) -> None:
        longest = LOST if "cut" in what else LONGEST
        for path in self.told.glob("left.*"):
            for name, end, seconds in json.loads(path.read_text())["done"]:
                assert end != "an error without a status", f"{path.name}: {name}: {story}"
                assert seconds < longest, f"{path.name}: {name} took {seconds} s: {end}: {story}"

    def _check_end(self, what: str, lost: list[str], story: str) -> None:
        job = self.job
        finished = {int(path.name.partition(".")[2]) for path in self.told.glob("left.*")}
        if what in ("two hits", "the engine"):
            return
        if what in QUIET or what == "a rank stands still":
            assert job.exit_code == 0, story
            assert finished == set(range(RANKS)), story
            for path in self.told.glob("left.*"):
                assert json.loads(path.read_text())["ended"] == "", f"{path.name}: {path.read_text()[-500:]}: {story}"
            return
        if what in ANY and job.exit_code:
            # Of a process that has not come, nobody knows the name of its machine.
            words = (*NODES, "other processes have come, without")
            assert any(word in self._complaints() for word in words), f"nobody is told what was lost: {story}"
            assert "pypmix.node" not in job.stderr, story
        elif what in ANY:
            assert finished == set(range(RANKS)), story
        elif lost and what != "the launcher":
            stays = {rank for rank in range(RANKS) if NODES[rank // EACH] not in lost}
            if self.up() == RANKS and job.exit_code == 0:
                # It had come to its end before.
                assert finished == set(range(RANKS)), story
                return
            assert job.exit_code not in (0, None), story
            named = any(name in self._complaints() for name in lost)
            assert named, f"nobody is told which machine was lost: {story}"
            if self.keep and self.up() == RANKS:
                assert finished >= stays, f"of {sorted(stays)} only {sorted(finished)} came to their end: {story}"
        elif what == "a rank" and self.keep:
            assert len(finished) >= RANKS - 1, story

    def _complaints(self) -> str:
        """Return what was printed, but for the line that names all nodes at the start."""
        return "\n".join(line for line in self.job.stderr.splitlines() if not line.endswith(STARTS))

    def _files(self) -> list[str]:
        deadline = time.monotonic() + GONE
        while True:
            found = [f"{node.name}: {path}" for node in self.cluster for path in paths_in(node.tmp) if _is_file(path)]
            found = [each for each in found if "pypmix" in each]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def close(self) -> None:
        processes.kill(self.job.mark)
        for process in self.others:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _is_file(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.exists()
    return False


def _kill(pid: int, signum: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.kill(pid, signum)


@pytest.fixture
def shaken(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shaken]:
    """A job that may be started."""
    what, seed = request.getfixturevalue("round_")
    (tmp_path / "job").mkdir()
    slurm = request.getfixturevalue("nodes_with_slurm") if SLURM else None
    environment = slurm.environment if slurm is not None else {}
    found = Shaken(cluster, tmp_path, what, random.Random(seed))
    found.job.environment |= environment
    try:
        yield found
    finally:
        found.close()
        if slurm is not None and what == "the engine":
            # The allocation of an srun that was killed stays until somebody cancels it.
            slurm.cancel()
        elif slurm is not None:
            # It takes a while to notice that its own processes were killed.
            slurm.settle(LOST)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("round_", rounds(), ids=lambda each: f"{each[0].replace(' ', '-')}-{each[1]}")
def test_whatever_is_hit(shaken: Shaken, round_: tuple[str, int]) -> None:
    what, seed = round_
    chance = random.Random(seed + 1)
    shaken.start()
    early = chance.random() < 0.35 and what not in LONG
    if early:
        # While daemons start, or ranks do.
        time.sleep(chance.uniform(0, 4))
    else:
        shaken.cluster.until("all ranks", lambda: shaken.up() == RANKS or not _lives(shaken.job.pid), 60)
        assert shaken.up() == RANKS, shaken.job.wait().report()
        time.sleep(chance.uniform(0, 2))
    shaken.check(what, shaken.hit(what, chance))


def _lives(pid: int) -> bool:
    found = processes.read(pid)
    return found is not None and found.state not in "ZX"
