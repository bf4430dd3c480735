"""munge proves who a client is, with a real daemon in a mount namespace of its own, and with libpmix."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib import machine, pairings

pytestmark = pytest.mark.timeout(60)

INSIDE = """
set -eu
mount -t tmpfs none /run
mkdir -p /run/munge /run/key
head -c 128 /dev/urandom > /run/key/munge.key
chmod 400 /run/key/munge.key
munged --foreground --force --key-file=/run/key/munge.key --log-file=/run/key/log --pid-file=/run/key/pid \
    --seed-file=/run/key/seed > /run/key/out 2>&1 &
daemon=$!
trap 'kill $daemon' EXIT
for _ in $(seq 100); do [ -S /run/munge/munge.socket.2 ] && break; sleep 0.05; done
"$@"
"""


@pytest.fixture
def with_munge():
    """Run a command beside a munge daemon of its own."""
    if os.geteuid() or shutil.which("munged") is None:
        machine.lacking("munged, or the root rights to start one in a namespace of its own")

    def run(*command, check=True, **environment):
        line = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh", *map(str, command)]
        env = {**os.environ, **environment}
        done = subprocess.run(line, capture_output=True, text=True, timeout=40, env=env)
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


PROGRAM = """
from pypmix import Client
with Client(singleton="forbid") as me:
    me.fence(timeout=10)
    print("met", me.rank, str(me.engine).split()[0], flush=True)
"""


def job(with_munge, client, **environment):
    command = [sys.executable, "-m", "pypmix", "run", "-n", "2", sys.executable, "-c", PROGRAM]
    return with_munge(*command, **pairings.client_environment(client), **environment)


@pytest.mark.parametrize("client", ["python-client", "native-4.2.2"])
def test_clients_prove_who_they_are(with_munge, client):
    pairings.require_client(client)
    done = job(with_munge, client, PYPMIX_SECURITY="munge")
    assert sorted(line.split()[:2] for line in done.stdout.splitlines()) == [["met", "0"], ["met", "1"]], done.stderr


def test_a_native_server_takes_it_too(with_munge):
    """What an operator asks for is not passed over where a library does the server's work."""
    pairings.require_client("native-4.2.2")
    code = "import os; print('module', os.environ['PMIX_SECURITY_MODE'], flush=True)\n" + PROGRAM
    command = [
        sys.executable,
        "-m",
        "pypmix",
        "run",
        "--server-engine",
        "native",
        "-n",
        "1",
        sys.executable,
        "-c",
        code,
    ]
    done = with_munge(*command, PYPMIX_SECURITY="munge", PYPMIX_ENGINE="python")
    assert done.stdout.splitlines()[0] == "module munge", done.stderr
    assert "met 0 python" in done.stdout


def test_a_native_server_without_it_does_not_start():
    pairings.require_client("native-4.2.2")
    for module, reason in (("munge", "does munged run?"), ("magic", "'magic' is not a security module")):
        command = [sys.executable, "-m", "pypmix", "run", "--server-engine", "native", "-n", "1", "true"]
        environment = {**os.environ, "PYPMIX_SECURITY": module}
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment)
        assert done.returncode != 0
        assert reason in done.stderr and "Traceback" not in done.stderr


def test_what_clients_say_of_themselves_is_not_enough(with_munge):
    """A client that names the native module is refused where only munge is taken."""
    code = f"import os; os.environ['PMIX_SECURITY_MODE'] = 'native'\n{PROGRAM}"
    command = [sys.executable, "-m", "pypmix", "run", "-n", "1", sys.executable, "-c", code]
    done = with_munge(*command, check=False, PYPMIX_SECURITY="munge", PYPMIX_ENGINE="python")
    assert done.returncode != 0
    assert "met" not in done.stdout
    assert "munge" in done.stderr


def test_a_credential_is_taken_once(with_munge):
    code = """
from pypmix.engine import munge
from pypmix.standard.errors import PMIxError
import os
credential = munge.encode()
assert credential.startswith(b"MUNGE:") and credential.endswith(b"\\0")
assert munge.decode(credential) == (os.geteuid(), os.getegid())
for bad in (credential, b"", b"MUNGE:AwQDAAA:", b"x" * 100, credential[:-9] + b"AAAA:\\0", b"a\\0b", b"y" * 100000):
    try:
        munge.decode(bad)
    except PMIxError as error:
        assert error.status.name == "ERR_INVALID_CRED", error
    else:
        raise AssertionError(bad)
print("fine")
"""
    assert with_munge(sys.executable, "-c", code).stdout == "fine\n"


def test_without_a_daemon_the_server_says_so():
    if shutil.which("munged") is None or Path("/run/munge/munge.socket.2").exists():
        machine.lacking("munge's library on a machine whose daemon does not run")
    command = [sys.executable, "-m", "pypmix", "run", "-n", "1", "true"]
    environment = {**os.environ, "PYPMIX_SECURITY": "munge"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment)
    assert done.returncode != 0
    assert "munge" in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_module_is_refused():
    command = [sys.executable, "-m", "pypmix", "run", "-n", "1", "true"]
    environment = {**os.environ, "PYPMIX_SECURITY": "magic"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment)
    assert done.returncode != 0
    assert "'magic' is not a security module" in done.stderr and "Traceback" not in done.stderr
