"""Fixtures that the tests of this folder share."""

from __future__ import annotations

from lib.page_console import environment, folder  # noqa: F401
