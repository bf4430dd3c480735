"""A folder by which the servers of a session find each other: their addresses, and the secret that all of them know."""

from __future__ import annotations

import os
import stat

from pypmix.engine.peeruid import described, is_current_user
from pypmix.host.naming import check_name
from pypmix.standard.errors import PermissionDenied

TYPE_CHECKING = False
if TYPE_CHECKING:
    Address = tuple[str, int]

SECRET = "secret"
PREFIX = "server."
SECRET_BYTES = 32
MAX_FILE = 4096


def enter(folder: str) -> bytes:
    """Make the folder if it does not exist, and return the session's secret, which the first server makes.

    Raises:
        PermissionDenied: The folder or the secret is another user's, or others may write or read it.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    _check(folder, os.stat(folder, follow_symlinks=False), 0o022, "written to")
    path = os.path.join(folder, SECRET)
    if not os.path.lexists(path):
        draft = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
        _write(draft, os.urandom(SECRET_BYTES))
        try:
            # It appears whole, and only if no other server was faster.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        _check(path, os.fstat(fd), 0o077, "read")
        secret = os.read(fd, MAX_FILE)
    finally:
        os.close(fd)
    if len(secret) < SECRET_BYTES:
        raise PermissionDenied(f"{path} holds no secret", operation="exchange")
    return secret


def announce(folder: str, name: str, address: Address) -> None:
    """Publish the address of a server."""
    path = os.path.join(folder, PREFIX + name)
    draft = os.path.join(folder, f".{os.getpid()}.{os.urandom(4).hex()}")
    _write(draft, f"{address[0]} {address[1]}\n".encode())
    os.replace(draft, path)


def withdraw(folder: str, name: str, address: Address) -> None:
    """Remove the address of a server, unless another server has published a different one since."""
    if find(folder, name).get(name) == address:
        try:
            os.unlink(os.path.join(folder, PREFIX + name))
        except FileNotFoundError:
            return


def find(folder: str, name: str = "") -> dict[str, Address]:
    """Return the addresses of all servers, or of one by its name; some of the servers may have ended since."""
    found: dict[str, Address] = {}
    try:
        entries = [PREFIX + name] if name else os.listdir(folder)
    except FileNotFoundError:
        return found
    for entry in sorted(entries):
        if entry.startswith(PREFIX):
            try:
                with open(os.path.join(folder, entry), encoding="utf-8") as file:
                    host, port = file.read(MAX_FILE).split()
                found[check_name(entry.removeprefix(PREFIX))] = host, int(port)
            except (OSError, ValueError):
                # It was just removed, or is not ours.
                continue
    return found


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _check(path: str, status: os.stat_result, mask: int, what: str) -> None:
    if not is_current_user(status.st_uid):
        raise PermissionDenied(f"{path} belongs to {described(status.st_uid)}", operation="exchange")
    if stat.S_ISLNK(status.st_mode) or status.st_mode & mask:
        text = f"{path} may be {what} by others (mode {stat.S_IMODE(status.st_mode):o})"
        raise PermissionDenied(text, operation="exchange", hint="take that right from them, or name another folder")
