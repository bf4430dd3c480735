"""A value of any type arrives equal, or is refused at the call, or its reader lacks that one: no peer is harmed."""

from __future__ import annotations

import pytest

from lib.c_programs import succeeded
from lib.job import scenario_command
from lib.pairings import Part, require_library
from pypmix import PMIxError
from pypmix.standard import statuses

READER_LACKS = (statuses.ERR_UNKNOWN_DATA_TYPE, statuses.ERR_NOT_FOUND)
SERVERS = pytest.mark.servers("python-server*", "prterun*", "native-server*")
MIXED = pytest.mark.servers("python-server*", "prterun*")
"""Where ranks of both engines may be in one job; `command_line` starts it with one store for all."""
PYTHON = {"PYPMIX_ENGINE": "python"}


def arrived_or_refused(ranks):
    """Check what each reader has seen of the values that rank 0 has sent: pairs of an engine and a result."""
    takes, _ = ranks[0][1]
    assert any(takes.values())
    for engine, (own, seen) in ranks[1:]:
        assert seen.keys() == {name for name in takes if takes[name]}
        # A reader gets what its own engine takes; a Python reader decodes everything.
        python = engine.startswith("python")
        wrong = {name: came for name, came in seen.items() if came is not True and (python or own[name])}
        assert not wrong, (engine, wrong)
        for name, came in seen.items():
            if isinstance(came, PMIxError):
                assert came.code in READER_LACKS, (engine, name, came)
            elif came is not True:
                # An info that the reader cannot decode is left out, of arrays of infos too; a RegAttr loses its type.
                assert came == "None" or name.startswith(("infos.", "regattr.")), (engine, name, came)


@pytest.fixture(params=["put", "publish", "event"])
def meet(request, launch):
    """Return a function that lets ranks of some engines meet, two of each, and checks what they have seen."""
    command = scenario_command("kinds.every_kind", "asyncio", {"way": request.param})

    def run(*environments):
        job = succeeded(launch(*[Part(2, command, environment) for environment in environments]))
        ranks = [(rank.engines[0], rank.result) for _, rank in sorted(job.ranks.items())]
        arrived_or_refused(ranks)
        return ranks

    return run


@pytest.fixture
def native(libpmix):
    return {"PYPMIX_ENGINE": "native", "PYPMIX_LIBPMIX": require_library(libpmix["INTEROP_RELEASE"]).path}


@SERVERS
def test_between_python_ranks(meet):
    meet(PYTHON)


@MIXED
def test_from_python_ranks_to_those_of_a_libpmix(meet, native):
    meet(PYTHON, native)


@MIXED
def test_from_ranks_of_a_libpmix_to_python_ranks(meet, native):
    meet(native, PYTHON)


@pytest.mark.servers("python-server")
def test_a_python_rank_sends_everything_to_its_own_server(meet):
    takes, _ = meet(PYTHON)[0][1]
    assert all(takes.values()), takes
