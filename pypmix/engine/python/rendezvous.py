"""Rendezvous files, by which a tool that was not launched finds the servers of its node.

A server writes its address into files of known names, which only its own user can read; a tool looks for them in the
folders for temporary files, by the server's pid, by its nspace, or for any server.
"""

from __future__ import annotations

import _socket
import contextlib
import os
import stat
import time

from pypmix.engine.peeruid import is_current_user
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.record import Record
from pypmix.standard.types import RANK_UNDEF, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MAX_SIZE = 1 << 16
MAX_NAME = 255

MAX_DEPTH = 6
MAX_ENTRIES = 200_000
"""Depth of a search: launchers put their files some three folders below the one for temporary files."""

EMPTY_READS = 4
EMPTY_PAUSE = 0.01
"""Natives write into a file that exists already, so a reader may read it too early."""

PROBE_SECONDS = 1.0


class Contact(Record):
    """The contact information of a server, from a rendezvous file or a URI.

    Attributes:
        nspace: The server's nspace.
        rank: Its rank.
        address: Its address, `tcp4://address:port`.
        release: Its release, as a string; empty if not known.
        pid: Its process id; 0 if not known.
        uid: Its user; -1 if not known.
        pypmix: The version of pypmix if the server is ours.
        local: The path of its Unix-domain socket; empty if it has none.
        owner: The user that owns the rendezvous file; -1 without a file.
        path: The rendezvous file.
        written: When the file was written, in seconds of the epoch.
    """

    nspace: str
    rank: int
    address: str
    release: str = ""
    pid: int = 0
    uid: int = -1
    pypmix: str = ""
    local: str = ""
    owner: int = -1
    path: str = ""
    written: float = 0.0

    @property
    def name(self) -> str:
        """The server's `nspace.rank`."""
        return f"{self.nspace}.{self.rank}"

    @property
    def uri(self) -> str:
        """The contact data with which tools find this server."""
        return f"{self.name};{self.address}"

    @property
    def alive(self) -> bool:
        """Whether its process exists, as far as this process can see it."""
        if not self.pid:
            return True
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            # No process has a number that the kernel cannot take.
            return False
        except OSError:
            return True
        return True


def parse_uri(text: str) -> Contact:
    """Return the contact of a URI (`nspace.rank;tcp4://address:port`); raise `ValueError` if it is not one."""
    name, _, address = text.strip().partition(";")
    nspace, _, rank = name.rpartition(".")
    number = decimal(rank, RANK_UNDEF)
    if not nspace or number is None or "://" not in address:
        raise ValueError(f"{text!r:.200} is not the URI of a server (nspace.rank;tcp4://address:port)")
    return Contact(nspace, number, address.partition(";")[0])


# Writing


class Post:
    """The rendezvous files of one server.

    Args:
        contact: The contents of the files.
        hosts: The names of this node.
    """

    def __init__(self, contact: Contact, hosts: Iterable[str]) -> None:
        self._contact = contact
        self._hosts = tuple(hosts)
        self._files: list[tuple[str, tuple[int, int, int]]] = []

    def session(self, folder: str) -> None:
        """Write the files by which tools find a server by its pid, by its nspace, or as the only one in its folder.

        A name that another living server has stays its own: several of them may share a folder.

        Raises:
            PMIxError: The folder cannot be written to.
        """
        for host in self._hosts:
            for last in (f".{self._contact.pid}", f".{self._contact.nspace}", ""):
                name = f"pmix.{host}.tool{last}"
                if "/" not in name and len(name.encode()) <= MAX_NAME:
                    self._write(os.path.join(folder, name))

    def system(self, folder: str) -> None:
        """Write that of the one system server of a node.

        Raises:
            PMIxError: There is one already (`ERR_EXISTS`), or the folder cannot be written to.
        """
        for host in self._hosts:
            self.file(os.path.join(folder, f"{keys.SYSTEM_FILE}.{host}"))

    def file(self, path: str) -> None:
        """Write a file whose path was given.

        Raises:
            PMIxError: It belongs to another server (`ERR_EXISTS`), or it cannot be written.
        """
        if not self._write(path):
            raise PMIxError(f"{path} belongs to a server that runs", status=statuses.ERR_EXISTS, operation="server")

    def remove(self) -> None:
        """Remove the files, unless others have replaced them since. May be called twice."""
        files, self._files = self._files, []
        for path, place in files:
            with contextlib.suppress(OSError):
                if _file_identity(os.lstat(path)) == place:
                    os.unlink(path)
            _OWN.discard(path)

    def _write(self, path: str) -> bool:
        try:
            return self._put(path)
        except OSError as error:
            detail = f"the rendezvous file {path} cannot be written: {error.strerror or error}"
            raise PMIxError(detail, operation="server") from None

    def _put(self, path: str) -> bool:
        folder = os.path.dirname(path) or "."
        # A name that no search takes for a rendezvous file.
        fresh = os.path.join(folder, f".pypmix-{os.getpid()}-{os.urandom(4).hex()}")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(_text(self._contact).encode("utf-8", "surrogateescape"))
                file.flush()
                place = _file_identity(os.fstat(file.fileno()))
            if not _publish(fresh, path):
                return False
        finally:
            os.unlink(fresh)
        path = os.path.abspath(path)
        self._files.append((path, place))
        _OWN.add(path)
        return True


_OWN: set[str] = set()
"""The files of the servers in this process, since the pid does not distinguish them from an earlier server's files."""


def _file_identity(status: os.stat_result) -> tuple[int, int, int]:
    """Return the identity of a file; the inode number alone may be used again after the file is removed."""
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _text(contact: Contact) -> str:
    # Natives write an empty line after the date; natives that read the file read five lines at the most.
    lines = [
        contact.uri,
        contact.release,
        str(contact.pid),
        f"{os.geteuid()}:{os.getegid()}",
        time.ctime(),
        f"pypmix {contact.pypmix}",
        f"unix {contact.local}",
    ]
    return "".join([line + "\n" for line in lines])


def _publish(fresh: str, path: str) -> bool:
    """Give a file its name in one step, unless a living server has a file of that name."""
    for _ in range(3):
        try:
            os.link(fresh, path)
            return True
        except FileExistsError:
            if os.path.abspath(path) in _OWN or _is_in_use(path):
                return False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    return False


def _is_in_use(path: str) -> bool:
    """Return True if a file belongs to a running server, and is not left over from a dead server."""
    try:
        contact = read(path)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    if contact is None or not contact.alive or contact.pid == os.getpid():
        return False
    # The pid may be another process's by now, but then the address has no listener.
    family, _, address = contact.address.partition("://")
    host, _, port = address.rpartition(":")
    import socket

    kind = socket.AF_INET6 if family == "tcp6" else socket.AF_INET
    with socket.socket(kind, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect((host.strip("[]"), int(port)))
        except (OSError, ValueError, OverflowError) as error:
            return isinstance(error, TimeoutError)
    return True


# Reading


def host_names(host: str = "") -> tuple[str, ...]:
    """Return the names of a node that are used in the names of files; by default this node's names.

    Releases up to 5.x leave the domain out, later ones do not.
    """
    full = host or _socket.gethostname() or "localhost"
    short = full if full.replace(".", "").isdecimal() else full.partition(".")[0]
    return (full,) if full == short else (full, short)


def temporary_folder(env: Mapping[str, str]) -> str:
    """Return where natives put temporary files."""
    return next((env[name] for name in ("TMPDIR", "TEMP", "TMP") if env.get(name)), "/tmp")


def read(path: str, owners: Callable[[int], bool] | None = None) -> Contact | None:
    """Return the contact in a rendezvous file, None if the file is not valid.

    Args:
        path: The file.
        owners: Returns True if a file of a user is trusted; by default all are.

    Raises:
        OSError: It cannot be read.
    """
    text = b""
    for trial in range(EMPTY_READS):
        if trial:
            time.sleep(EMPTY_PAUSE)
        # A file of this name may be a pipe, which would never open.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or (owners is not None and not owners(found.st_uid)):
                return None
            text = file.read(MAX_SIZE)
        if b"\n" in text:
            break
    lines = [line.strip() for line in text.decode("utf-8", "surrogateescape").split("\n")] + [""] * 7
    try:
        contact = parse_uri(lines[0])
    except ValueError:
        return None
    number = decimal(lines[3].partition(":")[0], RANK_UNDEF)
    kind, _, version = lines[5].partition(" ")
    family, _, local = lines[6].partition(" ")
    return contact.replace(
        release=lines[1].removeprefix("v"),
        pid=decimal(lines[2], RANK_UNDEF) or 0,
        uid=found.st_uid if number is None else number,
        pypmix=version if kind == "pypmix" else "",
        local=local if kind == "pypmix" and family == "unix" else "",
        owner=found.st_uid,
        path=path,
        written=found.st_mtime,
    )


def believed(uid: int) -> bool:
    """Return True if a file of this user is trusted: this user's and the system's files; root trusts all.

    Any user can put files into the searched folders, and a tool sends its identity and its requests to the server that
    such a file names.
    """
    return uid == 0 or os.geteuid() == 0 or is_current_user(uid)


def search(folders: Iterable[str], names: Iterable[str], prefix: bool = False) -> list[Contact]:
    """Return the servers whose rendezvous files have one of these names, newest first and each once.

    Args:
        folders: Where to look, with all folders below.
        names: The names of the files.
        prefix: Whether `names` are only the beginnings of the names.
    """
    wanted = tuple(names)
    found: dict[str, Contact] = {}
    for path in _files(folders):
        name = os.path.basename(path)
        if not (name.startswith(wanted) if prefix else name in wanted):
            continue
        try:
            contact = read(path, believed)
        except OSError:
            continue
        if contact is not None:
            found.setdefault(contact.uri, contact)
    return sorted(found.values(), key=lambda contact: (not contact.alive, -contact.written))


def _files(folders: Iterable[str]) -> Iterator[str]:
    """Return all files below these folders that could be believed, the upper ones first."""
    level = list(dict.fromkeys([os.path.abspath(folder) for folder in folders]))
    seen: set[tuple[int, int]] = set()
    entries = 0
    for _ in range(MAX_DEPTH):
        below: list[str] = []
        for folder in level:
            try:
                own = os.stat(folder)
                if (own.st_dev, own.st_ino) in seen:
                    continue
                seen.add((own.st_dev, own.st_ino))
                listed = list(os.scandir(folder))
            except OSError:
                continue
            for entry in listed:
                entries += 1
                if entries > MAX_ENTRIES:
                    return
                if _folder(entry):
                    below.append(entry.path)
                elif entry.name.startswith("pmix."):
                    yield entry.path
        level = below


def _folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and believed(entry.stat(follow_symlinks=False).st_uid)
    except OSError:
        return False
