"""The native engine: the site's own libpmix, of any release from 4.2 to 7, behind CFFI."""

from __future__ import annotations

import os
from binascii import crc32

missing = ""
"""The reason why this installation has no native engine; empty if it has one."""


def outdated(folder: str, built: int) -> bool:
    """Return True if an extension was built of other declarations than the declarations in a folder.

    Args:
        folder: The folder `native/cdef` of a source tree; an installation does not have it.
        built: The checksum of the extension's declarations; see `native/build_ffi.py`.
    """
    if not os.path.isdir(folder):
        return False
    data = b""
    for name in sorted([name for name in os.listdir(folder) if name.endswith(".h")]):
        with open(os.path.join(folder, name), "rb") as file:
            data += file.read()
    return crc32(data) != built


try:
    from pypmix.engine.native import _ffi as _ffi
except ImportError as error:
    if error.name == "_cffi_backend":
        missing = "the package cffi, which the native engine runs on, is not installed"
    elif error.name == "pypmix.engine.native":
        folder = __path__[0].removesuffix("/engine/native")
        missing = f"{folder} has no extension: it was installed without a C compiler, or is a source tree"
    else:
        missing = f"the extension does not load: {error}"
else:
    home = __path__[0].removesuffix("/pypmix/engine/native")
    if outdated(f"{home}/native/cdef", getattr(_ffi.lib, "PYPMIX_DECLARED", 0)):
        missing = f"the extension was built of an earlier state of {home}: build it again with `pip install -e {home}`"
