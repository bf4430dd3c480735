"""Counts connections, and what it costs to start, of N carriers over TCP on loopback that meet by one of them.

    python tests/bench/links.py [--servers 16,32,64,128,200] [--mesh 32] [--all] [--keep-alive 8]

All carriers are in this process, each with its thread. The first one introduces them to each other, as a launcher does.
Measured: the time until everybody knows everybody, and the CPU of all of it; the connections of a server then, after
each server has told all others of a job (25 bytes) and has been in a fence of all; and the time until all have left at
once. Connections are the median and the most of all servers but the first. `--all` compares with carriers that are all
connected with each other, in turn with the others.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import threading
import time

from pypmix.host.exchange import Exchange, TCPCarrier
from pypmix.host.exchange.limits import MAX_MESH

SECRET = b"a secret of the session"
PATIENCE = 300.0


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("it did not come about")
        time.sleep(0.01)


def start(count, mesh, keep_alive):
    """Return exchanges over carriers that meet by the first one."""
    options = {"introducer": "n0000", "mesh": mesh, "keep_alive": keep_alive}
    first = TCPCarrier("n0000", SECRET, **options)
    carriers = [
        TCPCarrier(f"n{number:04}", SECRET, peers={"n0000": first.address}, **options) for number in range(1, count)
    ]
    exchanges = [Exchange(carrier) for carrier in (first, *carriers)]
    for exchange in exchanges:
        exchange.start()
    return exchanges


def connections(exchanges):
    """Return the connections of a server: the median of all but the first, and the most."""
    counts = [len(exchange._carrier.connected) for exchange in exchanges[1:]]
    return f"{statistics.median(counts):.0f}/{max(counts)}"


def measure(count, mesh, keep_alive):
    """Return the figures of a number of servers."""
    heard = [0]
    lock = threading.Lock()

    def hear(_sender, _data):
        with lock:
            heard[0] += 1

    began, used = time.monotonic(), time.process_time()
    exchanges = start(count, mesh, keep_alive)
    for exchange in exchanges:
        exchange.hear("bench.job", hear)
    until(lambda: all(len(exchange.members) == count for exchange in exchanges))
    known = time.monotonic() - began
    everyone = [exchange._carrier._peers for exchange in exchanges]
    until(lambda: not any(peers.dialer.attempts for peers in everyone))
    figures = {
        "s": round(known, 2),
        "cpu ms a server": round((time.process_time() - used) * 1e3 / count, 1),
        "connections": connections(exchanges),
    }
    used = time.process_time()
    for exchange in exchanges:
        exchange.broadcast("bench.job", b"d" * 25)
    until(lambda: heard[0] == count * (count - 1))
    figures["cpu ms, told"] = round((time.process_time() - used) * 1e3 / count, 1)
    figures["connections, told"] = connections(exchanges)
    names = exchanges[0].members
    for turn in range(2):
        ends = []
        used = time.process_time()
        for exchange in exchanges:
            exchange.allgather(b"s", names, b"", lambda _, error, ends=ends: ends.append(error), timeout=PATIENCE)
        until(lambda ends=ends: len(ends) == count)
        assert not any(ends)
        figures[f"cpu ms, {'first ' * (not turn)}fence"] = round((time.process_time() - used) * 1e3 / count, 1)
    figures["connections, fence"] = connections(exchanges)
    began, used = time.monotonic(), time.process_time()
    closing = [threading.Thread(target=exchange.close) for exchange in exchanges]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
    figures["s, close"] = round(time.monotonic() - began, 2)
    figures["cpu ms, close"] = round((time.process_time() - used) * 1e3 / count, 1)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="16,32,64,128,200")
    parser.add_argument("--mesh", type=int, default=MAX_MESH)
    parser.add_argument("--keep-alive", type=float, default=8.0)
    parser.add_argument("--all", action="store_true", help="with carriers that are all connected, too")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    header = None
    for count in map(int, options.servers.split(",")):
        for mesh in (options.mesh, count) if options.all else (options.mesh,):
            row = {"servers": count, "mesh": mesh, **measure(count, mesh, options.keep_alive)}
            if header is None:
                header = list(row)
                print("  ".join([f"{name:>10}" for name in header]))
            print("  ".join([f"{row[name]!s:>{max(10, len(name))}}" for name in header]), flush=True)


if __name__ == "__main__":
    main()
