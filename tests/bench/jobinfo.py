"""Measures the job info of big jobs: how many bytes each rank reads when it opens, and what reading them takes.

    python tests/bench/jobinfo.py [--ranks 64,256,1000,10000] [--nodes 1,10,100,1000,10000]

Each size stands by itself, without a network: the job is described as `pypmix run` describes one, packed as a server
packs it, and read as a client reads it, which looks at the values of the job and at its own. The times are CPU time,
the best of three.
"""

from __future__ import annotations

import argparse
import time

from pypmix.engine.python.client import Client, ServerInfo
from pypmix.engine.python.datastore import PLAIN, DataStore
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.standard import codes, keys
from pypmix.standard.types import Proc
from pypmix.wire.codec import Unpacker
from pypmix.wire.jobinfo import JobInfo, encode_jobinfo

RELEASE = (6, 1, 0)
DESCRIBED = 2
ROUNDS = 3


def job_of(ranks: int, nodes: int) -> JobLayout:
    """Return a job with its ranks in blocks on nodes with names of a usual length."""
    each = -(-ranks // nodes)
    places = [range(number * each, min(ranks, (number + 1) * each)) for number in range(nodes)]
    return JobLayout(
        "pypmix-host-12345-dc55b81ebd37eec744377308@1",
        (Application(("python3", "hello.py"), np=ranks),),
        tuple([NodeLayout(f"node{number:05}.example.org", tuple(place)) for number, place in enumerate(places)]),
        tmpdir="/tmp/pypmix-host-12345-e180dc",
        wdir="/home/user",
    )


def read(job: JobInfo, data: bytes) -> float:
    """Return the CPU seconds in which a client reads what it got."""
    me = Proc(job.nspace, 0)
    store = DataStore(me, "node00000.example.org", RELEASE)
    client = Client(me, store, ServerInfo("server.0", RELEASE, DESCRIBED, False))
    begin = time.process_time()
    unpacker = Unpacker(data, DESCRIBED, RELEASE)
    client.learn([client.job_values(unpacker.one(codes.STRING), data, unpacker.position)])
    for proc, key in ((me, keys.LOCAL_RANK), (Proc(job.nspace, 0xFFFFFFFE), keys.JOB_SIZE)):
        assert store.find(proc, key, PLAIN) is not None
    return time.process_time() - begin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="64,256,1000,10000")
    parser.add_argument("--nodes", default="1,10,100,1000,10000")
    options = parser.parse_args()
    print(f"{'ranks':>7} {'nodes':>6} {'bytes':>10} {'of nodes':>10} {'of procs':>10} {'to pack':>9} {'to read':>9}")
    for ranks in map(int, options.ranks.split(",")):
        for nodes in map(int, options.nodes.split(",")):
            if nodes > ranks or ranks > 1000 * nodes:
                continue
            job = job_of(ranks, nodes).info()
            begin = time.process_time()
            data = encode_jobinfo(job, DESCRIBED, RELEASE)
            packing = time.process_time() - begin
            parts = [
                len(encode_jobinfo(part, DESCRIBED, RELEASE))
                for part in (JobInfo(job.nspace, nodes=job.nodes), JobInfo(job.nspace, procs=job.procs))
            ]
            reading = min(read(job, data) for _ in range(ROUNDS))
            columns = f"{len(data):>10,} {parts[0]:>10,} {parts[1]:>10,}"
            print(f"{ranks:>7,} {nodes:>6,} {columns} {packing * 1e3:>6.1f} ms {reading * 1e3:>6.2f} ms", flush=True)


if __name__ == "__main__":
    main()
