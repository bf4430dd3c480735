"""The events that a process has raised itself, so that it receives each once."""

from __future__ import annotations

from collections import OrderedDict

from pypmix.engine.chain import MAX_KEPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

    from pypmix.standard.ops import NotifyEvent
    from pypmix.standard.types import Info


class RaisedEvents:
    """The events that this process has raised itself, with the number of expected deliveries of each."""

    # libpmix delivers some of them again to handlers that are registered later, whether they were handled or not.

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, list[int]] = OrderedDict()

    def add(self, op: NotifyEvent) -> None:
        name = self._name(op.code, op.infos)
        if name is not None:
            self._entries.setdefault(name, [0, 0])[0] += 1
            self._entries[name][1] = op.range
            self._entries.move_to_end(name)
            if len(self._entries) > MAX_KEPT:
                self._entries.popitem(last=False)

    def match_delivery(self, code: int, infos: tuple[Info, ...]) -> tuple[bool, int | None]:
        """Return whether an event is new, and its range if it was raised here."""
        entry = self._entries.get(self._name(code, infos))
        if entry is None:
            return True, None
        if not entry[0]:
            # A repeated delivery must not count against a later event of the same kind.
            return False, entry[1]
        entry[0] -= 1
        return True, entry[1]

    @staticmethod
    def _name(code: int, infos: tuple[Info, ...]) -> Hashable:
        name = code, tuple([(info[0], info[1]) for info in infos])
        try:
            hash(name)
        except TypeError:
            return None
        return name
