"""Describes the native engine's extension to cffi: our declarations of the PMIx ABI, and the shim behind them.

No PMIx header is read and nothing is linked with libpmix; the shim opens it at run time.

`cdef/pmix.h` declares the data of the ABI. One extension serves all releases, since releases add structures and leave
the others alone; the one table that differs, the server's upcalls, is filled in by place at run time
(`engine/native/serverside/slots.py`). Of the unions and arguments only what pypmix uses is declared. Sizes have to be
right: the library allocates structures, too, and frees ours. A structure that a release lays out in another way cannot
be declared twice. Until there is such a release, its major release is refused (`LAST_MAJOR` in `standard/releases.py`,
which lists everything a new release may change).

A structure that is added to `cdef/pmix.h` has its number in `shim/types.h`, its size and its end in `shim/values.c`,
and its conversion in `engine/native/marshal.py`. An extension that was built of other declarations is not
loaded (`declared`, where comments count, too): build it again after each change below `cdef`.
"""

from __future__ import annotations

import sys
from binascii import crc32
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
MODULE = "pypmix.engine.native._ffi"
DECLARATIONS = ("system.h", "pmix.h", "asks.h", "call.h", "inbox.h", "shim.h", "server.h")
HEADERS = ("shim.h", "types.h")
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
    return [*(f"{HERE.name}/shim/{name}" for name in HEADERS), *(f"{HERE.name}/cdef/{name}" for name in DECLARATIONS)]


if __name__ == "__main__":
    builder().emit_c_code(sys.argv[1])
