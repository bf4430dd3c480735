"""Files of a job are fetched piece by piece, one piece at a time, and are whole or refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pypmix.host import orders
from pypmix.host.job import Application
from pypmix.host.preload import PIECE, VARIABLE, Arrival, files_of, link, moved, read, resolved
from pypmix.standard.errors import PMIxError

APP = Application(("./app", "data", "./app", "other"), preload=(("./app", "/x/app"), ("data", "/y/data")))


class Launcher:
    """Answers what an arrival asks, one question at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, int]] = []
        self.ends: list[Exception | None] = []
        self.waiting: Callable[..., None] | None = None

    def ask(self, name: str, offset: int, came: Callable[..., None]) -> None:
        assert self.waiting is None, "two pieces are under way"
        self.asked.append((name, offset))
        self.waiting = came

    def answer(self, *piece: object) -> None:
        came, self.waiting = self.waiting, None
        assert came is not None
        if piece:
            came(*piece)
        else:
            name, offset = self.asked[-1]
            came(read(str(self.folder / name), offset), None)


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    (tmp_path / "from").mkdir()
    (tmp_path / "job").mkdir()
    return Launcher(tmp_path / "from")


def arrive(launcher: Launcher, *names: str) -> Path:
    job = launcher.folder.parent / "job"
    Arrival(names, str(job), launcher.ask, launcher.ends.append).begin()
    return job / "preload"


@pytest.mark.parametrize("year", [1903, 1970, 2300])
def test_files_of_any_time_fit_into_a_message(tmp_path: Path, year: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"data")
    seconds = (year - 1970) * 31556952
    os.utime(path, (seconds, seconds))
    if int(path.stat().st_mtime) != seconds:
        pytest.skip("this file system has no such time")
    piece = read(str(path), 0)
    assert orders.FETCHED.read(orders.FETCHED.write(piece)) == piece


def test_files_arrive_in_pieces_with_their_permissions(launcher: Launcher) -> None:
    files = {"large": (os.urandom(2 * PIECE + 5), 0o751), "empty": (b"", 0o600), "one": (b"1", 0o444)}
    for name, (data, mode) in files.items():
        (launcher.folder / name).write_bytes(data)
        (launcher.folder / name).chmod(mode)
    there = arrive(launcher, *files)
    while launcher.waiting is not None:
        assert launcher.ends == []
        launcher.answer()
    assert launcher.ends == [None]
    assert launcher.asked == [("large", 0), ("large", PIECE), ("large", 2 * PIECE), ("empty", 0), ("one", 0)]
    assert {path.name: (path.read_bytes(), path.stat().st_mode & 0o7777) for path in there.iterdir()} == files
    assert there.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ((0o644, 9, 1, b"more"), "file has changed"),
        ((0o644, 8, 2, b"more"), "file has changed"),
        ((0o600, 8, 1, b"more"), "file has changed"),
        ((0o644, 8, 1, b"more and more"), "file has changed"),
        ((0o644, 8, 1, b""), "file has changed"),
    ],
)
def test_a_file_that_changes_is_refused(launcher: Launcher, second: tuple[object, ...], words: str) -> None:
    arrive(launcher, "file")
    launcher.answer((0o644, 8, 1, b"some"), None)
    launcher.answer(second, None)
    assert [str(error) for error in launcher.ends if words in str(error)] and launcher.waiting is None


def test_no_answer_and_no_room_end_it_once(launcher: Launcher) -> None:
    there = arrive(launcher, "file", "second")
    launcher.answer(None, PMIxError("the launcher has gone"))
    assert [str(error) for error in launcher.ends] == [str(PMIxError("the launcher has gone"))]
    launcher.ends.clear()
    Arrival(["file"], str(there.parent), launcher.ask, launcher.ends.append).begin()
    assert [error.errno for error in launcher.ends if isinstance(error, OSError)] == [errno.EEXIST]


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name, words in (("fifo", "not a file"), ("folder", "a folder"), ("nosuch", "No such file")):
        path = str(tmp_path / name)
        with pytest.raises(OSError, match=words) as caught:
            resolved([Application(("x",), preload=((name, path),))], {}, "/")
        assert caught.value.filename == path


def test_names_in_the_folder_are_unique() -> None:
    same = Application(("x",), preload=(("a", "/p/a"), ("./a", "/p/a")))
    assert files_of([same, APP]) == {"a": "/p/a", "app": "/x/app", "data": "/y/data"}
    with pytest.raises(ValueError, match=r"two files to preload have the name 'a': /p/a and /q/a"):
        files_of([same, Application(("x",), preload=(("a", "/q/a"),))])
    with pytest.raises(ValueError, match="not the name of a file"):
        files_of([Application(("x",), preload=(("..", "/q/.."),))])


def test_words_that_name_a_file_become_its_copy() -> None:
    (there,) = moved([APP], "/job")
    assert there.argv == ("./app", "/job/preload/data", "/job/preload/app", "other")
    assert there.program == "/job/preload/app"
    assert there.env == ((VARIABLE, "/job/preload"),)
    (other,) = moved([APP.replace(program="/bin/true")], "/job")
    assert other.program == "/bin/true"


def test_a_program_without_a_path_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "prog").touch(0o755)
    (app,) = resolved([Application(("prog",), preload=(("prog", ""),))], {"PATH": str(tmp_path)}, "/")
    assert app.preload == (("prog", str(tmp_path / "prog")),)
    link([app], str(tmp_path))
    assert (tmp_path / "preload" / "prog").resolve() == tmp_path / "prog"
