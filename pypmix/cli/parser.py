"""The parser of every `pypmix` command: argparse, with our own texts of errors and our own layout of a help."""

from __future__ import annotations

import argparse

from pypmix.cli.usage import UsageError, columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


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


def add_help(group: Any) -> None:
    """Add the option that shows the help."""
    group.add_argument("-h", "--help", action="help", help="Show this message and exit.")
