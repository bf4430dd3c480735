"""Describes the native engine's extension to cffi: our declarations of the PMIx ABI, and the shim behind them.

No PMIx header is read and nothing is linked with libpmix; the shim opens it at run time.
"""

from __future__ import annotations

import sys
from binascii import crc32
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
MODULE = "pypmix.engine.native._ffi"
DECLARATIONS = ("system.h", "pmix.h", "asks.h", "call.h", "inbox.h", "shim.h", "server.h")
SHIM = (
    "library.c",
    "values.c",
    "calls.c",
    "asks.c",
    "topology.c",
    "apart.c",
    "fork.c",
    "watch.c",
    "inbox.c",
    "events.c",
    "forwarding.c",
    "tool.c",
    "server.c",
    "upcalls.c",
    "serverasks.c",
)

PREAMBLE = """#include "shim.h"
#define PYPMIX_DECLARED {}"""


def builder() -> cffi.FFI:
    """Return the cffi description of the extension, ready to emit its C source."""
    ffi = cffi.FFI()
    for name in DECLARATIONS:
        ffi.cdef((HERE / "cdef" / name).read_text())
    ffi.cdef("#define PYPMIX_DECLARED ...")
    ffi.set_source(MODULE, PREAMBLE.format(declared()))
    return ffi


def declared() -> int:
    """Return a checksum of the declarations, by which a source tree knows an extension that was built of others."""
    return crc32(b"".join([file.read_bytes() for file in sorted((HERE / "cdef").glob("*.h"))]))


def sources() -> list[str]:
    """Return the C files of the shim, relative to the project."""
    return [f"{HERE.name}/shim/{name}" for name in SHIM]


def headers() -> list[str]:
    """Return the headers that the C files include, relative to the project."""
    return [f"{HERE.name}/shim/shim.h", *(f"{HERE.name}/cdef/{name}" for name in DECLARATIONS)]


if __name__ == "__main__":
    builder().emit_c_code(sys.argv[1])
