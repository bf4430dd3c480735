"""Writing and reading of recordings: the upcalls of servers, and the answers of their host."""

from __future__ import annotations

import json
import os
import threading
import time

from pypmix._version import __version__
from pypmix.host.folders import open_private
from pypmix.standard import statuses
from pypmix.standard.asjson import from_json, to_json
from pypmix.standard.errors import PMIxError, error_for
from pypmix.standard.logtext import get_logger
from pypmix.standard.ops import Op
from pypmix.standard.record import Record
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from pypmix.engine.base import OnUpcall, Upcall
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc

FORMAT = 1
"""The number of the file's format, in its first line."""

_log = get_logger("pypmix.recording")


class Recorder:
    """Records the upcalls of servers, and their answers, in a file of JSON lines.

    A line is written before its upcall is passed to the host, or its answer to the server. Each line is one write, so
    that it is in the file even if the process crashes. Several servers of a process may share a recorder.

    Lines have `seq`, their number; `time`, in seconds since 1970; and `server`, the name passed to `wrap`. The line of
    an upcall has `asks`, the operation (see `pypmix.standard.asjson`), and `op`, `requestor`, `uid` and `gid`. The line
    of an answer has `answers`, the number of the upcall, `after`, the seconds since the upcall, and `result` or
    `error`; `again` if the upcall had been answered before, and `raised` if the host's function raised the error.

    If the file can no longer be written, this is logged once and recording ends; clients do not notice.

    Args:
        path: The file; an existing file is replaced.

    Raises:
        OSError: The file cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        # Published data and credentials are private.
        self._fd: int | None = open_private(self.path)
        self._lock = threading.Lock()
        self._seq = 0
        self._write({"recording": FORMAT, "pypmix": __version__, "time": round(time.time(), 6), "pid": os.getpid()})

    def wrap(self, on_upcall: OnUpcall, server: str = "") -> OnUpcall:
        """Return a function that records upcalls and calls `on_upcall`.

        Args:
            on_upcall: The host's function.
            server: A name for the server, if several share the file.
        """

        def record(upcall: Upcall) -> None:
            recorded = RecordedUpcall(self, upcall, server)
            try:
                on_upcall(recorded)
            except Exception as error:
                recorded.record_exception(error)
                raise

        return record

    def close(self) -> None:
        """End the recording; later upcalls are passed on without a record. May be called twice."""
        with self._lock:
            fd, self._fd = self._fd, None
            if fd is not None:
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, server: str, **fields: Any) -> int:
        """Write a line and return its number."""
        with self._lock:
            self._seq += 1
            self._write({"seq": self._seq, "time": round(time.time(), 6), "server": server, **fields})
            return self._seq

    def _write(self, line: dict[str, Any]) -> None:
        if self._fd is None:
            return
        data = (json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            _log.error("%s cannot be written, recording ends: %s", self.path, error)
            os.close(self._fd)
            self._fd = None


class RecordedUpcall:
    """An upcall that records its answers; see `pypmix.engine.base.Upcall`."""

    __slots__ = ("_has_answer", "_recorder", "_seq", "_server", "_since", "_upcall", "gid", "op", "requestor", "uid")

    def __init__(self, recorder: Recorder, upcall: Upcall, server: str) -> None:
        self.op: Op[object] = upcall.op
        self.requestor: Proc | None = upcall.requestor
        self.uid = upcall.uid
        self.gid = upcall.gid
        self._recorder = recorder
        self._upcall = upcall
        self._server = server
        self._has_answer = False
        self._since = time.monotonic()
        self._seq = recorder.write(
            server,
            op=upcall.op.name,
            requestor=to_json(upcall.requestor),
            uid=upcall.uid,
            gid=upcall.gid,
            asks=_encode(upcall.op),
        )

    def reply(self, result: object = None) -> None:
        """Answer with a result."""
        self._record(result=_encode(result))
        self._upcall.reply(result)

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""
        self._record(error=_encode_error(error))
        self._upcall.fail(error)

    def record_exception(self, error: BaseException) -> None:
        """Record an exception of the host's function, which the server uses as the answer."""
        self._record(error=_encode_error(error), raised=True)

    def _record(self, **answer: Any) -> None:
        again = {"again": True} if self._has_answer else {}
        self._has_answer = True
        after = round(time.monotonic() - self._since, 6)
        self._recorder.write(self._server, answers=self._seq, after=after, **answer, **again)


def _encode(data: object) -> Any:
    try:
        return to_json(data)
    except TypeError as error:
        # A recording must show invalid answers of a host, too.
        return {"unreadable": repr(data)[:1000], "because": str(error)}


def _encode_error(error: BaseException) -> dict[str, Any]:
    status = error.code if isinstance(error, PMIxError) else statuses.ERROR
    detail = error.detail if isinstance(error, PMIxError) else str(error)
    return {"status": status, "detail": detail, "kind": type(error).__name__}


class Unreadable(Record):
    """The `repr` of a result whose type is not one of the Standard's."""

    shown: str


class RecordedAnswer(Record):
    """The answer of a host to an upcall.

    Attributes:
        seq: The number of its line.
        after: Seconds since the upcall.
        result: The result; None for an error.
        error: The error; None for a success.
        raised: Whether the host's function raised the error.
    """

    seq: int
    after: float
    result: object = None
    error: PMIxError | None = None
    raised: bool = False


class Entry(Record):
    """A recorded upcall.

    Attributes:
        seq: The number of its line.
        time: The time, in seconds since 1970.
        server: The name of the server.
        op: The requested operation.
        requestor: The client that caused the upcall, if any.
        uid: The user of the client.
        gid: The group of the client.
        answers: The answers in their order, of which the first is valid; empty if the host never answered.
    """

    seq: int
    time: float
    server: str
    op: Op[object]
    requestor: Proc | None
    uid: int | None
    gid: int | None
    answers: tuple[RecordedAnswer, ...] = ()

    @property
    def answer(self) -> RecordedAnswer | None:
        """The first answer, which is the valid one; None if the host never answered."""
        return self.answers[0] if self.answers else None


class Recording(Record):
    """All upcalls of a recording, in their order."""

    path: str
    entries: tuple[Entry, ...]
    cut: bool = False
    """Whether the last line is incomplete because the process was killed while it wrote."""


def read(path: str | os.PathLike[str]) -> Recording:
    """Read a recording.

    Args:
        path: The file of a `Recorder`, which may still write to it.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a recording, or a recording of a later pypmix.
    """
    found: dict[int, Entry] = {}
    number, line = 0, b""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                fields = json.loads(line)
                if number == 1:
                    _check(fields)
                elif "answers" in fields:
                    entry = found[fields["answers"]]
                    found[entry.seq] = entry.replace(answers=(*entry.answers, _read_answer(fields)))
                else:
                    found[fields["seq"]] = _read_entry(fields)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{os.fspath(path)}, line {number}: not a recording of upcalls ({error!r})") from error
    if not number:
        raise ValueError(f"{os.fspath(path)} is empty: not a recording of upcalls")
    return Recording(os.fspath(path), tuple(found.values()), not line.endswith(b"\n"))


def _check(header: dict[str, Any]) -> None:
    if header["recording"] != FORMAT:
        raise ValueError(
            f"format {header['recording']} of pypmix {header['pypmix']}; this pypmix reads format {FORMAT}"
        )


def _read_entry(fields: dict[str, Any]) -> Entry:
    op, requestor = from_json(fields["asks"]), from_json(fields["requestor"])
    if not isinstance(op, Op) or not isinstance(requestor, Proc | None):
        raise TypeError("an upcall needs an operation and its requestor")
    return Entry(fields["seq"], fields["time"], fields["server"], op, requestor, fields["uid"], fields["gid"])


def _read_answer(fields: dict[str, Any]) -> RecordedAnswer:
    error: PMIxError | None = None
    result: object = None
    if "error" in fields:
        status = fields["error"]["status"]
        error = error_for(status)(fields["error"]["detail"], status=status)
    elif isinstance(fields["result"], dict) and "unreadable" in fields["result"]:
        result = Unreadable(fields["result"]["unreadable"])
    else:
        result = from_json(fields["result"])
    return RecordedAnswer(fields["seq"], fields["after"], result, error, fields.get("raised", False))
