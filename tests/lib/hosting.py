"""The fixture of the host suite, `host`: a program that is a host, on the server of every engine with both clients.

What a server or a client cannot do there is a row of `LACKS`, as in `pairings`.
"""

from __future__ import annotations

import fnmatch
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lib import hosted, machine, pairings, running, selection
from lib.job import Job
from lib.lack import Lack, Outcome
from lib.running import Jobs

SERVERS = ("python", "native-4.2.2", "native-5.0.11", pairings.ROOT_CLIENT)


class Cell(NamedTuple):
    """A server engine with a client, `python` or `native` with a release."""

    server: str
    client: str

    def __str__(self) -> str:
        return f"{self.server}/{self.client}"

    @property
    def in_root(self) -> bool:
        """Whether the host runs in the Debian root."""
        return pairings.ROOT_CLIENT in self

    def lack(self, feature: str) -> Lack | None:
        """Return why this cell does not have a feature, None if it has."""
        for lack in LACKS:
            if (
                lack.feature == feature
                and fnmatch.fnmatchcase(self.server, lack.server)
                and fnmatch.fnmatchcase(self.client, lack.client)
            ):
                return lack
        return None


def cells() -> list[Cell]:
    """Return each server with the Python client and with its own library's; the Python server with those of all."""
    natives = [name for name in SERVERS if name != "python"]
    return [
        Cell("python", "python"),
        *(Cell("python", name) for name in natives),
        *(Cell(name, client) for name in natives for client in ("python", name)),
    ]


STATUSES = "test_errors.test_what_handlers_raise_is_the_status_of_clients"

LACKS = (
    Lack(
        "the status of iof_pull",
        "native-*",
        "*",
        "libpmix forgets a pull as soon as its host has taken it, and is told of a success at once for that",
        proof=STATUSES,
    ),
    Lack(
        "the status of notify_event",
        "native-4.2.*",
        "*",
        "a server of libpmix 4.2 answers before its host has",
        proof=STATUSES,
    ),
    Lack(
        "refused clients",
        "native-4.2.*",
        "*",
        "a server of libpmix 4.2 lets a client in before it asks its host",
        expect=Outcome(
            "the client that its host refuses ends well",
            lambda job: job.exit_code == 1 and "AssertionError: {0: 0, 1: 0}" in job.stderr,
        ),
        probe="test_harm.test_a_refused_client",
    ),
)


class Hosted(Jobs):
    """Runs programs of `foreign/hosts/programs`."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        super().__init__(folder, cell.in_root)
        self.cell = cell

    def start(self, program: str, *arguments: str, mode: str = "host", **options: Any) -> Job:
        """Start a program; `mode` is `pair` for one that is two nodes."""
        server, client = self.cell
        library = None if server == "python" else pairings.library_path(server.removeprefix("native-"))
        env = {"PYPMIX_ENGINE": "python"} if client == "python" else pairings.client_environment(client)
        settings = {"server": server, "client": client, "library": library, "env": env}
        command = [sys.executable, *hosted.STRICT, "-m", "lib.hosted", mode, program, *arguments]
        environment = {hosted.SETTINGS: json.dumps(settings), "PYTHONPATH": str(machine.TESTS)}
        return self.begin(command, environment=environment, **options)

    def __call__(self, program: str, *arguments: str, **options: Any) -> Job:
        """Run a program to its end, which has to be a good one."""
        job = self.start(program, *arguments, **options).wait()
        passed = job.exit_code == 0 and not job.hung and "host passed" in job.stdout
        assert passed, job.report()
        return job


@pytest.fixture
def host(request: pytest.FixtureRequest, job_folder: Path) -> Iterator[Hosted]:
    cell: Cell = request.param
    for name in cell:
        if name != "python":
            pairings.require_client(name)
    runner = Hosted(cell, job_folder)
    yield runner
    runner.end()


def select(test: str, found: list[Cell], features: list[str]) -> list[Cell]:
    """Return the cells that a test runs on: of a native server's clients one does, unless they lack different things.

    The Python server's clients are all tried: what they send is what it has to understand.
    """
    kinds = {cell: (cell.server, cell.server == "python" and cell.client, *map(cell.lack, features)) for cell in found}
    chosen = selection.one_of_each(test, kinds)
    return [cell for cell in found if cell in chosen]


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave each program of the host suite on the cells that are selected for it."""
    programs: dict[str, dict[Cell, pytest.Function]] = {}
    for item in items:
        call = getattr(item, "callspec", None)
        if not isinstance(item, pytest.Function) or call is None or not isinstance(call.params.get("host"), Cell):
            continue
        if not selection.everything(config, item.originalname):
            others = {name: value for name, value in call.params.items() if name != "host"}
            name = f"{item.nodeid.partition('[')[0].rpartition('/')[2]} {others}"
            programs.setdefault(name, {})[call.params["host"]] = item
    left_out: set[pytest.Item] = set()
    for name, cases in programs.items():
        features = [feature for item in cases.values() for mark in item.iter_markers("needs") for feature in mark.args]
        chosen = select(name, list(cases), features)
        left_out.update(item for cell, item in cases.items() if cell not in chosen)
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Repeat a test that takes `host` for its cells; see `pytest.mark.needs`."""
    chosen = [str(cell) for cell in cells()]
    for mark in metafunc.definition.iter_markers("cells"):
        assert set(mark.args) <= set(chosen), mark.args
        chosen = list(mark.args)
    features = [feature for mark in metafunc.definition.iter_markers("needs") for feature in mark.args]
    found = [cell for cell in cells() if str(cell) in chosen]
    parameters = [
        pytest.param(cell, id=str(cell), marks=marks)
        for cell, marks in running.cases(selection.name_of(metafunc), found, features)
    ]
    metafunc.parametrize("host", parameters, indirect=True)
