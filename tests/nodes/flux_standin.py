"""Stands in for `flux` where Flux is not installed: the few commands that pypmix gives it, on nodes that ssh reaches.

What it takes, prints and sets is what Flux 0.88 took, printed and set, for which `PYPMIX_TEST_FLUX` has the tests run
with a real one. `STANDIN_NODES` names the nodes of the instance, and `STANDIN_FOLDER` a folder that all of them see.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

NODES = os.environ["STANDIN_NODES"].split()
FOLDER = pathlib.Path(os.environ["STANDIN_FOLDER"])
PASSED = {"FLUX_URI", "STANDIN_NODES", "STANDIN_FOLDER", "PATH", "PYTHONPATH", "SLURMD_NODENAME", "PMIX_HOSTNAME"}
TASK = ("FLUX_JOB_ID", "FLUX_JOB_SIZE", "FLUX_JOB_NNODES", "FLUX_TASK_RANK", "FLUX_KVS_NAMESPACE")

SETTINGS = ["--exclusive", "--unbuffered", "--job-name=pypmix"]
SETTINGS += ["--setopt=exit-timeout=none", "--setopt=cpu-affinity=off", "--setopt=pmi=off"]


def fail(text: str) -> int:
    print(text, file=sys.stderr)
    return 1


def options(words: Sequence[str]) -> tuple[int, int, list[str], set[str], list[str]]:
    """Return the numbers of nodes and tasks, the nodes and the variables that are named, and the program."""
    nodes, tasks, each, hosts, removed, rest = 0, 0, 0, list[str](), set[str](), list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "-n":
            tasks = int(rest.pop(0))
        elif word == "-N":
            nodes = int(rest.pop(0))
        elif word.startswith("-N"):
            nodes = int(word[2:])
        elif word.startswith("--nodes="):
            nodes = int(word.partition("=")[2])
        elif word.startswith("--tasks-per-node="):
            each = int(word.partition("=")[2])
        elif word.startswith("--requires=host:"):
            hosts = word.partition(":")[2].split(",")
        elif word.startswith("--env=-"):
            removed.add(word.removeprefix("--env=-"))
        elif word not in SETTINGS:
            raise SystemExit(f"flux-run: unrecognized arguments: {word}")
    return nodes, tasks or nodes * each, hosts, removed, rest


def feed(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Pass standard input on to all."""
    pipes = [each.stdin for each in started if each.stdin is not None]
    while data := os.read(0, 1 << 16):
        for pipe in pipes:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(data)
                pipe.flush()
    for pipe in pipes:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


def run(words: Sequence[str]) -> int:
    """Run a program on nodes, all with this standard input; return when all have ended."""
    nodes, tasks, hosts, removed, program = options(words)
    unknown = [host for host in hosts if host not in NODES]
    if unknown:
        return fail(f"flux-run: ERROR: host constraint contains invalid hosts: host '{unknown[0]}' not found")
    chosen = (hosts or NODES)[:nodes]
    assert len(chosen) == nodes and tasks % nodes == 0
    job = f"f{os.getpid()}"
    started = []
    for rank in range(tasks):
        task = {"FLUX_JOB_ID": job, "FLUX_JOB_SIZE": tasks, "FLUX_JOB_NNODES": nodes, "FLUX_TASK_RANK": rank}
        env = {name: os.environ[name] for name in PASSED - removed if name in os.environ} | task
        env["FLUX_KVS_NAMESPACE"] = f"job-{job}"
        line = f"cd {shlex.quote(os.getcwd())}; exec env {shlex.join([f'{key}={value}' for key, value in env.items()])}"
        command = ["ssh", "-o", "BatchMode=yes", chosen[rank * nodes // tasks], f"{line} {shlex.join(program)}"]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE))
    signal.signal(signal.SIGINT, lambda *_: [each.kill() for each in started])
    threading.Thread(target=feed, args=(started,), daemon=True).start()
    codes = [each.wait() for each in started]
    return fail(f"flux-job: task(s) exited with exit code {max(codes)}") if any(codes) else 0


def kvs(what: str, *words: str) -> int:
    """The key-value store of a job."""
    folder = FOLDER / os.environ["FLUX_KVS_NAMESPACE"]
    folder.mkdir(mode=0o700, exist_ok=True)
    *given, key = words
    path = folder / key.partition("=")[0]
    if what == "put":
        assert given == ["--raw"] and key.endswith("=-")
        made = path.with_suffix(".new")
        made.write_bytes(sys.stdin.buffer.read())
        made.rename(path)
    elif what == "get":
        assert given == ["--raw"]
        if not path.exists():
            return fail(f"flux-kvs: {key}: No such file or directory")
        sys.stdout.write(path.read_text())
    else:
        assert (what, given) == ("unlink", ["--force"])
        path.unlink(missing_ok=True)
    return 0


def main(what: str, *words: str) -> int:
    """Carry out a command."""
    if (what, *words) == ("getattr", "hostlist"):
        print(",".join(NODES))
        return 0
    if what == "resource":
        assert words == ("list", "--no-header", "--states=free", "--format={nodelist}")
        print("" if (FOLDER / "busy").exists() else f"n[1-{len(NODES)}]")
        return 0
    if what == "alloc":
        assert words[0] == "-N"
        env = {name: text for name, text in os.environ.items() if name not in TASK}
        env["STANDIN_NODES"] = " ".join(NODES[: int(words[1])])
        return subprocess.run(words[2:], env=env).returncode
    return {"run": lambda *rest: run(rest), "kvs": kvs}[what](*words)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
