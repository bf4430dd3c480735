"""The plugin of pytest: what people see of tests that run on several ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pypmix
from lib import processes
from lib.plugin_runs import ROOT, Ended, Runs
from pypmix.testing import scenario
from pypmix.testing.cluster import RealCluster, format_ranks
from pypmix.testing.results import _hide_pytest

pytestmark = pytest.mark.timeout(240)


TESTS = """
import os, time, warnings
import pytest

@pytest.mark.pmix(ranks=3)
def test_one_fails(pmix):
    print("out of", pmix.rank)
    warnings.warn("careful")
    number = 10 * pmix.rank
    assert number != 10

@pytest.mark.pmix(ranks=3)
def test_all_fail(tmp_path):
    values = [1, 2]
    assert values == [1, 3]

@pytest.mark.pmix(ranks=2, timeout=15)
def test_hangs(pmix):
    if pmix.rank == 0:
        pmix.fence()
    else:
        time.sleep(100)

@pytest.mark.pmix(ranks=2)
def test_dies(pmix):
    if pmix.rank == 1:
        os.kill(os.getpid(), 9)

@pytest.mark.pmix
@pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
def test_expected():
    1 / 0

@pytest.mark.pmix
def test_skipped():
    pytest.skip("not now")

@pytest.fixture
def broken():
    raise LookupError("no such thing")

@pytest.mark.pmix
def test_setup(broken):
    pass

@pytest.fixture
def leaving():
    yield
    raise LookupError("too late")

@pytest.mark.pmix
def test_teardown(leaving):
    pass

@pytest.mark.pmix(ranks=3)
@pytest.mark.xfail(strict=True)
def test_expected_on_one(pmix):
    assert pmix.rank != 1

@pytest.mark.pmix
@pytest.mark.xfail(strict=True, reason="never")
def test_unexpected():
    pass

@pytest.mark.pmix(ranks=3)
def test_ends(pmix, record_property):
    record_property("object", object)
    if pmix.rank == 1:
        raise SystemExit(4)
    pmix.fence(timeout=60)

@pytest.mark.pmix(ranks=2, engine="python")
class TestClass:
    def test_method(self, pmix, pmix_ranks):
        assert pmix.job.size == pmix_ranks == 2
        assert os.environ["PYPMIX_ENGINE"] == "python"
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    made = Runs(tmp_path_factory.mktemp("runs"))
    (made.folder / "test_all.py").write_text(TESTS)
    yield made
    left = processes.wait_gone(made.mark, 10)
    processes.kill(made.mark)
    assert not left


@pytest.fixture(scope="module")
def ended(runs: Runs) -> Ended:
    """The end of a run of all tests."""
    return runs("test_all.py", "-ra")


def test_each_test_is_counted_once(ended: Ended) -> None:
    assert ended.code == 1
    summary = ended.out.splitlines()[-1]
    for count in ("6 failed", "2 passed", "1 skipped", "2 xfailed", "2 errors", "1 warning"):
        assert count in summary, ended.out


def test_an_assertion_comes_home_with_its_rank(ended: Ended) -> None:
    part = ended.part("test_one_fails")
    assert "- rank 1 of 3 -" in part and "- rank 0" not in part
    assert ">       assert number != 10\nE       assert 10 != 10" in part
    assert "FAILED test_all.py::test_one_fails - rank 1 of 3: assert 10 != 10" in ended.out


def test_equal_failures_are_shown_once(ended: Ended) -> None:
    part = ended.part("test_all_fail")
    assert "- ranks 0 to 2 of 3 -" in part
    assert part.count("E       assert [1, 2] == [1, 3]") == 1 and "At index 1 diff: 2 != 3" in part


def test_output_and_warnings_have_their_ranks(ended: Ended) -> None:
    part = ended.part("test_one_fails")
    for rank in range(3):
        assert f"Captured stdout call (rank {rank} of 3)" in part and f"out of {rank}" in part
    assert "UserWarning: ranks 0 to 2 of 3: careful" in ended.out


def test_a_time_limit_names_who_is_missing_and_shows_all_stacks(ended: Ended) -> None:
    part = ended.part("test_hangs")
    assert "the job did not end within 15 s and was ended" in part
    assert "1 of 2 arrived" in part and "missing: rank 1 (pid " in part
    stacks = part.partition("- rank 0 of 2 -")[2]
    assert "in fence" in stacks and "in test_hangs" in stacks.partition("- rank 1 of 2 -")[2]
    assert "_pytest" not in stacks


def test_a_rank_that_dies_is_format_ranks(ended: Ended) -> None:
    assert "was killed by signal 9 (SIGKILL)" in ended.part("test_dies").partition("- rank 1 of 2 -")[2]


def test_the_cause_comes_before_what_it_does_to_others_and_without_frames_of_pypmix(ended: Ended) -> None:
    part = ended.part("test_ends")
    cause, _, rest = part.partition("- ranks 0, 2 of 3 -")
    assert "- rank 1 of 3 -" in cause and re.search(r"^E +SystemExit: 4$", cause, re.MULTILINE)
    assert re.search(r">       pmix.fence\(timeout=60\)\nE .*PartialSuccess: .*; still missing: rank 1\n", rest), part
    assert "/pypmix/" not in part
    assert "FAILED test_all.py::test_ends - rank 1 of 3: SystemExit: 4" in ended.out


def test_a_test_that_was_to_fail_does_so_on_one_rank(ended: Ended) -> None:
    assert "XFAIL test_all.py::test_expected_on_one" in ended.out
    assert "- ranks 0 to 1 of 2 -" in ended.part("test_unexpected") and "[XPASS(strict)] never" in ended.out


def test_other_ways_to_show_a_run(runs: Runs, ended: Ended) -> None:
    """A report that has passed from one process to another has its line of the summary; properties stay."""
    (runs.folder / "test_few.py").write_text(
        "import pytest\n"
        "pytestmark = pytest.mark.pmix\n"
        "def test_fails(record_property):\n"
        "    record_property('color', 'red')\n"
        "    assert 0, 'told'\n"
    )
    found = runs("-n", 1, "test_few.py")
    assert "FAILED test_few.py::test_fails - ranks 0 to 1 of 2: AssertionError: told" in found.out
    found = runs("--setup-show", "--full-trace", "--junit-xml", "few.xml", "test_few.py")
    assert "1 failed" in found.out and "AssertionError: told" in found.out
    assert (runs.folder / "few.xml").read_text().count('<property name="color" value="red"') == 1
    assert runs("--setup-plan", "test_few.py").code == 0


def test_fixtures_fail_in_their_phase(ended: Ended) -> None:
    assert "LookupError: no such thing" in ended.part("ERROR at setup of test_setup")
    assert "LookupError: too late" in ended.part("ERROR at teardown of test_teardown")


def test_the_examples_and_xdist(runs: Runs) -> None:
    examples = ROOT / "docs" / "examples" / "testing"
    found = runs("--rootdir", examples, "-n", 2, "--pmix-timeout", 90, examples)
    assert found.code == 0 and "24 passed" in found.out, found.out


def test_fixtures_of_folders_are_there_in_each_of_their_files(runs: Runs) -> None:
    top = runs.folder / "folders"
    for folder in ("one", "two", "two/inner"):
        (top / folder).mkdir(parents=True)
        for number in (1, 2):
            name = f"test_{folder.replace('/', '_')}_{number}.py"
            (top / folder / name).write_text(
                "import pytest\n@pytest.mark.pmix\ndef test_it(pmix, here):\n    assert here == [1, 2]\n"
            )
    for folder in ("one", "two"):
        (top / folder / "conftest.py").write_text(
            "import pytest\n@pytest.fixture\ndef here(here):\n    return [*here, 2]\n"
        )
    (top / "conftest.py").write_text("import pytest\n@pytest.fixture\ndef here():\n    return [1]\n")
    # The conftests of folders that are named are loaded before anything is collected.
    for words in ([top], [top / "two" / "inner", top / "two", top / "one" / "test_one_2.py"]):
        found = runs("--rootdir", top, *words)
        assert found.code == 0 and f"{6 if words == [top] else 5} passed" in found.out, found.out


def test_a_file_may_leave_the_folder_where_pytest_was_started(runs: Runs) -> None:
    (runs.folder / "test_leaves.py").write_text(
        "import os, pytest\nos.chdir('/')\n@pytest.mark.pmix\ndef test_it(pmix): assert os.getcwd() == '/'\n"
    )
    found = runs("test_leaves.py")
    assert found.code == 0 and "1 passed" in found.out, found.out


def test_a_run_need_not_name_its_files(runs: Runs) -> None:
    folder = runs.folder / "unnamed"
    folder.mkdir()
    (folder / "test_it.py").write_text("import pytest\n@pytest.mark.pmix\ndef test_it(pmix): pass\n")
    found = runs("-s", "-q", folder=folder)
    assert found.code == 0 and "1 passed" in found.out and "Namespace" not in found.out, found.out
    # The root may be another folder than that of the tests.
    (folder / "root").mkdir()
    found = runs("--rootdir", folder / "root", folder=folder)
    assert found.code == 0 and "1 passed" in found.out, found.out


def test_pytest_may_ask_for_its_writer_on_ranks(runs: Runs) -> None:
    (runs.folder / "test_writer.py").write_text(
        "import pytest\n@pytest.mark.pmix\ndef test_it(pytestconfig):\n"
        "    assert not pytestconfig.get_terminal_writer().hasmarkup\n"
    )
    found = runs("test_writer.py")
    assert found.code == 0 and "1 passed" in found.out, found.out


def test_markers_count_above_and_below_a_scenario(runs: Runs) -> None:
    (runs.folder / "test_marked.py").write_text(
        "import pytest\nfrom pypmix.testing import scenario\n"
        "for time in ('real', 'virtual'):\n"
        "    @scenario(ranks=2, time=time)\n"
        "    @pytest.mark.skip(reason='below')\n"
        "    async def test_below(me, cluster): assert 0\n"
        "    globals()[f'test_{time}'] = test_below\n"
        "@scenario(ranks=2)\n@pytest.mark.xfail(strict=True)\ndef test_fails(me, cluster): assert 0\n"
    )
    found = runs("test_marked.py")
    assert found.code == 0 and "3 skipped, 1 xfailed" in found.out, found.out


def test_a_scenario_has_a_client_and_a_cluster() -> None:
    def too_many(me: object, cluster: object, tmp_path: Path) -> None: ...
    def none() -> None: ...

    for body in (too_many, none):
        with pytest.raises(TypeError, match="must have the parameters client and cluster, and no others"):
            scenario(ranks=2)(body)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "marker", "text"),
    [
        (["--pmix-ranks=0"], "", "ranks is a whole number of at least 1, not 0"),
        (["--pmix-timeout=0"], "", "timeout is a number of seconds above 0, not 0.0"),
        (["-o", "pmix_timeout=soon"], "", "timeout is a number of seconds above 0, not 'soon'"),
        ([], "(timeout=0)", "timeout is a number of seconds above 0, not 0"),
        ([], "(timeout='x')", "timeout is a number of seconds above 0, not 'x'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(runs: Runs, words: list[str], marker: str, text: str) -> None:
    (runs.folder / "test_numbers.py").write_text(f"import pytest\n@pytest.mark.pmix{marker}\ndef test_it(): pass\n")
    found = runs("test_numbers.py", *words)
    assert found.code != 0 and f"test_numbers.py::test_it: {text}" in found.out, found.out


def test_mistakes_are_told(runs: Runs) -> None:
    (runs.folder / "test_wrong.py").write_text(
        "import pytest, threading\n@pytest.mark.pmix(rank=2)\ndef test_word(): pass\n"
    )
    found = runs("test_wrong.py")
    assert found.code != 0 and "test_wrong.py::test_word: the marker is pmix(ranks=2, nodes=1" in found.out
    (runs.folder / "test_thread.py").write_text(
        "import pytest, threading\n"
        "threading.Thread(target=threading.Event().wait, daemon=True, name='own').start()\n"
        "@pytest.mark.pmix\n"
        "def test_it(): pass\n"
    )
    found = runs("test_thread.py")
    assert "test_thread.py cannot be imported before ranks are forked: it has started 1 thread (own)" in found.out


@pytest.mark.parametrize("name", ["test_mpi.py", "conftest.py"])
def test_modules_that_do_not_survive_a_fork_are_refused_by_name(runs: Runs, name: str) -> None:
    folder = runs.folder / f"refused_{name[:4]}"
    (folder / "mpi4py").mkdir(parents=True)
    (folder / "mpi4py" / "__init__.py").touch()
    (folder / "mpi4py" / "MPI.py").touch()
    test = folder / "test_mpi.py"
    test.write_text("import pytest\n@pytest.mark.pmix\ndef test_it():\n    from mpi4py import MPI\n")
    found = runs("--rootdir", folder, test)
    assert found.code == 0 and "1 passed" in found.out, found.out
    path = folder / name
    lines = "try:\n    from mpi4py import MPI\nexcept ImportError:\n    pass\n"
    path.write_text(lines + (path.read_text() if path.exists() else ""))
    found = runs("--rootdir", folder, test)
    assert "mpi4py.MPI cannot be imported before ranks are forked: import it inside of tests" in found.out, found.out


def test_a_file_that_ends_what_ranks_are_forked_from_is_format_ranks(runs: Runs) -> None:
    (runs.folder / "test_ends.py").write_text(
        "import os, pytest\nif 'PYPMIX_TEST_ENDS' in os.environ: os._exit(3)\nos.environ['PYPMIX_TEST_ENDS'] = '1'\n"
        "@pytest.mark.pmix\ndef test_it(): pass\n"
    )
    found = runs("test_ends.py")
    assert "exited with code 3, while it imported test_ends.py; with -s its output is shown" in found.out, found.out


def test_nothing_is_imported_at_the_start() -> None:
    code = (
        "import sys; import pypmix.testing.plugin; print(sorted(name for name in sys.modules if name[:6] == 'pypmix'))"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "['pypmix', 'pypmix.lazy', 'pypmix.testing', 'pypmix.testing.plugin', 'pypmix.testing.wish']"


def test_ranks_are_named_briefly() -> None:
    assert format_ranks([2], 4) == "rank 2 of 4"
    assert format_ranks([3, 0, 1, 2, 5], 8) == "ranks 0 to 3, 5 of 8"


def test_stacks_end_at_the_test() -> None:
    caller = f'  File "/x/{os.path.join("_pytest", "python.py")}", line 1 in pytest_pyfunc_call'
    stacks = (
        f'Thread 1:\n  File "a", line 1 in wait\n\nThread 2:\n  File "b", line 2 in test\n{caller}\n  File "c", line 1'
    )
    assert _hide_pytest(stacks) == 'Thread 1:\n  File "a", line 1 in wait\n\nThread 2:\n  File "b", line 2 in test'


def test_what_is_missing_is_compared(tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path)
    lost = pypmix.OperationTimeout("late", operation="fence", missing=[pypmix.Proc("job", 2)])
    with cluster.expect_missing(2):
        raise lost
    with pytest.raises(AssertionError, match=r"ranks \[2\] were missing, not \[1, 3\]"), cluster.expect_missing(3, 1):
        raise lost
    with pytest.raises(AssertionError, match=r"no operation failed, although ranks \[1\]"), cluster.expect_missing(1):
        pass


FEW_PAGES = """
import sys
import pytest
import pypmix

COLLECTED = frozenset(sys.modules)

@pytest.mark.pmix(ranks=2)
def test_passes(pytestconfig):
    imported = {name for name in sys.modules if name not in COLLECTED}
    assert not imported & {"json", "pypmix.testing.rank", "pypmix.testing.results"}, imported
    # A rank would copy a page for each module that it changes.
    assert "__tracebackhide__" not in vars(pypmix)
    assert set(pytestconfig.pluginmanager.get_plugins()) == pytestconfig.plugins_before

@pytest.mark.pmix
def test_fails(pmix):
    pmix.get("missing", timeout=0)
"""

PLUGINS_BEFORE = """
def pytest_collection_finish(session):
    session.config.plugins_before = set(session.config.pluginmanager.get_plugins())
"""


def test_ranks_inherit_what_they_need_to_run_a_test(runs: Runs) -> None:
    folder = runs.folder / "pages"
    folder.mkdir()
    (folder / "conftest.py").write_text(PLUGINS_BEFORE)
    (folder / "test_pages.py").write_text(FEW_PAGES)
    ended = runs("-q", "test_pages.py", folder=folder)
    assert "1 failed, 1 passed" in ended.out, ended.out
    shown = ended.part("test_fails")
    # The frames of pypmix are hidden in a failure all the same.
    assert "NotFound" in shown and "pypmix/client.py" not in shown, shown
