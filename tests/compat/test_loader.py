"""`import pmix` for one run, for the programs that it starts, and for an environment; nothing else is touched."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lib import machine, pairings
from lib.pairings import Part
from pypmix.compat import loader
from pypmix.extras.commands.compat import compat

EXAMPLES = machine.ROOT / "docs" / "examples" / "compat"


@pytest.fixture
def go(tmp_path):
    """Run Python with some words in an empty folder, and return how it ended."""

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        names = {name: text for name, text in os.environ.items() if not name.startswith(("PMIX_", "PYPMIX_"))}
        names |= {"PYTHONPATH": str(machine.ROOT), **environment}
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=tmp_path, env=names, capture_output=True, text=True, timeout=60)

    return run


def test_a_script_runs_as_by_python_itself(go, tmp_path):
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "neighbour.py").write_text("NAME = 'neighbour'\n")
    script = tmp_path / "beside" / "script.py"
    script.write_text(
        "import sys, pmix, neighbour\n"
        "from pmix import PMIxClient, PMIX_SUCCESS\n"
        "print(__name__, sys.argv[1:], neighbour.NAME, sys.modules['__main__'].__file__ == __file__)\n"
        "sys.exit(3)\n"
    )
    for words in (("-m", "pypmix.compat"), ("-m", "pypmix", "compat")):
        ended = go(*words, "beside/script.py", "--check", "-x")
        assert ended.stdout == "__main__ ['--check', '-x'] neighbour True\n", ended.stderr
        assert ended.returncode == 3


def test_a_module_runs(go, tmp_path):
    (tmp_path / "program.py").write_text("import pmix, sys\nprint(__name__, sys.argv[1:], pmix.PMIX_ERR_INIT)\n")
    ended = go("-m", "pypmix.compat", "-m", "program", "word")
    assert ended.stdout == "__main__ ['word'] -31\n", ended.stderr


def test_what_a_script_raises_is_shown_as_by_python_itself(go, tmp_path):
    (tmp_path / "bad.py").write_text("raise KeyError('unknown')\n")
    ended = go("-m", "pypmix", "compat", "bad.py")
    assert ended.returncode == 1
    assert ended.stderr.endswith("KeyError: 'unknown'\n")


def test_children_of_a_run_find_it_too(go, tmp_path):
    child = "import pmix; print(pmix.__name__)"
    script = tmp_path / "parent.py"
    script.write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)\n")
    ended = go("-m", "pypmix.compat", "parent.py")
    assert ended.stdout == "pypmix.compat\n", ended.stderr
    left = go("-c", "import sys; print(any('compat' in path for path in sys.path))")
    assert left.stdout == "False\n", left.stderr


@pytest.mark.parametrize("words", [(), ("--nonsense",), ("-m",), ("nothing.py",)])
def test_a_wrong_command_line_is_refused(go, words):
    ended = go("-m", "pypmix.compat", *words)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr


def test_it_is_installed_and_removed(tmp_path, go):
    target = loader.install(tmp_path)
    assert target == tmp_path / "pmix.py"
    assert loader.install(tmp_path) == target
    ended = go("-c", "import pmix; print(pmix.__name__, pmix.PMIX_SUCCESS)")
    assert ended.stdout == "pypmix.compat 0\n", ended.stderr
    alone = go("-S", "-c", "import pmix", PYTHONPATH=str(tmp_path))
    assert f"{target} belongs to pypmix" in alone.stderr
    assert loader.uninstall(tmp_path) == target
    assert loader.uninstall(tmp_path) is None
    assert not list(tmp_path.glob("*.py"))


def test_another_pmix_is_left_alone(tmp_path):
    other = tmp_path / "pmix.py"
    other.write_text("# somebody else's\n")
    with pytest.raises(loader.ForeignModule):
        loader.install(tmp_path)
    with pytest.raises(loader.ForeignModule):
        loader.uninstall(tmp_path)
    assert other.read_text() == "# somebody else's\n"


@pytest.mark.parametrize("words", [(), ("--install", "--uninstall"), ("--check",), ("--install", "script.py")])
def test_the_command_wants_one_thing(go, words):
    ended = go("-m", "pypmix", "compat", *words)
    assert ended.returncode == 2
    assert "pypmix compat: name a script to run" in ended.stderr


def test_the_command_installs_and_removes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(loader.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(loader.importlib.util, "find_spec", lambda name: None)
    assert compat([], install=True, uninstall=False, check=False) == 0
    assert compat([], install=False, uninstall=True, check=False) == 0
    assert compat([], install=False, uninstall=True, check=False) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"`import pmix` is pypmix.compat now: {tmp_path / 'pmix.py'}",
        f"removed {tmp_path / 'pmix.py'}",
        "nothing was installed",
    ]


def test_the_command_says_whose_pmix_is_there(tmp_path, monkeypatch, capsys):
    theirs = tmp_path / "pmix.so"
    theirs.write_bytes(b"\x7fELF")
    found = importlib.util.spec_from_file_location("pmix", theirs, loader=None)
    monkeypatch.setattr(loader.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(loader.importlib.util, "find_spec", lambda name: found)
    assert compat([], install=True, uninstall=False, check=False) == 1
    assert str(theirs) in capsys.readouterr().err
    assert not (tmp_path / "pmix.py").exists()


@pytest.mark.forms("sync")
@pytest.mark.servers("python-server")
@pytest.mark.clients("python-client", "native-4.2.2")
def test_the_program_of_the_reference(run):
    part = Part(2, [sys.executable, "-m", "pypmix.compat", str(EXAMPLES / "ring.py")])
    line = pairings.command_line(run.server, [part])
    job = run.begin(line, environment=pairings.client_environment(run.client)).wait()
    assert job.exit_code == 0, job.report()
    for rank in range(2):
        assert f"rank {rank} hears: rank {1 - rank} says hello" in job.stdout, job.report()


def test_the_reference_shows_the_program():
    text = Path(machine.ROOT / "docs" / "reference" / "compat.md").read_text()
    assert "../examples/compat/ring.py" in text
