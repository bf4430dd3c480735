"""The `pypmix` command as a whole: version, help, mistakes, dependencies, and modules that `run` must not import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from lib.command import Command
from pypmix import __version__


def test_the_version(command: Command) -> None:
    ended = command("--version")
    assert (ended.code, ended.lines) == (0, [f"pypmix {__version__}"])


@pytest.mark.parametrize("words", [["--help"], ["-h"]])
def test_the_help_names_the_commands(command: Command, words: list[str]) -> None:
    ended = command(*words)
    assert ended.code == 0
    assert {"run", "doctor"} <= set(ended.out.decode().split())


def test_no_command_shows_the_help(command: Command) -> None:
    ended = command()
    assert ended.code == 2
    assert b"doctor" in ended.out + ended.err


def test_an_unknown_command(command: Command) -> None:
    ended = command("fly")
    assert ended.code == 2
    assert b"fly" in ended.err


def test_an_output_that_cannot_be_written_is_one_line(command: Command) -> None:
    with open("/dev/full", "wb") as full:
        ended = command.end(command.start("completion", "bash", stdout=full))
    assert ended.code == 1
    assert ended.err == b"pypmix completion: its output cannot be written: No space left on device\n"


def test_a_reader_that_has_seen_enough_is_no_error(command: Command) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = command.end(command.start("completion", "bash", stdout=writing))
    os.close(writing)
    assert (ended.code, ended.err) == (128 + signal.SIGPIPE, b"")


COMMANDS = [
    "run",
    "doctor",
    "compat",
    "ps",
    "top",
    "query",
    "events",
    "lookup",
    "publish",
    "unpublish",
    "conform",
    "bench",
]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_help(command: Command, name: str) -> None:
    ended = command(name, "--help")
    assert ended.code == 0
    assert f"usage: pypmix {name} " in ended.out.decode()
    assert max(map(len, ended.lines)) <= 80
    assert not any(line.endswith(" ") for line in ended.lines)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("-n 2 python x", "-n is an option of `pypmix run`: did you mean `pypmix run -n 2 python x`?"),
        ("-n2 sh", "-n2 is an option of `pypmix run`: did you mean `pypmix run -n2 sh`?"),
        ("--timeout=3 sh", "--timeout is an option of `pypmix run`: did you mean `pypmix run --timeout=3 sh`?"),
        ("sh x.sh", "sh is not a command of pypmix: did you mean `pypmix run sh x.sh`?"),
        ("rnu a", "there is no command rnu; did you mean run?"),
        ("doktor", "there is no command doktor; did you mean doctor?"),
        ("--vresion", "there is no option --vresion; did you mean --version?"),
    ],
)
def test_a_line_without_a_command_gets_the_likely_one(command: Command, line: str, text: str) -> None:
    ended = command(*line.split())
    assert (ended.code, ended.err.decode()) == (2, f"pypmix: {text}\nTry 'pypmix --help'.\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["ps", "x"], "pypmix ps: unrecognized arguments: x"),
        (["query"], "pypmix query: the following arguments are required: KEY"),
        (["query", "JOB_SIZE", "--rank", "one"], "pypmix query: argument --rank: invalid int value: 'one'"),
        (["top", "--interval", "0"], "pypmix top: argument --interval: 0 is less than 0.1"),
        (["conform", "--timeout", "long"], "pypmix conform: argument --timeout: 'long' is not a number of seconds"),
        (["grow", "--nodes", "few"], "pypmix grow: argument --nodes: 'few' is not a number"),
        (["events", "--count", "0"], "pypmix events: argument --count: 0 is less than 1"),
        (["publish", "x=1", "--rang", "local"], "pypmix publish: there is no option --rang; did you mean --range?"),
        (["ps", "--jsno"], "pypmix ps: there is no option --jsno; did you mean --json?"),
    ],
)
def test_a_mistake_names_the_command_and_where_its_help_is(command: Command, words: list[str], text: str) -> None:
    ended = command(*words)
    assert ended.code == 2
    message, hint = ended.err.decode().splitlines()
    assert message.startswith(text)
    assert hint == f"Try 'pypmix {words[0]} --help'."


def test_options_may_stand_among_the_keys() -> None:
    from pypmix.cli import app

    _, commands = app._parsers()
    given = commands["query"].parse_intermixed_args(["A", "--json", "B", "--rank", "0", "-q", "x=y", "C"])
    assert (given.keys, given.json, given.rank, given.qualifier) == (["A", "B", "C"], True, 0, ["x=y"])


def test_a_plain_install_brings_nothing_compiled_but_cffi() -> None:
    found: set[str] = set()
    wanted = ["pypmix-hpc"]
    while wanted:
        name = wanted.pop()
        found.add(name)
        needed = [Requirement(line) for line in metadata.requires(name) or ()]
        names = {each.name.lower() for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})}
        wanted += names - found
    # typing_extensions is of Python 3.12 and before.
    assert found - {"typing-extensions", "typing_extensions"} == {"pypmix-hpc", "anyio", "idna", "cffi", "pycparser"}


def test_every_command_runs_on_a_plain_install(command: Command) -> None:
    """Each module of the commands can be imported where none but the plain distributions are."""
    program = (
        "import sys\nfor name in ('typer', 'rich', 'click', 'pydantic'):\n    sys.modules[name] = None\n"
        "import pkgutil, importlib, pypmix.cli\n"
        "for each in pkgutil.iter_modules(pypmix.cli.__path__):\n"
        "    importlib.import_module('pypmix.cli.' + each.name)\n"
    )
    subprocess.run([sys.executable, "-c", program], env=command.environment, timeout=30, check=True)


def test_run_imports_nothing_slow(command: Command) -> None:
    program = (
        "import sys\nfrom pypmix.cli import main\nfrom pypmix.cli.run import run\n"
        "assert run(['-n', '2', 'true']) == 0\nprint(*sorted(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-S", "-c", program], env=command.environment, capture_output=True, timeout=30, check=True
    )
    slow = "asyncio subprocess shutil tempfile logging inspect dataclasses typing"
    clients = "pypmix.engine.python.client pypmix.engine.python.session"
    assert not {*slow.split(), *clients.split()} & set(ended.stdout.decode().split())
