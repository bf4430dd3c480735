"""The differences from the official binding, for `pypmix compat --check` and the table of the reference.

They are in `differences.toml`, by topic.
"""

from __future__ import annotations

import os
import tomllib

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CALL = "call"
HANDLER = "handler"
COMPARED = "compared"
UNKNOWN = "unknown"
NONE = ""
"""The ways in which the checker finds a difference in a program, `NONE` where it shows in no line of it."""


class Difference(Record):
    """One thing that is not as in the official binding.

    Args:
        name: The method, or the key of a server module; several with spaces between them; empty for what is of none.
        topic: What it is about, a heading of the reference.
        official: What the official binding does.
        here: What pypmix does.
        advice: What to do about it; empty where nothing need be done.
        check: How the checker finds it.
        where: Which of those are meant, a rule of `pypmix.compat.check`; empty for all.
    """

    name: str
    topic: str
    official: str
    here: str
    advice: str = ""
    check: str = NONE
    where: str = ""


TOPICS = {
    "names": "Names and constants",
    "values": "Values",
    "client": "Clients",
    "groups": "Groups",
    "events": "Events and callbacks",
    "server": "Servers",
    "tool": "Tools and schedulers",
}
"""The headings of the reference, in their order."""


def _read_table() -> Iterator[Difference]:
    with open(os.path.join(os.path.dirname(__file__), "differences.toml"), "rb") as file:
        rows = tomllib.load(file)
    for topic in TOPICS:
        for row in rows[topic]:
            yield Difference(**{"name": "", **row}, topic=topic)


TABLE: tuple[Difference, ...] = tuple(_read_table())
