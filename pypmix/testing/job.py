"""The jobs that run tests."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from pypmix.extras.forking.servers import ForkServer, ForkServers
from pypmix.host.job import Application
from pypmix.host.local import LocalHost
from pypmix.host.machine import Machine
from pypmix.host.outcome import TIMED_OUT
from pypmix.host.terms import Terms
from pypmix.testing.links import Links
from pypmix.testing.orders import VARIABLE, Listener
from pypmix.testing.relay import Relay
from pypmix.testing.results import Results
from pypmix.testing.wish import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pypmix.host.crossings import Crossings
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.testing.wish import Wish

PATIENCE = 3.0
"""Seconds that the other ranks have to exit after the first failure: they may fail for the same reason."""

GRACE = 2.0
"""Seconds that ranks have to write their stacks and to exit."""

TEMPLATE, RANK = "pypmix.testing.template", "pypmix.testing.rank"
"""The modules that ranks inherit: to import them would take each rank longer than most tests."""
OFF: dict[str, Any] = {
    "keyword": "",
    "markexpr": "",
    "lf": False,
    "failedfirst": False,
    "deselect": None,
    "collectonly": False,
}
"""Options that would deselect tests."""
ALONE: dict[str, Any] = {
    "dist": "no",
    "numprocesses": None,
    "maxprocesses": None,
    "tx": [],
    "usepdb": False,
    "setupshow": False,
    "setuponly": False,
    "setupplan": False,
    "pmix_on_rank": True,
    # The files are passed separately, and pytest's parser warns if there are none among the options.
    "file_or_dir": None,
}
"""Options that apply only to the process that shows the results."""


_RANK = "import sys; from pypmix.testing.rank import main; sys.exit(main(sys.argv[1:]))"
"""The program of a rank; -m would refuse modules that pytest has loaded with rewritten asserts."""


class TestMachine(Machine):
    """Starts the ranks of a test.

    Attributes:
        host: The host of the test.
    """

    __test__ = False
    host: TestHost

    def start_process(
        self, app: Application, program: str, argv: tuple[str, ...], env: Mapping[str, str], *more: Any
    ) -> tuple[Any, int]:
        """Start a rank; if the test acts on links, its connection passes the relay."""
        if env["PMIX_NAMESPACE"] == self.host.job.nspace:
            env = self.host.relayed(env)
        return super().start_process(app, program, argv, env, *more)


class TestHost(LocalHost):
    """Runs a test: after a failure of a rank, the other ranks may fail too for a while, and are then ended.

    Args:
        folder: The folder of the test, which contains the folder that its ranks share.
        links: The number of ranks if the test acts on links; otherwise 0.
        terms: The arguments of `LocalHost`.

    Attributes:
        shared: The folder that the ranks share.
        rank_ends: How each failed rank has ended, as text for a person.
    """

    __test__ = False
    machine_class = TestMachine
    machine: TestMachine

    def __init__(self, folder: Path, links: int, *terms: Any, **more: Any) -> None:
        self.rank_ends: dict[int, str] = {}
        self.shared = folder / "shared"
        super().__init__(*terms, **more)
        self.machine.host = self
        self._links: Links | None = None
        self._relay: Relay | None = None
        self._listener: Listener | None = None
        if links:
            from pypmix.host.exchange.inprocess import Hub

            names = [node.hostname for node in self.nodes]
            self._links = Links(self.loop.later, names, links, self._cut, self._part)
            self._relay = Relay(self.loop, self._links)
            self._hub = Hub(self.loop.soon, between=self._links.between)

    def open_folder(self) -> None:
        """Make the folder, and listen there for requests of ranks."""
        super().open_folder()
        if self._links is not None:
            self._listener = Listener(self.loop, os.path.join(self.machine.tmpdir, "orders"), self._act)

    def close_folder(self) -> None:
        """Remove the folder."""
        if self._listener is not None:
            self._listener.close()
        if self._relay is not None:
            self._relay.close()
        super().close_folder()

    def crossings(self) -> Crossings:
        """Return the crossings of its servers, whose messages pass the gates of the test."""
        if self._links is None:
            return super().crossings()
        from pypmix.host.crossings import Crossings

        return Crossings(self, hub=self._hub)

    def relayed(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment of a rank; if the test acts on links, its connection passes the relay."""
        if self._relay is None:
            return env
        orders = {VARIABLE: os.path.join(self.machine.tmpdir, "orders")}
        return {**self._relay.environment(int(env["PMIX_RANK"]), env), **orders}

    def _act(self, verb: str, link: Any, seconds: float = 0.0) -> list[int]:
        assert self._links is not None
        if verb == "ranks":
            names = [node.hostname for node in self.nodes]
            ranks = self.jobs[self.job.nspace].ranks
            found = [rank.proc.rank for rank in ranks if link in (rank.node.number, rank.node.hostname)]
            if not found:
                raise ValueError(f"{link!r:.80} is not a node with ranks: the nodes are {', '.join(names):.200}")
            return found
        self._links.act(verb, link, seconds)
        return []

    def _cut(self, rank: int) -> None:
        assert self._relay is not None
        self._relay.cut(rank)

    def _part(self, one: str, other: str) -> None:
        self._hub.part(one, other)

    def rank_ended(self, job: RunningJob, rank: Rank) -> None:
        """Record the end of a rank."""
        super().rank_ended(job, rank)
        if job.number > 1 or not rank.blame or (self.shared / f".killed.{rank.proc.rank}").exists():
            return
        if not self.rank_ends:
            self.loop.later(
                PATIENCE, lambda: self.end(1, f"the others had {PATIENCE:g} s to end after {rank.label} failed")
            )
        self.rank_ends[rank.proc.rank] = rank.end()


class Jobs:
    """Runs the tests of a session of pytest.

    Args:
        config: The configuration of the session.
    """

    def __init__(self, config: pytest.Config) -> None:
        factory: Any = getattr(config, "_tmp_path_factory", None)
        self._folder: Path = Path(tempfile.mkdtemp()) if factory is None else factory.mktemp("pmix")
        self._config = config
        self._forks = ForkServers([TEMPLATE, RANK])
        self._count = 0
        self._env = {**os.environ, "PYPMIX_TESTING": str(self._folder / "options")}
        with open(self._folder / "options", "wb") as file:
            worker = getattr(config, "workerinput", None)
            folder = config.invocation_params.dir
            words = [str(arg) for arg in config.args]
            pickle.dump((_options(config), words, folder, list(sys.path), worker, config.getini("markers")), file)

    def run(self, item: pytest.Function, wish: Wish) -> Results:
        """Run a test on its ranks, and return their reports."""
        began = time.monotonic()
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        env = {**self._env, **os.environ}
        words = (sys.executable, "-c", _RANK, place(item), str(folder), str(wish.ranks), wish.engine)
        app = Application(words, wish.ranks)
        host = TestHost(
            folder,
            wish.ranks if wish.links else 0,
            [app],
            terms=Terms(keep_going=True, tagged=True, stdin=None),
            nodes=wish.nodes,
            env=env,
            timeout=wish.timeout,
            grace=GRACE,
            warm=self._forks,
        )
        trouble = self._collect(host, app, item)
        if trouble:
            pytest.fail(trouble, pytrace=False)
        sys.stdout.flush()
        sys.stderr.flush()
        outcome = host.run()
        # Ranks that the test has killed are failures for the host, but not for the test.
        late = outcome.reason if outcome.code == TIMED_OUT else ""
        results = Results(item, folder, wish.ranks, host.rank_ends, late, time.monotonic() - began)
        if not (folder / "shared").exists():
            shutil.rmtree(folder, ignore_errors=True)
        return results

    def _collect(self, host: TestHost, app: Application, item: pytest.Function) -> str:
        """Let the template collect the file of a test; return why the test cannot run, empty if it can."""
        try:
            found = host.machine.fork_server(app)
            if found is None:
                return f"ranks cannot be forked from {sys.executable}"
            assert isinstance(found, ForkServer)
            why = found.call(TEMPLATE, "collect", str(item.path))
        except OSError as error:
            return f"{error}, while it imported {item.path.name}; with -s its output is shown"
        return f"the ranks cannot run {item.nodeid}:\n{why}" if why else ""

    def close(self) -> None:
        """End the fork server."""
        self._forks.close()


def _options(config: pytest.Config) -> dict[str, Any]:
    """Return the options of the template."""
    found: dict[str, Any] = {}
    for name, value in {**vars(config.option), **OFF, **ALONE}.items():
        try:
            pickle.dumps(value)
        except Exception:
            # An object of another plugin, which cannot come from the command line.
            continue
        found[name] = value
    found["plugins"] = [*(found.get("plugins") or []), "no:terminal"]
    return found
