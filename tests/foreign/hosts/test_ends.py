"""Proves that whoever spawns a job hears of its end and gets its output, whatever starts its processes."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("program", ["waited_for", "output"])
def test_spawned_jobs(host, program):
    host(f"ends.{program}")


@pytest.mark.cells("python/python", "native-5.0.11/native-5.0.11")
@pytest.mark.parametrize("program", ["not_launched", "own_processes"])
def test_how_they_begin(host, program):
    host(f"ends.{program}")


def test_on_two_nodes(host):
    host("ends.on_both", mode="pair")
