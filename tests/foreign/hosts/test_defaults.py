"""Proves that a host without a method answers as `pypmix run` does, and that a method of its own comes first."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("program", ["spawned", "controlled", "asked", "aborted", "overridden"])
@pytest.mark.cells("python/python", "python/native-5.0.11", "native-5.0.11/native-5.0.11")
def test_answers(host, program):
    job = host(f"defaults.{program}")
    assert program != "asked" or "written down" in job.stderr, job.report()
