"""Where the tests find native libraries."""

from __future__ import annotations

import ctypes.util
import os

VARIABLE = "PYPMIX_TEST_LIBPMIX"


def find_libpmix() -> list[str]:
    """Return the native libraries to test against: those that the variable lists, and the loader's own."""
    found = [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]
    default = ctypes.util.find_library("pmix")
    if default:
        found.append(default)
    return found
