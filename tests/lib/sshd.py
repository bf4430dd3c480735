"""An ssh server on the loopback interface with keys of its own, and a client's configuration that leads to it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import machine

READY = 20.0
SSHD = "/usr/sbin/sshd"

SERVER = """
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
MaxStartups 1000
"""

CLIENT = """
Host refused
    IdentityFile {folder}/stranger
Host closed
    Port {closed}
Host unknown-key
    UserKnownHostsFile {folder}/nothing
Host nowhere
    HostName no-such-host.invalid
Host * !refused
    IdentityFile {folder}/user
Host *
    HostName 127.0.0.1
    Port {port}
    IdentitiesOnly yes
    IdentityAgent none
    GlobalKnownHostsFile none
    UserKnownHostsFile {folder}/known
    HostKeyAlias pypmix-test
    StrictHostKeyChecking yes
"""


def lacking() -> str:
    """Return what keeps tests from an ssh server, empty if nothing does."""
    missing = [name for name in ("ssh", "ssh-keygen", SSHD) if not shutil.which(name)]
    return f"{', '.join(missing)} (Debian's openssh-server)" if missing else ""


class Server:
    """An ssh server that lets this user in, under any name that is not special in `CLIENT`.

    Attributes:
        agent: The `--launch-agent` that reaches it.
    """

    def __init__(self, folder: Path) -> None:
        for name in ("host", "user", "stranger"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)], check=True
            )
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
            terms = {"folder": folder, "port": one.getsockname()[1], "closed": other.getsockname()[1]}
        (folder / "known").write_text(f"pypmix-test {(folder / 'host.pub').read_text()}")
        (folder / "sshd_config").write_text(SERVER.format(**terms))
        (folder / "ssh_config").write_text(CLIENT.format(**terms))
        # Where it puts its unprivileged half; the service of the system would make it.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.agent = f"ssh -F {folder}/ssh_config -T -x -o BatchMode=yes -- {{host}}"
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + READY
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(str(terms["port"]))), 5).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError(f"sshd did not come up\n{(folder / 'log').read_text()}") from None
                time.sleep(0.02)

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An ssh server for the rest of the session."""
    if reason := lacking():
        machine.lacking(reason)
    server = Server(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()
