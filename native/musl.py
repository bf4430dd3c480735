"""A Python on musl, to try wheels with where no system with musl can be had.

It is built out of Debian's source packages, with this machine's gcc against Debian's musl, as a folder that can be
entered with chroot. Nothing is in it but musl, Python and its modules: no shell, no compiler, no tools.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

MACHINE = platform.machine()
SOURCES = ("python3.11", "zlib")
PACKAGES = ("musl", "musl-dev", "musl-tools")
NEEDED = ("gcc", "make", "readelf", "apt-get", "dpkg", "chroot", "unshare")
LIMIT = 3600

COMPILER = """#!/bin/sh
case $* in *-print-multiarch) exec echo {machine}-linux-musl ;; esac
exec gcc -specs {specs} "$@"
"""
CFLAGS = "-O1 -fPIC"
CONFIGURE = (
    # both name musl, and differ: so nothing that is built is run here, and modules are named as on musl
    f"--build={MACHINE}-pc-linux-musl",
    f"--host={MACHINE}-unknown-linux-musl",
    "--prefix=/usr",
    "--without-doc-strings",
    "--disable-test-modules",
    "--with-ensurepip=no",
    "ac_cv_file__dev_ptmx=yes",
    "ac_cv_file__dev_ptc=no",
    "ac_cv_buggy_getaddrinfo=no",
)


class CannotBuild(Exception):
    """There is no Python on musl to be had here, and why."""


def root(folder: Path) -> Path:
    """Return the folder with the Python, which is built if it is not there; `/usr/bin/python3` in it runs by chroot."""
    missing = [name for name in NEEDED if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing or os.geteuid():
        raise CannotBuild(f"without {', '.join(missing)}" if missing else "only root may enter it")
    python = shutil.which("python3.11", path=f"{Path(sys.executable).parent}:/usr/bin:{os.environ['PATH']}")
    if python is None:
        raise CannotBuild("without python3.11, which builds its own modules")
    made = folder / "root"
    if not (made / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _fetch(folder)
        _build(folder, Path(os.path.realpath(python)), made)
        asked = "import zlib, _socket, select, _posixsubprocess; _socket.AF_NETLINK"
        _run(["chroot", made, "/usr/bin/python3", "-c", asked], folder)
        shutil.rmtree(folder / "sources")
        (made / "done").touch()
    return made


def release(root: Path) -> str:
    """Return the release of musl in the folder."""
    said = subprocess.run([next((root / "lib").glob("ld-musl-*"))], stderr=subprocess.PIPE, text=True).stderr
    return next(line.split()[1] for line in said.splitlines() if line.startswith("Version"))


def _run(command: list[object], folder: Path, **env: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env={**os.environ, **env}, text=True, timeout=LIMIT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise CannotBuild(f"{' '.join(map(str, command[:3]))} failed: {done.stdout[-2000:]}")
    return done.stdout


def _fetch(folder: Path) -> None:
    """Fetch the packages and sources from the mirror that apt is set up with, and unpack them."""
    fields = "$(RELEASE) $(COMPONENT) $(REPO_URI)"
    listed = _run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"], folder).splitlines()
    mirror = next((line.split()[2] for line in listed if line.startswith("bookworm main ")), None)
    if mirror is None:
        raise CannotBuild("apt names no mirror of Debian 12")
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "archives" / "partial").mkdir(parents=True)
    signed = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    lines = [f"{kind} {signed} {mirror} bookworm main\n" for kind in ("deb", "deb-src")]
    (folder / "sources.list").write_text("".join(lines))
    places = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder,
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in places.items())]
    _run([*apt, "update"], folder)
    _run([*apt, "source", "--download-only", *SOURCES], folder)
    _run([*apt, "download", *PACKAGES], folder)
    for package in folder.glob("*.deb"):
        _run(["dpkg", "-x", package, folder / "musl"], folder)
    for source in folder.glob("*.orig.tar.*"):
        with tarfile.open(source) as archive:
            archive.extractall(folder / "sources", filter="data")


def _build(folder: Path, python: Path, made: Path) -> None:
    """Build zlib and Python, and put them into the folder with musl."""
    musl = folder / "musl"
    (specs,) = musl.rglob("musl-gcc.specs")
    place = f"{musl}/usr"
    text = specs.read_text().replace("/usr/include", f"{place}/include").replace("/usr/lib", f"{place}/lib")
    specs.write_text(text)
    # Debian's link is an absolute one
    library = musl / "lib" / f"{MACHINE}-linux-musl" / "libc.so"
    link = musl / "usr" / "lib" / f"{MACHINE}-linux-musl" / "libc.so"
    link.unlink(missing_ok=True)
    link.symlink_to(library)
    # musl has no headers of Linux, whose sockets Python would then lack
    for name, place in (("linux", ""), ("asm-generic", ""), ("asm", f"{MACHINE}-linux-gnu")):
        (musl / "usr" / "include" / f"{MACHINE}-linux-musl" / name).symlink_to(Path("/usr/include", place, name))
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    compiler = folder / "musl-gcc"
    compiler.write_text(COMPILER.format(machine=MACHINE, specs=specs))
    compiler.chmod(0o755)
    env = {"CC": str(compiler), "AR": "gcc-ar", "RANLIB": "gcc-ranlib", "CFLAGS": CFLAGS, "READELF": "/usr/bin/readelf"}
    (zlib,) = (folder / "sources").glob("zlib*")
    (source,) = (folder / "sources").glob("Python*")
    _run(["sh", "configure", "--static", f"--prefix={folder / 'zlib'}"], zlib, **env)
    _run(["make", jobs, "install"], zlib)
    env |= {"CPPFLAGS": f"-I{folder / 'zlib' / 'include'}", "LDFLAGS": f"-s -L{folder / 'zlib' / 'lib'}"}
    _run(["sh", "configure", f"--with-build-python={python}", *CONFIGURE], source, **env)
    _run(["make", jobs], source)
    _run(["make", f"DESTDIR={made}", "commoninstall"], source)
    (made / "lib").mkdir()
    shutil.copy(library, made / "lib" / f"ld-musl-{MACHINE}.so.1")
    for name in ("dev", "proc", "tmp", "work"):
        (made / name).mkdir()
    (made / "usr" / "bin" / "python3").unlink(missing_ok=True)
    (made / "usr" / "bin" / "python3").symlink_to("python3.11")
