"""Random plans go as planned, for ranks of C and Python on several libraries, mixed, on any nodes and native hosts.

`tox -e differential` goes through many more plans than CI, which has the same ones each time: as many as
`PYPMIX_DIFFERENTIAL_RUNS` says, from the seed `PYPMIX_DIFFERENTIAL_FROM` on. What fails prints its seed and its plan.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from foreign.interop.differential.lacks import COUNTED_ON, LOCAL, MIXED, NO_LOCAL_ID, C, find_lack
from foreign.interop.differential.losses import LOSSES, LossPlanner, shorter_elsewhere
from foreign.interop.differential.plans import OWN, Plan, Planner, Step, differences

from lib import machine, pairings
from lib.job import Job
from lib.pairings import Part
from lib.running import Jobs

HERE = Path(__file__).parent
FIRST = int(os.environ.get("PYPMIX_DIFFERENTIAL_FROM", "0"))
RUNS = int(os.environ.get("PYPMIX_DIFFERENTIAL_RUNS", "0"))

LIMIT = 40.0
RELEASES = ("4.2.2", "5.0.11")
ELSEWHERE = (
    "native-server-4.2.2",
    "native-server-5.0.11",
    "prterun-5.0.11",
    pairings.ROOT_SERVER,
    pairings.ROOT_HOSTED,
)
OF_PYTHON = ("python", "aio")
KINDS = (*OF_PYTHON, *[f"{form}-{release}" for release in RELEASES for form in ("c", "c", "native")])
ROOT_KINDS = ("python", *[f"{form}-{pairings.ROOT_RELEASE}" for form in ("c", "c", "native")])
MIXED_KINDS = ("python", "c-4.2.2", "native-5.0.11", "c-5.0.11", "aio", "native-4.2.2")

TOTAL: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def totals():
    """Tell at the end of a longer run how much it was."""
    yield
    if RUNS:
        print("\n" + ", ".join(f"{what}: {number}" for what, number in TOTAL.items()))


@pytest.fixture(scope="module")
def player(tmp_path_factory):
    """The C program that carries scripts out."""
    compiler, headers = machine.compiler(), machine.pmix_headers()
    if compiler is None:
        machine.lacking("a C compiler")
    if headers is None:
        machine.lacking("pmix.h (Debian's libpmix-dev)")
    binary = tmp_path_factory.mktemp("player") / "player"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{headers}", "-pthread"]
    command = [str(compiler), *flags, "-o", str(binary), str(HERE / "player.c"), "-lpmix"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return binary


def command_of(kind: str, folder: Path, in_root: bool) -> list[str]:
    """Return the command of a rank of a kind, less the label of its job."""
    form, _, release = kind.partition("-")
    if form == "c":
        library = () if in_root else (f"LD_LIBRARY_PATH={Path(pairings.require_library(release).path).parent}",)
        return ["env", *library, str(folder / "player"), str(folder)]
    client = "python-client" if form in OF_PYTHON else kind
    pairings.require_client(client)
    variables = [f"{name}={text}" for name, text in pairings.client_environment(client).items()]
    variables.append(f"PLAYER_FORM={form}")
    return ["env", *variables, "python3" if in_root else sys.executable, str(HERE / "player.py"), str(folder)]


def begin(plan: Plan, player: Path, jobs: Jobs, job_folder: Path, in_root: bool) -> Job:
    """Start a plan in a job of its own."""
    # All that the job needs is in the folder that it runs in, which is what the Debian root shows of the machine.
    folder, scripts = job_folder / "0", job_folder / "scripts"
    scripts.mkdir()
    files = [str(player)]
    for (label, rank), steps in plan.scripts.items():
        path = scripts / f"{label}.{rank}"
        path.write_text("".join(f"{' '.join(runnable(step, folder, in_root))}\n" for step in steps))
        files.append(str(path))
    # Under a launcher of PMIx 5, a rank of the Python engine may take the job info from those of a libpmix, unless all
    # have one store (docs/how-it-works/libpmix.md): `command_line` sees to it for parts of several engines.
    engines = [{"PYPMIX_ENGINE": "python"} if kind in OF_PYTHON and not in_root else {} for kind in plan.kinds]
    commands = [[*command_of(kind, folder, in_root), "main"] for kind in plan.kinds]
    parts = [Part(1, command, engine) for command, engine in zip(commands, engines, strict=True)]
    options = pairings.surviving(plan.server) if survives(plan) else []
    options += ["--nodes", str(plan.nodes)] if plan.nodes > 1 else []
    return jobs.begin(pairings.command_line(plan.server, parts, options), files=files, limit=LIMIT)


def runnable(step: Step, folder: Path, in_root: bool) -> list[str]:
    """Return the words of a line, with the command of a rank instead of each `RUN KIND`."""
    words = str(step).split()
    found: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if before == "RUN":
            found += command_of(word, folder, in_root)
        elif word != "RUN":
            found.append(word)
    return found


def told(folder: Path) -> dict[tuple[str, int], dict[int, str]]:
    """Return what ranks have told, by the label of their job and their rank."""
    found = {}
    for path in folder.glob("*.out"):
        label, rank, _ = path.name.split(".")
        lines = [line.partition(" ") for line in path.read_text().splitlines()]
        found[label, int(rank)] = {int(number): text for number, _, text in lines}
    return found


def survives(plan: Plan) -> bool:
    """Return True if a rank is killed, and the others are to go on."""
    return any(step.words[0] == "die" for steps in plan.scripts.values() for step in steps)


def play(plan: Plan, player: Path, job_folder: Path, in_root: bool = False) -> tuple[int, list[str], Job]:
    """Carry a plan out, and return how much was compared, what is different, and the job."""
    jobs = Jobs(job_folder, in_root)
    try:
        job = begin(plan, player, jobs, job_folder, in_root).wait()
        return *differences(plan, told(job_folder / "0")), job
    finally:
        jobs.end()


def is_as_planned(plan: Plan, found: list[str], job: Job) -> bool:
    """Return True if nothing is different, and the launcher says how the job has ended."""
    killed = survives(plan) and not plan.server.startswith("prterun")
    return not found and job.exit_code == (137 if killed else 0)


def carry_out(plan: Plan, player: Path, job_folder: Path, in_root: bool = False) -> None:
    checks, found, job = play(plan, player, job_folder, in_root)
    if not is_as_planned(plan, found, job):
        pytest.fail("\n".join([*found[:20], str(plan), job.report()]), pytrace=False)
    TOTAL.update(plans=1, ranks=len(plan.scripts), steps=plan.steps, checks=checks)


def kinds_of(server: str, makeup: str) -> tuple[str, ...]:
    """Return what the ranks of a job are made of that is of C alone, or not, on a server of one release of libpmix."""
    release = server.rpartition("-")[2]
    return (f"c-{release}",) * 3 if makeup == C else ("python", f"c-{release}", f"native-{release}", f"c-{release}")


def is_in_root(server: str) -> bool:
    return server in (pairings.ROOT_SERVER, pairings.ROOT_HOSTED)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (RUNS or 14)))
def test_a_random_plan(seed, player, job_folder):
    carry_out(Planner(seed, KINDS).plan(), player, job_folder)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (RUNS // 10 or 3)))
@pytest.mark.parametrize("server", ELSEWHERE)
def test_a_random_plan_under_libpmix(server, seed, player, job_folder):
    pairings.require_server(server)
    # These servers do not serve groups of two releases of libpmix.
    carry_out(Planner(seed, kinds_of(server, MIXED), server).plan(), player, job_folder, is_in_root(server))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (RUNS // 2 or 6)))
def test_a_plan_with_losses(seed, player, job_folder):
    carry_out(LossPlanner(seed, KINDS).plan(), player, job_folder)


ALONE = [
    pytest.param(LossPlanner.alone(loss, kinds, server), loss, id=f"{server}-{makeup}-{loss}")
    for server in ELSEWHERE
    for loss in LOSSES
    for makeup in (C, MIXED)
    if makeup == C or find_lack(loss, server, kinds_of(server, C)) is None
    for kinds in [kinds_of(server, makeup)]
    if LossPlanner.alone(loss, kinds, server) is not None
]
"""Each loss on each server that is not ours: what ranks of C lack there is shown with these alone."""

FORGETFUL = [
    pytest.param(LossPlanner.alone(loss, ("c-5.0.11",) * 3, OWN), loss, id=f"ours-{operation}")
    for operation in ("construct", "destruct")
    for loss in [f"a shorter limit, first in a {operation}"]
]

OURS_ALONE = [
    pytest.param(plan, id=f"{nodes}-{'-'.join(dict.fromkeys(kinds))}-{loss}")
    for loss in LOSSES
    if loss.startswith(("a cancelled", "a group made without"))
    if find_lack(loss, OWN, ("aio",)) is None
    for kinds in (("aio",) * 3, ("aio", "c-4.2.2", "native-5.0.11", "c-5.0.11", "python"))
    for nodes in (1, 2, 3)
    if (plan := LossPlanner.alone(loss, kinds, OWN, nodes)) is not None
]


@pytest.mark.parametrize(("plan", "loss"), [*ALONE, *FORGETFUL])
def test_a_loss_alone(plan, loss, player, job_folder):
    """A loss has the same outcome on all servers, but for what is declared to be lacking, which is observed."""
    hold(plan, loss, player, job_folder)


def hold(plan: Plan, loss: str, player: Path, job_folder: Path) -> None:
    """Carry a plan out, of a loss or of what a server may lack by this name; judge it by what is declared of that."""
    pairings.require_server(plan.server)
    lack = find_lack(loss, plan.server, plan.kinds)
    if lack is not None and lack.harm:
        pytest.skip(f"{lack.reason}: {lack.proof}")
    _, found, job = play(plan, player, job_folder, is_in_root(plan.server))
    as_planned = is_as_planned(plan, found, job)
    report = "\n".join([*found[:20], str(plan), job.report()])
    if lack is None:
        assert as_planned, report
    elif as_planned and lack.reason in (COUNTED_ON, NO_LOCAL_ID):
        # The server's answer to the shorter limit came within `TIMEOUT_GRACE`, before the client ended its call itself;
        # or the first caller of a local group, a rank of C, was not the first at the server.
        return
    else:
        wrong = lack.judge(None if as_planned else AssertionError(report), job)
        assert not wrong, f"{wrong}\n{report}"


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (RUNS // 20 or 3)))
@pytest.mark.parametrize("makeup", [C, MIXED])
@pytest.mark.parametrize("server", ELSEWHERE)
def test_a_plan_with_losses_elsewhere(server, makeup, seed, player, job_folder):
    """Whatever a server is not declared to lack goes as planned, in any order; C ranks alone show whose a fault is."""
    pairings.require_server(server)
    carry_out(LossPlanner(seed, kinds_of(server, makeup), server).plan(), player, job_folder, is_in_root(server))


@pytest.mark.parametrize("plan", OURS_ALONE)
def test_a_loss_that_is_ours_alone(plan, player, job_folder):
    """What servers of libpmix do not know goes as planned on one to three nodes of ours."""
    carry_out(plan, player, job_folder)


@pytest.mark.parametrize("operation", ["fence", "connect", "construct"])
def test_a_shorter_limit_on_another_node(operation, player, job_folder):
    carry_out(shorter_elsewhere(operation), player, job_folder)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (RUNS // 10 or 3)))
def test_a_random_plan_with_libpmix_7(seed, player, job_folder):
    pairings.require_root()
    carry_out(Planner(seed, ROOT_KINDS).plan(), player, job_folder, in_root=True)


def in_common(doing: Callable[[Planner], None], servers: Sequence[tuple[str, int, Sequence[str]]]) -> list[Any]:
    """Return the plans of what ranks of some kinds do together on servers of some nodes."""
    found = []
    for server, nodes, kinds in servers:
        planner = Planner(0, kinds, server, len(kinds), len(kinds), (nodes,))
        planner.kinds = tuple(kinds)
        planner.sync(range(planner.size))
        doing(planner)
        found.append(pytest.param(planner.made(), id=f"{server}-{nodes}"))
    return found


ON_OURS = [(OWN, nodes, MIXED_KINDS[: 3 * nodes]) for nodes in (1, 2)]
ON_THEIRS = [
    # A Python rank waits long for the destruct of ranks that have no group.
    (server, 1, kinds_of(server, C if server.startswith("prterun-5") else MIXED))
    for server in ELSEWHERE
]


@pytest.mark.parametrize("plan", in_common(Planner.local_groups, [*ON_OURS, *ON_THEIRS]))
def test_local_groups_have_context_ids(plan, player, job_folder):
    hold(plan, LOCAL, player, job_folder)


@pytest.mark.parametrize("plan", in_common(Planner.addressed, ON_OURS))
def test_events_for_a_group_from_outside(plan, player, job_folder):
    """Ranks that are not members send them, on a node that has no member, too."""
    carry_out(plan, player, job_folder)
