"""The native engine: the site's own libpmix, of any release from 4.2 to 7, behind CFFI."""

from __future__ import annotations

missing = ""
"""Why this installation has no native engine; empty where it has one."""

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
