"""What runs after all other tests, on a quiet machine: tests of times, and tests that have failed.

A test that bounds a time by the clock is marked `timing`. If several processes share the tests, these run at the end,
one by one, in a process of their own.

In the submission tier a test that fails is run again `LOOKS` times alone and as often beside busy processes. If it
passes each time it is unsteady: the run passes, and ends with a table of such tests, each of which is an open fault.
Otherwise the run fails. It also fails with more than `MOST` such tests, or if the change under test adds or edits one.

In the long tier nothing is run again, but for the tests in `RACES`, which meet a proven race of somebody else's. What
failed first is kept in the folder of the run either way.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from lib import changes, record, tiers

LOOKS = 5
"""How often a test that has failed runs again, alone and beside busy processes."""

MOST = 2
"""How many tests of a run may be unsteady."""

BUSY = 2
BUSY_PROGRAM = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10000))\n"
"""A process that is busy until the one that has started it ends."""

LIMIT = 300.0
"""Seconds for one run of one test; each test has a limit of its own, which is less."""

TIMING = "timing"
"""The mark of tests of times, and where a worker leaves their node ids."""

RACES: dict[str, str] = {
    r"test_connecting\.py::test_somebody_never_comes\[native-server-5\.0\.": (
        "SIGSEGV in PMIx_server_finalize, called by pypmix_server_finalize in pypmix-finalize; about 1 in 60 "
        "on a busy machine. The core shows why: the length of the list of collectives is -1. A connect waits for rank "
        "1; both ranks finalize and close. The loss of rank 1 completes the tracker by its callback, which is shifted; "
        "the loss of rank 0 comes first, and takes the tracker from the list as empty; then the shifted one takes it "
        "from there again. It is openpmix #4112, mended there by #4127."
    ),
}
"""Tests that meet a race of a server or library that nobody here wrote, and the trace that proves it."""

_RACES = re.compile("|".join(RACES))


class Verdict(NamedTuple):
    """What the second look at a failed test has found."""

    test: str
    unsteady: bool
    text: str


def run_alone(config: pytest.Config, tests: Sequence[str], title: str) -> dict[str, record.Cost]:
    """Run tests in a process of their own, and return what each took and how it ended.

    Args:
        config: That of the session.
        tests: Their node ids.
        title: The name of the folder that the process leaves in the one of this run.
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = (config.stash[record.RECORD].folder or Path(temporary)) / title
        place.mkdir(parents=True, exist_ok=True)
        names = place / "tests.txt"
        names.write_text("\n".join(tests) + "\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", f"{record.OPTION}={place}", f"@{names}"]
        with (place / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                command, cwd=config.rootpath, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                process.wait(LIMIT * len(tests))
            except subprocess.TimeoutExpired:
                process.terminate()
            finally:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                process.wait()
        tables = sorted(place.glob(f"*/{record.TABLE}"), key=lambda path: path.stat().st_mtime)
        found = record.read(tables[-1]) if tables else {}
        return {test: found.get(test, record.Cost(outcome="lost")) for test in tests}


@contextlib.contextmanager
def busy_processes() -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", BUSY_PROGRAM]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def look_again(config: pytest.Config, test: str, number: int) -> Verdict:
    """Run a failed test again until it fails or has passed often enough."""
    for beside, surroundings in (("alone", contextlib.nullcontext), ("beside busy processes", busy_processes)):
        with surroundings():
            for look in range(1, LOOKS + 1):
                outcome = run_alone(config, [test], f"again-{number}")[test].outcome
                if outcome not in ("passed", "skipped"):
                    return Verdict(test, False, f"{outcome} again, at run {look} of {LOOKS} {beside}")
    return Verdict(test, True, f"passed {LOOKS} times alone and {LOOKS} times beside busy processes")


class Unsteady:
    """The plugin of the process that reports, which is the controller where workers run the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._timing: list[str] = []
        self._first_failures: dict[str, str] = {}
        self._failed: set[str] = set()
        self._beyond_tests: set[str] = set()
        """Failed modules and killed workers, which nothing runs again."""
        self._verdicts: list[Verdict] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        found: dict[str, list[str]] = getattr(node, "workeroutput", {})
        self._timing = found.get(TIMING, self._timing)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._beyond_tests.add(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome: str = report.outcome
        if outcome in ("failed", "rerun"):
            self._first_failures.setdefault(report.nodeid, str(report.longrepr))
        if outcome == "failed":
            self._failed.add(report.nodeid)
            if report.when not in ("setup", "call", "teardown"):
                self._beyond_tests.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        only_timing = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._timing
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not only_timing:
            return
        if self._timing:
            self._run_timing()
        if only_timing:
            session.exitstatus = pytest.ExitCode.OK
        if not self._failed:
            return
        if tiers.is_submission(self._config):
            self._judge()
        passes = bool(self._verdicts) and all(verdict.unsteady for verdict in self._verdicts)
        session.exitstatus = pytest.ExitCode.OK if passes else pytest.ExitCode.TESTS_FAILED

    def _run_timing(self) -> None:
        costs = run_alone(self._config, self._timing, TIMING)
        self._config.stash[record.RECORD].costs.update(costs)
        for test, cost in costs.items():
            if cost.outcome not in ("passed", "skipped"):
                self._failed.add(test)
                self._first_failures[test] = f"{cost.outcome}; its output is in the folder {TIMING} of the run"

    def _judge(self) -> None:
        """Look again at the failed tests, unless the run fails in any case."""
        failed = sorted(self._failed)
        if len(failed) > MOST or self._beyond_tests:
            reason = f"not run again: more than {MOST} tests failed" if len(failed) > MOST else "not run again"
            self._verdicts = [Verdict(test, False, reason) for test in failed]
            return
        for number, test in enumerate(failed, 1):
            if changes.is_edited(test):
                self._verdicts.append(Verdict(test, False, "not run again: the change adds or edits it"))
            else:
                self._verdicts.append(look_again(self._config, test, number))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._first_failures:
            return
        folder = self._config.stash[record.RECORD].folder
        if folder is not None:
            failures = [f"--- {test}\n{text}\n" for test, text in self._first_failures.items()]
            (folder / "first-failures.txt").write_text("\n".join(failures))
            rows = [f"{verdict.test}\t{verdict.unsteady}\t{verdict.text}" for verdict in self._verdicts]
            (folder / "unsteady.tsv").write_text("\n".join(["test\tunsteady\tsecond look", *rows]) + "\n")
        passed_later = [test for test in self._first_failures if test not in self._failed]
        if passed_later:
            terminalreporter.section("passed at the second try, by a race of somebody else's", yellow=True)
            for test in passed_later:
                terminalreporter.line(test)
                terminalreporter.line(self._first_failures[test][-3000:])
        if self._verdicts:
            terminalreporter.section("unsteady tests: each is an open fault", yellow=True)
            for verdict in self._verdicts:
                kind = "unsteady" if verdict.unsteady else "failed"
                terminalreporter.line(f"{kind}\t{verdict.test}\t{verdict.text}")
        elif self._failed:
            for test in sorted(self._failed & {*self._timing}):
                terminalreporter.line(f"failed\t{test}\t{self._first_failures[test]}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{TIMING}: bounds a time by the clock, so that it runs alone at the end")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Unsteady(config), "pypmix-unsteady")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _RACES.search(item.nodeid):
            item.add_marker(pytest.mark.flaky(reruns=1))
    timing = [item for item in items if item.get_closest_marker(TIMING)]
    others = [item for item in items if not item.get_closest_marker(TIMING)]
    if not hasattr(config, "workerinput"):
        items[:] = [*others, *timing]
    elif timing:
        config.workeroutput[TIMING] = [item.nodeid for item in timing]  # type: ignore[attr-defined]
        items[:] = others
