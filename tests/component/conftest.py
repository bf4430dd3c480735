"""Fixtures that the tests of this folder share."""

from __future__ import annotations

from lib.group_delivery import anyio_backend, me, session  # noqa: F401
from lib.native_programs import (  # noqa: F401
    lone,
    pair,
)
from lib.native_server import serve  # noqa: F401
