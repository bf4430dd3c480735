"""A launch and its shares: ranks start when all nodes are prepared, and the launch ends with its last share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lib.steps import count_calls
from pypmix.host import orders
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.host.outcome import NOT_FOUND
from pypmix.host.placing import Node as Known
from pypmix.host.remote import RemoteNode, RemoteShare
from pypmix.host.running import RunningJob, Share
from pypmix.host.terms import Terms
from tests.unit.test_host_ends import Elsewhere, Host

NODES = 3


class Recorded(Share):
    """A share that does what a test says, and records what it is asked."""

    def prepare(self):
        self.launch.job.done.append(("prepare", self.node.hostname))

    def start(self, apps, programs):
        self.launch.job.done.append(("start", self.node.hostname))
        for rank in self.ranks:
            rank.alive = True
        self.launch.count(self.node, len(self.ranks))
        self.launch.share_started()

    def sweep(self):
        self.launch.job.done.append(("sweep", self.node.hostname))

    def signal(self, ranks, signum, handled=False):
        pass


class Launcher(Host):
    """A launcher with several nodes."""

    def __init__(self):
        super().__init__()
        self.over = []
        self.job_over = self.over.append

    def share(self, launch, node, ranks):
        return Recorded(launch, node, ranks)


def node(number):
    made = Elsewhere()
    made.hostname = f"n{number}"
    return made


def launched(keep_strays=False):
    """Return a job with two ranks on each node, and its launch."""
    nodes = [node(number) for number in range(NODES)]
    places = [NodeLayout(each.hostname, (2 * number, 2 * number + 1), number) for number, each in enumerate(nodes)]
    job = JobLayout("job@1", (Application(("./app",), 2 * NODES),), tuple(places))
    homes = {rank: nodes[rank // 2] for rank in range(2 * NODES)}
    running = RunningJob(Launcher(), job, 1, Terms(), homes)
    running.done = []
    launch = running.launch(range(2 * NODES), keep_strays=keep_strays)
    launch.start(job.apps, ["./app"])
    return running, launch


def end(job):
    for rank in job.ranks:
        rank.code = 0
        job.ranks_ended((rank,))
    job.host.loop.run()


def test_no_rank_starts_before_all_nodes_are_prepared():
    job, launch = launched()
    *others, last = launch.shares.values()
    for _ in others:
        launch.share_prepared()
    assert job.done == [("prepare", f"n{number}") for number in range(NODES)] and launch.unstarted
    launch.share_prepared()
    assert job.done[NODES:] == [("start", f"n{number}") for number in range(NODES)]
    assert not launch.unstarted and job.running == 2 * NODES and last.node.running == 2


def test_no_rank_starts_if_one_node_cannot_run_it():
    job, launch = launched()
    missing = FileNotFoundError(2, "program not found", "./app")
    launch.share_prepared()
    launch.share_prepared((missing, "program not found on n1: ./app", True))
    assert job.outcome is None
    launch.share_prepared()
    assert (job.outcome.code, job.outcome.reason) == (NOT_FOUND, "program not found on n1: ./app")
    assert job.unlaunched is missing and ("start", "n0") not in job.done


def test_a_launch_ends_with_the_last_of_its_shares():
    job, launch = launched()
    for _ in launch.shares:
        launch.share_prepared()
    end(job)
    assert job.done[-NODES:] == [("sweep", f"n{number}") for number in range(NODES)]
    for number, share in enumerate(launch.shares.values()):
        assert not launch.over and launch.holds(share.node)
        launch.share_over(share)
        assert launch.over == (number == NODES - 1) and not launch.holds(share.node)
    assert job.host.over == [job] and not job.launches


def test_a_held_launch_is_swept_when_it_is_released():
    job, launch = launched(keep_strays=True)
    for _ in launch.shares:
        launch.share_prepared()
    end(job)
    assert ("sweep", "n0") not in job.done
    launch.release()
    job.host.loop.run()
    assert ("sweep", "n0") in job.done


class Session(Launcher):
    """A launcher whose nodes have daemons."""

    def __init__(self):
        super().__init__()
        self.machine = SimpleNamespace(tmpdir="")
        self.listeners = {}
        self.jobs = {}
        self.nodes = ()
        self.native = False

    def share(self, launch, node, ranks):
        return RemoteShare(launch, node, ranks)


def test_the_loss_of_a_node_looks_at_no_rank_of_another(monkeypatch):
    host, size = Session(), 1000
    nodes = [RemoteNode(host, number, Known(f"n{number}", 1)) for number in range(size)]
    places = tuple([NodeLayout(each.hostname, (number,), number) for number, each in enumerate(nodes)])
    job = JobLayout("job@1", (Application(("./app",), size),), places)
    terms = Terms(keep_going=True, stdin=None, shown=(False, False))
    running = host.jobs["job@1"] = RunningJob(host, job, 1, terms, dict(enumerate(nodes)))
    launch = running.launch(range(size))
    for share in launch.shares.values():
        share.ranks[0].alive = True
        launch.count(share.node, 1)
    launch.unstarted = False
    nodes[3].lose("it is tested")
    # The first failure was judged; another one is only recorded.
    seventh = running.rank(7)
    monkeypatch.setattr(RunningJob, "ranks", property(lambda _job: pytest.fail("all ranks are looked at")))
    nodes[7].lose("it is tested")
    assert seventh.over and seventh.fate == "was lost with node n7: it is tested"
    assert running.running == size - 2 and not launch.holds(nodes[7]) and launch.holds(nodes[8])


def lose_a_node(jobs, size, **terms):
    """Return the calls by which a node is lost on which one job of several has a rank; the others run elsewhere."""
    host = Session()
    nodes = [RemoteNode(host, number, Known(f"n{number}", 1)) for number in range(size)]
    host.nodes = nodes
    for number in range(1, jobs + 1):
        used = nodes if number == 1 else nodes[1:]
        places = tuple([NodeLayout(each.hostname, (rank,), each.number) for rank, each in enumerate(used)])
        job = JobLayout(f"job@{number}", (Application(("./app",), len(used)),), places)
        running = RunningJob(host, job, number, Terms(stdin=None, shown=(False, False), **terms), dict(enumerate(used)))
        host.jobs[job.nspace] = running
        launch = running.launch(range(len(used)))
        for rank in running.ranks:
            rank.alive = True
            launch.count(rank.node, 1)
        launch.unstarted = False
    first = host.jobs["job@1"]

    def lose():
        assert nodes[0].ends_a_job() == (not terms)
        nodes[0].lose("it is tested")

    calls = count_calls(lose)
    assert first.rank(0).fate == "was lost with node n0: it is tested"
    assert (first.outcome is None) == bool(terms) and first.running == size - 1
    assert not nodes[0].shares and all(len(each.shares) == jobs for each in nodes[1:])
    return calls


@pytest.mark.parametrize("size", [2, 8, 32])
@pytest.mark.parametrize("terms", [{}, {"keep_going": True}], ids=["ends the job", "goes on"])
def test_jobs_without_a_part_in_a_lost_node_add_no_call(size, terms):
    assert lose_a_node(1, size, **terms) == lose_a_node(10, size, **terms) == lose_a_node(100, size, **terms)


def test_ranks_on_other_nodes_add_no_call_to_a_loss_that_ends_no_job():
    calls = [lose_a_node(1, size, keep_going=True) for size in (2, 8, 32)]
    assert calls == calls[:1] * 3


def test_a_daemon_that_leaves_without_reporting_the_ends_of_its_ranks_loses_them():
    host = Session()
    lost = RemoteNode(host, 0, Known("n0", 1))
    job = JobLayout("job@1", (Application(("./app",), 1),), (NodeLayout("n0", (0,), 0),))
    running = host.jobs["job@1"] = RunningJob(host, job, 1, Terms(stdin=None, shown=(False, False)), {0: lost})
    share = running.launch((0,)).shares[lost]
    running.rank(0).alive, share.order = True, 1
    share.launch.count(lost, 1)
    share.launch.unstarted = False
    lost.record_job_end(orders.LAUNCHES.write(("job@1", 1)))
    assert running.rank(0).alive
    lost.lose("its daemon has left")
    assert running.rank(0).fate and not lost.shares
