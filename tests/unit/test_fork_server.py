"""A fork server by itself: what one rank has been given is not another's."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pypmix.engine import select
from pypmix.engine.python import rehearsal
from pypmix.host.forking import server
from pypmix.host.forking.frames import Start
from pypmix.host.forking.programs import Program
from pypmix.host.forking.servers import ForkServer

SAY = "import os, sys; print(os.environ.get('A'), os.environ.get('B'), sys.stdout.line_buffering)"
SECONDS = 60.0


class Ranks:
    """Starts ranks of a fork server, which run Python code."""

    def __init__(self, folder: Path) -> None:
        # Unbuffered output is never line-buffered.
        env = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
        env["PMIX_SERVER_TMPDIR"] = str(folder)
        program = Program(sys.executable, (), "command", "pass", ("-c",))
        self.server = ForkServer(program, "", env, "", ())

    def start(self, code: str, file: int, wdir: str = "", **env: str) -> int:
        start = Start("command", code, ("-c",), ("python", "-c", code), {"PATH": os.defpath, **env}, wdir)
        null = os.open(os.devnull, os.O_RDWR)
        try:
            return self.server.start(start, (null, file, 2))
        finally:
            os.close(null)

    def said(self, code: str, path: Path | None = None, **env: str) -> str:
        reader, writer = os.pipe()
        if path is not None:
            os.close(writer)
            writer = os.open(path, os.O_RDWR)
            os.lseek(writer, 0, os.SEEK_END)
        pid = self.start(code, writer, **env)
        os.close(writer)
        end = self.wait(pid)
        self.server.collect([pid])
        assert end == (0, 0, False)
        with open(reader, "rb") as file:
            found = file.read()
        return (found if path is None else path.read_bytes()).decode().strip()

    def wait(self, pid: int) -> tuple[int | None, int, bool]:
        deadline = time.monotonic() + SECONDS
        while (end := self.server.end_of(pid)) is None:
            assert time.monotonic() < deadline, "the rank does not end"
            time.sleep(0.005)
        return end


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path)
    yield made
    made.server.close()


def test_variables_are_those_of_each_rank(ranks: Ranks, tmp_path: Path) -> None:
    """Also of one that is asked for by what differs from the last, and after one that could not be started."""
    assert ranks.said(SAY, A="1", B="x") == "1 x False"
    assert ranks.said(SAY, A="2", B="x") == "2 x False"
    assert ranks.said(SAY, B="y") == "None y False"
    with pytest.raises(FileNotFoundError):
        ranks.start(SAY, 1, str(tmp_path / "none"), B="z")
    assert ranks.said(SAY, B="y") == "None y False"
    assert ranks.said(SAY, B="y", A="3") == "3 y False"
    assert ranks.server.call("os", "getenv", "PMIX_RANK") == "None", "the rehearsal leaves nothing, and ranks neither"


def test_standard_output_is_that_of_each_rank(ranks: Ranks, tmp_path: Path) -> None:
    """Pipes, files that hold something already, and a terminal."""
    assert ranks.said("print('one')") == "one"
    (tmp_path / "file").write_text("before\n")
    told = "import sys; print(sys.stdout.tell() if sys.stdout.seekable() else 'none')"
    assert ranks.said(told, tmp_path / "file") == "before\n7"
    assert ranks.said(told, tmp_path / "file") == "before\n7\n9"
    assert ranks.said(told) == "none"
    reader, writer = os.openpty()
    pid = ranks.start("import sys; print(sys.stdout.line_buffering, sys.stdout.isatty())", writer)
    ranks.wait(pid)
    assert os.read(reader, 100).split() == [b"True", b"True"]
    os.close(writer)
    os.close(reader)
    assert ranks.said("import sys; print(sys.stdout.line_buffering)") == "False"


def test_the_fork_server_keeps_nothing_of_a_rank(ranks: Ranks) -> None:
    """The reader of a rank's output sees its end although the fork server lives on."""
    reader, writer = os.pipe()
    ranks.start("pass", writer)
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    links = {os.readlink(f"/proc/{ranks.server.pid}/fd/{fd}") for fd in (0, 1, 2)}
    assert not any(link.startswith("pipe:") for link in links) or links == {os.readlink(f"/proc/self/fd/{2}")}


def test_a_signal_that_comes_early_is_not_lost(ranks: Ranks) -> None:
    """A rank may be told to end before it takes signals."""
    for _ in range(20):
        pid = ranks.start("import time; time.sleep(60)", 2)
        os.killpg(pid, signal.SIGTERM)
        assert ranks.wait(pid) == (None, signal.SIGTERM, False)
    os.kill(ranks.server.pid, signal.SIGTERM)
    assert ranks.said("print('still')") == "still", "the fork server goes on"


def test_a_client_can_be_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs through with the client as it is now, and leaves no opener."""
    opened: list[Any] = []
    open_client = rehearsal.open_client

    def counted(*words: Any, **more: Any) -> Any:
        opened.append(open_client(*words, **more))
        return opened[-1]

    monkeypatch.setattr(rehearsal, "open_client", counted)
    before = dict(os.environ)
    server.rehearse()
    assert len(opened) == server.REHEARSALS and all(not each.singleton for each in opened)
    assert select.opener is None and dict(os.environ) == before
