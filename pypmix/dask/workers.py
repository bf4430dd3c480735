"""Dask workers as nodes: programs and functions run on them as the ranks of a job.

    with pypmix.dask.nodes(client) as nodes:
        outcome = nodes.run(["./app"], n=16)

    with pypmix.dask.world(client, 4) as world:
        totals = world.run(lambda comm: comm.allreduce(comm.rank))

Dask carries the session's secret and the launcher's addresses to the workers, like all other messages: encrypted if the
cluster uses TLS. It needs `pypmix-hpc[dask]` here, and pypmix on the workers.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import partial
from urllib.parse import urlsplit

from pypmix.dask.threads import run_in_thread
from pypmix.extras.frameworks.agent import Agent
from pypmix.extras.frameworks.engine import Nodes, name_nodes, number_of
from pypmix.host.outcome import listed
from pypmix.lazy import missing
from pypmix.standard.errors import PMIxError
from pypmix.standard.logtext import get_logger

try:
    from distributed import Client, get_client
except ImportError as error:
    raise missing("Dask", "dask", error) from error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from pypmix.extras.frameworks.world import World
    from pypmix.host.placing import Node, NodeRequest

    Worker = dict[str, Any]
    Process = tuple[str, str]
    """The address of a worker, and its directory, which distinguishes it from other processes at the same address."""

__all__ = ["Nodes", "nodes", "world"]

START_SECONDS = 60.0
"""Seconds for new workers to start, for a client to connect, and for the scheduler and workers to answer."""

CONNECTING = ("newly-created", "connecting")
"""The states of a client before it is connected."""

LOOK_SECONDS = 0.1

OPERATION = "pypmix"
CARRYING = ("pull", "push")
"""The methods that carry messages, for which workers get an operation: Dask logs each call of `Client.run`."""

_log = get_logger("pypmix.dask")

CLIENT_SECONDS = 10.0
"""Seconds between two checks of a worker whether the client of an agent is still connected with the scheduler."""

ABSENT = 2
"""The consecutive checks without the client after which it counts as gone; before that it may reconnect."""

_agents: dict[str, Agent] = {}
"""The agents in this worker with a running daemon, by a key of client and worker."""

_watches: dict[str, asyncio.Task[None]] = {}
"""The tasks that stop an agent when its client is gone, by the same keys."""


def nodes(
    client: Client | None = None,
    *,
    workers: Sequence[str | int] | None = None,
    n: int | None = None,
    slots: int | None = None,
    interface: str = "",
    direct: bool | None = None,
) -> Nodes:
    """Return workers as nodes: `with pypmix.dask.nodes(client) as nodes: ...`.

    Each worker is a node, with a name that begins with the name of its machine. Its tasks continue beside the ranks. If
    all workers are used, a worker that joins the cluster while a job runs becomes a node of the job; a restarted worker
    gets a new name. A job may also ask for more nodes.

    Args:
        client: The client; by default the current one, in a task the client of its worker.
        workers: The names or addresses of the workers; by default all.
        n: The number of workers.
        slots: The number of ranks that each worker is meant to run; by default the number of its threads.
        interface: The interface that nodes listen on: its name, an address or a CIDR; by default the one with the
            route to this machine.
        direct: Whether nodes and this program use direct connections, instead of Dask's; by default if they reach each
            other.

    Raises:
        PMIxError: There are too few workers, or pypmix is not installed there.
    """
    number_of("n", n)
    number_of("slots", slots)
    if isinstance(workers, str | int):
        raise TypeError(f"workers is a list of names or addresses, not {workers!r:.80}")
    client = _await_connection(client or get_client())
    # A LocalCluster uses numbers as the names of its workers.
    names = {str(each) for each in workers or ()}
    engine = _Dask(client, slots, workers is None and n is None)
    present = engine.workers()
    chosen = {address: about for address, about in present.items() if workers is None or names & _names(address, about)}
    unknown = names.difference(*[_names(address, about) for address, about in chosen.items()])
    if unknown:
        raise PMIxError(f"the cluster has no worker {', '.join(sorted(unknown)):.200}")
    if len(chosen) < (n or 1):
        raise PMIxError(
            f"the cluster has {len(chosen)} of the {n or 1} workers that are needed",
            hint="client.wait_for_workers(n) waits until n workers have joined",
        )
    return Nodes(engine, engine.make_nodes(dict(list(chosen.items())[:n])), interface=interface, direct=direct)


def world(
    client: Client | None = None,
    n: int | None = None,
    *,
    workers: Sequence[str | int] | None = None,
    mpi: bool = True,
    env: Mapping[str, str] | None = None,
    interface: str = "",
    direct: bool | None = None,
) -> World:
    """Start an MPI rank beside each worker, until the end of the block.

    `with pypmix.dask.world(client, 4) as world: results = world.run(function)` calls `function(comm)` in all ranks.
    Ranks are separate processes beside the workers, whose tasks continue. A worker may be in several worlds, one after
    the other or at the same time. If a worker is lost, its world ends too, and running functions fail.

    Args:
        client: The client; by default the current one, in a task the client of its worker.
        n: The number of workers; by default all.
        workers: The names or addresses of the workers; by default all.
        mpi: Pass an MPI communicator to functions, for which workers need mpi4py and an MPI library with PMIx;
            otherwise pass a `pypmix.Group`.
        env: Variables to add to the environment that ranks inherit from their worker.
        interface: As for `nodes`.
        direct: As for `nodes`.

    Raises:
        PMIxError: There are too few workers, or a worker cannot be a rank.
    """
    members = nodes(client, workers=workers, n=n, slots=1, interface=interface, direct=direct)
    return members.world(mpi=mpi, env=env, release=members.close)


def _await_connection(client: Client) -> Client:
    """Wait until a client is connected with its scheduler, and return it.

    Raises:
        PMIxError: The client is closed or cannot connect.
    """
    if not isinstance(client, Client):
        raise TypeError(f"the client is a distributed.Client, not {client!r:.80}")
    if client.asynchronous:
        raise PMIxError("an asynchronous client cannot be used here", hint="await asyncio.to_thread with another one")
    # If two tasks request the client of their worker at a time, Dask returns it to the second before it is connected.
    deadline = time.monotonic() + START_SECONDS
    while client.status in CONNECTING and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    if client.status != "running":
        raise PMIxError(f"Dask's client has no connection with its scheduler: it is {client.status}")
    return client


def _process(address: str, about: Worker) -> Process:
    return address, str(about.get("local_directory"))


def _names(address: str, about: Worker) -> set[str]:
    return {str(about.get("name")), address, urlsplit(address).hostname or ""}


class _Dask:
    """A Dask cluster as an engine (`pypmix.extras.frameworks.engine.Engine`).

    Args:
        client: The client.
        slots: The number of ranks that each worker is meant to run; None for the number of its threads.
        whole: Whether workers that join the cluster become nodes too.
    """

    name = "Dask"

    def __init__(self, client: Client, slots: int | None, whole: bool) -> None:
        self._client = client
        self._slots = slots
        self._whole = whole
        self._seen: set[Process] = set()
        self._lost: set[Process] = set()
        self._started: set[str] = set()
        """The addresses of workers that were started for the session."""
        self._workers: dict[str, Process] = {}
        self._gate = threading.Lock()
        self._key = os.urandom(8).hex()

    def workers(self) -> dict[str, Worker]:
        """Return the scheduler's description of each worker, by address.

        Raises:
            PMIxError: The scheduler does not answer, or is lost.
        """
        ask = self._client.scheduler.identity
        try:
            known = self._client.sync(ask, n_workers=-1, callback_timeout=START_SECONDS)["workers"]
        except TimeoutError:
            raise PMIxError(f"Dask's scheduler has not answered within {START_SECONDS:g} s") from None
        except OSError as error:
            raise PMIxError(f"Dask's scheduler cannot be reached: {error}") from error
        return dict(sorted(known.items(), key=lambda item: str(item[1].get("name"))))

    def _count_slots(self, about: Worker) -> int:
        """Return the number of ranks that a worker is meant to run."""
        return self._slots or int(about["nthreads"])

    def make_nodes(self, chosen: dict[str, Worker]) -> list[Node]:
        """Make nodes of workers.

        Raises:
            PMIxError: Some workers cannot be nodes.
        """
        with self._gate:
            return self._make_nodes(chosen)

    def _make_nodes(self, chosen: dict[str, Worker]) -> list[Node]:
        """Make nodes of workers; the caller holds the lock, so that no other thread uses the same workers or names."""
        self._seen.update([_process(*each) for each in chosen.items()])
        hosts = self._hosts(chosen)
        faults = [f"{address}: {host}" for address, host in hosts.items() if isinstance(host, Exception)]
        if faults:
            # Later requests must not choose them.
            self._lost.update([_process(*each) for each in chosen.items() if isinstance(hosts[each[0]], Exception)])
            raise PMIxError(f"workers cannot be nodes: {'; '.join(faults)[:500]}", hint="is pypmix installed there?")
        found = [
            (
                hosts[address],
                self._count_slots(about),
                (str(about.get("name")), address, urlsplit(address).hostname or ""),
            )
            for address, about in chosen.items()
        ]
        made = name_nodes(found, self._workers)
        for node, each in zip(made, chosen.items(), strict=True):
            self._workers[node.name] = _process(*each)
        return made

    def _hosts(self, chosen: dict[str, Worker]) -> dict[str, Any]:
        """Return the host name of each worker, or its exception.

        Raises:
            PMIxError: Some workers do not answer.
        """
        # `Client.run` has no time limit, and the scheduler keeps a stopped worker for long.
        call = (_call, "", "hostname", _Hidden())
        options = {"workers": list(chosen), "on_error": "return", "callback_timeout": START_SECONDS}
        try:
            return dict(self._client.sync(self._client.run, *call, **options))
        except TimeoutError:
            beats = {address: float(about["last_seen"]) for address, about in self.workers().items()}
            last = max(beats.values(), default=0.0)
            silent = [each for each in chosen if beats.get(each, 0.0) < last - START_SECONDS / 2]
            raise PMIxError(
                f"workers do not answer within {START_SECONDS:g} s: {listed(silent or list(chosen))}"
            ) from None

    def _node_addresses(self) -> set[str]:
        """Return the addresses of the workers that are nodes."""
        return {process[0] for process in self._workers.values() if process not in self._lost}

    def joined(self) -> list[Node] | None:
        """Make nodes of the workers that have joined the cluster; return None unless the whole cluster is used."""
        if not self._whole:
            return None
        with self._gate:
            return self._add_joined()

    def _add_joined(self) -> list[Node]:
        used = self._node_addresses()
        new = {
            address: about
            for address, about in self.workers().items()
            if address not in used and _process(address, about) not in self._seen
        }
        made = []
        for address, about in new.items():
            try:
                made += self._make_nodes({address: about})
            except PMIxError as error:
                # The other workers become nodes nevertheless.
                _log.warning("a worker that has joined the cluster is not a node: %s", error)
        return made

    def more(self, request: NodeRequest) -> list[Node]:
        """Make nodes of further workers; if there are too few, let the cluster start some.

        Raises:
            PMIxError: There are too few workers, and the cluster starts no others.
        """
        # The lock keeps `joined` from adding the workers that are started for this request.
        with self._gate:
            chosen, lacking = self._choose(request)
            if lacking:
                chosen = self._start(request, chosen, lacking)
            return self._make_nodes(chosen)

    def _choose(self, request: NodeRequest, excluded: Collection[str] = ()) -> tuple[dict[str, Worker], int]:
        """Choose workers for a request.

        Args:
            request: The request.
            excluded: The addresses of workers to leave out, in addition to nodes.

        Returns:
            The workers, by address, and the number of workers that are missing.
        """
        used = self._node_addresses().union(excluded)
        names = {name for name, _ in request.hosts}
        chosen: dict[str, Worker] = {}
        cpus = 0
        present = self.workers()
        for address, about in present.items():
            enough = bool(chosen) and len(chosen) >= request.nodes and cpus >= request.cpus
            # The scheduler may still list a lost worker.
            free = address not in used and _process(address, about) not in self._lost
            if free and (names & _names(address, about) if names else not enough):
                chosen[address] = about
                cpus += self._count_slots(about)
        slots = max([self._count_slots(about) for about in present.values()], default=1)
        lacking = -(-max(0, request.cpus - cpus) // slots)
        return chosen, max(lacking, request.nodes - len(chosen), len(names) - len(chosen), int(not chosen))

    def _start(self, request: NodeRequest, chosen: dict[str, Worker], lacking: int) -> dict[str, Worker]:
        """Let the cluster start the missing workers of a request, and wait for them; return all of its workers."""
        cluster: Any = self._client.cluster
        before = self.workers()
        text = f"the cluster has too few workers (missing: {lacking})"
        if request.hosts or not hasattr(cluster, "scale"):
            # Future workers have no names yet; and a client that was made with an address has no cluster.
            raise PMIxError(text, hint="start them as the cluster was started, and ask again")
        # The cluster may be about to start or to stop workers, which its plan includes.
        count = len(getattr(cluster, "plan", before))
        cluster.scale(count + lacking)
        # Workers that other jobs release meanwhile are excluded: otherwise the ones started for them would stay.
        excluded = before.keys() - chosen.keys()
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            chosen, missing = self._choose(request, excluded)
            if not missing:
                self._started.update(chosen.keys() - before.keys())
                return chosen
            time.sleep(LOOK_SECONDS)
        cluster.scale(count)
        raise PMIxError(f"{text}, and started none in {START_SECONDS:g} s", hint="see the cluster's log")

    def release(self, node: Node) -> None:
        """Remove a worker from the session; it stays in the cluster unless it was started for the session."""
        process = self._workers.pop(node.name, ("", ""))
        address, _ = process
        if address in self._started:
            self._started.discard(address)
            # Later requests must not choose it while it stops.
            self._lost.add(process)
            threading.Thread(target=self._retire, args=(address,), name="pypmix-retire", daemon=True).start()

    def _retire(self, address: str) -> None:
        try:
            with self._gate:
                self._stop_worker(address)
        except Exception as error:
            # For example if the client has been closed meanwhile.
            _log.warning("the worker at %s, which was started for a job, could not be stopped: %s", address, error)

    def _stop_worker(self, address: str) -> None:
        """Stop a worker; the caller holds the lock, so that no request counts it at the same time."""
        cluster: Any = self._client.cluster
        about = self.workers().get(address)
        if about is None:
            return
        if hasattr(cluster, "scale_down"):
            cluster.sync(cluster.scale_down, [about.get("name")])
        else:
            self._client.retire_workers([address])

    def call(self, node: str, method: str, *arguments: Any) -> Any:
        """Call a method of the agent of a worker; raise an error if the worker or the cluster is lost."""
        process = self._workers[node]
        try:
            return self._call(process, method, *arguments)
        except Exception:
            # A worker that is restarted at the same address is a new node.
            self._lost.add(process)
            raise

    def _call(self, process: Process, method: str, *arguments: Any) -> Any:
        address, directory = process
        # Dask retries an address for long: a call to a lost worker may reach the next worker at the same address.
        key = self._key + address + directory
        if method in CARRYING:
            message = {"op": OPERATION, "key": key, "method": method, "arguments": list(arguments)}
            return self._client.sync(self._client.scheduler.proxy, msg=message, worker=address)
        hidden = _Hidden(*arguments)
        options = {"client": self._client.id, "directory": directory, "workers": [address], "on_error": "return"}
        try:
            answer = self._client.run(_call, key, method, hidden, **options)[address]
        except Exception as error:
            # Errors of the worker, and its loss, are returned as the answer instead.
            text = f"Dask's client has lost its scheduler, or was closed: {type(error).__name__}: {error}"
            raise PMIxError(text) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Stop the workers that were started for the session."""
        # The other workers remove their agent when its daemon exits.
        while self._started:
            self._retire(self._started.pop())


class _Hidden:
    """Arguments that Dask does not show in its log when a call fails: one of them is a secret."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments


async def _call(
    key: str, method: str, hidden: _Hidden, client: str = "", directory: str = "", dask_worker: Any = None
) -> Any:
    """Call a method of an agent; runs in a worker.

    Raises:
        PMIxError: The call is for a former worker at this address.
    """
    if directory and dask_worker.local_directory != directory:
        raise PMIxError("the worker has ended: another one was started at its address")
    if dask_worker is not None:
        dask_worker.handlers.setdefault(OPERATION, _carry)
    agent = _agents.setdefault(key, Agent())
    if client and key not in _watches:
        _watches[key] = asyncio.create_task(_watch_client(key, client, dask_worker.scheduler))
    agent.calls += 1
    try:
        return await run_in_thread(partial(getattr(agent, method), *hidden.arguments))
    finally:
        agent.calls -= 1
        # The call that waits for the daemon begins before the daemon starts, so it keeps the agent.
        if agent.idle and not agent.calls:
            _agents.pop(key, None)


async def _watch_client(key: str, client: str, scheduler: Any) -> None:
    """Stop the daemon of an agent when its client is gone; runs in a worker.

    A client that is merely suspended (SIGSTOP) stays connected with the scheduler.
    """
    # Neither the daemon nor the calls of a client end with the client.
    absent = 0
    try:
        while absent < ABSENT:
            await asyncio.sleep(CLIENT_SECONDS)
            if key not in _agents:
                return
            try:
                events = await scheduler.events(topic=client)
            except OSError:
                # The worker exits with the scheduler.
                continue
            absent = 0 if _is_connected(events) else absent + 1
        agent = _agents.get(key)
        if agent is None:
            return
        _log.warning("Dask's client %s is gone: its daemon stops", client)
        agent.leave()
        if not agent.calls:
            # The client made no call that waits for the daemon's exit.
            await _call(key, "wait", _Hidden())
    finally:
        del _watches[key]


def _is_connected(events: Sequence[tuple[float, Any]]) -> bool:
    """Return True if a client is connected, by the scheduler's events about it."""
    actions = [about.get("action") for _, about in events if isinstance(about, dict)]
    changes = [action for action in actions if action in ("add-client", "remove-client")]
    # The scheduler drops the oldest of many events, and in time all events of a removed client.
    return changes[-1] == "add-client" if changes else bool(events)


async def _carry(key: str, method: str, arguments: list[bytes]) -> bytes:
    """Carry messages of a daemon; runs in a worker."""
    data: bytes | None = await _call(key, method, _Hidden(*arguments))
    return data or b""
