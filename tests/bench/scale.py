"""Counts what servers send each other, and works out how long an operation takes, by the number of servers.

    python tests/bench/scale.py [--servers 2,16,64,256,1000] [--ranks 1] [--out scale.json] [--chart scale.svg]

Real exchanges and crossings run on virtual time: a message takes `--hop` microseconds on its way, and keeps its sender
and its receiver busy one after the other for what it costs in CPU (`--cost`, by default measured first: a fence of two
servers on this machine). Told to all is the word of one server that has registered a job. Collectives are those of
participants without crossings. A construct is mended after the loss of a server in the middle, or of the
coordinator, when all but one have contributed: the time is that from the word of the loss, which all get at a time,
until all have ended.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections import Counter
from functools import lru_cache
from pathlib import Path

from pypmix.host.exchange import Exchange, Hub, participant
from pypmix.host.exchange.codec import PLACES, Field
from pypmix.host.exchange.kinds import CONNECT, CONSTRUCT, FENCE, OUTCOME, Part
from pypmix.host.exchange.places import Places
from pypmix.standard.types import RANK_WILDCARD, Proc

NSPACE = "job"
MANY = 1000
"""The most servers that a fence collects from."""

REGISTRATION = b"r" * 25
"""What a server tells of a job."""

COMMITTED = 1 << 10
"""Bytes that each server has for a fence that collects."""


TOPIC = "scale.broadcast"


class Paced(Hub):
    """A hub where a message costs time on both sides and on its way, and is counted.

    Args:
        cost: Seconds of CPU that a message takes on each side.
        hop: Seconds on its way.
    """

    def __init__(self, cost, hop):
        super().__init__()
        self.cost = cost
        self.hop = hop
        self.reset()

    def reset(self):
        self.sent, self.got, self.bytes, self.free = Counter(), Counter(), Counter(), {}

    def send(self, carrier, to, message):
        self.sent[carrier.name] += 1
        self.got[to] += 1
        self.bytes[carrier.name] += len(message)
        receiver = self._carriers.get(to)
        if receiver is None:
            return
        left = self._busy(carrier.name, self.clock.now)
        self.clock.at(left + self.hop, lambda: self._arrive(carrier, receiver, message))

    def _arrive(self, carrier, receiver, message):
        self.clock.at(self._busy(receiver.name, self.clock.now), lambda: receiver.arrived(carrier, message))

    def _busy(self, name, now):
        done = self.free[name] = max(now, self.free.get(name, 0.0)) + self.cost
        return done

    def busiest(self, seconds):
        """Return the figures of what has been done since `reset`."""
        messages = self.sent + self.got
        return {
            "messages": sum(self.sent.values()),
            "messages at the busiest": max(messages.values(), default=0),
            "bytes sent by the busiest": max(self.bytes.values(), default=0),
            "ms": round(seconds * 1e3, 3),
        }


class Here:
    """The servers that one of thousands has, as the set of an exchange: all had the same."""

    def __init__(self, names):
        self.names, self.gone = names, set()

    def __contains__(self, name):
        return name in self.names and name not in self.gone

    def __len__(self):
        return len(self.names) - len(self.gone)

    def __iter__(self):
        return iter(self.names - self.gone)

    def __sub__(self, others):
        return self.names - self.gone - others

    difference = __sub__

    def copy(self):
        return self.names - self.gone

    def discard(self, name):
        self.gone.add(name)


class Session:
    """Servers that have each other, with `ranks` procs each of one job.

    The servers share one record of who is there and of where procs are: that is what all would know, and lets
    thousands of them be simulated.
    """

    def __init__(self, count, ranks, hub, *, mortal=False):
        self.hub = hub
        self.names = [f"n{number:05}" for number in range(count)]
        self.places = {rank: self.names[rank // ranks] for rank in range(count * ranks)}
        clock = hub.clock
        self.exchanges = [Exchange(hub.carrier(name), later=clock.later, now=clock.time) for name in self.names]
        here, self.present = set(self.names), {}
        present = self.present
        known = Places()
        known.add(self.names[0], NSPACE, self.places)
        for name, exchange in zip(self.names, self.exchanges, strict=True):
            exchange.membership.present = Here(here) if mortal else here
            carrier = hub._carriers[name]
            carrier._on_message = lambda sender, message, exchange=exchange: exchange.arrivals.take(sender, message)
            present[name] = carrier
            carrier._present = present
            exchange.collectives.coordinator.attendance.places = known
        self.party = known.party((Proc(NSPACE, RANK_WILDCARD),))

    def collective(self, kind, data=b"", infos=()):
        """Return the figures of one collective of all."""
        self.hub.reset()
        begin = self.hub.clock.now
        ends = []
        for exchange in self.exchanges:
            part = Part(exchange.number(), kind, "name", self.party, (), 0, 1, infos, data=data)
            exchange.collectives.begin(part, lambda outcome: ends.append((self.hub.clock.now, outcome)), 0.0)
        self.hub.run()
        assert len(ends) == len(self.names)
        assert not {outcome.status for _, outcome in ends} - {0}
        return self.hub.busiest(max(at for at, _ in ends) - begin)

    def mended(self, *, root):
        """Return the figures of a construct that loses a server when all but the last have contributed."""
        first = min(self.names)
        lost = first if root else next(name for name in self.names if name != first)
        ends = {}
        for exchange in reversed(self.exchanges):
            part = Part(exchange.number(), CONSTRUCT, "name", self.party)

            def begin(exchange=exchange, part=part):
                exchange.collectives.begin(part, lambda _: ends.update({exchange.name: self.hub.clock.now}), 0.0)

            self.hub.clock.at(0.0 if exchange is not self.exchanges[-1] else 10.0, begin)
        self.hub.run(10.0)
        self.hub.reset()
        del self.present[lost]
        self.hub._carriers.pop(lost)
        for exchange in self.exchanges:
            if exchange.name != lost:
                exchange.soon(exchange._changed, lost, False)
        self.hub.run()
        assert len(ends.keys() - {lost}) == len(self.names) - 1
        return self.hub.busiest(max(ends.values()) - 10.0)


def memory(count, ranks):
    """Return the bytes that a server needs to know where the procs are, and those that tell it."""
    places = {rank: f"n{rank // ranks:05}" for rank in range(count * ranks)}
    told = PLACES.write((NSPACE, places))
    del places
    tracemalloc.start()
    known = Places()
    known.add("n00000", NSPACE, PLACES.read(told)[1])
    for number in range(count):
        known.add(f"n{number:05}", NSPACE, {})
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size, len(told)


def modex(session):
    """Return the figures of one proc's data, asked for by the last server."""
    session.hub.reset()
    begin = session.hub.clock.now
    ends = []
    session.exchanges[0].handle("modex", lambda _sender, _data, answer: answer(b"d" * COMMITTED, None))
    session.exchanges[-1].request(session.names[0], "modex", b"", lambda *_: ends.append(session.hub.clock.now))
    session.hub.run()
    return session.hub.busiest(ends[0] - begin)


def told(session):
    """Return the figures of one server that tells all others of a job, as each does that registers it."""
    hub = session.hub
    hub.reset()
    begin = hub.clock.now
    heard = []
    for exchange in session.exchanges:
        exchange.hear(TOPIC, lambda _sender, _data: heard.append(hub.clock.now))
    session.exchanges[0].tell_others(TOPIC, REGISTRATION)
    hub.run()
    assert len(heard) == len(session.names) - 1
    return hub.busiest(max(heard) - begin)


def cost_of_a_message():
    """Return the seconds of CPU that a message takes on each side, from fences of two servers on this machine."""
    best = 1.0
    session = Session(2, 1, Paced(0.0, 0.0))
    for _ in range(5):
        begin = time.process_time()
        for _ in range(500):
            session.collective(FENCE)
        # Two messages, each with two sides.
        best = min(best, (time.process_time() - begin) / 500 / 4)
    return best


def measure(count, ranks, cost, hop):
    """Return the figures of all operations for a number of servers."""
    session = Session(count, ranks, Paced(cost, hop))
    found = {"fence": session.collective(FENCE)}
    if count <= MANY:
        # Its result is in memory as often as there are servers.
        found["fence, collecting"] = session.collective(FENCE, b"d" * COMMITTED)
    found["construct"] = session.collective(CONSTRUCT)
    found["connect"] = session.collective(CONNECT)
    if count > 2:
        found["mended, a server lost"] = Session(count, ranks, Paced(cost, hop), mortal=True).mended(root=False)
        found["mended, coordinator lost"] = Session(count, ranks, Paced(cost, hop), mortal=True).mended(root=True)
    if count > 1:
        found["modex"] = modex(session)
        found["told to all"] = told(session)
    return found


def draw(path, rows, cost, hop):
    """Draw milliseconds and messages by the number of servers."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "pypmix"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(14.5, 4), layout="constrained")
    usual = "fence", "fence, collecting", "construct", "connect", "modex", "told to all"
    lost = "mended, a server lost", "mended, coordinator lost"
    for axis, figure_of, operations in (
        (axes[0], lambda row: row["ms"], usual),
        (axes[1], lambda row: row["messages at the busiest"], usual),
        (axes[2], lambda row: row["messages"] / row["servers"], lost),
    ):
        for operation in operations:
            found = [row for row in rows if row["operation"] == operation]
            axis.plot([row["servers"] for row in found], list(map(figure_of, found)), "o-", ms=3, label=operation)
    axes[0].set_title(
        f"milliseconds ({cost * 1e6:.0f} us of CPU and {hop * 1e6:.0f} us on the way for a message)", size=9
    )
    axes[1].set_title("messages sent and received by the busiest server", size=9)
    axes[2].set_title("messages per server, from a loss to the end of a construct", size=9)
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlabel("servers")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="2,8,16,33,34,64,256,1000,4000,10000")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--cost", type=float, default=0.0, help="microseconds of CPU of a message on each side")
    parser.add_argument("--hop", type=float, default=100.0, help="microseconds that a message is on its way")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--chart", type=Path, help="an SVG to draw; needs matplotlib")
    options = parser.parse_args()
    cost = options.cost * 1e-6 or cost_of_a_message()
    hop = options.hop * 1e-6
    # All servers read the same bytes of a decision, each of which a simulation needs to read once.
    participant.OUTCOME = Field(OUTCOME.write, lru_cache(maxsize=4)(OUTCOME.read))
    print(f"a message costs {cost * 1e6:.1f} us on each side, and is {options.hop:g} us on its way\n")
    print(f"{'servers':>7} {'operation':<24} {'messages':>9} {'busiest':>8} {'its bytes':>11} {'ms':>9}")
    rows = []
    for count in map(int, options.servers.split(",")):
        for operation, figures in measure(count, options.ranks, cost, hop).items():
            rows.append({"servers": count, "operation": operation, **figures})
            total, most, size, took = list(figures.values())[:4]
            print(f"{count:>7} {operation:<24} {total:>9} {most:>8} {size:>11} {took:>9.2f}", flush=True)
    count = max(map(int, options.servers.split(",")))
    size, told = memory(count, options.ranks)
    print(
        f"\nwhere {count * options.ranks} procs are takes {size / 1e6:.1f} MB in each server, and {told} bytes to tell"
    )
    if options.chart is not None:
        draw(options.chart, rows, cost, hop)
    if options.out is not None:
        facts = {"cost": cost, "hop": hop, "ranks": options.ranks, "rows": rows}
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
