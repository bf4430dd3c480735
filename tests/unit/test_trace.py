"""The trace of a job: its file, which requests were one collective, and its summary."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pypmix.extras.commands.trace import summarize, text
from pypmix.extras.tracing.calls import Call, collectives, expand, text_of
from pypmix.extras.tracing.node import PIECE, pieces, unpack
from pypmix.extras.tracing.read import Trace, read
from pypmix.extras.tracing.write import AT_ONCE, FORMAT, TraceFile, status_text
from pypmix.standard import statuses
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.types import RANK_WILDCARD, Proc

JOBS = {"job@1": 3}
EVERYBODY = ("fence", (Proc("job@1", RANK_WILDCARD),), "")


def fence(rank: int, begin: float, end: float, status: str = "", node: str = "n0") -> Call:
    return Call(f"job@1:{rank}", node, "fence", "job@1:*", "", status, begin, end, rank + 1)


def seen(calls: list[Call]) -> list[tuple[list[str], str, float, str, list[str]]]:
    return [
        (
            [call.proc[-1] for call in each.calls],
            each.last.proc[-1],
            each.lateness,
            each.status,
            [proc[-1] for proc in each.missing],
        )
        for each in collectives(calls, JOBS)
    ]


def test_fences_of_the_same_procs_are_told_apart() -> None:
    calls = [fence(0, 0, 31), fence(1, 10, 32), fence(2, 30, 33)]
    again = [fence(0, 40, 61), fence(2, 41, 62), fence(1, 60, 61)]
    assert seen(calls + again) == [(["0", "1", "2"], "2", 20, "", []), (["0", "2", "1"], "1", 19, "", [])]


def test_a_rank_that_comes_after_the_answer_calls_another_fence() -> None:
    calls = [fence(0, 0, 10, "ERR_TIMEOUT"), fence(1, 1, 10, "ERR_TIMEOUT"), fence(2, 20, 30, "ERR_TIMEOUT")]
    assert [[call.proc[-1] for call in each.calls] for each in collectives(calls)] == [["0", "1"], ["2"]]


def test_other_procs_and_other_groups_are_other_collectives() -> None:
    some = Call("job@1:0", "n0", "fence", "job@1:0-1", "", "", 0, 9, 1)
    groups = [Call("job@1:0", "n0", "group_construct", "job@1:0", name, "", 0, 9, 1) for name in "ab"]
    get = Call("job@1:0", "n0", "get", "job@1:1", "key", "", 0, 9, 1)
    assert len(collectives([some, fence(1, 1, 9), *groups, get])) == 4


def test_a_rank_that_did_not_come_is_named() -> None:
    assert seen([fence(0, 0, 100, "unanswered"), fence(1, 3, 100, "unanswered")]) == [
        (["0", "1"], "1", 3, "unanswered", ["2"])
    ]
    # Rank 2 called, and was killed while it waited.
    calls = [fence(2, 0, 5, "unanswered"), fence(0, 1, 8, "ERR_PARTIAL_SUCCESS"), fence(1, 2, 8, "ERR_PARTIAL_SUCCESS")]
    assert seen(calls) == [(["2", "0", "1"], "1", 1, "ERR_PARTIAL_SUCCESS", [])]


def test_nodes_whose_clocks_differ_by_more_than_a_fence_takes() -> None:
    here = [fence(0, at, at + 10) for at in (0, 20, 40)]
    there = [fence(1, at, at + 10, node="n1") for at in (1020, 1040, 1060)]
    found = collectives(here + there)
    assert [[call.begin for call in each.calls] for each in found] == [[0, 1020], [20, 1040], [40, 1060]]


def test_a_fence_that_one_node_has_not_seen() -> None:
    here = [fence(0, at, at + 10) for at in (0, 20, 40)]
    there = [fence(1, at, at + 10, node="n1") for at in (1, 41)]
    assert [len(each.calls) for each in collectives(here + there)] == [2, 1, 2]


def test_procs_as_text_and_back() -> None:
    procs = [Proc("b", 3), Proc("a", 0), Proc("a", 1), Proc("a", 2), Proc("a", 7)]
    assert text_of(procs) == "a:0-2,7 b:3"
    assert expand("a:0-2,7 b:3", {}) == ["a:0", "a:1", "a:2", "a:7", "b:3"]
    assert text_of([Proc("a", RANK_WILDCARD)]) == "a:*"
    assert expand("a:* c:*", {"a": 2}) == ["a:0", "a:1"]


def example() -> Trace:
    calls = [
        Call("job@1:0", "n0", "job_info", "", "", "", 0, 1000, 1),
        Call("job@1:1", "n0", "job_info", "", "", "", 0, 1000, 2),
        fence(0, 2000, 9000),
        fence(1, 8000, 9000),
        Call("job@1:0", "n0", "get", "job@1:1", "key", "", 9500, 10000, 1),
        Call("job@1:0", "n0", "get", "job@1:*", "pmix.job.size", "", 9600, 9700, 1),
        Call("job@1:0", "n0", "fence", "job@1:*", "", "unanswered", 11000, 12000, 1),
    ]
    upcalls = (Call("job@1:0", "n0", "client_connected", "", "", "", 0, 100, 9),)
    ends = {"job@1:1": (12000.0, "ended by signal 9 (SIGKILL)")}
    return Trace(1.0, {"job@1": 2}, ("n0",), tuple(calls), upcalls, ends, 0)


def test_the_summary() -> None:
    found = summarize(example())
    assert [found[name] for name in ("requests", "upcalls", "length")] == [7, 1, 12.0]
    assert [(each["took"], each["last"], each["late"], each["missing"]) for each in found["collectives"]] == [
        # One that failed comes before those that took longer.
        (1.0, "job@1:0", 0.0, ["job@1:1"]),
        (7.0, "job@1:1", 6.0, []),
    ]
    assert found["waited_for"] == [{"proc": "job@1:1", "last": 1, "late": 6.0, "missed": 1, "gets": 1, "get_time": 0.5}]
    first, second = found["ranks"]
    # Requests that are under way together count once.
    assert (first["time"], first["requests"], first["unanswered"]) == (9.5, 7 - 2, 1)
    assert first["share"] == round(9.5 / 12, 4)
    assert first["operations"] == {"fence": 8.0, "job_info": 1.0, "get": 0.5}
    assert (second["time"], second["end"]) == (2.0, "ended by signal 9 (SIGKILL)")


def test_the_summary_for_people() -> None:
    assert text(summarize(example()), "run.json", 1) == (
        "run.json: 2 procs on 1 node, 12.0 ms; 7 requests, 2 collectives, 1 upcall\n"
        "\n"
        "Slowest collectives\n"
        "OPERATION  OF         AT       TOOK    LAST    LATE BY  STATUS\n"
        "fence      all ranks  0.011 s  1.0 ms  rank 0  0 µs     unanswered, without rank 1\n"
        "\n"
        "Waited for\n"
        "PROC    LAST IN  LATE BY  MISSED  GETS  TIME OF GETS\n"
        "rank 1  1        6.0 ms   1       1     500 µs\n"
        "\n"
        "Time in PMIx\n"
        "PROC    NODE  REQUESTS  TIME    SHARE  MOST OF IT\n"
        "rank 0  n0    5         9.5 ms  79%    fence 8.0 ms, job_info 1.0 ms, get 500 µs\n"
        "\n"
        "Tables show 1 rows at most; --all shows all.\n"
    )


class Session:
    """A trace file that is given what a node has noted, at times since its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = TraceFile(str(path))
        self.known = 0

    def add(self, *requests: tuple[int, int, int], what=EVERYBODY, status: int | None = 0) -> None:
        kinds = [(Proc("job@1", rank), what, status) for rank, _, _ in requests]
        rows = [each for number, (_, *times) in enumerate(requests) for each in (self.known + number, *times)]
        self.known += len(requests)
        batch = (kinds, rows), [], self.file._begin
        self.file.add("n0", batch)

    def read(self) -> Trace:
        return read(str(self.path))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "run.json")


def test_the_file_is_whole_after_each_write(session: Session) -> None:
    assert session.read().calls == ()
    session.add((0, 1_000, 5_500), (1, 4_001, 5_600))
    session.file._collect(AT_ONCE)
    assert [(call.proc, call.begin, call.end) for call in session.read().calls] == [
        ("job@1:0", 1.0, 5.5),
        ("job@1:1", 4.001, 5.6),
    ]
    session.add((0, 6_000, 7_000), status=statuses.ERR_TIMEOUT)
    session.add((1, 6_500, 7_000), status=None)
    session.file.close()
    session.file.close()
    found = session.read()
    assert [call.status for call in found.calls] == ["", "", "ERR_TIMEOUT", "unanswered"]
    assert found.nodes == ("n0",)


def test_more_than_is_shown_at_once_is_shown_at_the_end(session: Session) -> None:
    session.add(*[(0, 10 * number, 10 * number + 5) for number in range(AT_ONCE + 7)])
    session.file._collect(AT_ONCE)
    assert len(session.read().calls) == AT_ONCE
    session.file.close()
    assert len(session.read().calls) == AT_ONCE + 7


def test_what_does_not_fit_is_counted(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pypmix.extras.tracing.write.MOST", 3)
    session.add(*[(0, 10 * number, 10 * number + 5) for number in range(5)])
    session.file.close()
    found = session.read()
    assert (len(found.calls), found.left_out) == (3, 2)
    assert "2 later requests and upcalls are not in the file" in text(summarize(found), "run.json", None)


def test_what_waits_to_be_written_is_bounded_too(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy job adds requests faster than they are written while it runs."""
    monkeypatch.setattr("pypmix.extras.tracing.write.MOST", 3)
    upcall = (None, ("publish", (), ""), 0), 1, 2
    session.add((0, 10, 15))
    session.file.add("n0", (([], []), [upcall] * 7, session.file._begin))
    session.add(*[(0, 10 * number, 10 * number + 5) for number in range(2, 7)])
    held = {name: len(value) for name, value in vars(session.file).items() if hasattr(value, "__len__")}
    for _ in range(9):
        session.add(*[(0, 10 * number, 10 * number + 5) for number in range(7, 12)])
    assert {name: len(value) for name, value in vars(session.file).items() if hasattr(value, "__len__")} == held
    session.file.close()
    found = session.read()
    assert (len(found.calls), len(found.upcalls), found.left_out) == (1, 2, 5 + 5 + 45)


def end_of(number: int, size: int = 2):
    """A job, and a rank of it that has ended."""
    job = SimpleNamespace(nspace=f"job@{number}", job=SimpleNamespace(size=size))
    rank = SimpleNamespace(fate="", signum=0, code=0, proc=Proc(job.nspace, 0), node=SimpleNamespace(hostname="n0"))
    return job, rank


def test_a_write_costs_no_more_after_many_jobs(session: Session) -> None:
    """The end of the file is written again each time."""
    session.file._collect(AT_ONCE)
    before = len(session.file._tail)
    for number in range(1, 1001):
        session.file.rank_ended(*end_of(number))
    session.file._collect(AT_ONCE)
    assert len(session.file._tail) == before
    assert session.read().jobs == {f"job@{number}": 2 for number in range(1, 1001)}


def test_the_ends_of_ranks_are_bounded(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pypmix.extras.tracing.write.MOST_ENDS", 5)
    for number in range(1, 10):
        session.file.rank_ended(*end_of(number))
        session.file._note_job(f"alone@{number}", 1)
    assert (len(session.file._tracks), len(session.file._jobs)) == (5, 5)
    session.file.close()
    assert len(session.read().ends) == 5


def test_a_trace_of_the_first_format_can_be_read(session: Session) -> None:
    session.file.close()
    text = session.path.read_text().replace('"format": 2', '"format": 1, "jobs": {"job@1": 3}')
    session.path.write_text(text)
    assert session.read().jobs == {"job@1": 3}


def test_events_of_a_thread_nest(session: Session) -> None:
    """Requests that overlap are on threads of their own, all with the name of the rank."""
    session.add((0, 2_000, 3_000), (0, 1_000, 4_000), (0, 3_500, 5_000), (0, 5_000, 6_000), what=("get", (), "a%b"))
    session.file.close()
    events = json.loads(session.path.read_text())["traceEvents"]
    threads = [event["tid"] for event in events if event["ph"] == "X"]
    assert threads == [1, 2, 1, 1]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == ["rank 0", "rank 0"]
    assert {event["args"]["key"] for event in events if event["ph"] == "X"} == {"a%b"}


def test_arrows_lead_from_the_last_call_to_those_that_it_released(session: Session) -> None:
    session.add((0, 1_000, 9_000), (2, 8_000, 9_001), (1, 2_000, 9_002))
    session.file.close()
    events = json.loads(session.path.read_text())["traceEvents"]
    spans = {event["tid"]: event for event in events if event["ph"] == "X" and event["cat"] == "collective"}
    arrows = [(event["ph"], event["tid"], event["id"]) for event in events if event.get("cat") == "release"]
    assert arrows == [("s", 2, "0.0"), ("f", 1, "0.0"), ("s", 2, "0.1"), ("f", 3, "0.1")]
    for event in events:
        if event.get("cat") == "release":
            span = spans[event["tid"]]
            assert span["ts"] <= event["ts"] < span["ts"] + span["dur"]
    (whole,) = [event for event in events if event.get("cat") == "together"]
    assert whole["args"] == {"of": "job@1:*", "came": 3, "last": "job@1:2", "late_ms": 0.006, "spread_ms": 0.007}


@pytest.mark.parametrize(("content", "said"), [
    ("", "is not a trace"),
    ("[]", "is not a trace"),
    ('{"traceEvents":[]}', "is not a trace"),
    (json.dumps({"traceEvents": [], "otherData": {"format": FORMAT + 1, "pypmix": "x"}}), "of another pypmix: x"),
    (json.dumps({"traceEvents": [{"ph": "X"}], "otherData": {"format": FORMAT, "jobs": {}}}), "is incomplete"),
    (json.dumps({"traceEvents": [{"ph": "M", "tid": None}], "otherData": {"format": FORMAT}}), "incomplete: TypeError"),
])  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=said):
        read(str(path))


def test_what_a_daemon_tells_arrives_as_it_was() -> None:
    kinds = [(Proc("job@1", 0), EVERYBODY, 0), (Proc("job@1", 1), ("get", (Proc("job@1", 0),), "key"), None)]
    rows = [each for number in range(PIECE + 3) for each in (number % 2, number, number + 5)]
    upcalls = [((None, ("publish", (), ""), -46), 1, 2)]
    found = [unpack(piece) for piece in pieces(((kinds, rows), upcalls, 17))]
    assert len(found) == 2
    assert [each for (some, _), _, _ in found for each in some] == kinds
    assert [each for (_, some), _, _ in found for each in some] == rows
    assert [each for _, some, _ in found for each in some] == upcalls
    assert {ahead for _, _, ahead in found} == {17}
    assert list(pieces((([], []), [], 17))) == []


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"[[],[],[[]],0]", b'[[],["a",1,2],[],0]', b"[[],[0,1],[],0]", b"[[],[],[],null]", b"{}"]
)
def test_anything_else_that_a_daemon_tells_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        unpack(data)


def test_statuses_have_their_names() -> None:
    named = [status_text(status) for status in (0, None, statuses.ERR_TIMEOUT, statuses.GROUP_CONSTRUCT_ABORT)]
    assert named == ["", "unanswered", "ERR_TIMEOUT", "GROUP_CONSTRUCT_ABORT"]


def test_a_trace_stays_whole_where_its_file_cannot_grow(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.add((0, 1_000, 5_500), (1, 4_001, 5_600))
    session.file._collect(AT_ONCE)
    whole = session.path.read_bytes()
    write = os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        room = len(whole) - at
        if room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, bytes(data)[:room], at)

    monkeypatch.setattr(os, "pwrite", full)
    session.add((0, 6_000, 7_000))
    session.file.close()
    assert session.path.read_bytes() == whole
    assert len(session.read().calls) == 2
