"""The rendezvous `pmix://` of `torch.distributed`.

Theory of operation
-------------------
PMIx provides the rank, the size and the addresses; no process reads a port, a file or a host name from its environment.

Rank 0 listens first, on a port that the system chooses, and broadcasts its addresses with `bcast`: from then on no
other process can take the port. The broadcast completes when all ranks take part; otherwise it fails at all ranks
within the timeout, and names the missing or lost ranks. Then rank 0 passes the open socket to its TCPStore, while the
system already accepts the connections of the other ranks. These try the addresses in turn until they reach a store with
the token of this rendezvous, since an address such as that of a container bridge may exist on each node.

Then all ranks wait for each other, so that the store stays open until all have reached it. On one node, only the loss
of rank 0 can prevent that, so a barrier is enough. On several nodes, the ranks exchange their errors, and all raise an
error that names the ranks that failed.

A later loss of a rank is noticed by torch, by the time limits of its operations.

With `store=pmix`, rank 0 only checks that the server supports it, and broadcasts the name of a store on published data.
There is no address to reach. A wait in this store fails at once when a rank is lost.
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
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.naming import name_procs
from pypmix.steps import seconds_left
from pypmix.torch.world import client, environment, losses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from torch.distributed import Store

    from pypmix.client import Client
    from pypmix.torch.store import PMIxStore

DEFAULT_TIMEOUT = timedelta(minutes=30)
"""The default timeout, which is that of torch for gloo."""

TOKEN = "pypmix/rendezvous"
"""The key in the store for the token of this rendezvous."""

TRY_SECONDS = 5.0
"""Seconds until a connection to one of the addresses counts as failed."""

STORE_SECONDS = 8.0
"""Seconds for a store to connect. It resolves addresses to names, and resolvers retry after five seconds."""

CONNECT_SECONDS = 60.0
"""Seconds that the store at an address has to answer."""

SHOWN = 3
"""The number of ranks whose problems an error shows."""

OPTIONS = {"store", "interface", "rank", "world_size"}
STORES = ("tcp", "pmix")

AGAIN = "pmix:// cannot repeat the rendezvous of a process group: initialize a new process group"


def rendezvous(url: str, timeout: timedelta = DEFAULT_TIMEOUT, **_options: object) -> Iterator[tuple[Store, int, int]]:
    """Yield the store, the rank and the size of the job.

    In a worker of `torchrun`, which is not a PMIx process, this is the rendezvous of `env://`.

    Args:
        url: `pmix://`, with options: `interface=` is the network on which the store listens, as the name of an
            interface, an address or a CIDR; `store=pmix` uses a `PMIxStore` in place of a `TCPStore`.
        timeout: How long to wait for the other ranks.

    Raises:
        ValueError: The URL names a host, has an unknown option, or a rank or a size that differs from PMIx's.
        OperationTimeout: Some ranks did not call this in time; `missing` names them if the server reports them.
        PartialSuccess: A rank has ended without calling this.
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
        shared = _make_pmix_store(me, deadline)
        shared.set_timeout(timeout)
        yield shared, me.rank, me.job.size
        raise RuntimeError(AGAIN)
    store, problem = _serve(me, options, deadline) if me.rank == 0 else _reach(me, deadline)
    problems = _collect_problems(me, problem, deadline)
    if store is None or any(problems):
        texts = [f"rank {rank} cannot reach it: {text}" for rank, text in enumerate(problems) if text]
        raise PMIxError(
            f"the store of rank 0 is on {me.get(keys.HOSTNAME, 0)}; " + "; ".join(texts[:SHOWN]),
            operation="pmix://",
            procs=[me.job[rank] for rank, text in enumerate(problems) if text],
            hint="pmix://?interface= names the network to use",
        )
    store.set_timeout(timeout)
    for name, value in (("MASTER_ADDR", store.host), ("MASTER_PORT", str(store.port))):
        os.environ.setdefault(name, value)
    yield store, me.rank, me.job.size
    raise RuntimeError(AGAIN)


def _make_pmix_store(me: Client, deadline: float) -> PMIxStore:
    """Make the store on published data, with a name from rank 0."""
    # Imported on demand, as most programs use a TCPStore.
    from pypmix.recipes.keyvalues import KeyValues
    from pypmix.torch.store import PMIxStore

    lost = losses()

    def check() -> None:
        if lost:
            text = f"{name_procs(lost, me.nspace)} ended without finalizing"
            raise PMIxError(
                text, operation="pmix://", procs=sorted(lost), status=statuses.ERR_PROC_ABORTED, job=me.nspace
            )

    name, problem = f"torch.{new_token()}", ""
    if me.rank == 0:
        try:
            KeyValues(me, name, me.job.procs).probe()
        except PMIxError as error:
            problem = str(error)
    name, problem = me.bcast([name, problem] if me.rank == 0 else None, timeout=seconds_left(deadline))
    if problem:
        raise NotSupported(
            f"store=pmix cannot be used here: {problem}", operation="pmix://", hint="leave store=pmix out"
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
    """Broadcast the addresses of the store of rank 0, and open it."""
    token = new_token()
    try:
        listener, addresses = listen_for_store(options.get("interface", ""), _is_one_node(me))
    except (OSError, ValueError) as error:
        # Otherwise the other ranks would wait for the broadcast until their timeout.
        me.bcast({"problem": f"{type(error).__name__}: {error}"}, codec=json, timeout=seconds_left(deadline))
        raise
    offer = {"token": token, "port": listener.getsockname()[1], "addresses": addresses}
    try:
        me.bcast(offer, codec=json, timeout=seconds_left(deadline))
    except BaseException:
        listener.close()
        raise
    try:
        return open_store(listener, token), ""
    except (OSError, RuntimeError) as error:
        return None, f"{type(error).__name__}: {error}"


def _is_one_node(me: Client) -> bool:
    return me.job.number_of_nodes == 1


def _collect_problems(me: Client, problem: str, deadline: float) -> list[str]:
    """Return for each rank why it cannot reach the store; empty if it can."""
    if _is_one_node(me):
        me.fence(timeout=seconds_left(deadline))
        return [problem if rank == me.rank else "" for rank in range(me.job.size)]
    return me.allgather(problem, timeout=seconds_left(deadline))


def new_token() -> str:
    """Return a random name for a store."""
    return os.urandom(8).hex()


def listen_for_store(interface: str, one_node: bool) -> tuple[socket.socket, list[str]]:
    """Listen on any free port for a store.

    Args:
        interface: The network on which it listens; empty for a default.
        one_node: Whether all processes are on this node.

    Returns:
        The socket, and the addresses at which it may be reached.

    Raises:
        OSError: The interface does not exist, or the system has no free port.
    """
    addresses = ["127.0.0.1"] if one_node and not interface else offered_addresses(interface)
    return listen((addresses[0] if one_node or interface else ANYWHERE, 0)), addresses


def open_store(listener: socket.socket, token: str) -> TCPStore:
    """Open a store with a token on a listening socket, which the store takes over."""
    address, port = listener.getsockname()[:2]
    if address in (ANYWHERE, "0.0.0.0"):
        address = "localhost"
    # The store closes the socket.
    store = _make_tcp_store(address, port, is_master=True, multi_tenant=True, master_listen_fd=listener.detach())
    store.set(TOKEN, token)
    return store


def _make_tcp_store(address: str, port: int, **options: Any) -> TCPStore:
    """Make a TCPStore, with libuv if torch has it, unless the user sets USE_LIBUV=0."""
    if os.environ.get("USE_LIBUV", "1") == "1":
        try:
            return TCPStore(address, port, wait_for_workers=False, **options)
        except RuntimeError as error:
            # A torch without it, such as Debian's, raises this before it uses the socket.
            if "without libuv" not in str(error):
                raise
    return TCPStore(address, port, wait_for_workers=False, use_libuv=False, **options)


def _reach(me: Client, deadline: float) -> tuple[TCPStore | None, str]:
    """Return the store of rank 0, or why it cannot be reached."""
    offer = me.bcast(codec=json, timeout=seconds_left(deadline))
    if "problem" in offer:
        text = f"rank 0 could not open its store: {offer['problem']}"
        raise PMIxError(text, operation="pmix://", procs=[me.job[0]], job=me.nspace)
    failures = []
    for address in offer["addresses"]:
        try:
            return connect_store(address, offer["port"], offer["token"], seconds_left(deadline)), ""
        except (OSError, RuntimeError) as error:
            failures.append(f"{address} port {offer['port']}: {error}")
    return None, ", ".join(failures)


def connect_store(address: str, port: int, token: str, seconds: float = CONNECT_SECONDS) -> TCPStore:
    """Connect to the store of this rendezvous at an address.

    Raises:
        OSError, RuntimeError: No store answers there, or a store with another token.
    """
    end = time.monotonic() + min(seconds, CONNECT_SECONDS)
    while True:
        # torch retries endlessly if no process listens, so a plain connection is tried first.
        with socket.create_connection((address, port), min(seconds, TRY_SECONDS)) as probe:
            peer = probe.getpeername()[0]
        limit = timedelta(seconds=STORE_SECONDS)
        try:
            store = _make_tcp_store(peer, port, is_master=False, timeout=limit)
        except RuntimeError:
            if time.monotonic() > end:
                raise
            continue
        # On loopback no other process can have the port, so the token need not be compared.
        if not is_loopback(address):
            # Rank 0 may not have set it yet.
            store.wait([TOKEN], limit)
            if store.get(TOKEN).decode() != token:
                raise OSError("it is the store of another job")
        return store
