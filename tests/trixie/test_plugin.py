"""Job steps of Debian's Slurm with its own PMIx plugin, which has libpmix 5.0, and `pypmix run` in its jobs."""

from __future__ import annotations

import pytest

from lib import machine, pairings, provision_roots
from lib.cluster import Cluster
from lib.slurm_nodes import Slurm
from trixie.conftest import RUN, Ran

STEP = ("srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2")
PYTHON = ("python3", "-c")

pytestmark = pytest.mark.timeout(150)

EXCHANGE = """\
import pypmix
with pypmix.Client() as me:
    me.put("rank", {"of": me.rank, "pair": [me.rank, 5]})
    me.fence(collect=True, timeout=20)
    got = [me.get("rank", proc=proc) for proc in me.job.procs]
    assert got == [{"of": rank, "pair": [rank, 5]} for rank in range(4)], got
    print(me.rank, me.job.size, me.node.hostname, me.engine, flush=True)
"""

REFUSED = """\
import pypmix
def attempt(name, call):
    try:
        call()
    except pypmix.NotSupported as error:
        print(me.rank, name, "Slurm's PMIx plugin" in str(error), flush=True)
    else:
        print(me.rank, name, "was done", flush=True)
with pypmix.Client() as me:
    attempt("group", lambda: me.group("g", me.job.procs, timeout=20).__enter__())
    attempt("publish", lambda: me.publish({"port": 1}))
    attempt("lookup", lambda: me.lookup("port"))
    me.fence(timeout=20)
"""


@pytest.fixture(params=["python", "native"])
def engine(request: pytest.FixtureRequest, root: provision_roots.Root) -> list[str]:
    """Words that make a command use an engine; the native one stands on the libpmix that Slurm has."""
    variables = {"PYPMIX_ENGINE": request.param}
    if request.param == "native":
        if not machine.extension():
            machine.lacking("the native engine's extension (pypmix was installed without a C compiler)")
        variables["PYPMIX_LIBPMIX"] = root.library
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def test_it_is_the_slurm_that_debian_stable_has(ran: Ran, root: provision_roots.Root) -> None:
    assert ran("srun", "--version").stdout.split() == ["slurm-wlm", root.slurm]
    assert root.slurm.startswith("24.")
    assert root.python.startswith("3.13.")
    assert pairings.PMIX_OF_ROOTS["trixie"] == machine.leading_release(root.pmix)
    listed = ran("srun", "--mpi=list")
    assert "pmix_v5" in listed.stdout + listed.stderr


def test_ranks_exchange_what_they_put(ran: Ran, engine: list[str]) -> None:
    done = ran(*STEP, *engine, *PYTHON, EXCHANGE)
    name = engine[1].partition("=")[2]
    assert sorted(line.split()[:4] for line in done.stdout.splitlines()) == [
        [str(rank), "4", f"n{1 + rank // 2}", name] for rank in range(4)
    ]


def test_what_the_plugin_does_not_offer_is_refused_with_words(ran: Ran, engine: list[str]) -> None:
    done = ran(*STEP, *engine, *PYTHON, REFUSED)
    assert sorted(done.stdout.splitlines()) == sorted(
        f"{rank} {name} True" for rank in range(4) for name in ("group", "publish", "lookup")
    )


def test_a_rank_that_fails_ends_the_step(ran: Ran, engine: list[str], slurm: Slurm) -> None:
    program = "import pypmix, time\nwith pypmix.Client() as me:\n    me.rank == 3 and me.abort(7)\n    time.sleep(60)"
    done = ran(*STEP, "--kill-on-bad-exit=1", *engine, *PYTHON, program, check=False)
    assert done.returncode not in (0, 1), done.stderr
    slurm.settle()


def test_pypmix_run_in_an_allocation(ran: Ran, engine: list[str]) -> None:
    done = ran("salloc", "--quiet", "-N2", "--ntasks-per-node=2", *RUN, "-n", "4", *engine, *PYTHON, EXCHANGE)
    name = engine[1].partition("=")[2]
    assert sorted(line.split()[:4] for line in done.stdout.splitlines()) == [
        [str(rank), "4", f"n{1 + rank // 2}", name] for rank in range(4)
    ]
    assert ": n1 (2), n2 (2)\n" in done.stderr


def test_nothing_is_left(trixie: Cluster, slurm: Slurm) -> None:
    slurm.settle()
    assert trixie.wait_gone() == ""
