"""Pending operations of a host as a query returns them: the procs that have arrived, the missing ones, since when.

`pypmix.pending` is a key of our own. Its answer is an array of infos under that key, oldest first, one for each
pending operation; each of them is an array of infos with the keys below. A proc that the host does not run has the
pid 0.
"""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.record import Record
from pypmix.standard.types import DataArray, Info, ProcInfo, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

KEY = "pypmix.pending"

OPERATION = "pypmix.pending.operation"
"""A string: the operation as the Standard spells it, such as `fence`."""

LABEL = "pypmix.pending.label"
"""A string: further details, such as the name of a group; may be empty."""

SECONDS = "pypmix.pending.seconds"
"""A double: the seconds since the first participant arrived."""

ARRIVED = "pypmix.pending.arrived"
"""An array of PROC_INFO: the procs that have arrived, or the caller."""

MISSING = "pypmix.pending.missing"
"""An array of PROC_INFO: the missing procs; empty if the host itself has to answer."""


class Entry(Record):
    """A pending operation.

    Args:
        operation: Its name.
        label: Further details; may be empty.
        seconds: The seconds since it began.
        arrived: The procs that have arrived.
        missing: The procs that have not.
    """

    operation: str
    label: str
    seconds: float
    arrived: tuple[ProcInfo, ...]
    missing: tuple[ProcInfo, ...]


def pack(entries: Iterable[Entry]) -> Value:
    """Return the answer to a query for `KEY`."""
    found = []
    for entry in entries:
        fields = (
            Info(OPERATION, Value.unchecked(codes.STRING, entry.operation)),
            Info(LABEL, Value.unchecked(codes.STRING, entry.label)),
            Info(SECONDS, Value.unchecked(codes.DOUBLE, entry.seconds)),
            Info(ARRIVED, _array(codes.PROC_INFO, entry.arrived)),
            Info(MISSING, _array(codes.PROC_INFO, entry.missing)),
        )
        found.append(Info(KEY, _array(codes.INFO, fields)))
    return _array(codes.INFO, tuple(found))


def unpack(infos: Iterable[Info]) -> list[Entry]:
    """Return the entries of an answer.

    Args:
        infos: The answer as the array's items.

    Raises:
        ValueError: It has another layout.
    """
    found = []
    for info in infos:
        try:
            fields: dict[str, Any] = {field.key: field.value.data for field in info.value.data.items}
            arrived, missing = tuple(fields[ARRIVED].items), tuple(fields[MISSING].items)
            entry = Entry(fields[OPERATION], fields[LABEL], float(fields[SECONDS]), arrived, missing)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"no pending operation: {error!r}") from None
        found.append(entry)
    return found


def _array(type: int, items: tuple[object, ...]) -> Value:
    return Value.unchecked(codes.DATA_ARRAY, DataArray(type, items))
