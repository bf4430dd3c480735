"""Proves that the Python client runs put, commit, fence and get under native servers: PRRTE and Open MPI's mpirun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pypmix

RANK = """
import os
from pypmix.engine.python.session import open_client
from pypmix.standard import attrs
from pypmix.standard.errors import NotFound, NotInitialized, PMIxError, Unreachable
from pypmix.standard.ops import *
from pypmix.standard.structures import *
from pypmix.standard.types import *
from pypmix.standard.values import from_python, int8, uint64

wrong = dict(os.environ, PMIX_NAMESPACE="nobody")
try:
    open_client(wrong)
except Unreachable as error:
    assert "nobody:" in str(error), error
else:
    raise AssertionError("a wrong nspace was accepted")

session = open_client()
me = session.proc
everybody = Proc(me.nspace, RANK_WILDCARD)
size = session.run(Get(everybody, "pmix.job.size")).data
assert size == int(os.environ["EXPECTED_SIZE"]), size
peers = [Proc(me.nspace, rank) for rank in range(size)]
values = [uint64(2**64 - 1 - me.rank), int8(-5), from_python("é" * 3000), from_python(bytes(range(256)))]
values.append(from_python([1, 2]))
for number, value in enumerate(values):
    session.run(Put(f"key-{number}", value))
session.run(Put("local", from_python("l"), SCOPE_LOCAL))
session.run(Put("mine", from_python("m"), SCOPE_INTERNAL))
session.run(Commit())
session.run(Fence(collect=True, directives=(attrs.TIMEOUT(30),)))
for peer in peers:
    for number, value in enumerate(values):
        got = session.run(Get(peer, f"key-{number}"))
        assert got == (uint64(2**64 - 1 - peer.rank) if number == 0 else value), (peer, number, got)
        assert session.fetch_local(peer, f"key-{number}") == got
    assert session.run(Get(peer, "local")).data == "l"
    assert session.run(Get(peer, "pmix.lrank")).data < size
try:
    session.run(Get(peers[(me.rank + 1) % size], "never", (attrs.IMMEDIATE(True),)))
except NotFound as error:
    assert "never" in str(error)
assert session.run(Get(everybody, "pmix.local.size")).data == size
assert sorted(map(int, session.run(Get(everybody, "pmix.lpeers")).data.split(","))) == list(range(size))
assert session.run(Get(me, "pmix.hname")).data

# Values put after the first fence: keys that are not here yet are asked for, those that are need a refresh.
session.run(Fence())
session.run(Put("key-0", from_python(7)))
session.run(Put("second", from_python(me.rank)))
session.run(Commit())
session.run(Fence())
for peer in peers:
    assert session.run(Get(peer, "second")).data == peer.rank
    assert session.run(Get(peer, "key-0", (attrs.GET_REFRESH_CACHE(True),))).data == 7
session.run(Finalize((attrs.EMBED_BARRIER(True),)))
try:
    session.run(Fence())
except NotInitialized:
    pass
open(os.path.join(os.environ["WELL"], str(me.rank)), "w").close()
"""


def launchers() -> list[object]:
    prterun = os.environ.get("PYPMIX_TEST_PRTERUN", "")
    mpirun = shutil.which("mpirun")
    return [
        pytest.param(
            [prterun, "--map-by", ":OVERSUBSCRIBE"],
            id="prterun",
            marks=pytest.mark.skipif(not os.path.exists(prterun), reason="PYPMIX_TEST_PRTERUN names no prterun"),
        ),
        pytest.param(
            [mpirun, "--oversubscribe"],
            id="mpirun",
            marks=pytest.mark.skipif(not mpirun, reason="there is no mpirun on this machine"),
        ),
    ]


@pytest.mark.parametrize("launcher", launchers())
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_exchange_values(launcher: list[str], size: int, tmp_path: Path) -> None:
    program = tmp_path / "rank.py"
    program.write_text(RANK)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PMIX_", "PRTE_", "OMPI_"))}
    env["PYTHONPATH"] = str(Path(pypmix.__file__).parents[1])
    env["EXPECTED_SIZE"] = str(size)
    well = tmp_path / "well"
    well.mkdir()
    env["WELL"] = str(well)
    env["TMPDIR"] = str(tmp_path)
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    ended = subprocess.run(
        [*launcher, *root, "-n", str(size), sys.executable, str(program)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(path.name for path in well.iterdir()) == [str(rank) for rank in range(size)]
