"""A libpmix server before 7 answers a client in the form that the last client of its job to connect asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lib import machine
from lib.native_programs import environment, launch
from lib.pairings import Part, command_line

STORES = """
import os, sys, time
from pathlib import Path
from pypmix import Client
from pypmix.engine.python import client, session

folder, rank, late = Path(sys.argv[1]), os.environ["PMIX_RANK"], sys.argv[2] == "late"

def wait_for(name):
    end = time.monotonic() + 20
    while not (folder / name).exists():
        assert time.monotonic() < end, f"{name} does not come"
        time.sleep(0.005)

def open_client():
    try:
        Client(engine="python").__enter__()
    except Exception as error:
        return str(error)
    return "opened"

if rank == "0":
    session.STORE = "shmem2"
    send = client.Client.request

    def request(self, call, payload):
        if late and isinstance(call.op, client.Open):
            (folder / "connected").touch()
            wait_for("other")
        send(self, call, payload)

    client.Client.request = request
    (folder / "outcome").write_text(open_client())
    (folder / "done").touch()
else:
    if late:
        wait_for("connected")
        assert open_client() == "opened"
        (folder / "other").touch()
    wait_for("done")
os._exit(0)
"""


def outcome(tmp_path: Path, launcher: str, order: str, store: str = "") -> str:
    """Return how rank 0, which asks for shared memory, opens."""
    program = tmp_path / "program.py"
    program.write_text(STORES)
    folder = tmp_path / f"{order}{store}"
    folder.mkdir()
    variables = {"PMIX_MCA_gds": store} if store else {}
    _, output = launch(launcher, 2, [sys.executable, str(program), str(folder), order], environment(**variables))
    path = folder / "outcome"
    assert path.exists(), output
    return path.read_text()


LAUNCHERS = [found.name for found in machine.launchers() if found.name.startswith(("prterun-5", "prterun-6"))]


@pytest.mark.parametrize("launcher", LAUNCHERS or ["none"])
def test_the_last_client_to_connect_chooses_the_form_of_every_job_info(tmp_path, launcher):
    if launcher == "none":
        machine.lacking("a prterun of PMIx 5 or 6")
    # A client that asked for shared memory gets it, unless a client of `hash` connects before its request for job info.
    assert "shared memory" in outcome(tmp_path, launcher, "alone")
    assert outcome(tmp_path, launcher, "late") == "opened"


@pytest.mark.parametrize(("server", "prefix"), [("prterun", ["env", "PMIX_MCA_gds=hash"]), ("python-server", [])])
def test_a_mixed_job_of_a_foreign_launcher_is_started_with_one_store(server, prefix):
    names = [found.name for found in machine.launchers() if found.name.startswith(server)]
    server = next(iter(names), server if server == "python-server" else "")
    if not server:
        machine.lacking("a prterun")
    program = ["true"]
    python, native = {"PYPMIX_ENGINE": "python"}, {"PYPMIX_ENGINE": "native"}
    mixed = command_line(server, [Part(1, program, python), Part(1, program, native)])
    assert mixed[: len(prefix)] == prefix
    assert command_line(server, [Part(1, program, python), Part(1, program, python)])[0] != "env"
