"""What C programs print, read."""

from __future__ import annotations

from lib.job import Job


def notes(job: Job, rank: int) -> dict[str, str]:
    """Return what a C rank noted, by key."""
    path = job.results / f"{rank}.txt"
    assert path.exists(), job.report()
    return dict(line.split(" ", 1) for line in path.read_text(errors="surrogateescape").splitlines())


def outcome(note: str) -> tuple[float, str]:
    """Split the note of a get into its seconds and its outcome."""
    seconds, _, text = note.partition(" ")
    return float(seconds), text


def succeeded(job: Job) -> Job:
    assert job.exit_code == 0, job.report()
    return job
