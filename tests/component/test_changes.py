"""The change under test is found by git, and the tests that it adds or edits by their code."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lib import changes, machine

Git = Callable[..., None]

BEFORE = "def test_old():\n    assert 1\n\ndef test_other():\n    assert 2\n"
AFTER = "def test_old():\n    # comment\n    assert 1\n\ndef test_other():\n    assert 3\n\ndef test_new():\n    pass\n"


def forget() -> None:
    for each in (changes.base, changes.files, changes.edited_tests, changes.touches_subject):
        each.cache_clear()


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Git]:
    """A repository with one commit of some days ago, in the place of this one."""
    if not shutil.which("git"):
        machine.lacking("git")
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    monkeypatch.delenv(changes.SINCE, raising=False)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")

    def run(*words: str, days_ago: int = 0) -> None:
        date = subprocess.check_output(["date", "-R", "-d", f"{days_ago} days ago"], text=True).strip()
        monkeypatch.setenv("GIT_COMMITTER_DATE", date)
        monkeypatch.setenv("GIT_AUTHOR_DATE", date)
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True, timeout=30)

    run("init", "--initial-branch", "main")
    (tmp_path / "test_it.py").write_text(BEFORE)
    (tmp_path / "test_same.py").write_text("from pypmix.wire import decode\n\ndef test_it():\n    pass\n")
    run("add", ".")
    run("commit", "-m", "first", days_ago=3)
    forget()
    yield run
    forget()


def test_tests_that_are_added_or_edited(git: Git, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(AFTER)
    git("commit", "-am", "second")
    assert changes.files() == {"test_it.py"}
    assert changes.edited_tests("test_it.py") == {"test_other", "test_new"}
    assert changes.is_edited("test_it.py::test_new[a::b]") and not changes.is_edited("test_it.py::test_old")
    assert not changes.is_edited("test_same.py::test_it")


def test_what_is_not_committed_counts(git: Git, tmp_path: Path) -> None:
    (tmp_path / "test_new.py").write_text(BEFORE)
    assert changes.edited_tests("test_new.py") == {"test_old", "test_other"}


def test_a_module_whose_subject_is_edited(git: Git, tmp_path: Path) -> None:
    assert not changes.touches_subject("test_same.py")
    forget()
    subject = tmp_path / "pypmix" / "wire" / "decode.py"
    subject.parent.mkdir(parents=True)
    subject.write_text("")
    assert changes.touches_subject("test_same.py") and not changes.touches_subject("test_it.py")


def test_a_commit_that_is_named(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_it.py").write_text(AFTER)
    git("commit", "-am", "second")
    monkeypatch.setenv(changes.SINCE, "HEAD")
    assert changes.files() == frozenset()


def test_a_branch_is_compared_with_what_it_shares_with_main(git: Git, tmp_path: Path) -> None:
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    git("switch", "-c", "mine")
    (tmp_path / "test_it.py").write_text(AFTER)
    git("commit", "-am", "second", days_ago=2)
    assert changes.files() == {"test_it.py"}


def test_without_a_repository_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    forget()
    assert changes.base() == "" and changes.files() == frozenset() and not changes.is_edited("test_it.py::test_old")
    forget()
