"""Proves whom job control lets steer ranks, and what is done to them in which order."""

from __future__ import annotations

import os
import signal
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from pypmix.host import answertable, control
from pypmix.standard import attrs
from pypmix.standard.enums import InfoFlags, Status
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.ops import AllocationRequest, FabricRegister, JobControl
from pypmix.standard.types import RANK_WILDCARD, Info, Proc

UID = os.geteuid()
ME = Proc("job", 0)


class Host:
    """A host with a job of three ranks, and a list of what is done to them."""

    def __init__(self) -> None:
        self.did: list[object] = []
        self.grace = 5.0
        ranks = [
            SimpleNamespace(proc=Proc("job", rank), alive=True, killer="", excused=False, signum=0) for rank in range(3)
        ]
        self.job = SimpleNamespace(
            nspace="job",
            ranks=ranks,
            rank=dict(enumerate(ranks)).get,
            send=lambda signum, chosen: self.send(signum, chosen),
            end=lambda code, reason, signum: self.did.append(("end", code, int(signum))),
        )
        self.jobs = {"job": self.job}
        self.loop = self
        self.later_calls: list[Any] = []
        self.parts: dict[Any, Any] = {}
        self.next_context_id = count(1 << 32).__next__

    def find_part(self, _kind: type) -> None:
        return None

    def send(self, signum: int, ranks: Any) -> None:
        self.did.append((int(signum), [rank.proc.rank for rank in ranks]))

    def later(self, _delay: float, callback: Any) -> None:
        self.later_calls.append(callback)

    def expand(self, procs: tuple[Proc, ...]) -> list[Any]:
        return [rank for rank in self.job.ranks if any(proc.rank in (RANK_WILDCARD, rank.proc.rank) for proc in procs)]

    def name_for_person(self, proc: Proc) -> str:
        return str(proc)

    def part(self, kind: Any) -> Any:
        if kind not in self.parts:
            self.parts[kind] = kind(self)
        return self.parts[kind]

    def ask(self, *infos: Info, targets: tuple[Proc, ...] = (), uid: int | None = UID, by: Proc = ME) -> Any:
        answers: list[Any] = []
        upcall = SimpleNamespace(
            op=JobControl(targets, infos),
            requestor=by,
            uid=uid,
            gid=0,
            reply=lambda result=None: answers.append(result),
        )
        control.ANSWERS[JobControl](self, upcall)  # type: ignore[arg-type]
        return answers[0]


def refused(host: Host, status: int, *infos: Info, **options: Any) -> None:
    with pytest.raises(PMIxError) as caught:
        host.ask(*infos, **options)
    assert caught.value.code == status
    assert host.did == []


def test_only_the_user_and_root_may() -> None:
    stranger = 4242 if UID != 4242 else 4243
    for uid in (stranger, None):
        refused(Host(), Status.ERR_NO_PERMISSIONS, attrs.JOB_CTRL_SIGNAL(10), uid=uid)
    for uid in (UID, 0):
        host = Host()
        host.ask(attrs.JOB_CTRL_SIGNAL(10), targets=(Proc("job", 1),), uid=uid)
        assert host.did == [(10, [1])]


def test_nobody_named_is_the_own_job() -> None:
    host = Host()
    host.ask(attrs.JOB_CTRL_PAUSE(True))
    assert host.did == [(signal.SIGSTOP, [0, 1, 2])]
    refused(Host(), Status.ERR_BAD_PARAM, attrs.JOB_CTRL_PAUSE(True), by=Proc("tool", 0))


def test_nothing_is_done_where_one_of_several_steps_is_not_offered() -> None:
    for other in (attrs.JOB_CTRL_CHECKPOINT("x"), attrs.JOB_CTRL_RESTART("x"), attrs.JOB_CTRL_PREEMPTIBLE(True)):
        refused(Host(), Status.ERR_NOT_SUPPORTED, attrs.JOB_CTRL_KILL(True), other)
    unknown = attrs.ALLOC_ID("x", flags=InfoFlags.REQUIRED)
    refused(Host(), Status.ERR_NOT_SUPPORTED, attrs.JOB_CTRL_KILL(True), unknown)
    host = Host()
    host.ask(attrs.JOB_CTRL_KILL(True), attrs.ALLOC_ID("x"))
    assert host.did == [("end", 137, signal.SIGKILL)]


def test_termination_is_followed_by_a_kill_of_those_who_stay() -> None:
    host = Host()
    host.ask(attrs.JOB_CTRL_TERMINATE(True), targets=(Proc("job", 1), Proc("job", 2)))
    assert host.did == [(signal.SIGTERM, [1, 2])]
    assert [rank.killer for rank in host.job.ranks] == ["", "job:0", "job:0"]
    host.job.ranks[1].alive = False
    (kill,) = host.later_calls
    kill()
    assert host.did[1:] == [(signal.SIGKILL, [2])]


def test_what_has_ended() -> None:
    host = Host()
    host.job.ranks[1].alive = False
    ended = (Proc("job", 1),)
    refused(host, Status.ERR_NOT_FOUND, attrs.JOB_CTRL_SIGNAL(10), targets=ended)
    assert host.ask(attrs.JOB_CTRL_KILL(True), targets=ended) == ()
    assert host.did == []


def test_context_ids_need_no_target() -> None:
    host = Host()
    ids = [host.ask(attrs.GROUP_ASSIGN_CONTEXT_ID(True), by=Proc("tool", 0))[0].value.data for _ in range(3)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("op", [AllocationRequest(1), FabricRegister()])
def test_what_one_node_does_not_have(op: Any) -> None:
    with pytest.raises(NotSupported):
        answer = answertable.find(type(op))
        assert answer is not None
        answer(Host(), SimpleNamespace(op=op))  # type: ignore[arg-type]
