"""Run the long tier: all tests there are, part after part. Run as `tox -e long`.

A part that has passed is not run again at the same commit, so that the run can be stopped and resumed. `--list` shows
what is left, `--only NAME` runs one part in any case. The run ends with a line for each part and the totals, and the
exit code is 1 unless all parts have passed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIB = "tests/lib"
PYTEST = ("pytest", "-n", "2", "--dist", "worksteal")

DIST = ".tox/dist"
"""Where the distributions go that the part `wheels` builds."""

RANDOM = "PYPMIX_TEST_RANDOM"
"""With it Hypothesis looks for new examples in each run."""


class Part(NamedTuple):
    """A part of the long tier.

    Args:
        name: What `--only` calls it.
        title: What it is.
        command: A program of this Python's environment, with its arguments.
        roots: The Debian roots that it takes, which `provision_roots.py` builds.
        frameworks: What `provision_frameworks.py` fetches for it.
        variables: Additions to the environment.
    """

    name: str
    title: str
    command: tuple[str, ...]
    roots: tuple[str, ...] = ("forky",)
    frameworks: tuple[str, ...] = ()
    variables: Mapping[str, str] = MappingProxyType({})


def folders(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}" for name in names)


LEARNING = folders("frameworks/test_torch.py", "frameworks/test_jax.py")
SESSIONS = folders("faults/test_sessions.py", "faults/test_hostile.py", "faults/test_signals.py")
STABLE = folders(*(f"suite/test_{name}.py" for name in ("fences", "groups", "modex", "publish")))

PARTS = (
    Part("checks", "style, types and documentation", ("tox", "-e", "lint,types,docs"), ()),
    Part("unit", "all of unit, component and wire", (*PYTEST, *folders("unit", "component", "wire"))),
    Part("faults", "losses at any moment", (*PYTEST, *folders("faults"))),
    Part("suite", "the shared suite on every pairing in both forms", (*PYTEST, "--all-modes", *folders("suite"))),
    Part(
        "foreign",
        "C programs, hosts, and the comparison with native servers",
        (*PYTEST, "--all-modes", *folders("foreign")),
    ),
    Part(
        "commands",
        "the command line, the official binding's API, the plugin and the pages",
        (*PYTEST, *folders("cli", "compat", "plugin", "pages")),
    ),
    Part("nodes", "several nodes, daemons and rosters", (*PYTEST, *folders("nodes", "cluster", "daemons"))),
    Part(
        "frameworks",
        "worlds and clusters of Dask and Ray, and Debian's torch",
        ("pytest", *(f"--ignore={path}" for path in LEARNING), *folders("frameworks")),
        roots=("forky", "torch"),
        frameworks=("clusters",),
    ),
    Part("learning", "PyTorch and JAX", ("pytest", *LEARNING), (), ("jax", "torch")),
    Part("fuzz", "hostile messages", ("pytest", *folders("fuzz")), (), variables={"PYPMIX_FUZZ_SECONDS": "600"}),
    Part(
        "sessions",
        "2,000 random sessions, hostile clients and signals",
        ("pytest", *SESSIONS),
        (),
        variables={"PYPMIX_FAULT_ROUNDS": "2000"},
    ),
    Part(
        "nodefaults",
        "300 jobs over three nodes that are hit at random moments",
        ("pytest", *folders("nodes/test_faults.py")),
        (),
        variables={"PYPMIX_FAULT_ROUNDS": "300"},
    ),
    Part(
        "differential",
        "200 random plans of ranks of C and Python",
        ("pytest", *folders("foreign/interop/differential")),
        variables={"PYPMIX_DIFFERENTIAL_RUNS": "200", "PYPMIX_DIFFERENTIAL_FROM": "1000"},
    ),
    Part("trixie", "Debian 13's Slurm with its PMIx plugin and without", ("pytest", *folders("trixie")), ("trixie",)),
    Part(
        "stable",
        "a part of the shared suite on Debian 13's PRRTE, libpmix and Python",
        (*PYTEST, "-k", "prterun-5.0.7 or native-server-5.0.7", *STABLE),
        ("trixie",),
        variables={"PYPMIX_TEST_ROOT": "trixie"},
    ),
    Part(
        "python313",
        "unit and wire on Debian 13's Python 3.13",
        ("python", f"{LIB}/in_root.py", "trixie", "-n", "2", *folders("unit", "wire")),
        ("trixie",),
    ),
    Part(
        "python314",
        "unit and wire on Debian forky's Python 3.14",
        ("python", f"{LIB}/in_root.py", "forky", "-n", "2", *folders("unit", "wire")),
    ),
    Part("wheels", "what goes to the index: built, checked and installed", ("python", "native/wheels.py", DIST), ()),
    Part("stranger", "README and the tutorial on a bare machine", ("pytest", *folders("stranger")), ("bookworm",)),
    Part("bare", "README's test command on a bare machine", ("python", f"{LIB}/bare.py"), ("bookworm",)),
    Part("sabotage", "tests fail where the package is broken", ("python", "tests/long/sabotage.py")),
    Part("mutants", "tests fail where a line is changed", ("python", "tests/long/mutants.py"), ()),
)


class Result(NamedTuple):
    """How a part ended."""

    passed: bool
    seconds: float


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


def state_of_checkout() -> str:
    """Return a name of what is tested: the commit, and a digest of what was changed since."""
    commit = git("rev-parse", "HEAD").strip()[:12]
    changed = git("diff", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    return f"{commit}-{hashlib.sha256(changed.encode()).hexdigest()[:8]}" if changed else commit


class State:
    """The file that says which parts have ended, and how."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.results: dict[str, Result] = {}
        if path.exists():
            self.results = {name: Result(*values) for name, values in json.loads(path.read_text()).items()}

    def record(self, name: str, result: Result) -> None:
        self.results[name] = result
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(self.results, indent=1))
        draft.replace(self._path)

    def has_passed(self, name: str) -> bool:
        return name in self.results and self.results[name].passed


def program(command: Sequence[str]) -> list[str]:
    """Return a command line, with this Python or a module of it as the program."""
    name, *arguments = command
    return [sys.executable, *(() if name == "python" else ("-m", name)), *arguments]


def restore_signals() -> None:
    """Heed the signals again that a shell has a command ignore which it runs in the background: tests raise them."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def run(part: Part, folder: Path) -> bool:
    """Run a part, and return True if it passes."""
    provides = [
        [f"{LIB}/provision_roots.py", *part.roots] if part.roots else [],
        [f"{LIB}/provision_frameworks.py", *part.frameworks] if part.frameworks else [],
    ]
    command = program(part.command)
    if "pytest" in part.command:
        command.append(f"--results={folder / part.name}")
    lines = [[sys.executable, *words] for words in provides if words] + [command]
    environment = {**os.environ, RANDOM: "1", **part.variables}
    return all(subprocess.run(line, cwd=ROOT, env=environment).returncode == 0 for line in lines)


def describe(part: Part, state: State) -> str:
    """Return the line about a part."""
    result = state.results.get(part.name)
    if result is None:
        return f"{part.name:13} left     {part.title}"
    return f"{part.name:13} {'passed' if result.passed else 'failed':8} {part.title}, {result.seconds / 60:.1f} min"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="show the parts, and which of them have passed")
    parser.add_argument("--only", action="append", metavar="NAME", choices=[part.name for part in PARTS])
    parser.add_argument("--results", type=Path, default=ROOT / ".tox" / "results", help="where the results go")
    given = parser.parse_args(arguments)
    folder = given.results / f"long-{state_of_checkout()}"
    folder.mkdir(parents=True, exist_ok=True)
    state = State(folder / "state.json")
    parts = [part for part in PARTS if part.name in (given.only or [each.name for each in PARTS])]
    if not given.list:
        restore_signals()
        for part in parts:
            if not state.has_passed(part.name) or given.only:
                print(f"== {part.name}: {part.title}", flush=True)
                began = time.monotonic()
                passed = run(part, folder)
                state.record(part.name, Result(passed, time.monotonic() - began))
    for part in parts:
        print(describe(part, state))
    passed = sum(state.has_passed(part.name) for part in parts)
    seconds = sum(result.seconds for result in state.results.values())
    print(f"{passed} of {len(parts)} parts passed, {seconds / 60:.0f} min in all; results: {folder}")
    return 0 if given.list or passed == len(parts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
