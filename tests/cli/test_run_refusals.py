"""What cannot be started is refused by what is wrong: "program not found" is said of programs only."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lib import machine
from lib.command import Command


@pytest.mark.parametrize(
    ("words", "env", "code", "message"),
    [
        (("./nosuch",), {}, 127, "program not found: ./nosuch"),
        (("--wdir", "/no/such", "true"), {}, 127, "no such working directory: /no/such"),
        (("/etc/passwd",), {}, 126, "cannot execute /etc/passwd: Permission denied"),
        (("true",), {"TMPDIR": "/proc"}, 1, "No such file or directory: the folder of this run cannot be made; TMPDIR"),
        (("--output-directory", "/proc/x", "true"), {}, 1, "cannot start rank 0: /proc/x: No such file or directory"),
    ],
)
def test_what_is_wrong_is_named(
    command: Command, words: tuple[str, ...], env: dict[str, str], code: int, message: str
) -> None:
    done = command("run", *words, env=env)
    assert done.message.startswith(f"pypmix run: {message}")
    assert done.code == code


def test_a_chroot_without_proc(command: Command) -> None:
    """A job runs and ends there as elsewhere."""
    if machine.namespaces_lacking():
        machine.lacking(machine.namespaces_lacking())
    line = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    run = ["python", "-m", "pypmix", "run", "-n", "2", "echo", "up"]
    done = subprocess.run(
        [*line, *run], env=command.environment, cwd=command.folder, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "up\nup\n"), done.stderr
    assert Path("/proc/self").exists()
