"""The commands of the pages on clusters run as they stand there, on nodes with the names that they have there.

`tests/pages/blocks.toml` says which blocks these are, and `lib.blocks` how they are read. A batch script is handed
to Slurm's sbatch.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import blocks, machine, provision
from lib.blocks import Block
from lib.cluster import SSHD, Cluster
from lib.slurm_nodes import Slurm
from pypmix.host.rosters.names import read_hostfile

PAGES = machine.ROOT / "docs" / "use"
EXAMPLES = machine.ROOT / "docs" / "examples"
HOSTS = "n1 slots=4 max_slots=8\nn2:4\nn3 slots=2\n"
LIMIT = 80.0

KUBECTL = """#!/bin/sh
# `kubectl exec -i POD -- COMMAND...`, where the nodes are the pods.
shift 2; node=n${1#pod}; shift 2
exec ssh -o BatchMode=yes "$node" "$(printf "'%s' " "$@")"
"""


def masked(text: str) -> str:
    """Return a text without its numbers and names that are made up."""
    return re.sub(r"\d+", "0", text).strip()


@pytest.fixture
def folder(cluster: Cluster, tmp_path: Path, block: Block) -> Iterator[Path]:
    """A folder that all nodes see, with all that the pages speak of; `python` and the like are in everybody's PATH."""
    programs, folder = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    folder.mkdir()
    python = _python(block)
    _script(programs / "python", f'#!/bin/sh\nexec {python} "$@"\n')
    # A reader has pypmix and mpi4py in one environment: `python` of a rank is the Python of its node's daemon.
    remote = "" if python == sys.executable else ' "$command" --remote-python /usr/local/bin/python'
    shift = "command=$1\nshift\n" if remote else ""
    _script(programs / "pypmix", f'#!/bin/sh\n{shift}exec {sys.executable} -m pypmix{remote} "$@"\n')
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(programs)
    if mpirun := shutil.which("mpirun"):
        _script(programs / "mpirun", f'#!/bin/sh\nexec {mpirun} --allow-run-as-root --oversubscribe "$@"\n')
    _script(programs / "kubectl", KUBECTL)
    _script(folder / "app", "#!/bin/sh\nexec python hello.py\n")
    prterun = next((each.path for each in machine.launchers() if each.name.startswith("prterun")), None)
    if prterun is not None:
        prefix = Path(prterun).parent.parent
        started = f"PRTE_PREFIX={prefix} exec {prterun.replace('bin/prterun', 'bin/prte')} --allow-run-as-root"
        _script(programs / "prte", f'#!/bin/sh\n{started} "$@"\n')
        given = f"--allow-run-as-root --prefix {Path(prterun).parent.parent} --host n1:4,n2:4"
        crowded = "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"
        _script(programs / "prterun", f'#!/bin/sh\n{crowded} exec {prterun} {given} "$@"\n')
    for path in (EXAMPLES / "hello.py", EXAMPLES / "clusters" / "meet.py", EXAMPLES / "mpi" / "pool.py"):
        shutil.copy(path, folder)
    # A page calls the reader's own program so.
    shutil.copy(EXAMPLES / "hello.py", folder / "train.py")
    (folder / "endpoints.py").write_text(blocks.first_program())
    (folder / "hosts").write_text(HOSTS)
    (folder / "input.dat").write_text("1 2 3")
    (folder / "FILE").touch(0o600)
    (folder / "FILE").write_text("a secret that cannot be guessed")
    for node in cluster:
        node.run("mount", "--bind", programs, "/usr/local/bin")
        # Shells that ssh starts read it, and may find another Python there.
        if (rc := Path("~root/.bashrc").expanduser()).exists():
            node.run("mount", "--bind", "/dev/null", rc)
    try:
        yield folder
    finally:
        for node in cluster:
            node.run("umount", "--lazy", "/usr/local/bin")
            node.run("umount", "--lazy", Path("~root/.bashrc").expanduser(), check=False)


def _python(block: Block) -> str:
    if "mpi4py" not in block.part:
        return sys.executable
    found = provision.mpi4py()
    if found is None or not list(found.parents[1].glob(f"lib/python3.{sys.version_info.minor}")):
        machine.lacking("Open MPI with mpi4py for this Python, which tests/lib/provision.py fetches")
    path = os.pathsep.join([str(machine.ROOT), *filter(None, sys.path)])
    return f"env PYTHONPATH={path} {found}"


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def other_port(cluster: Cluster) -> Iterator[None]:
    """Have an sshd on port 2222, too."""
    found = [node.start(SSHD, "-D", "-p", "2222", "-f", cluster.folder / "sshd_config") for node in cluster]
    for node in cluster:
        cluster.until("sshd on port 2222", lambda node=node: cluster.listening(node, 2222))
    yield
    for process in found:
        process.send_signal(signal.SIGTERM)
        process.wait()


@pytest.mark.timeout(150)
@pytest.mark.parametrize("block", blocks.on_nodes(), ids=str)
def test_commands_run_as_they_stand(
    cluster: Cluster, folder: Path, block: Block, request: pytest.FixtureRequest
) -> None:
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(folder), "SHELL": "/bin/sh"}
    env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    scripts = block.scripts
    if block.kind == "bash":
        (folder / "job.sh").write_text(block.text)
        scripts = {"n1": ["sbatch --wait --output=said job.sh || { cat said; exit 1; }", "cat said"]}
    if re.search(r"\b(salloc|srun|SBATCH)\b", block.text):
        slurm: Slurm = request.getfixturevalue("nodes_with_slurm")
        env |= slurm.environment
    if "2222" in block.text:
        request.getfixturevalue("other_port")
    if "prte" in block.text and not (folder.parent / "bin" / "prterun").exists():
        machine.lacking("the launcher prterun")
    running = [
        cluster[name].start(
            "sh", "-e", env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for name in scripts
    ]
    for process, script in zip(running, scripts.values(), strict=True):
        if re.fullmatch("salloc( -.*)?", script[0]):
            # It starts a shell, which reads what follows.
            script = [f"{script[0]} <<'END'", *script[1:], "END"]
        process.stdin.write("\n".join([*script, "wait", ""]))
        process.stdin.close()
        process.stdin = None
    said = []
    for process in running:
        try:
            said.append(process.communicate(timeout=LIMIT)[0])
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"no end\n{cluster.report()}\n{process.communicate()[0]}") from None
    text = "\n".join(said)
    assert [process.returncode for process in running] == [0] * len(running), text
    lines = {masked(line) for line in text.splitlines()}
    missing = [line for line in block.printed if block.kind == "console" and masked(line) not in lines]
    assert not missing, f"the page has {missing}:\n{text}"
    if "app" in block.text or "hello.py" in block.text:
        assert "hello from 0 of " in text, text


def test_the_hostfile_of_the_page_is_one() -> None:
    text = re.search(r"^```text\n(.*?)^```", (PAGES / "batch.md").read_text(), re.MULTILINE | re.DOTALL)
    assert text is not None
    found = read_hostfile(text[1].splitlines(), "hosts")
    assert [(host.name, host.slots, host.most) for host in found] == [
        ("n1", 4, 8),
        ("n2", 4, 0),
        ("me@n3", 2, 0),
        ("n4", 0, 0),
    ]
