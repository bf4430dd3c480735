"""What `pypmix completion` prints completes commands, their options, and the words of programs."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from lib.command import Command

SHELLS = ("bash", "zsh", "fish")


def complete(script: str, *words: str) -> list[str]:
    """Return what bash offers for the last of the words."""
    line = f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; _pypmix"
    text = f'{script}\n{line}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, timeout=30).stdout.split()


def test_bash_completes_commands_and_options(command: Command) -> None:
    script = command("completion", "bash").out.decode()
    assert {"run", "ps", "doctor", "completion"} <= set(complete(script, "pypmix", ""))
    assert complete(script, "pypmix", "pub") == ["publish"]
    assert {"--timeout", "--tag-output"} <= set(complete(script, "pypmix", "run", "-"))
    assert complete(script, "pypmix", "events", "--cou") == ["--count"]
    assert "--nspace" in complete(script, "pypmix", "query", "--n")
    # The words of a program are none of ours; the value of an option is not a program.
    assert complete(script, "pypmix", "run", "-n", "2", "python", "--tag") == []
    assert "--tag-output" in complete(script, "pypmix", "run", "-n", "2", "--tag")


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_printed_is_a_script_of_the_shell(command: Command, shell: str) -> None:
    ended = command("completion", shell)
    assert ended.code == 0 and ended.err == b""
    assert b"tag-output" in ended.out and b"lookup" in ended.out
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=ended.out, check=True, timeout=30)


def test_another_shell_is_refused(command: Command) -> None:
    ended = command("completion", "tcsh")
    assert ended.code == 2
    assert b"a shell is one of bash, zsh, fish, not 'tcsh'" in ended.err
