"""Participants of a connect or disconnect end before the others call, or while these wait for them."""

from __future__ import annotations

import pytest

from lib import pairings, promises

pytestmark = pytest.mark.forms("sync")
proven = pytest.mark.servers(*promises.PROVEN_ON)

HOW = pytest.mark.parametrize("how", ["kill", "finalize"])


def seen(run, options=(), **arguments):
    """Return what those have seen who go on when rank 1 ends, each once."""
    job = run.job("connecting.ended", 4, options=(*pairings.surviving(run.server), *options), **arguments)
    left = job.ranks
    assert not job.hung and set(left) - {1} == {0, 2, 3}, job.report()
    assert not any(rank.error for rank in left.values()), job.report()
    return {rank.result for number, rank in left.items() if number != 1}


def missing(run):
    """Return whom an error names, where the server and the library tell it."""
    return None if run.pairing.lack("the missing are named") else (1,)


@proven
@pytest.mark.promise("connect: a participant ends")
@pytest.mark.parametrize("when", ["before", "while"])
def test_one_is_killed_that_others_connect_with(run, when):
    assert seen(run, call="connect", how="kill", when=when) == {("PartialSuccess", missing(run), None)}


@proven
@pytest.mark.promise("connect: a participant ends")
def test_one_has_finalized_that_others_connect_with(run):
    assert seen(run, call="connect", how="finalize", when="before") == {("PartialSuccess", missing(run), None)}


@proven
@pytest.mark.promise("connect: a participant ends")
@pytest.mark.needs("a finalize while others wait")
def test_one_finalizes_that_others_wait_for_in_a_connect(run):
    assert seen(run, call="connect", how="finalize", when="while") == {("PartialSuccess", missing(run), None)}


@proven
@HOW
@pytest.mark.promise("disconnect: after an end")
def test_one_has_ended_that_others_disconnect_from(run, how):
    assert seen(run, call="disconnect", how=how, when="before") == {("success", None, None)}


@proven
@HOW
@pytest.mark.promise("disconnect: an end meanwhile")
def test_one_ends_that_others_disconnect_from(run, how):
    assert seen(run, call="disconnect", how=how, when="while") == {("success", None, None)}


@pytest.mark.servers("python-server")
@pytest.mark.parametrize("how", ["kill", "finalize"])
@pytest.mark.parametrize("when", ["before", "while"])
def test_on_three_nodes(run, how, when):
    """Each outcome is the same on nodes that have a part of the participants, and one that has only the ended one."""
    options = ("--nodes", "3")
    connected = seen(run, options, call="connect", how=how, when=when)
    assert connected == {("PartialSuccess", missing(run), None)}
    assert seen(run, options, call="disconnect", how=how, when=when) == {("success", None, None)}


def told(run, nodes, last):
    """Return how often each hears that rank 2 has ended, which is killed while others wait in the disconnect."""
    options = (*pairings.surviving(run.server), *(("--nodes", str(nodes)) if nodes > 1 else ()))
    job = run.job("connecting.told_in_disconnect", 4, options=options, last=last)
    left = job.ranks
    assert not job.hung and set(left) == {0, 1, 3} and not any(rank.error for rank in left.values()), job.report()
    return [left[rank].result for rank in (0, 1, 3)]


LAST = pytest.mark.parametrize("last", [False, True], ids=["before-the-last-calls", "all-wait"])


@LAST
@pytest.mark.servers("python-server")
@pytest.mark.promise("connect: termination")
def test_who_waits_in_a_disconnect_is_told_of_an_end(run, last):
    assert told(run, 1, last) == [1, 1, 1]


@LAST
@pytest.mark.servers("python-server")
@pytest.mark.promise("connect: termination")
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_who_waits_in_a_disconnect_on_another_node_is_told_of_an_end(run, nodes, last):
    assert told(run, nodes, last) == [1, 1, 1]
