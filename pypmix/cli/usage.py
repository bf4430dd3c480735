"""Mistakes in a command line, and the width of a terminal: what a command needs that does not use argparse."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

USAGE = 2
"""The exit code of a command line that cannot be carried out."""


class UsageError(Exception):
    """A command line that cannot be carried out; the text gives the reason."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a hint at the known word that is most like `word`, empty if none is similar."""
    import difflib

    # All options begin with dashes, which would make any two of them similar.
    names = {name.lstrip("-"): name for name in sorted(candidates, reverse=True)}
    close = difflib.get_close_matches(word.lstrip("-"), names, 1, 0.66)
    return f"; did you mean {names[close[0]]}?" if close else ""


def unknown_option(word: str, candidates: Iterable[str]) -> UsageError:
    """Return the error of an option that a command does not have.

    Args:
        word: The option as it was given, perhaps with `=` and a value.
        candidates: The names of the command's options.
    """
    name = word.partition("=")[0]
    # Short options are all alike.
    return UsageError(f"there is no option {name}{did_you_mean(name, candidates) if name.startswith('--') else ''}")


def columns(out: int = 1) -> int:
    """Return the width of the terminal of a descriptor, 80 if it is not a terminal or has no width."""
    try:
        # The terminals that launchers give to their ranks report 0.
        return os.get_terminal_size(out).columns or 80
    except (OSError, ValueError):
        return 80
