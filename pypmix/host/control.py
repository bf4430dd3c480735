"""Job control: signals for ranks, their end, their pauses; files that are removed after them; context ids of groups.

Only the user who runs the ranks, and root, may control them. A killed rank counts as failed, as after any other death,
and ends its job unless the job continues without failed ranks. An end that was requested for the whole job ends it like
an abort. Termination is SIGTERM, and SIGKILL after the host's grace.
"""

from __future__ import annotations

import os
import signal

from pypmix.host import cleanup
from pypmix.host.cleanup import Cleanups
from pypmix.host.directives import name_of
from pypmix.standard import attrs, statuses
from pypmix.standard.errors import NotFound, NotSupported, PermissionDenied, PMIxError
from pypmix.standard.ops import FabricRegister, FabricUpdate, JobControl
from pypmix.standard.ops.events import is_set
from pypmix.standard.types import RANK_WILDCARD, REQUIRED, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.host.rank import Rank
    from pypmix.standard.types import Info

SIGNAL = attrs.JOB_CTRL_SIGNAL.key
KILL = attrs.JOB_CTRL_KILL.key
TERMINATE = attrs.JOB_CTRL_TERMINATE.key
PAUSE = attrs.JOB_CTRL_PAUSE.key
RESUME = attrs.JOB_CTRL_RESUME.key
CONTEXT_ID = attrs.GROUP_ASSIGN_CONTEXT_ID.key
DEFINE_PSET = attrs.JOB_CTRL_DEFINE_PSET.key

STEPS = (SIGNAL, PAUSE, RESUME, TERMINATE, KILL)
"""The steps for ranks, in the order in which they are carried out."""

REFUSED = frozenset(
    attribute.key
    for attribute in (
        attrs.JOB_CTRL_CANCEL,
        attrs.JOB_CTRL_RESTART,
        attrs.JOB_CTRL_CHECKPOINT,
        attrs.JOB_CTRL_CHECKPOINT_EVENT,
        attrs.JOB_CTRL_CHECKPOINT_SIGNAL,
        attrs.JOB_CTRL_CHECKPOINT_TIMEOUT,
        attrs.JOB_CTRL_CHECKPOINT_METHOD,
        attrs.JOB_CTRL_PROVISION,
        attrs.JOB_CTRL_PROVISION_IMAGE,
        attrs.JOB_CTRL_PREEMPTIBLE,
        attrs.JOB_CTRL_SEP,
    )
)
"""Steps that are not offered; a request with one of them is refused as a whole."""

MET = frozenset(
    attribute.key
    for attribute in (
        attrs.JOB_CTRL_ID,
        attrs.TIMEOUT,
        attrs.CLEANUP_RECURSIVE,
        attrs.CLEANUP_EMPTY,
        attrs.CLEANUP_IGNORE,
        attrs.CLEANUP_LEAVE_TOPDIR,
    )
)
"""Directives that qualify steps."""

ABOUT_FILES = MET | {cleanup.FILES, cleanup.FOLDERS}
"""The directives of a job control that concerns files of its node alone."""

KNOWN = MET | {*STEPS, CONTEXT_ID, DEFINE_PSET, cleanup.FILES, cleanup.FOLDERS}


def check_user(upcall: Upcall, wish: str) -> int:
    """Return the user of a request; raise `PermissionDenied`, naming the wish, unless it is the host's or root."""
    uid = upcall.uid
    if uid is None or uid not in (0, os.geteuid()):
        who = "a proc whose user is not known" if uid is None else f"user {uid}"
        raise PermissionDenied(f"{who} may not {wish}", operation=upcall.op.name)
    return uid


def _control(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, JobControl)
    directives = op.directives
    keys = [info.key for info in directives]
    for info in directives:
        unknown = info.key not in KNOWN and bool(info.flags & REQUIRED)
        if info.key in REFUSED or unknown:
            raise NotSupported(f"this host has no {name_of(info.key)}", operation=op.name)
    if CONTEXT_ID in keys:
        # For a group that invites its members.
        upcall.reply((attrs.GROUP_CONTEXT_ID(host.next_context_id()),))
        return
    uid = check_user(upcall, "steer another user's jobs")
    if DEFINE_PSET in keys:
        name = next(info.value.data for info in directives if info.key == DEFINE_PSET)
        if not isinstance(name, str):
            raise PMIxError("the name of a process set is a string", status=statuses.ERR_BAD_PARAM, operation=op.name)
        host.psets.define(name, op.targets or _own_job(host, upcall))
        upcall.reply(())
        return
    steps = [key for key in STEPS if key == SIGNAL and key in keys or is_set(directives, key)]
    paths = cleanup.read(host, directives, uid)
    if not steps and paths is None:
        names = ", ".join([name_of(key) for key in keys]) or "nothing"
        raise NotSupported(f"this host can do nothing for {names}", operation=op.name)
    signum = _signal(directives) if SIGNAL in steps else 0
    targets = op.targets or _own_job(host, upcall)
    ranks = _ranks(host, targets)
    running = [rank for rank in ranks if rank.alive]
    if not running and (paths is not None or not {KILL, TERMINATE} & set(steps)):
        raise NotFound("none of the procs runs any more", operation=op.name)
    if paths is not None:
        wild = {proc.nspace for proc in targets if proc.rank == RANK_WILDCARD}
        host.part(Cleanups).add(paths, [*wild, *[rank.proc for rank in running if rank.proc.nspace not in wild]])
    if steps:
        who = "the host" if upcall.requestor is None else host.name_for_person(upcall.requestor)
        for step in steps:
            _take(host, step, running, who, signum)
    upcall.reply(())


def _signal(directives: tuple[Info, ...]) -> int:
    signum = next(info.value.data for info in directives if info.key == SIGNAL)
    if not isinstance(signum, int) or not 0 < signum < signal.NSIG:
        raise PMIxError(f"{signum!r} is not a signal", status=statuses.ERR_BAD_PARAM)
    return signum


def _own_job(host: Manager, upcall: Upcall) -> tuple[Proc, ...]:
    proc = upcall.requestor
    if proc is None or proc.nspace not in host.jobs:
        raise PMIxError("a requestor that belongs to no job has to name the procs", status=statuses.ERR_BAD_PARAM)
    return (Proc.unchecked(proc.nspace, RANK_WILDCARD),)


def _ranks(host: Manager, targets: tuple[Proc, ...]) -> list[Rank]:
    for proc in targets:
        job = host.jobs.get(proc.nspace)
        if job is None or (proc.rank != RANK_WILDCARD and job.rank(proc.rank) is None):
            raise NotFound("no such proc runs here", operation="job_control", procs=(proc,))
    return host.expand(targets)


def _take(host: Manager, step: str, ranks: list[Rank], sender: str, signum: int) -> None:
    if step in (SIGNAL, PAUSE, RESUME):
        host.send({SIGNAL: signum, PAUSE: signal.SIGSTOP, RESUME: signal.SIGCONT}[step], ranks)
        return
    number = signal.SIGKILL if step == KILL else signal.SIGTERM
    for job in list(host.jobs.values()):
        chosen = [rank for rank in ranks if rank.proc.nspace == job.nspace and rank.alive]
        if not chosen:
            continue
        for rank in chosen:
            rank.killer = sender
        if all(rank in chosen for rank in job.ranks if rank.alive):
            text = "killed" if step == KILL else "terminated"
            job.end(128 + number, f"{sender} had {job} {text} by job control", number)
        else:
            job.send(number, chosen)
    if step == TERMINATE:
        host.loop.later(host.grace, lambda: host.send(signal.SIGKILL, [rank for rank in ranks if rank.alive]))


def _not_here(_host: Manager, upcall: Upcall) -> NoReturn:
    why = "this job has one fixed node; start it with --host or in an allocation"
    raise NotSupported(why, operation=upcall.op.name)


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {
    JobControl: _control,
    FabricRegister: _not_here,
    FabricUpdate: _not_here,
}
