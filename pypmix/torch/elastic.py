"""The rendezvous back end `pmix` of `torchrun`, whose agents are processes of PMIx.

Theory of operation
-------------------
The agents agree by a store over published data (`pypmix.recipes.keyvalues`), which no agent's end takes away:

- `join.N` lists the agents that want to be in round N, in the order in which they came.
- `round` says which round is the latest, and who takes part in it; the place in that list is the agent's rank. It is
  replaced in one atomic change by the first living agent in `join.N`, when all agents that live have come, or as many
  as there may be, or, with as many as there have to be, when the last call is over.
- `store.N` is where the first agent of round N has opened the TCPStore for its workers, as `pmix://` opens one.
- `closed` is there when the job is done.

PMIx tells the agents of each that is lost. An agent of a round counts that as one that waits, by which `torchrun`
restarts its workers: so the others go on in a new round at once, and none has to send heartbeats. An agent that comes
late lists itself for the next round, which the others see in the same way; where the round is full, it waits until one
of its agents is lost.
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
from pypmix.torch.rendezvous import connected, listening, new_token, opened
from pypmix.torch.store import PMIxStore
from pypmix.torch.world import client, losses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.distributed import TCPStore
    from torch.distributed.elastic.rendezvous.api import RendezvousParameters

JOIN_SECONDS = 600
LAST_CALL_SECONDS = 30
"""The defaults of `join_timeout` and `last_call_timeout`, which are those of the other back ends."""

PAUSE = 0.1
"""Seconds between two looks at the state."""


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return what makes a handler, as `torchrun` wants it of the entry point."""
    return PMIxRendezvous


class PMIxRendezvous(RendezvousHandler):  # type: ignore[misc]
    """The rendezvous of one agent.

    Args:
        params: Those of `torchrun`. `--rdzv-conf` may have `join_timeout`, `last_call_timeout` and `interface`, the
            network where the workers' store listens.
    """

    def __init__(self, params: RendezvousParameters) -> None:
        self._params = params
        self._me = client()
        self._own = str(self._me.proc)
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
        """Tell that workers use the store which an agent has opened."""
        return True

    def get_run_id(self) -> str:
        """Return the id of the job (`--rdzv-id`)."""
        return str(self._params.run_id)

    def next_rendezvous(self) -> RendezvousInfo:
        """Take part in the next round.

        Raises:
            RendezvousClosedError: The job is done.
            RendezvousTimeoutError: Not enough agents have come in time.
        """
        deadline = time.monotonic() + (self._params.get_as_int("join_timeout") or JOIN_SECONDS)
        while True:
            self._join(deadline)
            try:
                info = self._bootstrap(deadline)
            except (PMIxError, OSError, RuntimeError):
                # With an agent that was lost meanwhile there is another round.
                if not self._gone(self._members):
                    raise
                continue
            return RendezvousInfo(self._store(), self._members.index(self._own), len(self._members), info)

    def is_closed(self) -> bool:
        """Tell whether the job is done."""
        return self._values.get("closed") is not None

    def set_closed(self) -> None:
        """Tell all agents that the job is done."""
        self._values.set("closed", b"")

    def num_nodes_waiting(self) -> int:
        """Return how many agents there are for whom a new round is worth it: those that came, or were lost."""
        if gone := self._gone(self._members):
            return len(gone)
        waiting = self._alive(f"join.{self._round + 1}")
        if len(self._members) == self._params.max_nodes:
            # There is a place only for members, whose workers have failed: those of the others may not notice.
            waiting = [agent for agent in waiting if agent in self._members]
        return len(waiting)

    def shutdown(self) -> bool:
        """Close the rendezvous."""
        self.set_closed()
        return True

    def _join(self, deadline: float) -> None:
        """Wait for the next round with this agent; `_round` and `_members` are that round then.

        Raises:
            RendezvousClosedError: The job is done.
            RendezvousTimeoutError: There is none in time.
        """
        last_call: float | None = None
        while True:
            latest, members = self._latest()
            if latest > self._round and self._own in members:
                self._round, self._members = latest, members
                return
            if self.is_closed():
                raise RendezvousClosedError("the job is done: an agent has closed the rendezvous")
            coming = f"join.{latest + 1}"
            # A round that is full is not disturbed by those who wait for a place.
            if len(members) < self._params.max_nodes or self._own in members or self._gone(members):
                self._values.update(coming, self._listed)
            joined = self._alive(coming)
            enough = len(joined) >= self._params.min_nodes
            if not enough:
                last_call = None
            elif last_call is None:
                last_call = time.monotonic() + (self._params.get_as_int("last_call_timeout") or LAST_CALL_SECONDS)
            if time.monotonic() > deadline:
                need = f"{len(joined)} of at least {self._params.min_nodes} agents"
                raise RendezvousTimeoutError(f"{need} have come to round {latest + 1} in time; lost: {self._names()}")
            expected = {str(proc) for proc in self._me.job} - self._names()
            whole = len(joined) >= self._params.max_nodes or expected <= {*joined}
            if (
                enough
                and joined[0] == self._own
                and (whole or (last_call is not None and time.monotonic() > last_call))
            ):
                self._begin(latest + 1, joined[: self._params.max_nodes])
            else:
                time.sleep(PAUSE)

    def _listed(self, old: bytes | None) -> bytes | None:
        agents = json.loads(old or b"[]")
        return old if self._own in agents else json.dumps([*agents, self._own]).encode()

    def _begin(self, number: int, members: Sequence[str]) -> None:
        """Make a round the latest one, if it follows the one that is."""
        new = json.dumps([number, members]).encode()
        self._values.update("round", lambda old: new if json.loads(old or b"[-1]")[0] == number - 1 else old)

    def _latest(self) -> tuple[int, list[str]]:
        number, members = json.loads(self._values.get("round") or b"[-1, []]")
        return number, members

    def _alive(self, key: str) -> list[str]:
        lost = self._names()
        return [agent for agent in json.loads(self._values.get(key) or b"[]") if agent not in lost]

    def _names(self) -> set[str]:
        return {str(proc) for proc in self._lost.copy()}

    def _gone(self, members: Sequence[str]) -> set[str]:
        return self._names() & {*members}

    def _bootstrap(self, deadline: float) -> RendezvousStoreInfo:
        """Open the store of this round's workers, or find it."""
        key = f"store.{self._round}"
        if self._members[0] == self._own:
            token = new_token()
            listener, places = listening(str(self._params.get("interface") or ""), self._me.job.number_of_nodes == 1)
            store = opened(listener, token)
            # Workers of the last round are gone.
            self._stores[:] = [store]
            found = {"token": token, "port": store.port, "places": places}
            self._values.set(key, json.dumps(found).encode())
            return RendezvousStoreInfo(store.host, store.port)
        (told,) = self._watched().wait([key], max(deadline - time.monotonic(), 0.0))
        found = json.loads(told)
        tried = []
        for place in found["places"]:
            try:
                store = connected(place, found["port"], found["token"])
                return RendezvousStoreInfo(store.host, store.port)
            except (OSError, RuntimeError) as error:
                tried.append(f"{place} port {found['port']}: {error}")
        raise RendezvousConnectionError(f"the store of {self._members[0]} cannot be reached: {', '.join(tried)}")

    def _watched(self) -> KeyValues:
        """Return the store, with waits that end when an agent of this round is lost."""
        members = self._members

        def check() -> None:
            if gone := self._gone(members):
                raise PMIxError(f"{', '.join(sorted(gone))} ended without finalizing", operation="torchrun")

        return KeyValues(self._me, f"torchrun.{self._params.run_id}", self._me.job.procs, check=check)

    def _store(self) -> PrefixStore:
        """Return the store of the agents of this round."""
        return PrefixStore(f"agents.{self._round}", PMIxStore(self._watched()))
