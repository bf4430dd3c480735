"""The old place of recordings of upcalls: each name here gives a warning with its new place."""

from __future__ import annotations

from pypmix.lazy import names as _names

__getattr__, __dir__ = _names(__name__, {})
