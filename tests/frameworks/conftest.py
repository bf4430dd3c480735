"""Clusters of Dask and Ray on three machines, and what runs on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lib import cluster as clusters
from lib import machine, slurm
from lib.cluster import Cluster
from lib.framework_clusters import FRAMEWORKS, Dask, Ray, opened

three_nodes = clusters.three_nodes

"""Command lines of what belongs to a session: daemons, guards, ranks, and actors."""

"""The ports from here on are those that the system gives to programs that name none."""

"""What of a node of Ray listens, besides its workers."""


@pytest.fixture
def slurm_nodes(request: pytest.FixtureRequest) -> slurm.Cluster:
    """Two nodes of Slurm."""
    if reason := slurm.lacking():
        machine.lacking(reason)
    found: slurm.Cluster = request.getfixturevalue("slurm_cluster")
    return found


@pytest.fixture(scope="session")
def frameworks() -> None:
    """Skip where Dask and Ray were not fetched."""
    if not list(FRAMEWORKS.parent.glob("installed-*")):
        machine.lacking("Dask and Ray, which tests/lib/provision_frameworks.py fetches")


@pytest.fixture(scope="module")
def dask(frameworks: None, three_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    """A Dask cluster on three machines."""
    yield from opened(Dask(three_nodes, tmp_path_factory.mktemp("dask")))


@pytest.fixture(scope="module")
def ray(frameworks: None, three_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    """A Ray cluster on three machines."""
    yield from opened(Ray(three_nodes, tmp_path_factory.mktemp("ray")))
