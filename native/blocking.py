"""Write the blocking form of pypmix from `pypmix/aio`, and for type checkers what packages import lazily.

Usage: python native/blocking.py [--check]

The async form is the source: `await` and `async` go, and `pypmix.aio.NAME` becomes `pypmix.NAME`. Where threads and an
event loop wait in ways that have nothing in common, each form has a small module of its own under the same name, which
is written by hand: `waits`, `mailbox`, `handlers`, `recipes/terms`. A function that blocks, which the async form gives
to a thread by `call` or `apart`, is called. A line that ends with "# async only" is left out.

Packages whose names are imported when they are used have a table of them, `_HOME`; an `__init__.pyi` says the same.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "pypmix" / "aio"
RESULT = ROOT / "pypmix"

FOLDERS = ("operations",)
"""Of these each module is generated, and nothing else stands in the result."""

MODULES = (
    "client.py",
    "recipes/admission.py",
    "recipes/debugging.py",
    "recipes/draft.py",
    "recipes/leadership.py",
    "recipes/mpi.py",
    "server.py",
    "tool.py",
)

# The tables are read from this checkout, installed or not: linters run where it is not.
sys.path.insert(0, str(ROOT))

from pypmix.oldnames import RENAMES  # noqa: E402

LAZY = (
    "pypmix",
    "pypmix.aio",
    "pypmix.dask",
    "pypmix.groups",
    "pypmix.host",
    "pypmix.standard.ops",
    "pypmix.types",
)
"""The packages and modules with a table of names."""

NOTE = "# Made from pypmix/{} by native/blocking.py: change it there.\n"


RAW = "operations/raw.py"
"""Generated in its async form, too, by `native/raw.py`."""


def sources() -> list[str]:
    """Return the paths below `pypmix/aio` of all that has a blocking form by hand."""
    found = [path.relative_to(SOURCE).as_posix() for name in FOLDERS for path in (SOURCE / name).glob("*.py")]
    return [*MODULES, *[name for name in found if name != RAW]]


def made() -> dict[str, str]:
    """Return the text of each generated module by its path below `pypmix`."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "aio"), Path(folder, "blocking")
        raw = found[f"aio/{RAW}"] = _tidy(importlib.import_module("raw").make_text(), str(SOURCE / RAW))
        before.joinpath(RAW).parent.mkdir(parents=True)
        before.joinpath(RAW).write_text(raw)
        rules = [unasync.Rule(f"{each}/", f"{after}/", {"asynchronous": "blocking"}) for each in (SOURCE, before)]
        unasync.unasync_files([*[str(SOURCE / name) for name in sources()], str(before / RAW)], rules)
        for name in sorted([*sources(), RAW]):
            text = (after / name).read_text().replace("pypmix.aio", "pypmix")
            text = re.sub(r".*# async only\n", "", text)
            text = re.sub(r"\b(?:call|apart)\(\s*([\w.]+)(?:,\s*)?", r"\1(", text)
            # The examples of docstrings, which are text to the conversion of code.
            text = re.sub(r"(?m)^( *(?:>>>|\.\.\.) .*)$", lambda line: _make_blocking(line[1]), text)
            text = re.sub(r"\b(?:Later|Awaitable)\[(\w+)\]", r"\1", text)
            if name == "operations/__init__.py":
                text = '"""The operations of a client by topic, in blocking calls."""\n'
            found[name] = _tidy(NOTE.format(Path("aio", name).parent) + text, str(RESULT / name))
    for package in LAZY:
        source = importlib.import_module(package).__file__
        assert source is not None
        name = Path(source).relative_to(RESULT).with_suffix(".pyi").as_posix()
        found[name] = _tidy(NOTE.format(name[:-1]) + _stub(package), str(RESULT / name))
    return found


def _make_blocking(example: str) -> str:
    return re.sub(r"\b(?:await|async) ", "", example)


def _stub(package: str) -> str:
    """Return the imports that a package's table of names stands for, and those of its old names."""
    lines = [f"from {home} import {name} as {name}\n" for name, home in sorted(_homes(package).items())]
    old = [row.removeprefix(package + ".") for row in RENAMES if row.rpartition(".")[0] == package]
    for name in sorted(old):
        module, _, new = RENAMES[f"{package}.{name}"].rpartition(".")
        if module in LAZY:
            module = _homes(module)[new]
        lines.append(f"from {module} import {new} as {name}  # deprecated\n")
    return "".join(lines)


def _homes(package: str) -> dict[str, str]:
    """Return the module that each name of a table is imported from."""
    homes = {}
    for module, names in importlib.import_module(package)._HOME.items():
        home = package + module if module.startswith(".") else module
        homes.update({name: home.removesuffix("." + name) for name in names.split()})
    return homes


def _tidy(text: str, path: str) -> str:
    for step in (["check", "--select", "I,F401", "--fix-only", "--quiet"], ["format", "--quiet"]):
        command = ["ruff", *step, "--stdin-filename", path, "-"]
        text = subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout
    return text


def main(arguments: list[str]) -> int:
    files = made()
    stale = [name for name, text in files.items() if not _same(RESULT / name, text)]
    there = [path.relative_to(RESULT).as_posix() for name in FOLDERS for path in (RESULT / name).glob("*.py")]
    extra = [name for name in there if name not in files]
    if arguments == ["--check"]:
        if stale or extra:
            print(f"stale, run native/blocking.py: {', '.join([*stale, *extra])}", file=sys.stderr)
        return bool(stale or extra)
    for name in stale:
        (RESULT / name).parent.mkdir(exist_ok=True)
        (RESULT / name).write_text(files[name])
    for name in extra:
        (RESULT / name).unlink()
    return 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
