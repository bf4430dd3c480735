"""`pypmix run --debug`: one rank has a debugger in this terminal, and the others wait for it in PMIx_Init."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time

import pytest

from lib.command import Command

RANK = """
import pypmix
with pypmix.Client() as me:
    print(f"rank {me.rank} of {me.job.size} has started", flush=True)
    me.fence(timeout=20)
"""

STANDIN = """#!/bin/sh
echo "debugger: $*" >&2
test "$1" = --args && shift
read line
echo "typed: $line" >&2
exec "$@"
"""
"""Stands for gdb, which starts the program when it is told to."""

BECOME = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "pypmix", *sys.argv[1:]])
"""
"""Becomes the command, whose session gets the terminal."""

LIMIT = 30.0


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, command: Command, *words: str) -> None:
        self._ours, theirs = os.openpty()
        self.process = command.start_words(
            [sys.executable, "-c", f"import os;os.dup2(0, 1);os.dup2(0, 2)\n{BECOME}", *words], theirs
        )
        os.close(theirs)
        self.shown = b""

    def expect(self, text: bytes) -> None:
        """Wait until a text was shown, and forget what was shown up to it."""
        deadline = time.monotonic() + LIMIT
        while text not in self.shown:
            left = deadline - time.monotonic()
            ready = select.select([self._ours], [], [], max(0.0, left))[0]
            part = b""
            with contextlib.suppress(OSError):
                part = os.read(self._ours, 4096) if ready else b""
            if not part:
                pytest.fail(f"{text!r} was not shown: {self.shown.decode(errors='replace')}", pytrace=False)
            self.shown += part
        self.shown = self.shown.partition(text)[2]

    def type(self, line: str) -> None:
        os.write(self._ours, f"{line}\n".encode())

    def rest(self) -> str:
        """Return what is shown until the end."""
        with contextlib.suppress(OSError):
            while select.select([self._ours], [], [], LIMIT)[0] and (part := os.read(self._ours, 4096)):
                self.shown += part
        os.close(self._ours)
        return self.shown.decode()


def test_pdb_on_a_rank_while_the_others_wait_for_it(command: Command) -> None:
    path = command.folder / "rank.py"
    path.write_text(RANK)
    terminal = Terminal(command, "run", "-n", "3", "--debug", "1", sys.executable, str(path))
    terminal.expect(b"(Pdb) ")
    assert b"has started" not in terminal.shown
    terminal.type("b 5")
    terminal.expect(b"(Pdb) ")
    terminal.type("c")
    terminal.expect(b"rank 1 of 3 has started")
    terminal.expect(b"(Pdb) ")
    terminal.type("p 'rank', me.rank")
    terminal.expect(b"('rank', 1)")
    terminal.expect(b"(Pdb) ")
    terminal.type("c")
    terminal.expect(b"(Pdb) ")
    terminal.type("q")
    terminal.rest()
    assert command.end(terminal.process).code == 0


def test_ctrl_c_is_for_the_debugger(command: Command) -> None:
    path, loops = command.folder / "wait.py", command.folder / "loops"
    # Not while it prints: pdb prints, too, and Python refuses that in a handler that has interrupted a print.
    path.write_text(f"import time\nwhile True:\n    open({str(loops)!r}, 'a').close()\n    time.sleep(0.05)\n")
    terminal = Terminal(command, "run", "--debug", "0", sys.executable, str(path))
    terminal.expect(b"(Pdb) ")
    terminal.type("c")
    deadline = time.monotonic() + LIMIT
    while not loops.exists():
        assert time.monotonic() < deadline, terminal.shown
        time.sleep(0.01)
    os.write(terminal._ours, b"\x03")
    # Pdb stops at the next line, and the job goes on.
    terminal.expect(b"(Pdb) ")
    terminal.type("q")
    terminal.rest()
    assert command.end(terminal.process).code in (0, 1)


@pytest.mark.parametrize("given", [False, True])
def test_gdb_on_a_program_that_is_not_python(command: Command, given: bool) -> None:
    (command.folder / "bin").mkdir()
    program = command.folder / "bin" / ("other" if given else "gdb")
    program.write_text(STANDIN)
    program.chmod(0o755)
    command.environment["PATH"] = f"{program.parent}:{command.environment['PATH']}"
    debugger = ("--debugger", "other --args") if given else ()
    ended = command("run", "-n", "2", "--debug", "1", *debugger, "echo", "a word", data=b"go on\n")
    assert ended.code == 0, ended.err
    assert b"debugger: --args echo a word\n" in ended.err
    assert b"typed: go on\n" in ended.err
    assert ended.lines == ["a word"] * 2


def test_a_debugged_rank_that_ends_at_once_lets_the_others_go(command: Command) -> None:
    path = command.folder / "rank.py"
    path.write_text(
        "import os, sys, pypmix\n"
        "if os.environ['PMIX_RANK'] == '0':\n    sys.exit(3)\n"
        "with pypmix.Client() as me:\n    print('goes on', flush=True)\n"
    )
    words = ("run", "-n", "2", "--keep-going", "--debug", "0", "--debugger", "env", sys.executable, str(path))
    ended = command(*words)
    assert (ended.code, ended.lines) == (3, ["goes on"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-n", "2", "--debug", "2", "true"), "--debug takes one of the ranks 0 to 1, not 2"),
        (("--debug", "x", "true"), "--debug takes a rank, not 'x'"),
        (("--debugger", "gdb", "true"), "--debugger is the command of a debugger: add --debug RANK"),
        (("--debug", "0", "--debugger", "'", "true"), '--debugger "\'" does not parse: No closing quotation'),
    ],
)
def test_mistakes(command: Command, words: tuple[str, ...], text: str) -> None:
    ended = command("run", *words)
    assert (ended.code, ended.message) == (2, f"pypmix run: {text}")


def test_a_debugger_that_is_not_installed(command: Command) -> None:
    ended = command("run", "--debug", "0", "--debugger", "no-such-debugger", "true")
    assert ended.code == 127
    assert ended.message.endswith("cannot start rank 0: no-such-debugger: program not found")
