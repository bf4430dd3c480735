"""Build a small Debian forky root: the release candidate of PMIx 7, PRRTE 5 and a Python of its own.

Run as `python tests/harness/provision_forky.py`. The root is built once, in the folder where `provision.py` keeps
what it fetches, and is built anew only when the recipe below changes. Needs root, Debian's `debootstrap` and the mirror
that apt is set up with; one run at a time builds, others wait for it. Nothing is mounted outside of the build's own
mount namespace, which ends with it, however that is.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

CACHE = Path(os.environ.get("PYPMIX_TEST_CACHE") or Path(__file__).resolve().parents[2] / ".tox" / "native")
FOLDER = CACHE.resolve() / "forky"

SUITE = "forky"
PACKAGES = ("libprrte-bin", "python3", "python3-anyio", "python3-cffi-backend", "python3-rich", "python3-typer")
"""The native server with its libpmix, and what pypmix imports; pypmix itself is mounted where it is used."""

# an older debootstrap has no script of its own for forky
SCRIPT = Path("/usr/share/debootstrap/scripts/sid")

TIME_LIMIT = 420
TOOLS = ("debootstrap", "unshare", "setpriv", "apt-get")
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

ASK = """
import ctypes, glob, json, os, platform, site, subprocess
import _cffi_backend, anyio, rich, typer
os.makedirs(site.getsitepackages()[0] + "/pypmix", exist_ok=True)
library = sorted(glob.glob("/usr/lib/*/libpmix.so.2"))[0]
pmix = ctypes.CDLL(library)
pmix.PMIx_Get_version.restype = ctypes.c_char_p
prterun = subprocess.run(["prterun", "--version"], capture_output=True, text=True, check=True).stdout.strip()
print(json.dumps({
    "library": library,
    "pmix": pmix.PMIx_Get_version().decode().split(" (")[0],
    "prrte": prterun.splitlines()[0].split()[-1],
    "python": platform.python_version(),
    "packages": site.getsitepackages()[0],
}))
"""
"""Asked of the new root's Python: what the root holds, and that it works. Leaves a mount point for pypmix there."""


class Root(NamedTuple):
    """A root that was built: its folder, and as paths inside of it the libpmix and where Python packages belong."""

    folder: Path
    library: str
    pmix: str
    prrte: str
    python: str
    packages: str


class CannotBuild(Exception):
    """The root cannot be had here, and why."""


@functools.cache
def root() -> Root | None:
    """Return the root that has been built by this recipe, None if there is none."""
    found = _facts(FOLDER)
    return Root(FOLDER, **found["root"]) if found.get("recipe") == _recipe() else None


def _recipe() -> list[str]:
    return [SUITE, *PACKAGES]


def _facts(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "facts.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def mirror() -> str:
    """Return the Debian mirror that apt is set up with."""
    fields = "$(RELEASE) $(COMPONENT) $(REPO_URI)"
    asked = subprocess.run(
        ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    found = [line.split() for line in asked.stdout.splitlines() if len(line.split()) == 3]
    with contextlib.suppress(OSError):
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
        found.sort(key=lambda target: target[0] != release.get("VERSION_CODENAME", "").strip('"'))
    for _release, component, uri in found:
        if component == "main" and uri.startswith(("http:", "https:", "file:")):
            return uri
    raise CannotBuild("apt names no mirror with a component `main`")


def build() -> None:
    """Build the root under another name, and give it its own when it is whole."""
    if os.geteuid() != 0:
        raise CannotBuild("only root may build and enter it")
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=SYSTEM_PATH)]
    if missing or not SCRIPT.exists():
        raise CannotBuild(f"{', '.join(missing) or SCRIPT} is not installed (Debian's package debootstrap)")
    for stale in CACHE.glob("forky.*.d"):
        shutil.rmtree(stale)
    draft = CACHE.resolve() / f"forky.{os.getpid()}.d"
    log = CACHE / "forky.log"
    print(f"Debian {SUITE} root: building with debootstrap, a minute or two, into {FOLDER}", flush=True)
    started = time.monotonic()
    try:
        with log.open("w") as output:
            _debootstrap(draft, output)
        found = json.loads(_inside(["chroot", str(draft), "python3", "-c", ASK], stdout=subprocess.PIPE).stdout)
        shutil.rmtree(draft / "var" / "cache" / "apt")
        (draft / "bytecode").mkdir()
        (draft / "facts.json").write_text(json.dumps({"recipe": _recipe(), "root": found}, indent=1))
        if FOLDER.exists():
            FOLDER.rename(CACHE / f"forky.{os.getpid()}.old.d")
        draft.rename(FOLDER)
    except subprocess.SubprocessError as error:
        with contextlib.suppress(OSError):
            print("".join(f"    {line}\n" for line in log.read_text().splitlines()[-20:]), end="")
        late = isinstance(error, subprocess.TimeoutExpired)
        raise CannotBuild(f"it was not done in {TIME_LIMIT} s" if late else "debootstrap failed, see above") from error
    finally:
        for left in CACHE.glob(f"forky.{os.getpid()}.*d"):
            shutil.rmtree(left, ignore_errors=True)
    print(f"Debian {SUITE} root: built in {time.monotonic() - started:.0f} s", flush=True)


def _debootstrap(target: Path, output: Any) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    _inside([*command, SUITE, str(target), mirror(), str(SCRIPT)], stdout=output, stderr=subprocess.STDOUT)


def _inside(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in mount and process namespaces of its own, which end with it, and it with this process."""
    parts = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    foreign = {name: os.environ[name] for name in os.environ if name.lower().endswith("_proxy")}
    return subprocess.run(
        [*parts, *command], check=True, text=True, timeout=TIME_LIMIT, stdin=subprocess.DEVNULL,
        env={**foreign, "PATH": SYSTEM_PATH, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}, **options,
    )  # fmt: skip


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock that only one run at a time has."""
    CACHE.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + TIME_LIMIT
    with (CACHE / "forky.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CannotBuild("another run is at it, and does not come to an end") from None
                time.sleep(0.2)
        yield


def main() -> None:
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        with _alone():
            if root() is None:
                root.cache_clear()
                build()
            found = root()
    except (OSError, subprocess.SubprocessError, CannotBuild) as error:
        if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
            raise
        print(f"Debian {SUITE} root cannot be had here, tests that need it will skip: {error}")
        return
    assert found is not None
    print(f"Debian {SUITE} root: PMIx {found.pmix}, PRRTE {found.prrte}, Python {found.python}, {found.folder}")


if __name__ == "__main__":
    main()
