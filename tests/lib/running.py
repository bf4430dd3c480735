"""The fixtures that run real processes: `run`, `alone` and `launch`.

A test that takes `run` is repeated for pairings of a server and a client, in the blocking or the asyncio form (which,
is in `selection`); one that takes `alone` for all clients without a server; one that takes `launch` for all servers.
"""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from lib import machine, pairings, selection
from lib.job import TIME_LIMIT, Job, scenario_command
from lib.lack import Lack
from lib.pairings import Pairing, Part
from pypmix.conformance.checks import CHECKS

FORMS = ("sync", "asyncio")

WARM = {"python-server": 1, pairings.NODES: 2}
"""The servers whose jobs can do without a launcher, with their nodes; see `lib.warm`."""

LAUNCHING = frozenset({"options", "environment", "limit", "leaves_files", "psets"})
"""The options of a job that are not the scenario's own arguments."""

LAUNCHED = frozenset({"options", "leaves_files", "psets"})
"""Those that take a launcher."""

LAUNCHERS = frozenset({"forwarding", "spawning", "tools", "pypmix.conformance.jobs"})
"""The modules of scenarios about a launcher: output and input, jobs that are spawned, and tools from outside."""


class _Lacking(Protocol):
    def lack(self, feature: str) -> Lack | None: ...


Subject = TypeVar("Subject", bound=_Lacking)
"""A pairing, or a cell of the host suite."""


def _wanted(metafunc: pytest.Metafunc, mark: str, names: Sequence[str]) -> list[str]:
    """Return the names that the test's marks of this kind allow."""
    for found in metafunc.definition.iter_markers(mark):
        names = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in found.args)]
    return list(names)


def _features(metafunc: pytest.Metafunc) -> list[str]:
    """Return what the test needs of a pairing, and the promises that it proves."""
    kinds = ("needs", "promise")
    return [each for kind in kinds for mark in metafunc.definition.iter_markers(kind) for each in mark.args]


def cases(
    test: str, subjects: Iterable[Subject], features: Sequence[str]
) -> Iterator[tuple[Subject, list[pytest.MarkDecorator]]]:
    """Yield what a test runs on, with the marks of each case.

    A subject that lacks what the test needs is left out, unless the test is the probe of that, and nothing that is
    proven elsewhere, such as a refusal by our engine, keeps it from getting there. Where trying does harm, it is
    skipped and shown.

    Args:
        test: The test's name, as in `Lack.probe`.
        subjects: The pairings, or the cells of the host suite.
        features: What the test needs of each, and the promises that it proves.
    """
    for subject in subjects:
        lacks = [lack for feature in features if (lack := subject.lack(feature))]
        harm = [
            pytest.mark.skip(reason=f"{subject} lacks {lack.feature}: {lack.reason}") for lack in lacks if lack.harm
        ]
        probed = [lack for lack in lacks if lack.probe == test]
        if harm:
            yield subject, harm
        elif probed and not any(lack.proof for lack in lacks):
            yield subject, [pytest.mark.lacks(*probed)]
        elif not lacks:
            yield subject, []


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Judge a probe by what its subject lacks; any other test is left alone."""
    lacks: list[Lack] = [lack for mark in pyfuncitem.iter_markers("lacks") for lack in mark.args]
    error: Exception | None = None
    result = None
    try:
        result = yield
    except Exception as caught:
        if not lacks:
            raise
        error = caught
    if not lacks:
        return result
    runners = [value for value in pyfuncitem.funcargs.values() if isinstance(value, Jobs)]
    job = next((runner.last for runner in runners), None)
    wrong = [text for lack in lacks if (text := lack.judge(error, job))]
    if wrong:
        raise AssertionError("\n".join([*wrong, job.report() if job else "", str(error or "")])) from error
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    forms = _wanted(metafunc, "forms", FORMS)
    clients = _wanted(metafunc, "clients", pairings.clients())
    test = selection.name_of(metafunc)
    features = _features(metafunc)
    if "run" in metafunc.fixturenames:
        all_of_it = selection.everything(metafunc.config, metafunc.function.__name__)
        named = [name for mark in metafunc.definition.iter_markers("servers") for name in mark.args]
        for server in {*named} & {*pairings.servers()}:
            if not Pairing(server, "python-client").runs(metafunc.module.__name__):
                raise ValueError(
                    f"{test} is for {server}, which does not run {metafunc.module.__name__}: see SELECTIONS"
                )
        found = [
            pairing
            for server in _wanted(metafunc, "servers", pairings.servers())
            for client in clients
            if (pairing := Pairing(server, client)).exists and pairing.runs(metafunc.module.__name__)
        ]
        chosen = found if all_of_it else selection.select(test, found, features)
        parameters = [
            pytest.param((pairing, form), id=f"{pairing}-{form}", marks=marks)
            for pairing, marks in cases(test, chosen, features)
            for form in (forms if all_of_it else selection.forms(test, pairing, forms))
        ]
        metafunc.parametrize("run", parameters, indirect=True)
    if "alone" in metafunc.fixturenames:
        parameters = [pytest.param((client, form), id=f"alone/{client}-{form}") for client in clients for form in forms]
        metafunc.parametrize("alone", parameters, indirect=True)
    if "launch" in metafunc.fixturenames:
        servers = _wanted(metafunc, "servers", pairings.servers())
        launched = [
            pairing
            for name in servers
            if (pairing := Pairing(name, "c-client")).exists and pairing.runs(metafunc.module.__name__)
        ]
        parameters = [
            pytest.param(pairing.server, id=pairing.server, marks=marks)
            for pairing, marks in cases(test, launched, features)
        ]
        metafunc.parametrize("launch", parameters, indirect=True)


def blanked(found: list[Any]) -> Iterator[list[Any]]:
    """Yield what ranks have returned with all that one of them has seen taken away, as a whole or list by list."""

    def emptied(value: Any) -> Any:
        # What its lists have in them is nothing; what else it has returned stays.
        inner = [each for each in value if isinstance(each, list)]
        return [emptied(each) if isinstance(each, list) else each for each in value] if inner else []

    for rank, seen in enumerate(found):
        if isinstance(seen, list) and seen:
            for blank in ([], emptied(seen)):
                if blank != seen:
                    yield [*found[:rank], blank, *found[rank + 1 :]]


class Jobs:
    """Starts jobs and sees to it that they end, with nothing left.

    Args:
        folder: For the folders of the jobs.
        in_root: The jobs run in the Debian root.
        client: The client of all ranks, whose engine is asserted of each; empty if they differ.
    """

    def __init__(self, folder: Path, in_root: bool = False, client: str = "") -> None:
        self._folder = folder
        self._client = client
        self._in_root = in_root
        self._jobs: list[tuple[Job, bool]] = []

    def begin(
        self, command: Sequence[str], *, leaves_files: bool = False, files: Sequence[str] = (), **options: Any
    ) -> Job:
        """Start a command as a job; `leaves_files` where the test kills what would have removed them.

        `files` are copied to where the job runs, which need not see what else the machine has.
        """
        folder = self._folder / str(len(self._jobs))
        folder.mkdir()
        for path in files:
            shutil.copy2(path, folder)
        if self._in_root:
            command = machine.enter(command, folder)
        return self._made(command, folder, leaves_files, options).start()

    def made(self, command: Sequence[str], **options: Any) -> Job:
        """Return a job that something else than its command starts; it is to leave nothing either."""
        folder = self._folder / str(len(self._jobs))
        folder.mkdir()
        return self._made(command, folder, False, options)

    def _made(self, command: Sequence[str], folder: Path, leaves_files: bool, options: dict[str, Any]) -> Job:
        job = Job(command, folder, **options)
        self._jobs.append((job, leaves_files))
        return job

    def mix_engines(self) -> None:
        """The ranks choose engines of their own, so that none is asserted."""
        self._client = ""

    @property
    def last(self) -> Job | None:
        """The job that was made last."""
        return self._jobs[-1][0] if self._jobs else None

    def end(self) -> None:
        left, other = [], []
        for job, leaves_files in self._jobs:
            if self._client:
                other += job.other_engines(self._client)
            found = job.leftovers()
            left += [
                f"{text}, of {' '.join(job.command)}"
                for text in found
                if not ((leaves_files or job.hung) and text.startswith("file"))
            ]
        if left:
            pytest.fail("left behind:\n" + "\n".join(left), pytrace=False)
        if other:
            pytest.fail(f"not the engine of {self._client}:\n" + "\n".join(other), pytrace=False)


class Run(Jobs):
    """A pairing, to run scenarios on."""

    def __init__(self, pairing: Pairing, form: str, folder: Path) -> None:
        super().__init__(folder, pairing.in_root, pairing.client)
        self.pairing = pairing
        self.server, self.client = pairing
        self.form = form

    def start(
        self,
        scenario: str,
        ranks: int = 2,
        *,
        options: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        limit: float = TIME_LIMIT,
        leaves_files: bool = False,
        psets: Mapping[str, int] | None = None,
        **arguments: object,
    ) -> Job:
        """Start a job of ranks that run a scenario; further keywords are the scenario's own arguments.

        `psets` makes process sets of the first ranks: names, and how many ranks each has.
        """
        command = scenario_command(scenario, self.form, arguments)
        parts = [Part(size, command, options=("--pset", name)) for name, size in (psets or {}).items()]
        rest = ranks - sum([part.ranks for part in parts])
        if rest:
            parts.append(Part(rest, command))
        return self.begin(
            pairings.command_line(self.server, parts, options),
            environment={**pairings.client_environment(self.client), **(environment or {})},
            limit=limit,
            leaves_files=leaves_files,
        )

    def job(self, scenario: str, ranks: int = 2, **options: Any) -> Job:
        """Run a scenario and return the ended job, however it ended."""
        return self.start(scenario, ranks, **options).wait()

    def __call__(self, scenario: str, ranks: int = 2, *, abandons: bool = False, **options: Any) -> list[Any]:
        """Run a scenario and return what every rank returned.

        `abandons`: a collective is left without its end, which some servers do not survive at the end of the job
        ("abandoned collectives" in `pairings.LACKS`); how those end is not judged.
        """
        if self._spared(scenario, options):
            returned = self._warm(scenario, ranks, options).returned()
            assert len(returned) == ranks
            return returned
        unjudged = abandons and self.pairing.lack("abandoned collectives") is not None
        job = self.job(scenario, ranks, leaves_files=unjudged, **options)
        returned = job.values() if unjudged else job.returned()
        assert len(returned) == ranks, job.report()
        return returned

    def keeps(self, promise: str, ranks: int = 4, **options: Any) -> list[Any]:
        """Run the check of a promise that `pypmix conform` tries, too, and hold what the ranks return to its rule.

        Returns: What each rank returned, which a rule may leave open.
        """
        _, check = CHECKS[promise]
        scenario = f"{check.program.__module__}.{check.program.__name__}"
        lost = check.list_killed(ranks)
        if lost:
            seen = self.survivors(scenario, ranks, lost, **options)
            found = [seen.get(rank) for rank in range(ranks)]
        else:
            found = self(scenario, ranks, **options)
        assert not (wrong := check.judge(found)), wrong
        for blank in blanked(found):
            assert check.judge(blank), f"the rule of {promise!r} takes {blank}, of which a rank has seen nothing"
        return found

    def _spared(self, scenario: str, options: Mapping[str, object]) -> bool:
        """Tell whether a job does without a launcher."""
        asks = LAUNCHED.intersection(options) or scenario.rpartition(".")[0] in LAUNCHERS
        return self.form == "asyncio" and self.client == "python-client" and self.server in WARM and not asks

    def _warm(self, scenario: str, ranks: int, options: dict[str, Any]) -> Job:
        from lib import warm

        arguments = {name: value for name, value in options.items() if name not in LAUNCHING}
        command = scenario_command(scenario, self.form, arguments)
        environment = {**pairings.client_environment(self.client), **options.get("environment", {})}
        job = self.made(command, environment=environment, limit=options.get("limit", TIME_LIMIT))
        return warm.run(job, command, ranks, WARM[self.server])

    def survivors(
        self, scenario: str, ranks: int, dead: Collection[int], options: Sequence[str] = (), **named: Any
    ) -> dict[int, Any]:
        """Run a scenario in which some ranks are killed, and return what each of the others returned."""
        options = (*pairings.surviving(self.server), *options)
        job = self.job(scenario, ranks, options=options, **named)
        left = job.ranks
        lived = sorted(set(range(ranks)) - set(dead))
        assert not job.hung and sorted(left) == lived, job.report()
        assert not any(rank.error for rank in left.values()), job.report()
        return {number: left[number].result for number in lived}


@pytest.fixture
def job_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for jobs, removed after the test."""
    folder = tmp_path / "j"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _start_slurm(request: pytest.FixtureRequest, server: str) -> None:
    if server.startswith(pairings.SLURM):
        request.getfixturevalue("slurm_cluster")


@pytest.fixture
def run(request: pytest.FixtureRequest, job_folder: Path) -> Iterator[Run]:
    pairing, form = request.param
    pairing.require()
    _start_slurm(request, pairing.server)
    runner = Run(pairing, form, job_folder)
    yield runner
    runner.end()


class Alone(Jobs):
    """A client without a server, to run scenarios on."""

    def __init__(self, client: str, form: str, folder: Path) -> None:
        super().__init__(folder, client == pairings.ROOT_CLIENT, client)
        self.client = client
        self.form = form

    def __call__(self, scenario: str, environment: dict[str, str] | None = None, **arguments: object) -> Any:
        environment = {**pairings.client_environment(self.client), **(environment or {})}
        job = self.begin(scenario_command(scenario, self.form, arguments), environment=environment).wait()
        return job.returned()[0]


@pytest.fixture
def alone(request: pytest.FixtureRequest, job_folder: Path) -> Iterator[Alone]:
    client, form = request.param
    pairings.require_client(client)
    runner = Alone(client, form, job_folder)
    yield runner
    runner.end()


class Launch(Jobs):
    """A server, to run any command line under."""

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(folder)
        self.server = server

    def __call__(self, *parts: Part, options: Sequence[str] = (), **job_options: Any) -> Job:
        return self.begin(pairings.command_line(self.server, parts, options), **job_options).wait()


@pytest.fixture
def launch(request: pytest.FixtureRequest, job_folder: Path) -> Iterator[Launch]:
    pairings.require_server(request.param)
    _start_slurm(request, request.param)
    launcher = Launch(request.param, job_folder)
    yield launcher
    launcher.end()
