"""What the shared suite leaves out by default is proven elsewhere: the selection hides no pairing, form or promise."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lib import hosting, pairings, promises, selection
from lib.pairings import HOSTED, NODES, Pairing

SUITE = Path(__file__).resolve().parents[1] / "suite"

# those at hand besides are not the same everywhere
SERVERS = (*pairings.SERVERS, pairings.ROOT_SERVER, pairings.ROOT_HOSTED)
ALL = [pair for server in SERVERS for client in pairings.clients() if (pair := Pairing(server, client)).exists]
NAMES = [f"test_module.test_number_{number}" for number in range(300)]


def chosen(test: str, *features: str) -> list[str]:
    return [str(pairing) for pairing in selection.select(test, ALL, features)]


@functools.cache
def proofs() -> dict[str, set[str]]:
    """Return the tests that prove each promise, by the names that the selection follows from."""
    found: dict[str, set[str]] = {}
    for path in SUITE.glob("test_*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            for mark in getattr(function, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.promise":
                    for argument in mark.args:
                        found.setdefault(ast.literal_eval(argument), set()).add(f"{path.stem}.{function.name}")
    return found


def test_every_client_meets_our_server_and_a_python_client_every_launcher() -> None:
    for test in NAMES:
        found = set(chosen(test))
        assert {f"python-server/{client}" for client in pairings.clients()} <= found
        assert {f"{name}/python-client" for name in SERVERS if "run-" in name} <= found


def test_of_pairings_that_repeat_each_other_there_is_one() -> None:
    for test in NAMES:
        found = chosen(test)
        assert len([name for name in found if name.startswith(NODES)]) == 1
        assert len([name for name in found if name.startswith(HOSTED)]) == 1
        natives = [name for name in found if "run-" in name and not name.endswith("python-client")]
        assert len(natives) == 2 and natives[0].startswith("prterun-5")


def test_all_pairings_appear_in_both_forms() -> None:
    found = Counter(
        (str(pairing), form)
        for test in [f"test_module.test_{number}" for number in range(2000)]
        for pairing in selection.select(test, ALL, ())
        for form in selection.forms(test, pairing, ("sync", "asyncio"))
    )
    assert set(found) == {(str(pairing), form) for pairing in ALL for form in ("sync", "asyncio")}
    assert min(found.values()) > 9


def test_the_form_is_the_scenarios_where_it_has_one() -> None:
    for pairing in ALL:
        assert selection.forms("test_x.test_y", pairing, ["asyncio"]) == ["asyncio"]


def test_clients_that_lack_something_repeat_nobody() -> None:
    for test in NAMES:
        found = chosen(test, "refreshed get")
        assert f"{HOSTED}5.0.11/native-4.2.2" in found, "lacks it"
        assert [
            name for name in found if name.startswith(HOSTED) and not Pairing(*name.split("/")).lack("refreshed get")
        ]


def test_of_clients_that_lack_the_same_one_shows_it() -> None:
    seen = Counter(pairing for test in NAMES for pairing in chosen(test, "credentials") if "run-" in pairing)
    assert seen.total() == len(NAMES) * len([name for name in SERVERS if "run-" in name])
    assert {pairing.partition("/")[2] for pairing in seen} == set(pairings.clients())


@pytest.mark.parametrize("column", promises.COLUMNS, ids=lambda column: column.title)
def test_each_promise_is_tried_in_each_column_of_the_table(column: promises.Column) -> None:
    """With one of its clients, or, where it is declared to be lacking, with any that lacks it for the same reason."""
    shown = [Pairing(column.server, client) for client in column.clients]
    for promise, tests in proofs().items():
        found = {pairing for test in tests for pairing in selection.select(test, ALL, [promise])}
        tried = {(pairing.server, pairing.lack(promise)) for pairing in found if pairing.lack(promise)}
        assert any(pairing in found or (pairing.server, pairing.lack(promise)) in tried for pairing in shown), promise


def test_of_hosts_every_client_meets_our_server() -> None:
    for test in NAMES:
        found = [str(cell) for cell in hosting.select(test, hosting.cells(), [])]
        assert {str(cell) for cell in hosting.cells() if cell.server == "python"} <= set(found)
        assert Counter(name.partition("/")[0] for name in found) == {
            name: 1 if name != "python" else len(hosting.SERVERS) for name in hosting.SERVERS
        }


@pytest.mark.parametrize(
    ("option", "arguments", "expected"),
    [
        (False, ["tests", "tests/suite/test_x.py::test_y", "tests/suite/test_x.py::test_yes[one]"], False),
        (False, ["tests/unit", "tests/suite/test_x.py::test_y[mpirun-4.1.4/native-5.0.11-sync]"], True),
        (True, ["tests/suite"], True),
    ],
)
def test_everything_runs_where_it_is_asked_for_and_what_is_named(
    option: bool, arguments: list[str], expected: bool
) -> None:
    config: Any = SimpleNamespace(args=arguments, getoption=lambda name: option and name == selection.OPTION)
    assert selection.everything(config, "test_y") == expected
