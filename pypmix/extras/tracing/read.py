"""Reading of traces."""

from __future__ import annotations

import json

from pypmix.extras.tracing.calls import Call, collectives
from pypmix.extras.tracing.write import FORMAT, JOB
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.extras.tracing.calls import Collective


FORMATS = (1, FORMAT)
"""The formats that can be read; the first one has the jobs in `otherData`."""


class Trace(Record):
    """The content of a trace file.

    Attributes:
        began: When the trace began, in seconds since 1970; all times are microseconds since then.
        jobs: The sizes of the jobs, by nspace.
        nodes: The names of the nodes, in their order.
        calls: The requests of procs, in the order in which they were received.
        upcalls: The upcalls of servers, likewise; `proc` is the requestor, empty for none.
        ends: When the ranks ended, and how, by their names.
        left_out: The number of requests and upcalls that are not in the file, since it was full.
    """

    began: float
    jobs: dict[str, int]
    nodes: tuple[str, ...]
    calls: tuple[Call, ...]
    upcalls: tuple[Call, ...]
    ends: dict[str, tuple[float, str]]
    left_out: int

    @property
    def length(self) -> float:
        """The microseconds until the last event."""
        ends = [end for end, _ in self.ends.values()]
        return max([*ends, *[call.end for call in (*self.calls, *self.upcalls)]], default=0.0)

    def collectives(self) -> list[Collective]:
        """Return the collectives, in the order in which they began."""
        return collectives(self.calls, self.jobs)


def read(path: str) -> Trace:
    """Read a trace of `pypmix run --trace`, which may still write to it.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a trace, or a trace of a later pypmix.
    """
    with open(path, "rb") as file:
        try:
            found = json.load(file)
            other = found["otherData"]
            format = other["format"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"{path} is not a trace of pypmix run --trace") from None
    if format not in FORMATS:
        raise ValueError(f"{path} is a trace of another pypmix: {other.get('pypmix')} with format {format}")
    try:
        return _read(found["traceEvents"], other)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is incomplete: {type(error).__name__}: {error}") from None


def _read(events: list[dict[str, Any]], other: dict[str, Any]) -> Trace:
    jobs: dict[str, int] = {str(name): int(size) for name, size in other.get("jobs", {}).items()}
    nodes: dict[int, str] = {}
    procs: dict[int, str] = {}
    calls: list[Call] = []
    upcalls: list[Call] = []
    ends: dict[str, tuple[float, str]] = {}
    for event in events:
        kind, thread = event.get("cat"), int(event["tid"])
        if event["ph"] == "M":
            if event["name"] == "process_name":
                nodes[event["pid"]] = str(event["args"]["name"])
            elif event["name"] == JOB:
                jobs[str(event["args"]["nspace"])] = int(event["args"]["size"])
            elif event["name"] == "thread_name":
                procs[thread] = str(event["args"].get("proc", ""))
        elif kind == "end":
            ends[procs[thread]] = float(event["ts"]), str(event["name"])
        elif kind in ("request", "collective", "upcall"):
            args, begin = event["args"], float(event["ts"])
            proc = str(args.get("of", "")) if kind == "upcall" else procs[thread]
            more = str(args.get("group") or args.get("key") or "")
            texts = proc, nodes[event["pid"]], str(event["name"]), str(args.get("procs", "")), more
            call = Call(*texts, str(args.get("status", "")), begin, round(begin + float(event["dur"]), 3), thread)
            (upcalls if kind == "upcall" else calls).append(call)
    first = min(nodes, default=0)
    return Trace(
        float(other["began"]),
        jobs,
        tuple([name for pid, name in sorted(nodes.items()) if pid != first]),
        tuple(sorted(calls, key=lambda call: call.begin)),
        tuple(sorted(upcalls, key=lambda call: call.begin)),
        ends,
        int(other["left_out"]),
    )
