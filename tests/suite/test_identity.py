"""Every pairing: a process knows itself and its job from the start, opens and closes as often as it likes."""

from __future__ import annotations

import socket

import pytest

import pypmix
from pypmix import NotFound, NotInitialized, Proc, Unreachable


@pytest.mark.needs("one node", "the node's own name", "the procs of the node")
def test_hello(run):
    seen = run("identity.hello", ranks=3)
    nspace = seen[0]["nspace"]
    procs = [Proc(nspace, rank) for rank in range(3)]
    for rank, view in enumerate(seen):
        assert view["proc"] == Proc(nspace, rank)
        assert (view["nspace"], view["rank"], view["size"]) == (nspace, rank, 3)
        assert view["procs"] == procs
        assert view["last"] == procs[-1]
        assert view["hostname"] == socket.gethostname()
        assert view["local_procs"] == tuple(procs)
        assert view["singleton"] is False
        assert view["open"] is True
    assert sorted(view["local_rank"] for view in seen) == [0, 1, 2]


@pytest.mark.needs("the procs of the node")
def test_the_engine_that_was_asked_for_is_the_one_that_runs(run):
    for view in run("identity.hello", ranks=2):
        name, _, release = run.client.partition("-")
        assert view["engine"] == name
        if name == "native":
            assert view["release"].startswith(release)
            assert view["library"]


@pytest.mark.needs("one node", "the number of apps")
def test_job_info(run):
    keys = ("JOB_SIZE", "UNIV_SIZE", "MAX_PROCS", "JOB_NUM_APPS", "NUM_NODES", "LOCAL_SIZE", "LOCAL_PEERS")
    for view in run("identity.job_info", ranks=3, keys=keys):
        job = view["job"]
        assert job["JOB_SIZE"] == 3
        assert job["UNIV_SIZE"] > 0
        assert job["MAX_PROCS"] > 0
        assert (job["JOB_NUM_APPS"], job["NUM_NODES"]) == (1, 1)
        assert job["LOCAL_SIZE"] == view["node"]["LOCAL_SIZE"] == 3
        for peers in job["LOCAL_PEERS"], view["node"]["LOCAL_PEERS"]:
            assert sorted(peers.split(",")) == ["0", "1", "2"]
        assert sorted(known["LOCAL_RANK"] for known in view["ranks"]) == [0, 1, 2]
        for known in view["ranks"]:
            assert known["NODE_RANK"] == known["LOCAL_RANK"]
            assert (known["APPNUM"], known["HOSTNAME"]) == (0, socket.gethostname())


@pytest.mark.needs("job info of apps")
def test_app_info(run):
    for view in run("identity.app_info", ranks=3):
        assert view == {"APP_SIZE": 3, "APP_RANK": [0, 1, 2]}


@pytest.mark.needs("open again")
def test_open_and_close_again_and_again(run):
    assert run("identity.cycle", ranks=2, times=3) == [[0, 1, 2]] * 2


def test_use_after_close_says_so(run):
    for errors in run("identity.used_after_close", ranks=1):
        assert errors.pop("open after finalize") is False
        assert set(errors) == {"fence", "commit", "get", "put", "rank"}
        for name, error in errors.items():
            assert isinstance(error, NotInitialized), name
            assert "closed" in str(error)


def test_a_lone_process_is_a_job_of_its_own(alone):
    expected = {"singleton": True, "rank": 0, "size": 1, "own": 5, "missing": "absent"}
    assert alone("identity.without_server") == expected


def test_a_process_that_needs_a_server_is_told_that_there_is_none(alone):
    error = alone("identity.required_server")
    assert isinstance(error, Unreachable)
    assert "pypmix run" in str(error)


@pytest.mark.clients("python-client")
def test_a_server_that_is_not_there_is_unreachable(alone):
    environment = {
        "PMIX_NAMESPACE": "gone",
        "PMIX_RANK": "0",
        "PMIX_SERVER_URI41": "server.0;tcp4://127.0.0.1:1",
        "PMIX_VERSION": "5.0.11",
        "PMIX_SECURITY_MODE": "native",
        "PMIX_GDS_MODULE": "hash",
        "PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_NON_DESC",
    }
    error = alone("identity.refused", environment=environment)
    assert isinstance(error, Unreachable)
    assert isinstance(error, pypmix.PMIxError)
    assert "127.0.0.1" in str(error)


def test_keys_of_the_job_need_no_proc(run):
    for size, other, local_rank, error in run("identity.without_a_proc", ranks=2):
        assert (size, other) == (2, 2)
        assert local_rank in (0, 1)
        assert isinstance(error, NotFound)
