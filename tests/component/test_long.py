"""The long tier runs part after part, and what has passed at a commit is not run again."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from lib import long, machine

APPEND = "import sys; open('log', 'a').write(sys.argv[1]); sys.exit({})"


def part(name: str, code: int = 0) -> long.Part:
    return long.Part(name, f"part {name}", ("python", "-c", APPEND.format(code), name), ())


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not shutil.which("git"):
        machine.lacking("git")
    found = tmp_path / "checkout"
    found.mkdir()
    monkeypatch.setattr(long, "ROOT", found)
    (found / ".gitignore").write_text("log\n")
    identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    for words in (["init"], ["add", "."], [*identity, "commit", "-m", "first"]):
        subprocess.run(["git", *words], cwd=found, check=True, capture_output=True, timeout=30)
    return found


def test_it_continues_with_what_has_not_passed(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    results = ["--results", str(tmp_path / "results")]
    monkeypatch.setattr(long, "PARTS", (part("a"), part("b", 1), part("c")))
    assert long.main(results) == 1
    assert (checkout / "log").read_text() == "abc"
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-4:-1]] == [["a", "passed"], ["b", "failed"], ["c", "passed"]]
    assert lines[-1].startswith("2 of 3 parts passed")
    monkeypatch.setattr(long, "PARTS", (part("a"), part("b"), part("c")))
    assert long.main([*results, "--list"]) == 0
    assert long.main(results) == 0
    assert (checkout / "log").read_text() == "abcb"
    assert long.main([*results, "--only", "a"]) == 0
    assert (checkout / "log").read_text() == "abcba"


def test_another_state_of_the_checkout_begins_anew(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long, "PARTS", (part("a"),))
    results = ["--results", str(tmp_path / "results")]
    assert long.main(results) == long.main(results) == 0
    (checkout / "new").write_text("")
    assert long.main(results) == 0
    assert (checkout / "log").read_text() == "aa"


def test_signals_that_the_shell_has_it_ignore_reach_the_parts(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import signal, sys; sys.exit(signal.SIG_IGN in map(signal.getsignal, (1, 2, 3)))"
    monkeypatch.setattr(long, "PARTS", (long.Part("heeds", "signals", ("python", "-c", code), ()),))
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (1, 2, 3)}
    try:
        assert long.main(["--results", str(tmp_path / "results")]) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_every_folder_of_tests_is_in_a_part() -> None:
    tests = Path(long.__file__).resolve().parents[1]
    folders = {path.parent.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")}
    words = {word.removeprefix("tests/").split("/")[0] for each in long.PARTS for word in each.command}
    assert folders <= words
