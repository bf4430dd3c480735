"""Credentials of the munge daemon, which prove the user of a process of this machine or its cluster.

Unlike the credential of the `native` module, which is unverified, a munge credential cannot be made for another user,
and can be used only once.
"""

from __future__ import annotations

from contextlib import contextmanager

from pypmix.standard import statuses
from pypmix.standard.errors import NotSupported, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

LIBRARY = "libmunge.so.2"

MAX_CREDENTIAL = 16384

OPT_TTL, OPT_SOCKET, OPT_UID = 4, 8, 9
"""The library's options: the lifetime of a credential, the socket of the daemon, and the user who may read it."""

STALE = frozenset((15, 16, 17))
"""The statuses of a credential that is too old, from the future, or used before: the library still reads it."""


class _Munge:
    """The library, loaded when it is first needed."""

    library: Any = None
    libc: Any = None


def _load() -> Any:
    if _Munge.library is None:
        import ctypes

        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NotSupported(f"munge cannot be used here: {error}", hint="install munge's library") from None
        library.munge_ctx_create.restype = ctypes.c_void_p
        library.munge_strerror.restype = ctypes.c_char_p
        _Munge.libc = ctypes.CDLL(None)
        _Munge.library = library
    return _Munge.library


def seal(payload: bytes = b"", *, socket: str = "", reader: int | None = None, seconds: int = 0) -> bytes:
    """Return a new credential of this process with a payload.

    Args:
        payload: The payload.
        socket: The socket of munge's daemon; empty for the default.
        reader: The only user besides root who may read it; by default any user.
        seconds: Its lifetime; 0 for the default of munge's daemon.

    Raises:
        NotSupported: The library is not installed, or its daemon does not answer.
    """
    import ctypes

    library = _load()
    text = ctypes.c_void_p()
    with _context(socket, {OPT_UID: reader, OPT_TTL: seconds or None}) as context:
        status = library.munge_encode(ctypes.byref(text), context, payload, ctypes.c_int(len(payload)))
    if status or not text.value:
        raise NotSupported(f"munge makes no credential: {_reason(library, status)}", hint="does munged run?")
    try:
        return ctypes.string_at(text.value)
    finally:
        _Munge.libc.free(text)


def unseal(credential: bytes, *, socket: str = "", stale: bool = False) -> tuple[bytes, int, int]:
    """Return the payload of a credential, and the user and the group that it proves; blocks for the daemon's answer.

    Args:
        credential: The credential.
        socket: The socket of munge's daemon; empty for the default.
        stale: Whether it may be too old or used before: then another user may present it.

    Raises:
        PMIxError: It is invalid, too old, was used before, or cannot be checked (`ERR_INVALID_CRED`).
    """
    import ctypes

    if not credential or b"\0" in credential or len(credential) > MAX_CREDENTIAL:
        raise PMIxError("it is not a munge credential", status=statuses.ERR_INVALID_CRED)
    library = _load()
    data, size = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    with _context(socket) as context:
        status = library.munge_decode(
            credential, context, ctypes.byref(data), ctypes.byref(size), ctypes.byref(uid), ctypes.byref(gid)
        )
    try:
        payload = ctypes.string_at(data.value, size.value) if data.value else b""
    finally:
        _Munge.libc.free(data)
    if status and not (stale and status in STALE):
        raise PMIxError(f"munge refuses the credential: {_reason(library, status)}", status=statuses.ERR_INVALID_CRED)
    return payload, uid.value, gid.value


def encode() -> bytes:
    """Return a new credential of this process, in the form of the `munge` module of clients.

    Raises:
        NotSupported: The library is not installed, or its daemon does not answer.
    """
    return seal() + b"\0"


def decode(credential: bytes) -> tuple[int, int]:
    """Return the user and the group that a credential proves; blocks for the daemon's answer.

    Raises:
        PMIxError: It is invalid, too old, was used before, or cannot be checked (`ERR_INVALID_CRED`).
    """
    _, uid, gid = unseal(credential.rstrip(b"\0"))
    return uid, gid


@contextmanager
def _context(socket: str, numbers: Mapping[int, int | None] = {}) -> Iterator[Any]:
    """Make a context of the library with options; a context of None means the defaults."""
    chosen = {option: number for option, number in numbers.items() if number is not None}
    if not socket and not chosen:
        yield None
        return
    import ctypes

    library = _load()
    context = ctypes.c_void_p(library.munge_ctx_create())
    try:
        if socket:
            library.munge_ctx_set(context, OPT_SOCKET, ctypes.c_char_p(socket.encode()))
        for option, number in chosen.items():
            library.munge_ctx_set(context, option, ctypes.c_int(number))
        yield context
    finally:
        library.munge_ctx_destroy(context)


def _reason(library: Any, status: int) -> str:
    return str(library.munge_strerror(status).decode(errors="replace"))
