"""`pypmix conform`: tests which promises of PMIx a site's server keeps, with jobs of the site's own launcher."""

from __future__ import annotations

import fnmatch
import shutil
import signal
import sys
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from pypmix._version import __version__
from pypmix.cli.launching import INTERRUPTED, JobEnd, Running, interruptible
from pypmix.cli.streams import write_json
from pypmix.cli.usage import UsageError, columns
from pypmix.conformance.checks import CHECKS
from pypmix.conformance.losses import SURVIVAL
from pypmix.standard.naming import name_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import TextIO

    from pypmix.conformance.check import Check

KEPT, BROKEN, UNTESTABLE = "kept", "broken", "cannot be tested"
RESULTS = (KEPT, BROKEN, UNTESTABLE)

CRASHES = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)

HOW_TO_GO_ON = (
    "launchers have options for jobs that go on, such as `pypmix run --keep-going`, `srun --kill-on-bad-exit=0`, "
    "`mpirun --enable-recovery` and `prterun --runtime-options recoverable,notifyerrors`"
)

START = "start"
"""The promise that is tried first: all others need it."""

RANKS_SHARE = 2 / 3
"""The share of the ranks in the time of a promise: the rest is for the launcher."""


class Result(NamedTuple):
    """A promise, and its result on this server."""

    check: Check
    topic: str
    result: str
    why: str
    seconds: float


class Site(NamedTuple):
    """The site, as reported by the first job."""

    client: str
    server: str
    ranks: int
    nodes: int

    def __str__(self) -> str:
        nodes = f"{self.nodes} node" + "s" * (self.nodes != 1)
        return f"{self.ranks} ranks on {nodes}, client {self.client}, server of PMIx {self.server or 'unknown'}"


def conform(
    launcher: Sequence[str],
    *,
    engine: str = "",
    only: Sequence[str] = (),
    timeout: float = 60.0,
    as_json: Path | TextIO | None = None,
    as_markdown: Path | None = None,
) -> int:
    """Try promises with jobs of a launcher, print a table, and return 1 if one of them is broken.

    Args:
        launcher: The command line that starts the ranks, up to the program.
        engine: The engine of the ranks; empty for the clients' own choice.
        only: Patterns of the names of the promises to try; empty for all.
        timeout: The seconds that each promise may take, including the start of its job.
        as_json: The file or the stream for the results as JSON.
        as_markdown: The file for the table as Markdown.

    Raises:
        UsageError: The launcher does not exist, or a pattern matches no promise.
    """
    if not launcher:
        raise UsageError("name the command that starts the ranks behind --, such as `-- srun --mpi=pmix -n 4`")
    if shutil.which(launcher[0]) is None:
        raise UsageError(f"program not found: {launcher[0]}")
    wanted = _select_checks(only)
    interruptible()
    trial = Trial(launcher, engine, timeout)
    try:
        results = list(_shown(trial, wanted))
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.filename != launcher[0]:
            raise
        raise UsageError(f"{launcher[0]} cannot be executed: {error.strerror}") from None
    if trial.site is None:
        print("\nWithout that nothing can be tested.")
    print(f"\n{summary(results)}")
    if as_json is not None:
        write_json(_data(launcher, trial.site, results), as_json)
    if as_markdown:
        as_markdown.write_text(markdown(launcher, trial.site, results), encoding="utf-8")
    return int(any(each.result == BROKEN for each in results))


def _select_checks(only: Sequence[str]) -> list[str]:
    for pattern in only:
        if not fnmatch.filter(CHECKS, pattern):
            raise UsageError(f"no promise has the name {pattern!r}; `pypmix conform --list` names them")
    names = [name for name in CHECKS if not only or any(fnmatch.fnmatchcase(name, pattern) for pattern in only)]
    return [START, *(name for name in names if name != START)]


class Trial:
    """A launcher whose jobs try promises, one after the other.

    Args:
        launcher: The command line that starts the ranks, up to the program.
        engine: The engine of the ranks, or an empty text.
        timeout: The seconds that each promise may take.
    """

    def __init__(self, launcher: Sequence[str], engine: str, timeout: float) -> None:
        self.launcher = list(launcher)
        self.engine = engine
        self.timeout = timeout
        self.site: Site | None = None
        self._results: dict[str, str] = {}

    def attempt(self, name: str) -> Result:
        """Try a promise, after the promises that it needs."""
        topic, check = CHECKS[name]
        seconds = 0.0
        why = "" if name == START else self._lacking(check)
        result = UNTESTABLE
        if not why:
            job_end = self._run(name)
            if name == START:
                self.site = _site(job_end)
            result, why = judge(check, job_end, self.site.ranks if self.site else 0, self.timeout)
            seconds = job_end.seconds
        self._results[name] = result
        return Result(check, topic, result, why, seconds)

    def _run(self, name: str) -> JobEnd:
        program = [sys.executable, "-m", "pypmix.conformance", "try", self.engine, name]
        with Running([*self.launcher, *program, "{word}", f"{self.timeout * RANKS_SHARE:g}"]) as job:
            return job.wait(self.timeout)

    def _lacking(self, check: Check) -> str:
        """Return the reason why a promise cannot be tried, empty if it can."""
        for name in (START, *check.needs):
            # A needed promise may not have been selected.
            result = self._results.get(name) or self.attempt(name).result
            if result != KEPT:
                return f"it needs {name!r}, which " + ("is broken" if result == BROKEN else UNTESTABLE)
        if self.site and self.site.ranks < check.ranks:
            return f"it needs {check.ranks} ranks, and the command starts {self.site.ranks}"
        return ""


def _site(job_end: JobEnd) -> Site | None:
    reports = [each for each in job_end.reports if "size" in each]
    if not reports:
        return None
    nodes = {each["node"] for each in reports}
    return Site(reports[0]["client"], reports[0]["server"], reports[0]["size"], len(nodes))


def judge(check: Check, job_end: JobEnd, size: int, timeout: float) -> tuple[str, str]:
    """Return the result of a promise, and the reason, from the end of a job of `size` ranks."""
    result, why = _judge(check, job_end, size, timeout)
    if job_end.code is not None and (crash := _crash(job_end.code)):
        return BROKEN, f"the command crashed ({crash})" + (f": {why}" if why else _last(job_end))
    return result, why


def _crash(code: int) -> str:
    """Return the signal with which a command has crashed, empty if it has not."""
    number = -code if code < 0 else code - 128
    return signal.Signals(number).name if code < 0 or number in CRASHES else ""


def _judge(check: Check, job_end: JobEnd, size: int, timeout: float) -> tuple[str, str]:
    killed = check.list_killed(size)
    by_rank = {each["rank"]: each for each in job_end.reports}
    reasons = [each["untestable"] for each in by_rank.values() if "untestable" in each]
    if reasons:
        return UNTESTABLE, reasons[0]
    for kind, words in (("hangs", "did not come back from"), ("error", "failed with")):
        problems = {rank: each[kind] for rank, each in sorted(by_rank.items()) if kind in each}
        if problems:
            first, text = next(iter(problems.items()))
            similar = f" (and {name_ranks([*problems][1:])} like it)" if len(problems) > 1 else ""
            return BROKEN, f"rank {first}{similar} {words} {f'`{text}`' if kind == 'hangs' else text}"
    absent = sorted(set(range(size)) - set(by_rank) - killed)
    if check.name == SURVIVAL and absent and job_end.code is not None:
        return (
            UNTESTABLE,
            f"the command ends its job when a rank is killed, with exit code {job_end.code}; {HOW_TO_GO_ON}",
        )
    if job_end.code is None:
        limit = f"within {timeout:g} s"
        if absent and by_rank:
            return (
                BROKEN,
                f"the command hangs: {name_ranks(absent)} {'has' if len(absent) == 1 else 'have'} not reported {limit}",
            )
        if not by_rank:
            return BROKEN, f"the command hangs: no rank has reported {limit}"
        return BROKEN, f"the command hangs: all ranks had ended, and it did not end {limit}"
    if absent or not by_rank:
        who = name_ranks(absent) if by_rank else "the ranks"
        return BROKEN, f"{who} ended without a word, the command with exit code {job_end.code}{_last(job_end)}"
    wrong = check.judge([None if rank in killed else by_rank[rank]["result"] for rank in range(size)])
    if wrong:
        return BROKEN, wrong
    if job_end.code and not killed:
        return (
            BROKEN,
            f"the ranks have seen it kept, but the command ended with exit code {job_end.code}{_last(job_end)}",
        )
    return KEPT, ""


def _last(job_end: JobEnd) -> str:
    """Return the last line with words that the job has written to standard error, after a colon."""
    lines = [line.strip() for line in job_end.errors.splitlines() if any(map(str.isalpha, line))]
    return f": {lines[-1][:300]}" if lines else ""


def _shown(trial: Trial, names: Iterable[str]) -> Iterable[Result]:
    """Print each result as soon as it is known."""
    width = max(len(name) for name in CHECKS)
    topic = ""
    for name in names:
        result = trial.attempt(name)
        if name != START and trial.site is None:
            # The reason was printed with the first promise.
            yield result
            continue
        if name == START:
            print(f"{' '.join(trial.launcher)}: {trial.site or 'no rank has found a server'}")
        if result.topic != topic:
            topic = result.topic
            print(f"\n{topic}")
        print(f"  {result.check.name:{width}}  {result.result:{len(UNTESTABLE)}} {result.seconds:5.1f} s", flush=True)
        if result.why:
            print(textwrap.fill(result.why, max(columns() - 1, 60), initial_indent=" " * 4, subsequent_indent=" " * 4))
        yield result


def summary(results: Sequence[Result]) -> str:
    """Return how many promises are kept, broken, and cannot be tested."""
    return ", ".join([f"{sum([each.result == result for each in results])} {result}" for result in RESULTS])


def listing() -> str:
    """Return all promises by name, with their texts."""
    width = max(len(name) for name in CHECKS)
    return "".join([f"{name:{width}}  {check.promise.text}\n" for name, (_, check) in CHECKS.items()])


def _data(launcher: Sequence[str], site: Site | None, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "pypmix": __version__,
        "command": list(launcher),
        "client": site and site.client,
        "server": site and site.server,
        "ranks": site and site.ranks,
        "nodes": site and site.nodes,
        "promises": [
            {
                "name": each.check.name,
                "place": each.check.promise.place,
                "text": each.check.promise.text,
                "topic": each.topic,
                "result": each.result,
                "why": each.why,
                "seconds": round(each.seconds, 3),
            }
            for each in results
        ],
    }


def markdown(launcher: Sequence[str], site: Site | None, results: Sequence[Result]) -> str:
    """Return the results as a table of Markdown, with its head."""
    rows = [
        [each.check.name, each.check.promise.text, each.check.promise.place, each.result, each.why] for each in results
    ]
    head = ["Promise", "What it says", "Where", "Result", "Why"]
    lines = [f"`{' '.join(launcher)}`: {site or 'no rank has found a server'}; {summary(results)}", ""]
    lines += ["| " + " | ".join([_cell(text) for text in row]) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
