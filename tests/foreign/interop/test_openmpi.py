"""Unmodified Open MPI programs run on our servers, on one node and on two, as they do under prterun."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import pytest

from lib import machine, pairings, provision
from lib.openmpi import ENVIRONMENT
from lib.pairings import Part

PROGRAMS = Path(__file__).parent / "mpi"
EXAMPLES = machine.ROOT / "docs" / "examples" / "mpi"
LIMIT = 75.0

RELEASE = provision.RELEASES[0]


pytestmark = [
    pytest.mark.servers("python-server", pairings.NODES, f"prterun-{RELEASE}", f"{pairings.HOSTED}*"),
    pytest.mark.timeout(90),
]


@pytest.fixture
def mpi(launch):
    """Run a Python program that uses mpi4py as a job of so many ranks."""
    python = provision.mpi4py()
    if python is None:
        machine.lacking("Open MPI with mpi4py, which tests/lib/provision.py fetches")

    def start(ranks: int, *command: str, **environment: str):
        # What finds pypmix has no business in the ranks, which run another Python's packages.
        clean = {**ENVIRONMENT, "PYTHONPATH": "", **environment}
        job = launch(Part(ranks, [str(python), *command], clean), limit=LIMIT)
        assert job.exit_code == 0, job.report()
        return job.stdout.splitlines()

    return start


def only(lines: list[str], word: str) -> list[str]:
    return sorted(line for line in lines if line.startswith(word))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_mpi4py_says_hello(mpi, ranks):
    lines = mpi(ranks, "-m", "mpi4py.bench", "helloworld")
    assert len(only(lines, "Hello, World!")) == ranks
    assert all(f"of {ranks} on" in line for line in only(lines, "Hello, World!"))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_collectives(mpi, ranks):
    lines = only(mpi(ranks, str(PROGRAMS / "collectives.py")), "collectives")
    ring = [f"word of {rank}" if ranks > 1 else "word" for rank in range(ranks)]
    assert lines == sorted(
        f"collectives {sum(range(ranks))} {ranks} {ring[(rank - 1) % ranks]} {len(range(rank % 2, ranks, 2))}"
        for rank in range(ranks)
    )


@pytest.mark.needs("groups of Open MPI 5")
@pytest.mark.parametrize("ranks", [2, 4])
def test_sessions_and_communicators_from_groups(mpi, ranks):
    lines = only(mpi(ranks, str(PROGRAMS / "session.py")), "session")
    evens = len(range(0, ranks, 2))
    assert lines == [f"session {rank} {ranks + (0 if rank % 2 else 100 * evens)}" for rank in range(ranks)]


@pytest.mark.needs("groups of Open MPI 5")
@pytest.mark.parametrize("ranks", [2, 4])
def test_disjoint_groups_of_one_tag_at_the_same_time(mpi, ranks):
    lines = only(mpi(ranks, str(PROGRAMS / "from_groups.py"), "halves"), "halves")
    low = (1 << ranks // 2) - 1
    sums = [low if rank < ranks // 2 else low << ranks // 2 for rank in range(ranks)]
    assert lines == [f"halves {rank} {[mine, mine, ranks // 2, mine]}" for rank, mine in enumerate(sums)]


@pytest.mark.needs("groups of Open MPI 5")
@pytest.mark.parametrize("ranks", [3, 4])
def test_overlapping_groups(mpi, ranks):
    lines = only(mpi(ranks, str(PROGRAMS / "from_groups.py"), "overlapping"), "overlapping")
    wanted = []
    for rank in range(ranks):
        starts = sorted([start for start in (rank - 1, rank) if 0 <= start < ranks - 1], key=lambda start: start % 2)
        wanted.append(f"overlapping {rank} {[ranks, *[(start, 0b11 << start) for start in starts]]}")
    assert lines == wanted


@pytest.mark.needs("groups of Open MPI 5")
@pytest.mark.servers("python-server")
def test_groups_that_come_and_go_leave_nothing_on_the_server(mpi):
    lines = only(mpi(2, str(PROGRAMS / "from_groups.py"), "again", "50"), "again")
    assert len(lines) == 2
    for line in lines:
        count, grown = map(int, line.partition("[")[2].rstrip("]").split(","))
        assert count == 50 and grown < 512, f"the server grew by {grown} KiB"


@pytest.mark.servers("python-server", pairings.NODES)
@pytest.mark.parametrize("command", [(str(PROGRAMS / "communicators.py"), "world"), (str(EXAMPLES / "pool.py"),)])
def test_open_mpi_4(both, command, monkeypatch):
    """The page on mpi4py says so: communicators of the world, and a pool whose workers are spawned."""
    found = sorted(Path("/usr/lib").glob("*/libmpi.so.40"))
    if not found:
        machine.lacking("Open MPI 4.1: libmpi.so.40 of Debian's openmpi-bin")
    ranks = 4 if "world" in command else 1
    # Of the launcher's environment, which workers that are spawned inherit.
    monkeypatch.setenv("MPI4PY_LIBMPI", str(found[0]))
    code = "from mpi4py import MPI; print('version', MPI.Get_library_version()[:12])"
    settings = {"OMPI_MCA_btl": "self,vader,tcp"}
    assert only(both(1, "-c", code, **settings), "version") == ["version Open MPI v4."]
    lines = both(ranks, *command, **settings)
    assert lines[0] == str([number * number for number in range(8)]) or sorted(lines) == [
        f"world {rank} {[[0b0101, 0b1010][rank % 2]] * 3}" for rank in range(4)
    ]


@pytest.fixture
def both(mpi):
    """Run a program that uses mpi4py and pypmix, as `mpi` does."""
    if not list(provision.mpi4py().parents[1].glob(f"lib/python3.{sys.version_info.minor}")):
        machine.lacking(f"mpi4py for Python 3.{sys.version_info.minor}")
    # The native engine needs cffi.
    return functools.partial(mpi, PYTHONPATH=os.pathsep.join([str(machine.ROOT), *filter(None, sys.path)]))


def halves(both, kind):
    """Ranks are those of the group, in whatever order; halves of the job make their communicators at the same time."""
    lines = only(both(4, str(PROGRAMS / "communicators.py"), kind), kind)
    assert lines == [f"{kind} {rank} {[[0b0101, 0b1010][rank % 2]] * 3}" for rank in range(4)]


def test_communicators_of_groups(both):
    halves(both, "world")


@pytest.mark.needs("groups of Open MPI 5")
def test_communicators_of_groups_by_sessions(both):
    halves(both, "session")


@pytest.mark.servers("python-server", pairings.NODES)
def test_communicators_of_groups_open_a_session_where_there_is_no_world(both):
    """Nowhere else: Open MPI starts after no client of the native engine, which is the one for PRRTE."""
    lines = only(both(4, str(PROGRAMS / "communicators.py"), "opened"), "opened")
    assert lines == [f"opened {rank} {[[0b0101, 0b1010][rank % 2]] * 3}" for rank in range(4)]


def test_a_communicator_of_two_jobs(both):
    lines = only(both(2, str(PROGRAMS / "communicators.py"), "jobs"), "jobs")
    assert lines == [
        f"jobs {rank} {[place, place, 4, [1, 0, 1, 0]]}" for rank, place in [(0, 1), (0, 3), (1, 0), (1, 2)]
    ]


@pytest.mark.servers("python-server", f"{pairings.HOSTED}*")
def test_one_of_two_connections_ends_during_a_fence(launch):
    """libpmix would complete the fence without the rank: openpmix #4113. Open MPI itself meets it now and then only."""
    libraries = machine.libraries()
    if not libraries:
        machine.lacking("a libpmix")
    command = [sys.executable, str(PROGRAMS / "two_connections.py"), libraries[0].path]
    job = launch(Part(2, command), limit=LIMIT)
    assert job.exit_code == 0, job.report()
    assert sorted(job.stdout.splitlines()) == ["first 1", "second 0"]


def test_no_communicator_with_a_member_that_has_no_mpi(both):
    lines = only(both(3, str(PROGRAMS / "communicators.py"), "lacking"), "lacking")
    assert len(lines) == 3
    for line in lines:
        assert "there is no communicator of 'acme'" in line and "ModuleNotFoundError" in line and "[1])" in line


def test_the_example_of_both(both):
    """The ranks of each node have a communicator of their own."""
    sums = sorted(line.split()[5] for line in only(both(4, str(EXAMPLES / "both.py")), "rank"))
    # All on one node, or three of them on one of two, or two and two.
    assert sums in (["6"] * 4, ["1", "1", "5", "5"])


@pytest.mark.parametrize(("ranks", "module"), [(1, ()), (3, ("-m", "mpi4py.futures"))], ids=["spawned", "of the job"])
def test_pools(mpi, ranks, module):
    """Workers of a pool are spawned, or are the other ranks of the job."""
    lines = mpi(ranks, *module, str(EXAMPLES / "pool.py"))
    assert lines[0] == str([number * number for number in range(8)])


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_spawn_and_merge(mpi, ranks):
    lines = only(mpi(ranks, str(PROGRAMS / "spawning.py")), "spawning")
    size = ranks + 2
    names = ["parent"] * ranks + ["child"] * 2
    assert lines == sorted(f"spawning {name} {rank} {size} {size}" for rank, name in enumerate(names))


@pytest.mark.parametrize("ranks", [2, 4])
def test_accept_and_connect_by_a_published_name(mpi, ranks):
    lines = only(mpi(ranks, str(PROGRAMS / "accepting.py")), "accepting")
    assert lines == [f"accepting {ranks} {ranks}"] * ranks


@pytest.mark.servers("python-server", pairings.NODES, f"{pairings.HOSTED}*")
def test_ranks_that_are_more_than_the_cpus_yield(mpi):
    """Open MPI knows that it has to, and a rank that yields does so to the others: they share a session."""
    code = (
        "import ctypes, os; from mpi4py import MPI; "
        "told = ctypes.c_bool.in_dll(ctypes.CDLL('libmpi.so.40'), 'ompi_mpi_oversubscribed').value; "
        "print('told', told, os.getsid(0), flush=True)"
    )
    cpus = len(os.sched_getaffinity(0))
    assert {line.split()[1] for line in only(mpi(1, "-c", code), "told")} == {"False"}
    lines = only(mpi(cpus + 1, "-c", code), "told")
    assert len(lines) == cpus + 1
    told, session = {tuple(line.split()[1:]) for line in lines}.pop()
    assert set(lines) == {f"told {told} {session}"} and told == "True"


def test_the_ranks_use_the_libpmix_of_open_mpi(mpi):
    """Or else these tests would tell nothing about native clients."""
    code = "from mpi4py import MPI; print('maps', any('libpmix' in line for line in open('/proc/self/maps')))"
    assert only(mpi(1, "-c", code), "maps") == ["maps True"]
    assert "PYPMIX_ENGINE" not in os.environ


@pytest.mark.servers(pairings.NODES)
def test_the_nodes_are_real_ones_to_open_mpi(mpi):
    code = (
        "from mpi4py import MPI; "
        "near = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED); "
        "print('node', near.size, near.allreduce(MPI.COMM_WORLD.rank))"
    )
    assert only(mpi(3, "-c", code), "node") == ["node 1 2", "node 2 1", "node 2 1"]
