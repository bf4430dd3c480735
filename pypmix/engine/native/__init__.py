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
        missing = "pypmix was installed without its extension, because no C compiler was at hand"
    else:
        missing = f"the extension does not load: {error}"
