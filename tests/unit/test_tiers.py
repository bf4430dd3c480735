"""The submission tier is a part of the tests that leaves no server, promise, engine or changed test out."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lib import changes, missing, tiers
from lib.pairings import HOSTED, NODES, Pairing


class Case:
    """What `tiers` asks of a collected test."""

    def __init__(self, name: str, marks: Sequence[pytest.Mark] = (), **parameters: Any) -> None:
        self.nodeid = f"tests/{name}[{'-'.join(map(str, parameters.values()))}]" if parameters else f"tests/{name}"
        self._marks = marks
        if parameters:
            self.callspec = SimpleNamespace(params=parameters)

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self._marks if mark.name == name]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(iter(self.iter_markers(name)), None)


pytest_plugins = ["pytester"]

XFAIL = pytest.mark.xfail.mark


def select(cases: Sequence[Case]) -> list[Case]:
    found: Any = tiers.select(cases)  # type: ignore[arg-type]
    return sorted(set(found), key=cases.index)


@pytest.fixture(autouse=True)
def edited(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The tests that the change edits: none, unless a test adds some."""
    found: set[str] = set()
    monkeypatch.setattr(changes, "is_edited", found.__contains__)
    monkeypatch.setattr(changes, "touches_subject", lambda path: path in found)
    return found


def test_long_lists_of_parameters_are_sampled() -> None:
    many = [Case("unit/test_a.py::test_many", number=number) for number in range(100)]
    few = [Case("unit/test_a.py::test_few", number=number) for number in range(tiers.LARGE)]
    found = select([*many, *few])
    assert len(found) == 2 * tiers.LARGE and set(few) <= set(found)
    assert select([*reversed(many)]) == [*reversed(found[: tiers.LARGE])]


def test_what_the_change_touches_is_not_sampled(edited: set[str]) -> None:
    many = [Case("unit/test_a.py::test_many", number=number) for number in range(100)]
    edited.add("tests/unit/test_a.py::test_many")
    assert select(many) == many
    edited.clear()
    edited.add("tests/unit/test_a.py")
    assert select(many) == many


def test_a_change_that_touches_everything_adds_a_part(edited: set[str]) -> None:
    many = [Case("cli/test_a.py::test_many", number=number) for number in range(1000)]
    edited.add("tests/cli/test_a.py::test_many")
    assert tiers.ADDED_ELSEWHERE <= len(select(many)) <= tiers.ADDED_ELSEWHERE + tiers.LARGE


def suite(name: str, server: str, client: str, form: str = "sync", marks: Sequence[pytest.Mark] = ()) -> Case:
    return Case(f"suite/test_it.py::{name}", marks, run=(Pairing(server, client), form))


def test_the_suite_meets_our_server_with_each_engine_once() -> None:
    clients = ("python-client", "native-4.2.2", "native-5.0.11")
    cases = [suite("test_a", "python-server", client, form) for client in clients for form in ("sync", "asyncio")]
    found = select(cases)
    assert engines(found) == ["native", "python"]


def engines(cases: Sequence[Case]) -> list[str]:
    return sorted(case.callspec.params["run"][0].client.partition("-")[0] for case in cases)


def test_other_parameters_of_the_suite_are_all_kept(pytester: pytest.Pytester) -> None:
    """As pytest collects them, for which one parameter beside the pairing is another number in each case."""
    pytester.makeini("[pytest]")
    pytester.mkpydir("tests")
    source = """
        import pytest
        from lib.pairings import Pairing
        CLIENTS = ("python-client", "native-4.2.2", "native-5.0.11")
        PAIRINGS = [(Pairing("python-server", client), form) for client in CLIENTS for form in ("sync", "asyncio")]
        @pytest.fixture
        def run(request):
            pass
        @pytest.mark.parametrize("run", PAIRINGS, ids=str, indirect=True)
        @pytest.mark.parametrize("size", [1, 1000])
        def test_a(run, size):
            pass
    """
    pytester.makepyfile(**{"tests/suite/test_it": source})
    items, _ = pytester.inline_genitems()
    found = [item.callspec.params for item in tiers.select(items)]
    assert engines([Case("", **params) for params in found if params["size"] == 1]) == ["native", "python"]
    assert len(found) == 4


def test_a_client_that_lacks_nothing_is_preferred() -> None:
    for number in range(10):
        lacking = suite(f"test_{number}", "python-server", "native-4.2.2", marks=[XFAIL])
        complete = suite(f"test_{number}", "python-server", "native-5.0.11")
        assert select([lacking, complete]) == [complete]


def test_other_servers_have_one_test_of_each_promise() -> None:
    promise = pytest.mark.promise
    cases = [
        suite(f"test_{number}", server, "python-client", marks=[promise(f"promise {number // 4}").mark])
        for number in range(20)
        for server in (NODES, f"{HOSTED}4.2.2", f"{HOSTED}5.0.11", "prterun-5.0.11", "mpirun-4.1.4")
    ]
    found = select(cases)
    for servers in ([NODES, f"{HOSTED}4.2.2", f"{HOSTED}5.0.11"], ["prterun-5.0.11", "mpirun-4.1.4"]):
        here = [case for case in found if tiers.server_of(case) in servers]  # type: ignore[arg-type]
        assert {mark.args for case in here for mark in case.iter_markers("promise")} == {
            (f"promise {number}",) for number in range(5)
        }
        assert len(here) <= 5 + len(servers)


def test_each_module_meets_each_server() -> None:
    servers = ("slurm-22.05.8", "mpirun-4.1.4", "prterun-7.0.0")
    cases = [suite(f"test_{number}", server, "python-client") for number in range(10) for server in servers]
    assert sorted(tiers.server_of(case) for case in select(cases)) == sorted(servers)  # type: ignore[arg-type]


def test_what_a_foreign_server_lacks_is_left_to_the_long_tier() -> None:
    assert select([suite("test_a", "mpirun-4.1.4", "python-client", marks=[XFAIL])]) == []


def test_of_other_folders_a_share_runs() -> None:
    cases = [Case(f"nodes/test_{number}.py::test_it") for number in range(400)]
    assert 60 < len(select(cases)) < 140


def test_a_machine_without_a_compiler_is_told_what_to_install() -> None:
    lacking = missing.Counter(
        {"the native engine's extension": 5, "libpmix 4.2.2": 2, "`ip` (Debian's iproute2), to make": 1}
    )
    line = missing.last_line(16, lacking)
    assert line.startswith("8 of 16 tests (50 %) did not run")
    assert line.endswith("apt-get install gcc libc6-dev python3-dev libpmix2 iproute2")


def test_who_lacks_the_rights_of_root_is_told() -> None:
    line = missing.last_line(4, missing.Counter({"root's rights, to make network namespaces": 1}))
    assert line == "1 of 4 tests (25 %) did not run for want of something; to run more of them: run it as root"
