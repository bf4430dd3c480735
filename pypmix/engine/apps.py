"""Applications to spawn: completed for servers, and errors of hosts that have not started them."""

from __future__ import annotations

import os

from pypmix.standard import statuses
from pypmix.standard.types import App

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.ops import Spawn

_REFUSALS = {
    statuses.ERR_NOT_SUPPORTED: ("the server's host does not start jobs", ""),
    statuses.ERR_INIT: ("the host lacks the resources, such as slots, for {procs}", ""),
    statuses.ERR_UNREACH: ("the host cannot reach what it needs for it", ""),
    statuses.ERR_JOB_APP_NOT_EXECUTABLE: (
        "{programs} cannot be executed",
        "is it a program, or a script with #!, and may it be executed?",
    ),
    statuses.ERR_JOB_NO_EXE_SPECIFIED: ("the host was told of no program", ""),
    statuses.ERR_JOB_FAILED_TO_MAP: ("the host has no place for {procs}", ""),
    statuses.ERR_JOB_EXE_NOT_FOUND: (
        "there is no program {programs}",
        "is it on the launcher's PATH, or a path from the job's folder?",
    ),
    statuses.ERR_JOB_WDIR_NOT_FOUND: ("there is no folder {folders}", "cwd= names it as the host sees it"),
    statuses.ERR_JOB_INSUFFICIENT_RESOURCES: ("the host lacks the resources, such as slots, for {procs}", ""),
}


def complete(app: App) -> App:
    """Return the application with its command, program name and directory, without which libpmix 4.2 crashes."""
    cmd = app.cmd or app.argv[0]
    argv = app.argv
    name = os.path.basename(cmd)
    if not argv or os.path.basename(argv[0]) != name:
        argv = (name, *argv)
    return App(cmd, argv, app.env, app.cwd or os.getcwd(), app.maxprocs, app.info)


def refusal(op: Spawn, status: int) -> tuple[str, str]:
    """Return the reason why a host has not started a job, and a hint."""
    text, hint = _REFUSALS.get(status, ("the host did not start the job", ""))
    number = sum([app.maxprocs for app in op.apps])
    return text.format(
        programs=_either([app.cmd or app.argv[0] for app in op.apps]),
        folders=_either([app.cwd or os.getcwd() for app in op.apps]),
        procs=f"{number} proc{'s' * (number != 1)}",
    ), hint


def _either(names: list[str]) -> str:
    return " or ".join([repr(name) for name in dict.fromkeys(names)])
