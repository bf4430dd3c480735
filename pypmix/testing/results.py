"""The reports of a test's ranks, merged: equal parts of several ranks are shown once."""

from __future__ import annotations

import builtins
import json
import os
import sys
import warnings
from typing import Any

import pytest
from _pytest._code.code import TerminalRepr

from pypmix.testing.cluster import format_ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CALLER = os.path.join("_pytest", "python.py")
"""The end of the path of the module that calls tests."""

PHASES = ("setup", "call", "teardown")

UNEXPECTED = "[XPASS(strict)]"
"""The beginning of pytest's report of a rank that passed although it was expected to fail."""


def hide() -> None:
    """Hide the frames of pypmix without --full-trace: a traceback then ends with the failed call."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "pypmix" and module is not None:
            vars(module)["__tracebackhide__"] = True


class Crash:
    """The line of the summary for a test."""

    def __init__(self, message: str, location: Any) -> None:
        self.message = message
        self.path = getattr(location, "path", "")
        self.lineno = getattr(location, "lineno", 0)


class Failures(TerminalRepr):
    """The failures of a test, as pytest shows them: one after the other, with their ranks.

    Args:
        parts: The ranks of each failure, and its representation: a text, or pytest's of an exception.
    """

    def __init__(self, parts: list[tuple[str, Any]]) -> None:
        self._parts = parts
        where, first = parts[0]
        crash = getattr(first, "reprcrash", None)
        message = crash.message if crash is not None else str(first)
        self.reprcrash = Crash(f"{where}: {message}", crash)

    def toterminal(self, tw: Any) -> None:
        """Write the failures."""
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
        # After a transfer between processes, as with pytest-xdist, the summary has only this text.
        stream.write(f"{self.reprcrash.message}\n")
        self.toterminal(TerminalWriter(file=stream))
        return stream.getvalue().strip()


def shown(item: pytest.Item, parts: Iterable[tuple[str, BaseException | str]]) -> Failures:
    """Return the failures of ranks in this process, in the form that pytest shows."""
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
        folder: The folder with the reports.
        size: The number of ranks.
        rank_ends: How failed ranks have ended, as text for a person.
        late_text: The text of a timeout, with the pending calls; empty if there was none.
        seconds: The duration of the whole test.
    """

    def __init__(
        self, item: pytest.Item, folder: Path, size: int, rank_ends: Mapping[int, str], late_text: str, seconds: float
    ) -> None:
        self._size = size
        self._late_text = late_text
        self._rank_ends = rank_ends
        self._seconds = seconds
        self._reports: dict[str, dict[int, pytest.TestReport]] = {phase: {} for phase in PHASES}
        self._silent: dict[int, str] = {}
        """The stacks of ranks without a report."""
        by_warning: dict[tuple[str, str, str, int], list[int]] = {}
        for rank in range(size):
            path = folder / f"rank.{rank}.json"
            if not path.exists() and (folder / "shared" / f".killed.{rank}").exists():
                continue
            if not path.exists():
                stacks = folder / f"rank.{rank}.stacks"
                self._silent[rank] = _hide_pytest(stacks.read_text(errors="replace")) if stacks.exists() else ""
                continue
            content = json.loads(path.read_text())
            for data in content["reports"]:
                report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
                self._reports[report.when][rank] = report
            for warning in content["warnings"]:
                by_warning.setdefault(tuple(warning), []).append(rank)
        for warning, ranks in by_warning.items():
            _warn(item, warning, format_ranks(ranks, size))

    def amend(self, report: pytest.TestReport) -> None:
        """Change the report of a phase to the merged reports of the ranks."""
        reports = self._reports[report.when]
        failed = {rank: each for rank, each in reports.items() if each.failed}
        skipped = [each for each in reports.values() if each.skipped]
        expected = [each for each in skipped if hasattr(each, "wasxfail")]
        if expected:
            # A test that is expected to fail may pass on some ranks.
            failed = {rank: each for rank, each in failed.items() if UNEXPECTED not in each.longreprtext}
        # The phase of a rank without a report is unknown, but a failed setup of another rank is the likely cause.
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
        # Properties that several ranks have recorded equally are kept once; JSON has turned the pairs into lists.
        recorded = {str(each): (str(each[0]), each[1]) for one in reports.values() for each in one.user_properties}
        report.user_properties = [*report.user_properties, *recorded.values()]
        longest = {
            phase: max([each.duration for each in self._reports[phase].values()], default=0.0) for phase in PHASES
        }
        report.duration = longest[report.when]
        if report.when == "setup":
            # The setup includes the start and the end of the ranks.
            report.duration = max(longest["setup"], self._seconds - longest["call"] - longest["teardown"])

    def _parts(self, failed: Mapping[int, pytest.TestReport], silent: Mapping[int, str]) -> list[tuple[str, Any]]:
        """Return the failures with their ranks, the earliest first, equal ones once.

        A failure that names a missing rank follows the failure of that rank, which may be reported later.
        """

        def place(rank: int) -> tuple[bool, float]:
            missing = getattr(failed[rank], "pmix_missing", ())
            return bool(set(missing) & failed.keys()), failed[rank].stop

        equal: dict[object, list[int]] = {}
        for rank in sorted(failed, key=place):
            equal.setdefault(_alike(failed[rank]), []).append(rank)
        parts = [(format_ranks(ranks, self._size), failed[ranks[0]].longrepr) for ranks in equal.values()]
        late = [(format_ranks(range(self._size), self._size), self._late_text)] if self._late_text and silent else []
        gone = []
        for rank, stacks in silent.items():
            end = self._rank_ends.get(rank, "it was ended before the test was over")
            gone.append((format_ranks([rank], self._size), f"{end}\n{stacks}".strip()))
        killed = [
            part for part, rank in zip(gone, silent, strict=True) if rank in self._rank_ends and not self._late_text
        ]
        return [*late, *killed, *parts, *[part for part in gone if part not in killed]]

    def _sections(self, reports: Mapping[int, pytest.TestReport]) -> list[tuple[str, str]]:
        equal: dict[tuple[str, str], list[int]] = {}
        for rank, report in sorted(reports.items()):
            for name, text in report.sections:
                equal.setdefault((name, text), []).append(rank)
        return [(f"{name} ({format_ranks(ranks, self._size)})", text) for (name, text), ranks in equal.items()]


def _hide_pytest(stacks: str) -> str:
    """Return stacks without the frames of pytest below the test."""
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
    """Return a key that is equal for reports of the same failure, without the values of arguments."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return report.longreprtext if crash is None else (crash.path, crash.lineno, crash.message)


def _warn(item: pytest.Item, warning: tuple[str, str, str, int], ranks: str) -> None:
    text, name, filename, line = warning
    module, _, kind = name.partition(":")
    category = getattr(sys.modules.get(module, builtins), kind, UserWarning)
    if not (isinstance(category, type) and issubclass(category, Warning)):
        category = UserWarning
    shown = warnings.WarningMessage(f"{ranks}: {text}", category, filename, line)
    item.ihook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": shown, "when": "runtest", "nodeid": item.nodeid, "location": None}
    )
