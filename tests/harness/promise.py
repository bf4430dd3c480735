"""What a promise is: of the Standard, an RFC or OpenPMIx, to be proven on every pairing, or declared to be lacking."""

from __future__ import annotations

from typing import NamedTuple

from harness.lack import Lack


class Promise(NamedTuple):
    """A promise: its name, where it is made, and what it says."""

    name: str
    place: str
    text: str


def every_native(promise: str, reason: str) -> tuple[Lack, ...]:
    """Return that no native server keeps a promise, neither under its own launcher nor under a host of ours."""
    return tuple([Lack(promise, server, "*", reason) for server in ("prterun*", "native-server*")])
