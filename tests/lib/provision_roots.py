"""Build small Debian roots: PMIx 7 and PRRTE 5 in `forky`, these and torch in `torch`, what Debian 13 has of PMIx,
Open MPI and Slurm in `trixie`, Python alone in `bookworm`.

Run as `python tests/lib/provision_roots.py NAME...`. Each root has a Python of its own. It is built once, in the folder
where `provision.py` keeps what it fetches, which all checkouts share; another recipe makes another folder. Needs root,
Debian's `debootstrap` and the mirror that apt is set up with; one run at a time builds, others wait for it. Nothing is
mounted outside of the build's own mount namespace, which ends with it, however that is.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

CACHE = Path(os.environ.get("PYPMIX_TEST_CACHE") or Path.home() / ".cache" / "pypmix-tests")

# an older debootstrap has no script of its own for forky
SCRIPT = Path("/usr/share/debootstrap/scripts/sid")

TIME_LIMIT = 900
TOOLS = ("debootstrap", "unshare", "setpriv", "apt-get")
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# a root that is not whole is thrown away, so dpkg need not wait for the disk
ENVIRONMENT = {
    "PATH": SYSTEM_PATH,
    # PRRTE 3 crashes without it
    "HOME": "/root",
    "LC_ALL": "C",
    "DEBIAN_FRONTEND": "noninteractive",
    "DPKG_FORCE": "unsafe-io",
}

PYTHON = """
import json, os, platform, site, subprocess
facts = {"python": platform.python_version(), "packages": site.getsitepackages()[0]}
"""
"""Asked of a new root's Python: what the root holds, and that it works."""

PLACE = """
import _cffi_backend, anyio
os.makedirs(facts["packages"] + "/pypmix", exist_ok=True)
"""
"""Leaves a mount point for pypmix, where all that it imports is installed."""

ASK_PMIX = """
import ctypes, glob
import rich, typer
library = sorted(glob.glob("/usr/lib/*/libpmix.so.2"))[0]
pmix = ctypes.CDLL(library)
pmix.PMIx_Get_version.restype = ctypes.c_char_p
prterun = subprocess.run(["prterun", "--version"], capture_output=True, text=True, check=True).stdout.strip()
facts |= {
    "library": library,
    "pmix": pmix.PMIx_Get_version().decode().split(" (")[0],
    "prrte": prterun.splitlines()[0].split()[-1],
}
"""

ASK_SLURM = """
facts["slurm"] = subprocess.check_output(["dpkg-query", "-W", "-f", "${Version}", "slurmd"], text=True).split("-")[0]
facts["plugins"] = os.path.dirname(glob.glob("/usr/lib/*/slurm-wlm/mpi_pmix_v5.so")[0])
"""

ASK_BOOKWORM = """
import ensurepip, venv
subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", "stranger"], check=True)
os.mkdir("/index")
"""
"""Adds a user without rights."""


class Recipe(NamedTuple):
    """A root to build: the suite of Debian, the packages besides its base, and what its Python is asked.

    Attributes:
        index: What its folder `/index` has wheels of, with all that these need.
        wheels: What its Python has from where pip finds it, since Debian's is older than pypmix takes.
    """

    suite: str
    packages: tuple[str, ...]
    ask: str
    index: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()


def _requirements() -> tuple[str, ...]:
    """Return what it takes to build and to install the project."""
    with (Path(__file__).resolve().parents[2] / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    return tuple(each.partition(";")[0] for each in wanted)


ANYIO = tuple(each for each in _requirements() if each.startswith("anyio"))

# Python with what pypmix imports; pypmix itself is mounted where it is used.
PYTHON_PACKAGES = ("python3", *("python3-" + each for each in ("anyio", "cffi-backend", "rich", "typer")))

# The native server with its libpmix.
FORKY = ("libprrte-bin", *PYTHON_PACKAGES)

RECIPES = {
    "forky": Recipe("forky", FORKY, PLACE + ASK_PMIX),
    "torch": Recipe("forky", (*FORKY, "python3-torch"), PLACE + ASK_PMIX),
    # What a site with Debian stable installs: Open MPI brings PRRTE, and Slurm its PMIx plugin.
    "trixie": Recipe(
        "trixie",
        ("libpmix-bin", "openmpi-bin", "slurmctld", "slurmd", "slurm-client", "munge", *PYTHON_PACKAGES),
        PLACE + ASK_PMIX + ASK_SLURM,
        wheels=ANYIO,
    ),
    # A stranger's machine: no compiler, no libpmix, no launcher.
    "bookworm": Recipe("bookworm", ("python3", "python3-venv"), ASK_BOOKWORM, _requirements()),
}


class Root(NamedTuple):
    """A root that was built: its folder, and as paths inside of it the libpmix and where Python packages belong.

    Attributes:
        library: Empty where it has none.
        pmix: The release of PMIx, empty where it has none; `prrte` and `slurm` alike.
        plugins: The folder of Slurm's plugins, empty where it has none.
    """

    folder: Path
    python: str
    packages: str
    library: str = ""
    pmix: str = ""
    prrte: str = ""
    slurm: str = ""
    plugins: str = ""

    def __str__(self) -> str:
        parts = {"PMIx": self.pmix, "PRRTE": self.prrte, "Slurm": self.slurm, "Python": self.python}
        return ", ".join([f"{name} {release}" for name, release in parts.items() if release] + [str(self.folder)])


class CannotBuild(Exception):
    """The root cannot be had here, and why."""


@functools.cache
def root(name: str = "forky") -> Root | None:
    """Return the root that has been built by its recipe, None if there is none."""
    found = _facts(_folder(name))
    return Root(_folder(name), **found["root"]) if found.get("recipe") == _recipe(name) else None


def _recipe(name: str) -> list[str]:
    recipe = RECIPES[name]
    return [recipe.suite, *recipe.packages, *recipe.index, *recipe.wheels]


def _folder(name: str) -> Path:
    """Return where a root of the present recipe is or would be."""
    return CACHE.resolve() / f"{name}-{hashlib.sha256(repr(_recipe(name)).encode()).hexdigest()[:8]}"


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


def build(name: str) -> None:
    """Build a root under another name, and give it its own when it is whole."""
    if os.geteuid() != 0:
        raise CannotBuild("only root may build and enter it")
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=SYSTEM_PATH)]
    if missing or not SCRIPT.exists():
        raise CannotBuild(f"{', '.join(missing) or SCRIPT} is not installed (Debian's package debootstrap)")
    for stale in CACHE.glob(f"{name}.*.d"):
        shutil.rmtree(stale)
    folder = _folder(name)
    draft = CACHE.resolve() / f"{name}.{os.getpid()}.d"
    log = CACHE / f"{name}.log"
    print(f"Debian {name} root: building with debootstrap, some minutes, into {folder}", flush=True)
    started = time.monotonic()
    try:
        with log.open("w") as output:
            _debootstrap(RECIPES[name], draft, output)
        ask = f"{PYTHON}{RECIPES[name].ask}print(json.dumps(facts))"
        found = json.loads(_inside(["chroot", str(draft), "python3", "-c", ask], stdout=subprocess.PIPE).stdout)
        if RECIPES[name].index:
            _pip("download", RECIPES[name].index, found["python"], "--dest", draft / "index")
        if RECIPES[name].wheels:
            place = draft / found["packages"].lstrip("/")
            _pip("install", RECIPES[name].wheels, found["python"], "--upgrade", "--target", place)
        shutil.rmtree(draft / "var" / "cache" / "apt")
        (draft / "bytecode").mkdir()
        (draft / "facts.json").write_text(json.dumps({"recipe": _recipe(name), "root": found}, indent=1))
        if folder.exists():
            folder.rename(CACHE / f"{name}.{os.getpid()}.old.d")
        draft.rename(folder)
    except subprocess.SubprocessError as error:
        with contextlib.suppress(OSError):
            print("".join(f"    {line}\n" for line in log.read_text().splitlines()[-20:]), end="")
        late = isinstance(error, subprocess.TimeoutExpired)
        raise CannotBuild(f"it was not done in {TIME_LIMIT} s" if late else "debootstrap failed, see above") from error
    finally:
        for left in CACHE.glob(f"{name}.{os.getpid()}.*d"):
            shutil.rmtree(left, ignore_errors=True)
    print(f"Debian {name} root: built in {time.monotonic() - started:.0f} s", flush=True)


def _debootstrap(recipe: Recipe, target: Path, output: Any) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(recipe.packages)}"]
    _inside([*command, recipe.suite, str(target), mirror(), str(SCRIPT)], stdout=output, stderr=subprocess.STDOUT)


def _pip(verb: str, wanted: Iterable[str], python: str, *options: str | Path) -> None:
    """Fetch wheels for a Python, which need not be this one, by `pip download` or `pip install`."""
    command = [sys.executable, "-m", "pip", verb, "--quiet", "--disable-pip-version-check"]
    # the newest that a root's own C library takes, first
    tags = [f"manylinux_2_{minor}_{os.uname().machine}" for minor in (34, 28, 27, 17)]
    platforms = [f"--platform={tag}" for tag in (*tags, f"manylinux2014_{os.uname().machine}")]
    fit = ["--only-binary", ":all:", "--python-version", python, *platforms]
    subprocess.run([*command, *fit, *options, *wanted], check=True, timeout=TIME_LIMIT)


def provide_packages(name: str, wanted: Sequence[str]) -> str:
    """Return a folder of a root, as seen inside of it, with packages for its Python; fetch them first if need be."""
    with _alone(name):
        found = root(name)
        assert found is not None
        # A part of the root that `enter.sh` shows.
        place = found.folder / "usr" / "local"
        folder = place / f"packages-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:8]}"
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=place) as draft:
                _pip("install", wanted, found.python, "--target", Path(draft) / "packages")
                (Path(draft) / "packages").rename(folder)
    return f"/{folder.relative_to(found.folder)}"


def _inside(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in mount and process namespaces of its own, which end with it, and it with this process."""
    parts = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    foreign = {name: os.environ[name] for name in os.environ if name.lower().endswith("_proxy")}
    return subprocess.run(
        [*parts, *command], check=True, text=True, timeout=TIME_LIMIT, stdin=subprocess.DEVNULL,
        env={**foreign, **ENVIRONMENT}, **options,
    )  # fmt: skip


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """Hold the lock that only one run at a time has."""
    CACHE.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + TIME_LIMIT
    with (CACHE / f"{name}.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CannotBuild("another run is at it, and does not come to an end") from None
                time.sleep(0.2)
        yield


def provide(name: str) -> None:
    try:
        with _alone(name):
            if root(name) is None:
                root.cache_clear()
                build(name)
            found = root(name)
    except (OSError, subprocess.SubprocessError, CannotBuild) as error:
        if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
            raise
        print(f"Debian {name} root cannot be had here, tests that need it will skip: {error}")
        return
    assert found is not None
    print(f"Debian {name} root: {found}")


def main(names: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    for name in names:
        provide(name)


if __name__ == "__main__":
    main(sys.argv[1:] or list(RECIPES))
