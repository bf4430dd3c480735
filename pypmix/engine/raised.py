"""The events that a process has raised itself, so that it receives each once."""

from __future__ import annotations

from collections import OrderedDict

from pypmix.engine.chain import MAX_KEPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

    from pypmix.standard.ops import NotifyEvent
    from pypmix.standard.types import Info


class Raised:
    """The events that this process has raised itself, with the number of expected deliveries of each."""

    # libpmix delivers some of them again to handlers that are registered later, whether they were handled or not.

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, list[int]] = OrderedDict()

    def add(self, op: NotifyEvent) -> None:
        name = self._name(op.code, op.infos)
        if name is not None:
            self._known.setdefault(name, [0, 0])[0] += 1
            self._known[name][1] = op.range
            self._known.move_to_end(name)
            if len(self._known) > MAX_KEPT:
                self._known.popitem(last=False)

    def heard(self, code: int, infos: tuple[Info, ...]) -> tuple[bool, int | None]:
        """Return whether an event is new, and its range if it was raised here."""
        known = self._known.get(self._name(code, infos))
        if known is None:
            return True, None
        if not known[0]:
            # A repeated delivery must not count against a later event of the same kind.
            return False, known[1]
        known[0] -= 1
        return True, known[1]

    @staticmethod
    def _name(code: int, infos: tuple[Info, ...]) -> Hashable:
        name = code, tuple([(info[0], info[1]) for info in infos])
        try:
            hash(name)
        except TypeError:
            return None
        return name
