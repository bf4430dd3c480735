"""Fetch Dask and Ray from PyPI into an environment of their own, whose workers become nodes in `tests/frameworks`.

Run as `python tests/harness/provision_frameworks.py`; what is there already is kept. About 350 MB, a minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from provision import FOLDER, TIME_LIMIT

PACKAGES = ("distributed==2026.8.0", "ray==2.60.0", "cryptography==45.0.7")

FRAMEWORKS = FOLDER / "frameworks"


def fetch() -> None:
    """Install the packages into their environment."""
    done = FRAMEWORKS / "-".join(["installed", *PACKAGES])
    if done.exists():
        print(f"Dask and Ray: there already, {FRAMEWORKS}")
        return
    print(f"Dask and Ray: installing {' and '.join(PACKAGES)} from PyPI into {FRAMEWORKS}", flush=True)
    shutil.rmtree(FRAMEWORKS, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", FRAMEWORKS], check=True, timeout=TIME_LIMIT)
    pip = [FRAMEWORKS / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES], check=True, timeout=TIME_LIMIT)
    done.touch()


def main() -> None:
    try:
        fetch()
    except (OSError, subprocess.SubprocessError) as error:
        if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
            raise
        print(f"Dask and Ray cannot be had here, tests that need them will skip: {error}")


if __name__ == "__main__":
    main()
