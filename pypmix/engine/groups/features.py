"""The features of groups by server, for `supports`."""

from __future__ import annotations

from pypmix.engine.groups.rules import GATHERING, ORDERED

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
"""From which release of a server on it works; None where no native server does it, but for those of the Python engine.

Those that no native server does are about the construct: what a member that fails means before the group stands, and to
whom. Later failures are the members' own affair, with every server that tells of procs that end.
"""


def works(feature: str, server: Release, adapts: bool) -> bool:
    """Tell whether a feature of groups works.

    Args:
        feature: Its name.
        server: The server's release.
        adapts: Whether the server is one of the Python engine.
    """
    if feature not in FEATURES:
        return False
    first = FEATURES[feature]
    return adapts or first is not None and server >= first
