"""When a stream of a spawned job's output ends, with a double of the engine that says in which order things come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pypmix.operations.forwarding import OutputStream
from pypmix.operations.spawning import JobEnds, SpawnedJob
from pypmix.standard import attrs
from pypmix.standard.enums import EventCode
from pypmix.standard.ops import Get, IOFPull, Notification, Output, RegisterEventHandler
from pypmix.standard.ops.forwarding import STDOUT
from pypmix.standard.types import RANK_WILDCARD, Proc, Value
from pypmix.standard.values import uint32


class Engine:
    """Takes operations in, and answers those that were submitted when it is told to."""

    def __init__(self) -> None:
        self.handler: Any = None
        self.pull: Any = None
        self.submitted: list[Any] = []
        self.proc = Proc("acme", 0)

    def fetch_local(self, proc: Proc, key: str) -> Value:
        return uint32(1)

    def run(self, op: Any, undo: object = None) -> int:
        if isinstance(op, RegisterEventHandler):
            self.handler = op.handler
        elif isinstance(op, IOFPull):
            self.pull = op
        return 1

    def submit(self, op: Any, done: Any) -> None:
        assert isinstance(op, Get)
        self.submitted.append(done)

    def job_ends(self, nspace: str) -> None:
        infos = (attrs.EVENT_AFFECTED_PROC(Proc(nspace, RANK_WILDCARD)), attrs.EXIT_CODE(0))
        event = Notification(EventCode.EVENT_JOB_END, Proc("acme.server", 0), infos=infos)
        self.handler(SimpleNamespace(notification=event, done=lambda: None))


def test_output_that_its_job_s_end_has_overtaken_is_read() -> None:
    """The server has raised the end before it has the pull; the event is handed on when the pull is there."""
    engine = Engine()
    port = cast(Any, SimpleNamespace(session=engine, run=engine.run, attend=lambda: None))
    ends = JobEnds(port)
    ends.begin()
    job = SpawnedJob(port, "child", ends)
    stream = OutputStream(port, job, STDOUT, 16, None).open()
    engine.job_ends("child")
    piece = Output(Proc("child", 0), STDOUT, b"all of it\n", ())
    engine.pull.handler(piece)
    for done in engine.submitted:
        done(None, None)
    assert list(stream) == [piece]
