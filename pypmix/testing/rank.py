"""A rank that runs one test, forked from the template."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
from pathlib import Path

import pytest

from pypmix.testing import template
from pypmix.testing.results import hide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any

_folder = ""
_size = 0


def number() -> int:
    """Return the rank of this process."""
    return int(os.environ["PMIX_RANK"])


def size() -> int:
    """Return the number of ranks of the test."""
    return _size


def shared() -> Path:
    """Return the folder that all ranks of the test share."""
    path = Path(_folder) / "shared"
    path.mkdir(exist_ok=True)
    return path


class Reporter:
    """Collects pytest's reports and warnings of a test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.reports: list[dict[str, Any]] = []
        self.warnings: list[tuple[str, str, str, int]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run the test once; only the pytest that shows the results may rerun it."""
        from _pytest.runner import runtestprotocol

        for report in runtestprotocol(item, log=False, nextitem=None):
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            self.reports.append(data)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the ranks that a failure names as missing."""
        hide()
        report = yield
        if call.excinfo is not None:
            missing = getattr(call.excinfo.value, "missing", None) or ()
            vars(report)["pmix_missing"] = [proc.rank for proc in missing]
        return report

    def pytest_warning_recorded(self, warning_message: Any, when: str) -> None:
        """Keep a warning of the test; the other pytest shows those of the configuration and the collection."""
        if when != "runtest":
            return
        category = warning_message.category
        name = f"{category.__module__}:{category.__qualname__}"
        where = warning_message.filename, warning_message.lineno
        self.warnings.append((str(warning_message.message), name, *where))


def main(words: Sequence[str]) -> int:
    """Run the test of the words PLACE FOLDER RANKS ENGINE; return 0 if it has passed on this rank."""
    global _folder, _size
    place, _folder, ranks, engine = words
    _size = int(ranks)
    if engine:
        os.environ["PYPMIX_ENGINE"] = engine
    if template.TEMPLATE is None:
        raise SystemExit("a rank of a test is forked from a pytest, not started")
    base = os.path.join(_folder, f"rank.{number()}")
    # A rank that is asked to exit writes its stacks, even during a call of C.
    with open(f"{base}.stacks", "w") as stacks:
        faulthandler.register(signal.SIGTERM, stacks, all_threads=True, chain=True)
        faulthandler.enable(stacks)
        passed = _run(template.TEMPLATE, place, base)
        faulthandler.unregister(signal.SIGTERM)
        faulthandler.disable()
    return 0 if passed else 1


def _run(made: template.Template, place: str, base: str) -> bool:
    config = made.config
    item = made.items.get(place)
    if item is None:
        raise SystemExit(f"{place} was not collected again: do its name or parameters differ each time?")
    factory: Any = getattr(config, "_tmp_path_factory", None)
    if factory is not None:
        # Like --basetemp, but for each rank.
        vars(factory).update(_given_basetemp=Path(f"{base}.tmp"), _basetemp=None)
    reporter = Reporter(config)
    config.pluginmanager.register(reporter)
    if made.capture is not None:
        made.capture.start_global_capturing()
    try:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
    finally:
        if made.capture is not None:
            made.capture.stop_global_capturing()
    with open(f"{base}.new", "w") as file:
        # Properties that a test records may have any type.
        json.dump({"reports": reporter.reports, "warnings": reporter.warnings}, file, default=repr)
    os.rename(f"{base}.new", f"{base}.json")
    return not any(report["outcome"] == "failed" for report in reporter.reports)
