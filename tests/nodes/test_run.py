"""`pypmix run` over several machines, however it gets there: by ssh, in a job of Slurm, or started on each of them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lib import machine, pairings, provision
from lib.cluster import Cluster
from lib.job import Job
from lib.leftovers import paths_in
from lib.node_runs import LIMIT, NODES, RANK, RUN, Runner, succeeded, ways
from lib.processes import Process

EXAMPLES = machine.ROOT / "docs" / "examples"
MPI = machine.TESTS / "foreign" / "interop" / "mpi"

LOST = 45.0
"""Seconds in which a machine that no longer answers counts as lost."""

WAITS = """
import os, sys, time
from pypmix import Client, PartialSuccess

with Client() as me:
    me.fence(collect=True, timeout=30)
    print(me.rank, "ready", os.getppid(), flush=True)
    if me.node.hostname == sys.argv[1]:
        time.sleep(120)
    try:
        me.fence(timeout=90)
    except PartialSuccess as error:
        print(me.rank, "without", sorted(proc.rank for proc in error.missing), flush=True)
    else:
        print(me.rank, "together", flush=True)
"""

LEAVES = """
import os, signal, sys, time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
if os.environ["PMIX_HOSTNAME"] == sys.argv[1]:
    time.sleep(120)
"""

SPAWNS = """
import sys
from pypmix import Client, attrs

with Client() as me:
    if me.rank == 0:
        for node in "n2", "n1":
            me.spawn([sys.executable, sys.argv[1]], n=2, info={attrs.HOST: node}).wait(timeout=30)
    me.fence(timeout=60)
"""

DEMANDS = """
import os, signal, sys, time
from pypmix import Client

me = Client()
me.open()
me.fence(timeout=30)
if me.rank == int(sys.argv[1]):
    how = sys.argv[2]
    if how == "exit":
        os._exit(7)
    elif how == "abort":
        me.abort(9, "enough")
    os.kill(os.getpid(), int(how))
time.sleep(120)
"""

GROUP = """
import sys
from pypmix import Client

with Client() as me:
    with me.group("all", me.job, context_id=True, timeout=30) as group:
        print(me.rank, "has", group.context_id, len(group.members), flush=True)
"""

TURNS = """
import time
from pypmix import Client

with Client() as me:
    for turn in range(10):
        me.fence(timeout=60)
        print("turn", turn, flush=True)
        time.sleep(0.2)
"""


@ways()
@pytest.mark.parametrize("client", ["python-client", "native-5.0.11"])
def test_every_rank_knows_its_machine(over: Runner, client: str) -> None:
    pairings.require_client(client)
    job = succeeded(
        over(8, sys.executable, str(EXAMPLES / "hello.py"), client=client, options=("--map-by", "ppr:4:node"))
    )
    for rank in range(8):
        assert f"hello from {rank} of 8 on {NODES[rank // 4]}  [" in job.stdout, job.report()
    assert over.cluster.wait_gone() == ""


@ways("ssh", "symmetric")
def test_three_machines(over: Runner) -> None:
    job = succeeded(over(6, sys.executable, str(EXAMPLES / "hello.py"), nodes=("n1", "n2", "n3"), options=BY_TWO))
    for rank in range(6):
        assert f"hello from {rank} of 6 on n{1 + rank // 2}  [" in job.stdout, job.report()


BY_TWO = ("--map-by", "ppr:2:node")


@ways()
def test_data(over: Runner) -> None:
    everything = [[f"tcp://{rank}", rank * 11] for rank in range(4)]
    assert over.scenario("pypmix.conformance.exchange.collected", 4, options=BY_TWO) == [everything] * 4
    assert over.scenario("nodes.direct", 4, options=BY_TWO, size=100_000) == [[True] * 4] * 4


@ways("ssh")
def test_scopes(over: Runner) -> None:
    for rank, seen in enumerate(over.scenario("nodes.scopes", 4, options=BY_TWO)):
        for other, values in seen.items():
            near = (rank < 2) == (other < 2)
            assert values == ([other, None, other] if near else [None, other, other]), (rank, other)


@ways()
def test_groups_have_context_ids(over: Runner) -> None:
    rows = {row[0]: row for each in over.scenario("nodes.groups", 4, options=BY_TWO) for row in each}
    assert {name: row[1] for name, row in rows.items()} == {"all": [0, 1, 2, 3], "firsts": [0, 2], "own": [0, 1]}
    assert len({row[2] for row in rows.values()}) == 3 and None not in {row[2] for row in rows.values()}


@ways()
def test_what_is_published_is_found(over: Runner) -> None:
    assert over.scenario("nodes.published", 4, options=BY_TWO, wide="SESSION") == ["value"] * 4


@ways("ssh")
def test_ranges_of_what_is_published_and_raised(over: Runner) -> None:
    found = over.scenario("nodes.published", 4, options=BY_TWO, wide="LOCAL")
    assert found == [None, None, "value", "value"]
    for wide, hearers in (("LOCAL", {2, 3}), ("SESSION", {0, 1, 2, 3})):
        heard = over.scenario("nodes.events", 4, options=BY_TWO, wide=wide)
        assert {rank for rank, each in enumerate(heard) if each} == hearers


@ways()
def test_jobs_are_spawned_on_named_machines(over: Runner) -> None:
    job = succeeded(over(2, sys.executable, "-c", SPAWNS, str(EXAMPLES / "hello.py"), options=("--map-by", "node")))
    for node in NODES:
        assert len(re.findall(rf"hello from \d of 2 on {node} ", job.stdout)) == 2, job.report()


ELSEWHERE = """
from pypmix import Client, PMIxError, attrs

with Client() as me:
    try:
        me.spawn(["true"], info={attrs.HOST: "n9"})
    except PMIxError as error:
        print(error.detail, flush=True)
"""


@ways("ssh")
def test_a_spawn_on_a_machine_that_there_is_not_is_told_which_there_are(over: Runner) -> None:
    job = succeeded(over(1, sys.executable, "-c", ELSEWHERE))
    assert job.stdout == "'n9' is none of the nodes that there are: n1, n2\n", job.report()


FAILING = {"failover": (1, "rank 2 follows rank 1 in term 2"), "survivors": (137, "rank 2 knows {0: 0, 2: 20}")}
"""The exit code of each example of which a rank fails, and what another rank prints afterwards."""


@ways("ssh")
@pytest.mark.parametrize("name", [path.stem for path in sorted(EXAMPLES.glob("*.py"))])
def test_examples(over: Runner, name: str) -> None:
    code, words = FAILING.get(name, (0, ""))
    keep = ["--keep-going"] if code else []
    job = over(3, sys.executable, str(EXAMPLES / f"{name}.py"), options=("--map-by", "node", *keep))
    assert not job.hung and job.exit_code == code, job.report()
    assert words in job.stdout, job.report()


@ways("ssh", "srun")
@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        ("collectives", [f"collectives 6 4 word of {(rank - 1) % 4} 2" for rank in range(4)]),
        ("session", [f"session {rank} {4 + (0 if rank % 2 else 200)}" for rank in range(4)]),
        ("spawning", [f"spawning {name} 6 6" for name in ("child 4", "child 5", *(f"parent {n}" for n in range(4)))]),
        ("accepting", ["accepting 4 4"] * 4),
    ],
)
def test_unmodified_programs_of_open_mpi(over: Runner, program: str, wanted: list[str]) -> None:
    python = provision.mpi4py()
    if python is None:
        machine.lacking("Open MPI with mpi4py, which tests/lib/provision.py fetches")
    # What finds pypmix has no business in the ranks, which run another Python's packages.
    settings = ["PYTHONPATH=", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
    command = ["env", *settings, str(python), str(MPI / f"{program}.py")]
    job = succeeded(over(4, *command, options=(*BY_TWO, "--oversubscribe")))
    found = [line for line in job.stdout.splitlines() if line.startswith(program)]
    assert sorted(found) == sorted(wanted), job.report()


@ways()
@pytest.mark.parametrize(("rank", "how", "code"), [(0, "exit", 7), (3, "exit", 7), (3, "abort", 9), (3, "9", 137)])
def test_exit_codes(over: Runner, rank: int, how: str, code: int) -> None:
    job = over(4, sys.executable, "-c", DEMANDS, str(rank), how, options=BY_TWO)
    assert not job.hung and job.exit_code == code, job.report()
    assert over.cluster.wait_gone() == "", job.report()


@ways()
def test_output_is_tagged(over: Runner) -> None:
    job = succeeded(over(4, "sh", "-c", "echo out; echo err >&2", options=(*BY_TWO, "--tag-output")))
    for rank in range(4):
        for stream, word in (("stdout", "out"), ("stderr", "err")):
            line = f"[{rank}@n{1 + rank // 2}]<{stream}>: {word}"
            assert line in getattr(job, stream).splitlines(), job.report()


@ways("ssh", "salloc", "symmetric")
@pytest.mark.parametrize("rank", [0, 3])
def test_standard_input_goes_to_a_rank_of_any_machine(over: Runner, rank: int) -> None:
    text = "a line\n" * 20_000
    job = succeeded(over(4, "sh", "-c", "wc -c", options=(*BY_TWO, "--stdin", str(rank)), stdin=text))
    assert sorted(map(int, job.stdout.split())) == [0, 0, 0, len(text)], job.report()


@ways()
def test_a_signal_to_the_launcher_ends_the_run(over: Runner) -> None:
    started = over.begin(4, sys.executable, "-c", WAITS, "n2", options=BY_TWO)
    over.until_said(started, "ready", 4)
    started.launcher.send_signal(signal.SIGTERM)
    job = started.launcher.wait()
    assert not job.hung and job.exit_code != 0, job.report()
    assert over.cluster.wait_gone() == "", job.report()


@ways()
def test_a_launcher_that_is_killed_leaves_nothing(over: Runner) -> None:
    started = over.begin(4, sys.executable, "-c", WAITS, "n2", options=BY_TWO)
    over.until_said(started, "ready", 4)
    launchers = [process for process in over.cluster["n1"].processes() if process.command.startswith(" ".join(RUN))]
    # The one that was started first, if it has started others of its kind.
    pids = {process.pid for process in launchers}
    (launcher,) = [process for process in launchers if process.parent not in pids]
    over.cluster.kill(launcher)
    assert not started.launcher.wait().hung
    left = over.cluster.wait_gone(20)
    assert left == "", f"{left}\n{started.launcher.report()}"


@ways()
@pytest.mark.parametrize("keep", [True, False])
def test_a_daemon_that_is_killed(over: Runner, keep: bool) -> None:
    options = (*BY_TWO, *(("--keep-going",) if keep else ()))
    started = over.begin(4, sys.executable, "-c", WAITS, "n2", options=options)
    over.until_said(started, "ready", 4)
    over.cluster.kill(over.daemon(over.cluster["n2"]))
    if keep:
        over.until_said(started, r"[01] without \[2, 3\]", 2)
    job = started.launcher.wait()
    assert not job.hung and job.exit_code != 0, job.report()
    left = over.cluster.wait_gone(20)
    assert left == "", f"{left}\n{job.report()}"


@ways()
def test_ranks_that_a_leaving_daemon_has_ended_are_lost_with_their_node(over: Runner) -> None:
    """Though they exit with 0 then: nobody has asked for that."""
    started = over.begin(4, sys.executable, "-c", LEAVES, "n2", options=(*BY_TWO, "--keep-going"))
    over.until_said(started, "ready", 4)
    os.kill(over.daemon(over.cluster["n2"]).pid, signal.SIGTERM)
    job = started.launcher.wait()
    assert job.exit_code == 137 and re.search(
        r"rank [23] .*was lost with node n2: its daemon has left: it was sent SIGTERM", job.stderr
    ), job.report()
    left = over.cluster.wait_gone(20)
    assert left == "", f"{left}\n{job.report()}"


def go_on(over: Runner, stopped: Sequence[Process]) -> None:
    """Let processes that stand still go on; the first ones may end the others then."""
    for process in stopped:
        with contextlib.suppress(ProcessLookupError):
            over.cluster.resume(process)


@ways("ssh")
def test_a_short_loss_of_the_network_is_not_noticed(over: Runner) -> None:
    started = over.begin(4, sys.executable, "-c", TURNS, options=BY_TWO)
    over.until_said(started, "turn 2", 4)
    over.cluster.link_down("n2")
    time.sleep(5)
    over.cluster.link_up("n2")
    job = succeeded(started.launcher.wait())
    assert job.stdout.count("turn 9") == 4, job.report()


@ways("ssh")
@pytest.mark.timeout(200)
@pytest.mark.parametrize("how", ["cable", "stopped"])
def test_a_machine_that_no_longer_answers_is_lost(over: Runner, how: str) -> None:
    started = over.begin(4, sys.executable, "-c", WAITS, "n2", options=(*BY_TWO, "--keep-going"), limit=150)
    over.until_said(started, "ready", 4)
    if how == "cable":
        over.cluster.link_down("n2")
    else:
        for process in over.cluster["n2"].processes():
            over.cluster.stop(process)
    try:
        over.until_said(started, r"[01] without \[2, 3\]", 2, LOST)
        assert not started.launcher.wait().hung
    finally:
        over.cluster.link_up("n2")
        go_on(over, over.cluster["n2"].processes())
    left = over.cluster.wait_gone(LOST)
    assert left == "", left


@ways("ssh")
@pytest.mark.timeout(200)
def test_a_machine_that_goes_on_too_late_is_out_and_the_others_agree(over: Runner) -> None:
    nodes = ("n1", "n2", "n3")
    options = (*BY_TWO, "--keep-going", "--keep-alive", "6")
    started = over.begin(6, sys.executable, "-c", WAITS, "n2", nodes=nodes, options=options, limit=150)
    over.until_said(started, "ready", 6)
    stopped = over.cluster["n2"].processes()
    for process in stopped:
        over.cluster.stop(process)
    try:
        over.until_said(started, r"[0145] without \[2, 3\]", 4, LOST)
    finally:
        go_on(over, stopped)
    job = started.launcher.wait()
    assert not job.hung and "n2" in job.stderr and "has not answered for" in job.stderr, job.report()
    left = over.cluster.wait_gone(LOST)
    assert left == "", f"{left}\n{job.report()}"


@ways("ssh")
def test_a_machine_that_stands_still_for_a_moment_is_not_lost(over: Runner) -> None:
    started = over.begin(4, sys.executable, "-c", TURNS, options=(*BY_TWO, "--keep-alive", "12"))
    over.until_said(started, "turn 2", 4)
    stopped = over.cluster["n2"].processes()
    for process in stopped:
        over.cluster.stop(process)
    time.sleep(4)
    go_on(over, stopped)
    job = succeeded(started.launcher.wait())
    assert job.stdout.count("turn 9") == 4, job.report()


@ways("ssh")
@pytest.mark.timeout(200)
def test_a_launcher_that_is_stopped_is_lost_and_nothing_is_left(over: Runner) -> None:
    started = over.begin(4, sys.executable, "-c", WAITS, "n2", options=(*BY_TWO, "--keep-alive", "6"), limit=150)
    over.until_said(started, "ready", 4)

    def no_ranks() -> bool:
        return not any(each.command.startswith(RANK) for node in over.cluster for each in node.processes())

    launcher = started.launcher.pid
    os.kill(launcher, signal.SIGSTOP)
    try:
        over.cluster.until("the end of the ranks", no_ranks, LOST)
    finally:
        os.kill(launcher, signal.SIGCONT)
    job = started.launcher.wait()
    assert not job.hung and job.exit_code != 0, job.report()
    left = over.cluster.wait_gone(LOST)
    assert left == "", f"{left}\n{job.report()}"


@ways("ssh")
def test_a_launcher_that_stops_itself_goes_on_with_its_job(over: Runner) -> None:
    """As by Ctrl-Z and `fg`."""
    started = over.begin(4, sys.executable, "-c", TURNS, options=(*BY_TWO, "--keep-alive", "3"))
    over.until_said(started, "turn 2", 4)
    os.kill(started.launcher.pid, signal.SIGTSTP)
    time.sleep(8)
    os.kill(started.launcher.pid, signal.SIGCONT)
    job = succeeded(started.launcher.wait())
    assert job.stdout.count("turn 9") == 4, job.report()


@ways("ssh")
def test_two_machines_that_do_not_reach_each_other_are_not_both_kept(over: Runner) -> None:
    """The launcher reaches both: the later one leaves, and the others go on without it."""
    nodes = ("n1", "n2", "n3")
    options = (*BY_TWO, "--keep-going", "--keep-alive", "6")
    started = over.begin(6, sys.executable, "-c", WAITS, "n3", nodes=nodes, options=options, limit=150)
    over.until_said(started, "ready", 6)
    over.cluster.cut("n2", "n3")
    try:
        over.until_said(started, r"[0123] without \[4, 5\]", 4, LOST)
        job = started.launcher.wait()
    finally:
        over.cluster.mend("n2", "n3")
    assert not job.hung and "n3" in job.stderr, job.report()
    left = over.cluster.wait_gone(LOST)
    assert left == "", f"{left}\n{job.report()}"


def test_machines_that_have_only_ipv6(cluster_of_ipv6: Cluster) -> None:
    words = [*RUN, "--host", "n1v6:2,n2v6:2,n3v6:2", "-n", "6", sys.executable, "-c", GROUP]
    done = cluster_of_ipv6["n1"].run(*words, timeout=LIMIT)
    rows = sorted(line.split() for line in done.stdout.splitlines())
    assert [(row[0], row[3]) for row in rows] == [(str(rank), "6") for rank in range(6)], done
    assert cluster_of_ipv6.wait_gone() == ""


def test_a_network_that_does_not_reach_the_launcher_is_not_taken(cluster: Cluster) -> None:
    """Both machines have an address on a second network, over which nothing comes."""
    for number, name in enumerate(("n1", "n2"), 1):
        cluster[name].run("ip", "link", "add", "ib0", "type", "bridge")
        cluster[name].run("ip", "addr", "add", f"10.88.0.{number}/24", "dev", "ib0")
        cluster[name].run("ip", "link", "set", "ib0", "up")
    try:
        with_port = "import socket, time; s = socket.create_server(('', 7099)); time.sleep(60)"
        listener = cluster["n1"].start(sys.executable, "-c", with_port)
        try:
            code = (
                "from pypmix.host.addresses import listening_address;"
                "print(listening_address('', [('10.88.0.1', 7099), ('10.77.0.1', 7099)]))"
            )
            cluster.until("a listener", lambda: "7099" in cluster["n1"].run("ss", "-tln").stdout, 20)
            assert cluster["n2"].run(sys.executable, "-c", code).stdout == "10.77.0.2\n"
        finally:
            listener.kill()
            listener.wait()
    finally:
        for name in ("n1", "n2"):
            cluster[name].run("ip", "link", "del", "ib0")


@ways("ssh")
def test_without_encryption(over: Runner) -> None:
    job = succeeded(over(4, sys.executable, "-c", GROUP, options=(*BY_TWO, "--no-encryption")))
    assert len({line.split()[2] for line in job.stdout.splitlines()}) == 1, job.report()


@ways("ssh")
def test_no_folder_is_shared(over: Runner, tmp_path: Path) -> None:
    cluster = over.cluster
    with cluster.unshared(tmp_path):
        program = [*RUN, "--host", "n1:2,n2:2", "-n", "4", sys.executable, "-c", GROUP]
        # A working directory of its own, too.
        done = cluster["n1"].run(*program, timeout=LIMIT, cwd="/tmp")
    rows = [line.split() for line in sorted(done.stdout.splitlines())]
    assert [(row[0], row[3]) for row in rows] == [(str(rank), "4") for rank in range(4)], done
    assert len({row[2] for row in rows}) == 1


CARRIED = r"""
head -c 3000000 /dev/urandom > data
printf '#!/bin/sh\nhostname\ncksum < $1\n' > app
chmod 755 app
cksum < data
"""


@ways("ssh")
def test_files_are_carried_where_no_folder_is_shared(over: Runner, tmp_path: Path) -> None:
    """The program and its data are on the launcher's machine alone; nothing is left of the copies."""
    cluster = over.cluster
    with cluster.unshared(tmp_path):
        made = cluster["n1"].run("sh", "-c", CARRIED, cwd=tmp_path)
        program = [*RUN, "--host", "n1:1,n2:2", "--preload", "./app", "--preload", "data", "-n", "3", "./app", "data"]
        done = cluster["n1"].run(*program, timeout=LIMIT, cwd=tmp_path)
        absent = cluster["n2"].run("ls", tmp_path).stdout
    assert sorted(done.stdout.split("\n")) == sorted(["n1", "n2", "n2", "", *[made.stdout.strip()] * 3]), done
    assert absent == ""
    left = [str(path) for node in cluster for path in paths_in(node.tmp) if path.name == "preload"]
    assert left == []


def test_a_node_that_does_not_exist_is_named(cluster: Cluster) -> None:
    done = cluster["n1"].run(*RUN, "--host", "n1,n9", "-n", "2", "hostname", check=False, timeout=LIMIT)
    assert done.returncode != 0 and "n9" in done.stderr, done
    assert "Traceback" not in done.stderr
    assert cluster.wait_gone() == ""


def test_a_node_without_pypmix_is_told(cluster: Cluster) -> None:
    done = cluster["n1"].run(
        *RUN, "--host", "n2", "--remote-python", "/usr/bin/python3", "hostname", check=False, timeout=LIMIT
    )
    assert done.returncode != 0 and "pypmix" in done.stderr and "n2" in done.stderr, done
    assert "Traceback" not in done.stderr
    assert cluster.wait_gone() == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        # A Python that hangs, as on a file system that does not answer.
        (
            ("--node-timeout", "3", "--remote-python", "SLOW"),
            ("n2 did not join within 3 s", "ssh -T", "-m pypmix doctor"),
        ),
        (("--launch-agent", "ssh -n {host}"), ("node n2", "kubectl exec with -i")),
        (("--launch-agent", "ssh -tt {host}"), ("node n2", "ssh does with -T")),
    ],
)
def test_why_a_daemon_does_not_begin_is_told(
    cluster: Cluster, tmp_path: Path, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 8\n")
    slow.chmod(0o755)
    options = tuple(str(slow) if word == "SLOW" else word for word in options)
    done = cluster["n1"].run(*RUN, "--host", "n2", *options, "hostname", check=False, timeout=LIMIT)
    assert done.returncode == 1 and all(word in done.stderr for word in words), done
    assert "firewall" not in done.stderr and "Traceback" not in done.stderr, done
    assert cluster.wait_gone() == ""


def test_the_secret_is_on_no_command_line_and_in_no_file(cluster: Cluster, run_of: Callable[[], Job]) -> None:
    """The lines that daemons get on standard input hold it; nothing else does."""
    job = run_of()
    lines = [process.command for node in cluster for process in node.processes()]
    assert any("pypmix node" in line for line in lines), lines
    assert not [line for line in lines if re.search(r"\b[0-9a-f]{32,}\b", line) and "PYPMIX_TEST" not in line], lines
    job.send_signal(signal.SIGTERM)
    job.wait()


@pytest.fixture
def run_of(cluster: Cluster, tmp_path: Path) -> Callable[[], Job]:
    """Start a run that waits."""

    def begin() -> Job:
        runner = Runner("ssh", cluster, {}, tmp_path)
        started = runner.begin(4, sys.executable, "-c", WAITS, "n2", options=BY_TWO)
        runner.until_said(started, "ready", 4)
        return started.launcher

    return begin
