"""Reading of recordings."""

from __future__ import annotations

import json
import os

from pypmix.recording.record import FORMAT
from pypmix.standard.asjson import from_json
from pypmix.standard.errors import PMIxError, error_for
from pypmix.standard.ops import Op
from pypmix.standard.record import Record
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
