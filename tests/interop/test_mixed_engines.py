"""Ranks of one job are on different engines."""

from __future__ import annotations

import pytest

from lib import pairings
from lib.job import scenario_command
from lib.pairings import Part


@pytest.mark.servers("python-server", "native-server-4.2.2", "native-server-5.0.11")
def test_a_construct_by_the_wildcard_of_the_job(launch, request):
    """All engines send the server the same procs: one of 4.2 takes a wildcard and its ranks for two groups."""
    server = request.node.callspec.id
    release = next((each for each in ("4.2.2", "5.0.11") if each in server), "4.2.2")
    pairings.require_client(f"native-{release}")
    command = scenario_command("groups.by_wildcard", "sync", {})
    engines = [pairings.client_environment(name) for name in ("python-client", f"native-{release}")]
    found = launch(Part(1, command, engines[0]), Part(2, command, engines[1])).returned()
    assert [members for members, _ in found] == [[0, 1, 2]] * 3
    assert len({number for _, number in found}) == 1 and None not in found[0]
