"""The options by which a command says which server it means, and the tool that is connected to it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from pypmix.standard.errors import PMIxError
from pypmix.standard.logtext import printable_lines
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.tool import Tool

_PANEL = "Which server"

_OPTIONS: dict[str, Any] = {
    "pid": Annotated[
        int | None,
        typer.Option(
            "--pid", metavar="PID", help="The server of this pid, such as a launcher's.", rich_help_panel=_PANEL
        ),
    ],
    "nspace": Annotated[
        str | None,
        typer.Option("--nspace", metavar="NSPACE", help="The server of this nspace.", rich_help_panel=_PANEL),
    ],
    "uri": Annotated[
        str | None,
        typer.Option("--uri", metavar="URI", help="The server at this URI, or in file:PATH.", rich_help_panel=_PANEL),
    ],
    "file": Annotated[
        str | None,
        typer.Option("--file", metavar="PATH", help="The server of this rendezvous file.", rich_help_panel=_PANEL),
    ],
    "system": Annotated[bool, typer.Option("--system", help="The system server of this node.", rich_help_panel=_PANEL)],
    "patience": Annotated[
        float | None,
        typer.Option(
            "--wait-for-server", metavar="SECONDS", help="How long to wait until it is there.", rich_help_panel=_PANEL
        ),
    ],
}


class Reach(Record):
    """Which server a command line names, and the command's name."""

    command: str
    pid: int | None = None
    nspace: str | None = None
    uri: str | None = None
    file: str | None = None
    system: bool = False
    patience: float | None = None

    @property
    def named(self) -> bool:
        """Whether it names one at all."""
        return bool(self.pid or self.nspace or self.uri or self.file or self.system)

    def tool(self) -> Tool:
        """Return a tool for that server, to be opened."""
        from pypmix.tool import Tool

        try:
            return Tool(
                pid=self.pid,
                nspace=self.nspace,
                uri=self.uri,
                file=self.file,
                system=self.system,
                wait=self.patience,
            )
        except (TypeError, ValueError) as error:
            raise typer.BadParameter(str(error)) from None

    def say(self, text: object) -> None:
        """Write a message of the command's own to standard error."""
        print(f"pypmix {self.command}: {printable_lines(text)}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Turn an error of PMIx into a message and the exit code 1."""
        try:
            yield
        except PMIxError as error:
            self.say(error)
            raise typer.Exit(1) from None
        except BrokenPipeError:
            # Nobody reads our output any more: what SIGPIPE does to a program.
            sys.stdout = None
            raise typer.Exit(141) from None


def reaching(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which is given them as its first argument."""
    command = function.__name__.strip("_").replace("_", "-")
    own = inspect.signature(function, eval_str=True)
    parameters = list(own.parameters.values())[1:]
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "system" else None, annotation=annotation
        )
        for name, annotation in _OPTIONS.items()
    ]

    @functools.wraps(function)
    def wrapped(**options: Any) -> None:
        reach = Reach(command, **{name: options.pop(name) for name in _OPTIONS})
        function(reach, **options)

    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapped
