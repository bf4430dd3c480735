"""`pypmix run` in an instance of Flux on three nodes: with a stand-in of its few commands, as no package has Flux.

`PYPMIX_TEST_FLUX` names the `flux` of a real one with flux-pmix, which is started by `pypmix run` on the nodes then.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import blocks, machine
from lib.cluster import Cluster
from pypmix.extras.schedulers.flux import FluxRoster
from pypmix.host.rosters.base import Settings

FLUX = os.environ.get("PYPMIX_TEST_FLUX", "")
RUN = f"{sys.executable} -m pypmix run"
HELLO = f"{sys.executable} {machine.ROOT / 'docs' / 'examples' / 'hello.py'}"
LIMIT = 80.0

pytestmark = pytest.mark.timeout(150)

LOST = """
import os, subprocess, sys, time
from pypmix import Client, PartialSuccess

with Client() as me:
    me.fence(timeout=60)
    if me.node.hostname == "n2":
        os.kill(os.getppid(), 9)
        time.sleep(60)
    try:
        me.fence(timeout=60)
    except PartialSuccess as error:
        print(me.rank, "without", sorted(proc.rank for proc in error.missing), flush=True)
"""

Within = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def within(cluster: Cluster, tmp_path: Path) -> Within:
    """Run a shell script as the first program of an instance; returns how it ended."""
    programs = tmp_path / "bin"
    programs.mkdir()
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "TERM": "dumb"}
    scripts = {"pypmix": f'exec {sys.executable} -m pypmix "$@"', "app": f"exec {HELLO}"}
    if FLUX:
        scripts["flux"] = f'exec {FLUX} "$@"'
    else:
        scripts["flux"] = f'exec {sys.executable} {Path(__file__).with_name("flux_standin.py")} "$@"'
        env |= {"FLUX_URI": "local:///standin", "STANDIN_NODES": "n1 n2 n3", "STANDIN_FOLDER": str(tmp_path)}
    for name, text in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "app").symlink_to(programs / "app")

    def run(script: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "script"
        path.write_text(f"export PATH={shlex.quote(env['PATH'])}\ncd {shlex.quote(str(tmp_path))}\n{script}\n")
        command = ["sh", str(path)]
        if FLUX:
            start = [FLUX, "start", "-Sbroker.boot-method=pmix", *command]
            command = [*RUN.split(), "--host", "n1:2,n2:2,n3:2", "-n", "3", "--map-by", "node", *start]
        node = cluster["n1"]
        return node.run(*command, env=env, timeout=LIMIT, check=False)

    return run


def hosts(text: str) -> dict[int, str]:
    return {int(rank): node for rank, node in re.findall(r"hello from (\d) of \d on (n\d)", text)}


@pytest.mark.parametrize("before", ["", "export SLURMD_NODENAME=n1 PMIX_HOSTNAME=n1; "], ids=["", "started by Slurm"])
def test_all_free_nodes_are_taken(within: Within, before: str) -> None:
    done = within(f"{before}{RUN} -n 6 --map-by node {HELLO}")
    assert done.returncode == 0, done
    assert re.search(r"^pypmix run: 3 nodes of the Flux instance local://", done.stderr, re.MULTILINE), done
    assert sorted(hosts(done.stdout).values()) == ["n1", "n1", "n2", "n2", "n3", "n3"]


@pytest.mark.parametrize(
    ("brokers", "found"), [("vm,vm,vm", ""), ("vm", ""), ("n[1-2],n2", "2 nodes of the Flux instance x")]
)
def test_an_instance_of_one_machine_is_no_roster(tmp_path: Path, brokers: str, found: str) -> None:
    """As that of `flux start --test-size=3`."""
    (tmp_path / "flux").write_text(f"#!/bin/sh\ntest \"$*\" = 'getattr hostlist' && echo '{brokers}'\n")
    (tmp_path / "flux").chmod(0o755)
    env = {"FLUX_URI": "x", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert FluxRoster.found(Settings(env)) == found
    assert FluxRoster.found(Settings({**env, "PATH": "/nowhere"})) == ""


def test_the_nodes_are_named(within: Within) -> None:
    done = within(f"{RUN} --roster flux --host n2:2,n3:1 -n 3 {HELLO}")
    assert done.returncode == 0 and hosts(done.stdout) == {0: "n2", 1: "n2", 2: "n3"}, done


def test_a_job_with_a_task_on_each_node_runs_twice(within: Within) -> None:
    twice = f"{RUN} -n 3 --map-by node {HELLO} && echo between && {RUN} -n 3 --map-by node {HELLO}"
    done = within(f"flux run -N3 --tasks-per-node=1 --exclusive sh -c {shlex.quote(twice)}")
    assert done.returncode == 0 and done.stderr.count("pypmix run: task 0 of 3 of Flux job ") == 2, done
    assert done.stdout.count("hello from") == 6 and set(hosts(done.stdout).values()) == {"n1", "n2", "n3"}, done


def test_tasks_that_share_a_node_are_refused(within: Within) -> None:
    done = within(f"flux run -N2 -n 4 {RUN} --roster flux -n 2 hostname")
    assert done.returncode != 0 and "4 tasks on 2 nodes, each with a launcher of its own" in done.stderr, done


def test_no_node_is_free(within: Within, tmp_path: Path) -> None:
    (tmp_path / "busy").touch()
    before, after = ("flux submit -N3 --exclusive sleep 60", "flux cancel --all") if FLUX else (":", ":")
    done = within(f"{before}; {RUN} -n 3 hostname; code=$?; {after}; exit $code")
    assert done.returncode == 1 and "Flux has no free node; `flux jobs` tells what runs there" in done.stderr, done


def test_a_node_that_there_is_not(within: Within) -> None:
    done = within(f"{RUN} --roster flux --host n2,n9 -n 2 hostname")
    assert done.returncode == 1 and "host 'n9' not found" in done.stderr, done
    assert "flux run ended with exit code 1, and has said why" in done.stderr, done


def test_a_lost_node(within: Within) -> None:
    done = within(f"{RUN} -n 6 --map-by ppr:2:node --keep-going {sys.executable} -c {shlex.quote(LOST)}")
    assert done.returncode == 137 and "was lost with node n2" in done.stderr, done
    assert sorted(re.findall(r"(\d) without \[2, 3\]", done.stdout)) == ["0", "1", "4", "5"], done


def test_doctor(within: Within) -> None:
    done = within(f"export SLURMD_NODENAME=n1; {sys.executable} -m pypmix doctor")
    assert done.returncode == 0 and "jobs run on all of these nodes" in done.stdout, done


@pytest.mark.parametrize(
    "block",
    [each for each in blocks.of_page("docs/use/batch.md") if each.part == "cluster-flux" and each.kind == "console"],
)
def test_the_page(within: Within, block: blocks.Block) -> None:
    script = block.scripts["n1"]
    if script[0].startswith("flux alloc"):
        # In front of a terminal it starts a shell, which has what follows.
        script = [f"{script[0]} sh -c {shlex.quote('; '.join(script[1:]))}"]
    done = within("\n".join(script))
    assert done.returncode == 0 and sorted(hosts(done.stdout)) == list(range(8)), done
