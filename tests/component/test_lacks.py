"""Failures that are expected: `lib.lack.expected_failure`, and the rows of what pairings lack."""

from __future__ import annotations

import importlib
import inspect
import pickle
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from lib import hosting, machine, pairings, promises, running, selection
from lib.job import Job, JobFailed
from lib.lack import Error, Lack, Outcome, each_returned, expected_failure
from lib.pairings import Pairing
from pypmix import NotFound, NotSupported, PartialSuccess, PMIxError
from pypmix.standard import statuses


def refused() -> PMIxError:
    return NotSupported("its server refuses")


def test_the_expected_failure_is_no_failure() -> None:
    with expected_failure("it cannot", raises=NotSupported, match="refuses", status=statuses.ERR_NOT_SUPPORTED):
        raise refused()


def test_a_decorated_test_keeps_its_arguments() -> None:
    @expected_failure("it cannot", raises=NotSupported)
    def refusing(text: str) -> None:
        raise NotSupported(text)

    refusing("no")


def test_a_success_fails() -> None:
    with (
        pytest.raises(AssertionError, match="this succeeds, and NotSupported was expected: it cannot"),
        expected_failure("it cannot", raises=NotSupported),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("sabotage"), {"raises": NotSupported}),
        (NotFound("get"), {"raises": NotSupported}),
        (refused(), {"raises": NotSupported, "match": "another text"}),
        (refused(), {"raises": PMIxError, "status": statuses.ERR_TIMEOUT}),
        (JobFailed("it hung"), {"raises": NotSupported}),
        (JobFailed("ranks differ", [refused(), RuntimeError("sabotage")]), {"raises": NotSupported}),
        (AssertionError("2 == 3"), {"raises": AssertionError, "match": "1 == 2"}),
    ],
)
def test_another_failure_fails(error: BaseException, expected: dict[str, object]) -> None:
    with (
        pytest.raises(AssertionError, match="was expected .it cannot., not this") as caught,
        expected_failure("it cannot", **expected),  # type: ignore[arg-type]
    ):
        raise error
    assert caught.value.__cause__ is error


def test_a_job_fails_with_the_errors_of_its_ranks() -> None:
    with expected_failure("it cannot", raises=NotSupported):
        raise JobFailed("a report", [refused(), refused()])


@pytest.mark.parametrize(
    "vague", [Exception, AssertionError, RuntimeError, TypeError, PMIxError, pytest.fail.Exception]
)
def test_a_class_that_anything_raises_is_no_expectation(vague: type[BaseException]) -> None:
    with pytest.raises(ValueError, match="alone says nothing of the failure"):
        expected_failure("it cannot", raises=vague)


def test_a_skip_remains_a_skip() -> None:
    with pytest.raises(pytest.skip.Exception), expected_failure("it cannot", raises=NotSupported):
        pytest.skip("this machine lacks something")


# What a probe is judged by


def job(folder: Path, *results: object, hung: str = "") -> Job:
    """Return a job whose ranks returned, or raised, these."""
    made = Job(["true"], folder)
    made.hung, made.exit_code = hung, 0
    for rank, result in enumerate(results):
        error = result if isinstance(result, Exception) else None
        left = rank, (), None if error else result, error, ""
        (made.results / f"{rank}.pickle").write_bytes(pickle.dumps(left))
    return made


ERROR = Lack("signals", "*", "*", "it has none", Error(NotSupported, "refuses"), "test_x.test_y")
VALUE = ERROR._replace(expect=each_returned([1]))
HANG = ERROR._replace(expect=Outcome("no rank ends", lambda job: not job.ranks, hangs=True))
FAILS = AssertionError("the probe's own line")


@pytest.mark.parametrize(
    ("row", "left", "hung"),
    [
        (ERROR, [refused()], ""),
        (ERROR, [refused(), PartialSuccess("the other one has left")], ""),
        (ERROR, [refused(), None], ""),
        (VALUE, [[1], [1]], ""),
        (HANG, [], "stacks"),
    ],
)
def test_a_probe_that_fails_as_declared(tmp_path: Path, row: Lack, left: list[object], hung: str) -> None:
    assert row.judge(FAILS, job(tmp_path, *left, hung=hung)) == ""


@pytest.mark.parametrize(
    ("row", "left", "hung"),
    [
        (ERROR, [RuntimeError("sabotage")], ""),
        (ERROR, [refused(), RuntimeError("sabotage")], ""),
        (ERROR, [PartialSuccess("nobody refused anything")], ""),
        (ERROR, [NotSupported("another text")], ""),
        (ERROR, [None, None], ""),
        (ERROR, [], ""),
        (ERROR, [refused()], "stacks"),
        (VALUE, [[1], [2]], ""),
        (VALUE, [[1], RuntimeError("sabotage")], ""),
        (VALUE, [], ""),
        (VALUE, [[1], [1]], "stacks"),
        (HANG, [], ""),
        (HANG, [None], "stacks"),
    ],
)
def test_a_probe_that_fails_otherwise(tmp_path: Path, row: Lack, left: list[object], hung: str) -> None:
    assert "; but " in row.judge(FAILS, job(tmp_path, *left, hung=hung))


def test_a_probe_that_passes_or_starts_no_job(tmp_path: Path) -> None:
    assert "the test passes: remove the row" in ERROR.judge(None, job(tmp_path, refused()))
    assert "no job ran" in ERROR.judge(FAILS, None)


def test_nothing_else_expects_failures() -> None:
    """`xfail` takes any failure for the one that was meant; some tests are about `xfail` itself."""
    found = [path for path in machine.TESTS.rglob("*.py") if re.search(r"\bxfail\(|mark\.xfail", path.read_text())]
    assert [path for path in found if path.parent.name not in ("plugin", "unit") and path.stem != "test_sabotage"] == []


# The rows of what is lacking

ROWS = (*pairings.LACKS, *promises.LACKS, *hosting.LACKS)
PROBED = [row for row in ROWS if row.probe]
# To find out what the machine has starts processes.
SERVERS = pairings.servers()


def named(row: Lack) -> str:
    return f"{row.feature}, {row.server}/{row.client}"


def found(name: str) -> list[Path]:
    """Return the modules of a test that is named as in `Lack.probe` and `Lack.proof`, if it exists."""
    module, _, test = name.partition(".")
    modules = machine.TESTS.glob(f"{module}.py" if "/" in module else f"**/{module}.py")
    return [path for path in modules if not test or re.search(rf"^def {test}\(", path.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_each_row_is_proven(row: Lack) -> None:
    assert (row.expect is not None) == bool(row.probe)
    assert bool(row.probe) != bool(row.proof), "a row has a probe, or is proven elsewhere"
    assert not row.harm or row.proof, "what does harm has a trace"
    assert not (isinstance(row.expect, Error) and row.expect.is_vague)
    place, _, words = row.proof.partition("#")
    if words:
        assert f"# {words}\n" in (machine.ROOT / "docs" / place).read_text()
    else:
        assert len(found(row.probe or row.proof)) == 1


def given(marks: Sequence[pytest.Mark], *names: str) -> list[str]:
    return [each for mark in marks if mark.name in names for each in mark.args]


@pytest.mark.parametrize("row", [row for row in PROBED if row not in hosting.LACKS], ids=named)
def test_each_row_is_shown_on_each_server(row: Lack) -> None:
    """Its probe runs on each server that it is about, unless a row before it is about all of its pairings."""
    (path,) = found(row.probe)
    name, _, test_name = row.probe.partition(".")
    module = importlib.import_module(".".join(path.relative_to(machine.TESTS).with_suffix("").parts))
    test = getattr(module, test_name)
    shared = getattr(module, "pytestmark", [])
    marks = [*(shared if isinstance(shared, list) else [shared]), *getattr(test, "pytestmark", [])]
    marks = [getattr(each, "mark", each) for each in marks]
    features = given(marks, "needs", "promise")
    assert row.feature in features
    for server in SERVERS:
        about = [
            pairing
            for client in (*pairings.clients(), "c-client")
            if (pairing := Pairing(server, client)).exists and pairing.runs(name) and pairing.lack(row.feature) == row
        ]
        if "launch" in inspect.signature(test).parameters:
            chosen = [pairing for pairing in about if pairing.client == "c-client"]
        else:
            clients = given(marks, "clients") or ["*"]
            every = [
                pairing
                for client in pairings.clients()
                if (pairing := Pairing(server, client)).exists and any(fnmatchcase(client, each) for each in clients)
            ]
            chosen = selection.select(row.probe, every, features)
            about = [pairing for pairing in about if pairing.client != "c-client"]
        shown = [pairing for pairing, each in running.cases(row.probe, chosen, features) if pairing in about and each]
        # A refusal by our own engine would be all that is seen.
        assert not [each for each in shown if any(lack.proof for lack in map(each.lack, features) if lack)]
        assert bool(shown) == bool(about), f"{server}: about {[*map(str, about)]}, shown by {[*map(str, shown)]}"
