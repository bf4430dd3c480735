"""The commands that are tools: what they take; what they do stands in modules of their own."""

from __future__ import annotations

from typing import Annotated

import typer

from pypmix.cli.reach import Reach, reaching

_JSON = typer.Option("--json", help="Print JSON instead of text.")


@reaching
def ps(reach: Reach, *, json: Annotated[bool, _JSON] = False) -> None:
    """Show the jobs of this user's servers on this node: their procs, pids and states."""
    from pypmix.cli.ps import ps

    ps(reach, json)


@reaching
def top(
    reach: Reach,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as for anything but a terminal.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print it once, as JSON.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="How often to look again.")
    ] = 1.0,
) -> None:
    """Watch jobs: their procs, and for all that is pending who is waited for, since when and with which pid."""
    from pypmix.cli.top import top

    top(reach, once, json, interval)


@reaching
def query(
    reach: Reach,
    *,
    keys: Annotated[
        list[str], typer.Argument(metavar="KEY...", help="Attributes, such as QUERY_NAMESPACES.", show_default=False)
    ],
    job: Annotated[str | None, typer.Option("--job", metavar="NSPACE", help="The job that is asked about.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", metavar="RANK", help="The rank of that job.")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NAME", help="The node that is asked about.")] = None,
    qualifiers: Annotated[
        list[str] | None,
        typer.Option("--qualifier", "-q", metavar="NAME=VALUE", help="A further qualifier. Repeatable."),
    ] = None,
    json: Annotated[bool, _JSON] = False,
) -> None:
    """Ask a server for values by their attributes; the exit code is 1 where one of them has no answer."""
    from pypmix.cli.query import query

    query(reach, keys, job, rank, node, qualifiers or [], json)


@reaching
def events(
    reach: Reach,
    *,
    code: Annotated[
        list[str] | None,
        typer.Option(
            "--code",
            metavar="PATTERN",
            help="Only these events: a name, a pattern such as 'GROUP_*', or a number. Repeatable.",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", metavar="N", min=1, help="Stop after so many events.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", metavar="SECONDS", help="Stop after this time.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event and line.")] = False,
) -> None:
    """Print the events that a server raises, until Ctrl-C or the end of the server."""
    from pypmix.cli.events import events

    events(reach, code or [], count, timeout, json)


@reaching
def lookup(
    reach: Reach,
    *,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="What to look up.", show_default=False)],
    wait: Annotated[
        float | None, typer.Option("--wait", metavar="SECONDS", help="How long to wait until all are there.")
    ] = None,
    json: Annotated[bool, _JSON] = False,
) -> None:
    """Look up published values; the exit code is 1 where one of them is missing."""
    from pypmix.cli.publishing import lookup

    lookup(reach, keys, wait, json)


@reaching
def publish(
    reach: Reach,
    *,
    items: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=TEXT...", help="What to publish; KEY:=JSON for numbers and the like.", show_default=False
        ),
    ],
    range: Annotated[
        str, typer.Option("--range", metavar="local|session|global", help="Who may look it up.")
    ] = "session",
    persist: Annotated[
        str, typer.Option("--persist", metavar="session|first-read|indef", help="How long it stays.")
    ] = "session",
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the server.")
    ] = None,
) -> None:
    """Publish values, for any process of this user to look up."""
    from pypmix.cli.publishing import PERSISTENCES, RANGES, publish

    if range not in RANGES:
        raise typer.BadParameter(f"a range is one of {', '.join(RANGES)}, not {range!r}")
    if persist not in PERSISTENCES:
        raise typer.BadParameter(f"a persistence is one of {', '.join(PERSISTENCES)}, not {persist!r}")
    publish(reach, items, range, persist, timeout)


@reaching
def unpublish(
    reach: Reach,
    *,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY...]", help="What to take back; all if not given.", show_default=False),
    ] = None,
) -> None:
    """Take back what `pypmix publish` of this user has published."""
    from pypmix.cli.publishing import unpublish

    unpublish(reach, keys or [])


COMMANDS = (ps, top, query, events, lookup, publish, unpublish)
