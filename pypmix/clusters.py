"""Names of jobs among several clusters, each with its resource manager: `cluster:nspace`."""

from __future__ import annotations

from pypmix.standard.types import MAX_NSLEN, check_name

SEPARATOR = ":"


def cluster_nspace(cluster: str, nspace: str) -> str:
    """`PMIX_MULTICLUSTER_NSPACE_CONSTRUCT`: return the name of a job for other clusters.

    Args:
        cluster: The cluster's name, from its resource manager (`attrs.CLUSTER_ID` in the job info).
        nspace: The job's namespace in the cluster.

    Raises:
        ValueError: A name is empty, the cluster's name contains a colon, or the result is longer than 255 bytes.

    Example:
        >>> cluster_nspace("blue", "job7")
        'blue:job7'
    """
    check_cluster(cluster)
    if not check_name(nspace, MAX_NSLEN, "an nspace"):
        raise ValueError("an nspace must not be empty")
    return check_name(f"{cluster}{SEPARATOR}{nspace}", MAX_NSLEN, "an nspace with its cluster")


def split_nspace(nspace: str) -> tuple[str | None, str]:
    """`PMIX_MULTICLUSTER_NSPACE_PARSE`: split a job's name into its cluster, or None, and its nspace.

    The first colon ends the cluster's name: `split_nspace("a:b:c")` is `("a", "b:c")`.

    Example:
        >>> split_nspace("blue:job7")
        ('blue', 'job7')
        >>> split_nspace("job7")
        (None, 'job7')
    """
    cluster, colon, rest = nspace.partition(SEPARATOR)
    return (cluster, rest) if colon and cluster and rest else (None, nspace)


def check_cluster(cluster: str) -> str:
    """Check the name of a cluster, and return it.

    Raises:
        TypeError: It is not a string.
        ValueError: It is empty or too long, or contains a colon, a slash or a NUL character.
    """
    check_name(cluster, MAX_NSLEN // 2, "a cluster's name")
    if not cluster or SEPARATOR in cluster or "/" in cluster:
        raise ValueError(f"a cluster's name is not empty and holds no colon and no slash: {cluster!r:.80}")
    return cluster
