"""Unmodified C programs and Python clients raise events for each other, on the Python server and on native ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lib.c_programs import notes, succeeded
from lib.job import Job
from lib.pairings import Part

RANK = str(Path(__file__).parent / "event_rank.py")
END_RANK = str(Path(__file__).parent / "ends_rank.py")

HEARD_BY_PYTHON = [
    ("default", -4242, 1, 3, ["pmix.evproc", "pmix.evtext"]),
    ("default", -4242, 1, 6, ["pmix.evrange"]),
    ("default", -4246, 1, 4, []),
    ("default", -4298, 1, 2, []),
    ("some", -4250, 0, 3, ["c.flag"]),
    ("default", -4250, 0, 3, ["c.flag"]),
    ("some", -4251, 0, 6, ["c.flag", "pmix.evrange"]),
    ("default", -4251, 0, 6, ["c.flag", "pmix.evrange"]),
    ("some", -4252, 0, 6, ["c.flag", "pmix.evrange"]),
    ("default", -4252, 0, 6, ["c.flag", "pmix.evrange"]),
    ("some", -4254, 0, 6, ["c.flag", "pmix.evrange"]),
    ("default", -4254, 0, 6, ["c.flag", "pmix.evrange"]),
    ("last", -4259, 0, 2, ["c.flag"]),
    ("default", -4259, 0, 2, ["c.flag"]),
    ("default", -4242, 1, 4, []),
    ("default", -4299, 1, 2, []),
]
HEARD_BY_C = [
    "single -4242 1 pmix.evproc pmix.evtext |",
    "multi -4242 1 pmix.evproc pmix.evtext | c.single c.result",
    "default -4242 1 pmix.evproc pmix.evtext | c.single c.result c.multi",
    "multi -4243 1 pmix.evrange |",
    "default -4243 1 pmix.evrange | c.multi",
    "default -4246 1 |",
    "multi -4298 1 |",
    "default -4298 1 | c.end",
    "default -4250 0 c.flag |",
    "default -4253 0 c.flag pmix.evrange |",
    "default -4254 0 c.flag pmix.evrange |",
    "default -4259 0 c.flag |",
    "multi -4242 1 |",
    "default -4242 1 | c.multi",
    "multi -4299 1 |",
    "default -4299 1 | c.end",
]
"""What both hear in order; of what they raise themselves no more than the custom ranges say."""

ITS_OWN_EARLY = "default -4240 0 c.flag |"


def heard(job: Job) -> list[str]:
    """Return what the C rank has heard, in order."""
    seen = notes(job, 0)
    return [seen[f"heard-{number}"] for number in range(sum(key.startswith("heard-") for key in seen))]


def run(launch, programs, libpmix) -> Job:
    python = Part(1, [sys.executable, RANK], {"PYPMIX_ENGINE": "python"})
    job = succeeded(launch(Part(1, [programs("events")], libpmix), python))
    assert {text for key, text in notes(job, 0).items() if key.startswith("raise")} == {"0"}
    return job


@pytest.mark.servers("python-server")
def test_events_between_c_and_python_ranks(launch, programs, libpmix):
    job = run(launch, programs, libpmix)
    assert job.ranks[1].result == [("early", -4240, 0, 4, ["c.flag"]), *HEARD_BY_PYTHON]
    # What a proc raised before it had a handler comes to it when it has one.
    assert heard(job) == [ITS_OWN_EARLY, *HEARD_BY_C]


@pytest.mark.servers("prterun*", "native-server-4.2.2")
def test_events_between_c_and_python_ranks_on_native_servers(launch, programs, libpmix):
    """Such a server leaves out the range of an event that comes late, and forgets the default handlers of C ranks."""
    job = run(launch, programs, libpmix)
    assert job.ranks[1].result == [("early", -4240, 0, None, ["c.flag"]), *HEARD_BY_PYTHON]
    without = [entry for entry in HEARD_BY_C if not entry.startswith("default -4246")]
    found = heard(job)
    assert [entry for entry in found if entry != ITS_OWN_EARLY and not entry.startswith("default -4246")] == without


@pytest.mark.servers("python-server", "python-server-2-nodes")
@pytest.mark.parametrize("engine", ["python", "native"])
def test_the_end_of_a_rank_that_ends_well_is_told_to_clients_of_pypmix_alone(launch, programs, libpmix, engine):
    """A library reacts to that event itself, and may do so while it finalizes; no other server raises it unasked.

    With two nodes, the Python rank is on the second one, and the rank that ends on the first.
    """
    python = Part(1, [sys.executable, END_RANK], {"PYPMIX_ENGINE": engine})
    job = succeeded(launch(Part(2, [programs("ends")], libpmix), python))
    assert notes(job, 0)["over"] == "1"
    assert notes(job, 0)["heard"] == "0"
