"""The workers of a Dask cluster as nodes: programs and functions run on them as the ranks of a job.

    with pypmix.dask.nodes(client) as nodes:
        outcome = nodes.run(["./app"], n=16)

    with pypmix.dask.world(client, 4) as world:
        totals = world.run(lambda comm: comm.allreduce(comm.rank))

Dask hands the session's secret and the launcher's addresses to the workers, as it does all else: encrypted where the
cluster has TLS. It needs `pypmix-hpc[dask]` here, and pypmix on the workers.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import partial
from urllib.parse import urlsplit

from pypmix.dask.threads import elsewhere
from pypmix.host.outcome import listed
from pypmix.host.rosters.agent import Agent
from pypmix.host.rosters.engine import Nodes, named, number_of
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

    from pypmix.host.placing import Node, Wanted
    from pypmix.host.rosters.world import World

    Worker = dict[str, Any]
    Process = tuple[str, str]
    """The address of a worker, and its directory: no other process at that address has it."""

__all__ = ["Nodes", "nodes", "world"]

START_SECONDS = 60.0
"""Seconds that workers have to come that the cluster is asked to start, that a client has to connect, and that the
scheduler and workers have to answer."""

CONNECTING = ("newly-created", "connecting")
"""The states of a client that is about to be connected."""

LOOK_SECONDS = 0.1

OPERATION = "pypmix"
CARRYING = ("pull", "push")
"""An operation that workers are taught, for the methods that carry messages: Dask logs each call of `Client.run`."""

_log = get_logger("pypmix.dask")

CLIENT_SECONDS = 10.0
"""Seconds between two questions of a worker to the scheduler whether the client of an agent is there."""

ABSENT = 2
"""The questions in a row after which a client that is not there has gone: one may connect again."""

_agents: dict[str, Agent] = {}
"""The agents in this worker whose daemons run, by the nodes of clients that they are for."""

_attending: dict[str, asyncio.Task[None]] = {}
"""The tasks that see to it that agents do not outlive their clients, by the same names."""


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

    Each worker is a node, with a name that begins with that of its machine. Their tasks run on beside the ranks. Where
    all workers are taken, those that join the cluster while a job runs become nodes of it, under a name of their own
    where one is started again that was lost. A job may also ask for more.

    Args:
        client: The client; the current one by default, inside of a task that of its worker.
        workers: The names or addresses of the workers to take; all by default.
        n: How many of them to take.
        slots: How many ranks each is meant to run; as many as it has threads by default.
        interface: What nodes listen on: the name of an interface, an address or a CIDR; what leads here by default.
        direct: Whether nodes and this program talk to each other by connections of their own, or over those of Dask; by
            default where they reach each other.

    Raises:
        PMIxError: There are not as many, or pypmix is not there.
    """
    number_of("n", n)
    number_of("slots", slots)
    if isinstance(workers, str | int):
        raise TypeError(f"workers is a list of names or addresses, not {workers!r:.80}")
    client = _connected(client or get_client())
    # Clusters of this machine name their workers by numbers.
    wanted = {str(each) for each in workers or ()}
    engine = _Dask(client, slots, workers is None and n is None)
    known = engine.workers()
    found = {address: about for address, about in known.items() if workers is None or wanted & _names(address, about)}
    unknown = wanted.difference(*[_names(address, about) for address, about in found.items()])
    if unknown:
        raise PMIxError(f"the cluster has no worker {', '.join(sorted(unknown)):.200}")
    if len(found) < (n or 1):
        raise PMIxError(
            f"the cluster has {len(found)} of the {n or 1} workers that are wanted",
            hint="client.wait_for_workers(n) waits for those that are to come",
        )
    return Nodes(engine, engine.lend(dict(list(found.items())[:n])), interface=interface, direct=direct)


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
    """Make workers the ranks of MPI, one rank on each, until the block is left.

    `with pypmix.dask.world(client, 4) as world: results = world.run(function)` calls `function(comm)` in all ranks.
    Ranks are processes of their own beside the workers, whose tasks run on. A worker may be in several worlds, one
    after the other or at the same time. A worker that is lost ends the world, and what runs in it with an error.

    Args:
        client: The client; the current one by default, inside of a task that of its worker.
        n: How many workers to take; all by default.
        workers: The names or addresses of the workers to take; all by default.
        mpi: Functions are given an MPI communicator, for which workers need mpi4py and an MPI library that knows PMIx;
            otherwise a `pypmix.Group`.
        env: What is added to the environment that ranks have of their worker.
        interface: What nodes listen on: the name of an interface, an address or a CIDR; what leads here by default.
        direct: As for `nodes`.

    Raises:
        PMIxError: There are not as many workers, or one cannot be a rank; the text says why.
    """
    found = nodes(client, workers=workers, n=n, slots=1, interface=interface, direct=direct)
    return found.world(mpi=mpi, env=env, release=found.close)


def _connected(client: Client) -> Client:
    """Return a client once it is connected with its scheduler.

    Raises:
        PMIxError: It is not.
    """
    if not isinstance(client, Client):
        raise TypeError(f"the client is a distributed.Client, not {client!r:.80}")
    if client.asynchronous:
        raise PMIxError("an asynchronous client cannot be waited for", hint="await asyncio.to_thread with another one")
    # Where tasks ask for the client of their worker at a time, Dask gives it to the second one before it is connected.
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
    """A Dask cluster as an engine (`pypmix.host.rosters.engine.Engine`).

    Args:
        client: The client.
        slots: How many ranks each worker is meant to run; None for as many as it has threads.
        whole: Whether workers that join the cluster become nodes as well.
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
        """Return what the scheduler tells of each worker, by their addresses.

        Raises:
            PMIxError: It does not answer, or is lost.
        """
        ask = self._client.scheduler.identity
        try:
            known = self._client.sync(ask, n_workers=-1, callback_timeout=START_SECONDS)["workers"]
        except TimeoutError:
            raise PMIxError(f"Dask's scheduler has not answered within {START_SECONDS:g} s") from None
        except OSError as error:
            raise PMIxError(f"Dask's scheduler cannot be reached: {error}") from error
        return dict(sorted(known.items(), key=lambda item: str(item[1].get("name"))))

    def _ranks(self, about: Worker) -> int:
        """Return how many ranks a worker is meant to run."""
        return self._slots or int(about["nthreads"])

    def lend(self, chosen: dict[str, Worker]) -> list[Node]:
        """Return workers as nodes.

        Raises:
            PMIxError: Some cannot be nodes.
        """
        with self._gate:
            return self._lend(chosen)

    def _lend(self, chosen: dict[str, Worker]) -> list[Node]:
        """Return workers as nodes; with the lock, that no other thread takes the same ones or names."""
        self._seen.update([_process(*each) for each in chosen.items()])
        hosts = self._hosts(chosen)
        faults = [f"{address}: {host}" for address, host in hosts.items() if isinstance(host, Exception)]
        if faults:
            # No other request takes them.
            self._lost.update([_process(*each) for each in chosen.items() if isinstance(hosts[each[0]], Exception)])
            raise PMIxError(f"workers cannot be nodes: {'; '.join(faults)[:500]}", hint="is pypmix installed there?")
        found = [
            (
                hosts[address],
                self._ranks(about),
                (str(about.get("name")), address, urlsplit(address).hostname or ""),
            )
            for address, about in chosen.items()
        ]
        made = named(found, self._workers)
        for node, each in zip(made, chosen.items(), strict=True):
            self._workers[node.name] = _process(*each)
        return made

    def _hosts(self, chosen: dict[str, Worker]) -> dict[str, Any]:
        """Return the names of the machines of workers, or what they have raised.

        Raises:
            PMIxError: Some do not answer.
        """
        # `Client.run` has no time limit of its own, and a worker that is stopped may be known for long.
        given = (_call, "", "hostname", _Hidden())
        options = {"workers": list(chosen), "on_error": "return", "callback_timeout": START_SECONDS}
        try:
            return dict(self._client.sync(self._client.run, *given, **options))
        except TimeoutError:
            beats = {address: float(about["last_seen"]) for address, about in self.workers().items()}
            last = max(beats.values(), default=0.0)
            silent = [each for each in chosen if beats.get(each, 0.0) < last - START_SECONDS / 2]
            raise PMIxError(
                f"workers do not answer within {START_SECONDS:g} s: {listed(silent or list(chosen))}"
            ) from None

    def _lent(self) -> set[str]:
        """Return the addresses of the workers that are nodes."""
        return {process[0] for process in self._workers.values() if process not in self._lost}

    def joined(self) -> list[Node] | None:
        """Return the workers that have joined the cluster, if it takes part as a whole."""
        if not self._whole:
            return None
        with self._gate:
            return self._joined()

    def _joined(self) -> list[Node]:
        lent = self._lent()
        new = {
            address: about
            for address, about in self.workers().items()
            if address not in lent and _process(address, about) not in self._seen
        }
        made = []
        for address, about in new.items():
            try:
                made += self._lend({address: about})
            except PMIxError as error:
                # The others are nodes.
                _log.warning("a worker that has joined the cluster is not a node: %s", error)
        return made

    def more(self, wanted: Wanted) -> list[Node]:
        """Take workers of the cluster that are not nodes yet; where there are not enough, have it start some.

        Raises:
            PMIxError: It has not as many.
        """
        # Those that come meanwhile are this request's, and do not join by themselves.
        with self._gate:
            chosen, lacking = self._choose(wanted)
            if lacking:
                chosen = self._start(wanted, chosen, lacking)
            return self._lend(chosen)

    def _choose(self, wanted: Wanted, others: Collection[str] = ()) -> tuple[dict[str, Worker], int]:
        """Return workers that are not nodes yet, nor at the addresses of others, and how many are lacking."""
        taken = self._lent().union(others)
        names = {name for name, _ in wanted.hosts}
        chosen: dict[str, Worker] = {}
        cpus = 0
        known = self.workers()
        for address, about in known.items():
            enough = bool(chosen) and len(chosen) >= wanted.nodes and cpus >= wanted.cpus
            # The scheduler may name one yet that is lost.
            free = address not in taken and _process(address, about) not in self._lost
            if free and (names & _names(address, about) if names else not enough):
                chosen[address] = about
                cpus += self._ranks(about)
        each = max([self._ranks(about) for about in known.values()], default=1)
        lacking = -(-max(0, wanted.cpus - cpus) // each)
        return chosen, max(lacking, wanted.nodes - len(chosen), len(names) - len(chosen), int(not chosen))

    def _start(self, wanted: Wanted, chosen: dict[str, Worker], lacking: int) -> dict[str, Worker]:
        """Have the cluster start workers beside those that are chosen, and wait for them; return all of them."""
        cluster: Any = self._client.cluster
        before = self.workers()
        text = f"the cluster lacks {lacking} further workers such as are wanted"
        if wanted.hosts or not hasattr(cluster, "scale"):
            # Workers that are to come have no names yet; and a client that was given an address has no cluster.
            raise PMIxError(text, hint="start them as the cluster was started, and ask again")
        # It may be about to start or to end others.
        count = len(getattr(cluster, "plan", before))
        cluster.scale(count + lacking)
        # One that is given back meanwhile is not taken: the one that was started in its place would stay.
        others = before.keys() - chosen.keys()
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            chosen, left = self._choose(wanted, others)
            if not left:
                self._started.update(chosen.keys() - before.keys())
                return chosen
            time.sleep(LOOK_SECONDS)
        cluster.scale(count)
        raise PMIxError(f"{text}, and started none in {START_SECONDS:g} s", hint="see what the cluster logs")

    def release(self, node: Node) -> None:
        """The worker leaves the session; it stays in the cluster, unless it was started for the session."""
        process = self._workers.pop(node.name, ("", ""))
        address, _ = process
        if address in self._started:
            self._started.discard(address)
            # No other request takes it while it ends.
            self._lost.add(process)
            threading.Thread(target=self._retire, args=(address,), name="pypmix-retire", daemon=True).start()

    def _retire(self, address: str) -> None:
        try:
            with self._gate:
                self._end(address)
        except Exception as error:
            # As where the client has been closed meanwhile.
            _log.warning("the worker at %s, which was started for a job, is not ended: %s", address, error)

    def _end(self, address: str) -> None:
        """End a worker; with the lock, that no request counts it at the same time."""
        cluster: Any = self._client.cluster
        about = self.workers().get(address)
        if about is None:
            return
        if hasattr(cluster, "scale_down"):
            cluster.sync(cluster.scale_down, [about.get("name")])
        else:
            self._client.retire_workers([address])

    def call(self, node: str, method: str, *arguments: Any) -> Any:
        """Have the agent of a worker carry out a method; raises where the worker or the cluster is lost."""
        process = self._workers[node]
        try:
            return self._call(process, method, *arguments)
        except Exception:
            # One that is started at its address is another node.
            self._lost.add(process)
            raise

    def _call(self, process: Process, method: str, *arguments: Any) -> Any:
        address, directory = process
        # Dask dials an address for long: a call of a worker that is lost may come to the next one there.
        key = self._key + address + directory
        if method in CARRYING:
            message = {"op": OPERATION, "key": key, "method": method, "arguments": list(arguments)}
            return self._client.sync(self._client.scheduler.proxy, msg=message, worker=address)
        given = _Hidden(*arguments)
        options = {"client": self._client.id, "directory": directory, "workers": [address], "on_error": "return"}
        try:
            answer = self._client.run(_call, key, method, given, **options)[address]
        except Exception as error:
            # What fails in the worker, or by its loss, is returned.
            text = f"Dask's client has lost its scheduler, or was closed: {type(error).__name__}: {error}"
            raise PMIxError(text) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """End the workers that were started for the session; all forget their agent with the daemon's end."""
        while self._started:
            self._retire(self._started.pop())


class _Hidden:
    """Arguments of a call that Dask does not write to its log, as it does where a call fails: one is a secret."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments


async def _call(
    key: str, method: str, given: _Hidden, client: str = "", directory: str = "", dask_worker: Any = None
) -> Any:
    """Carry out a method of an agent; in a worker.

    Raises:
        PMIxError: The call is for the worker that had another directory, and was at this address before.
    """
    if directory and dask_worker.local_directory != directory:
        raise PMIxError("the worker has ended: another one was started at its address")
    if dask_worker is not None:
        dask_worker.handlers.setdefault(OPERATION, _carry)
    agent = _agents.setdefault(key, Agent())
    if client and key not in _attending:
        _attending[key] = asyncio.create_task(_attend(key, client, dask_worker.scheduler))
    agent.calls += 1
    try:
        return await elsewhere(partial(getattr(agent, method), *given.arguments))
    finally:
        agent.calls -= 1
        # One that waits for the daemon's start is called before that.
        if agent.idle and not agent.calls:
            _agents.pop(key, None)


async def _attend(key: str, client: str, scheduler: Any) -> None:
    """Have the daemon of a client that has gone leave, as that may wait for its client without end; in a worker.

    The calls of a client do not end with it. One that is stopped is still connected with the scheduler.
    """
    absent = 0
    try:
        while absent < ABSENT:
            await asyncio.sleep(CLIENT_SECONDS)
            if key not in _agents:
                return
            try:
                events = await scheduler.events(topic=client)
            except OSError:
                # The worker ends with the scheduler.
                continue
            absent = 0 if _is_there(events) else absent + 1
        agent = _agents.get(key)
        if agent is None:
            return
        _log.warning("Dask's client %s has gone: its daemon leaves", client)
        agent.leave()
        if not agent.calls:
            # The calls that would have waited for its end were not made.
            await _call(key, "wait", _Hidden())
    finally:
        del _attending[key]


def _is_there(events: Sequence[tuple[float, Any]]) -> bool:
    """Tell from what the scheduler has noted of a client whether it is connected."""
    actions = [about.get("action") for _, about in events if isinstance(about, dict)]
    known = [action for action in actions if action in ("add-client", "remove-client")]
    # It forgets in time what it has noted of one that has gone, and the first of many notes.
    return known[-1] == "add-client" if known else bool(events)


async def _carry(key: str, method: str, arguments: list[bytes]) -> bytes:
    """Carry messages of a daemon; in a worker."""
    data: bytes | None = await _call(key, method, _Hidden(*arguments))
    return data or b""
