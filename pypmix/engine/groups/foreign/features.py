"""The features of groups by server, for `supports`."""

from __future__ import annotations

from pypmix.engine.groups.foreign.rules import GATHERING, ORDERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.releases import Release

PREFIX = "group."

ANY: Release = (0, 0, 0)

FEATURES: dict[str, Release | None] = {
    "group.construct": ANY,
    "group.bootstrap": GATHERING,
    "group.order": ORDERED,
    "group.invite": ANY,
    "group.leave": ANY,
    "group.request": ANY,
    "group.leader": None,
    "group.notify_termination": None,
    "group.ft": None,
    "group.optional": None,
    "get.group_names": None,
}
"""The first release of a server on which each feature works; None if only servers of the Python engine support it.

The features with None are about the construct: the effect of a member that fails before the group is formed, and the
procs that are informed. Later failures are handled by the members, with every server that reports procs that end.
"""


def works(feature: str, server: Release, same_engine: bool) -> bool:
    """Return True if a feature of groups works.

    Args:
        feature: Its name.
        server: The server's release.
        same_engine: Whether the server is one of the Python engine.
    """
    if feature not in FEATURES:
        return False
    first = FEATURES[feature]
    return same_engine or first is not None and server >= first
