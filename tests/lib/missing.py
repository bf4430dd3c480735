"""The last line of a run in which tests were skipped: how many, and which of Debian's packages would change that."""

from __future__ import annotations

import re
from collections import Counter

import pytest

LACKS = "this machine lacks "
"""What the reason of a skip begins with; see `machine.lacking`."""

PACKAGES = (
    ("compiler|extension|native engine|provision.py|prterun|launcher", "gcc libc6-dev python3-dev"),
    ("libpmix-dev|headers", "libpmix-dev"),
    ("libpmix-bin", "libpmix-bin"),
    ("python3-pmix", "python3-pmix"),
    ("libpmix", "libpmix2"),
    ("munge", "munge"),
    ("[Ss]lurm", "munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins"),
    ("mpirun|openmpi-bin|Open MPI 4", "openmpi-bin"),
    ("iproute2", "iproute2"),
    ("Debian .* root", "debootstrap"),
    ("ssh", "openssh-client openssh-server"),
    ("Graphviz", "graphviz"),
    ("Chromium", "chromium-headless-shell"),
    ("git", "git"),
)
"""Patterns of what may be missing, and the packages that bring it; the first that matches counts."""

RIGHTS = re.compile("root's rights|root rights|only root")


def packages(lacking: Counter[str]) -> tuple[list[str], bool]:
    """Return the packages that bring what is missing, and whether the rights of root are."""
    found: list[str] = []
    for text in lacking:
        names = next((names for pattern, names in PACKAGES if re.search(pattern, text)), "")
        found += [name for name in names.split() if name not in found]
    return found, any(RIGHTS.search(text) for text in lacking)


def last_line(tests: int, lacking: Counter[str]) -> str:
    """Return what to say of tests of which some did not run.

    Args:
        tests: How many there were.
        lacking: For each thing that was missing, how many did not run for want of it.
    """
    skipped = lacking.total()
    names, rights = packages(lacking)
    remedies = ([f"apt-get install {' '.join(names)}"] if names else []) + (["run it as root"] if rights else [])
    remedy = f"; to run more of them: {', and '.join(remedies)}" if remedies else ""
    return f"{skipped} of {tests} tests ({100 * skipped // tests} %) did not run for want of something{remedy}"


class Missing:
    """The plugin that counts, in the process that reports."""

    def __init__(self) -> None:
        self._tests: set[str] = set()
        self._lacking: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests.add(report.nodeid)
        if report.skipped and isinstance(report.longrepr, tuple):
            _, found, text = str(report.longrepr[2]).partition(LACKS)
            if found:
                self._lacking[text] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if self._lacking:
            print(last_line(len(self._tests), self._lacking))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Missing(), "pypmix-missing")
