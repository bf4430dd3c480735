"""`pypmix compat --check` names the lines of a program that see a difference, and no others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lib import machine
from pypmix.compat.check import CALL, HANDLER, RULES, TABLE, TOPICS, UNKNOWN, findings, main

BEGIN = "from pmix import *\nclient = PMIxClient()\nserver = PMIxServer()\ntool = PMIxTool()\n"

FOUND = [
    ("client.resource_block(1, 'block', [], [])", "resource_block"),
    ("client.put(PMIX_GLOBAL, 'x' * 3 + 'y', 7)", "put"),
    ("client.put(PMIX_GLOBAL, 'k', {'value': 7})", "put"),
    (f"client.put(PMIX_GLOBAL, {'k' * 512!r}, value)", "put"),
    ("rc, found = client.get(proc, None, [])", "get"),
    ("client.get_version().split('.')", "get_version"),
    ("client.notify_event(-1, {'nspace': 'n', 'rank': 0}, 4, [])", "notify_event"),
    ("server.fence([], [])", "fence"),
    ("client.group_construct('g', [], [])", "group_construct"),
    ("server.define_process_set(p, 'a'); server.define_process_set(p, 'a')", "define_process_set"),
    ("print(rc == PMIX_ERR_UNREACH)", "PMIX_ERR_UNREACH"),
    ("print(PMIX_OPERATION_SUCCEEDED == rc)", "PMIX_OPERATION_SUCCEEDED"),
    ("tool.set_server_module({'query': print})", "set_server_module"),
    ("client.assign_session(1)", "assign_session"),
    ("print(PMIX_ALLOC_SETOP)", "PMIX_ALLOC_SETOP"),
    ("server.init([], {'listener': print})", "listener"),
    ("def handle(args, cb, data): pass\nserver.init([], {'query': handle})", "handle"),
    ("def handle(args, cb, data):\n  if args: return 0\nserver.init([], {b'query': handle})", "handle"),
    (
        "def handle(args):\n  if args: return\n  return 0\nmodule = {'query': handle}\nserver.init([], map=module)",
        "handle",
    ),
]

CLEAN = [
    "settings.get('key', None); table.put(1, 2); values.publish()",
    "client.put(PMIX_GLOBAL, 'k', {'value': 7, 'val_type': PMIX_INT32})",
    "client.put(PMIX_GLOBAL, 'k', {**base, 'value': 7})",
    "client.get(proc, 'key', None); print(client.get_version())",
    "client.notify_event(-1, me, 4, []); client.fence([], [])",
    "print(rc in (PMIX_SUCCESS, PMIX_OPERATION_SUCCEEDED), PMIX_SUCCESS == rc or PMIX_OPERATION_SUCCEEDED == rc)",
    "PMIX_MINE = 3\nprint(PMIX_MINE)",
    "server.define_process_set(p, 'a'); server.delete_process_set('a'); server.define_process_set(p, 'a')",
    "def handle(args, cb, data):\n  cb(0, data)\nserver.init([], {'log': handle})",
    "def handle(args):\n  if args: return 1\n  else: raise ValueError\nserver.init([], {'query': handle})",
    "def handle(args):\n  try:\n    return 1\n  except KeyError:\n    return 2\nserver.init([], {'query': handle})",
    "def handle(args):\n  while True:\n    pass\nserver.init([], {'query': handle})",
    "def handle(args):\n  with lock:\n    return 1\nserver.init([], {'query': handle})",
    "def handle(args):\n  match args:\n    case 1: return 1\n    case _: return 2\nserver.init([], {'query': handle})",
]


@pytest.mark.parametrize(("text", "what"), FOUND)
def test_a_difference_is_found(text, what):
    found = findings(BEGIN + text + "\n")
    if "'x' * 3" in text:
        # A key that is computed may be anything, and this value is no dict.
        assert [each.what for each in found] == ["put"] and "val_type" in found[0].difference.official
        return
    assert [each.what for each in found] == [what]
    lines = (BEGIN + text).splitlines()
    assert what in lines[found[0].line - 1] or what == "handle"


@pytest.mark.parametrize("text", CLEAN)
def test_nothing_is_found(text):
    assert findings(BEGIN + text + "\n") == []


def test_other_ways_to_name_the_bindings():
    text = "import pmix as p\nclass Mine(p.PMIxServer): pass\nclass Other:\n  tool = p.PMIxTool()\n  def ask(self):\n"
    found = findings(
        text + "    self.tool.get(x, None)\n    self.own = Mine()\n    self.own.fence([], [])\n    p.PMIX_NO\n"
    )
    assert [(each.line, each.what) for each in found] == [(6, "get"), (8, "fence"), (9, "PMIX_NO")]
    assert [
        each.what for each in findings("from pmix import PMIX_NONE_SUCH, PMIxClient as C\nC().progress_thread_stop()\n")
    ] == [
        "PMIX_NONE_SUCH",
        "progress_thread_stop",
    ]


def test_a_program_without_the_bindings():
    assert findings("client.resource_block(1)\nprint(rc == ERR_UNREACH)\n") == []


def test_the_table_is_sound():
    for row in TABLE:
        assert row.topic in TOPICS
        assert row.official.endswith((".", "`")) and row.here.endswith((".", "`")), row
        assert not row.check or row.advice, row
        assert row.check not in (CALL,) or row.where in {*RULES, "defined_again"}, row
        assert row.check != HANDLER or row.where in ("returns_nothing", "listener")
        assert row.check != UNKNOWN or row.where in ("constants", "methods")


def test_the_command(tmp_path, capsys):
    program, sound, broken = tmp_path / "program.py", tmp_path / "sound.py", tmp_path / "broken.py"
    program.write_text(BEGIN + "client.resource_block(1, 'block', [], [])\nraise SystemExit('it was run')\n")
    sound.write_text(BEGIN)
    broken.write_text("def\n")
    assert main([str(sound)]) == 0
    assert capsys.readouterr().out == ""
    assert main([str(sound), str(program)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{program}:5:1: resource_block: here: `PMIX_ERR_NOT_SUPPORTED`.") and "allocation" in line
    assert main([str(program), str(broken), str(tmp_path / "none.py")]) == 2
    err = capsys.readouterr().err
    assert f"{broken}:1: no program" in err and "none.py" in err
    command = [sys.executable, "-m", "pypmix", "compat", "--check", str(program)]
    done = subprocess.run(command, env=machine.clean_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "resource_block" in done.stdout, done
