"""Proves that neither clients that die nor handlers that block, nor many requests at once, stop a host."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("program", ["dying", "blocking", "many", "many_threads", "closing", "busy"])
def test_host(host, program):
    host(f"harm.{program}")


@pytest.mark.needs("refused clients")
def test_a_refused_client(host):
    host("harm.refusing")


@pytest.mark.cells("native-4.2.2/native-4.2.2", "native-5.0.11/native-5.0.11", "native-7.0.0/native-7.0.0")
@pytest.mark.timing
def test_a_library_that_hangs(host):
    host("harm.stuck")
