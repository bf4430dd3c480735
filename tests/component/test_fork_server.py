"""A fork server by itself: what one rank has been given is not another's."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pypmix.engine.python import session
from pypmix.extras.forking import server
from pypmix.extras.forking.frames import Start
from pypmix.extras.forking.programs import Program
from pypmix.extras.forking.servers import ForkServer

SAY = "import os, sys; print(os.environ.get('A'), os.environ.get('B'), sys.stdout.line_buffering)"
SECONDS = 60.0


class Ranks:
    """Starts ranks of a fork server, which run Python code."""

    def __init__(self, folder: Path) -> None:
        # Unbuffered output is never line-buffered. A compiler that has run for modules runs otherwise for a program.
        unset = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
        env = {name: text for name, text in os.environ.items() if name not in unset}
        env["PMIX_SERVER_TMPDIR"] = str(folder)
        env["PYTHONPYCACHEPREFIX"] = str(folder)
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
        while (end := self.server.read_exit(pid)) is None:
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
    """It runs through with the client as it is now, by the way that each rank opens, and leaves nothing."""
    opened: list[Any] = []
    open_client, dialer = session.open_client, session.dialer

    def counted(*words: Any, **more: Any) -> Any:
        opened.append(open_client(*words, **more))
        return opened[-1]

    monkeypatch.setattr(session, "open_client", counted)
    # What tests before this one have left is not closed in between.
    gc.collect()
    before, files = dict(os.environ), os.listdir("/proc/self/fd")
    server.rehearse(lambda rehearsal: [server.open_once(rehearsal) for _ in range(3)])
    assert len(opened) == 3 and all(not each.singleton for each in opened)
    assert session.dialer is dialer and dict(os.environ) == before
    assert os.listdir("/proc/self/fd") == files


def test_ranks_look_through_nothing_of_the_fork_server(ranks: Ranks, tmp_path: Path) -> None:
    """Neither what the compiler has made for the program: the garbage collector of a rank finds its own alone."""
    ranks.said("pass")
    ranks.server.close()
    # This one finds its modules compiled.
    ranks = Ranks(tmp_path)
    count = "import gc; print(sum(1 for each in gc.get_objects() if isinstance(each, type)))"
    assert ranks.said(count) == "0"
    assert ranks.wait(ranks.start("if", 2)) == (1, 0, False), "a rank finds out that its program is none"
    assert ranks.said(count) == "0"
    ranks.server.close()


def test_the_name_of_a_process_is_that_of_its_program(ranks: Ranks) -> None:
    assert ranks.said("print(open('/proc/self/comm').read())") == "python -c"
    assert Path(f"/proc/{ranks.server.pid}/comm").read_text() == f"{Path(sys.executable).name}\n"


def test_a_call_has_the_arguments_of_the_fork_server(ranks: Ranks) -> None:
    """Not those of the ranks before it, which have theirs."""
    assert ranks.said(
        "import sys; print(sys.argv, sys.orig_argv[0], sys.modules['__main__'].__dict__.keys() >= {'sys'})"
    )
    assert ranks.server.call("builtins", "eval", "__import__('sys').argv") == "['-c', '']"
    assert ranks.said("import sys; print(sys.argv)") == "['-c']"


def test_ranks_have_no_descriptors_of_the_fork_server(ranks: Ranks) -> None:
    listed = """
import os
for fd in os.listdir("/proc/self/fd"):
    try:
        print(fd, os.readlink(f"/proc/self/fd/{fd}"))
    except FileNotFoundError:
        pass
"""
    inherited = {fd for fd in map(int, os.listdir("/proc/self/fd")) if _inherited(fd)}
    # libffi, of ctypes, keeps its own file open, and needs it.
    found = {int(line.split()[0]) for line in ranks.said(listed).splitlines() if "/libffi.so" not in line}
    assert found <= inherited | {0, 1, 2}


def _inherited(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        # The one by which the folder was read.
        return False
