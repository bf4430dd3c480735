"""The fork server: a process that has imported the ranks' modules, and forks the ranks.

It has one thread, and receives its requests one after the other on descriptor 0; the package describes the protocol.
`Server._begin`, `_fork` and `_run` turn a child into the requested rank: its process group, descriptors, environment,
signals, folder, random numbers, `sys.argv`, `sys.path` and `__main__` are those of a new process. Only the seed of
`hash()` (PYTHONHASHSEED) and the state of the imported modules are the server's.

A rank pays for each page of memory that it writes to, 2 us on a virtual machine, and each object that it looks at is on
such a page. So all possible work happens before the fork, and the server imports no module that ranks do not need:
`threading` alone costs each of them a third of a millisecond at the fork.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import gc
import io
import os
import sys
from importlib.machinery import SourceFileLoader

from pypmix.engine.stacks import has_offered_stacks, withdraw_stacks
from pypmix.extras.forking.frames import AGAIN, CALL, COLLECT, Start, receive, send
from pypmix.extras.forking.leaving import Shutdown
from pypmix.extras.forking.safety import REFUSED, explain_unsafe, open_files
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
"""The number of times a client is opened before the first fork, enough for CPython to specialise the functions."""


class Unsafe(Exception):
    """A module cannot be imported, or this process could not be forked after its import."""


def main() -> None:
    """Serve until the host closes the connection; return only in a rank's process, when its program has ended."""
    link = _socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    # It is there for the guard, which reads it in /proc.
    os.environ.pop("PMIX_SERVER_TMPDIR", None)
    words, _ = receive(link)
    if not words:
        os._exit(0)
    try:
        prepare(words[1:])
    except Unsafe as error:
        send(link, [str(error)])
        os._exit(1)
    try:
        rehearse(_open_often)
    except (PMIxError, OSError):
        # Ranks are slower then, and report themselves why they cannot open a client.
        pass
    _freeze()
    send(link, [READY])
    server = Server(link)
    server.serve()
    shutdown = server.shutdown
    # The server was started with signals blocked: a signal for all processes of a job reaches the ranks, while the
    # server stays for the ranks that clean up.
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    try:
        _run(server)
    except SystemExit as end:
        status = 0 if end.code is None else end.code
        if isinstance(status, int):
            shutdown.exit(status & 0xFF)
        raise
    shutdown.exit(0)


def prepare(modules: Iterable[str]) -> None:
    """Import the modules that ranks need.

    Args:
        modules: The modules, in addition to those of a client.

    Raises:
        Unsafe: A module cannot be imported here.
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
            why = explain_unsafe(before)
        if why:
            raise Unsafe(f"{name} cannot be imported before ranks are forked: {why}")


def rehearse(act: Callable[[Any], T]) -> T:
    """Call a function that opens clients before the first fork, so that each rank inherits the warmed-up interpreter.

    Args:
        act: The function; it receives the `Rehearsal`.

    Returns:
        The result of the function.
    """
    env, offered = dict(os.environ), has_offered_stacks()
    rehearsal: Any = load("pypmix.engine.python.rehearsal")
    try:
        os.environ.update(rehearsal.ENVIRONMENT)
        with rehearsal.Rehearsal() as server:
            return act(server)
    finally:
        if not offered:
            withdraw_stacks()
        _change_environment(*_compare_environment(env))


def open_once(rehearsal: Any) -> None:
    """Open a client with a `Rehearsal`, and finalize it."""
    import pypmix

    with pypmix.Client() as me:
        assert (me.rank, me.job.size) == (0, 1)
        rehearsal.finish()


def _open_often(rehearsal: Any) -> None:
    for _ in range(REHEARSALS):
        open_once(rehearsal)


def _freeze() -> None:
    """Hide all present objects from the garbage collector, so that their pages stay shared."""
    gc.collect()
    gc.freeze()


class Server:
    """Answers the requests of a host, and forks ranks.

    Args:
        link: The connection with the host.
    """

    # All work that need not happen in a child happens here: the system copies each page that a child writes to.

    def __init__(self, link: _socket.socket) -> None:
        self._link = link
        self._codes: dict[str, tuple[tuple[int, int, int], CodeType]] = {}
        self._standard_files = [os.dup(fd) for fd in range(3)]
        self._comm, self._name = _open_name()
        self._server_files = [*self._standard_files, self._comm]
        """The descriptors that a child closes."""
        self._env = dict(os.environ)
        self._argv = sys.argv, sys.orig_argv
        self._kinds: list[tuple[int, int, int]] = [(0, 0, 0)] * 3
        self._request: Any = None
        """The last request. A child that freed it would write to all of its pages."""
        self._rank_name = b""
        self.shutdown = Shutdown()
        self.start: Any = None
        """The last requested rank."""
        self.main: Any = None
        """Its `__main__`."""
        self.code: CodeType | None = None
        """Its code; None for a module, and if compiling failed: the rank then reports the error."""

    def serve(self) -> None:
        """Answer requests; return only in a child."""
        link = self._link
        while True:
            try:
                fields, files = receive(link)
            except OSError:
                fields, files = [], []
            if not fields:
                os._exit(0)
            if fields[0] == COLLECT:
                send(link, [pid for pid in fields[1:] if _collect(int(pid))])
                continue
            if fields[0] == CALL:
                send(link, ["returned", self._call(*fields[1:])])
                continue
            if fields[0] == AGAIN:
                unset: list[str] = []
                changed = [word.split("=", 1) for word in fields[1:]]
            else:
                self._begin(Start.read(fields[1:]))
                unset, changed = _compare_environment(self.start.env)
            if self.start.kind == "file":
                self.code = self._load_code(self.start)
            self._request = fields, files, unset, changed
            try:
                pid = self._fork(files, unset, changed)
            except OSError as error:
                send(link, ["0", str(error.errno), error.strerror or "", os.fsdecode(error.filename or "")])
            else:
                if not pid:
                    return
                send(link, [str(pid)])

    def _begin(self, start: Start) -> None:
        """Prepare the state that all ranks of an application share."""
        self.start = start
        self.main = _make_main(start)
        self.code = _try_compile(start) if start.kind == "command" else None
        path = "python -c" if start.kind == "command" else start.target
        self._rank_name = os.fsencode(os.path.basename(path))
        sys.argv = list(start.argv)
        sys.orig_argv = list(start.command)

    def _call(self, module: str, function: str, argument: str) -> str:
        """Call a function of a module, so that later ranks inherit its effects; return its result as text."""
        _change_environment(*_compare_environment(self._env))
        sys.argv, sys.orig_argv = self._argv
        try:
            return str(load(module, function)(argument))
        except BaseException as error:
            import traceback

            return "".join(traceback.format_exception(error))
        finally:
            self._refresh()

    def _refresh(self) -> None:
        """Take the present state of the process as the state that ranks start with."""
        _freeze()
        self._env = dict(os.environ)
        # The called function may have used the standard files.
        self._kinds = [(0, 0, 0)] * 3
        self.shutdown = Shutdown()

    def _load_code(self, start: Start) -> CodeType | None:
        """Return the code of a file, compiled once per version; None if the rank has to report an error."""
        try:
            status = os.stat(start.target)
        except (OSError, ValueError):
            return None
        version = status.st_mtime_ns, status.st_size, status.st_ino
        cached = self._codes.get(start.target)
        if cached is None or cached[0] != version:
            code = _try_compile(start)
            if code is None:
                return None
            cached = self._codes[start.target] = version, code
        return cached[1]

    def _fork(self, files: list[int], unset: list[str], changed: list[list[str]]) -> int:
        """Fork.

        Returns:
            The pid of the child, once it has its process group or session; 0 in the child.
        """
        start = self.start
        pid = folder = placed = place = -1
        try:
            if start.wdir:
                folder = os.open(start.wdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            if start.session:
                # Only the child can begin its session; it closes its end then, and signals for the rank reach it.
                placed, place = os.pipe2(os.O_CLOEXEC)
            self._become_rank(files, unset, changed)
            pid = os.fork()
            if not pid:
                try:
                    if start.session:
                        os.setsid()
                    else:
                        os.setpgid(0, 0)
                    if folder >= 0:
                        os.fchdir(folder)
                    self._link.close()
                    _close(self._server_files)
                except BaseException:
                    # A child must never return into the server's loop.
                    os._exit(CANNOT_EXECUTE)
            elif start.session:
                os.close(place)
                place = -1
                os.read(placed, 1)
            else:
                # Parent and child both do it, as either may run first.
                os.setpgid(pid, pid)
            return pid
        finally:
            _close((*files, placed, place, folder))
            if pid:
                for number, fd in enumerate(self._standard_files):
                    os.dup2(fd, number)
                _rename_process(self._comm, self._name)

    def _become_rank(self, files: list[int], unset: list[str], changed: list[list[str]]) -> None:
        """Take the name, descriptors, standard files and environment of a rank, for its process to inherit."""
        _rename_process(self._comm, self._rank_name)
        for number, fd in enumerate(files):
            os.dup2(fd, number)
        for number in range(3):
            status = os.fstat(number)
            kind = status.st_mode, status.st_rdev, status.st_blksize
            # An unused file object for another descriptor of the same kind serves as well.
            if kind != self._kinds[number]:
                _open_standard_file(number)
                self._kinds[number] = kind
        _change_environment(unset, changed)


def _close(files: Iterable[int]) -> None:
    for fd in files:
        if fd >= 0:
            os.close(fd)


def _collect(pid: int) -> bool:
    """Wait for a child that ended or is about to; return False if there is no such child."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return False
    return True


def _make_main(start: Start) -> ModuleType:
    """Make the `__main__` of ranks, as the interpreter makes it before it runs a program."""
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
    """Run the program; its exceptions pass through with the traceback that the interpreter would print."""
    _seed_numpy()
    main = sys.modules["__main__"] = server.main
    try:
        if server.start.kind == "module":
            import runpy

            # The interpreter calls this for -m.
            run_as_main: Any = vars(runpy)["_run_module_as_main"]
            run_as_main(server.start.target)
        else:
            exec(server.code or _compile_or_exit(server.start), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        _hide_server_frames(error)
        raise


def _compile(start: Start) -> CodeType:
    """Compile a file or a command."""
    text: str | bytes = start.target
    path = "<string>"
    if start.kind == "file":
        path = start.target
        with open(path, "rb") as file:
            text = file.read()
    code: CodeType = compile(text, path, "exec", dont_inherit=True)
    return code


def _try_compile(start: Start) -> CodeType | None:
    """Compile a program; return None if that fails, for the rank to fail in the same way."""
    try:
        return _compile(start)
    except (OSError, ValueError, SyntaxError, Warning, RecursionError, MemoryError):
        return None
    finally:
        # The compiler creates types, and each rank's collector would traverse all objects that are not frozen.
        _freeze()


def _compile_or_exit(start: Start) -> CodeType:
    """Compile a program in the rank, which fails as the interpreter does."""
    try:
        return _compile(start)
    except OSError as error:
        print(
            f"{sys.executable}: can't open file {start.target!r}: [Errno {error.errno}] {error.strerror}",
            file=sys.stderr,
        )
        raise SystemExit(2) from None


def _hide_server_frames(error: BaseException) -> None:
    """Make the interpreter print the traceback of an error without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    show = sys.excepthook

    def hook(kind: type[BaseException], raised: BaseException, _trace: object) -> None:
        show(kind, raised.with_traceback(trace), trace)

    sys.excepthook = hook


def _compare_environment(env: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return the names to unset and the variables to change so that this process has another environment."""
    present = dict(os.environ)
    return list(present.keys() - env.keys()), [[name, text] for name, text in env.items() if present.get(name) != text]


def _change_environment(unset: list[str], changed: list[list[str]]) -> None:
    """Unset some variables, and set others."""
    for name in unset:
        del os.environ[name]
    for name, text in changed:
        os.environ[name] = text


def _open_standard_file(fd: int) -> None:
    """Replace `sys.stdin`, `stdout` or `stderr`, as its descriptor may now be a terminal, a pipe or a file."""
    name = ("stdin", "stdout", "stderr")[fd]
    former = getattr(sys, name)
    if former is None:
        return
    # As with -u.
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


def _seed_numpy() -> None:
    """Make numpy draw other numbers in each rank; `random` seeds itself after a fork."""
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def _open_name() -> tuple[int, bytes]:
    """Return a descriptor that renames this process, -1 if there is none, and its present name."""
    try:
        fd = os.open("/proc/self/comm", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # A sandbox without /proc, or with a read-only one.
        return -1, b""
    return fd, os.read(fd, 64)[:-1]


def _rename_process(fd: int, name: bytes) -> None:
    """Set the name that `top` and `ps -o comm` show for this process and its later children."""
    try:
        if fd >= 0:
            os.write(fd, name)
    except OSError:
        # The name is only shown to people: a rank can do without.
        return
