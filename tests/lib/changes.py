"""What the change under test touches: files, and tests that it adds or edits.

The change is what the working tree has beyond a commit: that of `PYPMIX_TEST_SINCE`; without it, the last one that the
branch shares with `origin/main`; on main itself, the last one that is older than a day. Without git nothing is changed.
"""

from __future__ import annotations

import ast
import functools
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SINCE = "PYPMIX_TEST_SINCE"


def _git(*words: str) -> str:
    """Return what a git command prints, empty if it fails."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


@functools.cache
def base() -> str:
    """Return the commit that the change begins after, empty if there is none."""
    named = os.environ.get(SINCE, "")
    if named:
        return _git("rev-parse", "--verify", "--quiet", f"{named}^{{commit}}").strip()
    shared = _git("merge-base", "HEAD", "origin/main").strip()
    if shared and shared != _git("rev-parse", "HEAD").strip():
        return shared
    return _git("rev-list", "-1", "--before=24 hours ago", "HEAD").strip()


@functools.cache
def files() -> frozenset[str]:
    """Return the files that the change adds or edits, by their paths in the checkout."""
    if not base():
        return frozenset()
    changed = _git("diff", "--name-only", "--no-renames", base()) + _git("ls-files", "--others", "--exclude-standard")
    return frozenset(changed.splitlines())


@functools.cache
def _renamed() -> dict[str, str]:
    """Return the files that the change moves, with their paths before."""
    found = _git("diff", "--name-status", "--find-renames", "--diff-filter=R", base())
    return {new: old for _, old, new in (line.split("\t") for line in found.splitlines())}


def _functions(text: str) -> dict[str, str]:
    """Return the test functions of a module with their code, of which comments and layout are no part."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    return {
        node.name: ast.dump(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    }


@functools.cache
def edited_tests(path: str) -> frozenset[str]:
    """Return the test functions of a file that the change adds or edits."""
    if path not in files():
        return frozenset()
    try:
        now = _functions((ROOT / path).read_text())
    except OSError:
        return frozenset()
    before = _functions(_git("show", f"{base()}:{_renamed().get(path, path)}"))
    return frozenset(name for name, code in now.items() if before.get(name) != code)


def is_edited(nodeid: str) -> bool:
    """Return True if the change adds or edits the test function of a node id."""
    path, _, rest = nodeid.partition("[")[0].partition("::")
    return rest.rpartition("::")[2] in edited_tests(path)


@functools.cache
def touches_subject(path: str) -> bool:
    """Return True if a test module itself imports a module of the package that the change edits."""
    try:
        tree = ast.parse((ROOT / path).read_text())
    except (OSError, SyntaxError):
        return False
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    paths = {name.replace(".", "/") for name in names if name.startswith("pypmix.")}
    return not files().isdisjoint(f"{each}.py" for each in paths)
