"""The functions that the official binding has beside its classes."""

from __future__ import annotations

from pypmix.compat.running import attempt
from pypmix.compat.scalars import to_text
from pypmix.compat.structures import HWLOC, cpus_of
from pypmix.compat.values import from_value, to_data, to_value
from pypmix.standard import codes
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

pmix_int_types = (int,)
pynbcbs: dict[int, Any] = {}
"""The callbacks in flight in the official binding; always empty here."""


def pmix_bool_convert(f: object) -> int:
    """Return 1 or 0 for a value that can be converted to a bool, `PMIX_ERR_BAD_PARAM` for any other value."""
    status, found = attempt(to_data, codes.BOOL, f)
    return status if found is None else int(found)


def pmix_value_roundtrip(pyval: object) -> tuple[int, dict[str, Any] | None]:
    """Return the status of the conversion, and the value as another process would receive it."""
    return attempt(lambda: from_value(to_value(pyval)))


def pmix_cpuset_from_string(csetstr: object) -> dict[str, Any] | None:
    """Return the dict of a cpuset such as `hwloc:0-3,8`, None if it is malformed."""
    try:
        source, colon, ranges = to_text(csetstr).partition(":")
        return {"source": source, "cpus": cpus_of(ranges)} if colon else None
    except PMIxError:
        return None


def pmix_cpuset_to_string(pycpus: object) -> str | None:
    """Return the string of a cpuset's dict, None if it is malformed; numbers and ranges are kept unchanged."""
    if not isinstance(pycpus, dict):
        return None
    try:
        source, cpus = to_text(pycpus.get("source", HWLOC)), pycpus.get("cpus", [])
        if isinstance(cpus, list | tuple):
            cpus = ",".join([str(each) if isinstance(each, int) else to_text(each) for each in cpus])
        return f"{source}:{to_text(cpus)}" if source else None
    except PMIxError:
        return None
