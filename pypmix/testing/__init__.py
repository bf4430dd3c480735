"""Tests of parallel programs: a plugin for pytest whose tests run on several ranks.

Theory of operation. `plugin.py` is loaded at each start of pytest, and imports nothing but the standard library then. A
test that is marked with `pmix` is run by `job.py` as a job of a `LocalHost` in the process of pytest. Its ranks are
forked from one fork server (`pypmix.host.forking`) for all tests of a session, or of an xdist worker. That has imported
`template.py`: a second pytest, with the options of the first one, which collects a test file when it is first needed.
Each rank is a child of it that has all of the test file, with its assertions rewritten, and runs one test with the
fixtures of that (`rank.py`). It leaves its reports in a folder, from where `results.py` makes those that pytest shows:
what is equal on several ranks once.

`scenario` makes a test of a function of a client and a cluster.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix import Client
    from pypmix.testing.cluster import Cluster

    Body = Callable[[Client, Cluster], None]


def scenario(
    *, ranks: int = 2, nodes: int = 1, timeout: float | None = None, engine: str = ""
) -> Callable[[Body], Callable[..., None]]:
    """Make a test of a function, which runs on each rank with the rank's client and the cluster.

    Args:
        ranks: How many ranks run it.
        nodes: How many nodes are simulated.
        timeout: Its time limit in seconds; that of the plugin by default.
        engine: The engine of the clients, `python` or `native`; what the environment says by default.
    """
    import pytest

    def make(body: Body) -> Callable[..., None]:
        @pytest.mark.pmix(ranks=ranks, nodes=nodes, timeout=timeout, engine=engine)
        def test(pmix: Client, pmix_cluster: Cluster) -> None:
            __tracebackhide__ = True
            body(pmix, pmix_cluster)

        # Where pytest says that it is.
        vars(test)["place_as"] = body
        test.__name__ = test.__qualname__ = body.__name__
        test.__doc__, test.__module__ = body.__doc__, body.__module__
        return test

    return make
