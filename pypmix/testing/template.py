"""The pytest that ranks are forked from: it has the options of the pytest that shows the results, and collects files.

A fork server imports it once.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import create_terminal_writer

import pypmix
from pypmix.extras.forking.safety import REFUSED, explain_unsafe, open_files
from pypmix.testing.results import hide
from pypmix.testing.wish import place

VARIABLE = "PYPMIX_TESTING"
"""The variable with the path of the file for the configuration."""

THREADED = ("rerunfailures",)
"""Plugins that start threads with a session. Only the pytest that shows the results needs them."""


class Refused(Exception):
    """A module cannot be imported before ranks are forked. Not an `ImportError`, which tests may catch."""


class _Refusing:
    """Refuses modules while it is in `sys.meta_path`."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in REFUSED:
            raise Refused(f"{name} cannot be imported before ranks are forked: import it inside of tests or fixtures")


@contextmanager
def _refusing() -> Iterator[None]:
    finder: Any = _Refusing()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class Reporter:
    """Collects pytest's reports and warnings of the test that a rank runs."""

    # A rank copies each page that it writes to: the template has registered it, and a test that passes does not touch
    # the modules.

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
        if call.excinfo is not None:
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


class Template:
    """A session of pytest that collects and never runs.

    Args:
        path: The file with its configuration.
    """

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            options, args, folder, search, worker, markers = pickle.load(file)
        # Modules of the fork server may have changed it.
        os.chdir(folder)
        sys.path[:] = search
        # Otherwise pytest warns that it cannot rewrite asserts of imported modules, and fails if warnings are errors.
        pypmix.__doc__ = f"{pypmix.__doc__}\nPYTEST_DONT_REWRITE"
        self.config = config = pytest.Config.fromdictargs(options, args)
        if worker is not None:
            vars(config)["workerinput"] = worker
        for name in THREADED:
            plugin = config.pluginmanager.get_plugin(name)
            if plugin is not None:
                config.pluginmanager.unregister(plugin)
        for line in markers:
            config.addinivalue_line("markers", line)
        # It stays empty, but pytest 8 takes colours from it when it explains the difference of two values.
        writer = create_terminal_writer(config, io.StringIO())
        vars(config)["get_terminal_writer"] = lambda: writer
        self.capture: Any = config.pluginmanager.getplugin("capturemanager")
        self.items: dict[str, pytest.Item] = {}
        self._errors: list[str] = []
        self._collected: dict[str, str] = {}
        self._folders: dict[Path, pytest.Collector] = {}
        self._left: dict[Path, object] = {}
        self.reporter = Reporter(config)
        config.pluginmanager.register(self)
        config.pluginmanager.register(self.reporter)
        vars(type(config))["_do_configure"](config)
        self.session = pytest.Session.from_config(config)
        config.hook.pytest_sessionstart(session=self.session)
        if self.capture is not None:
            # Each rank starts its own capture; with this one, all ranks would write to the same file.
            self.capture.stop_global_capturing()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember the errors of the collection."""
        if report.failed:
            self._errors.append(str(report.longrepr))

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_directory(self, path: Path) -> Generator[None, pytest.Collector | None, pytest.Collector | None]:
        """Return the same node for a folder in each collection: fixtures of its conftest are bound to it."""
        found = yield
        return None if found is None else self._folders.setdefault(path, found)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        """Remember the conftests of folders that were not collected: pytest 9.1 and later drop them here."""
        self._left = dict(self._conftests())

    def _conftests(self) -> dict[Path, object]:
        """Return the conftests that pytest 9.1 and later bind to their folders during the collection."""
        found: dict[Path, object] = getattr(vars(self.session)["_fixturemanager"], "_pending_conftests", {})
        return found

    def collect(self, path: str) -> str:
        """Collect a file once; return why its tests cannot run, empty if they can."""
        if path not in self._collected:
            self._collected[path] = self._collect(path)
        return self._collected[path]

    def _collect(self, path: str) -> str:
        before = open_files()
        self._errors.clear()
        if self.capture is not None:
            self.capture.start_global_capturing()
        try:
            self.items.update({place(item): item for item in self.session.perform_collect([path])})
        finally:
            self._conftests().update(self._left)
            if self.capture is not None:
                self.capture.stop_global_capturing()
        why = explain_unsafe(before)
        if why:
            return f"{os.path.basename(path)} cannot be imported before ranks are forked: {why}"
        return "\n".join(self._errors)


TEMPLATE: Template | None = None


def collect(path: str) -> str:
    """Collect a file of tests; return why they cannot run, empty if they can."""
    global TEMPLATE
    with _refusing():
        if TEMPLATE is None:
            TEMPLATE = Template(os.environ.pop(VARIABLE))
        return TEMPLATE.collect(path)
