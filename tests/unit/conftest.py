"""Fixtures that the tests of this folder share; none of them starts a process."""

from __future__ import annotations

from lib.group_delivery import anyio_backend, me, session  # noqa: F401
