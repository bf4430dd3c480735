"""Start a job for each parameter, collect what the jobs print, and try those again that fail."""

import json
import sys

from pypmix import Client, IOFChannel, SpawnedJob

WORKER = """
import json, sys
import pypmix
with pypmix.Client() as me:
    value, attempt = map(int, sys.argv[1:])
    if value == 3 and attempt == 1:
        sys.exit(9)  # a job that fails the first time
    print(json.dumps({"value": value, "square": value**2}))
"""


def start(me: Client, value: int, attempt: int) -> SpawnedJob:
    return me.spawn([sys.executable, "-c", WORKER, str(value), str(attempt)])


def read_result(me: Client, job: SpawnedJob) -> dict[str, int] | None:
    """Return what the job prints; None if it fails."""
    with me.output(job, IOFChannel.STDOUT) as output:
        text = "".join(piece.text for piece in output)
    return json.loads(text) if job.wait(timeout=60) == 0 else None


with Client() as me:
    todo = [(value, 1) for value in range(1, 5)]
    while todo:
        value, attempt = todo.pop(0)
        result = read_result(me, start(me, value, attempt))
        if result is not None:
            print(f"{value}: {result['square']}")
        elif attempt < 3:
            print(f"{value}: failed, next attempt")
            todo.append((value, attempt + 1))
