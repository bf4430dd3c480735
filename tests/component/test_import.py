"""`import pypmix` and a Python client import no module that every rank of a job would pay for in vain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]
HEAVY = {
    "argparse", "asyncio", "collections", "contextlib", "ctypes", "dataclasses", "enum", "functools", "inspect",
    "json", "logging", "re", "selectors", "socket", "subprocess", "tempfile", "threading", "typing", "urllib",
}  # fmt: skip


def imported(code: str) -> set[str]:
    """The modules that a fresh interpreter, with no site packages, holds after running `code`."""
    setup = f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules)"
    program = f"{setup}; {code}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split() if not name.startswith("pypmix")}


def test_the_check_itself_sees_imports() -> None:
    assert "asyncio" in imported("import asyncio")


@pytest.mark.parametrize("code", [
    "import pypmix",
    "from pypmix import Client, Proc, Value, Info, PMIxError, NotFound; from pypmix.types import uint32",
    "from pypmix.engine.python.session import open_client; open_client({}, ())",
    "from pypmix import Client; Client(env={}).open().put('a', 1)",
])  # fmt: skip
def test_nothing_heavy_is_imported(code: str) -> None:
    assert not imported(code) & HEAVY


def test_a_daemon_imports_nothing_that_every_node_would_pay_for_in_vain() -> None:
    code = "import pypmix.host.daemon; from pypmix.host.addresses import resolved; resolved('127.0.0.1', 1, 1)"
    found = imported(code)
    assert "socket" in found
    assert not found & {"argparse", "asyncio", "logging", "random", "secrets", "ssl", "stringprep", "traceback"}


def test_a_daemon_imports_no_answers_to_rare_requests() -> None:
    rare = {"cleanup", "control", "directives", "preload"}
    assert not modules_of("import pypmix.host.daemon") & {f"pypmix.host.{name}" for name in rare}


def test_a_launcher_starts_daemons_without_the_modules_of_archives() -> None:
    found = imported("import pypmix.host.rosters.ssh, pypmix.host.rosters.group")
    assert "subprocess" in found
    assert not found & {"bz2", "lzma", "shutil", "zipfile"}


def test_tests_on_ranks_of_one_node_import_nothing_that_connects_nodes() -> None:
    found = modules_of("import pypmix.testing.job")
    assert "pypmix.host.local" in found
    assert not found & {"pypmix.host.crossings", "pypmix.host.exchange"}


def test_a_launcher_describes_its_node_without_enums() -> None:
    code = "from os import uname; from pypmix.host import hardware; assert hardware.aliases(uname().nodename)"
    found = imported(code)
    assert "fcntl" in found
    assert not found & {"enum", "re", "selectors", "signal", "socket"}


def modules_of(code: str) -> set[str]:
    """The modules of ours that a fresh interpreter holds after running `code`."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return {name for name in done.stdout.split() if name.startswith("pypmix.")}


def test_a_host_does_not_import_the_embedded_one_nor_the_other_way_round() -> None:
    ours = modules_of("from pypmix.host import Host, JobLayout, LATER")
    assert "pypmix.host.callbacks.host" in ours
    assert not ours & {"pypmix.host.local", "pypmix.host.exchange"}
    embedded = modules_of("from pypmix.host import LocalHost")
    assert "pypmix.host.local" in embedded
    assert not any(name.startswith("pypmix.host.callbacks") for name in embedded)
    assert "asyncio" not in imported("from pypmix.host import LocalHost")


@pytest.mark.parametrize("code", ["Client(env={}).open().put('a', 1)", "Client(env={}).open().fence(timeout=1)"])
def test_the_keys_that_a_client_reads_are_at_hand(code: str) -> None:
    """The generator lists them; any other key costs a client the table of all."""
    modules_of(
        f"from pypmix import Client; {code}; from pypmix.standard import keys; "
        "assert 'TIMEOUT' in vars(keys) and 'SIZE_ESTIMATE' not in vars(keys)"
    )


def test_programs_without_old_names_do_not_import_the_table_of_them() -> None:
    code = (
        "import pypmix; from pypmix import Client, aio; from pypmix.types import uint32; Client(env={}).open().publish"
    )
    assert "pypmix.oldnames" not in modules_of(code)
    assert "pypmix.oldnames" not in modules_of("import pypmix.data, pypmix.host; pypmix.Tool; pypmix.aio.Group")
    found = modules_of("import pypmix; pypmix.uint32")
    assert "pypmix.oldnames" in found
    assert "pypmix.renames" not in found


COUNTED = """
import sys
calls = []
def count(frame, event, _argument):
    name = frame.f_code.co_filename
    if event == "call" and "importlib" not in name and "/pypmix/" in name:
        calls.append(name)
sys.setprofile(count)
from pypmix import Client
with Client(env={}):
    pass
sys.setprofile(None)
print(len(calls), *(name for name in sys.modules if name.startswith("pypmix")))
"""


def test_a_client_without_a_server_opens_with_few_calls_and_modules() -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{COUNTED}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    calls, *modules = done.stdout.split()
    # Almost all are the making of classes; tables of the wire took 900 more.
    assert int(calls) <= 650, calls
    assert len(modules) <= 38, modules
    assert not set(modules) & {"pypmix.wire.handshake", "pypmix.wire.layout", "pypmix.wire.messages"}


def test_a_client_makes_no_table_of_messages_for_what_every_client_does() -> None:
    code = "from pypmix.engine.python.client import Client; from pypmix.engine.python import transport, session"
    loaded = modules_of(code)
    assert "pypmix.wire.frequent" in loaded
    assert not loaded & {"pypmix.standard.structures", "pypmix.wire.layout", "pypmix.wire.messages"}


def test_codecs_are_made_when_they_are_used() -> None:
    code = (
        "from pypmix.wire import decode, encode; from pypmix.standard import codes; n = codes.UINT32; "
        "before = encode.ENCODERS[n], decode.DECODERS[n]; parts = []; encode.ENCODERS[n](parts.append, 300, 0); "
        "assert decode.DECODERS[n](b''.join(parts), 0, 0) == (300, 2); "
        "assert encode.ENCODERS[n] is not before[0] and decode.DECODERS[n] is not before[1]; "
        "assert encode.ENCODERS[n] is encode.encoder_of(n)"
    )
    modules_of(code)


RUN = """
import os, sys
calls = 0
def count(frame, event, _argument):
    global calls
    name = frame.f_code.co_filename
    # What the kernel shows of the machine differs.
    calls += event == "call" and "/pypmix/" in name and "importlib" not in name and "/topology/" not in name
def leave(code):
    sys.setprofile(None)
    print(code, calls, *sys.modules, flush=True)
    leave_at_once(code)
leave_at_once, os._exit = os._exit, leave
from pypmix.cli.main import main
# Ranks that take long, on a busy machine, are not taken for clients.
from pypmix.host import processes
processes.PREPARE_SECONDS = 1000
sys.setprofile(count)
main(["run", "-n", "2", "true"])
"""


def test_a_launcher_imports_and_calls_little_for_ranks_that_are_no_clients() -> None:
    """`pypmix run` itself: its options, its hardware, its server, and ranks that open nothing."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{RUN}"
    lines = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(lines, capture_output=True, text=True, timeout=50)
    code, calls, *modules = done.stdout.split()
    assert code == "0", done.stderr
    ours = {name for name in modules if name.startswith("pypmix")}
    assert "pypmix.engine.python.serversession" in ours
    # To import a module of a package, such as `from pypmix.host import launch`, is no use of an old name. The machine
    # of the server is made when a client connects.
    assert not ours & {
        "pypmix.engine.python.server", "pypmix.oldnames", "pypmix.standard.enums", "pypmix.standard.structures",
        "pypmix.wire.codec",
    }  # fmt: skip
    assert not set(modules) & {
        "argparse", "asyncio", "ctypes", "dataclasses", "enum", "gettext", "inspect", "json", "locale", "logging", "re",
        "resource", "selectors", "signal", "socket", "subprocess", "tempfile", "typing", "weakref", "zlib",
    }  # fmt: skip
    assert len(ours) <= 94, sorted(ours)
    assert int(calls) <= 1600, calls
