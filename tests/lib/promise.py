"""What a promise is: of the Standard, an RFC or OpenPMIx, to be proven on every pairing, or declared to be lacking."""

from __future__ import annotations

from typing import Any

from lib.lack import Lack
from pypmix.conformance.check import Promise
from pypmix.conformance.checks import CHECKS

__all__ = ["Promise", "every_native", "shipped"]


def shipped(name: str) -> Promise:
    """Return a promise that users can try, too, with `pypmix conform`."""
    return CHECKS[name][1].promise


def every_native(promise: str, reason: str, **shown: Any) -> tuple[Lack, ...]:
    """Return that no native server keeps a promise, neither under its own launcher nor under a host of ours.

    Args:
        promise: Its name.
        reason: Why.
        **shown: What shows it: further arguments of `Lack`.
    """
    chosen = f"{reason}; our choice: a host of ours does not make up for it"
    return (
        Lack(promise, "prterun*", "*", reason, **shown),
        Lack(promise, "native-server*", "*", chosen, **shown),
    )
