"""`pmix://` with Debian's own torch, which has no libuv, in the Debian root: on one node and two, and under PRRTE."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from frameworks import training
from frameworks.training import EXAMPLE, SCRIPTS, trained
from lib import cluster as clusters
from lib import machine
from lib.cluster import Cluster

cluster = clusters.cluster

PYPMIX_RUN = (sys.executable, "-m", "pypmix", "run")

SECONDS = 200.0

pytestmark = pytest.mark.timeout(500)

InRoot = Callable[..., str]


@pytest.fixture(scope="module", autouse=True)
def root_here() -> None:
    """Skip where the root was not built."""
    if lacking := machine.root_lacking("torch"):
        machine.lacking(lacking)


def environment(folder: Path) -> dict[str, str]:
    # Ranks that share the cores of a test machine are slower with threads.
    return {**machine.clean_environment(), "HOME": str(folder), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def in_root(tmp_path_factory: pytest.TempPathFactory) -> InRoot:
    """Runs a command in the root to its end, and returns what it has printed."""

    def run(*command: str, check: bool = True) -> str:
        folder = tmp_path_factory.mktemp("job")
        done = subprocess.run(
            machine.enter(command, folder, "torch"),
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert not check or done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return f"{done.stdout}\n{done.stderr}"

    return run


@pytest.fixture(scope="module")
def weights_of_one(in_root: InRoot) -> list[float]:
    return training.weights_of_one(in_root(sys.executable, EXAMPLE))


def test_it_is_a_torch_without_libuv(in_root: InRoot) -> None:
    """What the other tests prove for such a torch depends on it."""
    store = "from torch.distributed import TCPStore; TCPStore('127.0.0.1', 0, 1, True, use_libuv=True)"
    assert "built without libuv support" in in_root(sys.executable, "-c", store, check=False)


def test_training_on_one_node(in_root: InRoot, weights_of_one: list[float]) -> None:
    trained(in_root(*PYPMIX_RUN, "-n", "3", sys.executable, EXAMPLE), [(0, 0), (1, 0), (2, 0)], weights_of_one)


def test_training_under_its_prterun(in_root: InRoot, weights_of_one: list[float]) -> None:
    out = in_root("prterun", *machine.PRTERUN_OPTIONS, "-n", "2", sys.executable, EXAMPLE)
    trained(out, [(0, 0), (1, 0)], weights_of_one)


def test_training_on_two_nodes(weights_of_one: list[float], cluster: Cluster) -> None:
    """The root is entered on each node, and its pypmix started there, as a batch system does."""
    started = []
    for place, name in enumerate(("n1", "n2")):
        node = cluster[name]
        folder = Path("/tmp/job")
        (node.tmp / "job").mkdir()
        secret = node.tmp / "job" / "secret"
        secret.touch(0o600)
        secret.write_text("0123456789abcdef0123456789abcdef")
        # The root's files know no names of nodes, by which gloo would find the interface.
        env = {**environment(folder), "GLOO_SOCKET_IFNAME": "eth0"}
        meeting = f"{cluster['n1'].address}:7777"
        options = ["--symmetric", f"{place}/2", "--meet", meeting, "--secret-file", f"{folder}/secret"]
        command = [*PYPMIX_RUN, *options, "--map-by", "node", "-n", "3", sys.executable, EXAMPLE]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(node.start(*machine.enter(command, folder, "torch"), env=env, **pipes))
    ended = [process.communicate(timeout=SECONDS) for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(map("\n".join, ended))
    trained("".join(text for pair in ended for text in pair), [(0, 0), (0, 1), (1, 0)], weights_of_one)


def test_ranks_that_die_in_a_rendezvous(in_root: InRoot) -> None:
    """Rank 0 after it has told its address, and before; the others are told who it is, long before the time limit."""
    out = in_root(*PYPMIX_RUN, "-n", "3", "--keep-going", sys.executable, str(SCRIPTS / "dies.py"), check=False)
    for rank in (1, 2):
        for step in ("on the way", "before"):
            assert re.search(rf"^{rank} {step}: PartialSuccess .*:0\b", out, re.MULTILINE), out
