"""`pypmix run --nodes`: ranks stand on nodes of their own, and all that crosses from one server to another arrives.

What is the same on one node and on several is proven by the rest of the suite, which runs on two nodes as well.
"""

from __future__ import annotations

import sys

import pytest

from lib import machine, pairings
from lib.pairings import Part

pytestmark = pytest.mark.servers(pairings.NODES)


def test_ranks_are_placed_in_blocks(run):
    found = run("nodes.place", ranks=5)
    peers = {
        0: ("node0", 0, 0),
        1: ("node0", 1, 1),
        2: ("node0", 2, 2),
        3: ("node1", 0, 0),
        4: ("node1", 1, 1),
    }
    for rank, each in enumerate(found):
        assert each["hostname"] == each["environment"] == peers[rank][0]
        assert each["local_rank"] == peers[rank][1]
        assert each["local_procs"] == [other for other in peers if peers[other][0] == peers[rank][0]]
        assert (each["nodes"], each["number"], each["peers"]) == ("node0,node1", 2, peers)
    assert len({each["folder"] for each in found}) == 2


@pytest.mark.needs("the node id of a proc elsewhere")
def test_node_ids(run):
    assert run("nodes.node_ids", ranks=3) == [[0, 0, 1]] * 3


def test_nodes_and_peers_are_resolved(run):
    assert run("nodes.resolved", ranks=3) == [(["node0", "node1"], [[0, 1], [2]])] * 3


def test_the_local_table_is_that_of_the_node(run):
    whole = [(0, "node0"), (1, "node0"), (2, "node1")]
    assert run("nodes.tables", ranks=3) == [[whole[:2], whole], [whole[:2], whole], [whole[2:], whole]]


def test_scopes(run):
    found = run("nodes.scopes", ranks=4)
    for rank, seen in enumerate(found):
        for other, values in seen.items():
            near = (rank < 2) == (other < 2)
            assert values == ([other, None, other] if near else [None, other, other]), (rank, other)


@pytest.mark.parametrize("size", [10, 100_000])
def test_direct_modex(run, size):
    assert run("nodes.direct", ranks=4, size=size) == [[True] * 4] * 4


def test_a_get_waits_for_the_other_node(run):
    assert run("nodes.late", ranks=2) == ["here", None]


def test_a_get_from_the_other_node_times_out(run):
    outcome, _ = run("nodes.never", ranks=2)[0]
    assert outcome in ("OperationTimeout", "NotFound")


def test_a_fence_of_one_node_waits_for_no_other(run):
    assert run("nodes.one_node", ranks=4) == [True] * 4


def test_a_fence_of_some_of_both_nodes(run):
    assert run("nodes.crossing_subset", ranks=4) == [True] * 4


def test_groups(run):
    found = run("nodes.groups", ranks=4)
    rows = {row[0]: row for each in found for row in each}
    assert {name: row[1] for name, row in rows.items()} == {"all": [0, 1, 2, 3], "firsts": [0, 2], "own": [0, 1]}
    numbers = [row[2] for row in rows.values()]
    assert len(set(numbers)) == 3 and None not in numbers
    # Everybody was told the same.
    assert all(row == rows[row[0]] for each in found for row in each)


@pytest.mark.parametrize(
    ("wide", "hearers"), [("LOCAL", {2, 3}), ("NAMESPACE", {0, 1, 2, 3}), ("SESSION", {0, 1, 2, 3})]
)
def test_events(run, wide, hearers):
    found = run("nodes.events", ranks=4, wide=wide)
    assert {rank for rank, heard in enumerate(found) if heard} == hearers
    assert all(len(heard) <= 1 for heard in found)


@pytest.mark.forms("sync")
def test_the_example_of_events_reaches_the_other_node(run):
    command = [sys.executable, str(machine.ROOT / "docs" / "examples" / "events.py")]
    line = pairings.command_line(run.server, [Part(4, command)])
    job = run.begin(line, environment=pairings.client_environment(run.client)).wait()
    assert job.exit_code == 0, job.report()
    assert job.stdout.count("from rank 0, load 0.75") == 4, job.report()


@pytest.mark.parametrize(
    ("wide", "finders"), [("LOCAL", {2, 3}), ("NAMESPACE", {0, 1, 2, 3}), ("SESSION", {0, 1, 2, 3})]
)
def test_what_is_published(run, wide, finders):
    found = run("nodes.published", ranks=4, wide=wide)
    assert {rank for rank, data in enumerate(found) if data} == finders


@pytest.mark.parametrize(
    ("n", "host", "places"),
    [
        (3, "", ["node0 0", "node0 1", "node1 0"]),
        # The first node runs more ranks of the parent.
        (1, "", ["node1 0"]),
        (2, "node1", ["node1 0", "node1 1"]),
        (2, "node1,node0", ["node0 0", "node1 0"]),
    ],
)
def test_where_a_spawned_job_runs(run, n, host, places):
    ports = [5000 + rank for rank in range(n)]
    assert run("nodes.spawned", ranks=3, n=n, host=host)[0] == [f"{place} {ports}" for place in places]


def test_connect_over_nodes(run):
    assert run("nodes.connected", ranks=3) == [[5000, 5001]] * 3


@pytest.mark.needs("fence again after a timeout")
def test_a_fence_that_times_out_over_nodes(run):
    found = run("nodes.somebody_stays_away", ranks=4)[:3]
    assert [outcome for outcome, _ in found] == ["OperationTimeout"] * 3


@pytest.mark.parametrize("ranks", [[3], [2, 3], [0], [0, 1], [1, 2]])
def test_ranks_that_are_killed(run, ranks):
    """The fences of the others end at once and not as a success; among themselves they go on."""
    job = run.job("nodes.victims", ranks=4, options=["--keep-going"], killed=ranks)
    assert not job.hung, job.report()
    assert job.exit_code == 137, job.report()
    left = job.ranks
    assert sorted(left) == [rank for rank in range(4) if rank not in ranks], job.report()
    for rank in left.values():
        assert rank.error is None, job.report()
        (first, _), (second, _), _ = rank.result
        assert first == "PartialSuccess", job.report()
        assert second is None, job.report()


@pytest.mark.needs("the missing are named")
@pytest.mark.parametrize("ranks", [[3], [2, 3], [1, 2]])
def test_ranks_that_are_killed_are_named(run, ranks):
    """On the nodes of those that were killed and on the others."""
    job = run.job("nodes.victims", ranks=4, options=["--keep-going"], killed=ranks)
    for rank in job.ranks.values():
        (first, _), _, missing = rank.result
        assert first == "PartialSuccess" and missing == ranks, job.report()


@pytest.mark.clients("python-client")
def test_an_abort_ends_all_nodes(run):
    job = run.job("nodes.aborts", ranks=4)
    assert job.exit_code == 7, job.report()
    assert "enough" in job.stderr


@pytest.mark.clients("python-client")
def test_the_report_names_who_is_missing_on_another_node(run):
    job = run.job("nodes.waits", ranks=4, options=["--timeout", "12"])
    assert job.exit_code == 124, job.report()
    assert "3 of 4 arrived" in job.stderr and "missing: rank 3 (pid" in job.stderr, job.report()


def test_fewer_ranks_than_nodes_leave_nodes_empty(launch):
    show = 'import os; print("at", os.environ["PMIX_HOSTNAME"])'
    job = launch(Part(2, [sys.executable, "-c", show]), options=["--nodes", "5"])
    assert job.exit_code == 0, job.report()
    assert sorted(job.stdout.splitlines()) == ["at node0", "at node1"]


@pytest.mark.parametrize("ranks", [2, 4])
def test_who_finalizes_and_lives_on_is_not_waited_for(run, ranks):
    for outcome, _ in run("nodes.finalized_early", ranks=ranks)[:-1]:
        assert outcome == "PartialSuccess"


def test_members_hear_of_one_that_is_cut_off_while_they_destruct_their_group(run):
    assert run.survivors("nodes.cut_off", 4, (3,)) == {0: 3, 1: 3, 2: 3}


def test_one_rank_on_many_nodes(launch):
    program = (
        "import pypmix\n"
        "with pypmix.Client() as me:\n"
        "    me.put('a', 1)\n"
        "    me.fence(collect=True)\n"
        "    print('size', me.job.size, me.get(pypmix.attrs.NUM_NODES, pypmix.Proc(me.nspace, pypmix.Rank.WILDCARD)))\n"
    )
    job = launch(Part(1, [sys.executable, "-c", program]), options=["--nodes", "3"])
    assert job.exit_code == 0, job.report()
    assert job.stdout == "size 1 1\n"


def test_many_nodes(launch):
    program = (
        "import pypmix\n"
        "with pypmix.Client() as me:\n"
        "    me.put('a', me.rank)\n"
        "    me.fence(collect=True, timeout=20)\n"
        "    print(sum(me.get('a', proc) for proc in me.job))\n"
    )
    job = launch(Part(8, [sys.executable, "-c", program]), options=["--nodes", "8"])
    assert job.exit_code == 0, job.report()
    assert job.stdout == "28\n" * 8
