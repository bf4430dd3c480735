"""A node whose agent hangs is given up after the node timeout: the launcher does not wait for it a second time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pypmix.host import session
from pypmix.host.job import Application
from pypmix.host.local import LocalHost
from pypmix.host.placing import Node
from pypmix.host.session import NodeSession
from pypmix.standard.errors import PMIxError


class Hanging:
    """A command that never answers, and ends when it is stopped."""

    def __init__(self) -> None:
        self.reader, self.stdin = os.pipe()
        self.stdout, self.writer = os.pipe()
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    def ended(self) -> int | None:
        return 9 if self.stopped else None

    def trouble(self) -> str:
        return "n1: it does not answer"


def test_an_agent_that_hangs_is_stopped_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Who waits for it would not come to an end.
    monkeypatch.setattr(session, "LEAVING", 1e6)
    agent = Hanging()
    nodes = NodeSession([Node("n1")], lambda _node, _line: agent, patience=0.1)
    host = LocalHost([Application(("true",))], env={"TMPDIR": str(tmp_path), "PATH": os.defpath}, remote=nodes)
    with pytest.raises(PMIxError, match="did not join within 0.1 s") as caught:
        host.run()
    assert agent.stopped and "does not answer" in str(caught.value)
    os.close(agent.reader)
    os.close(agent.writer)
    assert not list(tmp_path.iterdir())
