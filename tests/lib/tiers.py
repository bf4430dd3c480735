"""The tests that each submission is judged by, `--tier submission`: a part of all, for two cores and 12 minutes.

The long tier (`tests/lib/long.py`) has all the others too. What is left out here repeats with another server, client,
form or parameter what is kept, or takes long:

- The shared suite runs on our own server, with the Python client in one form and with one native client. One test
  proves each promise on the launchers that are not ours, and one on two nodes or on a native server under our host.
  Each module has one test on each of these servers.
- A test with more than `LARGE` parameters runs with that many of them.
- Of the folders in `SHARES` one test function in so many runs.

Which ones follows from a hash of their names, so that it is the same each time. What the change under test touches
(`lib.changes`) runs as a whole: tests that it adds or edits, and in `unit` and `wire` the tests of modules that it
edits. A test that is named on the command line runs in any case.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path

import pytest

from lib import changes
from lib.pairings import HOSTED, NODES

OPTION = "--tier"
SUBMISSION = "submission"
LONG = "long"

LARGE = 20
"""Parameters of one test that are many."""

LEFT_OUT = (
    "bench",
    "trixie",
    "frameworks",
    "stranger",
    "fuzz",
    "foreign/interop/differential",
    "nodes/test_faults.py",
    "nodes/test_fault_table.py",
    "suite/test_layouts.py",
    "faults/test_signals.py",
    "faults/test_load.py",
    "faults/test_killed_ranks.py",
    "cli/test_bench.py",
)
"""Parts of `tests` that belong to the long tier: random tests, large frameworks, whole machines."""

SHARES = {"nodes": 4, "cluster": 4, "daemons": 3, "plugin": 4, "pages": 2, "foreign": 2, "cli": 3}
"""Folders of which one test function in so many runs."""

MOST_ADDED = {"unit": 3000, "wire": 3000}
"""How many cases a change may add, by folder: one that touches everything is tested by the long tier."""
ADDED_ELSEWHERE = 40

LEFT_OUT_TESTS = (
    "tests/faults/test_sessions.py::test_large_sessions",
    "tests/cli/test_conform.py::test_prterun_keeps_what_the_suite_knows",
)
"""Single tests of the long tier, each of which takes a minute."""

Cases = list[pytest.Item]


def number(text: str) -> int:
    """Return a number that follows from a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION,
        choices=(SUBMISSION, LONG),
        default=LONG,
        help="`submission`: the part of the tests that judges each submission; `long`, the default: all",
    )


def is_submission(config: pytest.Config) -> bool:
    return bool(config.getoption(OPTION) == SUBMISSION)


def pytest_report_header(config: pytest.Config) -> str:
    if not is_submission(config):
        return "tier: long, all tests"
    base = changes.base()
    touched = f"{len(changes.files())} files changed since {base[:12]}" if base else "no change known"
    return f"tier: submission, a part of the tests (tests/lib/tiers.py); {touched}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out parts of the long tier, unless they are named."""
    if not is_submission(config):
        return None
    try:
        path = collection_path.relative_to(changes.ROOT / "tests").as_posix()
    except ValueError:
        return None
    if path not in LEFT_OUT:
        return None
    named = [Path(config.invocation_params.dir, argument.partition("::")[0]) for argument in config.args]
    return None if any(collection_path == each or collection_path in each.parents for each in named) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not is_submission(config) or any("::" in argument for argument in config.args):
        return
    kept = set(select(items))
    left_out = [item for item in items if item not in kept]
    items[:] = [item for item in items if item in kept]
    config.hook.pytest_deselected(items=left_out)


def select(items: Iterable[pytest.Item]) -> Cases:
    """Return the tests of the submission tier."""
    functions: dict[str, Cases] = defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    elsewhere: Cases = []
    kept: Cases = []
    touched: Cases = []
    for function, cases in functions.items():
        if function in LEFT_OUT_TESTS:
            continue
        share = SHARES.get(folder_of(function), 1)
        if is_touched(function):
            touched += cases
        if number(function) % share == 0:
            ours, others = split(cases)
            kept += sample(ours)
            elsewhere += others
    return [*kept, *one_of_each(elsewhere, proofs), *limit(touched)]


def folder_of(nodeid: str) -> str:
    return nodeid.split("/")[1] if "/" in nodeid else ""


def is_touched(function: str) -> bool:
    """Return True if all cases of a test are to run because of the change."""
    path = function.partition("::")[0]
    return changes.is_edited(function) or (folder_of(path) in MOST_ADDED and changes.touches_subject(path))


def limit(cases: Cases) -> Cases:
    """Return as many of the tests that the change touches as the tier has time for."""
    by_folder: dict[str, Cases] = defaultdict(list)
    for item in in_hash_order(cases):
        by_folder[folder_of(item.nodeid) if folder_of(item.nodeid) in MOST_ADDED else ""].append(item)
    return [item for name, found in by_folder.items() for item in found[: MOST_ADDED.get(name, ADDED_ELSEWHERE)]]


def in_hash_order(cases: Iterable[pytest.Item]) -> Cases:
    return sorted(cases, key=lambda item: number(item.nodeid))


def sample(cases: Cases) -> Cases:
    """Return at most `LARGE` cases of a test, and of one that runs alone because of its times one."""
    timing = cases and cases[0].get_closest_marker("timing") and folder_of(cases[0].nodeid) not in TOLD_APART
    most = 1 if timing else LARGE
    return in_hash_order(cases)[:most] if len(cases) > most else cases


def one_of_each(cases: Iterable[pytest.Item], kinds: Callable[[pytest.Item], Iterable[Hashable]]) -> Cases:
    """Return few cases that together are of all kinds that any is of.

    Of two that will do, the one is taken that shows more than what somebody lacks, then the one in the form that is
    wanted, then the first by hash.
    """
    kept, seen = [], set[Hashable]()
    for item in sorted(in_hash_order(cases), key=lambda item: (is_lacking(item), not has_wanted_form(item))):
        missing = set(kinds(item)) - seen
        if missing:
            kept.append(item)
            seen |= missing
    return kept


# Servers

PEERS = ("run", "launch", "host", "alone", "libpmix", "native", "client", "form")
"""The parameters of tests in `TOLD_APART` that name a server, a client or a form."""

TOLD_APART = ("suite", "foreign")
"""The folders whose tests are repeated for servers, clients and forms."""

BLOCKING = 6
"""One test in so many runs in the blocking form with the Python client on our server."""

OURS = ("", "python", "python-server")


def parameter(item: pytest.Item, name: str) -> object:
    call = getattr(item, "callspec", None)
    return call.params.get(name) if call is not None else None


def server_of(item: pytest.Item) -> str:
    """Return the server of a case; empty for a test that has none of its own."""
    found = parameter(item, "run")
    if isinstance(found, tuple):
        return str(found[0].server)
    found = parameter(item, "launch") or parameter(item, "host")
    return str(getattr(found, "server", found or ""))


def is_lacking(item: pytest.Item) -> bool:
    """Return True if a case shows only that somebody lacks a feature."""
    return any(item.get_closest_marker(name) for name in ("xfail", "skip"))


def has_wanted_form(item: pytest.Item) -> bool:
    """Return True if a case has the form that is wanted of a test: mostly the one whose ranks are forked, if it exists,
    as that takes a third of the time.
    """
    found = parameter(item, "run")
    if not isinstance(found, tuple):
        return True
    pairing, form = found
    forked = pairing == ("python-server", "python-client") and number(item.nodeid.partition("[")[0]) % BLOCKING
    return bool(form == ("asyncio" if forked else "sync"))


def split(cases: Cases) -> tuple[Cases, Cases]:
    """Return the cases of a test that are kept on our own server or on none, and the candidates on other servers."""
    if folder_of(cases[0].nodeid) not in TOLD_APART:
        return cases, []
    ours = [item for item in cases if server_of(item) in OURS]
    return one_of_each(ours, alike), [item for item in cases if server_of(item) not in OURS and not is_lacking(item)]


def alike(item: pytest.Item) -> Iterable[Hashable]:
    """Return what all cases have in common of which one is enough: the client's engine, and what names no peer."""
    call = getattr(item, "callspec", None)
    others = call.params.items() if call is not None else ()
    rest = tuple(sorted((name, repr(value)) for name, value in others if name not in PEERS))
    run = parameter(item, "run")
    engine = run[0].client.partition("-")[0] if isinstance(run, tuple) else ""
    return ((engine, rest),)


def proofs(item: pytest.Item) -> Iterable[Hashable]:
    """Return what a case on another server proves that one of the tier is to prove."""
    server = server_of(item)
    family = next((name for name in (NODES, HOSTED) if server.startswith(name)), "")
    yield item.nodeid.partition("::")[0], family or server
    for mark in item.iter_markers("promise"):
        for name in mark.args:
            yield name, bool(family)
