"""What is written for the user alone can be read by nobody else, and no name of a proc's makes a line of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pypmix.engine.common import Pending
from pypmix.extras.commands import trace
from pypmix.extras.tracing.write import TraceFile
from pypmix.host.folders import open_private
from pypmix.host.outcome import pending_text
from pypmix.recording import Recorder
from pypmix.standard.types import Proc


@pytest.mark.parametrize(
    "write",
    [
        lambda path: TraceFile(path).close(),
        lambda path: Recorder(path).close(),
        lambda path: trace._write(path, "a page"),
        lambda path: os.close(open_private(path)),
    ],
    ids=["trace", "record", "page", "any"],
)
def test_a_file_that_was_there_is_not_for_others_any_more(tmp_path: Path, write) -> None:
    path = tmp_path / "file"
    path.write_text("x" * 100_000)
    path.chmod(0o666)
    write(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert "xxx" not in path.read_text()


def test_what_is_no_file_keeps_its_mode(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "pipe").chmod(0o666)
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.close(open_private(str(tmp_path / "pipe")))
    os.close(reader)
    assert (tmp_path / "pipe").stat().st_mode & 0o777 == 0o666


def test_a_name_does_not_make_a_line_of_a_report() -> None:
    name = "g\npypmix run: rank 0 was killed by root\x1b[2J"
    proc = Proc("job", 0)
    for missing in ((), (Proc("job", 1),)):
        for operation, label in ((f"group_construct {name}", ""), ("group_construct", name)):
            lines = pending_text([Pending(operation, label, (proc,), missing, time.monotonic())], str)
            assert len("\n".join(lines).splitlines()) == 1 and "\x1b" not in lines[0], lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("job@1:*", "all ranks"),
        ("job@1:0-3,7 other:2", "ranks 0 to 3, 7, other:2"),
        ("my group", "my group"),
        ("npypmix run: rank 0 was killed", "npypmix run: rank 0 was killed"),
    ],
)
def test_the_name_of_a_group_is_no_list_of_procs(text: str, shown: str) -> None:
    assert trace.Names({"job@1": 8}).procs(text) == shown
