"""Install PyTorch's CPU build into an environment of its own, for `tests/frameworks/test_torch.py`.

Run as `python tests/harness/provision_torch.py`; what is there already is kept, and one run at a time installs. PyPI
has only the builds for CUDA, which need several GB: the wheel is one that pip finds where it is told to look on this
machine, or else PyTorch's own. 190 MB to read and 900 MB on the disk.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys

from provision import FOLDER

PACKAGES = ("torch==2.13.0+cpu", "anyio>=4.10", "cffi>=1.17")
"""torch, and what pypmix imports; pypmix itself is found by PYTHONPATH."""

INDEX = "https://download.pytorch.org/whl/cpu"

TIME_LIMIT = 900

TORCH = FOLDER / "torch"


def install() -> None:
    """Install the packages into their environment."""
    done = TORCH / "-".join(["installed", *PACKAGES])
    if done.exists():
        print(f"torch: there already, {TORCH}")
        return
    print(f"torch: installing {PACKAGES[0]} into {TORCH}", flush=True)
    shutil.rmtree(TORCH, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", TORCH], check=True, timeout=TIME_LIMIT)
    pip = [TORCH / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, *PACKAGES], check=False, timeout=TIME_LIMIT).returncode:
        subprocess.run([*pip, "--extra-index-url", INDEX, *PACKAGES], check=True, timeout=TIME_LIMIT)
    done.touch()


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        with (FOLDER / "torch.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            install()
    except (OSError, subprocess.SubprocessError) as error:
        if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
            raise
        print(f"torch cannot be had here, tests that need it will skip: {error}")


if __name__ == "__main__":
    main()
