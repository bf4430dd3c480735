"""A check: a promise, the program with which ranks try it, and the rule that tells whether they have seen it kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Program = Callable[..., Any]
    Rule = Callable[[list[Any]], list[Any] | str]

WAIT = 20
"""Seconds after which an operation counts as one that does not end."""

MEANWHILE = 0.5
"""Seconds after which the others wait for a rank that comes late; too few prove less, and break nothing."""

STANDARD = "Standard"
SHOWN = 160


class Promise(NamedTuple):
    """A promise: its name, where it is made, and what it says."""

    name: str
    place: str
    text: str


class Untestable(Exception):
    """A promise that cannot be tested here; the text says why."""


class Check:
    """A promise and how it is tested.

    Args:
        promise: The promise.
        program: A coroutine function of a client, which returns lists, dicts, texts, numbers and None.
        ranks: How many ranks it needs at least.
        needs: The names of the promises without which this one cannot be tested.
        lost: The ranks that its program kills, from the last one where they are negative; they see None.
    """

    def __init__(
        self, promise: Promise, program: Program, ranks: int, needs: Sequence[str], lost: Sequence[int] = ()
    ) -> None:
        self.promise = promise
        self.program = program
        self.ranks = ranks
        self.needs = tuple(needs)
        self._lost = tuple(lost)
        self._rule: Rule = lambda found: found

    @property
    def name(self) -> str:
        """The name of the promise."""
        return self.promise.name

    def lost(self, size: int) -> set[int]:
        """Return the ranks that are killed in a job of so many."""
        return {rank % size for rank in self._lost} if size else set()

    def rule(self, rule: Rule) -> Rule:
        """Make a function the rule.

        It takes what the ranks have returned, in their order, and returns what they should have, or what is wrong.
        """
        self._rule = rule
        return rule

    def judge(self, found: list[Any]) -> str:
        """Return what is wrong with the results of all ranks, empty if the promise is kept."""
        try:
            expected = self._rule(found)
        except (IndexError, KeyError, TypeError, ValueError, AttributeError):
            return f"the ranks have seen {_short(found)}"
        if isinstance(expected, str):
            return expected
        for rank, (seen, wanted) in enumerate(zip(found, expected, strict=True)):
            if seen != wanted:
                return f"rank {rank} has seen {_short(seen)}, not {_short(wanted)}"
        return ""


def promised(
    name: str, place: str, text: str, *, ranks: int = 2, needs: Sequence[str] = (), lost: Sequence[int] = ()
) -> Callable[[Program], Check]:
    """Return the decorator that makes a check of a program; see `Promise` and `Check`."""
    return lambda program: Check(Promise(name, place, text), program, ranks, needs, lost)


def distinct(numbers: list[Any]) -> bool:
    """Tell whether these are integers that all differ."""
    return all(isinstance(number, int) for number in numbers) and len({*numbers}) == len(numbers)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
