"""The terms on which a job runs: where its output and input go, whom its end concerns, and when it is over."""

from __future__ import annotations

from pypmix.standard.record import Record

GRACE = 5.0
"""Seconds that ranks have between the request to end and SIGKILL, where `--grace` does not say."""


class Terms(Record):
    """The way in which a job runs, besides what it runs and where.

    Args:
        tagged: Each line of output starts with its rank, its node if there are several, and its stream.
        stamped: Each line of output starts with the time when it was read.
        merged: Both outputs of a rank are one stream, that of stdout.
        shown: Output goes to the host's own; by channel, stdout and stderr.
        directory: Where a folder for the job holds what each rank wrote; empty for nowhere.
        file: What the names of files that hold what each rank wrote begin with; empty for none.
        forwarded: Ranks have pipes even where the host's own descriptors would do, so that output can be pulled.
        kept: All output is given to the server, which keeps it for those who pull it late.
        stdin: The rank that reads the job's input, `Rank.WILDCARD` for all, None for none.
        pushed: That input is what clients and tools push; otherwise it is this process's own.
        keep_going: A rank that fails does not end the job.
        separate: The job outlives its parent, even one that fails.
        counted: The job's failure is that of the whole run.
        limit: Seconds after which the job is ended; 0 for none.
        indexed: Each rank's argv[0] ends with `-` and its rank.
        tell_end: The parent is told when the job ends.
        tell_job: The parent is told when the job starts and ends.
        tell_ranks: The parent is told of each rank's end.
        tell_failures: The parent is told of each rank that fails.
        folded: Of ranks that fail since another one has failed, a line is shown instead of their tracebacks.
        silent: The job's end is not told if it is a success.
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
    folded: bool = False
    silent: bool = False

    @property
    def folds(self) -> bool:
        """Whether tracebacks are held back: lines that are tagged tell by themselves whose they are."""
        return self.folded and not (self.tagged or self.stamped)
