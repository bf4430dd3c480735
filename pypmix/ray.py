"""Ray actors as nodes: programs and functions run on them as the ranks of a job.

    with pypmix.ray.nodes(4, num_cpus=8) as nodes:
        outcome = nodes.run(["./app"], n=32)

    with pypmix.ray.world(actors) as world:
        totals = world.run(lambda comm: comm.allreduce(comm.rank))

Ray places the actors, and carries the session's secret and the launcher's addresses to them. It needs
`pypmix-hpc[ray]` here, and pypmix on the nodes.
"""

from __future__ import annotations

import os
import select
import threading
from queue import Empty, SimpleQueue

from pypmix.extras.frameworks.agent import Agent
from pypmix.extras.frameworks.engine import Nodes, name_nodes, number_of
from pypmix.lazy import missing
from pypmix.standard.errors import PMIxError

try:
    import ray
    from ray.util import placement_group as make_group
    from ray.util import remove_placement_group
    from ray.util.client import ray as ray_client
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
except ImportError as error:
    raise missing("Ray", "ray", error) from error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ray.actor import ActorHandle
    from ray.util.placement_group import PlacementGroup

    from pypmix.extras.frameworks.agent import DaemonEnd
    from pypmix.extras.frameworks.world import World
    from pypmix.host.placing import Node, NodeRequest

__all__ = ["Nodes", "nodes", "world"]

THREADS = 6
"""The concurrent calls of an agent: one waits for its daemon, others start and stop it, and carry its messages."""


def nodes(
    n: int | None = None,
    *,
    num_cpus: int = 1,
    resources: Mapping[str, float] | None = None,
    strategy: str = "SPREAD",
    placement_group: PlacementGroup | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    timeout: float = 60.0,
    interface: str = "",
    direct: bool | None = None,
) -> Nodes:
    """Return actors as nodes: `with pypmix.ray.nodes(4, num_cpus=8) as nodes: ...`.

    Each actor is a node, with a name that begins with the name of its machine, and holds its resources until the end
    of the block.

    Args:
        n: The number of nodes; by default all nodes of the cluster, or all bundles of the placement group.
        num_cpus: The CPUs of each node, which are its slots: the number of ranks that it is meant to run.
        resources: Further resources of each node.
        strategy: How the actors are placed: `SPREAD`, `STRICT_SPREAD`, `PACK` or `STRICT_PACK`.
        placement_group: The placement group whose bundles the actors use; by default a new one.
        runtime_env: The environment that Ray makes for the actors.
        timeout: Seconds that Ray has to place them, and to count its nodes.
        interface: The interface that nodes listen on: its name, an address or a CIDR; by default the one with the
            route to this machine.
        direct: Whether nodes and this program use direct connections, instead of Ray's; by default if they reach each
            other.

    Raises:
        PMIxError: Ray has no room for the nodes, or pypmix is not installed there.
    """
    number_of("n", n)
    number_of("num_cpus", num_cpus)
    options = {"num_cpus": num_cpus, "resources": dict(resources or {}), "runtime_env": dict(runtime_env or {})}
    engine = _Ray(num_cpus, options, strategy, timeout)
    try:
        if placement_group is None:
            made = engine.reserve(n or _count_nodes(timeout))
        else:
            bundles = placement_group.bundle_count
            if (n or 0) > bundles:
                raise PMIxError(f"the placement group has only {bundles} bundles, not {n}", hint="ask for fewer nodes")
            made = engine.start(placement_group, n or bundles)
    except BaseException:
        engine.close()
        raise
    return Nodes(engine, made, interface=interface, direct=direct)


def world(
    actors: Sequence[ActorHandle] | int,
    *,
    mpi: bool = True,
    env: Mapping[str, str] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    timeout: float = 60.0,
    interface: str = "",
    direct: bool | None = None,
) -> World:
    """Start an MPI rank beside each actor, until the end of the block.

    `with pypmix.ray.world(actors) as world: results = world.run(function)` calls `function(comm)` in all ranks. Ranks
    are separate processes on the actors' machines, in the actors' order; the actors' methods may be called meanwhile.
    An actor may be in several worlds, one after the other or at the same time. If an actor ends, its world ends too,
    and running functions fail.

    Args:
        actors: The actors; or a number of actors to start, with a CPU each.
        mpi: Pass an MPI communicator to functions, for which machines need mpi4py and an MPI library with PMIx;
            otherwise pass a `pypmix.Group`.
        env: Variables to add to the environment of ranks.
        runtime_env: The environment that Ray makes for the ranks.
        timeout: Seconds that actors have to answer, which they do between two methods.
        interface: As for `nodes`.
        direct: As for `nodes`.

    Raises:
        PMIxError: An actor has ended, does not answer, or cannot be a rank, such as an actor of Ray Client.
    """
    if isinstance(actors, int | float):
        members = nodes(actors, runtime_env=runtime_env, timeout=timeout, interface=interface, direct=direct)
    else:
        if not actors:
            raise ValueError("a world needs at least one actor")
        if ray_client.is_connected():
            raise PMIxError(
                "a program that is connected by Ray Client (ray://) cannot have ranks beside its actors",
                hint="run it on a node of the cluster, as by `ray job submit`, or pass a number of actors to start",
            )
        if wrong := [each for each in actors if not isinstance(each, ray.actor.ActorHandle)]:
            raise TypeError(f"a world needs actors of Ray, not {wrong[0]!r:.80}")
        engine = _Ray(1, {"num_cpus": 0, "runtime_env": dict(runtime_env or {})}, "", timeout)
        try:
            members = Nodes(engine, engine.start_beside(actors), interface=interface, direct=direct)
        except BaseException:
            engine.close()
            raise
    return members.world(mpi=mpi, env=env, release=members.close)


def _count_nodes(seconds: float) -> int:
    """Return the number of the cluster's nodes with CPUs.

    Raises:
        PMIxError: There are none, or Ray does not answer in time.
    """
    if not ray.is_initialized():
        raise PMIxError("this program has no Ray yet", hint="call ray.init(), with the address of the cluster")
    answers: SimpleQueue[list[Any] | Exception] = SimpleQueue()
    threading.Thread(target=_ask_nodes, args=(answers,), daemon=True).start()
    try:
        known = answers.get(timeout=seconds)
    except Empty:
        raise PMIxError(f"Ray's head has not answered within {seconds:g} s") from None
    if isinstance(known, Exception):
        raise known
    found = [each for each in known if each["Alive"] and each["Resources"].get("CPU")]
    if not found:
        raise PMIxError("no node of Ray has CPUs")
    return len(found)


def _ask_nodes(answers: SimpleQueue[list[Any] | Exception]) -> None:
    """Put the nodes of Ray into a queue; in a thread, as Ray waits for its head without a limit."""
    try:
        answers.put(ray.nodes())
    except Exception as error:
        answers.put(error)


def _place(_actor: object) -> tuple[str, int]:
    """Return the node and the pid of the actor that runs this."""
    return ray.get_runtime_context().get_node_id(), os.getpid()


class _Actor(Agent):
    """An agent in a Ray actor.

    Args:
        pid: A process of this machine whose exit ends the node; 0 for none.
        name: The name of that process in errors.
    """

    def __init__(self, pid: int = 0, name: str = "") -> None:
        super().__init__()
        self._watched = os.pidfd_open(pid) if pid else -1
        self._name = name

    def address(self) -> str:
        """Return the address of this node."""
        return str(ray.util.get_node_ip_address())

    def wait(self) -> DaemonEnd:
        """Wait until the daemon has exited, and return how.

        Raises:
            PMIxError: The watched process has exited first.
        """
        if self._watched < 0:
            return super().wait()
        ends: SimpleQueue[DaemonEnd | None] = SimpleQueue()
        for wait in (super().wait, self._watch):
            threading.Thread(target=_put, args=(ends, wait), daemon=True).start()
        end = ends.get()
        if end is None:
            raise PMIxError(f"{self._name} has ended")
        return end

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._watched, select.POLLIN)
        poll.poll()


def _put(queue: SimpleQueue[DaemonEnd | None], wait: Callable[[], DaemonEnd | None]) -> None:
    queue.put(wait())


class _Ray:
    """A Ray cluster as an engine (`pypmix.extras.frameworks.engine.Engine`).

    Args:
        slots: The CPUs of each actor.
        options: The options of the actors.
        strategy: The placement strategy.
        timeout: Seconds that Ray has to place actors.
    """

    name = "Ray"

    def __init__(self, slots: int, options: Mapping[str, Any], strategy: str, timeout: float) -> None:
        self._slots = slots
        self._options = options
        self._strategy = strategy
        self._timeout = timeout
        self._gate = threading.Lock()
        self._groups: list[PlacementGroup] = []
        self._actors: list[Any] = []
        self._by_name: dict[str, Any] = {}
        self._single: dict[str, PlacementGroup] = {}
        """The placement groups with one node, by its name."""

    def reserve(self, count: int) -> list[Node]:
        """Let Ray place actors, all at once, and return their nodes.

        Args:
            count: The number of actors. The placement group of a single actor is removed with its node.

        Raises:
            PMIxError: Ray has no room for them.
        """
        bundle = {"CPU": float(self._slots), **self._options["resources"]}
        try:
            group = make_group([bundle] * count, strategy=self._strategy)
        except ray.exceptions.RayError as error:
            raise PMIxError(f"Ray reserves nothing: {error}", hint="does its head answer? see `ray status`") from error
        self._groups.append(group)
        try:
            made = self.start(group, count)
        except BaseException:
            self._groups.remove(group)
            remove_placement_group(group)
            raise
        if count == 1:
            self._single[made[0].name] = group
        return made

    def start(self, group: PlacementGroup, count: int) -> list[Node]:
        """Start actors in the bundles of a placement group, and return their nodes.

        Raises:
            PMIxError: Ray has no room for the actors, or they do not start.
        """
        if not group.wait(self._timeout):
            raise PMIxError(
                f"Ray has no room for {count} nodes of {self._slots} CPUs within {self._timeout:g} s",
                hint="`ray status` shows the free resources; a task that asks for nodes holds CPUs too",
            )
        return self._start([(PlacementGroupSchedulingStrategy(group, bundle), 0, "") for bundle in range(count)])

    def start_beside(self, actors: Sequence[ActorHandle]) -> list[Node]:
        """Start an actor on the machine of each of the given actors, with which it ends, and return the nodes.

        Raises:
            PMIxError: A given actor has ended or does not answer, or a new actor does not start.
        """
        places = []
        answers = [actor.__ray_call__.remote(_place) for actor in actors]
        for number, answer in enumerate(answers):
            try:
                node, pid = ray.get(answer, timeout=self._timeout)
            except ray.exceptions.RayError as error:
                lines = str(error).strip().splitlines()
                raise PMIxError(
                    f"actor {number} cannot be a rank: {type(error).__name__}: {lines[0] if lines else ''}",
                    hint="it has ended, or one of its methods runs for longer than timeout=",
                ) from error
            places.append((NodeAffinitySchedulingStrategy(node, soft=False), pid, f"actor {number} (pid {pid})"))
        return self._start(places)

    def _start(self, places: Sequence[tuple[Any, int, str]]) -> list[Node]:
        """Start actors, each with a scheduling strategy and the arguments of `_Actor`."""
        actors = []
        for strategy, *arguments in places:
            kind = ray.remote(_Actor).options(scheduling_strategy=strategy, max_concurrency=THREADS, **self._options)
            actors.append(kind.remote(*arguments))
        self._actors += actors
        try:
            hosts = ray.get([actor.hostname.remote() for actor in actors], timeout=self._timeout)
            addresses = ray.get([actor.address.remote() for actor in actors], timeout=self._timeout)
        except ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            text = f"{type(error).__name__}: {lines[-1] if lines else ''}"
            raise PMIxError(f"Ray's actors do not start: {text}", hint="is pypmix installed there?") from error
        found = [(host, self._slots, (address,)) for host, address in zip(hosts, addresses, strict=True)]
        with self._gate:
            made = name_nodes(found, self._by_name)
            self._by_name.update(zip([node.name for node in made], actors, strict=True))
        return made

    def joined(self) -> list[Node] | None:
        """Return None: Ray places actors only when a job asks for more."""
        return None

    def more(self, request: NodeRequest) -> list[Node]:
        """Let Ray place further actors, for which its autoscaler may add machines.

        Raises:
            PMIxError: Ray has no room for them.
        """
        if request.hosts:
            raise PMIxError("Ray chooses the machines: ask for a number of nodes or CPUs")
        made: list[Node] = []
        try:
            for _ in range(max(request.nodes, -(-request.cpus // self._slots), 1)):
                made += self.reserve(1)
        except BaseException:
            # The request succeeds as a whole or not at all.
            for node in made:
                self.release(node)
            raise
        return made

    def release(self, node: Node) -> None:
        """Kill the actor of a node, and remove its placement group."""
        actor = self._by_name.pop(node.name, None)
        if actor is not None:
            self._actors.remove(actor)
            _release(ray.kill, actor)
        group = self._single.pop(node.name, None)
        if group is not None:
            self._groups.remove(group)
            _release(remove_placement_group, group)

    def call(self, node: str, method: str, *arguments: Any) -> Any:
        """Call a method of an actor; raise an error if the actor is lost."""
        if not ray.is_initialized():
            # Ray would start a new cluster for the call.
            raise PMIxError("Ray has been shut down")
        try:
            return ray.get(getattr(self._by_name[node], method).remote(*arguments))
        except ray.exceptions.RayTaskError as error:
            # The text of Ray's error begins with the actor's stack.
            raise error.cause from error

    def close(self) -> None:
        """Kill the actors, and remove the placement groups."""
        for actor in list(self._actors):
            _release(ray.kill, actor)
        for group in list(self._groups):
            _release(remove_placement_group, group)


def _release(remove: Callable[[Any], None], resource: Any) -> None:
    """Remove an actor or a placement group, unless it has ended with its session of Ray."""
    # Ray would start a new cluster for the call.
    if ray.is_initialized():
        try:
            remove(resource)
        except ray.exceptions.RayError:
            # The program has connected to another session since.
            return
