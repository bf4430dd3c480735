"""The typer application: every command's help, and the commands that may take the time to import it."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from typing import Annotated, Any

import typer

from pypmix._version import __version__
from pypmix.cli.options import FLAG, NUMBER, OPTIONS, SECONDS, SETTING
from pypmix.cli.tools import COMMANDS as TOOLS

_TYPES: dict[str, Any] = {FLAG: bool, NUMBER: int | None, SECONDS: float | None, SETTING: list[str] | None}

_RUN_HELP = """Run a job on this node: ranks, their PMIx server, and the clean-up after them.

pypmix run -n 4 python hello.py

pypmix run -n 1 ./leader : -n 8 -x DEPTH=3 ./worker --fast

Options end at the program's name; what follows belongs to the program, up to a ':' that starts the next
application. Standard input goes to rank 0. Output is passed on by whole lines, except that a lone rank writes
to this command's own output.

The exit code is that of the first rank that fails, 128 + n where signal n ended it or the job, 124 where the
time ran out, 126 or 127 where a program cannot be executed or found."""

# typer would keep the line breaks inside of a paragraph.
RUN_HELP = "\n\n".join([paragraph.replace("\n", " ") for paragraph in _RUN_HELP.split("\n\n")])

app = typer.Typer(
    name="pypmix",
    help="Pythonic PMIx: run jobs, and see what this machine offers them.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pypmix {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _run(**_options: object) -> None:
    raise AssertionError("`pypmix run` is carried out by pypmix.cli.run; this is its help")


def _run_signature() -> inspect.Signature:
    parameters = [
        inspect.Parameter(
            option.field,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if option.kind == FLAG else None,
            annotation=Annotated[
                _TYPES.get(option.kind, str | None),
                typer.Option(
                    *option.names,
                    help=option.help,
                    metavar=option.metavar or None,
                    show_default=False,
                    rich_help_panel="Options of an application" if option.per_app else "Options of the job",
                ),
            ],
        )
        for option in OPTIONS
    ]
    program = inspect.Parameter(
        "program",
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[
            str,
            typer.Argument(metavar="PROGRAM [ARGUMENT...] [: ...]", help="What the ranks run.", show_default=False),
        ],
    )
    return inspect.Signature([*parameters, program])


_run.__signature__ = _run_signature()  # type: ignore[attr-defined]
_run.__annotations__ = {name: each.annotation for name, each in _run_signature().parameters.items()}
app.command("run", help=RUN_HELP)(_run)


def show_run_help() -> None:
    """Print the help of `pypmix run`."""
    app(["run", "--help"], prog_name="pypmix", standalone_mode=False)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()


@app.command()
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Say which engines and libraries can be used here, which one a client takes and why, and what to change.

    The exit code is 0 where a client would find a usable engine, 1 otherwise.
    """
    from pypmix.cli import doctor as show
    from pypmix.cli.diagnosis import diagnose

    diagnosis = diagnose(os.environ)
    sys.stdout.write(show.as_json(diagnosis) if json else show.as_text(diagnosis, sys.stdout))
    raise typer.Exit(0 if diagnosis.usable else 1)


@app.command()
def compat(
    scripts: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT [ARGUMENT...]", help="The program, or with -m its module.", show_default=False),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say which calls of the scripts behave differently.")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install", help="Make `import pmix` work for all of this environment.")
    ] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Take --install back.")] = False,
) -> None:
    """Run a program that was written for the official binding (`import pmix`), with pypmix in that one's place.

    pypmix run -n 4 python -m pypmix.compat script.py does the same for the ranks of a job.
    """
    from pypmix.cli.compat import compat

    raise typer.Exit(compat(scripts or [], install, uninstall, check))


for function in TOOLS:
    app.command()(function)
