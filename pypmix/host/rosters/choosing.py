"""The choice of this run's roster: the command line names it, or the environment shows it."""

from __future__ import annotations

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
    "flux": "pypmix.host.rosters.flux:FluxRoster",
    "slurm": "pypmix.host.rosters.slurm:SlurmRoster",
    "pmix": "pypmix.host.rosters.pmix:PMIxRoster",
    "prrte": "pypmix.host.rosters.prrte:PRRTERoster",
}
"""The rosters of pypmix, in the order in which they are tried."""

MARKS = {"kubernetes": "JOB_COMPLETION_INDEX", "flux": "FLUX_URI", "slurm": "SLURM_JOB_ID"}
"""The variable that a resource manager sets for its jobs, by its roster: without it, the roster finds no nodes."""

NAMED_ONLY = ("pmix", "prrte")
"""Rosters that are used only if `--roster` names them. A rank of any job, or a user with a running DVM, may run a
separate job."""

SLURM_STEP = "slurm."
"""The start of the namespaces that Slurm's own PMIx plugin serves."""


def is_marked(env: Mapping[str, str]) -> bool:
    """Return True if a resource manager started this process; a cheap check, since every run makes it."""
    return any(mark in env for mark in MARKS.values())


def choose(settings: Settings, name: str = "") -> tuple[Roster, str] | None:
    """Return the roster of this run, and the reason for its choice; None if the run uses only this machine.

    Args:
        settings: The launcher's settings.
        name: A roster's name, or `module:Class` for a site's roster; by default the first roster that finds its nodes.

    Raises:
        RosterError: The name is unknown, or the roster cannot be used here.
    """
    if name:
        kind = _named(name)
        return kind(settings), kind.found(settings) or f"the nodes of {name}"
    inner = not settings.env.get("PMIX_NAMESPACE", SLURM_STEP).startswith(SLURM_STEP)
    if inner and not settings.hosts and settings.symmetric is None:
        # A rank of another launcher sees the resource manager's variables as well.
        return None
    for each, home in HOMES.items():
        if each not in NAMED_ONLY:
            kind = _load(home)
            reason = kind.found(settings)
            if reason:
                return kind(settings), reason
    return None


def _named(name: str) -> type[Roster]:
    from pypmix.host.rosters.base import GROUP, RosterError

    home = HOMES.get(name, name)
    if ":" not in home:
        from importlib.metadata import entry_points

        points = {point.name: point.value for point in entry_points(group=GROUP)}
        if home not in points:
            known = ", ".join([*HOMES, LOCAL, *points])
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
