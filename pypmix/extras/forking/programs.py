"""Finds out whether a command line runs a Python program, and which one."""

from __future__ import annotations

import os
import re

from pypmix.extras.forking.frames import Start
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PYTHON = re.compile(r"python[0-9.]*t?d?")
_FLAGS = frozenset("bBdEIOPqRsSuv")
"""The interpreter's options without a value; a fork server is started with the same."""
_VALUES = frozenset("WX")
"""The options with a value."""
_ARCHIVES = (".pyc", ".pyz", ".zip", ".whl", ".egg")
_HEAD = 4096


class Program(Record):
    """A Python program.

    Args:
        interpreter: The path of the interpreter.
        options: The interpreter's options.
        kind: `file`, `module` or `command`.
        target: A path, the name of a module, or code.
        argv: `sys.argv`.
    """

    interpreter: str
    options: tuple[str, ...]
    kind: str
    target: str
    argv: tuple[str, ...]

    def start(self, command: Sequence[str], env: Mapping[str, str], wdir: str, session: bool) -> Start:
        """Return the request to start a rank of this program; see `Start`."""
        return Start(self.kind, self.target, self.argv, tuple(command), env, wdir, session)

    def path(self, wdir: str) -> str:
        """Return the first entry of `sys.path`, unless an option leaves it out.

        Args:
            wdir: The working directory.
        """
        if self.kind == "file":
            return os.path.dirname(os.path.realpath(self.target))
        return wdir if self.kind == "module" else ""


def find(program: str, argv: Sequence[str], env: Mapping[str, str], wdir: str) -> Program | None:
    """Return the Python program that a command line runs; None if it runs another kind of program.

    Args:
        program: The path of the program.
        argv: The command line, the name first.
        env: The program's environment.
        wdir: Its working directory.
    """
    if _PYTHON.fullmatch(os.path.basename(program)):
        return _of_interpreter(program, argv[1:], wdir)
    try:
        with open(program, "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    if not head.startswith(b"#!") or b"\0" in head:
        return None
    interpreter, _, option = os.fsdecode(head[2:].partition(b"\n")[0]).strip().partition(" ")
    option = option.strip()
    if os.path.basename(interpreter) == "env":
        if not _PYTHON.fullmatch(option):
            return None
        from pypmix.host.launch import find_program

        try:
            interpreter, option = find_program(option, env), ""
        except OSError:
            return None
    if not _PYTHON.fullmatch(os.path.basename(interpreter)):
        return None
    return _of_interpreter(interpreter, [*([option] if option else []), program, *argv[1:]], wdir)


def _of_interpreter(interpreter: str, words: Sequence[str], wdir: str) -> Program | None:
    """Parse the command line of an interpreter; return None if a fork server cannot replace it."""
    options: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            word = next(rest, "")
        elif len(word) > 1 and word[0] == "-":
            found = _option(word, rest, options)
            if found is None:
                return None
            if not found[0]:
                continue
            return Program(interpreter, tuple(options), *found, ("-c" if found[0] == "command" else "-m", *rest))
        path = os.path.join(wdir, word)
        if not os.path.isfile(path) or word.endswith(_ARCHIVES):
            # The interpreter reports a missing file itself.
            return None
        # As with the interpreter, `__file__` is absolute and `sys.argv[0]` is the word of the command line.
        return Program(interpreter, tuple(options), "file", os.path.abspath(path), (word, *rest))
    return None


def _option(word: str, rest: Iterator[str], options: list[str]) -> tuple[str, str] | None:
    """Add the options of a word to `options`.

    Returns:
        The kind and target that it names, both empty if it names none; None if an option is unknown.
    """
    for place, each in enumerate(word[1:], 1):
        value = word[place + 1 :]
        if each in "cm":
            target = value or next(rest, "")
            return ("command" if each == "c" else "module", target) if target else None
        if each in _VALUES:
            value = value or next(rest, "")
            options += [f"-{each}", value]
            return "", ""
        if each not in _FLAGS:
            return None
        options.append(f"-{each}")
    return "", ""
