"""The two forms of the programs of the how-to "from pmix to pypmix" do the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lib import machine

EXAMPLES = machine.ROOT / "docs" / "examples" / "compat"
CLIENT = """
import os, pypmix
with pypmix.Client() as me:
    me.fence()
    os.write(1, (me.query("acme.queue") + "\\n").encode())  # at once: two ranks write to one pipe
"""
ADDRESSES = {rank: f"tcp://10.0.0.{rank}:5000" for rank in range(3)}
COMPAT = ("-m", "pypmix.compat")


def run(*words: str) -> list[str]:
    """Return the sorted lines that a command prints."""
    env = machine.clean_environment() | {"PYPMIX_ENGINE": "python"}
    done = subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=80, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("words", [(*COMPAT, "exchange_pmix.py"), ("exchange_pypmix.py",)], ids=["pmix", "pypmix"])
def test_the_client(words):
    program = [sys.executable, *words[:-1], str(EXAMPLES / words[-1])]
    told = [f"rank {rank} is in acme.all, numbered: True" for rank in range(3)]
    told += [f"rank {rank} knows {ADDRESSES}" for rank in range(3)]
    assert run("-m", "pypmix", "run", "-n", "3", *program) == sorted(told)


@pytest.mark.parametrize("words", [(*COMPAT, "host_pmix.py"), ("host_pypmix.py",)], ids=["pmix", "pypmix"])
def test_the_host(words):
    told = run(*words[:-1], str(EXAMPLES / words[-1]), sys.executable, "-c", CLIENT)
    assert told == ["short", "short", "the ranks ended with [0, 0]"]
