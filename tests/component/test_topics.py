"""Proves that a server imports a topic when it is first needed, and then has all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lib.server_world import Client, World
from pypmix.engine.python.node import Topic
from pypmix.engine.python.server import TOPIC_OF

NAMES = ("asking", "connecting", "events", "forwarding", "groups", "psets", "spawning", "tools")
"""The modules that have a topic, the class of their name."""

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]

STARTED = """
import sys; sys.path.insert(0, {root!r})
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.serving import ServerOptions
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Notification
from pypmix.standard.types import Proc
session = ServerSession(lambda upcall: upcall.reply(), ServerOptions(tmpdir={tmpdir!r}, tool_support=True))
session.register_nspace(JobInfo("job", procs=((0, ()),)))
session.register_client(Proc("job", 0), 0, 0)
session.pending()
session.deregister_nspace("job")
if {more}:
    session.notify(Notification(-1, session.proc))
session.close()
prefix = "pypmix.engine.python.serverside."
print(*sorted(name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix)))
"""


def imported(tmpdir: Path, more: bool) -> set[str]:
    """Return the topics that a fresh interpreter holds after a server has run."""
    program = STARTED.format(root=str(ROOT), tmpdir=str(tmpdir), more=more)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split()) & set(NAMES)


def test_a_server_that_nobody_asks_anything_has_no_topic(tmp_path: Path) -> None:
    assert imported(tmp_path, more=False) == set()


def test_what_is_needed_is_imported(tmp_path: Path) -> None:
    assert imported(tmp_path, more=True) == {"events"}


@pytest.mark.parametrize("name", NAMES)
def test_the_table_names_all_that_a_topic_carries_out(name: str) -> None:
    server = World().server
    topic: Topic = getattr(server, name)
    assert type(topic).__name__ == name.capitalize()
    assert server.topics == [topic]
    assert set(topic.handlers) == {command for command, found in TOPIC_OF.items() if found(server) is topic}


def test_every_topic_is_named() -> None:
    folder = ROOT / "pypmix" / "engine" / "python" / "serverside"
    found = {path.stem for path in folder.glob("*.py") if f"class {path.stem.capitalize()}(" in path.read_text()}
    assert found >= set(NAMES)
    topics = {path.stem for path in folder.glob("*.py") if "(Topic)" in path.read_text()}
    assert topics - {"forming"} == set(NAMES) - {"groups"}


def test_a_topic_may_come_while_the_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    server = world.server
    monkeypatch.setattr(server.events, "disconnected", lambda _peer: server.groups)
    Client(world).connect().link.owner.handle_disconnect()
    assert server.topics == [server.events, server.groups]
