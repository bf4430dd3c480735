"""`import pmix` for a program that was written for the official binding: for one run, or for all of an environment."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import sysconfig
from pathlib import Path

from pypmix.compat import children
from pypmix.compat.children import TOPLEVEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MODULE = "pmix"
NAME = f"{MODULE}.py"
MARK = "Put here by `pypmix compat --install`"
USAGE = "usage: python -m pypmix.compat (SCRIPT | -m MODULE) [ARGUMENT...]"


class ForeignModule(Exception):
    """Another `pmix` is installed, or the file was not written by `install`."""


def provide() -> None:
    """Make `import pmix` mean `pypmix.compat` in this process and its child processes only."""
    from pypmix import compat

    sys.modules["pmix"] = compat
    children.provide()


def run(words: Sequence[str]) -> None:
    """Run a script, or with `-m` a module, as Python would, while `import pmix` means `pypmix.compat`.

    Args:
        words: The script and its arguments.
    """
    provide()
    if words[0] == "-m":
        if len(words) < 2:
            sys.exit(USAGE)
        sys.argv[:] = list(words[1:])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    script = words[0]
    sys.argv[:] = list(words)
    if not os.path.exists(script):
        print(f"{script} is not there", file=sys.stderr)
        sys.exit(2)
    if not sys.flags.safe_path:
        # A script imports modules from its own folder, not from the working directory.
        sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def main(words: Sequence[str]) -> None:
    """Run `python -m pypmix.compat`."""
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        sys.exit(0 if words else 2)
    if words[0].startswith("-") and words[0] != "-m":
        sys.exit(USAGE)
    run(words)


def _ours(path: Path) -> bool:
    return path.is_file() and MARK in path.read_text(errors="replace")


def install(folder: Path | None = None) -> Path:
    """Make `import pmix` mean `pypmix.compat` for every program of this environment.

    Args:
        folder: The folder for the module; the environment's `purelib` by default.

    Raises:
        ForeignModule: Another `pmix` is installed.
        OSError: The folder cannot be written to.
    """
    target = (folder or Path(sysconfig.get_path("purelib"))) / NAME
    if target.exists() and not _ours(target):
        raise ForeignModule(f"{target} is another module's")
    found = None if folder else importlib.util.find_spec("pmix")
    if found is not None and found.origin and not _ours(Path(found.origin)):
        raise ForeignModule(
            f"{found.origin} is another pmix, such as the official binding, and would hide this one or be hidden"
        )
    target.write_text((TOPLEVEL / NAME).read_text())
    return target


def uninstall(folder: Path | None = None) -> Path | None:
    """Undo `install`; return the removed file, None if it does not exist.

    Raises:
        ForeignModule: The file was not written by `install`.
        OSError: The file cannot be removed.
    """
    target = (folder or Path(sysconfig.get_path("purelib"))) / NAME
    if not target.exists():
        return None
    if not _ours(target):
        raise ForeignModule(f"{target} is another module's")
    target.unlink()
    return target
