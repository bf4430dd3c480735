"""A check: a promise, the program with which ranks test it, and the rule for their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Program = Callable[..., Any]
    Rule = Callable[[list[Any]], list[Any] | str]

WAIT = 20
"""Seconds after which an operation counts as hanging."""

MEANWHILE = 0.5
"""Seconds by which a rank is delayed so that the others wait for it; fewer seconds prove less, but break no check."""

STANDARD = "Standard"
SHOWN = 160


class Promise(NamedTuple):
    """A promise: its name, the document that makes it, and its text."""

    name: str
    place: str
    text: str


class Untestable(Exception):
    """A promise cannot be tested here; the text gives the reason."""


class Check:
    """A promise and its test.

    Args:
        promise: The promise.
        program: A coroutine function with a client as its argument, which returns lists, dicts, strings, numbers and
            None.
        ranks: The least number of ranks.
        needs: The names of the promises that this one requires.
        killed_ranks: The ranks that its program kills, counted from the last rank if negative; their result is None.
    """

    def __init__(
        self, promise: Promise, program: Program, ranks: int, needs: Sequence[str], killed_ranks: Sequence[int] = ()
    ) -> None:
        self.promise = promise
        self.program = program
        self.ranks = ranks
        self.needs = tuple(needs)
        self._killed_ranks = tuple(killed_ranks)
        self._rule: Rule = lambda results: results

    @property
    def name(self) -> str:
        """The name of the promise."""
        return self.promise.name

    def list_killed(self, size: int) -> set[int]:
        """Return the ranks that are killed in a job of a size."""
        return {rank % size for rank in self._killed_ranks} if size else set()

    def rule(self, rule: Rule) -> Rule:
        """Decorate the rule.

        It receives the results of the ranks, in rank order, and returns the expected results, or the text of an error.
        """
        self._rule = rule
        return rule

    def judge(self, results: list[Any]) -> str:
        """Return the error in the results of all ranks; empty if the promise is kept."""
        try:
            expected = self._rule(results)
        except (IndexError, KeyError, TypeError, ValueError, AttributeError):
            return f"the ranks have seen {_short(results)}"
        if isinstance(expected, str):
            return expected
        for rank, (seen, wanted) in enumerate(zip(results, expected, strict=True)):
            if seen != wanted:
                return f"rank {rank} has seen {_short(seen)}, not {_short(wanted)}"
        return ""


def promised(
    name: str, place: str, text: str, *, ranks: int = 2, needs: Sequence[str] = (), killed_ranks: Sequence[int] = ()
) -> Callable[[Program], Check]:
    """Return a decorator that makes a program a check; see `Promise` and `Check`."""
    return lambda program: Check(Promise(name, place, text), program, ranks, needs, killed_ranks)


def distinct(numbers: list[Any]) -> bool:
    """Return True if all are integers and all differ."""
    return all(isinstance(number, int) for number in numbers) and len({*numbers}) == len(numbers)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
