"""`pypmix run --trace` sees unmodified clients: C programs of every libpmix at hand, and Open MPI."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lib import machine, provision
from lib.command import Command
from lib.openmpi import ENVIRONMENT
from pypmix.extras.tracing.read import read


@pytest.mark.parametrize("nodes", [1, 2])
def test_c_programs(command: Command, programs: Callable[[str], str], libpmix: dict[str, str], nodes: int) -> None:
    path = command.folder / "run.json"
    words = ["run", "--nodes", nodes, "-n", 3, "--trace", path, programs("modex")]
    ended = command(*words, env={**libpmix, "PYPMIX_TEST_RESULTS": str(command.folder)})
    assert ended.code == 0, ended
    found = read(str(path))
    fences = [each for each in found.collectives() if each.name == "fence"]
    assert [sorted([call.proc[-1] for call in each.calls]) for each in fences] == [["0", "1", "2"]] * 2
    assert not [each for each in fences if each.status]
    gets = [call for call in found.calls if call.name == "get" and call.more == "global"]
    assert gets and all(call.procs != call.proc for call in gets)
    # A get of what is not there tells so.
    assert {call.status for call in found.calls} <= {"", "ERR_NOT_FOUND"}
    assert {call.name for call in found.calls} >= {"job_info", "commit", "fence", "get", "finalize"}


def test_a_program_of_open_mpi(command: Command) -> None:
    python = provision.mpi4py()
    if python is None:
        machine.lacking("Open MPI with mpi4py, which tests/lib/provision.py fetches")
    path = command.folder / "run.json"
    program = ["-m", "mpi4py.bench", "helloworld"]
    # What finds pypmix has no business in the ranks, which run another Python's packages.
    ended = command("run", "-n", 3, "--trace", path, "-x", "PYTHONPATH=", python, *program, env=ENVIRONMENT)
    assert ended.code == 0, ended
    found = read(str(path))
    together = found.collectives()
    assert together and all(len(each.calls) == 3 and not each.status for each in together)
    assert len({call.proc for call in found.calls}) == 3
