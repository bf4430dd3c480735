"""Rendezvous files: only their user reads them, a living server's stay, a dead one's go, and searches find the rest."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pypmix.engine.python import rendezvous
from pypmix.engine.python.rendezvous import Contact, Post, host_names, parse_uri, read, search
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError

HOST = "node1"


@pytest.fixture
def port() -> Iterator[int]:
    """The port of somebody who listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def contact(nspace: str = "srv", pid: int | None = None, port: int = 1) -> Contact:
    return Contact(nspace, 0, f"tcp4://127.0.0.1:{port}", "7.0.0", pid or os.getpid(), pypmix="2026.1")


def foreign(folder: Path, name: str, pid: int, port: int = 1, nspace: str = "native") -> Path:
    """Write a file as native servers do."""
    path = folder / name
    path.write_text(
        f"{nspace}.0;tcp4://127.0.0.1:{port}\n5.0.11rc1\n{pid}\n{os.geteuid()}:{os.getegid()}\n"
        "Sat Nov 21 11:06:34 2026\n\n"
    )
    return path


def ended() -> int:
    """Return the pid of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_server_writes(tmp_path: Path) -> None:
    post = Post(contact(), (HOST,))
    post.session(str(tmp_path))
    pid = os.getpid()
    assert sorted(os.listdir(tmp_path)) == sorted(
        [f"pmix.{HOST}.tool", f"pmix.{HOST}.tool.{pid}", f"pmix.{HOST}.tool.srv"]
    )
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o7777 == 0o600
        lines = path.read_text().split("\n")
        # The five lines of natives, in which readers of all releases find what they look for.
        assert lines[:4] == ["srv.0;tcp4://127.0.0.1:1", "7.0.0", str(pid), f"{os.geteuid()}:{os.getegid()}"]
        assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}", lines[4])
    post.remove()
    post.remove()
    assert not os.listdir(tmp_path)


def test_both_names_of_a_node_are_used() -> None:
    assert host_names("a.b.c") == ("a.b.c", "a")
    assert host_names("a") == ("a",)
    assert host_names("10.0.0.1") == ("10.0.0.1",)
    assert host_names()[0] == socket.gethostname()


def test_a_second_server_in_the_same_folder_leaves_the_first_one_its_names(tmp_path: Path) -> None:
    first, second = Post(contact("one"), (HOST,)), Post(contact("two"), (HOST,))
    first.session(str(tmp_path))
    second.session(str(tmp_path))
    assert read(str(tmp_path / f"pmix.{HOST}.tool")).nspace == "one"  # type: ignore[union-attr]
    assert {found.nspace for found in search([str(tmp_path)], [f"pmix.{HOST}.tool"], True)} == {"one", "two"}
    first.remove()
    assert [found.nspace for found in search([str(tmp_path)], [f"pmix.{HOST}.tool"], True)] == ["two"]
    second.remove()
    assert not os.listdir(tmp_path)


def test_a_file_that_another_has_replaced_is_not_removed(tmp_path: Path) -> None:
    post = Post(contact(), (HOST,))
    post.session(str(tmp_path))
    path = tmp_path / f"pmix.{HOST}.tool"
    path.unlink()
    foreign(tmp_path, path.name, os.getpid())
    post.remove()
    assert os.listdir(tmp_path) == [path.name]


def test_what_a_dead_server_left_is_replaced(tmp_path: Path) -> None:
    foreign(tmp_path, f"pmix.sys.{HOST}", ended())
    Post(contact(), (HOST,)).system(str(tmp_path))
    assert read(str(tmp_path / f"pmix.sys.{HOST}")).nspace == "srv"  # type: ignore[union-attr]


def test_a_pid_that_is_another_process_by_now_does_not_count(tmp_path: Path) -> None:
    # Process 1 lives, but nobody listens at the port in the file.
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    foreign(tmp_path, f"pmix.sys.{HOST}", 1, port)
    Post(contact(), (HOST,)).system(str(tmp_path))


def test_there_is_one_system_server(tmp_path: Path, port: int) -> None:
    foreign(tmp_path, f"pmix.sys.{HOST}", os.getppid(), port)
    with pytest.raises(PMIxError) as caught:
        Post(contact(), (HOST,)).system(str(tmp_path))
    assert caught.value.code == statuses.ERR_EXISTS
    assert read(str(tmp_path / f"pmix.sys.{HOST}")).nspace == "native"  # type: ignore[union-attr]
    assert os.listdir(tmp_path) == [f"pmix.sys.{HOST}"]


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / f"pmix.{HOST}.tool").symlink_to(victim)
    Post(contact(), (HOST,)).session(str(folder))
    assert victim.read_text() == "mine"
    assert not (folder / f"pmix.{HOST}.tool").is_symlink()


def test_a_folder_that_cannot_be_written_to() -> None:
    with pytest.raises(PMIxError, match="pmix.node1.tool.* cannot be written: "):
        Post(contact(), (HOST,)).session("/proc/self")
    with pytest.raises(PMIxError, match="/no/such/folder/file cannot be written: No such file"):
        Post(contact(), (HOST,)).file("/no/such/folder/file")


@pytest.mark.parametrize("line", ["v5.0.11", "5.0.11rc1", "5.0.11"])
def test_a_native_file(tmp_path: Path, line: str) -> None:
    path = tmp_path / "f"
    path.write_text(f"prterun-vm-7@0.0;tcp4://127.0.0.1:4\n{line}\n77\n12:13\nSat Nov 21 11:06:34 2026\n\n")
    found = read(str(path))
    assert found is not None
    assert (found.nspace, found.rank, found.address) == ("prterun-vm-7@0", 0, "tcp4://127.0.0.1:4")
    assert (found.release, found.pid, found.uid, found.pypmix) == (line.removeprefix("v"), 77, 12, "")


@pytest.mark.parametrize(
    "text", ["", "\n\n", "nonsense\n", "a.b;tcp4://x:1\n", ".0;tcp4://x:1\n", "srv.0\n", "\0\xff\xfe", "x" * 100_000]
)
def test_what_is_no_rendezvous_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f"
    path.write_text(text)
    assert read(str(path)) is None


def test_a_pipe_in_the_way_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / f"pmix.{HOST}.tool"
    os.mkfifo(path)
    assert read(str(path)) is None
    assert search([str(tmp_path)], [path.name]) == []


def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.touch()
    monkeypatch.setattr(rendezvous.time, "sleep", lambda _: foreign(tmp_path, "f", 1))
    found = read(str(path))
    assert found is not None
    assert found.nspace == "native"


def test_a_search_goes_down_and_names_each_server_once(tmp_path: Path, port: int) -> None:
    deep = tmp_path / "prte.node1.0" / "dvm.7" / "1"
    deep.mkdir(parents=True)
    for name in (f"pmix.{HOST}.tool", f"pmix.{HOST}.tool.77"):
        foreign(deep, name, os.getpid(), port)
    slurm = tmp_path / "pmix.4711.0"
    slurm.mkdir()
    foreign(slurm, f"pmix.{HOST}.tool", os.getpid(), port, "slurm")
    found = search([str(tmp_path), str(deep)], [f"pmix.{HOST}.tool"], True)
    assert sorted(each.nspace for each in found) == ["native", "slurm"]
    # A pid is not the beginning of another one.
    assert search([str(tmp_path)], [f"pmix.{HOST}.tool.7"]) == []
    assert len(search([str(tmp_path)], [f"pmix.{HOST}.tool.77"])) == 1


def test_the_newest_living_server_comes_first(tmp_path: Path) -> None:
    for number, (name, pid) in enumerate([("old", os.getpid()), ("new", os.getpid()), ("dead", ended())]):
        path = foreign(tmp_path, f"pmix.{HOST}.tool.{name}", pid, number + 1, name)
        os.utime(path, (number, number))
    assert [each.nspace for each in search([str(tmp_path)], [f"pmix.{HOST}.tool"], True)] == ["new", "old", "dead"]


def test_whose_files_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert [rendezvous.believed(uid) for uid in (0, 1000, 1001)] == [True, True, False]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_users_file_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = foreign(tmp_path, f"pmix.{HOST}.tool", os.getpid())
    os.chown(path, 1001, 1001)
    os.chown(tmp_path, 1000, 1000)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert search([str(tmp_path)], [path.name]) == []
    os.chown(path, 1000, 1000)
    assert len(search([str(tmp_path)], [path.name])) == 1


@pytest.mark.parametrize(
    ("text", "nspace", "rank"),
    [("a.b.c.3;tcp4://1.2.3.4:5", "a.b.c", 3), ("srv@0.0;tcp6://[::1]:5\n", "srv@0", 0)],
)
def test_uris(text: str, nspace: str, rank: int) -> None:
    found = parse_uri(text)
    assert (found.nspace, found.rank) == (nspace, rank)
    assert found.uri == text.strip()


@pytest.mark.parametrize("text", ["", "a", "a;b", "a.0;", "a.x;tcp4://b:1", ".0;tcp4://b:1", "a.0;127.0.0.1:4"])
def test_what_is_no_uri(text: str) -> None:
    with pytest.raises(ValueError):
        parse_uri(text)
