"""Tests of parallel programs: a plugin for pytest whose tests run on several ranks.

Theory of operation. `plugin.py` is loaded at each start of pytest, and imports only the standard library then.
`job.py` runs a test that is marked with `pmix` as a job of a `LocalHost` in the process of pytest. Its ranks are forked
from one fork server (`pypmix.extras.forking`) for all tests of a session, or of an xdist worker. The fork server has
imported `template.py`: a second pytest with the options of the first one, which collects each test file on demand.
Each rank is a child of this process, with the whole test file and its rewritten assertions, and runs one test with its
fixtures (`rank.py`). It writes its reports into a folder; `results.py` merges them into the reports that pytest shows,
where equal failures of several ranks appear once.

`scenario` makes a test of a function with a client and a cluster as arguments. On virtual time (`virtual/`), ranks are
not processes but tasks of one event loop, together with their servers, on a clock that advances when all of them wait.
`links.py` contains the faults of links; between processes, `relay.py` and `orders.py` apply them.
"""

from __future__ import annotations

import contextlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from pathlib import Path
    from typing import Any

    from pypmix import Client, aio
    from pypmix.testing.cluster import Cluster
    from pypmix.testing.virtual.simulation import VirtualCluster

    Blocking = Callable[[Client, Cluster], None]
    Async = Callable[[aio.Client, Cluster], Coroutine[Any, Any, None]]
    Body = Blocking | Async

TIMES = ("real", "virtual")


def scenario(
    *,
    ranks: int = 2,
    nodes: int = 1,
    timeout: float | None = None,
    engine: str = "",
    time: str = "real",
    seed: int | Iterable[int] = 0,
) -> Callable[[Body], Callable[..., None]]:
    """Make a test of a function, which runs on each rank with the rank's client and the cluster.

    A coroutine function receives a `pypmix.aio.Client`, and runs on real processes as well as on virtual time.

    Args:
        ranks: The number of ranks.
        nodes: The number of simulated nodes.
        timeout: The time limit in seconds of the test's clock; by default the plugin's, and a day on virtual time.
        engine: The engine of the clients, `python` or `native`; by default the environment's. Virtual time supports
            only `python`.
        time: `real`, with a process for each rank, or `virtual`: see `pypmix.testing.virtual.simulate`.
        seed: Determines the latencies of messages on virtual time; several seeds make several tests.

    Raises:
        ValueError: `time` is unknown, or does not support the engine.
        TypeError: The function has other parameters, or is not a coroutine function and is to run on virtual time.
    """
    if time not in TIMES:
        raise ValueError(f"time is one of {', '.join(TIMES)}, not {time!r:.80}")
    if time == "virtual" and engine not in ("", "python"):
        raise ValueError(f"the engine {engine!r:.80} cannot run on virtual time: use python")

    def make(body: Body) -> Callable[..., None]:
        import inspect

        try:
            inspect.signature(body).bind(None, None)
        except TypeError:
            raise TypeError(
                f"{body.__name__} must have the parameters client and cluster, and no others: for a test in a class, "
                "or with fixtures or parameters, use the marker `pmix` and the fixtures `pmix` and `pmix_cluster`"
            ) from None
        asks = inspect.iscoroutinefunction(body)
        if time == "virtual":
            if not asks:
                raise TypeError(
                    f"{body.__name__} must be a coroutine function (`async def`): on virtual time a call that blocks "
                    "would stop all ranks"
                )
            test = _on_virtual_time(body, ranks, nodes, timeout, seed)
        else:
            made: Any = _async_test(body) if asks else _blocking_test(body)  # type: ignore[arg-type]
            test = _marked(made, ranks, nodes, timeout, engine)
        # Markers below the decorator apply as well.
        own = vars(test).get("pytestmark", [])
        vars(test)["pytestmark"] = [*vars(body).get("pytestmark", []), *own]
        # pytest shows the place of the original function.
        vars(test)["place_as"] = body
        test.__name__ = test.__qualname__ = body.__name__
        test.__doc__, test.__module__ = body.__doc__, body.__module__
        return test

    return make


def _marked(
    test: Callable[..., None], ranks: int, nodes: int, timeout: float | None, engine: str
) -> Callable[..., None]:
    import pytest

    mark: Callable[[Callable[..., None]], Callable[..., None]] = pytest.mark.pmix(
        ranks=ranks, nodes=nodes, timeout=timeout, engine=engine, links=True
    )
    return mark(test)


def _blocking_test(body: Blocking) -> Callable[..., None]:
    def test(pmix: Client, pmix_cluster: Cluster) -> None:
        __tracebackhide__ = True
        body(pmix, pmix_cluster)

    return test


def _async_test(body: Async) -> Callable[..., None]:
    def test(pmix_tmp_path: Path) -> None:
        __tracebackhide__ = True
        import asyncio

        from pypmix.testing.cluster import RealCluster

        failed: list[BaseException] = []

        async def run() -> None:
            __tracebackhide__ = True
            try:
                await _with_client(body, lambda me: RealCluster.meeting(me, pmix_tmp_path))
            except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
                raise
            except BaseException as error:
                # Without the frames of the event loop.
                failed.append(error)

        asyncio.run(run())
        if failed:
            raise failed[0]

    return test


async def _with_client(body: Async, meet: Callable[[aio.Client], Awaitable[Cluster]]) -> None:
    __tracebackhide__ = True
    from pypmix import LostConnection, PMIxError, aio

    me = await aio.Client().open()
    try:
        await body(me, await meet(me))
    except BaseException:
        with contextlib.suppress(PMIxError):
            await me.close()
        raise
    # A rank whose link was cut by the test cannot finalize.
    with contextlib.suppress(LostConnection):
        await me.close()


def _on_virtual_time(
    body: Any, ranks: int, nodes: int, timeout: float | None, seed: int | Iterable[int]
) -> Callable[..., None]:
    import pytest

    async def main(cluster: VirtualCluster) -> None:
        __tracebackhide__ = True

        async def meet(me: aio.Client) -> Cluster:
            # As on real processes, a test begins when all ranks have connected.
            await me.fence()
            await cluster.meet()
            return cluster

        await _with_client(body, meet)

    def run(number: int) -> None:
        __tracebackhide__ = True
        from pypmix.testing.virtual import RanksFailed, simulate
        from pypmix.testing.virtual.simulation import DAY

        try:
            simulate(main, ranks=ranks, nodes=nodes, seed=number, timeout=timeout or DAY)
        except RanksFailed as error:
            ends = [each for _, each in error.pmix_failures]
            first = ends[0]
            if not isinstance(first, str) and all(isinstance(end, pytest.skip.Exception) for end in ends):
                raise first from None
            raise

    if isinstance(seed, int):

        def test() -> None:
            __tracebackhide__ = True
            run(seed)

        return test

    @pytest.mark.parametrize("seed", list(seed))
    def test_of_each(seed: int) -> None:
        __tracebackhide__ = True
        run(seed)

    return test_of_each
