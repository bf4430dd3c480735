"""Proves that recorded upcalls and answers are read back as they were, answer again, and are compared rightly."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading

import pytest

from pypmix.recording import Recorder, compare, read, replay
from pypmix.recording.compare import Normal
from pypmix.recording.record import Recording, Unreadable
from pypmix.standard import attrs, ops
from pypmix.standard.errors import NotFound, NotSupported, PMIxError
from pypmix.standard.types import App, Pdata, Proc
from pypmix.standard.values import info, uint32

A, B = Proc("demo", 0), Proc("demo", 1)


class Asked:
    """An upcall that a test makes."""

    def __init__(self, op, requestor=A, uid=1000, gid=100):
        self.op, self.requestor, self.uid, self.gid = op, requestor, uid, gid
        self.answers = []

    def reply(self, result=None):
        self.answers.append(result)

    def fail(self, error):
        self.answers.append(error)


def put_to(host, *upcalls):
    for upcall in upcalls:
        host(upcall)
    return [upcall.answers for upcall in upcalls]


def answer(upcall):
    match upcall.op:
        case ops.Lookup():
            upcall.reply((Pdata(B, "k", uint32(7)),))
        case ops.Publish():
            upcall.reply()
        case ops.FenceUpcall():
            pass
        case ops.Spawn():
            raise KeyError("no such app")
        case _:
            upcall.fail(NotFound("nobody", operation="x"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "upcalls.jsonl"


PUBLISH = ops.Publish((info("k", uint32(7)),), directives=(attrs.TIMEOUT(3),))
LOOKUP = ops.Lookup(("k",))
FENCE = ops.FenceUpcall((A, B), (attrs.COLLECT_DATA(True),), b"\0data")
UNPUBLISH = ops.Unpublish(("k",))
SPAWN = ops.Spawn((App("x"),))


def record(path, *upcalls, host=answer):
    with Recorder(path) as recorder:
        wrapped = recorder.wrap(host, "n0")
        for upcall in upcalls:
            try:
                wrapped(upcall)
            except KeyError:
                upcall.fail(PMIxError("raised"))
    return read(path)


def test_what_is_recorded_is_read_back(path):
    asked = [Asked(PUBLISH), Asked(LOOKUP, B), Asked(FENCE, None, None, None), Asked(UNPUBLISH), Asked(SPAWN)]
    found = record(path, *asked).entries
    assert [(e.op, e.requestor, e.uid, e.gid, e.server) for e in found] == [
        (a.op, a.requestor, a.uid, a.gid, "n0") for a in asked
    ]
    published, looked_up, fenced, unpublished, spawned = [entry.answer for entry in found]
    assert published.result is None and published.error is None
    assert looked_up.result == (Pdata(B, "k", uint32(7)),)
    assert 0 <= looked_up.after < 5
    assert fenced is None
    assert type(unpublished.error) is NotFound and unpublished.error.detail == "nobody"
    assert spawned.raised and spawned.error.code == -1 and "no such app" in spawned.error.detail
    assert not read(path).cut


def test_the_host_and_the_server_see_what_they_would_see_without(path):
    asked = [Asked(PUBLISH), Asked(LOOKUP, B), Asked(FENCE), Asked(UNPUBLISH), Asked(SPAWN)]
    record(path, *asked)
    plain = [Asked(upcall.op, upcall.requestor) for upcall in asked]
    put_to(answer, *plain[:4])
    assert [repr(upcall.answers) for upcall in asked[:4]] == [repr(upcall.answers) for upcall in plain[:4]]
    # The server answers for a host that raises; the recorder must not have answered before.
    assert [type(error) for error in asked[4].answers] == [PMIxError]


def test_lines_stand_in_the_file_before_what_they_tell_of_happens(path):
    seen = []

    def host(upcall):
        seen.append(len(path.read_text().splitlines()))
        upcall.reply()

    class Server(Asked):
        def reply(self, result=None):
            seen.append(len(path.read_text().splitlines()))

    record(path, Server(UNPUBLISH), host=host)
    assert seen == [2, 3]


def test_a_second_answer_is_recorded_and_does_not_count(path):
    def host(upcall):
        upcall.reply(1)
        upcall.reply(2)

    (entry,) = record(path, Asked(ops.JobControl()), host=host).entries
    assert [found.result for found in entry.answers] == [1, 2]
    assert entry.answer.result == 1
    assert [json.loads(line).get("again") for line in path.read_text().splitlines()[2:]] == [None, True]


def test_a_result_that_is_none_of_the_standards_types_harms_nothing(path):
    strange = object()
    asked = Asked(UNPUBLISH)
    (entry,) = record(path, asked, host=lambda upcall: upcall.reply(strange)).entries
    assert asked.answers == [strange]
    assert entry.answer.result == Unreadable(repr(strange))
    again = Asked(UNPUBLISH)
    put_to(replay(path), again)
    assert "object object" in again.answers[0].detail


def test_answers_from_other_threads_are_whole_lines(path):
    big = ops.FenceUpcall((A,), (), os.urandom(40_000))
    threads = []

    def host(upcall):
        threads.append(threading.Thread(target=upcall.reply, args=(upcall.op.data,)))
        threads[-1].start()

    with Recorder(path) as recorder:
        wrapped = recorder.wrap(host)
        others = [threading.Thread(target=lambda: [wrapped(Asked(big)) for _ in range(20)]) for _ in range(4)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
        for thread in list(threads):
            thread.join()
    entries = read(path).entries
    assert len(entries) == 80
    assert all(entry.answer.result == big.data for entry in entries)


def test_a_file_that_cannot_be_written_harms_nobody(caplog):
    with caplog.at_level(logging.ERROR), Recorder("/dev/full") as recorder:
        asked = Asked(PUBLISH), Asked(LOOKUP)
        put_to(recorder.wrap(answer), *asked)
        assert all(upcall.answers for upcall in asked)
    assert len(caplog.records) == 1
    assert "/dev/full" in caplog.text


def test_only_the_owner_can_read_it(path):
    record(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_process_that_is_killed_leaves_what_it_was_asked(path):
    program = f"""
import os
from pypmix.recording import Recorder
from pypmix.standard import ops
class Upcall:
    op, requestor, uid, gid = ops.Unpublish(("k",)), None, None, None
    def reply(self, result=None): os.kill(os.getpid(), {signal.SIGKILL})
Recorder({str(path)!r}).wrap(lambda upcall: upcall.reply())(Upcall())
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=30, stdin=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL
    (entry,) = read(path).entries
    assert entry.op == UNPUBLISH and entry.answer is not None


def test_a_line_that_was_cut_off_is_left_out(path):
    record(path, Asked(PUBLISH), Asked(LOOKUP))
    path.write_bytes(path.read_bytes()[:-20])
    found = read(path)
    assert found.cut
    assert [entry.answer is None for entry in found.entries] == [False, True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "[]\n",
        '{"recording":2,"pypmix":"9"}\n',
        '{"recording":1}\n{"seq":1}\n',
        '{"recording":1}\n{"seq":2,"answers":1,"after":0,"result":null}\n',
        '{"recording":1}\n{"seq":1,"time":0,"server":"","op":"x","requestor":null,"uid":1,"asks":{"nspace":"a","rank":1}}\n',
    ],
)
def test_what_is_no_recording_is_a_value_error(path, text):
    path.write_text(text)
    with pytest.raises(ValueError, match="not a recording"):
        read(path)


# Replay


def test_a_replay_answers_as_it_was_recorded(path):
    record(path, Asked(PUBLISH), Asked(LOOKUP, B), Asked(FENCE, None), Asked(UNPUBLISH), Asked(SPAWN))
    host = replay(path)
    # In another order, and the fence with a requestor: servers may or may not name one of those who fence.
    answers = put_to(host, Asked(UNPUBLISH), Asked(LOOKUP, B), Asked(FENCE, B), Asked(PUBLISH), Asked(SPAWN))
    assert type(answers[0][0]) is NotFound
    assert answers[1:4] == [[(Pdata(B, "k", uint32(7)),)], [], [None]]
    assert answers[4][0].code == -1
    assert host.report() == []


def test_equal_upcalls_are_answered_in_their_order(path):
    numbers = iter(range(3))
    record(path, *[Asked(LOOKUP) for _ in range(3)], host=lambda upcall: upcall.reply(next(numbers)))
    host = replay(path)
    assert put_to(host, *[Asked(LOOKUP) for _ in range(3)]) == [[0], [1], [2]]


def test_what_does_not_match_is_reported_by_name(path):
    record(path, Asked(PUBLISH), Asked(LOOKUP))
    host = replay(path)
    other = Asked(ops.Lookup(("other",)))
    stranger = Asked(PUBLISH, B)
    put_to(host, Asked(PUBLISH), Asked(PUBLISH), other, stranger)
    assert type(other.answers[0]) is NotFound
    assert [text.partition(": Pub")[0].partition(": Look")[0] for text in host.report()] == [
        "asked, not recorded: publish of demo:0",
        "asked, not recorded: lookup of demo:0",
        "asked, not recorded: publish of demo:1",
        "recorded, not asked: lookup of demo:0",
    ]
    assert [entry.op for entry in host.left] == [LOOKUP]


def test_what_differs_from_run_to_run_does_not_matter_to_a_replay(path):
    first = ops.ClientConnected(A, 100, "5.0.1", (info("pmix.ppid", 7),))
    record(path, Asked(first), host=lambda upcall: upcall.reply())
    host = replay(path)
    assert put_to(host, Asked(first.replace(pid=200, release="7.0.0", directives=(info("pmix.ppid", 8),)))) == [[None]]


def test_a_replay_takes_the_part_of_one_server(path):
    with Recorder(path) as recorder:
        recorder.wrap(lambda upcall: upcall.reply("one"), "n0")(Asked(LOOKUP))
        recorder.wrap(lambda upcall: upcall.reply("other"), "n1")(Asked(LOOKUP))
    assert put_to(replay(path, server="n1"), Asked(LOOKUP)) == [["other"]]


# Comparison


def recorded(tmp_path, name, *upcalls) -> Recording:
    return record(tmp_path / name, *upcalls, host=lambda upcall: upcall.reply())


def differences(tmp_path, first, second, normal=None):
    found = compare(recorded(tmp_path, "1", *first), recorded(tmp_path, "2", *second), normal)
    return [(difference.op, difference.where) for difference in found]


def test_the_same_upcalls_do_not_differ_whatever_the_order_of_clients(tmp_path):
    first = Asked(PUBLISH, A), Asked(LOOKUP, B), Asked(FENCE, A), Asked(UNPUBLISH, A)
    second = Asked(FENCE, B), Asked(PUBLISH, A), Asked(UNPUBLISH, A), Asked(LOOKUP, B)
    assert differences(tmp_path, first, second) == []


def test_the_order_of_what_a_client_asks_matters(tmp_path):
    found = differences(tmp_path, [Asked(PUBLISH), Asked(LOOKUP)], [Asked(LOOKUP), Asked(PUBLISH)])
    assert [where for _, where in found] == ["order"]


def test_the_order_in_which_clients_register_means_nothing(tmp_path):
    one, other = ops.RegisterEvents((-7,)), ops.RegisterEvents((-111,))
    first = Asked(one, A), Asked(other, A), Asked(one, B), Asked(other, B)
    second = Asked(one, A), Asked(one, B), Asked(other, A), Asked(other, B)
    assert differences(tmp_path, first, second) == []
    assert differences(tmp_path, first, second[:3]) == [("register_events", "upcall")]


@pytest.mark.parametrize("swapped", [False, True])
def test_an_upcall_that_only_one_has(tmp_path, swapped):
    both = [Asked(PUBLISH), Asked(LOOKUP)], [Asked(PUBLISH), Asked(UNPUBLISH), Asked(LOOKUP)]
    found = differences(tmp_path, *(both[::-1] if swapped else both))
    assert found == [("unpublish", "upcall")]


CONTENTS = [
    (PUBLISH, PUBLISH.replace(range=2), [("publish", "range")]),
    (PUBLISH, PUBLISH.replace(directives=()), [("publish", "directives pmix.timeout")]),
    (PUBLISH, PUBLISH.replace(directives=(info("pmix.timeout", uint32(3)),)), [("publish", "directives pmix.timeout")]),
    (PUBLISH, PUBLISH.replace(directives=PUBLISH.directives * 2), [("publish", "directives pmix.timeout")]),
    (
        PUBLISH.replace(infos=(info("a", 1), info("b", 1))),
        PUBLISH.replace(infos=(info("b", 1), info("a", 1))),
        [("publish", "infos, order")],
    ),
    (FENCE, FENCE.replace(procs=(B, A), data=b""), [("fence", "procs"), ("fence", "data")]),
]


@pytest.mark.parametrize(("first", "second", "expected"), CONTENTS)
def test_contents_that_differ(tmp_path, first, second, expected):
    assert differences(tmp_path, [Asked(first)], [Asked(second)]) == expected


def test_whether_a_fence_has_a_requestor(tmp_path):
    assert differences(tmp_path, [Asked(FENCE, None)], [Asked(FENCE, A)]) == [("fence", "requestor")]


def test_what_is_asked_in_nobodys_name(tmp_path):
    found = differences(tmp_path, [Asked(PUBLISH), Asked(LOOKUP, None)], [Asked(PUBLISH), Asked(LOOKUP)])
    assert found == [("lookup", "requestor")]


def test_names_that_stand_for_others(tmp_path):
    normal = Normal({"run-*": "run", "x": "run"})
    first = ops.Connect((Proc("run-1", 0),), (info("p", [Proc("run-7", 1)]),))
    second = ops.Connect((Proc("x", 0),), (info("p", [Proc("run-8", 1)]),))
    assert differences(tmp_path, [Asked(first)], [Asked(second)], normal) == []
    assert differences(tmp_path, [Asked(first)], [Asked(second)])


def test_a_difference_reads_well(tmp_path):
    found = compare(
        recorded(tmp_path, "1", Asked(PUBLISH)), recorded(tmp_path, "2", Asked(PUBLISH.replace(directives=())))
    )
    assert [str(difference) for difference in found] == ["publish, directives pmix.timeout: int(3) | nothing"]


def test_refusals_keep_their_kind(path):
    record(path, Asked(UNPUBLISH), host=lambda upcall: upcall.fail(NotSupported("no")))
    again = Asked(UNPUBLISH)
    put_to(replay(path), again)
    assert type(again.answers[0]) is NotSupported
