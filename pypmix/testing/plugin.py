"""The plugin of pytest: `@pytest.mark.pmix(ranks=4)`."""

# It is loaded at each start of pytest, so it imports the rest of the package on demand.

from __future__ import annotations

import contextlib

import pytest

from pypmix.testing.wish import MARKER, RANKS, SECONDS, Wish, ranks_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path
    from typing import Any

    from pypmix import Client
    from pypmix.testing.cluster import Cluster
    from pypmix.testing.job import Jobs
    from pypmix.testing.results import Results

_jobs: pytest.StashKey[Jobs] = pytest.StashKey()
_results: pytest.StashKey[Results] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("pmix", "tests on several ranks")
    group.addoption(
        "--pmix-ranks",
        type=int,
        metavar="N",
        help=f"Ranks of tests whose marker names no number; {RANKS} if not given.",
    )
    group.addoption("--pmix-timeout", type=float, metavar="SECONDS", help="Time limit of each test on several ranks.")
    parser.addini("pmix_timeout", f"Time limit of each test on several ranks; {SECONDS:g} seconds if not given.")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", MARKER)


def on_rank(config: pytest.Config) -> bool:
    """Return True in a rank, and in the process that ranks are forked from."""
    return bool(getattr(config.option, "pmix_on_rank", False))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each number of ranks."""
    marker = metafunc.definition.get_closest_marker("pmix")
    numbers = None if marker is None else ranks_of(marker)
    if isinstance(numbers, list | tuple):
        metafunc.fixturenames.append("pmix_ranks")
        metafunc.parametrize("pmix_ranks", numbers, ids=[f"ranks={number}" for number in numbers], indirect=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Make marked tests run on ranks."""
    if on_rank(config):
        return
    for item in items:
        marker = item.get_closest_marker("pmix")
        if marker is None:
            continue
        if not isinstance(item, pytest.Function):
            raise pytest.UsageError(f"{item.nodeid}: only functions can run on several ranks")
        _Remote(item, Wish(item, marker)).install()


class _Remote:
    """A test whose phases all run on ranks, during its setup phase here; fixtures are evaluated only on ranks."""

    def __init__(self, item: pytest.Function, wish: Wish) -> None:
        self._item = item
        self._wish = wish

    def install(self) -> None:
        """Replace the phases of the test."""
        own: Any = self._item
        own.setup, own.runtest = self.setup, lambda: None

    def setup(self) -> None:
        """Run the test on its ranks."""
        item = self._item
        if item.config.option.setuponly:
            # Fixtures are evaluated on ranks, which are not started for --setup-only.
            return
        stash = item.config.stash
        if _jobs not in stash:
            from pypmix.testing.job import Jobs

            stash[_jobs] = Jobs(item.config)
        item.stash[_results] = stash[_jobs].run(item, self._wish)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Replace a report by the reports of the ranks, or by their failures on virtual time."""
    report = yield
    parts = getattr(call.excinfo.value, "pmix_failures", None) if call.excinfo is not None else None
    if parts is not None and report.failed:
        from pypmix.testing.results import shown

        report.longrepr = shown(item, parts)
    results = item.stash.get(_results, None)
    if results is not None:
        results.amend(report)
        if report.when == "teardown":
            del item.stash[_results]
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the fork server."""
    jobs = config.stash.get(_jobs, None)
    if jobs is not None:
        jobs.close()


@pytest.fixture
def pmix() -> Iterator[Client]:
    """The client of this rank, open."""
    from pypmix import Client, LostConnection

    with Client() as me:
        yield me
        # A rank whose link was cut by the test cannot finalize.
        with contextlib.suppress(LostConnection):
            me.close()


@pytest.fixture
def pmix_cluster(pmix: Client, pmix_tmp_path: Path) -> Cluster:
    """The ranks, nodes and links of this test; all ranks have connected."""
    from pypmix.testing.cluster import RealCluster

    return RealCluster.meet(pmix, pmix_tmp_path)


@pytest.fixture
def pmix_ranks(request: pytest.FixtureRequest) -> int:
    """The number of ranks of this test."""
    from pypmix.testing.rank import size

    return size()


@pytest.fixture
def pmix_tmp_path(request: pytest.FixtureRequest) -> Path:
    """A folder that all ranks of this test share."""
    from pypmix.testing.rank import shared

    return shared()
