"""What another user of the machine can do to servers and clients. It runs on a system's own Python, without pypmix.

Usage: intruder.py MODE ARGUMENT...; what came of it is the only line on standard output.
"""

import os
import socket
import sys
import time

SO_BINDTODEVICE, SO_BINDTOIFINDEX, TCP_LINGER2 = 25, 62, 8
WAIT = 30


def connect(mode, port):
    mapped = mode == "mapped"
    sock = socket.socket(socket.AF_INET6 if mapped else socket.AF_INET)
    sock.settimeout(WAIT)
    if mode == "device":
        sock.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, b"lo\0")
    elif mode == "index":
        sock.setsockopt(socket.SOL_SOCKET, SO_BINDTOIFINDEX, socket.if_nametoindex("lo"))
    sock.connect(("::ffff:127.0.0.1" if mapped else "127.0.0.1", port))
    return sock


def attack(mode, port, hello, request):
    """Say hello, and send a request once that was welcomed."""
    sock = connect(mode, int(port))
    try:
        sock.sendall(bytes.fromhex(hello))
        if sock.recv(100)[:4] != bytes(4):
            return "refused"
        sock.sendall(bytes.fromhex(request))
        sock.recv(65536)
        return "welcomed"
    except ConnectionError:
        return "refused"


def vanish(_mode, port, hello, request):
    """Say all of it at once to a server that does not listen just now, and be gone before it does."""
    sock = connect("plain", int(port))
    sock.sendall(bytes.fromhex(hello) + bytes.fromhex(request))
    sock.setsockopt(socket.IPPROTO_TCP, TCP_LINGER2, 1)
    ends = [f":{sock.getsockname()[1]:04X}", f":{int(port):04X}"]
    sock.close()
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        with open("/proc/net/tcp") as file:
            if not any([place[-5:] for place in line.split()[1:3]] == ends for line in file):
                return "gone"
        time.sleep(0.05)
    return "still there"


def serve(_mode, path):
    """Pretend to be a server, at a path or else at a port, and tell how much a client lets it know."""
    if path:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        os.chmod(path, 0o777)
        listener.listen()
        print(path, flush=True)
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
    listener.settimeout(WAIT)
    sock, _ = listener.accept()
    sock.settimeout(WAIT)
    try:
        return str(len(sock.recv(65536)))
    except ConnectionError:
        return "0"


def look(_mode, folder):
    """Look for a word wherever other users can: command lines, names of processes, of sockets and of files."""
    # It would be found in this program's own command line.
    needle = input()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "comm", "environ", "status", "maps", "mountinfo"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    if needle.encode() in file.read():
                        found.append(f"/proc/{pid}/{name}")
            except OSError:
                continue
        try:
            found += [
                f"/proc/{pid}/fd/{fd}"
                for fd in os.listdir(f"/proc/{pid}/fd")
                if needle in os.readlink(f"/proc/{pid}/fd/{fd}")
            ]
        except OSError:
            continue
    with open("/proc/net/unix") as file:
        found += [line.strip() for line in file if needle in line]
    for place, folders, files in os.walk(folder):
        found += [os.path.join(place, name) for name in (*folders, *files) if needle in name]
    return "; ".join(found) or "nothing"


if __name__ == "__main__":
    modes = {"vanish": vanish, "serve": serve, "look": look}
    print(modes.get(sys.argv[1], attack)(*sys.argv[1:]), flush=True)
