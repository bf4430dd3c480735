"""Forwarding of the ranks' output: whole lines, in order per rank, never a byte lost or changed.

Theory of operation. A `Stream` is one output of one rank. It reads a pipe, or a terminal if the output is shown on one
(`channel`), or it is given the output of a rank on another node (`take`). Each piece goes to three places: to the tap
(clients and tools that pull output), to a `Copy` (the file of the rank), and line by line to a `Sink`.

A `Sink` is a descriptor of this process. It writes only as much as the descriptor accepts, so a slow reader never
blocks the loop; if more than `BACKLOG_LIMIT` waits, the streams stop reading, and ranks block in their writes. It ends
an unfinished line of one stream before it writes another one. The form of a line, with tag and time, is
`Stream._tagged`. Lines are kept back in two cases only: an unfinished line until it ends, or until a moment has passed
at a terminal, and a traceback until its rank has ended, so that the tracebacks of several ranks do not mix.

The options are in `terms.py`: `Terms`; `running.py` makes the streams.
"""

from __future__ import annotations

import os
import select
import stat
import time

from pypmix.host.loop import READ, WRITE
from pypmix.standard.logtext import iso_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Cancellable
    from pypmix.host.loop import HostLoop
    from pypmix.host.running import JobHost
    from pypmix.host.standing import Run


LINE_LIMIT = 1 << 20
"""A longer line is passed on in pieces, so that a rank that never ends its line cannot fill the memory."""

BACKLOG_LIMIT = 1 << 20
"""If more than this waits for a slow reader, ranks are not read and block in their writes."""

TRACEBACK = b"\nTraceback (most recent call last):\n"

LIVE = 1.0
"""Seconds for which a traceback is kept while its rank continues."""

KEPT_LIMIT = 1 << 16
"""A longer traceback is passed on at once."""

READ_SIZE = 1 << 16

PIPE_MAX = 1 << 20
"""A pipe of an ordinary user does not hold more."""

PROMPT_DELAY = 0.1
"""Seconds after which a terminal is shown an unfinished line: it may be a question."""


class Sink:
    """The destination of lines: a descriptor of this process, which never blocks the loop.

    Args:
        loop: The loop to wait in while the reader of `fd` is slow.
        fd: The descriptor.
        owner: Gets the error, once, when it accepts no further data.
    """

    def __init__(self, loop: HostLoop, fd: int, owner: JobHost | Run) -> None:
        self._loop = loop
        self.fd = fd
        self._owner = owner
        self._backlog = bytearray()
        self._waiting = False
        self._paused: list[Callable[[], None]] = []
        self._open: Stream | None = None
        self.broken = False
        self.terminal = os.isatty(fd)
        mode = os.fstat(fd).st_mode
        self._blocks = not stat.S_ISREG(mode)
        self._poll = select.poll()
        if self._blocks:
            self._poll.register(fd, select.POLLOUT)

    @property
    def empty(self) -> bool:
        """Whether all data has been written to the descriptor."""
        return not self._backlog

    def write(self, stream: Stream | None, data: bytes | bytearray) -> None:
        """Write data of a stream; an unfinished line of another stream is ended first."""
        if self.broken or not data:
            return
        if self._open is not None and self._open is not stream:
            self._backlog += b"\n"
        self._backlog += data
        self._open = None if data.endswith(b"\n") else stream
        self._flush()

    def end_line(self) -> None:
        """End an unfinished line, because others write to the descriptor from now on."""
        if self._open is not None and not self.broken:
            self._open = None
            self._backlog += b"\n"
            self._flush()

    def is_open(self, stream: Stream) -> bool:
        """Return True if the last data written was an unfinished line of this stream."""
        return self._open is stream

    def pause(self, resume: Callable[[], None]) -> bool:
        """Return True if too much is buffered: the caller stops writing until `resume` is called."""
        if len(self._backlog) <= BACKLOG_LIMIT:
            return False
        self._paused.append(resume)
        return True

    def _flush(self) -> None:
        try:
            while self._backlog and (not self._blocks or self._poll.poll(0)):
                # A pipe that is ready accepts PIPE_BUF bytes without blocking, but not always more.
                piece = self._backlog[: select.PIPE_BUF] if self._blocks else self._backlog
                del self._backlog[: os.write(self.fd, piece)]
        except BlockingIOError:
            pass
        except OSError as error:
            self.broken = True
            self._backlog.clear()
            self._owner.unwritable(error)
        if bool(self._backlog) != self._waiting:
            self._waiting = not self._waiting
            if self._waiting:
                self._loop.watch(self.fd, WRITE, self._flush)
            else:
                self._loop.unwatch(self.fd)
        if self._paused and len(self._backlog) <= BACKLOG_LIMIT // 2:
            paused, self._paused = self._paused, []
            for resume in paused:
                resume()

    def abandon(self) -> None:
        """Discard buffered data."""
        self._backlog.clear()
        if self._waiting:
            self._waiting = False
            self._loop.unwatch(self.fd)


class Copy:
    """A file that holds the output of ranks, unchanged.

    Args:
        path: The file; missing folders are made, and an existing file is emptied.
        owner: Gets the error, once, when it accepts no further data.
    """

    def __init__(self, path: str, owner: JobHost | Run) -> None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._owner = owner

    def write(self, data: bytes) -> None:
        """Append data."""
        rest = memoryview(data)
        try:
            while rest and self._fd >= 0:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self.close()
            self._owner.unwritable(error)

    def close(self) -> None:
        """Close the file; may be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Stream:
    """One output of one rank: passed on line by line, and piece by piece to its tap.

    Args:
        loop: The loop to read in.
        fd: The descriptor to read, made by `channel`; closed by the stream. -1 if others deliver output with `take`.
        sink: The sink of the lines; None for none.
        tag: The text before each line; empty for none.
        stamped: Whether the time at which it was read precedes that.
        copy: The file that holds all of it; closed by the stream.
        whole: Whether a traceback and the output after it are kept until the rank has ended, for `LIVE` seconds at
            most: the lines of several ranks that fail at once do not mix.

    Attributes:
        tap: Called with each piece that was read, and at the end with empty data.
        untapped: Called when a piece was read without a tap; it may set a tap.
    """

    def __init__(
        self,
        loop: HostLoop,
        fd: int,
        sink: Sink | None,
        tag: bytes = b"",
        *,
        stamped: bool = False,
        copy: Copy | None = None,
        whole: bool = False,
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._sink = sink
        self._tag = tag
        self._stamped = stamped
        self._copy = copy
        self._whole = whole
        self._traceback = bytearray()
        self._lapse: Cancellable | None = None
        self._held = bytearray()
        self._watched = False
        self._prompt = False
        self.ended = False
        """Whether the output has ended."""
        self.resumed: Callable[[], None] | None = None
        """Called when a stream without a descriptor, whose sink was full, accepts data again."""
        self.tap: Callable[[bytes], None] | None = None
        self.untapped: Callable[[], None] | None = None
        self.resume()

    def resume(self) -> None:
        """Read again after a pause."""
        if self.resumed is not None:
            self.resumed()
        if self._fd >= 0 and not self._watched:
            self._watched = True
            self._loop.watch(self._fd, READ, self._ready)

    def _ready(self) -> None:
        if self._read() and self._watched and self._sink is not None and self._sink.pause(self.resume):
            self._watched = False
            self._loop.unwatch(self._fd)

    def _read(self) -> int:
        """Read once; return the size of the data, 0 if none is available now."""
        if self._fd < 0:
            return 0
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return 0
        except OSError:
            # A terminal reports an error if its other side is closed.
            data = b""
        if data:
            self.take(data)
        else:
            self.close()
        return len(data)

    def paused(self) -> bool:
        """Return True if the sink has too much data; `resumed` is called when the stream may continue."""
        return self._sink is not None and self._sink.pause(self.resume)

    def take(self, data: bytes) -> None:
        """Process a piece of the output."""
        if self.tap is None and self.untapped is not None:
            self.untapped()
        if self.tap is not None:
            self.tap(data)
        if self._copy is not None:
            self._copy.write(data)
        if self._sink is None:
            return
        end = data.rfind(b"\n") + 1
        if end:
            self._pass_on(self._held + data[:end])
            self._held = bytearray(data[end:])
        else:
            self._held += data
        if len(self._held) > LINE_LIMIT:
            self._show()
        elif self._held and self._sink.terminal and not self._prompt:
            self._prompt = True
            self._loop.later(PROMPT_DELAY, self._show)

    def _show(self) -> None:
        """Pass on an unfinished line."""
        self._prompt = False
        if self._traceback and len(self._held) <= LINE_LIMIT:
            # The middle of a traceback is not a question.
            return
        held, self._held = self._held, bytearray()
        if held:
            self._pass_on(held)

    def _pass_on(self, data: bytearray) -> None:
        if self._whole:
            begin = 0 if self._traceback else (b"\n" + data).find(TRACEBACK)
            if begin >= 0:
                self._traceback += data[begin:]
                del data[begin:]
                if len(self._traceback) > KEPT_LIMIT:
                    data += self._take_traceback()
                elif self._lapse is None:
                    self._lapse = self._loop.later(LIVE, self._release)
        if self._sink is not None:
            self._sink.write(self, self._tagged(data) if self._tag or self._stamped else data)

    def _take_traceback(self) -> bytearray:
        """Return the traceback that is kept, and keep it no longer."""
        if self._lapse is not None:
            self._lapse.cancel()
            self._lapse = None
        kept, self._traceback = self._traceback, bytearray()
        return kept

    def _release(self) -> None:
        """Pass on the traceback that is kept."""
        if self._traceback and self._sink is not None:
            self._sink.write(self, self._take_traceback())
            if self._sink.terminal:
                self._show()

    def _tagged(self, data: bytearray) -> bytearray:
        assert self._sink is not None
        tag = self._tag
        if self._stamped:
            tag = f"{iso_time(time.time(), milliseconds=True)} ".encode() + tag
        whole = data.endswith(b"\n")
        lines = (data[:-1] if whole else data).replace(b"\n", b"\n" + tag)
        if not self._sink.is_open(self):
            lines[:0] = tag
        return lines + b"\n" if whole else lines

    def finish(self) -> None:
        """Pass on all output of a rank that has ended, including an unfinished last line."""
        # Its children may still write; all output of the rank itself is in the pipe.
        taken = 0
        while taken < PIPE_MAX and (size := self._read()):
            taken += size
        if self._sink is not None and (self._held or self._sink.is_open(self)):
            held, self._held = self._held, bytearray()
            # Tagged output is lines by definition. Untagged output stays unchanged; the sink ends the
            # line when another rank's follows.
            if self._tag or self._stamped:
                held += b"\n"
            self._pass_on(held)
        self._release()

    def close(self) -> None:
        """Stop reading, and pass on the data that is kept."""
        if self.ended:
            return
        self.ended = True
        if self._watched:
            self._watched = False
            self._loop.unwatch(self._fd)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.finish()
        if self._copy is not None:
            self._copy.close()
        if self.tap is not None:
            self.tap(b"")


def channel(fd: int) -> tuple[int, int]:
    """Return a read end for a `Stream` and a write end for a rank whose output finally goes to `fd`.

    A rank whose output will be shown on a terminal is given a terminal: programs write each line at once to it, and in
    blocks to a pipe. Its settings change no byte.
    """
    if os.isatty(fd):
        import termios

        reader, writer = os.openpty()
        settings = termios.tcgetattr(writer)
        settings[1] &= ~termios.OPOST
        settings[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        termios.tcsetattr(writer, termios.TCSANOW, settings)
        termios.tcsetwinsize(writer, termios.tcgetwinsize(fd))
    else:
        reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reader, False)
    return reader, writer
