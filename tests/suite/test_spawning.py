"""Every pairing: a job that a rank spawns runs as asked, knows its parent, and is known to it until its end."""

from __future__ import annotations

import pytest

from pypmix import NotFound, PMIxError, Unreachable


def test_a_job_is_started_as_asked(run, tmp_path):
    (result, origin), (nothing, _) = run("spawning.started", ranks=2, cwd=str(tmp_path))
    assert nothing is None
    assert origin == (False, None)
    nspace, size, ranks, nspaces = result["job"]
    assert nspace != result["own"]
    assert (size, ranks, nspaces, result["read"]) == (2, [0, 1], {nspace}, 2)
    for seen in result["child"]:
        assert (seen["nspace"], seen["size"], seen["peers"]) == (nspace, 2, [5000, 5001])
        assert (seen["arguments"], seen["cwd"]) == (["child", "x y", ""], str(tmp_path))
        assert (seen["variable"], seen["inherited"], seen["outer"]) == ("a b=c", True, None)


@pytest.mark.needs("the parent of a spawned job")
def test_a_child_knows_its_parent(run, tmp_path):
    (result, _), _ = run("spawning.started", ranks=2, cwd=str(tmp_path))
    for seen in result["child"]:
        assert seen["spawned"]
        assert seen["parent"] == [result["own"], 0]


def test_several_applications_make_one_job(run):
    assert run("spawning.two_apps", ranks=2)[0] == (
        3,
        [
            (["child", "first"], "1", 2, 3),
            (["child", "first"], "1", 2, 3),
            (["child", "second"], "2", 2, 3),
        ],
    )


@pytest.mark.needs("the parent of a spawned job")
def test_all_ranks_spawn_at_once(run):
    found = run("spawning.from_all", ranks=3)
    assert len({nspace for nspace, _, _ in found}) == 3
    assert [(nspace == own, parent) for nspace, own, parent in found] == [(True, 0), (True, 1), (True, 2)]


def test_the_parent_reads_what_its_children_have_put(run):
    first, second, missing = run("spawning.data_of_the_child", ranks=1)[0]
    assert (first, second) == (5000, 5001)
    assert isinstance(missing, NotFound)


@pytest.mark.forms("sync")
@pytest.mark.needs("data of a spawned job, early")
def test_the_parent_asks_before_they_have_put_anything(run):
    run.keeps("data of a spawned job, early", ranks=2)


@pytest.mark.needs("the end of a spawned job")
def test_the_end_of_a_job_is_waited_for(run):
    assert run("spawning.waited", ranks=2, code=0) == [("OperationTimeout", 0, 0), None]


@pytest.mark.needs("a spawned job that fails harms no other", "the end of a spawned job")
def test_a_job_that_fails_has_an_exit_code_and_so_has_the_launcher(run):
    job = run.job("spawning.waited", ranks=2, code=3)
    assert {rank: left.result for rank, left in job.ranks.items()} == {0: ("OperationTimeout", 3, 3), 1: None}
    assert job.exit_code == 3, job.report()


@pytest.mark.needs("the end of a spawned job")
def test_jobs_end_in_any_order(run):
    assert run("spawning.waited_for_several", ranks=1) == [[0, 0, 0]]


@pytest.mark.needs("the end of a spawned job", "a spawned job is killed")
def test_a_job_is_killed(run):
    job = run.job("spawning.ended_early", ranks=2)
    assert job.ranks[0].result < 15, job.report()


@pytest.mark.needs("a spawn that fails is reported")
def test_what_cannot_be_started(run):
    found = run("spawning.failures", ranks=2)[0]
    for name in ("program", "directory"):
        assert isinstance(found[name], PMIxError), name
    assert found["then"] == (1, 1)


@pytest.mark.needs("the parent of a spawned job")
def test_children_of_children(run):
    child, grandchild, seen = run("spawning.children_of_children", ranks=1)[0]
    assert child != grandchild
    assert [(each["nspace"], each["parent"]) for each in seen] == [(grandchild, [child, 0])] * 2


def test_a_lone_process_cannot_spawn(alone):
    error, spawned, parent, supported = alone("spawning.lonely")
    assert isinstance(error, Unreachable)
    assert (spawned, parent, supported) == (False, None, False)
