"""`pypmix bench`: compares the times of this machine's engines and launchers, with their ratios."""

from __future__ import annotations

import datetime
import itertools
import os
import platform
import re
import shlex
import shutil
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pypmix._version import __version__
from pypmix.cli.diagnosis import diagnose
from pypmix.cli.launching import INTERRUPTED, Running, interruptible
from pypmix.cli.streams import write_json
from pypmix.cli.usage import UsageError, columns
from pypmix.extras.commands.picture import Line, picture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

OWN = "pypmix run -n {n}"
"""The launcher that is always timed, and with which the others are compared."""

TITLES = {
    "fence": "fence",
    "exchange": "put, collecting fence and get",
    "group": "group construct and destruct",
    "publish": "publish and lookup",
    "start": "start-up, from launch to end",
}
"""The operations that are timed, with their titles."""

LIMIT = 120.0
"""Seconds that a job may take."""

COLORS = {"python": "#1b6ca8", "native": "#b35900"}
DASHES = ("", "5 3", "2 3", "8 3 2 3")
BAR = 14
"""The length of the longest bar in the terminal."""


class Case(NamedTuple):
    """A launcher with an engine, timed with a number of ranks; the name is the one in tables, for both."""

    ranks: int
    launcher: str
    engine: str
    name: str

    def data(self) -> dict[str, Any]:
        """Return the case for JSON."""
        return {"ranks": self.ranks, "launcher": self.launcher, "engine": self.engine}


class Failed(Exception):
    """A job that cannot be timed; the text gives the reason."""


Figures = dict[Case, dict[str, list[float]]]
"""For each case the microseconds of each round, by operation."""


def bench(
    ranks: Sequence[int],
    engines: Sequence[str],
    launchers: Sequence[str],
    *,
    rounds: int,
    repeats: int,
    as_json: Path | TextIO | None = None,
    as_svg: Path | None = None,
) -> int:
    """Time engines and launchers in interleaved rounds and print tables; return 1 if one of them fails.

    Args:
        ranks: The numbers of ranks.
        engines: The engines; empty for all usable engines.
        launchers: Command lines in which `{n}` stands for the number of ranks; `pypmix run` comes before them.
        rounds: The number of runs of each case.
        repeats: How often a run repeats each operation.
        as_json: The file or the stream for the figures as JSON.
        as_svg: The file for a chart.

    Raises:
        UsageError: A launcher does not exist, or has no place for the number of ranks.
    """
    _check(launchers)
    names = names_of([OWN, *launchers])
    cases = [
        Case(number, launcher, engine, f"{name}, {engine}")
        for number in ranks
        for launcher, name in names.items()
        for engine in engines or _usable()
    ]
    interruptible()
    head = machine()
    print(f"{head['machine']}, Python {head['python']}, pypmix {__version__}")
    for launcher, name in names.items():
        print(f"  {name}: {launcher}")
    try:
        figures, failures = measure(cases, rounds, repeats)
    except KeyboardInterrupt:
        return INTERRUPTED
    print(tables(figures, rounds))
    for case, reason in failures.items():
        print(f"not timed: {case.name}, {case.ranks} ranks: {reason}", file=sys.stderr)
    if as_json is not None:
        write_json({**head, **_data(figures, failures, rounds, repeats)}, as_json)
    if as_svg and figures:
        as_svg.write_text(chart(figures, ", ".join(head.values())), encoding="utf-8")
    return int(bool(failures))


def _check(launchers: Sequence[str]) -> None:
    for launcher in launchers:
        try:
            words = shlex.split(launcher)
        except ValueError as error:
            raise UsageError(f"{launcher!r} is not a command line: {error}") from None
        if not words or shutil.which(words[0]) is None:
            raise UsageError(f"program not found: {launcher}")
        if "{n}" not in launcher:
            raise UsageError(f"a launcher has {{n}} where the number of ranks goes, which {launcher!r} has not")


def measure(
    cases: Sequence[Case],
    rounds: int,
    repeats: int,
    run: Callable[[Case, int], dict[str, float]] | None = None,
) -> tuple[Figures, dict[Case, str]]:
    """Return the figures of all rounds, and the failed cases with their reasons.

    Every round runs all cases one after the other, so that a noisy machine is noisy for all of them.

    Args:
        cases: The cases to time.
        rounds: The number of runs of each case.
        repeats: How often a run repeats each operation.
        run: Runs a case once; by default with a launcher's job.
    """
    run = run or _times
    figures: Figures = {case: {} for case in cases}
    failures: dict[Case, str] = {}
    for turn in range(rounds):
        for case in cases:
            if case in failures:
                continue
            _tell(f"round {turn + 1} of {rounds}: {case.name}, {case.ranks} ranks")
            try:
                found = run(case, repeats)
            except Failed as reason:
                failures[case] = str(reason)
                del figures[case]
                continue
            for name, figure in found.items():
                figures[case].setdefault(name, []).append(figure)
    _tell("")
    return figures, failures


def _times(case: Case, repeats: int) -> dict[str, float]:
    """Run a case once, and return the microseconds of each operation: medians over its ranks."""
    reports, _ = _job(case, repeats)
    names = [name for name in TITLES if all(name in each["microseconds"] for each in reports)]
    found = {name: statistics.median([each["microseconds"][name] for each in reports]) for name in names}
    _, seconds = _job(case, 0)
    return {**found, "start": seconds * 1e6}


def _job(case: Case, repeats: int) -> tuple[list[dict[str, Any]], float]:
    """Run a job, and return the reports of its ranks and the seconds from its launch to its end.

    Raises:
        Failed: It did not end well.
    """
    launch = shlex.split(case.launcher.replace("{n}", str(case.ranks)))
    if case.launcher == OWN:
        launch[:1] = [sys.executable, "-m", "pypmix"]
    try:
        with Running([*launch, sys.executable, "-m", "pypmix.timing", case.engine, "{word}", str(repeats)]) as job:
            ended = job.wait(LIMIT)
    except OSError as error:
        raise Failed(f"{launch[0]} cannot be executed: {error.strerror}") from None
    if ended.code is None:
        raise Failed(f"its job did not end within {LIMIT:g} s")
    if ended.code or len(ended.reports) != case.ranks:
        # A launcher's hint at its help follows the reason.
        lines = [line for line in ended.errors.splitlines() if line.strip() and not line.startswith("Try '")]
        raise Failed(lines[-1] if lines else f"exit code {ended.code}, {len(ended.reports)} ranks have reported")
    return ended.reports, ended.seconds


def _usable() -> list[str]:
    return ["python", "native"] if diagnose(os.environ).report.native.usable else ["python"]


def machine() -> dict[str, str]:
    """Return the date, the processor with its number of cores, and the Python, to be shown with figures."""
    try:
        told = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        told = ""
    named = re.search(r"^model name\s*: (.*)$", told, re.MULTILINE)
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{named[1] if named else platform.machine()}, {_cores()} cores",
        "python": platform.python_version(),
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def tables(figures: Figures, rounds: int) -> str:
    """Return a table for each operation: medians of the rounds, their spread, the ratio, and a bar."""
    lines = [
        "",
        f"Microseconds: the median of {rounds} interleaved rounds, the lowest and the highest, and the ratio to the",
        "first line of so many ranks.",
    ]
    crowded = sorted({case.ranks for case in figures if case.ranks > _cores()})
    if crowded:
        numbers = ", ".join(map(str, crowded))
        lines += [
            f"{numbers} ranks are more than the {_cores()} cores that there are: they wait for their turns, and such",
            "figures say little of a machine with a core for each.",
        ]
    width = max([len(case.name) for case in figures], default=0)
    for name, title in TITLES.items():
        rows = [(case, statistics.median(found[name]), found[name]) for case, found in figures.items() if name in found]
        if not rows:
            continue
        lines += ["", title]
        longest = max(median for _, median, _ in rows)
        firsts: dict[int, float] = {}
        for case, median, each in rows:
            first = firsts.setdefault(case.ranks, median)
            spread = f"({min(each):,.0f}-{max(each):,.0f})"
            bar = "█" * max(1, round(BAR * median / longest))
            lines.append(
                f"  {case.ranks:4} {case.name:{width}} {median:9,.0f} {spread:>19} {median / first:6.2f} {bar}"
            )
    return "\n".join(lines)


def chart(figures: Figures, foot: str) -> str:
    """Return the picture of all medians, as SVG."""
    launchers = list(dict.fromkeys(case.launcher for case in figures))
    panels: dict[str, list[Line]] = {}
    for name, title in TITLES.items():
        lines: dict[str, Line] = {}
        unit, size = ("milliseconds", 1e3) if name == "start" else ("microseconds", 1.0)
        for case, found in figures.items():
            if name in found:
                dashes = DASHES[launchers.index(case.launcher) % len(DASHES)]
                line = lines.setdefault(case.name, Line(case.name, COLORS[case.engine], dashes, []))
                line.points.append((case.ranks, statistics.median(found[name]) / size))
        if lines:
            panels[f"{title}, {unit} by ranks"] = list(lines.values())
    return picture(panels, foot, alike=False)


def _data(figures: Figures, failures: dict[Case, str], rounds: int, repeats: int) -> dict[str, Any]:
    firsts: dict[tuple[str, int], float] = {}
    results = []
    for case, found in figures.items():
        for name, each in found.items():
            median = statistics.median(each)
            first = firsts.setdefault((name, case.ranks), median)
            figure = {"median": median, "lowest": min(each), "highest": max(each), "ratio": median / first}
            results.append({"operation": name, **case.data(), **figure, "rounds": each})
    return {
        "pypmix": __version__,
        "cores": _cores(),
        "rounds": rounds,
        "repeats": repeats,
        "microseconds": results,
        "failed": [{**case.data(), "why": reason} for case, reason in failures.items()],
    }


def names_of(launchers: Sequence[str]) -> dict[str, str]:
    """Return the name of each launcher in tables: its words up to the first option, and a number if that is taken."""
    found: dict[str, str] = {}
    for launcher in launchers:
        first, *others = shlex.split(launcher)
        words = [os.path.basename(first), *itertools.takewhile(lambda word: word[0] not in "-{", others)]
        name = " ".join(words)
        taken = sum([each.partition(" #")[0] == name for each in found.values()])
        found.setdefault(launcher, f"{name} #{taken + 1}" if taken else name)
    return found


def _tell(text: str) -> None:
    """Show the progress if standard error is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text[: columns(2) - 1]}\x1b[K", end="", file=sys.stderr, flush=True)
