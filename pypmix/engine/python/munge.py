"""Credentials of the munge daemon, which proves who a process of this machine, or of its cluster, runs as.

Unlike the credential of the `native` module, which is what a process says of itself, nobody can make one for another
user, and each can be used once.
"""

from __future__ import annotations

from pypmix.standard import statuses
from pypmix.standard.errors import NotSupported, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY = "libmunge.so.2"

MAX_CREDENTIAL = 16384


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
        library.munge_strerror.restype = ctypes.c_char_p
        _Munge.libc = ctypes.CDLL(None)
        _Munge.library = library
    return _Munge.library


def encode() -> bytes:
    """Return a new credential of this process, as the `munge` module of a client sends it.

    Raises:
        NotSupported: The library is not here, or its daemon does not answer.
    """
    import ctypes

    library = _load()
    text = ctypes.c_void_p()
    status = library.munge_encode(ctypes.byref(text), None, None, 0)
    if status or not text.value:
        raise NotSupported(f"munge makes no credential: {_reason(library, status)}", hint="does munged run?")
    try:
        return ctypes.string_at(text.value) + b"\0"
    finally:
        _Munge.libc.free(text)


def decode(credential: bytes) -> tuple[int, int]:
    """Return the user and the group that a credential proves; takes a message to the daemon and back.

    Raises:
        PMIxError: It is none, is too old, was used before, or cannot be checked (`ERR_INVALID_CRED`).
    """
    import ctypes

    text = credential.rstrip(b"\0")
    if not text or b"\0" in text or len(text) > MAX_CREDENTIAL:
        raise PMIxError("it is no munge credential", status=statuses.ERR_INVALID_CRED)
    library = _load()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    status = library.munge_decode(text, None, None, None, ctypes.byref(uid), ctypes.byref(gid))
    if status:
        raise PMIxError(f"munge refuses the credential: {_reason(library, status)}", status=statuses.ERR_INVALID_CRED)
    return uid.value, gid.value


def _reason(library: Any, status: int) -> str:
    return str(library.munge_strerror(status).decode(errors="replace"))
