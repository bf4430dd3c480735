"""Messages between the servers of one job: a carrier, an exchange on top of it, a crossing on top of that.

Theory of operation
-------------------
Each question about a session has one owner.

* *Which servers are present, and how is the state ordered?* The root: the launcher's server, or without a launcher the
  first server by name (`membership`). It declares losses and numbers all changes that every server has to know: news of
  procs, jobs, process sets (`statelog`, `jobs`, `psets`). A change costs one message up and one to each server.
* *How does a collective end?* The first of its participants by name that is not declared lost (`coordinator`). No other
  server gets a message about it, so disjoint collectives do not wait for each other, nor for a server that is stopped.
  Of more than 33 participants those in the middle combine contributions (`tree`). All apply a declared loss at the same
  place in the order, so after that all turn to the same next coordinator; it asks the participants for a decision that
  they may have got, and decides only if there is none (`participant`).
* *Where is a proc, and has it ended?* The launcher places procs, their servers report their end, and both count once
  the root has ordered them (`places`).

Direct connections are an optimization: two servers that do not reach each other exchange messages through the root
(`detours`). Messages that take the direct way wait at the receiver for the changes that their sender knew.

These are the ways of starting, and their roots:

    ====================================================================  ==========================================
    pypmix run with --host, ssh, Slurm, Flux, PRRTE, symmetric            the launcher; its loss ends the session
    Kubernetes, Dask and Ray, where daemons may reach the launcher alone  the launcher, over detours (`bridge`)
    nodes that are added later (`grow`), and tools on any node            the launcher introduces them (`introduce`)
    --nodes, within one process                                           the first node
    --join, hosts of users                                                the first server by name; the next one takes
                                                                          its place when all others agree
    ====================================================================  ==========================================
"""

from __future__ import annotations

from pypmix.host.exchange.carrier import Carrier
from pypmix.host.exchange.crossing import Crossing, Forwarded
from pypmix.host.exchange.errors import ExchangeTimeout, ServerLost
from pypmix.host.exchange.exchange import Exchange, Gathering, Underway
from pypmix.host.exchange.inprocess import Hub, HubCarrier, VirtualTime
from pypmix.host.exchange.kinds import Gathered
from pypmix.host.exchange.tcp import TCPCarrier

__all__ = [
    "Carrier",
    "Crossing",
    "Exchange",
    "ExchangeTimeout",
    "Forwarded",
    "Gathered",
    "Gathering",
    "Hub",
    "HubCarrier",
    "ServerLost",
    "TCPCarrier",
    "Underway",
    "VirtualTime",
]
