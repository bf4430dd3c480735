"""The parser of every `pypmix` command: argparse, with our own texts of errors and our own layout of a help."""

from __future__ import annotations

import argparse
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

USAGE = 2
"""The exit code of a command line that cannot be carried out."""


class UsageError(Exception):
    """A command line that cannot be carried out; the text gives the reason."""


class Help(argparse.HelpFormatter):
    """A help as wide as the terminal, whose description keeps its paragraphs."""

    def __init__(self, prog: str) -> None:
        # argparse would import shutil to find the width, which is slow, even if no help is printed.
        super().__init__(prog, max_help_position=26, width=columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join([fill(paragraph, width, indent) for paragraph in text.split("\n\n")])


class Parser(argparse.ArgumentParser):
    """A parser that raises an error instead of ending the process, and takes no abbreviations."""

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(
            prog,
            formatter_class=Help,
            allow_abbrev=False,
            exit_on_error=False,
            add_help=False,
            **settings,
        )

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(message)

    @property
    def actions(self) -> list[argparse.Action]:
        """Its options and arguments."""
        return list(self._actions)

    def print_help(self, file: Any = None) -> None:
        """Print the help; ignore a reader that has exited."""
        try:
            super().print_help(file)
        except BrokenPipeError:
            return


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


def add_help(group: Any) -> None:
    """Add the option that shows the help."""
    group.add_argument("-h", "--help", action="help", help="Show this message and exit.")


class Read(argparse.Action):
    """An option whose value is read by a function, which gets the name by which the option was given."""

    def __init__(self, read: Callable[[str, str], object], **settings: Any) -> None:
        super().__init__(**settings)
        self.read = read

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Set the field."""
        setattr(namespace, self.dest, self.read(option_string or "", values))


def columns(out: int = 1) -> int:
    """Return the width of the terminal of a descriptor, 80 if it is not a terminal or has no width."""
    try:
        # The terminals that launchers give to their ranks report 0.
        return os.get_terminal_size(out).columns or 80
    except (OSError, ValueError):
        return 80
