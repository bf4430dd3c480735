"""A launcher whose nodes are daemons on this machine: each has an address of loopback and a TMPDIR of its own.

Usage: launcher.py JSON, with `folder`, `nodes` (name to slots), `apps` (lists of [np, word...]), and of `terms`,
`timeout`, `grace`, `warm`, `faults`, `python`, `env`, `patience`, `keep_alive`, `mesh` and `preload` what a test needs.
With `elastic` it obtains any node; with `words` it says what is written to the file of that name: lines of JSON such as
`["join", "n3"]`. The last line on standard error is `OUTCOME code reason`.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from pypmix.engine.times import KEEP_ALIVE_SECONDS
from pypmix.host.exchange.limits import MAX_MESH
from pypmix.host.job import Application
from pypmix.host.local import LocalHost
from pypmix.host.placing import Node, NodeRequest
from pypmix.host.session import NodeSession
from pypmix.host.terms import Terms
from pypmix.host.trying import Fault
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.host.placing import Obtained


class Started:
    """A daemon as a process of this machine."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, bufsize=0, start_new_session=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self.stdin = os.dup(self._process.stdin.fileno())
        self.stdout = os.dup(self._process.stdout.fileno())
        self._process.stdin.close()
        self._process.stdout.close()
        self.pid = self._process.pid

    def stop(self) -> None:
        self._process.kill()

    def ended(self) -> int | None:
        return self._process.poll()

    def trouble(self) -> str:
        return ""


def speak(session: NodeSession, path: str, make: Callable[[str, int], Node]) -> None:
    """Say the words of a file, as they are written."""
    said = 0
    while True:
        time.sleep(0.02)
        if not os.path.exists(path):
            continue
        with open(path) as file:
            words = [json.loads(line) for line in file if line.endswith("\n")]
        for what, name in words[said:]:
            if what == "join":
                session.join(make(name, 1))
            else:
                session.leave(name, "as it was told")
        said = len(words)


def main() -> int:
    given = json.loads(sys.argv[1])
    slots: dict[str, int] = given["nodes"]
    numbers = itertools.count(2)

    def make(name: str, count: int) -> Node:
        return Node(name, count, addresses=(f"127.0.0.{next(numbers)}",))

    def obtain(wanted: NodeRequest, done: Obtained) -> None:
        done([make(name, count or 1) for name, count in wanted.hosts], "there are no more")

    nodes = [make(name, count) for name, count in slots.items()]

    def start(node: Node, _line: bytes) -> Started:
        tmpdir = os.path.join(given["folder"], node.name)
        os.makedirs(tmpdir, exist_ok=True)
        env = {**os.environ, "TMPDIR": tmpdir, "TEST_NODE": node.name, "PYPMIX_TEST_ADDRESS": node.addresses[0]}
        command = given.get("python", {}).get(node.name) or [sys.executable, "-m", "pypmix", "node"]
        started = Started(command, env)
        with open(os.path.join(given["folder"], f"{node.name}.pid"), "w") as file:
            file.write(str(started.pid))
        return started

    session = NodeSession(
        nodes,
        start,
        interface="127.0.0.0/8",
        env=given.get("env"),
        patience=given.get("patience", 60.0),
        keep_alive=given.get("keep_alive", KEEP_ALIVE_SECONDS),
        mesh=given.get("mesh", MAX_MESH),
        obtain=obtain if given.get("elastic") else None,
    )
    if given.get("words"):
        path = os.path.join(given["folder"], "words")
        threading.Thread(target=speak, args=(session, path, make), daemon=True).start()
    preload = tuple([(word, path) for word, path in given.get("preload", ())])
    try:
        host = LocalHost(
            [Application(tuple(words), np, preload=preload) for np, *words in given["apps"]],
            terms=Terms(**given.get("terms", {})),
            remote=session,
            own_process=True,
            timeout=given.get("timeout", 60.0),
            grace=given.get("grace", 2.0),
            warm=given.get("warm", False),
            faults=[Fault(*words) for words in given.get("faults", ())],
        )
        outcome = host.run()
    except (PMIxError, OSError) as error:
        print(f"REFUSED {error}", file=sys.stderr, flush=True)
        return 1
    print(f"OUTCOME {outcome.code} {outcome.reason}", file=sys.stderr, flush=True)
    return outcome.code


if __name__ == "__main__":
    os._exit(main())
