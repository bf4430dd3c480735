"""The `pypmix` command as a whole: its version, its help, its mistakes, and what `run` must not import."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli.command import Command

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


@pytest.mark.parametrize("words", [["doctor", "--help"], ["run", "--help"]])
def test_each_command_has_a_help(command: Command, words: list[str]) -> None:
    ended = command(*words)
    assert ended.code == 0
    assert b"Usage: pypmix " in ended.out


def test_run_imports_nothing_slow(command: Command) -> None:
    program = (
        "import sys\nfrom pypmix.cli import main\nfrom pypmix.cli.run import run\n"
        "assert run(['-n', '2', 'true']) == 0\nprint(*sorted(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-S", "-c", program], env=command.environment, capture_output=True, timeout=30, check=True
    )
    slow = "typer rich click argparse asyncio subprocess shutil tempfile logging inspect dataclasses typing"
    assert not set(slow.split()) & set(ended.stdout.decode().split())
