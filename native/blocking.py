"""Write `pypmix/operations`, the blocking form of `pypmix/aio/operations`.

Usage: python native/blocking.py [--check]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "pypmix" / "aio" / "operations"
RESULT = ROOT / "pypmix" / "operations"

NOTE = "# Made from pypmix/aio/operations by native/blocking.py: change it there.\n"


def made() -> dict[str, str]:
    """Return the files of the result by their names."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        rule = unasync.Rule(f"{SOURCE}/", f"{folder}/", {"asynchronous": "blocking"})
        unasync.unasync_files([str(path) for path in SOURCE.glob("*.py")], [rule])
        for path in sorted(Path(folder).glob("*.py")):
            text = path.read_text().replace("pypmix.aio", "pypmix")
            if path.name == "__init__.py":
                text = '"""The operations of a client by topic, in blocking calls."""\n'
            found[path.name] = NOTE + text
    names = [f"{RESULT / name}" for name in found]
    for name, path in zip(found, names, strict=True):
        for step in (["check", "--select", "I", "--fix-only", "--quiet"], ["format", "--quiet"]):
            command = ["ruff", *step, "--stdin-filename", path, "-"]
            found[name] = subprocess.run(command, input=found[name], text=True, capture_output=True, check=True).stdout
    return found


def main(arguments: list[str]) -> int:
    files = made()
    stale = [name for name, text in files.items() if not _same(RESULT / name, text)]
    extra = [path.name for path in RESULT.glob("*.py") if path.name not in files]
    if arguments == ["--check"]:
        if stale or extra:
            print(f"stale, run native/blocking.py: {', '.join([*stale, *extra])}", file=sys.stderr)
        return bool(stale or extra)
    RESULT.mkdir(exist_ok=True)
    for name in stale:
        (RESULT / name).write_text(files[name])
    for name in extra:
        (RESULT / name).unlink()
    return 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
