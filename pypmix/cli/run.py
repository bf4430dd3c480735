"""`pypmix run`: runs a job on this machine, or on the nodes of a roster."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from functools import partial

from pypmix.cli.options import parse
from pypmix.cli.streams import occupy
from pypmix.cli.usage import USAGE, UsageError
from pypmix.host.extensions import load_extension
from pypmix.host.outcome import CANNOT_EXECUTE, NOT_FOUND, listed
from pypmix.host.rosters.choosing import LOCAL, is_marked
from pypmix.standard import statuses
from pypmix.standard.errors import EngineUnavailable, PMIxError
from pypmix.standard.logtext import printable_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from pypmix.cli.cluster import Cluster
    from pypmix.cli.options import NodeSelection, Request
    from pypmix.host.local import LocalHost
    from pypmix.host.nodes import Wrap
    from pypmix.host.tracing import Trace


FIRST_USER, NO_PERSON = 1000, 65534
"""The lowest number of a person's account, by custom, and the account that belongs to no person."""

OPEN_TO_ALL = (
    "one packet of any of them can end a server of libpmix, and the job with it: serve with the Python engine here "
    "(leave out --server-engine native)"
)


def run(words: Sequence[str]) -> int:
    """Carry out `pypmix run` and return the job's exit code.

    Args:
        words: The command line after `run`.
    """
    try:
        request = parse(words, os.environ)
        occupy()
        for remark in request.remarks:
            say(remark)
        if request.session:
            return _run_in_session(request)
        if is_local_run(request.selection, os.environ) and not request.selection.secret_file:
            return _run_here(request)
        from pypmix.cli.cluster import Cluster

        cluster = Cluster.find(request.selection, os.environ)
        slots, remark = Cluster.alone(os.environ) if cluster is None else (0, "")
        if cluster is not None and request.nodes > 1:
            raise UsageError("--nodes simulates nodes on this machine: choose nodes of the allocation with --host")
    except (UsageError, ValueError, OverflowError) as error:
        return _misused(error)
    if cluster is not None:
        return _run_there(request, cluster)
    if request.selection.secret_file:
        remark = "--secret-file has no effect: this run is one of this machine alone"
    if remark:
        say(remark)
    if request.fill and slots > 1:
        say(f"{slots} ranks, one for each task of the Slurm job; -n says otherwise")
        request = request.replace(apps=(request.apps[0].replace(np=slots),), fill=False)
    return _run_here(request)


def is_local_run(selection: NodeSelection, env: Mapping[str, str]) -> bool:
    """Return True if a run needs this machine only; a cheap check, since every run makes it."""
    if selection.roster == LOCAL:
        return True
    return not (selection.roster or selection.hosts or selection.symmetric or is_marked(env))


def _run_in_session(request: Request) -> int:
    """Run the job in a session."""
    from pypmix.cli.sessionjob import run_in_session

    try:
        outcome = run_in_session(request, os.environ)
    except PMIxError as error:
        say("\n".join(filter(None, (error.detail, error.hint))))
        return 1
    if outcome.reason:
        say(outcome.reason)
    return outcome.code


def _run_here(request: Request) -> int:
    """Run the job on this machine."""
    # For other nodes it is imported while these are being started.
    from pypmix.host.local import LocalHost

    if request.server_engine == "native":
        _warn_of_others()
    return run_host(request, partial(LocalHost, env={**os.environ, **added_variables(request)}))


def _run_there(request: Request, cluster: Cluster) -> int:
    """Run the job on the nodes of a cluster, or serve as the daemon of one of them."""
    from pypmix.host.rosters.base import RosterError

    try:
        code = cluster.join()
        if code is not None:
            return code
        say(cluster.reason)
        return run_host(request, cluster.launcher(added_variables(request)))
    except RosterError as error:
        say(str(error))
        return 1
    finally:
        cluster.close()


def added_variables(request: Request) -> dict[str, str]:
    """Return the variables that the environment of all ranks has in addition to this process's."""
    return {"PYPMIX_ENGINE": request.engine} if request.engine else {}


def run_host(request: Request, make: Callable[..., LocalHost]) -> int:
    """Run the job on a host that a class or a function makes."""
    try:
        trace = None if request.trace is None else _tracing(request.trace)
    except OSError as error:
        say(f"cannot write --trace {error.filename or ''}: {error.strerror or error}")
        return 1
    try:
        host = make(request.apps, **_settings(request), trace=trace)
    except (ValueError, OverflowError) as error:
        return _misused(error)
    except OSError as error:
        say(f"cannot write --record {error.filename or ''}: {error.strerror or error}")
        return 1
    gc.enable()
    try:
        outcome = host.run()
    except OverflowError as error:
        return _misused(error)
    except OSError as error:
        return _refused(error)
    except EngineUnavailable as error:
        # Its hint is for clients, which have no options.
        say(f"{error.detail}\nName a libpmix with --server-libpmix PATH, or leave out --server-engine native.")
        return 1
    except PMIxError as error:
        # A message of a node is shown without a prefix.
        plain = error.status == statuses.ERROR and not error.operation
        say("\n".join(filter(None, (error.detail, error.hint))) if plain else str(error))
        return 1
    if outcome.reason and not outcome.is_reported:
        say(outcome.reason)
    return outcome.code


def other_users() -> list[str]:
    """Return the users that run processes on this machine, without this user, root and the system's users."""
    found = set()
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            with contextlib.suppress(OSError):
                found.add(os.stat(f"/proc/{pid}").st_uid)
    return [f"user {uid}" for uid in sorted(found) if uid >= FIRST_USER and uid not in (os.geteuid(), NO_PERSON)]


def _warn_of_others() -> None:
    """Warn that other users can end a server of libpmix, if there are any."""
    if users := other_users():
        say(f"processes of {listed(users)} run on this machine; {OPEN_TO_ALL}")


def _settings(request: Request) -> dict[str, Any]:
    """Return the arguments of a host that carries out a command line."""
    return {
        "terms": request.terms,
        "engine": request.server_engine,
        "library": request.library,
        "nodes": request.nodes,
        "timeout": request.timeout,
        "grace": request.grace,
        "mapping": request.selection.mapping,
        "fill": request.fill,
        "own_process": True,
        "cluster": request.cluster,
        "join": request.join,
        "address": request.address,
        "nspace": request.nspace,
        "limits": request.limits,
        "warm": False if request.warm is None else request.warm,
        "faults": request.faults,
        "wrap": None if request.record is None else _recording(request.record),
    }


def _misused(error: Exception) -> int:
    say(f"{error}\nTry 'pypmix run --help'.")
    return USAGE


def _recording(path: str) -> Wrap:
    record: Wrap = load_extension("recorder")(path).wrap
    return record


def _tracing(path: str) -> Trace:
    # All entries are kept for a while: to look through them for garbage repeatedly would only cost time.
    gc.set_threshold(50_000, 50, 50)
    trace: Trace = load_extension("trace")(path)
    return trace


def _refused(error: OSError) -> int:
    """Report why the job was not started, and return the exit code that a shell would."""
    from pypmix.host.launch import NotExecutable, is_missing

    if isinstance(error, NotExecutable):
        say(f"cannot execute {error.filename}: {error.strerror}{_suggest_python(error.filename)}")
        return CANNOT_EXECUTE
    say(f"{error.strerror}: {error.filename}{_suggest_python(error.filename)}" if error.filename else str(error))
    return NOT_FOUND if is_missing(error) else 1


def _suggest_python(program: object) -> str:
    """Return a suggestion if a Python file was to be executed."""
    is_script = isinstance(program, str) and program.endswith(".py") and os.path.isfile(program)
    return f"; did you mean `python {program}`?" if is_script else ""


def say(text: str) -> None:
    """Write a message of the launcher to its standard error."""
    try:
        print(f"pypmix run: {printable_lines(text)}", file=sys.stderr, flush=True)
    except (OSError, AttributeError):
        # Its reader has exited.
        return
