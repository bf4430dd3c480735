"""Fixtures of the tests of rosters."""

from __future__ import annotations

from lib.sshd import sshd

__all__ = ["sshd"]
