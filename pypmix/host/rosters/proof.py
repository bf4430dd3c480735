"""Proofs that two processes belong together: a secret that both know, or munge, which proves that both are the user's.

A proof covers a statement, which names the side that makes it and the connection on which it is made. So the other side
cannot reuse it, and it is useless on another connection.
"""

from __future__ import annotations

import hmac
import os
import stat
import time
from typing import Protocol

from pypmix.engine import munge
from pypmix.engine.peeruid import described, is_current_user
from pypmix.host.rosters.base import RosterError
from pypmix.standard.errors import NotSupported, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_SECRET = 16
MAX_SECRET = 4096

KEY_BYTES = 32

VALID_SECONDS = 1
"""The lifetime in seconds of the credential, the shortest that munge allows; it is sent only after it has expired."""

EXPIRED_SECONDS = 2.5
"""Seconds after which the credential has expired on every node; munge counts in whole seconds."""


class Proof(Protocol):
    """Makes tokens that prove statements, and checks the tokens of other processes."""

    def get_ready(self) -> None:
        """Wait until a token may be sent to any process."""

    def make(self, statement: bytes) -> bytes:
        """Return a token for a statement of at most 1 kB."""

    def check(self, statement: bytes, token: bytes) -> bool:
        """Return True if a token proves a statement."""


class Secret:
    """Proof by a secret that all processes of the session know.

    Args:
        secret: The secret, at least 16 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < MIN_SECRET:
            raise RosterError(f"a secret of {len(secret)} bytes can be guessed: {MIN_SECRET} at least")
        self._secret = secret

    @classmethod
    def in_file(cls, path: str) -> Secret:
        """Read the secret from a file that only its owner can read or write.

        Raises:
            RosterError: The file cannot be read, belongs to another user, or is open to other users.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                found = os.fstat(fd)
                data = os.read(fd, MAX_SECRET) if stat.S_ISREG(found.st_mode) else b""
            finally:
                os.close(fd)
        except OSError as error:
            raise RosterError(f"the secret cannot be read: {path}: {error.strerror}") from None
        if not stat.S_ISREG(found.st_mode):
            raise RosterError(f"the secret {path} is not a file")
        # A Kubernetes Secret is a file owned by root that the pod's group may read.
        if found.st_uid and not is_current_user(found.st_uid):
            raise RosterError(f"the secret {path} belongs to {described(found.st_uid)}, not to this user: chown it")
        if found.st_mode & (stat.S_IWGRP | stat.S_IRWXO) or (found.st_uid and found.st_mode & stat.S_IRGRP):
            raise RosterError(f"others than its owner can read or write the secret {path}: chmod 600 {path}")
        return cls(data.strip())

    def get_ready(self) -> None:
        """Return at once: a code does not reveal the secret."""

    def make(self, statement: bytes) -> bytes:
        """Return the statement's code, which can be made only with the secret."""
        return _code(self._secret, statement)

    def check(self, statement: bytes, token: bytes) -> bool:
        """Return True if a token proves a statement."""
        return hmac.compare_digest(self.make(statement), token)


class Munge:
    """Proof by munge's daemon, whose key all nodes of a cluster share: the other process runs as the same user.

    Any process that receives a valid credential of munge could present it. So no valid credential is sent. Each process
    makes a random key and seals it with munge, so that only its user can read it; it sends this credential after it has
    expired. The receiver still reads the sealing user from it, and the key, which proves the statement.

    Args:
        env: The environment, in which PYPMIX_MUNGE_SOCKET may name the socket of munge's daemon.

    Raises:
        RosterError: Munge is not usable here.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._socket = env.get("PYPMIX_MUNGE_SOCKET", "")
        self._key = os.urandom(KEY_BYTES)
        try:
            self._sealed = munge.seal(self._key, socket=self._socket, reader=os.geteuid(), seconds=VALID_SECONDS)
        except NotSupported as error:
            raise RosterError(f"{error.detail}: {error.hint}") from None
        self._made = time.monotonic()

    def get_ready(self) -> None:
        """Wait until the sealed key has expired as a credential."""
        time.sleep(max(0.0, self._made + EXPIRED_SECONDS - time.monotonic()))

    def make(self, statement: bytes) -> bytes:
        """Return the sealed key, and the statement's code, which can be made only with the key."""
        self.get_ready()
        return self._sealed + b"\n" + _code(self._key, statement).hex().encode()

    def check(self, statement: bytes, token: bytes) -> bool:
        """Return True if a process of this user made the token for the statement."""
        sealed, _, code = token.rpartition(b"\n")
        try:
            key, uid, _ = munge.unseal(sealed, socket=self._socket, stale=True)
        except PMIxError:
            return False
        expected = _code(key, statement).hex().encode()
        return is_current_user(uid) and len(key) == KEY_BYTES and hmac.compare_digest(expected, code)


def _code(key: bytes, statement: bytes) -> bytes:
    return hmac.digest(key, b"pypmix-meet\0" + statement, "sha256")
