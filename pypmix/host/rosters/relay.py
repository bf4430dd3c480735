"""`python -m pypmix relay`: starts the daemons of a block of nodes for a launcher elsewhere; see `tree`."""

from __future__ import annotations

import json
import os
import selectors
import sys
import time

from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.process import Errors
from pypmix.host.rosters.ssh import command, explain
from pypmix.host.rosters.tree import CHUNK, MAX_LINE, RADIX, Leaf, Tree

LEAVING = 5.0
"""Seconds that daemons have to leave when asked to."""


class Relay:
    """The relay of a block.

    Args:
        orders: The first line of the launcher.

    Raises:
        ValueError: The line does not contain valid orders.
    """

    def __init__(self, orders: bytes) -> None:
        try:
            told = json.loads(orders)
            self._leaves = [Leaf(str(name), str(host), str(line).encode()) for name, host, line in told["nodes"]]
            agent, radix = str(told["agent"]), int(told["radix"])
        except (ValueError, KeyError, TypeError) as error:
            # Leave out the value itself, which contains the secret.
            raise ValueError(
                f"the first line on standard input is not that of a launcher ({type(error).__name__})"
            ) from None
        if not self._leaves or not 1 < radix <= RADIX:
            raise ValueError("the launcher names no nodes")
        self._selector = selectors.DefaultSelector()
        self._daemon = [sys.executable, "-m", "pypmix", "node"]
        self._errors = Errors("")
        self._tree = Tree(
            self._selector,
            agent,
            lambda host, words: command(agent, host, words),
            self._daemon,
            radix,
            lambda node, code, errors: explain(node, code, errors, sys.executable, [agent]),
            self._errors,
            self._report,
        )
        self._deadline: float | None = None
        self._heard: set[str] = set()

    def run(self) -> None:
        """Start the daemons, and pass on their output and ends until all have ended."""
        own = self._leaves[0]
        self._selector.register(0, selectors.EVENT_READ, self._input)
        self._tree.start([own], own.relayed, self._daemon)
        self._tree.spread(self._leaves[1:], False)
        while self._tree.live:
            for key, _ in self._selector.select(None if self._deadline is None else 0.1):
                key.data()
            if self._deadline is not None and time.monotonic() > self._deadline:
                break
        for stem in self._tree.stems:
            stem.started.close()
        self._errors.close()

    def _input(self) -> None:
        told = bool(os.read(0, CHUNK))
        self._selector.unregister(0)
        for stem in self._tree.stems:
            stem.leave(told)
            if not told and self._heard.isdisjoint(leaf.name for leaf in stem.leaves):
                # No daemon of this command has answered yet, and the launcher, which is lost, does not wait for it.
                stem.started.stop()
        if told:
            self._deadline = time.monotonic() + LEAVING

    def _report(self, kind: str, name: str, value: str | int) -> None:
        self._heard.add(name)
        try:
            # Begin with a newline: output of a shell's start-up files may not end with one.
            os.write(1, f"\n{json.dumps([kind, name, value])}\n".encode())
        except OSError:
            # The launcher has exited, which also ends standard input.
            return


def main() -> int:
    """Read the launcher's line on standard input, and relay."""
    line = b""
    while not line.endswith(b"\n") and len(line) <= MAX_LINE:
        # The launcher sends nothing after this line before the daemons are started.
        piece = os.read(0, CHUNK)
        if not piece:
            break
        line += piece
    try:
        relay = Relay(line)
    except (ValueError, RosterError) as error:
        print(error, file=sys.stderr)
        return 1
    relay.run()
    return 0
