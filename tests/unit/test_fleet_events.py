"""The events of a launcher reach its daemons in one message each, however many are raised together."""

from __future__ import annotations

from types import SimpleNamespace

from pypmix.host import orders
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.host.notices import Notices
from pypmix.host.placing import Node
from pypmix.host.running import RunningJob
from pypmix.host.session import Fleet, NodeSession
from pypmix.host.terms import Terms
from pypmix.standard.enums import EventCode
from pypmix.standard.types import Proc
from tests.unit.test_host_ends import Host


class Launcher(Host):
    """A launcher of two nodes with daemons, whose events go to these."""

    def __init__(self):
        super().__init__()
        self.machine = SimpleNamespace(tmpdir="", forks=None)
        self.native, self.jobs, self.at_rank_end, self.at_job_end = False, {}, [], []
        self.server = SimpleNamespace(proc=Proc("server", 0))
        self.fleet = Fleet(self, NodeSession([Node("n1", 8), Node("n2", 8)], None), "job", self.loop)
        self.nodes = self.fleet.nodes
        self.fleet._exchange = SimpleNamespace(tell_several=lambda *message: self.told.append(message))
        self.told = []
        self.notify = self.fleet.notify_daemons
        Notices(self)
        self.rank_ended = self.at_rank_end[0]

    @property
    def site(self):
        return self.fleet

    def find(self, proc):
        job = self.jobs.get(proc.nspace)
        return None if job is None else (job, job.rank(proc.rank))


def running(host, size):
    node = host.fleet.nodes[0]
    layout = JobLayout("job@1", (Application(("./app",), size),), (NodeLayout("n1", tuple(range(size)), 0),))
    terms = Terms(keep_going=True, stdin=None, shown=(False, False))
    job = host.jobs["job@1"] = RunningJob(host, layout, 1, terms, dict.fromkeys(range(size), node))
    launch = job.launch(range(size))
    for rank in job.ranks:
        rank.alive = True
        launch.count(node, 1)
    launch.unstarted = False
    return job


def test_ranks_that_end_together_raise_their_events_in_one_message_to_each_node():
    host = Launcher()
    job = running(host, 5)
    ends = tuple([(Proc("job@1", rank), None, 9, False, True) for rank in range(3)])
    # A rank that is named twice ends once.
    host.fleet.nodes[0].record_rank_ends(orders.ENDS.write((*ends, (Proc("job@1", 3), 0, 0, False, True), ends[0])))
    assert [rank.over for rank in job.ranks] == [True] * 4 + [False] and job.running == 1
    ((names, topic, data),) = host.told
    assert (list(names), topic) == (["n1", "n2"], orders.RAISE)
    events = orders.EVENTS.read(data)
    assert [event.code for event in events] == [EventCode.ERR_PROC_ABORTED] * 3
    assert [event.infos[0].value.data for event in events] == [end[0] for end in ends]


def test_an_event_that_is_raised_alone_goes_at_once():
    host = Launcher()
    with host.fleet.gathered_events():
        pass
    assert host.told == []
    job = running(host, 2)
    job.rank(0).code = 3
    job.ranks_ended([job.rank(0)])
    assert len(host.told) == 1 and len(orders.EVENTS.read(host.told[0][2])) == 1
