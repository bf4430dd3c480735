"""The rendezvous back end `pmix` of `torchrun`, whose agents are PMIx processes.

Theory of operation
-------------------
The agents agree through a store on published data (`pypmix.recipes.keyvalues`), which survives the loss of any agent:

- `join.N` lists the agents that request to join round N, in the order of their requests.
- `round` holds the number and the agents of the latest round; an agent's index in this list is its rank. The first
  living agent in `join.N` replaces it in one atomic change: when all living agents or the maximum number of agents have
  requested to join, or when the last call has expired and the minimum number has.
- `store.N` is the address of the TCPStore that the first agent of round N has opened for the workers, as with
  `pmix://`.
- `closed` exists when the job is done.

A PMIx event reports each lost agent to the other agents. An agent counts each lost agent of its round as an agent that
waits for a new round, so that `torchrun` restarts the workers: a new round begins at once, without heartbeats. A late
agent lists itself for the next round, and the others count it in the same way. If the round is full, it waits until an
agent is lost.
"""

from __future__ import annotations

import json
import time

from torch.distributed import PrefixStore
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from pypmix.recipes.keyvalues import KeyValues
from pypmix.standard.errors import PMIxError
from pypmix.standard.naming import name_procs, name_spans
from pypmix.torch.rendezvous import connect_store, listen_for_store, new_token, open_store
from pypmix.torch.store import PMIxStore
from pypmix.torch.world import client, losses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.distributed import TCPStore
    from torch.distributed.elastic.rendezvous.api import RendezvousParameters

JOIN_SECONDS = 600
LAST_CALL_SECONDS = 30
"""The defaults of `join_timeout` and `last_call_timeout`, the same as for the other back ends."""

PAUSE = 0.1
"""Seconds between two lookups of the state."""


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return the factory of the handler: `torchrun` calls this entry point without arguments."""
    return PMIxRendezvous


class PMIxRendezvous(RendezvousHandler):  # type: ignore[misc]
    """The rendezvous of one agent.

    Args:
        params: The parameters of `torchrun`. `--rdzv-conf` may contain `join_timeout`, `last_call_timeout` and
            `interface`, the network on which the workers' store listens.
    """

    def __init__(self, params: RendezvousParameters) -> None:
        self._params = params
        self._me = client()
        self._name = str(self._me.proc)
        self._lost = losses()
        self._values = KeyValues(self._me, f"torchrun.{params.run_id}", self._me.job.procs)
        self._round = -1
        self._members: list[str] = []
        self._stores: list[TCPStore] = []
        try:
            self._values.probe()
        except PMIxError as error:
            raise RendezvousConnectionError(f"--rdzv-backend=pmix cannot be used here: {error}") from error

    def get_backend(self) -> str:
        """Return the name of the back end."""
        return "pmix"

    @property
    def use_agent_store(self) -> bool:
        """Return True: workers use the store that an agent has opened."""
        return True

    def get_run_id(self) -> str:
        """Return the id of the job (`--rdzv-id`)."""
        return str(self._params.run_id)

    def next_rendezvous(self) -> RendezvousInfo:
        """Take part in the next round.

        Raises:
            RendezvousClosedError: The job is done.
            RendezvousTimeoutError: Too few agents joined in time.
        """
        deadline = time.monotonic() + (self._params.get_as_int("join_timeout") or JOIN_SECONDS)
        while True:
            self._join(deadline)
            try:
                info = self._bootstrap(deadline)
            except (PMIxError, OSError, RuntimeError):
                # If an agent was lost meanwhile, the next round replaces this one.
                if not self._find_lost(self._members):
                    raise
                continue
            return RendezvousInfo(self._agents_store(), self._members.index(self._name), len(self._members), info)

    def is_closed(self) -> bool:
        """Return True if the job is done."""
        return self._values.get("closed") is not None

    def set_closed(self) -> None:
        """Close the rendezvous for all agents: the job is done."""
        self._values.set("closed", b"")

    def num_nodes_waiting(self) -> int:
        """Return the number of reasons for a new round: the lost agents of this one, or the agents that wait."""
        if lost := self._find_lost(self._members):
            return len(lost)
        waiting = self._list_alive(f"join.{self._round + 1}")
        if len(self._members) == self._params.max_nodes:
            # In a full round only members count: their workers have failed, which the others' workers may not notice.
            waiting = [agent for agent in waiting if agent in self._members]
        return len(waiting)

    def shutdown(self) -> bool:
        """Close the rendezvous."""
        self.set_closed()
        return True

    def _join(self, deadline: float) -> None:
        """Wait for the next round with this agent, and set `_round` and `_members`.

        Raises:
            RendezvousClosedError: The job is done.
            RendezvousTimeoutError: No round with this agent began in time.
        """
        last_call: float | None = None
        while True:
            latest, members = self._read_round()
            if latest > self._round and self._name in members:
                self._round, self._members = latest, members
                return
            if self.is_closed():
                raise RendezvousClosedError("the job is done: an agent has closed the rendezvous")
            next_round = f"join.{latest + 1}"
            # Agents that wait for a place do not disturb a full round.
            if len(members) < self._params.max_nodes or self._name in members or self._find_lost(members):
                self._values.update(next_round, self._add_self)
            joined = self._list_alive(next_round)
            enough = len(joined) >= self._params.min_nodes
            if not enough:
                last_call = None
            elif last_call is None:
                last_call = time.monotonic() + (self._params.get_as_int("last_call_timeout") or LAST_CALL_SECONDS)
            if time.monotonic() > deadline:
                count = f"{len(joined)} of at least {self._params.min_nodes} agents"
                lost = name_procs(self._lost.copy(), self._me.nspace) or "none"
                raise RendezvousTimeoutError(f"only {count} have joined round {latest + 1} in time; lost: {lost}")
            expected = {str(proc) for proc in self._me.job} - self._lost_names()
            whole = len(joined) >= self._params.max_nodes or expected <= {*joined}
            if (
                enough
                and joined[0] == self._name
                and (whole or (last_call is not None and time.monotonic() > last_call))
            ):
                self._begin(latest + 1, joined[: self._params.max_nodes])
            else:
                time.sleep(PAUSE)

    def _add_self(self, old: bytes | None) -> bytes | None:
        agents = json.loads(old or b"[]")
        return old if self._name in agents else json.dumps([*agents, self._name]).encode()

    def _begin(self, number: int, members: Sequence[str]) -> None:
        """Make a round the latest one, unless another agent has done so."""
        new = json.dumps([number, members]).encode()
        self._values.update("round", lambda old: new if json.loads(old or b"[-1]")[0] == number - 1 else old)

    def _read_round(self) -> tuple[int, list[str]]:
        number, members = json.loads(self._values.get("round") or b"[-1, []]")
        return number, members

    def _list_alive(self, key: str) -> list[str]:
        lost = self._lost_names()
        return [agent for agent in json.loads(self._values.get(key) or b"[]") if agent not in lost]

    def _lost_names(self) -> set[str]:
        return {str(proc) for proc in self._lost.copy()}

    def _find_lost(self, members: Sequence[str]) -> set[str]:
        return self._lost_names() & {*members}

    def _bootstrap(self, deadline: float) -> RendezvousStoreInfo:
        """Open the store of this round's workers, or find it."""
        key = f"store.{self._round}"
        if self._members[0] == self._name:
            token = new_token()
            one_node = self._me.job.number_of_nodes == 1
            listener, addresses = listen_for_store(str(self._params.get("interface") or ""), one_node)
            store = open_store(listener, token)
            # The workers of the last round no longer run.
            self._stores[:] = [store]
            entry = {"token": token, "port": store.port, "addresses": addresses}
            self._values.set(key, json.dumps(entry).encode())
            return RendezvousStoreInfo(store.host, store.port)
        (text,) = self._watched_values().wait([key], max(deadline - time.monotonic(), 0.0))
        entry = json.loads(text)
        failures = []
        for address in entry["addresses"]:
            try:
                store = connect_store(address, entry["port"], entry["token"])
                return RendezvousStoreInfo(store.host, store.port)
            except (OSError, RuntimeError) as error:
                failures.append(f"{address} port {entry['port']}: {error}")
        whose = name_spans([self._members[0].rpartition(":")[2]])
        raise RendezvousConnectionError(f"the store of {whose} cannot be reached: {', '.join(failures)}")

    def _watched_values(self) -> KeyValues:
        """Return the key-value store, with waits that fail when an agent of this round is lost."""
        members = self._members

        def check() -> None:
            if lost := self._find_lost(members):
                raise PMIxError(f"{', '.join(sorted(lost))} ended without finalizing", operation="torchrun")

        return KeyValues(self._me, f"torchrun.{self._params.run_id}", self._me.job.procs, check=check)

    def _agents_store(self) -> PrefixStore:
        """Return the store of the agents of this round."""
        return PrefixStore(f"agents.{self._round}", PMIxStore(self._watched_values()))
