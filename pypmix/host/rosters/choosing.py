"""The choice of this run's roster: the command line names it, or the environment shows it."""

from __future__ import annotations

from pypmix.host.extensions import read_register
from pypmix.lazy import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pypmix.host.rosters.base import Roster, Settings

LOCAL = "local"
"""The value of `--roster` for only this machine."""

HOMES = {
    "symmetric": "pypmix.host.rosters.symmetric:SymmetricRoster",
    "ssh": "pypmix.host.rosters.ssh:SSHRoster",
    "kubernetes": "pypmix.host.rosters.kubernetes:KubernetesRoster",
    "slurm": "pypmix.host.rosters.slurm:SlurmRoster",
}
"""The rosters of the core. They are tried in this order, with the registered rosters before Slurm's: an instance of
Flux may run in a job of Slurm."""

KUBERNETES_INDEX = "JOB_COMPLETION_INDEX"
SLURM_JOB = "SLURM_JOB_ID"
MARKS = {"kubernetes": KUBERNETES_INDEX, "slurm": SLURM_JOB}
"""The variable that a resource manager sets for its jobs, by its roster: without it, the roster finds no nodes."""

SLURM_STEP = "slurm."
"""The start of the namespaces that Slurm's own PMIx plugin serves."""


def is_marked(env: Mapping[str, str]) -> bool:
    """Return True if a resource manager started this process; a cheap check, since every run makes it."""
    marks = [*MARKS.values(), *read_register()["roster-marks"].values()]
    return any(mark in env for mark in marks)


def list_candidates(env: Mapping[str, str]) -> list[str]:
    """Return the rosters that may find their nodes without being named, in the order in which they are tried."""
    registered = [name for name, mark in read_register()["roster-marks"].items() if mark in env]
    return [*(name for name in HOMES if name != "slurm"), *registered, "slurm"]


def list_rosters() -> list[str]:
    """Return the values of `--roster`, apart from those that other packages and sites add."""
    return [*HOMES, *read_register()["rosters"], LOCAL]


def choose(settings: Settings, name: str = "") -> tuple[Roster, str] | None:
    """Return the roster of this run, and the reason for its choice; None if the run uses only this machine.

    Args:
        settings: The launcher's settings.
        name: A roster's name, or `module:Class` for a site's roster; by default the first roster that finds its nodes.

    Raises:
        RosterError: The name is unknown, or the roster cannot be used here.
    """
    if name:
        kind = find_kind(name)
        return kind(settings), kind.found(settings) or f"the nodes of {name}"
    inner = not settings.env.get("PMIX_NAMESPACE", SLURM_STEP).startswith(SLURM_STEP)
    if inner and not settings.hosts and settings.symmetric is None:
        # A rank of another launcher sees the resource manager's variables as well.
        return None
    for each in list_candidates(settings.env):
        kind = find_kind(each)
        reason = kind.found(settings)
        if reason:
            return kind(settings), reason
    return None


def find_kind(name: str) -> type[Roster]:
    """Return the class of a roster: of the core, registered, or another package's entry point.

    Args:
        name: The roster's name, or `module:Class`.

    Raises:
        RosterError: The name is unknown, or the class cannot be loaded.
    """
    from pypmix.host.rosters.base import GROUP, RosterError

    homes = {**HOMES, **read_register()["rosters"]}
    home = homes.get(name, name)
    if ":" not in home:
        # Only here: the import and the search take 30 ms.
        from importlib.metadata import entry_points

        points = {point.name: point.value for point in entry_points(group=GROUP)}
        if home not in points:
            known = ", ".join([*list_rosters(), *points])
            raise RosterError(f"there is no roster {name!r:.80}: {known}, or module:Class")
        home = points[home]
    return _load(home)


def _load(home: str) -> type[Roster]:
    from pypmix.host.rosters.base import RosterError

    module, _, name = home.partition(":")
    try:
        found: type[Roster] = load(module, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise RosterError(f"the roster {home!r:.80} cannot be loaded: {error}") from None
    if not isinstance(found, type):
        raise RosterError(f"the roster {home!r:.80} is not a class")
    return found
