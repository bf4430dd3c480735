"""What a pairing of a server and a client lacks."""

from __future__ import annotations

from typing import NamedTuple


class Lack(NamedTuple):
    """A feature that pairings lack: patterns of server and client, the reason, and whether trying it does harm.

    Without harm the test must fail on these pairings, so that the table cannot become outdated unseen; with harm (a
    crash, a hang, an outcome that varies) it is skipped.
    """

    feature: str
    server: str
    client: str
    reason: str
    harm: bool = False
