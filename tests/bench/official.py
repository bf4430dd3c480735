"""The host of `host.c` on the official binding: `python3 official.py N CLIENT [ARGUMENT...]`.

It is run by the system's interpreter, and imports nothing of this project.
"""

import os
import subprocess
import sys

import pmix


def fence(_args):
    return pmix.PMIX_SUCCESS, b""


def main():
    n, command = int(sys.argv[1]), sys.argv[2:]
    server = pmix.PMIxServer()
    upcalls = {
        "clientconnected": lambda _proc: pmix.PMIX_SUCCESS,
        "clientfinalized": lambda _proc: pmix.PMIX_SUCCESS,
        "fencenb": fence,
    }
    if server.init([], upcalls):
        return 1
    _, nodes = server.generate_regex([os.uname().nodename, "elsewhere"])
    _, ranks = server.generate_ppn([",".join(map(str, range(n))), ",".join(map(str, range(n, 2 * n)))])
    infos = [
        {"key": pmix.PMIX_JOB_SIZE, "value": 2 * n, "val_type": pmix.PMIX_UINT32},
        {"key": pmix.PMIX_NODE_MAP, "value": nodes, "val_type": pmix.PMIX_STRING},
        {"key": pmix.PMIX_PROC_MAP, "value": ranks, "val_type": pmix.PMIX_STRING},
    ]
    server.register_nspace("bench", n, infos)
    clients = []
    for rank in range(n):
        proc = {"nspace": "bench", "rank": rank}
        server.register_client(proc, os.getuid(), os.getgid())
        env = dict(os.environ)
        server.setup_fork(proc, env)
        env = {key.decode() if isinstance(key, bytes) else key: value for key, value in env.items()}
        clients.append(subprocess.Popen(command, env=env))
    codes = [client.wait() for client in clients]
    server.finalize()
    return any(codes)


if __name__ == "__main__":
    sys.exit(main())
