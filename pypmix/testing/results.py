"""The reports of a test's ranks, and what is shown of them: what is equal on several ranks once."""

from __future__ import annotations

import builtins
import json
import os
import sys
import warnings
from typing import Any

import pytest
from _pytest._code.code import TerminalRepr

from pypmix.testing.cluster import named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CALLER = os.path.join("_pytest", "python.py")
"""The end of the path of the module that calls tests."""

PHASES = ("setup", "call", "teardown")

UNEXPECTED = "[XPASS(strict)]"
"""The beginning of what pytest reports of a rank that has passed and was to fail."""


def hide() -> None:
    """Have pytest show no frames of pypmix without --full-trace: a traceback ends with the call that failed."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "pypmix" and module is not None:
            vars(module)["__tracebackhide__"] = True


class Crash:
    """The line of the summary for a test."""

    def __init__(self, message: str, known: Any) -> None:
        self.message = message
        self.path = getattr(known, "path", "")
        self.lineno = getattr(known, "lineno", 0)


class Failures(TerminalRepr):
    """The failures of a test, as pytest shows them: one after the other, with their ranks.

    Args:
        parts: The ranks of each, and what is shown: a text, or what pytest has made of an exception.
    """

    def __init__(self, parts: list[tuple[str, Any]]) -> None:
        self._parts = parts
        where, first = parts[0]
        crash = getattr(first, "reprcrash", None)
        message = crash.message if crash is not None else str(first)
        self.reprcrash = Crash(f"{where}: {message}", crash)

    def toterminal(self, tw: Any) -> None:
        """Write them."""
        for where, shown in self._parts:
            tw.sep("-", where, bold=True)
            if hasattr(shown, "toterminal"):
                shown.toterminal(tw)
            else:
                tw.line(str(shown))

    def __str__(self) -> str:
        from io import StringIO

        from _pytest._io import TerminalWriter

        stream = StringIO()
        # All that a summary has of it, where it has passed from one process to another, as of pytest-xdist.
        stream.write(f"{self.reprcrash.message}\n")
        self.toterminal(TerminalWriter(file=stream))
        return stream.getvalue().strip()


def shown(item: pytest.Item, parts: Iterable[tuple[str, BaseException | str]]) -> Failures:
    """Return failures of ranks in this process, as pytest shows them."""
    found: list[tuple[str, Any]] = []
    hide()
    for where, each in parts:
        known = each if isinstance(each, str) else item.repr_failure(pytest.ExceptionInfo.from_exception(each))
        found.append((where, known))
    return Failures(found)


class Results:
    """The reports of a test from its ranks.

    Args:
        item: The test.
        folder: Where they have left it.
        size: How many there are.
        ends: How ranks have ended that failed, for a person.
        late: Why all were ended, with the calls that were waited for; empty if they were not.
        seconds: How long all of it has taken.
    """

    def __init__(
        self, item: pytest.Item, folder: Path, size: int, ends: Mapping[int, str], late: str, seconds: float
    ) -> None:
        self._size = size
        self._late = late
        self._ends = ends
        self._seconds = seconds
        self._reports: dict[str, dict[int, pytest.TestReport]] = {phase: {} for phase in PHASES}
        self._silent: dict[int, str] = {}
        """The stacks of ranks that have not reported."""
        told: dict[tuple[str, str, str, int], list[int]] = {}
        for rank in range(size):
            path = folder / f"rank.{rank}.json"
            if not path.exists() and (folder / "shared" / f".killed.{rank}").exists():
                continue
            if not path.exists():
                stacks = folder / f"rank.{rank}.stacks"
                self._silent[rank] = _own(stacks.read_text(errors="replace")) if stacks.exists() else ""
                continue
            found = json.loads(path.read_text())
            for data in found["reports"]:
                report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
                self._reports[report.when][rank] = report
            for warning in found["warnings"]:
                told.setdefault(tuple(warning), []).append(rank)
        for warning, ranks in told.items():
            _warn(item, warning, named(ranks, size))

    def amend(self, report: pytest.TestReport) -> None:
        """Make the report of a phase here what that phase was on the ranks."""
        reports = self._reports[report.when]
        failed = {rank: each for rank, each in reports.items() if each.failed}
        skipped = [each for each in reports.values() if each.skipped]
        expected = [each for each in skipped if hasattr(each, "wasxfail")]
        if expected:
            # A test that was to fail has done so if it has on any rank.
            failed = {rank: each for rank, each in failed.items() if UNEXPECTED not in each.longreprtext}
        # How far a rank has come that has not reported is not known, but that another one could not be set up is.
        unset = any(each.failed for each in self._reports["setup"].values())
        silent = self._silent if report.when == ("setup" if unset else "call") else {}
        report.outcome, report.longrepr = "passed", None
        vars(report).pop("wasxfail", None)
        if failed or silent:
            report.outcome, report.longrepr = "failed", Failures(self._parts(failed, silent))
        elif expected:
            report.outcome, report.longrepr = "skipped", expected[0].longrepr
        elif skipped and len(skipped) == len(reports):
            why = skipped[0].longrepr
            # JSON has no tuples.
            report.outcome, report.longrepr = "skipped", tuple(why) if isinstance(why, list) else why
        for each in reports.values():
            if hasattr(each, "wasxfail") and report.outcome != "failed":
                report.wasxfail = each.wasxfail
        report.sections = [*self._sections(reports), *report.sections]
        # Those that several ranks have recorded alike once; JSON makes lists of them.
        recorded = {str(each): (str(each[0]), each[1]) for one in reports.values() for each in one.user_properties}
        report.user_properties = [*report.user_properties, *recorded.values()]
        longest = {
            phase: max([each.duration for each in self._reports[phase].values()], default=0.0) for phase in PHASES
        }
        report.duration = longest[report.when]
        if report.when == "setup":
            # With all that it takes to have ranks.
            report.duration = max(longest["setup"], self._seconds - longest["call"] - longest["teardown"])

    def _parts(self, failed: Mapping[int, pytest.TestReport], silent: Mapping[int, str]) -> list[tuple[str, Any]]:
        """Return the failures with their ranks: those that came first at first, equal ones once.

        Failures of ranks that lack one that has failed by itself come after that, which ends later than they do where
        it is its end that tells them.
        """

        def place(rank: int) -> tuple[bool, float]:
            missing = getattr(failed[rank], "pmix_missing", ())
            return bool(set(missing) & failed.keys()), failed[rank].stop

        equal: dict[object, list[int]] = {}
        for rank in sorted(failed, key=place):
            equal.setdefault(_alike(failed[rank]), []).append(rank)
        parts = [(named(ranks, self._size), failed[ranks[0]].longrepr) for ranks in equal.values()]
        late = [(named(range(self._size), self._size), self._late)] if self._late and silent else []
        gone = []
        for rank, stacks in silent.items():
            end = self._ends.get(rank, "it was ended before the test was over")
            gone.append((named([rank], self._size), f"{end}\n{stacks}".strip()))
        killed = [part for part, rank in zip(gone, silent, strict=True) if rank in self._ends and not self._late]
        return [*late, *killed, *parts, *[part for part in gone if part not in killed]]

    def _sections(self, reports: Mapping[int, pytest.TestReport]) -> list[tuple[str, str]]:
        equal: dict[tuple[str, str], list[int]] = {}
        for rank, report in sorted(reports.items()):
            for name, text in report.sections:
                equal.setdefault((name, text), []).append(rank)
        return [(f"{name} ({named(ranks, self._size)})", text) for (name, text), ranks in equal.items()]


def _own(stacks: str) -> str:
    """Return stacks without the frames of pytest that a test is called by."""
    found: list[str] = []
    ours = False
    for line in stacks.strip().splitlines():
        if not line.startswith("  File"):
            ours = False
        ours = ours or CALLER in line
        if not ours:
            found.append(line)
    return "\n".join(found)


def _alike(report: pytest.TestReport) -> object:
    """Return what reports of the same failure have in common: the values of arguments may be others on each rank."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return report.longreprtext if crash is None else (crash.path, crash.lineno, crash.message)


def _warn(item: pytest.Item, warning: tuple[str, str, str, int], where: str) -> None:
    text, name, filename, line = warning
    module, _, kind = name.partition(":")
    category = getattr(sys.modules.get(module, builtins), kind, UserWarning)
    if not (isinstance(category, type) and issubclass(category, Warning)):
        category = UserWarning
    shown = warnings.WarningMessage(f"{where}: {text}", category, filename, line)
    item.ihook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": shown, "when": "runtest", "nodeid": item.nodeid, "location": None}
    )
