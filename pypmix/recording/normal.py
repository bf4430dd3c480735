"""Operations without the parts that vary from run to run of a scenario."""

from __future__ import annotations

from pypmix.standard import codes, keys
from pypmix.standard.asjson import fields
from pypmix.standard.ops import (
    ClientConnected,
    Connect,
    DeregisterEvents,
    Disconnect,
    FenceUpcall,
    GroupUpcall,
    Log,
    RegisterEvents,
    ToolConnected,
)
from pypmix.standard.record import Record
from pypmix.standard.types import DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pypmix.standard.ops import Op

COLLECTIVES = (FenceUpcall, GroupUpcall, Connect, Disconnect, RegisterEvents, DeregisterEvents)
"""Operations that a server requests for several clients: collectives, and registrations for their first or last client.

Any of the clients may be the requestor.
"""

VOLATILE = frozenset(
    {
        keys.PROC_PID,
        keys.LOG_TIMESTAMP,
        keys.SERVER_TMPDIR,
        keys.SERVER_URI,
        keys.TIME_REMAINING,
    }
)
"""Keys whose values vary from run to run: only their types are compared."""

_FIELDS: dict[type, dict[str, object]] = {
    ClientConnected: {"pid": None, "release": ""},
    ToolConnected: {"pid": None, "release": ""},
    Log: {"timestamp": 0},
}


class Normal:
    """Replaces the parts of operations that vary from run to run.

    Args:
        names: Nspaces and their replacements; a name that ends with `*` is a prefix.
        volatile: Keys whose values are removed.
    """

    def __init__(self, names: Mapping[str, str] | None = None, volatile: frozenset[str] = VOLATILE) -> None:
        self._names = {name: other for name, other in (names or {}).items() if not name.endswith("*")}
        self._prefixes = {name[:-1]: other for name, other in (names or {}).items() if name.endswith("*")}
        self._volatile = volatile

    def __call__(self, op: Op[object]) -> Op[object]:
        """Return the operation without its varying parts."""
        found = op.replace(**{name: self.part(getattr(op, name)) for name in fields(op)})
        if isinstance(found, FenceUpcall):
            # Servers may pack the committed data in any order.
            return found.replace(data=b"data" if found.data else b"")
        return found.replace(**_FIELDS.get(type(op), {}))

    def part(self, data: Any) -> Any:
        """Return a part of an operation without its varying parts."""
        if isinstance(data, Info):
            value = self._blank(data.value) if data.key in self._volatile else self.part(data.value)
            return Info.unchecked(data.key, value, data.flags)
        if isinstance(data, Value):
            if data.type == codes.PROC_NSPACE and isinstance(data.data, str):
                return Value.unchecked(data.type, self._rename(data.data))
            return Value.unchecked(data.type, self.part(data.data))
        if isinstance(data, Proc):
            return Proc.unchecked(self._rename(data.nspace), data.rank)
        if isinstance(data, tuple):
            return tuple([self.part(item) for item in data])
        if isinstance(data, DataArray):
            return DataArray(data.type, self.part(data.items))
        if isinstance(data, Record):
            return data.replace(**{name: self.part(getattr(data, name)) for name in fields(data)})
        return data

    def _rename(self, nspace: str) -> str:
        if nspace in self._names:
            return self._names[nspace]
        return next((other for prefix, other in self._prefixes.items() if nspace.startswith(prefix)), nspace)

    @staticmethod
    def _blank(value: Value) -> Value:
        return Value.unchecked(value.type, None)
