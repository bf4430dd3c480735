"""What all tests share: the header, the watch for crashes of a previous session, and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from lib import machine, processes, selection
from lib.running import alone, job_folder, launch, pytest_generate_tests, pytest_pyfunc_call, run
from lib.selection import pytest_addoption
from lib.slurm import slurm_cluster
from pypmix.standard import logtext

__all__ = [
    "alone",
    "job_folder",
    "launch",
    "pytest_addoption",
    "pytest_generate_tests",
    "pytest_pyfunc_call",
    "run",
    "slurm_cluster",
]

pytest_plugins = ["lib.record", "lib.tiers", "lib.unsteady", "lib.missing"]

# No example is timed: the machine may be busy. The same ones in each run, so that it fails over what was changed alone,
# but for the long tier, and if somebody asks for more rounds.
hypothesis.settings.register_profile(
    "ours",
    derandomize=not (os.environ.get("PYPMIX_FAULT_ROUNDS") or os.environ.get("PYPMIX_TEST_RANDOM")),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ours")

SESSIONS = "pypmix-sessions"
CRASHED = pytest.StashKey[list[str]]()


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [
        *machine.describe(),
        selection.header(config),
        *(f"WARNING: {text}" for text in config.stash.get(CRASHED, [])),
    ]


@pytest.fixture(autouse=True)
def _unlimited_logs() -> None:
    """What a test before this one has logged does not count."""
    logtext.forget()


def _started_at(pid: int) -> str:
    """Return when a process started, in the kernel's clock; empty if there is none with this pid."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except OSError:
        return ""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*features): what the test needs of a pairing; see lib/pairings.py")
    config.addinivalue_line("markers", "promise(*names): the promises that the test proves; see lib/promises.py")
    config.addinivalue_line("markers", "lacks(*rows): what the test is the probe of; given by lib/running.py")
    config.addinivalue_line("markers", "forms(*names): the forms that a scenario exists in, of sync and asyncio")
    config.addinivalue_line("markers", "servers(*patterns): the servers that the test is about")
    config.addinivalue_line("markers", "clients(*patterns): the clients that the test is about")
    config.addinivalue_line("markers", "cells(*names): the servers with clients that a test of the host suite is for")
    config.addinivalue_line("markers", "clusters: further worlds and Dask clusters, which `tox -e clusters` runs")
    # A shell starts background commands with some of these ignored, and processes of tests would inherit that.
    for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _frame: object) -> None:
    """End the session in order when it is told to end, so that no job stays behind."""
    raise KeyboardInterrupt(f"signal {number}")


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if not hasattr(config, "workerinput") and getattr(config, "cache", None) is not None:
        _watch_for_crashes(config)


def _watch_for_crashes(config: pytest.Config) -> None:
    """Note this session, and find those that began, did not finish and do not live: no segfault tells more."""
    assert config.cache is not None
    folder = config.cache.mkdir(SESSIONS)
    crashed = []
    for path in folder.iterdir():
        pid, _, started = path.name.partition("-")
        if _started_at(int(pid)) != started:
            crashed.append(f"a previous session ({path.read_text()}) crashed or was killed")
            path.unlink()
    own = folder / f"{os.getpid()}-{_started_at(os.getpid())}"
    own.write_text(f"pid {os.getpid()}, {time.strftime('%F %T')}, {' '.join(sys.argv[1:])}")
    config.stash[CRASHED] = crashed
    config.add_cleanup(lambda: own.unlink(missing_ok=True))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Refuse to claim success right after a crash; the next run is judged on its own again."""
    yield
    if session.config.stash.get(CRASHED, []) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for text in config.stash.get(CRASHED, []):
        terminalreporter.write_line(f"{text}: this session does not count as a success; run it again", red=True)


_spawned = False


def _audit(event: str, _arguments: object) -> None:
    global _spawned
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"):
        _spawned = True


sys.addaudithook(_audit)


PURE = (Path(__file__).with_name("unit"), Path(__file__).with_name("wire"))
"""The folders whose tests start no process and do not sleep."""


PATIENCE = 30.0
"""Seconds that the processes of a test have to end after it; the machine may be busy."""


def _refuse_sleep(_seconds: float) -> None:
    raise AssertionError("a test of tests/unit or tests/wire sleeps: control its clock, or move it to tests/component")


@pytest.fixture(autouse=True)
def nothing_stays_behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Fail a test after which a process that it started still runs, and kill that; in `PURE`, one that starts any."""
    global _spawned
    _spawned = False
    pure = any(request.path.is_relative_to(folder) for folder in PURE)
    if pure:
        monkeypatch.setattr(time, "sleep", _refuse_sleep)
    mark = uuid.uuid4().hex
    monkeypatch.setenv("PYPMIX_TEST_OWNER", mark)
    yield
    if _spawned:
        left = processes.wait_gone(mark, PATIENCE, variable="PYPMIX_TEST_OWNER")
        if left:
            text = processes.tree(left)
            processes.kill(mark, variable="PYPMIX_TEST_OWNER")
            pytest.fail(f"processes stayed behind:\n{text}", pytrace=False)
        if pure:
            pytest.fail("the test starts a process: move it to tests/component", pytrace=False)
