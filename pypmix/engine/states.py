"""Tables of states: what state machines of the engines take each next state from, and the documentation draws."""

from __future__ import annotations

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class Row(Record):
    """A transition.

    Args:
        state: The state.
        what: What happens.
        next: The state after that.
        said: The procs that are told of it, and by which event; empty for none.
    """

    state: str
    what: str
    next: str
    said: str = ""


class IllegalStep(RuntimeError):
    """Something has happened that cannot happen in a state: a fault of pypmix."""


class After(dict[str, str]):
    """The states after one event of a machine, by the state in which it happens.

    Hot paths read it in place of calling `Machine.step`, which takes several times as long.

    Args:
        machine: The machine.
        what: What happens.
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
        START: The state that all begin in.
        ROWS: All that may happen; anything else is an `IllegalStep`.
        AFTER: The same, by what happens.
    """

    START: ClassVar[str]
    ROWS: ClassVar[tuple[Row, ...]]
    AFTER: ClassVar[dict[str, After]]

    def __init_subclass__(cls) -> None:
        cls.AFTER = {row.what: After(cls, row.what) for row in cls.ROWS}

    @classmethod
    def step(cls, state: str, what: str) -> str:
        """Return the state that follows when something happens in a state.

        Raises:
            IllegalStep: The table has no such row.
        """
        return cls.AFTER[what][state]
