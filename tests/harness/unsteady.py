"""Tests on servers that nobody here wrote, some of which fail now and then: they get a second try, and never unseen.

A server of libpmix, PRRTE, Open MPI or Slurm has races of its own, and on a busy machine one of thousands of jobs meets
one. A test of such a server that fails is run once more. Where it passes then, the summary shows what had failed, and a
session with more than `MOST` such tests fails as a whole: so many are no accident. Tests of our servers get one try.
"""

from __future__ import annotations

import re

import pytest

MOST = 8
"""How many tests of a session may pass at the second try."""

FOREIGN = re.compile(r"\b(prterun|mpirun|native-server|slurm)-\d|^native-\d[^/]*/")
"""What is in the parameters of a test of such a server; those of the host suite begin with it.

One of the races: now and then a server of libpmix 4.2 answers at once that there is no such data when a client waits
for what another one of its node commits just then.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOREIGN.search(item.nodeid.partition("[")[2]):
            item.add_marker(pytest.mark.flaky(reruns=1))


def second_tries(terminalreporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    """Return what failed first and did not fail again."""
    failed = {report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])}
    return [report for report in terminalreporter.stats.get("rerun", []) if report.nodeid not in failed]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = second_tries(terminalreporter)
    if not reports:
        return
    terminalreporter.section(f"passed at the second try: {len(reports)}, at most {MOST}")
    for report in reports:
        terminalreporter.line(f"--- {report.nodeid}", yellow=True)
        terminalreporter.line(str(report.longrepr)[-3000:])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter is not None and len(second_tries(reporter)) > MOST:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
