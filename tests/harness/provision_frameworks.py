"""Fetch Dask and Ray, and JAX, from PyPI into an environment each, for `tests/frameworks`.

Run as `python tests/harness/provision_frameworks.py [clusters] [jax]`; what is there already is kept. Dask and Ray are
about 350 MB, JAX 640 MB; each takes a minute or two.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from provision import FOLDER, TIME_LIMIT

PACKAGES = ("distributed==2026.8.0", "ray==2.60.0", "cryptography==45.0.7")
JAX_PACKAGES = ("jax==0.10.2", "cffi==2.1.1", "anyio==4.16.0")

LIMIT = 900.0
"""Seconds for each; packages of some hundred megabytes."""

FRAMEWORKS = FOLDER / "frameworks"
JAX = FOLDER / "jax"


def fetch(title: str, folder: Path, packages: Sequence[str]) -> None:
    """Install packages into an environment of their own."""
    done = folder / "-".join(["installed", *packages])
    if done.exists():
        print(f"{title}: there already, {folder}")
        return
    print(f"{title}: installing {' and '.join(packages)} from PyPI into {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=TIME_LIMIT)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages], check=True, timeout=LIMIT)
    done.touch()


FETCHED = {"clusters": ("Dask and Ray", FRAMEWORKS, PACKAGES), "jax": ("JAX", JAX, JAX_PACKAGES)}


def main(*wanted: str) -> None:
    for title, folder, packages in [FETCHED[name] for name in wanted or FETCHED]:
        try:
            fetch(title, folder, packages)
        except (OSError, subprocess.SubprocessError) as error:
            if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
                raise
            print(f"{title} cannot be had here, tests that need it will skip: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
