"""Ranks that are given GPUs get their identifiers, as under prterun 5, if their encoding has a type for them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from lib import machine
from lib.hardware import Layout, write_files
from pypmix.topology.kernel import read_machine
from pypmix.topology.machine import GPU, OS_DEVICE, Object
from pypmix.topology.shape import Shape
from pypmix.topology.xml import write_xml

pytestmark = pytest.mark.timeout(120)

SHOWS = """
import os
from pypmix import Client
with Client() as me:
    me.fence(timeout=20)
    for rank in range(me.job.size):
        found = me.get("pmix.dev.id", proc=rank, default=())
        print("found", me.rank, rank, [(each.uuid, each.osname, each.type) for each in found], flush=True)
"""

HOSTS = f"""
import asyncio
import os
import sys
from pypmix.host import Host, NodeLayout

async def main():
    names = (("nvml0", "nvml1"), ("nvml2", "nvml3"))
    async with Host(engine=sys.argv[1], node="n1") as rm:
        node = NodeLayout("n1", (0, 1), devices=names)
        job = rm.job("demo@1", argv=[sys.executable, "-c", {SHOWS!r}], nodes=[node])
        async with rm.start(job, forward_output=True) as procs:
            assert set((await procs.wait()).values()) == {{0}}

asyncio.run(main())
"""

EXPECTED = [[(f"gpu://{{}}::nvml{number}", f"nvml{number}", 2) for number in numbers] for numbers in ((0, 1), (2, 3))]

NOTHING: list[tuple[int, int, list[tuple[str, str, int]]]] = [
    (each, rank, []) for each in range(2) for rank in range(2)
]


def shown(text: str) -> list[tuple[int, int, list[tuple[str, str, int]]]]:
    """Return what each rank has found about each: the devices."""
    lines = [line.split(" ", 3) for line in text.splitlines() if line.startswith("found ")]
    return sorted((int(reader), int(rank), ast.literal_eval(devices)) for _, reader, rank, devices in lines)


def expected(hostname: str) -> list[tuple[int, int, list[tuple[str, str, int]]]]:
    own = [[(uuid.format(hostname), name, type) for uuid, name, type in devices] for devices in EXPECTED]
    return [(reader, rank, own[rank]) for reader in range(2) for rank in range(2)]


@pytest.mark.parametrize("server", ["python", "native"])
@pytest.mark.parametrize("client", ["python", "native"])
def test_a_release_that_does_not_know_them_reads_the_rest(server: str, client: str) -> None:
    environment = machine.clean_environment() | {"PYPMIX_ENGINE": client}
    if "native" in (server, client):
        library = machine.library("5.0.11")
        if library is None or not machine.extension():
            machine.lacking("the native engine with libpmix 5.0.11")
        assert library is not None
        environment["PYPMIX_LIBPMIX"] = library.path
    words = [sys.executable, "-c", HOSTS, server]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert shown(done.stdout) == (expected("n1") if server == client == "python" else NOTHING)


@pytest.mark.parametrize("server", ["python", "native"])
@pytest.mark.parametrize("client", ["python", "native"])
def test_the_newest_release(tmp_path: Path, server: str, client: str) -> None:
    done = in_root(tmp_path, ["env", f"PYPMIX_ENGINE={client}", "python3", "-c", HOSTS, server])
    # libpmix refuses a client if its encoding lacks a type of the job info.
    assert shown(done) == (expected("n1") if server == client == "python" else NOTHING)


def test_they_are_those_of_prterun(tmp_path: Path) -> None:
    found = read_machine(write_files(Layout(gpus=(0, 0, 1, 1)), tmp_path / "files"))
    number = 0
    for each in list(found.devices):
        if each.attributes.get("osdev_type") == str(GPU):
            # What hwloc adds with NVIDIA's library: without it prterun maps to no GPU.
            device = Object(OS_DEVICE)
            device.attributes = {"name": f"nvml{number}", "osdev_type": str(GPU)}
            device.infos = [("Backend", "NVML"), ("NVIDIAUUID", f"GPU-{number:08x}-0000")]
            assert each.parent is not None
            each.parent.add(device)
            number += 1
    found.renew()
    (tmp_path / "topology.xml").write_text(write_xml(found))
    assert [gpu.name for gpu in Shape.of(found, -1).gpus] == ["nvml0", "nvml1", "nvml2", "nvml3"]
    words = ["prterun", "--allow-run-as-root", "--prtemca", "hwloc_use_topo_file", f"{tmp_path}/topology.xml"]
    words += ["-n", "2", "--map-by", "device=gpu:ndev=2", "--bind-to", "none", "python3", "-c", SHOWS]
    done = shown(in_root(tmp_path, words))
    hostname = done[0][2][0][0].split("/")[2].partition("::")[0]
    assert done == expected(hostname)


def in_root(folder: Path, words: list[str]) -> str:
    """Run a command in the Debian root, and return its output."""
    lacking = machine.root_lacking()
    if lacking:
        machine.lacking(lacking)
    command = machine.enter(["env", f"TMPDIR={folder}", *words], folder)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=machine.clean_environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
