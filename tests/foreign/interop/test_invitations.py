"""Unmodified C programs on libpmix 7 invite Python processes to groups, and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from lib import pairings
from lib.c_programs import notes, succeeded
from lib.job import scenario_command
from lib.pairings import Part

pytestmark = [
    pytest.mark.servers("python-server"),
    pytest.mark.clients(pairings.ROOT_CLIENT),
    pytest.mark.forms("sync"),
]

COMPLETE, ABORT = -166, -165
C = "a C program"


def mixed(run, programs, *roles):
    """Run a job of ranks with a role each, given by who plays it, and return the ended job."""
    parts = [
        Part(1, [f"./{Path(programs('invitations')).name}", role])
        if who is C
        else Part(1, scenario_command("group_invitations.mixed", "sync", {"role": role}), who)
        for who, role in roles
    ]
    run.mix_engines()
    line = pairings.command_line(run.server, parts)
    environment = pairings.client_environment(run.client)
    return succeeded(run.begin(line, files=[programs("invitations")], environment=environment).wait())


def used(job, rank, leader, members):
    """Tell whether a C rank was told of a group, and has used it."""
    seen = notes(job, rank)
    assert seen["over"] == f"{COMPLETE} {leader} | {' '.join(map(str, members))}", job.report()
    assert (seen["fence"], seen["destruct"], seen["finalize"]) == ("0", "0", "0"), job.report()
    return True


@pytest.fixture(params=["python", "native"])
def ours(request):
    return {"PYPMIX_ENGINE": request.param}


def test_c_invites(run, programs, ours):
    job = mixed(run, programs, (C, "invite"), (ours, "join"), (C, "join"), (ours, "join"))
    assert notes(job, 0)["invite"] == "0"
    assert used(job, 0, 0, [0, 1, 2, 3])
    assert used(job, 2, 0, [0, 1, 2, 3])
    joined = [0, 1, 2, 3], [("acme.mixed", 0)]
    assert (job.ranks[1].result, job.ranks[3].result) == (joined, joined)


def test_python_invites(run, programs, ours):
    job = mixed(run, programs, (C, "join"), (ours, "invite"), (ours, "join"))
    assert notes(job, 0)["invited"] == "acme.mixed 1"
    assert used(job, 0, 1, [1, 0, 2])
    assert job.ranks[1].result == ([1, 0, 2], [(0, "Accepted"), (2, "Accepted")])
    assert job.ranks[2].result == ([1, 0, 2], [("acme.mixed", 1)])


def test_c_declines(run, programs, ours):
    job = mixed(run, programs, (ours, "invite"), (C, "decline"), (C, "join"))
    assert used(job, 2, 0, [0, 2])
    assert "over" not in notes(job, 1)
    assert job.ranks[0].result == ([0, 2], [(1, "Declined"), (2, "Accepted")])


def test_c_goes_on_without_who_declines(run, programs, ours):
    job = mixed(run, programs, (C, "invite-some"), (C, "decline"), (ours, "join"))
    assert notes(job, 0)["invite"] == "0"
    assert used(job, 0, 0, [0, 2])
    assert job.ranks[2].result == ([0, 2], [("acme.mixed", 0)])


def test_c_gives_it_up_for_all(run, programs, ours):
    job = mixed(run, programs, (C, "invite"), (C, "decline"), (ours, "join"))
    assert notes(job, 0)["invite"] == str(ABORT)
    assert job.ranks[2].result == (None, [("acme.mixed", 0)])
