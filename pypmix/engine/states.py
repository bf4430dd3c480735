"""Tables of states: the engines' state machines use them, and the documentation draws them."""

from __future__ import annotations

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import ClassVar


class Row(Record):
    """A transition.

    Args:
        state: The state.
        what: The event.
        next: The next state.
        said: The procs that are notified, and the event code; empty for none.
    """

    state: str
    what: str
    next: str
    said: str = ""


def rows_of(states: Iterable[str], what: str, next: str = "", said: str = "") -> tuple[Row, ...]:
    """Return the transitions by one event from several states; without `next`, the states stay as they are."""
    return tuple([Row(state, what, next or state, said) for state in states])


class IllegalStep(RuntimeError):
    """An event has happened that is impossible in a state: an internal error of pypmix."""


class NextStates(dict[str, str]):
    """The next states for one event of a machine, by state.

    Hot paths read it in place of calling `Machine.step`, which takes several times as long.

    Args:
        machine: The machine.
        what: The event.
    """

    __slots__ = ("machine", "what")

    def __init__(self, machine: type[Machine], what: str) -> None:
        super().__init__({row.state: row.next for row in machine.ROWS if row.what == what})
        self.machine = machine
        self.what = what

    def __missing__(self, state: str) -> str:
        raise IllegalStep(f"{self.machine.__name__}: {self.what!r} cannot happen in the state {state!r}")


class Machine:
    """A table of states.

    Attributes:
        START: The first state.
        ROWS: The possible transitions; any other one is an `IllegalStep`.
        AFTER: The next states, by event.
    """

    START: ClassVar[str]
    ROWS: ClassVar[tuple[Row, ...]]
    AFTER: ClassVar[dict[str, NextStates]]

    def __init_subclass__(cls) -> None:
        cls.AFTER = {row.what: NextStates(cls, row.what) for row in cls.ROWS}

    @classmethod
    def step(cls, state: str, what: str) -> str:
        """Return the next state for an event in a state.

        Raises:
            IllegalStep: The event is impossible in the state.
        """
        return cls.AFTER[what][state]
