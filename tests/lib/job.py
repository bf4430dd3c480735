"""Jobs of real processes: started under a server, watched with a time limit, and leaving nothing behind."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lib import machine, processes

TIME_LIMIT = 30.0


class Rank(NamedTuple):
    """What one rank of a job left: its result, or the error that its scenario raised.

    Attributes:
        engines: The engines of the clients that it opened, such as `python 5.0.11`, one for each.
    """

    rank: int
    engines: tuple[str, ...]
    result: Any
    error: BaseException | None
    traceback: str


class JobFailed(AssertionError):
    """A job did not end as the test demands.

    Args:
        report: The job's report, the text of the error.
        errors: What its ranks raised; none of a job that hung, whose other ranks may have raised something.
    """

    def __init__(self, report: str, errors: Sequence[BaseException] = ()) -> None:
        super().__init__(report)
        self.errors = tuple(errors)


class Job:
    """A command that runs, with everything that it starts, in a folder of its own.

    Args:
        command: The command line.
        folder: An empty folder for the job's temporary files and results.
        environment: Additions to the environment.
        limit: Seconds until the job counts as hung: what it does then is reported, and it is killed.
        stdin: What the command reads; nothing if None.
        popen: Starts the command, as `subprocess.Popen` does.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        limit: float = TIME_LIMIT,
        stdin: str | None = None,
        popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
    ) -> None:
        self.command = list(command)
        self.limit = limit
        self._popen = popen
        self.mark = uuid.uuid4().hex
        self.temporary = folder / "t"
        self.results = folder / "results"
        self.marks = folder / "marks"
        self.stacks = folder / "stacks"
        for path in (self.temporary, self.results, self.marks, self.stacks):
            path.mkdir(parents=True)
        self._stdin = folder / "stdin"
        self._stdin.write_text(stdin or "")
        self._stdout = folder / "stdout"
        self._stderr = folder / "stderr"
        self.exit_code: int | None = None
        self.seconds = 0.0
        self.hung = ""
        paths = [str(machine.TESTS / "lib" / "site"), str(machine.TESTS)]
        paths += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        self.environment = {
            **machine.clean_environment(),
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONFAULTHANDLER": "1",
            "TMPDIR": str(self.temporary),
            "PYPMIX_TEST_RESULTS": str(self.results),
            "PYPMIX_TEST_MARKS": str(self.marks),
            processes.STACKS: str(self.stacks),
            processes.MARK: self.mark,
            **(environment or {}),
        }

    def start(self) -> Job:
        self._started = time.monotonic()
        with self._stdin.open() as stdin, self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self._process = self._popen(
                self.command,
                stdin=stdin,
                stdout=out,
                stderr=err,
                env=self.environment,
                cwd=self.temporary.parent,
                start_new_session=True,
            )
        return self

    def say(self, text: str) -> None:
        """Note what a host in this process says of the job; the output of its ranks is this process's."""
        self._stdout.write_text("")
        self._stderr.write_text(text)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send_signal(self, number: int) -> None:
        """Send a signal to the command itself, not to what it started."""
        self._process.send_signal(number)

    def wait(self) -> Job:
        """Wait for the command's end; past the limit, note what hangs and kill it all."""
        try:
            self.exit_code = self._process.wait(self.limit - (time.monotonic() - self._started))
        except subprocess.TimeoutExpired:
            self.hung = processes.report(self.mark, self.stacks)
            self.kill()
        self.seconds = time.monotonic() - self._started
        return self

    def wait_gone(self, seconds: float) -> list[processes.Process]:
        """Wait until every process of the job has ended, and return those that have not."""
        return processes.wait_gone(self.mark, seconds)

    def kill(self) -> None:
        processes.kill(self.mark)
        self._process.wait(5)

    def told(self) -> dict[str, str]:
        """What scenarios have told so far (`lib.sync.tell`): names and texts."""
        return {path.name: path.read_text() for path in self.marks.iterdir() if not path.name.startswith(".")}

    def tell(self, name: str) -> None:
        """Tell the scenarios something."""
        (self.marks / name).touch()

    def hear(self, name: str, seconds: float = 10.0) -> str:
        """Wait until a scenario has told `name`, and return the text."""
        deadline = time.monotonic() + seconds
        while name not in (told := self.told()):
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.hung = processes.report(self.mark, self.stacks)
                self.kill()
                raise JobFailed(f"nobody told {name!r}\n{self.report()}")
            time.sleep(0.005)
        return told[name]

    @property
    def stdout(self) -> str:
        return self._stdout.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    @property
    def output(self) -> str:
        """What the command printed."""
        return self.stdout + self.stderr

    @property
    def ranks(self) -> dict[int, Rank]:
        """What the ranks left that came to their end, by rank."""
        found = {}
        for path in sorted(self.results.glob("*.pickle")):
            left = Rank(*pickle.loads(path.read_bytes()))
            found[left.rank] = left
        return found

    def returned(self) -> list[Any]:
        """Return what the scenario returned on every rank, in the order of ranks.

        Raises:
            JobFailed: The job hung or failed, or a rank raised an error.
        """
        if self.hung or self.exit_code != 0:
            raise self.failure()
        return self.values()

    def values(self) -> list[Any]:
        """Return what the ranks returned, in their order, however the job ended after that.

        Raises:
            JobFailed: A rank raised an error.
        """
        ranks = self.ranks
        if any(rank.error for rank in ranks.values()):
            raise self.failure()
        return [ranks[number].result for number in sorted(ranks)]

    @property
    def failures(self) -> list[BaseException]:
        """What the ranks raised."""
        return [rank.error for rank in self.ranks.values() if rank.error is not None]

    def failure(self) -> JobFailed:
        """Return the error that reports this job, with those of its ranks."""
        return JobFailed(self.report(), () if self.hung else self.failures)

    def other_engines(self, client: str) -> list[str]:
        """Return which ranks opened a client on another engine than this one.

        Args:
            client: `python-client`, or `native-` with the release of its libpmix.
        """
        name, _, release = client.partition("-")
        wanted = name if name == "python" else f"{name} {release}"
        return [
            f"rank {rank.rank} opened a client on the engine {engine}"
            for rank in self.ranks.values()
            for engine in rank.engines
            if not (engine == wanted or engine.startswith(f"{wanted} "))
        ]

    def leftovers(self) -> list[str]:
        """Return, and remove, what the job left: processes that still live and files in its temporary folder."""
        living = self.wait_gone(2.0)
        left = [f"process {process.pid} {process.command}" for process in living]
        processes.kill(self.mark)
        # What a launcher that was killed has left is removed by its guard, which has no mark.
        deadline = time.monotonic() + 5
        while (files := self._files()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return sorted(left + files)

    def _files(self) -> list[str]:
        # A folder that vanishes meanwhile is none that is left.
        return [
            f"file {(Path(folder) / name).relative_to(self.temporary)}"
            for folder, _, names in os.walk(self.temporary)
            for name in names
        ]

    def report(self) -> str:
        """Return all that is known about the job's end, for a person."""
        end = f"hung, killed after {self.limit:g} s" if self.hung else f"exit code {self.exit_code}"
        lines = [f"job: {' '.join(self.command)}", f"end: {end}, {self.seconds:.2f} s"]
        for rank in self.ranks.values():
            name = f"rank {rank.rank} [{', '.join(dict.fromkeys(rank.engines)) or 'no client opened'}]"
            if rank.error is not None:
                lines.append(f"{name} raised:\n{rank.traceback}")
            else:
                lines.append(f"{name} returned {str(rank.result)[:300]}")
        for name, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            if text:
                lines.append(f"--- {name}\n{text[-6000:]}")
        if self.hung:
            lines.append(f"--- when it hung\n{self.hung}")
        return "\n".join(lines)


def scenario_command(name: str, form: str, arguments: Mapping[str, object]) -> list[str]:
    """Return the command line of a rank that runs a scenario.

    Args:
        name: Module and function, such as `modex.exchange`.
        form: `sync` or `asyncio`.
        arguments: The scenario's own arguments; plain literals.
    """
    return [sys.executable, str(machine.TESTS / "lib" / "rank.py"), name, form, repr(dict(arguments))]
