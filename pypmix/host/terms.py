"""The terms of a job: the destinations of its output, the source of its input, and the effects of its end."""

from __future__ import annotations

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.types import Proc

GRACE = 5.0
"""Seconds that ranks have between the request to end and SIGKILL, without `--grace`."""

PATIENCE = 30.0
"""Seconds for all nodes of a session to be ready, without `--node-timeout`."""


def check_restarts(terms: Terms, native: bool, remote: bool) -> None:
    """Raise `ValueError` if a host cannot start ranks again as a job's terms say.

    Args:
        terms: The terms.
        native: Whether its servers are of libpmix.
        remote: Whether daemons serve its nodes.
    """
    if terms.restarts and native:
        raise ValueError("ranks are started again with servers of the python engine only")
    if terms.spares and not terms.restarts:
        raise ValueError("spare nodes are for ranks that are started again: say how often (`--restart N`)")
    if terms.spares and not remote:
        raise ValueError("spare nodes are nodes with daemons: name them by --host, or run in an allocation")


class Terms(Record):
    """The way in which a job runs, in addition to its applications and nodes.

    Args:
        tagged: Each line of output starts with its rank, its node if there are several, and its stream.
        stamped: Each line of output starts with the time when it was read.
        merged: Both outputs of a rank are one stream, stdout.
        shown: Output goes to the host's own; by channel, stdout and stderr.
        directory: The parent of a folder for the job that holds the output of each rank; empty for none.
        file: The beginning of the names of files that hold the output of each rank; empty for none.
        forwarded: Ranks have pipes even if the host's own descriptors would do, so that output can be pulled.
        kept: All output is given to the server, which keeps it for late pulls.
        stdin: The rank that reads the job's input, `Rank.WILDCARD` for all, None for none.
        pushed: That input is pushed by clients and tools; otherwise it is this process's own.
        keep_going: A rank that fails does not end the job.
        separate: The job outlives its parent, even a parent that fails.
        counted: The job's failure is the failure of the whole run.
        limit: Seconds after which the job is ended; 0 for none.
        indexed: Each rank's argv[0] ends with `-` and its rank.
        tell_end: The parent gets an event when the job ends.
        tell_job: The parent gets an event when the job starts and when it ends.
        tell_ranks: The parent gets an event of each rank's end.
        tell_failures: The parent gets an event of each rank that fails.
        silent: No event is sent of the job's end if it is a success.
        maps: The nodes of the job with their ranks are shown when it starts.
        bindings: The CPUs that each rank is bound to are shown when it starts.
        stops: The places where ranks stop for a debugger; see `JobLayout`.
        target: The proc or the job that it examines, for debugger daemons.
        restarts: How often each rank that fails is started again, while the others continue.
        spares: The number of nodes, the last ones, that get no rank at first: ranks of lost nodes are started there.
        debugger: A rank under a debugger, and its command line; see `JobLayout`.
    """

    tagged: bool = False
    stamped: bool = False
    merged: bool = False
    shown: tuple[bool, bool] = (True, True)
    directory: str = ""
    file: str = ""
    forwarded: bool = False
    kept: bool = False
    stdin: int | None = 0
    pushed: bool = False
    keep_going: bool = False
    separate: bool = False
    counted: bool = True
    limit: float = 0.0
    indexed: bool = False
    tell_end: bool = False
    tell_job: bool = False
    tell_ranks: bool = False
    tell_failures: bool = False
    silent: bool = False
    maps: bool = False
    bindings: bool = False
    stops: tuple[tuple[str, str], ...] = ()
    target: Proc | None = None
    debugger: tuple[str, ...] = ()
    restarts: int = 0
    spares: int = 0
