"""The rendezvous `pmix://` of `torch.distributed`.

Theory of operation
-------------------
Rank, size and place come from PMIx; no process reads a port, a file or a host's name from its environment.

Rank 0 listens first, on a port that the system chooses, and tells all ranks where, by `bcast`: no other process can
have the port by then. All have come when that ends; a rank that has not, or has ended, is named to all, on time. Then
rank 0 gives the open socket to its TCPStore, while the system already takes the connections of the others. These
try the addresses in turn until they reach a store that knows the token of this rendezvous, since an address such as
that of a container bridge may be there on each node.

Then all wait for each other, so that the store is there until all have reached it. On one node nothing but the end of
rank 0 keeps a rank from that, so there is no more to tell. On several they tell each other why they could not, and all
raise an error that names those which could not.

What torch does with that store later is torch's: a rank that is lost then is noticed by its own time limits.

With `store=pmix` rank 0 only makes sure that the server can do it, and tells the name of a store over published data.
There is nothing to reach. A wait of this store ends at once when a rank is lost.
"""

from __future__ import annotations

import json
import os
import socket
import time
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

import torch.distributed
from torch.distributed import TCPStore

from pypmix.host.addresses import ANYWHERE, is_loopback, listen, offered_addresses
from pypmix.requests.exchanging import seconds_left
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.torch.world import client, environment, losses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from torch.distributed import Store

    from pypmix.client import Client
    from pypmix.torch.store import PMIxStore

DEFAULT_TIMEOUT = timedelta(minutes=30)
"""That of torch for gloo, where the caller gives none."""

TOKEN = "pypmix/rendezvous"
"""The key in the store under which rank 0 puts the token of this rendezvous."""

TRY_SECONDS = 5.0
"""Seconds until one of several addresses is taken for one that cannot be reached from here, and for one try there."""

STORE_SECONDS = 8.0
"""Seconds for a store to connect, which asks for the names of addresses: resolvers try again after five."""

CONNECT_SECONDS = 60.0
"""Seconds that the store at an address has to answer."""

SHOWN = 3
"""The ranks whose problems an error tells."""

OPTIONS = {"store", "interface", "rank", "world_size"}
STORES = ("tcp", "pmix")

AGAIN = "pmix:// has no second rendezvous of the same process group"


def rendezvous(url: str, timeout: timedelta = DEFAULT_TIMEOUT, **_options: object) -> Iterator[tuple[Store, int, int]]:
    """Yield the store, the rank and the size of the job.

    In a worker of `torchrun`, whose agent alone is a process of PMIx, it is that of `env://`.

    Args:
        url: `pmix://`, with options: `interface=` is the network where the store listens, the name of an interface, an
            address or a CIDR; `store=pmix` takes a `PMIxStore` in place of a `TCPStore`.
        timeout: How long to wait for the other ranks.

    Raises:
        ValueError: The URL names a host, has an option that there is not, or a rank or a size that is not PMIx's.
        OperationTimeout: Not all ranks have come in time; `missing` names them if the server tells.
        PartialSuccess: A rank has ended without coming.
        PMIxError: Rank 0 cannot listen, or ranks cannot reach it.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        yield from torch.distributed.rendezvous("env://", timeout=timeout)
        return
    options = dict(parse_qsl(urlsplit(url).query))
    me = client()
    _check(url, options, me)
    environment()
    deadline = time.monotonic() + timeout.total_seconds()
    if options.get("store") == "pmix":
        shared = _shared(me, deadline)
        shared.set_timeout(timeout)
        yield shared, me.rank, me.job.size
        raise RuntimeError(AGAIN)
    store, problem = _serve(me, options, deadline) if me.rank == 0 else _reach(me, deadline)
    problems = _problems(me, store, problem, deadline)
    if store is None or any(problems):
        told = [f"rank {rank} cannot reach it: {text}" for rank, text in enumerate(problems) if text]
        raise PMIxError(
            f"the store of rank 0 is on {me.get(keys.HOSTNAME, 0)}; " + "; ".join(told[:SHOWN]),
            operation="pmix://",
            procs=[me.job[rank] for rank, text in enumerate(problems) if text],
            hint="pmix://?interface= names the network to use",
        )
    store.set_timeout(timeout)
    for name, value in (("MASTER_ADDR", store.host), ("MASTER_PORT", str(store.port))):
        os.environ.setdefault(name, value)
    yield store, me.rank, me.job.size
    raise RuntimeError(AGAIN)


def _shared(me: Client, deadline: float) -> PMIxStore:
    """Return the store over published data."""
    # Most programs do without it.
    from pypmix.recipes.keyvalues import KeyValues
    from pypmix.torch.store import PMIxStore

    lost = losses()

    def check() -> None:
        if lost:
            text = f"{', '.join([f'rank {proc.rank}' for proc in sorted(lost)])} ended without finalizing"
            raise PMIxError(text, operation="pmix://", procs=sorted(lost), status=statuses.ERR_PROC_ABORTED)

    name, problem = f"torch.{new_token()}", ""
    if me.rank == 0:
        try:
            KeyValues(me, name, me.job.procs).probe()
        except PMIxError as error:
            problem = str(error)
    name, problem = me.bcast([name, problem] if me.rank == 0 else None, timeout=seconds_left(deadline))
    if problem:
        raise NotSupported(
            f"there is no store=pmix here: {problem}", operation="pmix://", hint="pmix:// has a TCPStore"
        )
    return PMIxStore(KeyValues(me, name, me.job.procs, check=check))


def _check(url: str, options: Mapping[str, str], me: Client) -> None:
    split = urlsplit(url)
    if split.netloc or split.path.strip("/"):
        raise ValueError(f"{url}: rank 0 chooses the host and the port; pmix://?interface= names the network to use")
    unknown = set(options) - OPTIONS
    if unknown or options.get("store", "tcp") not in STORES:
        raise ValueError(
            f"{url}: the options of pmix:// are store=tcp, store=pmix and interface=, not {', '.join(sorted(options))}"
        )
    for name, value in (("rank", me.rank), ("world_size", me.job.size)):
        if options.get(name, str(value)) != str(value):
            raise ValueError(f"{name} is {options[name]} here, but {value} in PMIx: leave it out with pmix://")


def _serve(me: Client, options: Mapping[str, str], deadline: float) -> tuple[TCPStore | None, str]:
    """Tell the others where the store of rank 0 is, and open it."""
    token = new_token()
    try:
        listener, places = listening(options.get("interface", ""), _alone(me))
    except (OSError, ValueError) as error:
        # The others shall not wait for it.
        me.bcast({"problem": f"{type(error).__name__}: {error}"}, codec=json, timeout=seconds_left(deadline))
        raise
    told = {"token": token, "port": listener.getsockname()[1], "places": places}
    try:
        me.bcast(told, codec=json, timeout=seconds_left(deadline))
    except BaseException:
        listener.close()
        raise
    try:
        return opened(listener, token), ""
    except (OSError, RuntimeError) as error:
        return None, f"{type(error).__name__}: {error}"


def _alone(me: Client) -> bool:
    return me.job.number_of_nodes == 1


def _problems(me: Client, store: TCPStore | None, problem: str, deadline: float) -> list[str]:
    """Return for each rank why it does not reach the store; empty where it does."""
    if _alone(me):
        me.barrier(timeout=seconds_left(deadline))
        return [problem if rank == me.rank else "" for rank in range(me.job.size)]
    return me.allgather(problem, timeout=seconds_left(deadline))


def new_token() -> str:
    """Return what tells one store from all others."""
    return os.urandom(8).hex()


def listening(interface: str, alone: bool) -> tuple[socket.socket, list[str]]:
    """Return a socket for a store, and by which addresses it may be reached.

    Args:
        interface: The network where it listens, if that is given.
        alone: Whether it is for this node alone.

    Raises:
        OSError: There is no such interface, or no port.
    """
    places = ["127.0.0.1"] if alone and not interface else offered_addresses(interface)
    return listen((places[0] if alone or interface else ANYWHERE, 0)), places


def opened(listener: socket.socket, token: str) -> TCPStore:
    """Return a new store with a token, which takes a socket over that listens."""
    own, port = listener.getsockname()[:2]
    place = own if own not in (ANYWHERE, "0.0.0.0") else "localhost"
    # The store closes the socket.
    store = _store(place, port, is_master=True, multi_tenant=True, master_listen_fd=listener.detach())
    store.set(TOKEN, token)
    return store


def _store(place: str, port: int, **options: Any) -> TCPStore:
    """Return a TCPStore, of libuv where torch has that and the user does not say otherwise."""
    if os.environ.get("USE_LIBUV", "1") == "1":
        try:
            return TCPStore(place, port, wait_for_workers=False, **options)
        except RuntimeError as error:
            # A torch without it, such as Debian's, says so before it looks at the socket.
            if "without libuv" not in str(error):
                raise
    return TCPStore(place, port, wait_for_workers=False, use_libuv=False, **options)


def _reach(me: Client, deadline: float) -> tuple[TCPStore | None, str]:
    """Return the store of rank 0, or why it cannot be reached."""
    found = me.bcast(codec=json, timeout=seconds_left(deadline))
    if "problem" in found:
        text = f"rank 0 could not open its store: {found['problem']}"
        raise PMIxError(text, operation="pmix://", procs=[me.job[0]])
    tried = []
    for place in found["places"]:
        try:
            return connected(place, found["port"], found["token"], seconds_left(deadline)), ""
        except (OSError, RuntimeError) as error:
            tried.append(f"{place} port {found['port']}: {error}")
    return None, ", ".join(tried)


def connected(place: str, port: int, token: str, seconds: float = CONNECT_SECONDS) -> TCPStore:
    """Return the store of this rendezvous at an address.

    Raises:
        OSError, RuntimeError: There is none.
    """
    end = time.monotonic() + min(seconds, CONNECT_SECONDS)
    while True:
        # torch would try again and again where nothing listens any more.
        with socket.create_connection((place, port), min(seconds, TRY_SECONDS)) as probe:
            address = probe.getpeername()[0]
        limit = timedelta(seconds=STORE_SECONDS)
        try:
            store = _store(address, port, is_master=False, timeout=limit)
        except RuntimeError:
            if time.monotonic() > end:
                raise
            continue
        # On this node alone, no other process can have the port. Rank 0 may not have set the token yet.
        if not is_loopback(place):
            store.wait([TOKEN], limit)
            if store.get(TOKEN).decode() != token:
                raise OSError("it is the store of another job")
        return store
