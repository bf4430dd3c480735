"""Processes of JAX of which one fails: `jax_faults.py WHAT`; each prints what it is told of it."""

from __future__ import annotations

import os
import signal
import socket
import sys

import jax
from jax._src.lib import _jax

import pypmix.jax
from pypmix import Client, OperationTimeout, PartialSuccess

LIMIT = 60


def ranks(error: pypmix.PMIxError) -> list[int]:
    return sorted(proc.rank for proc in error.missing or ())


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def away(me: Client) -> None:
    """One does not come, and is then killed."""
    if me.rank == 2:
        me.get("waited", proc=0, timeout=LIMIT)
        die()
    try:
        jax.distributed.initialize(initialization_timeout=3)
    except OperationTimeout as error:
        print(f"{me.rank} waited for {ranks(error)}", flush=True)
    me.put("waited", True)
    me.fence(me.job.procs[:2], timeout=LIMIT)
    try:
        jax.distributed.initialize(initialization_timeout=LIMIT)
    except PartialSuccess as error:
        print(f"{me.rank} without {ranks(error)}", flush=True)


def coordinator(me: Client) -> None:
    """Process 0 is killed when all have its address, before JAX's server starts."""
    if me.rank == 0:
        pypmix.jax.PMIxCluster.get_coordinator_address(LIMIT)
        die()
    try:
        jax.distributed.initialize(cluster_detection_method="pmix", initialization_timeout=LIMIT)
    except PartialSuccess as error:
        print(f"{me.rank} before JAX without {ranks(error)}", flush=True)


def connecting(me: Client) -> None:
    """One is killed when all have the address, before it connects: from here on JAX waits for it, and ends."""
    if me.rank == 2:
        pypmix.jax.PMIxCluster.get_coordinator_address(LIMIT)
        die()
    jax.distributed.initialize(initialization_timeout=8)


def port(me: Client) -> None:
    """Only what shares ports, as JAX's server does, gets the one that process 0 holds; one that is taken is told."""
    found = pypmix.jax.PMIxCluster
    taken = socket.create_server(("", 0))
    if me.rank == 0:
        address, _, number = found.get_coordinator_address(LIMIT).rpartition(":")
        for family, host in (socket.AF_INET, address), (socket.AF_INET, ""), (socket.AF_INET6, "::1"):
            with socket.socket(family) as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    other.bind((host, int(number)))
                except OSError as error:
                    print(f"{error.strerror}", flush=True)
        service = _jax.get_distributed_runtime_service(
            f"[::]:{number}", 2, heartbeat_timeout=LIMIT, shutdown_timeout=LIMIT
        )
        me.fence(timeout=LIMIT)
        service.shutdown()
    else:
        found.get_coordinator_address(LIMIT)
        me.fence(timeout=LIMIT)
    number = me.bcast(taken.getsockname()[1], timeout=LIMIT)
    for given in str(number), "99999":
        try:
            found.get_coordinator_address(LIMIT, given)
        except pypmix.PMIxError as error:
            print(f"{me.rank}: {error.detail.replace(str(number), 'PORT')}", flush=True)
    for seen in "0,1", "0":
        os.environ["CUDA_VISIBLE_DEVICES"] = seen
        print(f"{me.rank} of {seen} takes {found.get_local_process_id()}", flush=True)


if __name__ == "__main__":
    with Client() as me:
        globals()[sys.argv[1]](me)
