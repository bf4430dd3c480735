"""Actors of a Ray cluster as nodes: programs and functions run on them as the ranks of a job.

    with pypmix.ray.nodes(4, num_cpus=8) as nodes:
        outcome = nodes.run(["./app"], n=32)

Ray places the actors, and hands them the session's secret and the launcher's addresses. It needs `pypmix[ray]` here,
and pypmix on the nodes.
"""

from __future__ import annotations

from pypmix.host.rosters.agent import Agent
from pypmix.host.rosters.engine import Nodes, missing, named
from pypmix.standard.errors import PMIxError

try:
    import ray
    from ray.util import placement_group as make_group
    from ray.util import remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as error:
    raise missing("Ray", "ray", error) from error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ray.util.placement_group import PlacementGroup

    from pypmix.host.placing import Node

__all__ = ["Nodes", "nodes"]

THREADS = 4
"""Calls of an agent at a time: one that waits for its daemon, and those that begin and stop it."""


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
) -> Nodes:
    """Return actors as nodes: `with pypmix.ray.nodes(4, num_cpus=8) as nodes: ...`.

    Each actor is a node, with a name that begins with that of its machine, and holds its resources until the block
    is left.

    Args:
        n: How many nodes; as many as the cluster has by default, or as the placement group has bundles.
        num_cpus: The CPUs of each, which are its slots: as many ranks as it is meant to run.
        resources: Further resources of each.
        strategy: How the actors are placed: `SPREAD`, `STRICT_SPREAD`, `PACK` or `STRICT_PACK`.
        placement_group: The placement group whose bundles the actors take; one is made by default.
        runtime_env: The environment that Ray makes for the actors.
        timeout: Seconds that Ray has to place them.
        interface: What nodes listen on: the name of an interface, an address or a CIDR; what leads here by default.

    Raises:
        PMIxError: Ray has no room for them, or pypmix is not there.
    """
    group = placement_group
    if group is None:
        alive = [each for each in ray.nodes() if each["Alive"] and each["Resources"].get("CPU")]
        group = make_group([{"CPU": float(num_cpus), **(resources or {})}] * (n or len(alive)), strategy=strategy)
    count = n or group.bundle_count
    engine = _Ray(group, placement_group is None)
    options = {"num_cpus": num_cpus, "resources": dict(resources or {}), "runtime_env": dict(runtime_env or {})}
    try:
        if not group.wait(timeout):
            raise PMIxError(
                f"Ray has no room for {count} nodes of {num_cpus} CPUs within {timeout:g} s",
                hint="`ray status` tells what is free; a task that asks for nodes holds CPUs too",
            )
        made = engine.start(count, num_cpus, options, timeout)
    except BaseException:
        engine.close()
        raise
    return Nodes(engine, made, interface=interface)


class _Actor(Agent):
    def address(self) -> str:
        """Return the address of this node."""
        return str(ray.util.get_node_ip_address())


class _Ray:
    """A Ray cluster as an engine (`pypmix.host.rosters.engine.Engine`).

    Args:
        group: Where the actors are placed.
        own: Whether the placement group is to be removed in the end.
    """

    def __init__(self, group: PlacementGroup, own: bool) -> None:
        self._group = group
        self._own = own
        self._actors: list[Any] = []
        self._by_name: dict[str, Any] = {}

    def start(self, count: int, slots: int, options: Mapping[str, object], timeout: float) -> list[Node]:
        """Start the actors, and return their nodes.

        Raises:
            PMIxError: They do not start.
        """
        for bundle in range(count):
            place = PlacementGroupSchedulingStrategy(self._group, bundle)
            kind = ray.remote(_Actor).options(scheduling_strategy=place, max_concurrency=THREADS, **options)
            self._actors.append(kind.remote())
        try:
            abouts = ray.get([actor.about.remote() for actor in self._actors], timeout=timeout)
            addresses = ray.get([actor.address.remote() for actor in self._actors], timeout=timeout)
        except ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            raise PMIxError(f"Ray's actors do not start: {lines[-1]}", hint="is pypmix installed there?") from error
        made = named([(about.hostname, slots, (at,)) for about, at in zip(abouts, addresses, strict=True)])
        self._by_name.update(zip([node.name for node in made], self._actors, strict=True))
        return made

    def call(self, node: str, method: str, *arguments: bytes) -> Any:
        """Have an actor carry out a method; raises where it is lost."""
        return ray.get(getattr(self._by_name[node], method).remote(*arguments))

    def close(self) -> None:
        """End the actors."""
        for actor in self._actors:
            ray.kill(actor)
        if self._own:
            remove_placement_group(self._group)
