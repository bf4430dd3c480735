"""Times small tests on several ranks: by the plugin of pytest, and by one `mpirun` of pytest for each.

    python tests/bench/plugin.py [--tests 100] [--ranks 4] [--mpirun 100] [--launcher mpirun]

`--mpirun` is how many of the tests are run by `mpirun`, one after the other, as mpi-pytest and pytest-isolate-mpi have
it; their time is told per test. Half of them come before the run of the plugin and half after it, so that a noisy
machine is noisy for both.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import entry_points
from pathlib import Path

PLUGIN = ["-p", "no:cacheprovider", "-q"]
if not any(each.value == "pypmix.testing.plugin" for each in entry_points(group="pytest11")):
    PLUGIN += ["-p", "pypmix.testing.plugin"]


def timed(words: list[str], folder: Path) -> tuple[float, float]:
    """Return the seconds and the CPU seconds that a command takes."""
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mpirun", type=int, default=100)
    parser.add_argument("--launcher", default="mpirun --allow-run-as-root --oversubscribe")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        head = f"import pytest\n@pytest.mark.pmix(ranks={given.ranks})\n"
        body = f"@pytest.mark.parametrize('n', range({given.tests}))\ndef test(n): assert n * n >= n\n"
        (folder / "test_warm.py").write_text(head + body)
        (folder / "test_mpi.py").write_text("import pytest\n" + body)
        timed([sys.executable, "-m", "pytest", *PLUGIN, "test_warm.py::test[0]"], folder)
        launch = [*given.launcher.split(), "-n", str(given.ranks), sys.executable, "-m", "pytest", *PLUGIN]

        def by_mpirun(numbers: range) -> list[tuple[float, float]]:
            return [timed([*launch, f"test_mpi.py::test[{number}]"], folder) for number in numbers]

        half = given.mpirun // 2
        each = by_mpirun(range(half))
        elapsed, cpu = timed([sys.executable, "-m", "pytest", *PLUGIN, "test_warm.py"], folder)
        each += by_mpirun(range(half, given.mpirun))
    mpi_elapsed, mpi_cpu = (sum(column) / len(each) for column in zip(*each, strict=True))
    print(f"{given.tests} tests on {given.ranks} ranks, seconds per test")
    print(f"{'':>14} {'elapsed':>8} {'CPU':>8}")
    print(f"{'pypmix':>14} {elapsed / given.tests:>8.3f} {cpu / given.tests:>8.3f}")
    print(f"{'mpirun each':>14} {mpi_elapsed:>8.3f} {mpi_cpu:>8.3f}   ({len(each)} of them)")
    print(f"{'times':>14} {mpi_elapsed / elapsed * given.tests:>8.1f} {mpi_cpu / cpu * given.tests:>8.1f}")


if __name__ == "__main__":
    main()
