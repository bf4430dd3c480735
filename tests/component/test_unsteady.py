"""A failed test of the submission tier is run again; tests of times run alone at the end; each run leaves a record."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import changes, machine, record, unsteady

pytest_plugins = ["pytester"]

pytestmark = pytest.mark.timeout(300)

Session = Callable[..., pytest.RunResult]

FAILS_AT = """
    import pathlib

    def count(name):
        path = pathlib.Path(__file__).with_name(name)
        number = int(path.read_text()) if path.exists() else 0
        path.write_text(str(number + 1))
        return number
"""
"""A function that counts how often a test has run."""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a function that runs a module of tests with the plugins, and one look of each kind."""
    monkeypatch.setattr(unsteady, "LOOKS", 1)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(machine.TESTS), os.environ.get("PYTHONPATH", "")]))
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\n")
    pytester.makeconftest("pytest_plugins = ['lib.record', 'lib.tiers', 'lib.unsteady']")

    def start(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=f"{FAILS_AT}\n{source}")
        return pytester.runpytest_inprocess("--results", "results", *options)

    return start


def times(pytester: pytest.Pytester, name: str) -> int:
    return int((pytester.path / name).read_text())


def results(pytester: pytest.Pytester) -> Path:
    (found,) = (pytester.path / "results").iterdir()
    return found


ONCE = """
    def test_once():
        assert count("once") != 0
"""
AGAIN = """
    def test_again():
        assert count("again") not in (0, 2)
"""


def test_a_test_that_passes_each_time_again_is_unsteady(session: Session, pytester: pytest.Pytester) -> None:
    ended = session(ONCE, "--tier", "submission")
    assert ended.ret == 0
    assert times(pytester, "once") == 1 + 1 + 1
    table = "unsteady*test_it.py::test_once*passed 1 times alone and 1 times beside busy processes"
    ended.stdout.fnmatch_lines(["*unsteady tests: each is an open fault*", table, "results: *"])
    rows = (results(pytester) / "unsteady.tsv").read_text().splitlines()
    assert rows[1].startswith("test_it.py::test_once\tTrue\t")
    assert "assert 0 != 0" in (results(pytester) / "first-failures.txt").read_text()


def test_a_test_that_fails_again_fails_the_run(session: Session, pytester: pytest.Pytester) -> None:
    ended = session(AGAIN, "--tier", "submission")
    assert ended.ret == 1
    assert times(pytester, "again") == 3
    ended.stdout.fnmatch_lines(["failed*test_again*failed again, at run 1 of 1 beside busy processes"])


def test_a_worker_is_told_nothing_of_it(session: Session, pytester: pytest.Pytester) -> None:
    """Where workers run the tests, their controller looks again."""
    ended = session(ONCE, "--tier", "submission", "-n", "2")
    assert ended.ret == 0
    assert times(pytester, "once") == 1 + 1 + 1


def test_the_long_tier_gives_no_second_look(session: Session, pytester: pytest.Pytester) -> None:
    ended = session(ONCE)
    assert ended.ret == 1
    assert times(pytester, "once") == 1
    assert "assert 0 != 0" in (results(pytester) / "first-failures.txt").read_text()


def test_what_the_change_edits_gets_no_second_look(
    session: Session, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "is_edited", lambda test: test.endswith("test_once"))
    ended = session(ONCE, "--tier", "submission")
    assert ended.ret == 1
    assert times(pytester, "once") == 1
    ended.stdout.fnmatch_lines(["failed*test_once*not run again: the change adds or edits it"])


def test_many_unsteady_tests_fail_the_run(session: Session, pytester: pytest.Pytester) -> None:
    source = "".join(ONCE.replace("once", f"number_{number}") for number in range(unsteady.MOST + 1))
    ended = session(source, "--tier", "submission")
    assert ended.ret == 1
    assert times(pytester, "number_0") == 1
    ended.stdout.fnmatch_lines(["failed*test_number_0*not run again: more than 2 tests failed"])


def test_a_module_that_cannot_be_read_fails_the_run(session: Session) -> None:
    ended = session("    import nowhere\n", "--tier", "submission")
    assert ended.ret not in (0, 5)


TIMES = """
    import os
    import pytest

    @pytest.mark.timing
    def test_time():
        assert "PYTEST_XDIST_WORKER" not in os.environ
        count("time")

    def test_other():
        count("other")
"""


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_tests_of_times_run_alone_at_the_end(
    session: Session, pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    assert session(TIMES, *options).ret == 0
    assert times(pytester, "time") == times(pytester, "other") == 1
    order = [pytester.path / name for name in ("other", "time")]
    assert order[0].stat().st_mtime_ns < order[1].stat().st_mtime_ns
    costs = record.read(results(pytester) / record.TABLE)
    assert {test: cost.outcome for test, cost in costs.items()} == {
        "test_it.py::test_time": "passed",
        "test_it.py::test_other": "passed",
    }


def test_a_time_that_is_too_long_fails_the_run(session: Session) -> None:
    source = TIMES.replace('count("time")', 'assert count("time") < 0')
    assert session(source, "-n", "2").ret == 1


def test_a_run_of_tests_of_times_alone(session: Session) -> None:
    assert session(TIMES, "-n", "2", "-m", "timing").ret == 0


def test_the_record_of_a_run(session: Session, pytester: pytest.Pytester) -> None:
    ended = session("    def test_busy():\n        sum(range(3_000_000))\n    def test_fails():\n        assert 0\n")
    folder = results(pytester)
    assert str(ended.outlines[-1]) == f"results: {folder.relative_to(pytester.path)}"
    costs = record.read(folder / record.TABLE)
    assert list(costs) == ["test_it.py::test_busy", "test_it.py::test_fails"]
    assert costs["test_it.py::test_busy"].cpu > 0.01
    assert costs["test_it.py::test_fails"].outcome == "failed"
    assert record.CPU in (folder / "junit.xml").read_text()
