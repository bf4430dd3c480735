"""What a report about a job that hangs has of its processes, and how the job is killed: `lib.job.Job.wait`."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from lib import processes
from lib.job import Job

LOCAL = "sh -c {command}"
RUN = (sys.executable, "-m", "pypmix", "run")
RANK = (sys.executable, "-c", "import time; from lib.sync import tell; tell('here', ''); time.sleep(600)")
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")


@pytest.mark.parametrize("before", [(), NAMESPACE], ids=["here", "in a PID namespace"])
def test_launchers_and_daemons_have_stacks(tmp_path, before):
    if before and os.geteuid():
        pytest.skip("needs root, to make a PID namespace")
    job = Job([*before, *RUN, "--host", "n1,n2", "--launch-agent", LOCAL, "-n", "1", *RANK], tmp_path).start()
    job.hear("here", 60)
    # Nobody tells this.
    job.limit = 0.0
    job.wait()
    stacks = job.hung.partition("--- stacks of ")[2].split("--- stacks of ")
    found = {
        name: [text for text in stacks if name in text.partition("\n")[0]]
        for name in ("pypmix run", "pypmix node", "time.sleep(600)")
    }
    assert [len(texts) > 0 for texts in found.values()] == [True, True, True], job.hung
    for texts in found.values():
        for text in texts:
            assert "most recent call first" in text, job.hung


PARENT = """
import os, sys, time
from lib.sync import tell
mine, theirs = os.pipe()
if os.fork():
    time.sleep(600)
os.close(theirs)
tell("waits", "")
os.read(mine, 1)
tell("orphaned", "")
"""


def test_no_process_of_a_killed_job_sees_that_another_has_ended(tmp_path, monkeypatch):
    job = Job([sys.executable, "-c", PARENT], tmp_path).start()
    job.hear("waits", 60)
    kill = os.kill

    def kill_and_wait(pid: int, signum: int) -> None:
        """Give a process that still runs the time to see that this one was killed."""
        kill(pid, signum)
        if signum == signal.SIGKILL and pid == job.pid:
            end = time.monotonic() + 1.0
            while time.monotonic() < end and "orphaned" not in job.told():
                time.sleep(0.01)

    monkeypatch.setattr(processes.os, "kill", kill_and_wait)
    job.kill()
    assert "orphaned" not in job.told()
    assert not job.wait_gone(5)
