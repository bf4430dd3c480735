"""The nodes of a Flux instance.

In an instance (`flux alloc`, `flux batch`, `flux start`) the launcher starts a process on each node by one `flux run`.
It sends the meeting's addresses and a secret to all of them, over the standard input of that job. In a job with one
task on each node (`flux run -N2 --tasks-per-node=1 pypmix run ...`) the first task is the launcher, and the others
connect to it. It puts the addresses and the secret into the job's namespace of Flux's key-value store, which only its
user can read.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time

from pypmix.host.placing import Node
from pypmix.host.rosters.base import RosterError, number
from pypmix.host.rosters.follow import NAMES
from pypmix.host.rosters.group import Group, explained, following
from pypmix.host.rosters.names import expand
from pypmix.host.rosters.proof import Secret
from pypmix.host.rosters.symmetric import PORTS, Place, SymmetricRoster, ports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pypmix.host.rosters.base import Lost, Settings, StartedDaemon

KEY = "pypmix.meet"
"""The key for the meeting's address and the secret, which the first task of a job stores."""

SECONDS = 10.0
"""The timeout in seconds of a command that queries the instance."""


def symmetric(env: Mapping[str, str]) -> bool:
    """Return True if this process is a task of a job with one task on each of several nodes."""
    return number(env, "FLUX_JOB_SIZE") == number(env, "FLUX_JOB_NNODES") > 1 and "FLUX_TASK_RANK" in env


def shares(env: Mapping[str, str]) -> bool:
    """Return True if this process belongs to a job of several tasks that does not have one task on each node."""
    return number(env, "FLUX_JOB_SIZE") > 1 and "FLUX_TASK_RANK" in env and not symmetric(env)


def ask(env: Mapping[str, str], *words: str, text: str = "") -> str:
    """Return the output of a command of Flux.

    Args:
        env: The command's environment.
        words: The words after `flux`.
        text: The command's standard input.

    Raises:
        RosterError: The command fails, or does not end in time.
    """
    what = f"flux {' '.join(words)}"
    try:
        done = subprocess.run(
            ["flux", *words], input=text, capture_output=True, text=True, env=dict(env), timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise RosterError(f"`{what}` has not ended within {SECONDS:g} s") from None
    except OSError as error:
        raise RosterError(f"`{what}` cannot be run: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:]
        raise RosterError(": ".join([f"`{what}` fails", *said]))
    return done.stdout.strip()


class Job(SymmetricRoster):
    """The tasks of a job, one on each node."""

    name = "flux"

    @classmethod
    def place(cls, settings: Settings) -> Place:
        """Return the place that Flux has given this task."""
        env, rank = settings.env, number(settings.env, "FLUX_TASK_RANK")
        if rank == 0:
            host, first, common = socket.gethostname(), ports(os.getpid())[0], os.urandom(32)
            ask(env, "kvs", "put", "--raw", f"{KEY}=-", text=json.dumps([host, first, common.hex()]))
        else:
            text = cls._fetch_meeting_place(settings)
            try:
                host, first, secret = json.loads(text)
                first, common = int(first), bytes.fromhex(secret)
            except (ValueError, TypeError):
                raise RosterError(f"{KEY} of the Flux job is not where a launcher of pypmix meets") from None
        addresses = tuple([(str(host), port) for port in range(first, first + PORTS)])
        return Place(rank, number(env, "FLUX_JOB_SIZE"), Secret(common), addresses)

    @staticmethod
    def _fetch_meeting_place(settings: Settings) -> str:
        """Wait for the value that the first task stores under `KEY`, and return it.

        Raises:
            RosterError: The first task has not stored it in time.
        """
        deadline, pause = time.monotonic() + settings.patience, 0.05
        while True:
            try:
                # Not with `--waitcreate`: in Flux 0.88 it occasionally continues to wait although the key exists.
                return ask(settings.env, "kvs", "get", "--raw", KEY)
            except RosterError as error:
                if time.monotonic() > deadline:
                    text = f"the first task of the Flux job has not said within {settings.patience:g} s where to meet"
                    raise RosterError(f"{text}: {error}") from None
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, once a process of each has joined."""
        try:
            return super().nodes()
        finally:
            # The next run of this job needs a new value, and its tasks may start before this launcher ends.
            with contextlib.suppress(RosterError):
                ask(self._settings.env, "kvs", "unlink", "--force", KEY)


class FluxRoster:
    """The nodes of an instance, on which `flux run` starts the daemons, or of a job, whose tasks become the daemons.

    Args:
        settings: The launcher's settings.
    """

    name = "flux"

    def __init__(self, settings: Settings) -> None:
        env = settings.env
        if shares(env):
            raise RosterError(
                f"this Flux job has {env['FLUX_JOB_SIZE']} tasks on {env.get('FLUX_JOB_NNODES')} nodes, each with a "
                "launcher of its own: start one on each node (flux run --tasks-per-node=1)"
            )
        self._job = Job(settings) if symmetric(env) else None
        self._settings = settings
        self._group: Group | None = None

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return a text with the job or the instance; empty for an instance or a job on one node."""
        env = settings.env
        if "FLUX_TASK_RANK" in env:
            size, job = env.get("FLUX_JOB_SIZE"), env.get("FLUX_JOB_ID")
            return f"task {env['FLUX_TASK_RANK']} of {size} of Flux job {job}" if symmetric(env) else ""
        if "FLUX_URI" not in env:
            return ""
        try:
            # Several brokers may be on one machine, such as with `flux start --test-size=4`.
            nodes = len(set(expand(ask(env, "getattr", "hostlist"))))
        except (RosterError, ValueError):
            # The variable names an instance that has ended.
            return ""
        return f"{nodes} nodes of the Flux instance {env['FLUX_URI']}" if nodes > 1 else ""

    def join(self) -> int | None:
        """Become a daemon, if this is a later task of a job, and return its exit code; return None in the launcher."""
        return None if self._job is None else self._job.join()

    def nodes(self) -> Sequence[Node]:
        """Return the nodes, once a process of each has joined."""
        if self._job is not None:
            return self._job.nodes()
        settings = self._settings
        deadline = time.monotonic() + settings.patience
        names = self._names()
        words = run(names, following(settings, "FLUX_TASK_RANK"))
        # `flux run` cancels its job at the second SIGINT, also if the job waits for nodes.
        self._group = Group(settings, names, "flux run", words, settings.env, signal.SIGINT)
        try:
            self._group.wait(deadline)
        except RosterError as error:
            hint = "; does the job wait for nodes? see `flux jobs`" if self._group.runs else ""
            raise RosterError(f"{error}{hint}") from None
        slots = {host.name: host.slots for host in settings.hosts}
        came = [(name, self._group.followers[name]) for name in names]
        return [
            Node(name, slots.get(name) or found.hello.cpus, found.addresses, found.hello.cpus) for name, found in came
        ]

    def _names(self) -> list[str]:
        """Return the names of the nodes: the nodes of the command line, or all free nodes.

        Raises:
            RosterError: No node is free.
        """
        if self._settings.hosts:
            return [host.name for host in self._settings.hosts]
        text = ask(self._settings.env, "resource", "list", "--no-header", "--states=free", "--format={nodelist}")
        try:
            names = list(dict.fromkeys(expand(text))) if text else []
        except ValueError as error:
            raise RosterError(f"the nodes of Flux cannot be read: {error}") from None
        if not names:
            raise RosterError("Flux has no free node; `flux jobs` tells what runs there")
        return names

    def start(self, node: Node, line: bytes) -> StartedDaemon:
        """Turn the process on a node into its daemon."""
        if self._job is not None:
            return self._job.start(node, line)
        assert self._group is not None
        follower = self._group.followers[node.name]
        follower.begin(line)
        return follower

    def commands(self, words: Sequence[str]) -> list[tuple[tuple[str, ...], list[str]]]:
        """Return the command lines that run `words` on the nodes of the instance, each with the names of its nodes."""
        names = self._names() if self._job is None else []
        return [(tuple(names), run(names, words))] if names else []

    def explain(self, node: str, code: int | None, errors: str) -> str:
        """Return an error text for a node's command that ended, or that makes no progress if the code is None."""
        return explained("flux run", node, code, errors)

    def watch(self, report_lost: Lost) -> None:
        """Report all nodes as lost when the job of their daemons ends."""
        if self._group is not None:
            self._group.watch(report_lost)

    def close(self) -> None:
        """End the daemons' job."""
        if self._job is not None:
            self._job.close()
        if self._group is not None:
            self._group.close()


def run(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the command line that runs `words` once on each node, with the same input, until all have ended.

    Tasks inherit the launcher's environment without the variables `NAMES`.
    """
    # If Slurm has started Flux, these variables contain the name of the launcher's node.
    return [
        "flux", "run", f"--nodes={len(names)}", "--tasks-per-node=1", f"--requires=host:{','.join(names)}",
        "--exclusive", "--unbuffered", "--job-name=pypmix", "--setopt=exit-timeout=none", "--setopt=cpu-affinity=off",
        "--setopt=pmi=off", *[f"--env=-{name}" for name in NAMES], *words,
    ]  # fmt: skip
