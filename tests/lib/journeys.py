"""The ways of operations: which functions of pypmix run for one of them, on the caller's side and on the server's.

Real processes are traced by `sys.setprofile`. Each operation is carried out twice, and the second time counts: the
first one pays for what is imported or opened once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

PAUSE = 0.1
"""Seconds without any operation before and after each, so that the server's part of it can be told by its time."""

TIME_LIMIT = 60.0

TRACER = """
import atexit, json, os, sys, threading, time

FOLDER, ROOT = os.environ["PYPMIX_JOURNEYS"], os.environ["PYPMIX_JOURNEYS_ROOT"]
calls = []

def trace(frame, event, arg):
    if event == "call":
        code = frame.f_code
        if code.co_filename.startswith(ROOT):
            calls.append((time.monotonic_ns(), code))

def write():
    sys.setprofile(None)
    role = "client" if "PMIX_RANK" in os.environ else "server"
    with open(os.path.join(FOLDER, f"{role}-{os.environ.get('PMIX_RANK', '')}-{os.getpid()}.json"), "w") as file:
        found = [(at, code.co_filename[len(ROOT):], code.co_qualname, code.co_firstlineno) for at, code in list(calls)]
        json.dump(found, file)

leave = os._exit

def _exit(code):
    write()
    leave(code)

os._exit = _exit
atexit.register(write)
threading.setprofile(trace)
sys.setprofile(trace)
"""

CLIENT = """
import json, os, time
from pypmix import Client, PartialSuccess

marks = {}

def step(name, act):
    time.sleep(PAUSE)
    begin = time.monotonic_ns()
    found = act()
    marks[name] = begin, time.monotonic_ns()
    time.sleep(PAUSE)
    return found

def fence_with_lost(procs):
    try:
        me.fence(procs, timeout=30)
    except PartialSuccess:
        return
    raise SystemExit("no node was lost")

def lose(turn):
    if me.rank == NODES - 1 - turn:
        time.sleep(4 * PAUSE)
        os.kill(os.getppid(), 9)
        time.sleep(30)
    # The procs of the turns before are lost already.
    step("loss", lambda: fence_with_lost(list(me.job)[:NODES - turn]))

with Client() as me:
    for turn in range(2):
        if "loss" in WANTED:
            # Of the second turn, and among three nodes.
            lose(turn)
            continue
        me.fence()
        step("put", lambda: me.put(f"key{turn}", turn))
        step("fence", lambda: me.fence())
        if "upcall" in WANTED:
            step("upcall", lambda: me.publish({f"published{turn}": turn}))
        for name in {"construct", "construct of nodes"}.intersection(WANTED):
            group = me.group(f"acme.{turn}", list(me.job))
            step(name, group.construct)
            group.destruct()
    if me.rank == 0:
        with open(os.path.join(os.environ["PYPMIX_JOURNEYS"], "marks"), "w") as file:
            json.dump(marks, file)
"""

HOST = """
import asyncio, sys
from pypmix.host import Host

class Ours(Host):
    async def publish(self, req):
        return None

async def main():
    async with Ours(engine="python") as rm:
        job = rm.job("journey", np=1)
        async with rm.start(job, [sys.executable, sys.argv[1]], forward_output=True) as procs:
            for outcome in [await procs.wait()]:
                print(outcome)

asyncio.run(main())
"""


OF_HOST, OF_NODES, OF_LOSS = "host", "nodes", "loss"
SCENES = {
    "": (2, ("put", "fence", "construct")),
    OF_HOST: (1, ("upcall",)),
    OF_NODES: (3, ("construct of nodes",)),
    OF_LOSS: (5, ("loss",)),
}
"""The ranks and the journeys of each scene: `pypmix run` on this machine, a user's host, three nodes, and five nodes of
which two are lost."""


class Step(NamedTuple):
    """A function that ran: its file below `pypmix/` and its qualified name."""

    path: str
    function: str


class Journey(NamedTuple):
    """The functions that ran for an operation, in the order of their first call."""

    client: tuple[Step, ...]
    server: tuple[Step, ...]

    @property
    def files(self) -> set[str]:
        """The files of both sides."""
        return {step.path for step in (*self.client, *self.server)}


def trace(root: Path, engine: str = "python", scene: str = "") -> dict[str, Journey]:
    """Run a job of real processes and return the journeys of its operations.

    Args:
        root: The folder that holds the `pypmix` to trace.
        engine: The engine of the clients.
        scene: One of `SCENES`.
    """
    ranks, wanted = SCENES[scene]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(TRACER)
        values = {"PAUSE": str(PAUSE), "WANTED": repr(wanted), "NODES": str(ranks)}
        (folder / "client.py").write_text(re.sub("|".join(values), lambda found: values[found[0]], CLIENT))
        (folder / "host.py").write_text(HOST)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PMIX_", "PYPMIX_"))}
        environment |= {
            "PYPMIX_JOURNEYS": name,
            "PYPMIX_JOURNEYS_ROOT": f"{root}/pypmix/",
            "PYPMIX_ENGINE": engine,
            "PYTHONPATH": f"{name}:{root}",
        }
        client = str(folder / "client.py")
        command = [sys.executable, str(folder / "host.py"), client]
        if scene != OF_HOST:
            hosts = ",".join([f"n{number}" for number in range(1, ranks + 1)])
            nodes = ("--host", hosts, "--launch-agent", "sh -c {command}", "--map-by", "node", "--keep-going")
            words = ("-n", str(ranks), *(nodes if scene else ()), sys.executable, client)
            command = [sys.executable, "-m", "pypmix", "run", *words]
        _run(command, environment, name, 128 + signal.SIGKILL if scene == OF_LOSS else 0)
        return _read(folder, wanted)


def _run(command: list[str], environment: dict[str, str], folder: str, code: int) -> None:
    process = subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        out, _ = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
    if process.returncode != code or not os.path.exists(os.path.join(folder, "marks")):
        raise RuntimeError(f"the traced job failed ({process.returncode}): {out.decode(errors='replace')}")


def _read(folder: Path, wanted: tuple[str, ...]) -> dict[str, Journey]:
    marks: dict[str, tuple[int, int]] = json.loads((folder / "marks").read_text())
    (client,) = folder.glob("client-0-*.json")
    servers = list(folder.glob("server-*.json"))
    around = int(PAUSE * 1e9) // 2
    found = {}
    for name in wanted:
        begin, end = marks[name]
        calls: list[Any] = []
        for path in servers:
            calls += json.loads(path.read_text())
        found[name] = Journey(
            _steps(json.loads(client.read_text()), begin, end), _steps(calls, begin - around, end + around)
        )
    return found


def _steps(calls: list[Any], begin: int, end: int) -> tuple[Step, ...]:
    """Return the functions that were called in a time; comprehensions are parts of theirs."""
    steps: dict[tuple[str, str, int], Step] = {}
    for at, path, function, line in sorted(calls, key=lambda call: call[0]):
        part = function.rpartition(".")[2]
        if begin <= at <= end and (part == "<lambda>" or not part.startswith("<")):
            steps.setdefault((path, function, line), Step(path, function))
    return tuple(steps.values())


# The page of the docs that tells them

PAGE = Path(__file__).parents[2] / "docs" / "how-it-works" / "architecture.md"
ALSO = "Also on the way:"
SECTIONS = {
    "A put": "put",
    "A fence": "fence",
    "A group construct": "construct",
    "A group construct over three nodes": "construct of nodes",
    "An upcall": "upcall",
    "The loss of a node": "loss",
}
_FILE = re.compile(r"`([\w/]+\.py)`")
_FUNCTION = re.compile(r"`([\w/]+\.py)`: `(\w[\w.]*)`")


class Section(NamedTuple):
    """The part of the page about a journey: the files that its steps name, the files beside them, and functions."""

    text: str
    steps: set[str]
    also: set[str]
    is_whole: bool
    """Whether it names all files: it has a line of those beside the steps."""
    functions: tuple[tuple[Step, ...], ...]
    """The functions that each step names, after their file and a colon."""


def trace_page(root: Path) -> dict[str, Journey]:
    """Return the journeys that the page tells of."""
    found: dict[str, Journey] = {}
    for scene in SCENES:
        found |= trace(root, scene=scene)
    return found


def sections(page: str) -> dict[str, Section]:
    """Return the page's sections by their journeys."""
    found = {}
    for text in page.split("\n### ")[1:]:
        title = text.partition("\n")[0]
        if title in SECTIONS:
            steps, _, also = text.partition(ALSO)
            numbered = [" ".join(each.split()) for each in re.findall(r"^\d+\. .*(?:\n   .*)*", steps, re.MULTILINE)]
            functions = [tuple(Step(*each) for each in _FUNCTION.findall(step)) for step in numbered]
            named = {path for step in numbered for path in _FILE.findall(step)}
            found[SECTIONS[title]] = Section(text, named, set(_FILE.findall(also)), ALSO in text, tuple(functions))
    return found


def rewritten(page: str, traced: dict[str, Journey]) -> str:
    """Return the page with the files that its steps do not name in the last line of each section."""
    for name, section in sections(page).items():
        if not section.is_whole:
            continue
        rest = sorted(traced[name].files - section.steps)
        line = textwrap.fill(f"{ALSO} {', '.join([f'`{path}`' for path in rest])}.", 120, break_on_hyphens=False)
        body = section.text.partition(ALSO)[0].rstrip()
        after = section.text.partition(ALSO)[2].partition("\n\n")[1:]
        page = page.replace(
            section.text, f"{body}\n\n{line if rest else ALSO + ' nothing.'}" + ("".join(after) or "\n")
        )
    return page
