"""What this machine has to test with: libpmix libraries, launchers, a Debian root, a C compiler, the built extension.

More than the folder that `provision.py` fills and the well-known places hold may be named in `PYPMIX_TEST_LIBPMIX`
(paths separated like those of `PATH`), `PYPMIX_TEST_PRTERUN` and `PYPMIX_TEST_MPIRUN`. `PYPMIX_TEST_ROOT` names the
Debian root whose PMIx takes part; it is `forky` if not given.
With `PYPMIX_TEST_REQUIRE=all`, as CI sets it, a missing thing fails the tests that need it.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from lib import provision, provision_roots, slurm
from lib.provision_roots import Root

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent

ROOT_NAME = os.environ.get("PYPMIX_TEST_ROOT") or "forky"
"""The Debian root whose PMIx takes part."""

SYSTEM_LIBRARIES = ("/usr/lib/*-linux-gnu/libpmix.so.2", "/usr/lib64/libpmix.so.2", "/usr/lib/libpmix.so.2")

ASK_LIBRARY = (
    "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); "
    "lib.PMIx_Get_version.restype = ctypes.c_char_p; print(lib.PMIx_Get_version().decode())"
)


class Library(NamedTuple):
    release: str
    path: str
    text: str
    asked_for: bool


class Launcher(NamedTuple):
    name: str
    path: str
    pmix: str


def leading_release(text: str) -> str:
    """Return the first number with two dots in a text such as `OpenPMIx 4.2.2rc2, repo rev: ...`."""
    found = re.search(r"\d+\.\d+\.\d+", text)
    return found.group() if found else ""


def answer(*argv: str) -> str:
    """Return what a short command prints, or nothing if it fails."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL, env=clean_environment()
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what a launcher or a user's choice of engine put there."""
    foreign = ("PMIX_", "PRTE_", "OMPI_", "SLURM_", "PYPMIX_")
    keep = ("PYPMIX_TEST_",)
    return {k: v for k, v in os.environ.items() if k.startswith(keep) or not k.startswith(foreign)}


@functools.cache
def libraries() -> tuple[Library, ...]:
    """Return the libpmix libraries at hand, one of each release, oldest first."""
    asked_for = os.environ.get("PYPMIX_TEST_LIBPMIX", "").split(os.pathsep)
    paths = [*asked_for]
    paths += [str(path) for path in provision.libraries()]
    paths += [path for pattern in SYSTEM_LIBRARIES for path in sorted(glob.glob(pattern))]
    found: dict[str, Library] = {}
    for path in filter(os.path.exists, paths):
        text = answer(sys.executable, "-c", ASK_LIBRARY, path).strip()
        release = leading_release(text)
        if release:
            found.setdefault(release, Library(release, path, text.split(" (")[0], path in asked_for))
    return tuple(sorted(found.values(), key=lambda lib: tuple(map(int, lib.release.split(".")))))


def library(release: str) -> Library | None:
    return next((lib for lib in libraries() if lib.release == release), None)


@functools.cache
def launchers() -> tuple[Launcher, ...]:
    """Return the native launchers at hand, named by their release; for `prterun` that of its libpmix."""
    found = []
    prteruns = [os.environ.get("PYPMIX_TEST_PRTERUN", ""), *map(str, provision.launchers()), shutil.which("prterun")]
    for prterun in [path for path in prteruns if path and os.path.exists(path)][:1]:
        pmix = leading_release(answer(prterun, *PRTERUN_OPTIONS, "-n", "1", "printenv", "PMIX_VERSION"))
        if pmix:
            found.append(Launcher(f"prterun-{pmix}", prterun, pmix))
    mpirun = os.environ.get("PYPMIX_TEST_MPIRUN") or shutil.which("mpirun")
    if mpirun:
        release = leading_release(answer(mpirun, "--version"))
        pmix = leading_release(answer(mpirun, *MPIRUN_OPTIONS, "-n", "1", "printenv", "PMIX_VERSION"))
        if release and pmix:
            found.append(Launcher(f"mpirun-{release}", mpirun, pmix))
    return tuple(found)


PRTERUN_OPTIONS = ("--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE")
MPIRUN_OPTIONS = ("--allow-run-as-root", "--oversubscribe")


def launcher(name: str) -> Launcher | None:
    return next((found for found in launchers() if found.name == name), None)


def root(name: str = ROOT_NAME) -> Root | None:
    """Return the Debian root with a PMIx that the machine does not have, None if it was not built."""
    return provision_roots.root(name)


def enter(command: Sequence[str], folder: Path, name: str = ROOT_NAME) -> list[str]:
    """Return the command that runs another one in the Debian root, with its Python where this one's is asked for.

    Args:
        name: `torch` for the root that has this as well.
        command: The command; the checkout and pypmix are where it expects them.
        folder: Where it runs, and the one place of the machine that it may write to.
    """
    import pypmix

    found = root(name)
    assert found is not None
    package = Path(pypmix.__file__).resolve().parent
    start = ["unshare", "--mount", "sh", str(TESTS / "lib" / "enter.sh")]
    inside = ["python3" if word == sys.executable else word for word in command]
    return [*start, *map(str, (found.folder, folder, package, found.packages, ROOT)), *inside]


@functools.cache
def root_lacking(name: str = ROOT_NAME) -> str:
    """Return what keeps tests out of the Debian root, empty if nothing does."""
    if root(name) is None:
        return f"the Debian {name} root that tests/lib/provision_roots.py builds"
    if os.geteuid() != 0:
        return f"root's rights, to enter the Debian {name} root"
    with tempfile.TemporaryDirectory() as folder:
        if not answer(*enter(["echo", "inside"], Path(folder), name)):
            return f"mount namespaces, to enter the Debian {name} root"
    return ""


@functools.cache
def namespaces_lacking() -> str:
    """Return what keeps tests from making network namespaces, empty if nothing does."""
    if os.geteuid() != 0:
        return "root's rights, to make network namespaces"
    if not shutil.which("ip"):
        return "`ip` (Debian's iproute2), to make network namespaces"
    if not answer("unshare", "--net", "echo", "inside"):
        return "network namespaces"
    return ""


@functools.cache
def extension() -> bool:
    """Tell whether the native engine's extension was built."""
    try:
        return importlib.util.find_spec("pypmix.engine.native._ffi") is not None
    except ImportError:
        return False


@functools.cache
def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


@functools.cache
def pmix_headers() -> str | None:
    """Return the folder that holds `pmix.h`, None where the development package is not installed."""
    places = ["/usr/lib/*-linux-gnu/pmix2/include/pmix.h", "/usr/include/pmix.h", "/usr/include/pmix/pmix.h"]
    found = [path for pattern in places for path in sorted(glob.glob(pattern))]
    return str(Path(found[0]).parent) if found else None


def lacking(what: str) -> None:
    """Skip the test because this machine lacks something; fail where nothing may be missing."""
    text = f"this machine lacks {what}"
    if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
        pytest.fail(f"{text}, and PYPMIX_TEST_REQUIRE=all", pytrace=False)
    pytest.skip(text)


def describe() -> list[str]:
    """Return the lines of the test header: engines, libraries, launchers, their releases, and what is missing."""
    import pypmix

    lines = [f"pypmix: {pypmix.__version__} from {Path(pypmix.__file__).parent}"]
    engines = "python, native" if extension() else "python (no native: the extension is not built)"
    lines.append(f"engines: {engines}")
    for lib in libraries():
        lines.append(f"libpmix: {lib.release} ({lib.text}), {lib.path}")
    for found in launchers():
        lines.append(f"server: {found.name} (PMIx {found.pmix}), {found.path}")
    if slurm.release():
        lines.append(f"server: slurm-{slurm.release()}")
    missing = [slurm.lacking()] if slurm.lacking() else []
    debian = root()
    if debian:
        lines.append(f"Debian root: {debian}")
    if root_lacking():
        missing.append(root_lacking())
    if not compiler():
        missing.append("a C compiler")
    if not pmix_headers():
        missing.append("pmix.h (libpmix-dev)")
    return [*lines, *(f"missing: {what}" for what in missing)]
