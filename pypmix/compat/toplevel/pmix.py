"""The Standard's Python bindings by their own name: `import pmix` is `pypmix.compat`."""

# Put here by `pypmix compat --install`, which replaces and removes no other file.

from __future__ import annotations

import sys

try:
    from pypmix import compat
except ImportError as error:
    raise ImportError(f"{__file__} belongs to pypmix, which cannot be imported: {error}", name="pypmix") from error

sys.modules[__name__] = compat
