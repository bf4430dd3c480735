"""Fixtures of the tests of rosters."""

from __future__ import annotations

from lib.command import command
from lib.sshd import sshd

__all__ = ["command", "sshd"]
