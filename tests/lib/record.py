"""The record of a test run: with `--results FOLDER` each run leaves a folder there, which its last line names.

The folder has `junit.xml`, and `tests.tsv` with what each test took: CPU seconds, of its process and of the children
that this waited for, and seconds by the clock. If a test failed, `lib.unsteady` adds `first-failures.txt` and
`unsteady.tsv`.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

OPTION = "--results"
SLOWEST = 50
TABLE = "tests.tsv"
CPU = "cpu_seconds"
"""The property of a test in the JUnit file."""

RECORD = pytest.StashKey["Record"]()


@dataclass
class Cost:
    """What one test took, in seconds, and how it ended."""

    cpu: float = 0.0
    wall: float = 0.0
    outcome: str = "passed"


class Record:
    """The plugin that measures the tests of a process, or collects what the workers have measured.

    Args:
        folder: The folder of this run, None if it leaves none.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.costs: dict[str, Cost] = {}
        self._began = 0.0

    def pytest_runtest_logstart(self) -> None:
        self._began = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":
            report.user_properties.append((CPU, round(cpu_seconds() - self._began, 3)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self.costs.setdefault(report.nodeid, Cost())
        cost.wall += report.duration
        if report.outcome != "passed":
            cost.outcome = report.outcome
        if report.when == "teardown":
            cost.cpu += float(str(dict(report.user_properties).get(CPU, 0.0)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = sum(cost.cpu for cost in self.costs.values())
        terminalreporter.write_line(f"{len(self.costs)} tests took {total:.0f} CPU seconds")
        if self.folder is not None:
            write(self.folder / TABLE, self.costs)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if self.folder is not None:
            print(f"results: {self.folder}")


def write(path: Path, costs: Mapping[str, Cost]) -> None:
    """Write the table of what tests took, the dearest first."""
    lines = ["cpu_seconds\tseconds\toutcome\ttest"]
    for test, cost in sorted(costs.items(), key=lambda row: -row[1].cpu):
        lines.append(f"{cost.cpu:.3f}\t{cost.wall:.3f}\t{cost.outcome}\t{test}")
    path.write_text("\n".join(lines) + "\n")


def read(path: Path) -> dict[str, Cost]:
    """Return what a table says."""
    rows = [line.split("\t", 3) for line in path.read_text().splitlines()[1:]]
    return {test: Cost(float(cpu), float(wall), outcome) for cpu, wall, outcome, test in rows}


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the children that it waited for."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in found)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, metavar="FOLDER", help="leave JUnit XML, and what each test took, in a new folder there")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    folder = None
    place = config.getoption(OPTION)
    if place and not hasattr(config, "workerinput"):
        folder = Path(place) / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{os.getpid()}"
        folder.mkdir(parents=True)
        config.option.xmlpath = config.option.xmlpath or str(folder / "junit.xml")
        config.option.durations = config.option.durations or SLOWEST
    config.stash[RECORD] = Record(folder)
    config.pluginmanager.register(config.stash[RECORD], "pypmix-record")
