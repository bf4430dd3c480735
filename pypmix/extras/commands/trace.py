"""`pypmix trace`: the summary of a trace that `pypmix run --trace` has written, and a page that shows it."""

from __future__ import annotations

import json as json_module
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pypmix.cli.show import as_json, table
from pypmix.extras.tracing.calls import UNANSWERED, Call, Collective
from pypmix.extras.tracing.read import Trace, read
from pypmix.host.folders import open_private
from pypmix.host.outcome import listed
from pypmix.standard.logtext import printable
from pypmix.standard.naming import name_spans

SHOWN = 10
"""Rows of a table."""


def trace(file: str, html: str, otlp: str, json: bool, all: bool) -> int:
    """Print the summary of a trace, and write its page.

    Args:
        file: The trace.
        html: The page to write; empty for none.
        otlp: The address of the collector to send it to; empty for none.
        json: Whether to print JSON.
        all: Whether to print all rows of the tables.
    """
    try:
        run_trace = read(file)
        summary = summarize(run_trace)
        if html:
            _write(html, page(run_trace, summary, Path(file).name))
        if otlp:
            from pypmix.extras.commands.otlp import send

            count = send(run_trace, otlp)
            print(f"pypmix trace: {_count(count, 'span')} sent to {printable(otlp)}", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"pypmix trace: {printable(error)}", file=sys.stderr)
        return 1
    sys.stdout.write(as_json(summary) + "\n" if json else text(summary, file, None if all else SHOWN))
    return 0


def _write(path: str, text: str) -> None:
    """Write a page that only its owner can read, like the trace itself: names of groups and keys are private."""
    with open(open_private(path), "w", encoding="utf-8") as file:
        file.write(text)


def summarize(run_trace: Trace) -> dict[str, Any]:
    """Return the summary of a trace; times are in milliseconds.

    Returns:
        `requests`, `upcalls`, `left_out`, `length`, `nodes`, `jobs`; `collectives`, failed ones first, then the
        slowest; `waited_for`, the procs that others waited for, the most first; and `ranks`, all procs in their
        order.
    """
    together = run_trace.collectives()
    return {
        "requests": len(run_trace.calls),
        "upcalls": len(run_trace.upcalls),
        "left_out": run_trace.left_out,
        "length": _ms(run_trace.length),
        "nodes": list(run_trace.nodes),
        "jobs": run_trace.jobs,
        "collectives": [_collective(each) for each in sorted(together, key=_sort_key)],
        "waited_for": _waited_for(run_trace, together),
        "ranks": _ranks(run_trace),
    }


def _sort_key(collective: Collective) -> tuple[bool, float]:
    """Return the sort key of a collective: failed ones come first, however short they were."""
    return not collective.status, collective.begin - collective.end


def _ms(micros: float) -> float:
    return round(micros / 1000, 3)


def _collective(collective: Collective) -> dict[str, Any]:
    return {
        "operation": collective.name,
        "of": collective.subject,
        "begin": _ms(collective.begin),
        "took": _ms(collective.end - collective.begin),
        "came": len(collective.calls),
        "last": collective.last.proc,
        "late": _ms(collective.lateness),
        "spread": _ms(collective.spread),
        "status": collective.status,
        "missing": list(collective.missing),
    }


def _waited_for(run_trace: Trace, together: list[Collective]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}

    def row(proc: str) -> dict[str, Any]:
        return rows.setdefault(proc, {"proc": proc, "last": 0, "late": 0.0, "missed": 0, "gets": 0, "get_time": 0.0})

    for each in together:
        if len(each.calls) > 1:
            row(each.last.proc)["last"] += 1
            row(each.last.proc)["late"] += each.lateness / 1000
        for proc in each.missing:
            row(proc)["missed"] += 1
    for call in run_trace.calls:
        # A get from a whole job waits for no rank.
        if call.name == "get" and call.procs != call.proc and not call.procs.endswith(":*"):
            row(call.procs)["gets"] += 1
            row(call.procs)["get_time"] += (call.end - call.begin) / 1000
    for waited in rows.values():
        waited["late"], waited["get_time"] = round(waited["late"], 3), round(waited["get_time"], 3)
    return sorted(rows.values(), key=lambda each: (-each["missed"], -each["late"] - each["get_time"]))


def _ranks(run_trace: Trace) -> list[dict[str, Any]]:
    calls: dict[str, list[Call]] = {}
    for call in run_trace.calls:
        calls.setdefault(call.proc, []).append(call)
    rows = []
    for proc in sorted({*calls, *run_trace.ends}, key=_order):
        own = calls.get(proc, [])
        named: dict[str, list[Call]] = {}
        for call in own:
            named.setdefault(call.name, []).append(call)
        by_name = {name: _covered(each) for name, each in named.items()}
        life = max([call.end for call in own], default=0.0) - min([call.begin for call in own], default=0.0)
        busy = _covered(own)
        rows.append(
            {
                "proc": proc,
                "node": own[0].node if own else "",
                "requests": len(own),
                "unanswered": sum([call.status == UNANSWERED for call in own]),
                "time": _ms(busy),
                "share": round(busy / life, 4) if life else 0.0,
                "operations": {name: _ms(time) for name, time in sorted(by_name.items(), key=lambda i: -i[1])},
                "end": run_trace.ends.get(proc, (0.0, ""))[1],
            }
        )
    return rows


def _covered(calls: list[Call]) -> float:
    """Return the time during which any of some requests was pending."""
    run_trace = until = 0.0
    for call in calls:
        run_trace += max(0.0, call.end - max(until, call.begin))
        until = max(until, call.end)
    return run_trace


def _order(proc: str) -> tuple[str, int]:
    nspace, _, rank = proc.rpartition(":")
    return nspace, int(rank) if rank.isdecimal() else 0


# For people.


PROCS = re.compile(r"[^ ]+:(\*|[0-9,-]+)( [^ ]+:(\*|[0-9,-]+))*")
"""The text of several procs, in contrast to the name of a group."""


class Names:
    """The names of procs for people: without the nspace for procs of the first job.

    Args:
        jobs: The jobs.
    """

    def __init__(self, jobs: dict[str, int]) -> None:
        self._first = next(iter(jobs), None)

    def proc(self, name: str) -> str:
        """Return the name of a proc."""
        nspace, _, rank = name.rpartition(":")
        return f"rank {rank}" if nspace == self._first and rank else name

    def procs(self, text: str) -> str:
        """Return the names of several procs; any other text stays as it is."""
        if self._first is None or not PROCS.fullmatch(text):
            return text
        run_trace = []
        for part in text.split(" "):
            nspace, _, ranks = part.rpartition(":")
            if nspace != self._first:
                run_trace.append(part)
            elif ranks == "*":
                run_trace.append("all ranks")
            else:
                run_trace.append(name_spans(ranks.split(",")))
        return ", ".join(run_trace)


def time_text(ms: float) -> str:
    """Return a time for people."""
    return f"{ms / 1000:.3f} s" if ms >= 1000 else f"{ms:.1f} ms" if ms >= 0.95 else f"{ms * 1000:.0f} µs"


def text(summary: dict[str, Any], file: str, most: int | None) -> str:
    """Return the summary for people.

    Args:
        summary: The result of `summarize`.
        file: The name of the trace.
        most: The largest number of rows of a table; None for all.
    """
    names = Names(summary["jobs"])
    parts = [_head(summary, file)]
    if summary["left_out"]:
        parts.append(f"{summary['left_out']} later requests and upcalls are not in the file: it is full.")
    if summary["upcalls"] and not summary["requests"]:
        parts.append("There are no requests in it: a native server tells of upcalls only.")
    parts += _section("Slowest collectives", SLOW, [_slow(names, each) for each in summary["collectives"][:most]])
    parts += _section("Waited for", WAITED, [_waited(names, each) for each in summary["waited_for"][:most]])
    parts += _section("Time in PMIx", RANKS, [_rank(names, each) for each in summary["ranks"][:most]])
    if most is not None and max(len(summary[each]) for each in ("collectives", "waited_for", "ranks")) > most:
        parts.append(f"\nTables show {most} rows at most; --all shows all.")
    return "\n".join(parts) + "\n"


def _head(summary: dict[str, Any], file: str) -> str:
    where = f"{_count(len(summary['ranks']), 'proc')} on {_count(len(summary['nodes']), 'node')}"
    sizes = (
        ("request", summary["requests"]),
        ("collective", len(summary["collectives"])),
        ("upcall", summary["upcalls"]),
    )
    counts = ", ".join([_count(number, name) for name, number in sizes])
    return f"{printable(file)}: {where}, {time_text(summary['length'])}; {counts}"


SLOW = ("OPERATION", "OF", "AT", "TOOK", "LAST", "LATE BY", "STATUS")
WAITED = ("PROC", "LAST IN", "LATE BY", "MISSED", "GETS", "TIME OF GETS")
RANKS = ("PROC", "NODE", "REQUESTS", "TIME", "SHARE", "MOST OF IT")


def _slow(names: Names, row: dict[str, Any]) -> tuple[str, ...]:
    missing = [names.proc(proc) for proc in row["missing"]]
    status = ", ".join(filter(None, (row["status"], f"without {listed(missing)}" if missing else "")))
    at, took, late = f"{row['begin'] / 1000:.3f} s", time_text(row["took"]), time_text(row["late"])
    return row["operation"], names.procs(row["of"]), at, took, names.proc(row["last"]), late, status


def _waited(names: Names, row: dict[str, Any]) -> tuple[str, ...]:
    times = time_text(row["late"]), time_text(row["get_time"])
    return names.proc(row["proc"]), str(row["last"]), times[0], str(row["missed"]), str(row["gets"]), times[1]


def _rank(names: Names, row: dict[str, Any]) -> tuple[str, ...]:
    most = ", ".join([f"{name} {time_text(time)}" for name, time in list(row["operations"].items())[:3]])
    time = time_text(row["time"])
    return names.proc(row["proc"]), row["node"], str(row["requests"]), time, f"{row['share']:.0%}", most


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s'[: number != 1]}"


def _section(title: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"\n{title}\n{table(headings, list(rows)).rstrip()}"] if rows else []


def page(run_trace: Trace, summary: dict[str, Any], title: str) -> str:
    """Return the page that shows a trace: a single file, which loads nothing."""
    names = Names(run_trace.jobs)
    kinds: dict[tuple[str, ...], int] = {}
    threads: dict[int, dict[str, Any]] = {}
    for upcalls, calls in ((False, run_trace.calls), (True, run_trace.upcalls)):
        for call in calls:
            label = "server" if upcalls else names.proc(call.proc)
            thread = threads.setdefault(call.thread, {"name": label, "node": call.node, "events": []})
            whose = names.proc(call.proc) if upcalls and call.proc else ""
            kind = call.name, " of ".join(filter(None, (call.more, names.procs(call.procs)))), call.status, whose
            number = kinds.setdefault(kind, len(kinds))
            thread["events"].append([round(call.begin, 3), round(call.end - call.begin, 3), number])

    def place(thread: int) -> tuple[int, bool, tuple[str, int], int]:
        each = threads[thread]
        return run_trace.nodes.index(each["node"]), each["name"] != "server", order[thread], thread

    order = {call.thread: _order(call.proc) for call in run_trace.calls} | {
        call.thread: ("", 0) for call in run_trace.upcalls
    }
    tracks = sorted(threads, key=place)
    index = {thread: number for number, thread in enumerate(tracks)}
    data = {
        "title": title,
        "length": round(run_trace.length, 3),
        "kinds": list(kinds),
        "tracks": [threads[thread] for thread in tracks],
        "ends": [[names.proc(proc), round(at, 3), how] for proc, (at, how) in run_trace.ends.items()],
        "collectives": [
            {
                "name": each.name,
                "of": names.procs(each.subject),
                "last": names.proc(each.last.proc),
                "late": round(each.lateness, 3),
                "status": each.status,
                "missing": [names.proc(proc) for proc in each.missing],
                "calls": [[index[call.thread], round(call.begin, 3), round(call.end, 3)] for call in each.calls],
            }
            for each in run_trace.collectives()
        ],
        "waited_for": [{**each, "proc": names.proc(each["proc"])} for each in summary["waited_for"]],
        "ranks": [{**each, "proc": names.proc(each["proc"])} for each in summary["ranks"]],
        "summary": text(summary, title, SHOWN).partition("\n")[0],
    }
    # Nothing in it may end the element that contains it.
    packed = json_module.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    template = Path(__file__).with_name("trace.html").read_text(encoding="utf-8")
    return template.replace("{{DATA}}", packed, 1)
