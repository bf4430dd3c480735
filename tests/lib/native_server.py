"""Native servers, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lib import machine
from lib.native_programs import environment

SERVER = """
import faulthandler, os, subprocess, sys, threading, time
faulthandler.dump_traceback_later(60, exit=True)
from pypmix import Server
from pypmix.engine.native.library import find_library
from pypmix.engine.select import open_client
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.standard import attrs
from pypmix.standard.codes import *
from pypmix.standard.errors import *
from pypmix.standard.statuses import *
from pypmix.standard.ops import *
from pypmix.standard.structures import *
from pypmix.standard.types import *
from pypmix.standard.values import *

CLIENT = '''
import os, sys, threading, time
from pypmix.engine.select import open_client
from pypmix.standard import attrs
from pypmix.standard.codes import *
from pypmix.standard.errors import *
from pypmix.standard.statuses import *
from pypmix.standard.ops import *
from pypmix.standard.structures import *
from pypmix.standard.types import *
from pypmix.standard.values import *
me = open_client()
everybody = Proc(me.proc.nspace, RANK_WILDCARD)
def caught(kind, call, *args):
    try:
        result = call(*args)
    except kind as error:
        return error
    raise AssertionError(f"{result!r} instead of {kind.__name__}")
'''

upcalls = []

def host(upcall):
    upcalls.append(upcall)
    upcall.reply()

def asked(kind):
    return [upcall for upcall in upcalls if type(upcall.op) is kind]

def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, [upcall.op for upcall in upcalls]
        time.sleep(0.01)

def job(size=1, nodes=None, nspace="job"):
    places = nodes or (NodeLayout("here", tuple(range(size))),)
    return JobLayout(nspace, (Application(("prog",), size),), places, session=7, wdir="/tmp").info()

def start(server, code, rank=0, nspace="job", **more):
    proc = Proc(nspace, rank)
    server.register_client(proc)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PMIX_")}
    env.update(server.client_env(proc), PYPMIX_ENGINE=sys.argv[1], **more)
    return subprocess.Popen([sys.executable, "-c", CLIENT + code], env=env, stdin=subprocess.DEVNULL)

def start_sleepers(server, count):
    server.register_nspace(job(count))
    ranks = [start(server, f"open('up{rank}', 'w').close(); time.sleep(60)", rank) for rank in range(count)]
    # The host hears of a client before the library has answered it: one that is lost in between is none to the library.
    until(lambda: all(os.path.exists(f"up{rank}") for rank in range(count)) and len(asked(ClientConnected)) == count)
    return ranks

def run(server, code, rank=0, expected=0):
    done = start(server, code, rank).wait(40)
    assert done == expected, done
"""


LIBRARIES = [lib.release for lib in machine.libraries()] or ["none"]


@pytest.fixture(params=[f"{release}-{client}" for release in LIBRARIES for client in ("python", "native")])
def serve(request: pytest.FixtureRequest, tmp_path: Path):
    """Run code as a process with a native server, of each libpmix and with clients of both engines."""
    release, _, client = request.param.partition("-")
    lib = machine.library(release)
    if lib is None or not machine.extension():
        machine.lacking("a libpmix or the native engine's extension")

    def run(code: str) -> str:
        path = tmp_path / "server.py"
        path.write_text(SERVER + code)
        done = subprocess.run(
            [sys.executable, str(path), client],
            env=environment(PYPMIX_LIBPMIX=lib.path),
            cwd=tmp_path,
            timeout=80,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    run.release = tuple(map(int, release.split(".")))  # type: ignore[attr-defined]
    run.client = client  # type: ignore[attr-defined]
    return run
