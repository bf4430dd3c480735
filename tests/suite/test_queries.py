"""Every pairing: what can be asked about jobs, procs and nodes has the same answer everywhere."""

from __future__ import annotations

import pytest

from pypmix import NotFound, NotSupported, PMIxError, Proc, Unreachable
from pypmix.types import uint32


@pytest.mark.needs("namespaces by query")
def test_what_every_process_may_ask(run):
    for seen in run("queries.known", ranks=3):
        assert isinstance(seen.pop("unknown"), NotFound | NotSupported)
        assert seen == {
            "own nspace": True,
            "size": 3,
            "size by nspace": 3,
            "size by proc": 3,
            "default": "fallback",
        }


@pytest.mark.needs("namespaces by query")
def test_several_keys(run):
    for found, nothing in run("queries.several", ranks=2):
        assert found == (["pmix.job.size", "pmix.qry.ns"], {"acme.gone", "acme.nor.this"}, 2, True)
        assert nothing == ({}, {"acme.gone", "acme.nor.this"})


@pytest.mark.needs("namespaces by query")
def test_queries_with_qualifiers_of_their_own(run):
    for keys, (size,) in run("queries.one_to_one", ranks=2):
        assert keys == ["pmix.qry.ns", "pmix.job.size"]
        assert (size.key, size.value) == ("pmix.job.size", uint32(2))


@pytest.mark.needs("one node")
def test_tables_of_procs(run):
    for rows, ranks, executable, unknown in run("queries.tables", ranks=3):
        assert rows == [(True, True, True)] * 3
        assert ranks == ([0, 1, 2], [0, 1, 2])
        assert executable
        assert isinstance(unknown, PMIxError)


@pytest.mark.needs("one node")
def test_peers_and_nodes(run):
    for seen in run("queries.resolved", ranks=3):
        procs = seen["peers"]
        nspace = procs[0].nspace
        assert procs == seen["own node"] == [Proc(nspace, rank) for rank in range(3)]
        assert (seen["nodes"], seen["everything"], seen["all nodes"]) == (True, True, True)
        assert seen["elsewhere"] == ()
        assert isinstance(seen["nobody"], NotFound)


@pytest.mark.needs("the nodes of no job")
def test_the_nodes_of_an_unknown_job(run):
    assert all(isinstance(error, NotFound) for error in run("queries.nodes_of_nothing", ranks=2))


@pytest.mark.needs("attribute support")
def test_what_the_client_supports(run):
    assert run("queries.support", ranks=2) == [(True, True)] * 2


def test_mistakes_are_errors_at_the_call(run):
    kinds = {
        "empty key": "ValueError",
        "long key": "ValueError",
        "no key": "TypeError",
        "no keys": "ValueError",
        "no query": "TypeError",
        "empty query": "ValueError",
        "no nspace": "TypeError",
        "long nspace": "ValueError",
        "no node": "TypeError",
        "node with NUL": "ValueError",
    }
    assert run("queries.refused", ranks=2) == [(kinds, 2)] * 2


def test_a_lone_process_knows_what_it_knows(alone):
    seen = alone("queries.lonely")
    assert isinstance(seen.pop("namespaces"), Unreachable)
    assert seen.pop("several") == {"pmix.job.size": 1}
    assert seen == {"size": 1, "peers": True, "supports": [True] * 3}
