"""The fork server: a process that has imported what ranks need, and forks them.

It has one thread, and its requests come one after the other on descriptor 0; see the package for who sends them. All
that makes a child the rank that was asked for happens in `Server._begin`, `_fork` and `_run`: its process group,
descriptors, environment, signals, folder, random numbers, `sys.argv`, `sys.path` and `__main__` are those of a process
of its own. What remains of the server's is the seed of `hash()` (PYTHONHASHSEED) and what the named modules have kept.

A rank pays for each page of memory that it writes to, 2 us on a virtual machine, and each object that it looks at is on
such a page. So what can be done before a fork is done there, and what ranks do not need is not imported: `threading`
alone costs each of them a third of a millisecond at the fork. The pages that opening a client writes to are copied by
one call, where the system can (`pages.py`).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import gc
import io
import os
import sys
from importlib.machinery import SourceFileLoader

from pypmix.host.forking.frames import AGAIN, CALL, COLLECT, Start, receive, send
from pypmix.host.forking.leaving import Leaving
from pypmix.host.forking.pages import learn
from pypmix.host.forking.safety import REFUSED, open_files, trouble
from pypmix.host.outcome import CANNOT_EXECUTE
from pypmix.lazy import load
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import CodeType, ModuleType
    from typing import Any, TypeVar

    T = TypeVar("T")


CLIENT = (
    "collections.abc",
    "errno",
    "select",
    "pypmix.client",
    "pypmix.engine.peeruid",
    "pypmix.engine.python.client",
    "pypmix.engine.python.session",
    "pypmix.engine.python.transport",
    "pypmix.job",
    "pypmix.psets",
    "pypmix.waits",
)
"""The modules that a rank imports to open a client and to finalize."""

READY = "ready"

REHEARSALS = 12
"""The times that a client is opened before the first fork: CPython specialises functions that are called so often."""

MANY = 32
"""The ranks of a job from which on it saves time to learn first which pages they write to: this takes 5 ms."""


class Unsafe(Exception):
    """Something that was to be imported keeps this process from being forked, or cannot be imported."""


def main() -> None:
    """Serve until the host has gone; returns in a rank's process only, when its program has ended."""
    link = _socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    # It was for the guard, which reads it in /proc.
    os.environ.pop("PMIX_SERVER_TMPDIR", None)
    words, _ = receive(link)
    if not words:
        os._exit(0)
    try:
        prepare(words[1:])
    except Unsafe as error:
        send(link, [str(error)])
        os._exit(1)
    copy_pages = None
    try:
        rehearse(_open_often)
        if int(words[0]) >= MANY:
            _freeze()
            copy_pages = rehearse(_learn)
    except (PMIxError, OSError):
        # Ranks are slower then, and say themselves why they cannot have a client.
        pass
    _freeze()
    send(link, [READY])
    server = Server(link, copy_pages)
    server.serve()
    leaving = server.leaving
    # It is started with signals blocked, which all processes of a job may be sent: ranks take them, and the server goes
    # on for those that clean up.
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    try:
        _run(server)
    except SystemExit as end:
        status = 0 if end.code is None else end.code
        if isinstance(status, int):
            leaving.leave(status & 0xFF)
        raise
    leaving.leave(0)


def prepare(modules: Iterable[str]) -> None:
    """Import what ranks need.

    Args:
        modules: The modules, in addition to those of a client.

    Raises:
        Unsafe: One of them cannot be imported here.
    """
    for name in CLIENT:
        load(name)
    before = open_files()
    for name in modules:
        why = REFUSED.get(name, "")
        if not why:
            try:
                load(name)
            except Exception as error:
                raise Unsafe(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
            except SystemExit as error:
                raise Unsafe(f"{name} cannot be imported: it exits ({error})") from error
            why = trouble(before)
        if why:
            raise Unsafe(f"{name} cannot be imported before ranks are forked: {why}")


def rehearse(act: Callable[[Any], T]) -> T:
    """Return what a function returns that opens clients: what this leaves in the interpreter is there in each rank.

    Args:
        act: The function, which is given the `Rehearsal`.
    """
    env = dict(os.environ)
    rehearsal: Any = load("pypmix.engine.python.rehearsal")
    try:
        os.environ.update(rehearsal.ENVIRONMENT)
        with rehearsal.Rehearsal() as server:
            return act(server)
    finally:
        _have(*_differences(env))


def open_once(rehearsal: Any) -> None:
    """Open a client with a `Rehearsal`, and finalize it."""
    import pypmix

    with pypmix.Client() as me:
        assert (me.rank, me.job.size) == (0, 1)
        rehearsal.finish()


def _open_often(rehearsal: Any) -> None:
    for _ in range(REHEARSALS):
        open_once(rehearsal)


def _learn(rehearsal: Any) -> Callable[[], int] | None:
    return learn(lambda: open_once(rehearsal))


def _freeze() -> None:
    """Have what is here not looked through again, so that its pages stay shared."""
    gc.collect()
    gc.freeze()


class Server:
    """Answers a host, and forks.

    All that need not happen in a child happens here: each page that a child writes to is copied first.

    Args:
        link: The connection with the host.
        copy_pages: Copies the pages that a child will write to; None where the system cannot.
    """

    def __init__(self, link: _socket.socket, copy_pages: Callable[[], int] | None = None) -> None:
        self._link = link
        self._copy_pages = copy_pages
        self._codes: dict[str, tuple[tuple[int, int, int], CodeType]] = {}
        self._own = [os.dup(fd) for fd in range(3)]
        self._comm, self._name = _called()
        self._left = [*self._own, self._comm]
        """The descriptors that a child closes."""
        self._env = dict(os.environ)
        self._argv = sys.argv, sys.orig_argv
        self._kinds: list[tuple[int, int, int]] = [(0, 0, 0)] * 3
        self._request: Any = None
        """The last request. A child that let go of it would write to all of its pages."""
        self._rank_name = b""
        self.leaving = Leaving()
        self.start: Any = None
        """The last rank that was asked for."""
        self.main: Any = None
        """Its `__main__`."""
        self.code: CodeType | None = None
        """The code that it runs; None for a module, and where it is to find out itself that it cannot."""

    def serve(self) -> None:
        """Answer requests; returns in a child."""
        link = self._link
        while True:
            try:
                fields, files = receive(link)
            except OSError:
                fields, files = [], []
            if not fields:
                os._exit(0)
            if fields[0] == COLLECT:
                send(link, [pid for pid in fields[1:] if _collected(int(pid))])
                continue
            if fields[0] == CALL:
                send(link, ["returned", self._call(*fields[1:])])
                continue
            if fields[0] == AGAIN:
                gone: list[str] = []
                new = [word.split("=", 1) for word in fields[1:]]
            else:
                self._begin(Start.read(fields[1:]))
                gone, new = _differences(self.start.env)
            if self.start.kind == "file":
                self.code = self._code(self.start)
            self._request = fields, files, gone, new
            try:
                pid = self._fork(files, gone, new)
            except OSError as error:
                send(link, ["0", str(error.errno), error.strerror or "", os.fsdecode(error.filename or "")])
            else:
                if not pid:
                    return
                send(link, [str(pid)])

    def _begin(self, start: Start) -> None:
        """Have what all ranks of an application have."""
        self.start = start
        self.main = _main(start)
        self.code = _compiled(start) if start.kind == "command" else None
        path = "python -c" if start.kind == "command" else start.target
        self._rank_name = os.fsencode(os.path.basename(path))
        sys.argv = list(start.argv)
        sys.orig_argv = list(start.command)

    def _call(self, module: str, function: str, argument: str) -> str:
        """Call a function of a module, so that ranks have what it makes; return what it returns."""
        _have(*_differences(self._env))
        sys.argv, sys.orig_argv = self._argv
        try:
            return str(load(module, function)(argument))
        except BaseException as error:
            import traceback

            return "".join(traceback.format_exception(error))
        finally:
            self._keep()

    def _keep(self) -> None:
        gc.collect()
        gc.freeze()
        self._env = dict(os.environ)
        # What was called may have used the standard files.
        self._kinds = [(0, 0, 0)] * 3
        self.leaving = Leaving()

    def _code(self, start: Start) -> CodeType | None:
        """Return the code of a file; None where the child is to find out that it has none."""
        try:
            found = os.stat(start.target)
        except (OSError, ValueError):
            return None
        what = found.st_mtime_ns, found.st_size, found.st_ino
        known = self._codes.get(start.target)
        if known is None or known[0] != what:
            code = _compiled(start)
            if code is None:
                return None
            known = self._codes[start.target] = what, code
        return known[1]

    def _fork(self, files: list[int], gone: list[str], new: list[list[str]]) -> int:
        """Fork; returns the pid of the child once it has its place among processes, and 0 in the child."""
        start = self.start
        pid = folder = placed = place = -1
        try:
            if start.wdir:
                folder = os.open(start.wdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            if start.session:
                # Only the child can begin its session: its end is closed then. Signals for the rank find it from then.
                placed, place = os.pipe2(os.O_CLOEXEC)
            self._dress(files, gone, new)
            pid = os.fork()
            if not pid:
                try:
                    if self._copy_pages is not None:
                        self._copy_pages()
                    if start.session:
                        os.setsid()
                    else:
                        os.setpgid(0, 0)
                    if folder >= 0:
                        os.fchdir(folder)
                    self._link.close()
                    _close(self._left)
                except BaseException:
                    # Never back to what the server does.
                    os._exit(CANNOT_EXECUTE)
            elif start.session:
                os.close(place)
                place = -1
                os.read(placed, 1)
            else:
                # It does so too: whichever comes first.
                os.setpgid(pid, pid)
            return pid
        finally:
            _close((*files, placed, place, folder))
            if pid:
                for number, fd in enumerate(self._own):
                    os.dup2(fd, number)
                _be_called(self._comm, self._name)

    def _dress(self, files: list[int], gone: list[str], new: list[list[str]]) -> None:
        """Take on the name, descriptors, standard files and environment of a rank, which its process has then."""
        _be_called(self._comm, self._rank_name)
        for number, fd in enumerate(files):
            os.dup2(fd, number)
        for number in range(3):
            found = os.fstat(number)
            kind = found.st_mode, found.st_rdev, found.st_blksize
            # What was made for another descriptor of this kind, and has not been used, is as good.
            if kind != self._kinds[number]:
                _open_standard_file(number)
                self._kinds[number] = kind
        _have(gone, new)


def _close(files: Iterable[int]) -> None:
    for fd in files:
        if fd >= 0:
            os.close(fd)


def _collected(pid: int) -> bool:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return False
    return True


def _main(start: Start) -> ModuleType:
    """Make the `__main__` of ranks, as the interpreter has it before it runs a program."""
    main = type(sys)("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    if sys.version_info < (3, 14):
        main.__dict__.update(__annotations__={})
    if start.kind == "file":
        main.__dict__.update(
            __file__=start.target, __cached__=None, __loader__=SourceFileLoader("__main__", start.target)
        )
    return main


def _run(server: Server) -> None:
    """Be the program: what it raises passes through, as its interpreter would have it."""
    _seed()
    main = sys.modules["__main__"] = server.main
    try:
        if server.start.kind == "module":
            import runpy

            # What the interpreter itself calls for -m.
            run_as_main: Any = vars(runpy)["_run_module_as_main"]
            run_as_main(server.start.target)
        else:
            exec(server.code or _compiled_now(server.start), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        _without_ours(error)
        raise


def compiled(start: Start) -> CodeType:
    """Return the code of a file or a command."""
    text: str | bytes = start.target
    path = "<string>"
    if start.kind == "file":
        path = start.target
        with open(path, "rb") as file:
            text = file.read()
    found: CodeType = compile(text, path, "exec", dont_inherit=True)
    return found


def _compiled(start: Start) -> CodeType | None:
    """Return the code; None where the child is to find out that there is none."""
    try:
        return compiled(start)
    except (OSError, ValueError, SyntaxError, Warning, RecursionError, MemoryError):
        return None
    finally:
        # The compiler makes types of its own, and each rank looks through all that is not frozen.
        _freeze()


def _compiled_now(start: Start) -> CodeType:
    try:
        return compiled(start)
    except OSError as error:
        print(
            f"{sys.executable}: can't open file {start.target!r}: [Errno {error.errno}] {error.strerror}",
            file=sys.stderr,
        )
        raise SystemExit(2) from None


def _without_ours(error: BaseException) -> None:
    """Have the interpreter print the traceback of a program's error from the program's first line on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    show = sys.excepthook

    def hook(kind: type[BaseException], raised: BaseException, _trace: object) -> None:
        show(kind, raised.with_traceback(trace), trace)

    sys.excepthook = hook


def _differences(env: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return the variables that this process has and another environment has not, and those that differ."""
    own = dict(os.environ)
    return list(own.keys() - env.keys()), [[name, text] for name, text in env.items() if own.get(name) != text]


def _have(gone: list[str], new: list[list[str]]) -> None:
    """Change the environment."""
    for name in gone:
        del os.environ[name]
    for name, text in new:
        os.environ[name] = text


def _open_standard_file(fd: int) -> None:
    """Make `sys.stdin` or its like anew: what it is now may be a terminal, or a file."""
    name = ("stdin", "stdout", "stderr")[fd]
    former = getattr(sys, name)
    if former is None:
        return
    # As -u has it.
    direct = fd > 0 and former.write_through
    raw: Any = open(fd, "wb" if fd else "rb", 0 if direct else -1, closefd=False)  # noqa: SIM115
    getattr(raw, "raw", raw).name = f"<{name}>"
    made: Any = io.TextIOWrapper(
        raw,
        encoding=former.encoding,
        errors=former.errors,
        newline="\n",
        line_buffering=not direct and (fd == 2 or raw.isatty()),
        write_through=former.write_through,
    )
    made.mode = "w" if fd else "r"
    setattr(sys, name, made)
    setattr(sys, f"__{name}__", made)


def _seed() -> None:
    """Have numpy draw other numbers in each rank; `random` sees to that itself."""
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def _called() -> tuple[int, bytes]:
    """Return a descriptor by which this process is named, and its name; -1 where that is not possible."""
    try:
        fd = os.open("/proc/self/comm", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # A sandbox without /proc, or one that is read-only.
        return -1, b""
    return fd, os.read(fd, 64)[:-1]


def _be_called(fd: int, name: bytes) -> None:
    """Have tools such as `top` and `ps -o comm` name this process, and those that it forks from now on."""
    try:
        if fd >= 0:
            os.write(fd, name)
    except OSError:
        # Names are for people: a rank goes without.
        return
