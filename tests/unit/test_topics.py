"""Proves that a server imports a topic when it is first needed, and then has all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pypmix.engine.python.serverside.topic import COMMANDS, TAGS
from unit.test_python_server import World

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]

STARTED = """
import sys; sys.path.insert(0, {root!r})
from pypmix.engine.python.serversession import open_server
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Notification
from pypmix.standard.types import Proc
session = open_server(lambda upcall: upcall.reply(), tmpdir={tmpdir!r}, tool_support=True)
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
    return set(done.stdout.split()) & set(COMMANDS)


def test_a_server_that_nobody_asks_anything_has_no_topic(tmp_path: Path) -> None:
    assert imported(tmp_path, more=False) == set()


def test_what_is_needed_is_imported(tmp_path: Path) -> None:
    assert imported(tmp_path, more=True) == {"events"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_tables_name_all_that_a_topic_carries_out(name: str) -> None:
    topic = World().server.topics.named(name)
    assert set(topic.handlers) == set(COMMANDS[name])
    assert set(topic.tags) == set(TAGS.get(name, ()))


def test_every_topic_is_in_the_tables() -> None:
    folder = ROOT / "pypmix" / "engine" / "python" / "serverside"
    found = {path.stem for path in folder.glob("*.py") if f"class {path.stem.capitalize()}(Topic)" in path.read_text()}
    assert found == set(COMMANDS)


def test_a_topic_may_come_while_the_others_are_told() -> None:
    topics = World().server.topics
    topics.named("events")
    seen = []
    for topic in topics:
        seen.append(topic)
        topics.named("groups")
    assert seen == [topics.named("events")]
    assert len(list(topics)) == 2
