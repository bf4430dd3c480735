"""Unmodified C programs publish and look up on the Python server, alone and with Python ranks."""

from __future__ import annotations

import sys

import pytest

from lib.c_programs import notes, succeeded
from lib.job import Job
from lib.pairings import Part

pytestmark = pytest.mark.servers("python-server", "native-server-4.2.2")

NOT_FOUND, TIMEOUT, DUPLICATE, NO_PERMISSIONS = -46, -24, -53, -23


def test_publish_between_c_ranks(launch, programs, libpmix):
    job: Job = succeeded(launch(Part(2, [programs("publish")], libpmix)))
    first, second = notes(job, 0), notes(job, 1)
    for seen in first, second:
        assert seen["late"] == "0 c.port=tcp://1@0 c.number=7@0"
        # These releases drop the data of a partial success, so that the server tells them of a success.
        assert seen["partial"] == "0 c.port=tcp://1@0 c.number=7@0"
        assert seen["gone"] == str(NOT_FOUND)
        assert seen["in-time"] == str(TIMEOUT)
        assert seen["after"] == "0 c.number=7@0"
        assert seen["end"] == str(NOT_FOUND)
        assert seen["finalize"] == "0"
    assert [first[name] for name in ("publish", "again", "unpublish", "all")] == ["0", str(DUPLICATE), "0", "0"]
    assert second["foreign"] == str(NO_PERMISSIONS)


def test_a_python_rank_finds_what_a_c_rank_has_published(launch, programs, libpmix):
    code = (
        "import pypmix\n"
        "with pypmix.Client(engine='python') as me:\n"
        "    found = me.lookup(['c.port', 'c.number'], timeout=10)\n"
        "    print('seen', {key: (item.value, item.by.rank) for key, item in found.items()})\n"
        "    for _ in range(7):\n"
        "        me.fence(timeout=20)\n"
    )
    job = succeeded(launch(Part(1, [programs("publish")], libpmix), Part(1, [sys.executable, "-c", code])))
    assert "seen {'c.port': ('tcp://1', 0), 'c.number': (7, 0)}" in job.stdout, job.report()
