"""Every pairing: process sets are known, watched and used alike, those of the command line and later ones."""

from __future__ import annotations

import re
import sys

import pytest

from lib import machine, pairings
from lib.pairings import Part
from pypmix import Proc

EXISTS, NOT_FOUND, BAD_PARAM, TIMEOUT = -11, -46, -27, -24
SETS = {"ocean": [0, 1], "ice": [2]}
PSETS = {"ocean": 2, "ice": 1}


@pytest.mark.promise("pset: launch", "pset: query", "pset: names")
@pytest.mark.needs("process sets")
def test_what_every_process_knows_of_them(run):
    for seen in run("psets.known", ranks=4, psets=PSETS):
        others, both = seen.pop("others")
        nspace = both[0].nspace
        assert others == (Proc(nspace, 2), Proc(nspace, 3)) and both == tuple(Proc(nspace, rank) for rank in range(3))
        is_key_error, text = seen.pop("unknown")
        assert is_key_error and "acme.gone" in text and "ocean, ice" in text
        assert seen == {
            "sets": SETS,
            "own": True,
            "names": [["ocean"], ["ocean"], ["ice"], None],
            "value": ("ocean",),
            "of": [("ocean",), ("ocean",), ("ice",), ()],
            "number": 2,
            "asked": ["ocean", "ice"],
            "members": {"ice": [2]},
            "none": None,
        }


@pytest.mark.servers("python-server*", "native-server-*")
def test_the_applications_of_a_job(run):
    assert run("psets.app_info", ranks=4, psets=PSETS) == [
        [0, 0, 2, 0, "ocean"],
        [0, 1, 2, 0, "ocean"],
        [1, 0, 1, 2, "ice"],
        [2, 0, 1, 3, None],
    ]


@pytest.mark.needs("process sets")
def test_a_set_is_accepted_where_procs_are(run):
    assert run("psets.used", ranks=3, psets=PSETS) == [["of 0", "of 1"], ["of 0", "of 1"], ["of 2"]]


@pytest.mark.promise("pset: group")
@pytest.mark.needs("process sets", "groups")
def test_a_group_made_from_a_set(run):
    assert run("psets.grouped", ranks=3, psets=PSETS) == [
        ((0, [0, 1], True), [0, 1]),
        ((1, [0, 1], True), [0, 1]),
        (None, [0, 1]),
    ]


@pytest.mark.promise("pset: define")
@pytest.mark.needs("process sets")
def test_sets_are_seen_to_come_early_or_late(run):
    both = [("define", "ice", (2,)), ("define", "ocean", (0, 1))]
    assert run("psets.watched", ranks=3, psets=PSETS) == [[both, TIMEOUT, both, TIMEOUT]] * 3


@pytest.mark.promise("pset: define", "pset: names")
@pytest.mark.needs("process sets", "process sets by job control")
def test_a_set_that_comes_later(run):
    for rank, (before, seen, names, sets, refused) in enumerate(run("psets.later", ranks=3, psets={"ocean": 2})):
        assert before == (["ocean"] if rank < 2 else None)
        assert seen == ("define", "late", [1, 2])
        assert names == [["ocean"], ["ocean", "late"], ["late"]]
        assert sets == {"ocean": [0, 1], "late": [1, 2]}
        assert refused == ([EXISTS, EXISTS, NOT_FOUND, BAD_PARAM] if rank == 0 else [])


@pytest.mark.clients("python-client")
@pytest.mark.servers("python-server", "native-server-*")
def test_a_tool_knows_them(run):
    (seen, *_) = run("psets.by_tool", ranks=3, psets=PSETS)
    assert seen == (SETS, ["ocean"], [("define", "ocean"), ("define", "ice"), ("define", "late")])


@pytest.mark.promise("pset: launch", "pset: names")
@pytest.mark.needs("process sets")
def test_the_sets_of_a_spawned_job(run):
    (found, *_) = run("psets.spawned", ranks=2, psets={"ocean": 2}, gone=False)
    assert found[0] == (
        "ocean",
        [("define", "sea"), ("define", "wind")],
        (True, True),
        [["wind"], ["wind"], ["sea"]],
    )


@pytest.mark.promise("pset: delete")
@pytest.mark.needs("process sets")
def test_sets_go_with_their_job(run):
    (found, *_) = run("psets.spawned", ranks=2, psets={"ocean": 2}, gone=True)
    again, went, kept = found[1]
    assert again == EXISTS
    assert went == [("delete", "sea", 1), ("delete", "wind", 2)] and kept == ["ocean"]


@pytest.mark.promise("pset: delete")
@pytest.mark.needs("process sets")
def test_a_job_that_has_been_waited_for_has_no_sets(run):
    assert run("psets.waited", ranks=2, psets={"ocean": 2})[0] == ["ocean"]


@pytest.mark.needs("process sets")
def test_a_set_keeps_its_members(run):
    job = run.job("psets.ended", ranks=3, psets={"ocean": 2})
    assert job.exit_code == 0, job.report()
    assert [rank.result for number, rank in sorted(job.ranks.items()) if number] == [(2, [0, 1])] * 2


@pytest.mark.forms("sync")
@pytest.mark.needs("process sets")
def test_the_example(run):
    command = [sys.executable, str(machine.ROOT / "docs" / "examples" / "psets.py")]
    parts = [Part(2, command, options=("--pset", "ocean")), Part(1, command, options=("--pset", "ice"))]
    line = pairings.command_line(run.server, [*parts, Part(1, command)])
    job = run.begin(line, environment=pairings.client_environment(run.client)).wait()
    assert job.exit_code == 0, job.report()
    for text in (
        r"rank 0 knows \{'ocean': 2 procs, 'ice': 1 proc\}",
        r"rank 0 has met \S+:1 in ocean, without \S+:2-3",
        r"rank 1 has met \S+:0 in ocean, without \S+:2-3",
        r"rank 2 has met no others in ice, without \S+:0-1,3",
        r"rank 3 goes on by itself",
    ):
        assert re.search(text, job.stdout), job.report()


def test_where_there_are_none(run):
    assert run("psets.empty", ranks=2) == [({}, "{}", "none")] * 2


def test_a_lone_process_has_none(alone):
    assert alone("psets.empty") == ({}, "{}", "none")
