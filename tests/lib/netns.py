"""The process that holds the nodes of a cluster up (`cluster.py` starts it): `netns.py SPECIFICATION`.

Every node is a process with a PID, mount, UTS, IPC and network namespace of its own, in which it is the first process.
This process has a network namespace with a bridge to which each node has a cable; none of it has a name, a device or a
mount in the namespaces that it was started in. Everything goes when this process does: it ends when its standard input
does, the kernel kills the first process of each node when this one is gone, however it has ended, and with the first
process of a PID namespace all others of it. Network namespaces go with their last process.

The specification is JSON:

- `nodes`: for each its `name`, `addresses` with prefix lengths, and `tmp`, the folder that is its `/tmp`;
- `hub`: the addresses of the bridge;
- `binds`: pairs of a file or folder and where nodes see it;
- `keep`: folders that nodes see as they are here, although they lie below what nodes have for themselves.

When the nodes are up, it writes one line: its own process and the first ones of the nodes, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEWPID, NEWNET = 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    _checked(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None), f"mount {source} {target}")


def ip(*lines: str) -> None:
    """Carry out commands of `ip`, in this process's network namespace."""
    text = "\n".join(filter(None, lines))
    done = subprocess.run(["ip", "-batch", "-"], input=text, capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise RuntimeError(f"ip: {done.stderr.strip()}\n{text}")


def _address(address: str, device: str) -> str:
    # An address that is being checked for duplicates cannot be listened on yet.
    return f"addr add {address} dev {device}{' nodad' if ':' in address else ''}"


def _see(node: dict, binds: list[list[str]], keep: list[str]) -> None:
    """Make the files of a node."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    opened = [(os.open(path, os.O_PATH), path) for path in keep]
    for source, target in binds:
        mount(source, target, flags=MS_BIND)
    mount(node["tmp"], "/tmp", flags=MS_BIND)
    mount("none", "/dev/shm", "tmpfs", data="mode=1777")
    mount("none", "/run", "tmpfs", data="mode=755")
    for name in ("sshd", "munge"):
        os.mkdir(f"/run/{name}", 0o755)
    mount("proc", "/proc", "proc")
    for descriptor, path in opened:
        os.makedirs(path, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", path, flags=MS_BIND | MS_REC)
        os.close(descriptor)


def _first(node: dict, specification: dict, wired: int, up: int) -> None:
    """Be the first process of a node."""
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    unshare(NEWNS | NEWUTS | NEWIPC | NEWNET)
    os.write(up, b".")
    socket.sethostname(node["name"])
    _see(node, specification["binds"], specification["keep"])
    # Its end also tells that the parent has ended before it could be noticed.
    if not os.read(wired, 1):
        return
    addresses = [_address(address, "eth0") for address in node["addresses"]]
    ip("link set lo up", *addresses, "link set eth0 up")
    os.write(up, b".")
    for descriptor in (0, 1, wired, up):
        os.close(descriptor)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        # Those whose parents have ended become children of this one.
        signal.sigwait({signal.SIGCHLD})
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def _hear(descriptor: int, count: int) -> None:
    while count:
        heard = len(os.read(descriptor, count))
        if not heard:
            raise RuntimeError("a node did not come up")
        count -= heard


def main(specification: dict) -> None:
    unshare(NEWNET)
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    nodes = specification["nodes"]
    wired, wire = os.pipe()
    told, up = os.pipe()
    first = []
    for node in nodes:
        unshare(NEWPID)
        pid = os.fork()
        if not pid:
            try:
                os.close(wire)
                _first(node, specification, wired, up)
            except BaseException as error:
                print(f"{node['name']}: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(1)
        first.append(pid)
        setns(own, NEWPID)
    os.close(up)
    _hear(told, len(nodes))
    lines = ["link set lo up", "link add hub type bridge forward_delay 0 mcast_snooping 0"]
    lines += [_address(address, "hub") for address in specification["hub"]]
    for node, pid in zip(nodes, first, strict=True):
        name = node["name"]
        lines.append(f"link add {name} type veth peer name eth0 netns {pid}")
        lines.append(f"link set {name} master hub up")
    ip(*lines, "link set hub up")
    os.write(wire, b"." * len(nodes))
    _hear(told, len(nodes))
    print(json.dumps({"guard": os.getpid(), "nodes": first}), flush=True)
    while os.read(0, 1):
        pass
    for pid in first:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
