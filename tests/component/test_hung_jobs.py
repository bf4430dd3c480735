"""What a report about a job that hangs has of its processes: `lib.job.Job.wait`."""

from __future__ import annotations

import os
import sys

import pytest

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
