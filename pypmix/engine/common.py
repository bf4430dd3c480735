"""Names, records and small functions for both engines and their users; the protocols are in `engine.base`."""

from __future__ import annotations

import os

from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.standard.types import Proc

SLURM = "slurm.pmix."
"""The prefix of the nspaces of Slurm's job steps; `pypmix.engine.slurm` has their limits."""
SOCKET_VARIABLE = "PYPMIX_SERVER_SOCKET"
"""The variable with the address of a server of the Python engine, a space, and the path of its Unix-domain socket."""
LONGEST_SLEEP = 86400.0
"""The most seconds that a poll sleeps at a time."""

TIMEOUT_GRACE = 0.5
"""Seconds beyond the caller's time limit in which a server may report the timeout; some releases ignore the limit."""


TIMED_OUT = "timed out before all processes arrived"
"""The text for a collective whose time is over."""


CONTINUED = frozenset(("Fence", "Disconnect"))
"""The collectives whose next call gets the result of a call that was cancelled too late to be withdrawn.

A connect that was cancelled too late is undone. A construct or destruct has a name, which shows that it has ended.
"""


def suggest_key(key: str, known_keys: Iterable[str]) -> str:
    """Return a hint for a key that was not found: the most similar known key, or some known keys."""
    import difflib

    names = sorted({name for name in known_keys if not name.startswith("pmix.")})
    close = difflib.get_close_matches(key, names, 1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known here: {', '.join(map(repr, names[:8]))}{', ...' if len(names) > 8 else ''}" if names else ""


def ignore(_result: object, _error: BaseException | None) -> None:
    """Ignore the result of an operation or an upcall."""


URI_VARIABLES = tuple(["PMIX_SERVER_URI" + generation for generation in ("61", "51", "41", "4", "3", "21", "20", "2")])
"""The variables with the address of a server, newest first; all have the same value."""


def has_libpmix() -> bool:
    """Return True if this process has loaded a libpmix, for example with an MPI library; imports nothing."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            return b"/libpmix.so" in maps.read()
    except OSError:
        return False


NATIVE = "native"
MUNGE = "munge"

UNCHECKED = "unchecked"
"""The word that allows clients whose user cannot be verified."""


def security_modules(names: Iterable[str]) -> tuple[str, ...]:
    """Check the security modules of a server, of which clients use the first that they have, and `unchecked`.

    Raises:
        PMIxError: A module does not exist (`ERR_BAD_PARAM`).
    """
    found = tuple([name.strip() for name in names if name.strip()])
    if not set(found) - {UNCHECKED}:
        found = (NATIVE, *found)
    for name in found:
        if name not in (NATIVE, MUNGE, UNCHECKED):
            detail = f"{name!r} is not a security module of this server: it has {NATIVE} and {MUNGE}, or {UNCHECKED}"
            raise PMIxError(detail, status=statuses.ERR_BAD_PARAM)
    return found


def configured_security() -> tuple[str, ...]:
    """Return the security modules in `PYPMIX_SECURITY`; see `security_modules`.

    Raises:
        PMIxError: A module does not exist (`ERR_BAD_PARAM`).
    """
    return security_modules(os.environ.get("PYPMIX_SECURITY", "").split(","))


def sleep_for(seconds: float) -> float:
    """Return the seconds of the next sleep of a loop whose next call is due in `seconds`."""
    # The kernel stores the milliseconds of a poll in an int, and a client may request a larger limit. The loop wakes
    # earlier, and sleeps again.
    return 0.0 if seconds < 0 else seconds if seconds < LONGEST_SLEEP else LONGEST_SLEEP


_COMMON = """
    put commit fence fence.collect fence.timeout get get.timeout get.immediate publish lookup lookup.wait unpublish
    query resolve_peers resolve_nodes log job_control allocation_request process_monitor heartbeat get_credential
    validate_credential fabric_register fabric_update compute_distances spawn connect disconnect output input
    group_construct group_destruct events notify abort finalize
"""

COMMON = frozenset(_COMMON.split())
"""The features that both engines have with all releases; each engine adds further ones."""


def owned(lock: Any) -> Callable[[], bool]:
    """Return a predicate that is true if this thread holds a reentrant lock: in a signal handler or a callback."""
    # The lock has no public method for that. Acquiring and releasing it takes 175 ns, and 50 ns more if its owner is
    # recorded by hand; each operation does so some three times.
    return lock._is_owned  # type: ignore[no-any-return]


class EngineInfo(Record):
    """The engine of a session: its name, its release, and its library if it has one."""

    name: str
    release: str
    library: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.release}"


class Pending(Record):
    """A collective or request in progress at a server, with the procs that have arrived and the missing procs."""

    operation: str
    label: str
    arrived: tuple[Proc, ...]
    missing: tuple[Proc, ...]
    since: float
    """When the first participant arrived, on the clock of `time.monotonic`."""
