"""Files that are carried to the nodes of a job before its ranks start, if nodes share no file system.

An application names them, each by its word on the command line. A daemon fetches the files of a job, piece by piece,
from the launcher, which reads them on request: neither keeps more than a piece. They are in a folder of the job, which
`PYPMIX_PRELOAD` names to its ranks and which is removed with the job. Words of the application that name such a file
become the path of the copy; permissions are kept. On the launcher's own machine the folder has links to the files, and
the words stay.

The job is registered with the node's server before its files arrive, as other servers refer to it meanwhile. Ranks
start once all nodes have all files. A file that changes meanwhile is refused. Everything here is on the loop.
"""

from __future__ import annotations

import errno
import os
import stat

from pypmix.host.launch import find_program
from pypmix.standard.errors import NotFound, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pypmix.host.exchange.kinds import OnAnswer
    from pypmix.host.job import Application
    from pypmix.host.running import RunningJob

    State = tuple[int, int, int]
    Came = Callable[["Piece | None", PMIxError | None], None]
    Ask = Callable[[str, int, Came], None]

    Piece = tuple[int, int, int, bytes]
    """Permissions of a file, its size, its modification time, and some of its bytes."""

VARIABLE = "PYPMIX_PRELOAD"
"""The variable by which ranks find the folder."""

PIECE = 1 << 18
"""Bytes that are read, sent and written at a time."""


def files_of(apps: Iterable[Application]) -> dict[str, str]:
    """Return the paths of the files of a job, by their names in the folder.

    Raises:
        ValueError: Two files would have the same name.
    """
    found: dict[str, str] = {}
    for _, path in [pair for app in apps for pair in app.preload]:
        name = os.path.basename(path)
        if name in ("", ".", ".."):
            raise ValueError(f"{path!r:.200} is not the name of a file")
        if found.setdefault(name, path) != path:
            raise ValueError(f"two files to preload have the name {name!r:.80}: {found[name]} and {path}")
    return found


def resolved(apps: Sequence[Application], env: Mapping[str, str], wdir: str) -> tuple[Application, ...]:
    """Return applications whose files exist; a program without a path is looked up.

    Args:
        apps: The applications.
        env: The environment that ranks inherit.
        wdir: The folder of programs that name no other folder.

    Raises:
        OSError: A file does not exist, cannot be read, or is a folder.
        ValueError: Two files would have the same name.
    """
    found = []
    for app in apps:
        pairs = [
            (word, path or find_program(word, app.environment(env), app.wdir or wdir)) for word, path in app.preload
        ]
        found.append(app.replace(preload=tuple(pairs)))
    for path in files_of(found).values():
        read(path, 0, 0)
    return tuple(found)


def read(path: str, offset: int, size: int = PIECE) -> Piece:
    """Return a piece of a file.

    Raises:
        OSError: It cannot be read, or is not a file.
    """
    # Opening another kind of file may block.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            folder = stat.S_ISDIR(state.st_mode)
            raise OSError(errno.EISDIR if folder else errno.EINVAL, "a folder" if folder else "not a file", path)
        # It is only compared; times after the year 2262 would not fit into a message.
        changed = state.st_mtime_ns % (1 << 63)
        return state.st_mode & 0o777, state.st_size, changed, os.pread(fd, size, offset)
    finally:
        os.close(fd)


def send_piece(jobs: Mapping[str, RunningJob], data: bytes, answer: OnAnswer) -> None:
    """Answer the request of a daemon for a piece of a file of a job.

    Args:
        jobs: The jobs of the launcher, by nspace.
        data: The request.
        answer: Called with the piece, or with an error.
    """
    from pypmix.host import orders

    nspace, name, offset = orders.FETCH.read(data)
    job = jobs.get(nspace)
    # A job that is being ended needs no files.
    path = None if job is None or job.outcome is not None else files_of(job.job.apps).get(name)
    if path is None:
        answer(None, NotFound(f"{name!r:.80} is not a file of {nspace}", operation="preload"))
        return
    try:
        answer(orders.FETCHED.write(read(path, offset)), None)
    except OSError as error:
        answer(None, PMIxError(f"{path} cannot be read: {error.strerror}", operation="preload"))


def folder_of(job: str) -> str:
    """Return the folder of a job's files, given the job's own."""
    return os.path.join(job, "preload")


def link(apps: Sequence[Application], job: str) -> None:
    """Make the folder on the launcher's own machine.

    Raises:
        OSError: It cannot be made.
    """
    folder = folder_of(job)
    os.mkdir(folder, 0o700)
    for name, path in files_of(apps).items():
        os.symlink(path, os.path.join(folder, name))


def with_folder(apps: Sequence[Application], job: str) -> tuple[Application, ...]:
    """Return applications with the variable that names the folder to their ranks."""
    setting = VARIABLE, folder_of(job)
    return tuple([app.replace(env=(*app.env, setting)) for app in apps])


def moved(apps: Sequence[Application], job: str) -> tuple[Application, ...]:
    """Return applications in the form for a node that has copies of their files."""
    return tuple([_moved(app, folder_of(job)) for app in with_folder(apps, job)])


def _moved(app: Application, folder: str) -> Application:
    copies = {word: os.path.join(folder, os.path.basename(path)) for word, path in app.preload}
    # The first word stays the program's name.
    argv = (app.argv[0], *[copies.get(word, word) for word in app.argv[1:]])
    program = app.program or app.argv[0]
    return app.replace(argv=argv, program=copies.get(program, app.program))


class Arrival:
    """The files of a job that are being fetched to this node.

    Args:
        names: Their names.
        job: The job's own folder.
        ask: Requests a piece of a file, from an offset on; answers later, on the loop.
        done: Called once, with the error if not all have arrived, or with None.
    """

    def __init__(self, names: Iterable[str], job: str, ask: Ask, done: Callable[[Exception | None], None]) -> None:
        self._missing = list(names)
        self._folder = folder_of(job)
        self._ask = ask
        self._done = done
        self._fd = -1
        self._size = 0
        self._state: State | None = None

    def begin(self) -> None:
        """Make the folder and fetch the files."""
        try:
            os.mkdir(self._folder, 0o700)
            self._next()
        except OSError as error:
            self._end(error)

    def _next(self) -> None:
        if not self._missing:
            self._end(None)
            return
        path = os.path.join(self._folder, self._missing[0])
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._size, self._state = 0, None
        self._ask(self._missing[0], 0, self._take_answer)

    def _take_answer(self, piece: Piece | None, error: PMIxError | None) -> None:
        try:
            if piece is None:
                raise error or PMIxError("no answer has come")
            self._take(*piece)
        except (OSError, PMIxError) as problem:
            self._end(problem)

    def _take(self, mode: int, size: int, changed: int, data: bytes) -> None:
        name, state = self._missing[0], (mode, size, changed)
        self._state = self._state or state
        self._size += len(data)
        if state != self._state or self._size > size or (not data and self._size < size):
            raise PMIxError(f"{name} has changed while it was carried to the node")
        while data:
            data = data[os.write(self._fd, data) :]
        if self._size < size:
            self._ask(name, self._size, self._take_answer)
            return
        os.fchmod(self._fd, mode & 0o777)
        self._close()
        del self._missing[0]
        self._next()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)

    def _end(self, error: Exception | None) -> None:
        if self._fd >= 0:
            self._close()
        self._done(error)
