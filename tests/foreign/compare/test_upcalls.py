"""Proves that libpmix's server and the Python one ask their host the same, up to the differences that are declared."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from foreign.compare.differences import DIFFERENCES
from foreign.compare.scenarios import SCENARIOS

from lib import machine, pairings
from lib.running import Jobs
from pypmix.recording import Recording, compare, read
from pypmix.recording.compare import COLLECTIVES, Normal
from pypmix.standard.types import Proc

PLAYER = Path(__file__).resolve().parent / "player.py"
LIMIT = 150

NATIVES = [name for name in pairings.clients() if name != "python-client"]
PAIRS = [(native, client) for native in NATIVES for client in (native, "python-client")]

NORMAL = Normal({"the-tool": "tool", "server": "server"})
"""The scripted host gives the same names each time."""

REGISTRATIONS = {"register_events", "deregister_events"}
FIRST = {"client_connected", "tool_connected"}
LAST = {"client_finalized", "client_lost"}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Return the recording of a scenario on a server, which is made when it is first asked for."""
    found: dict[tuple[str, str, str, bool, str], Recording] = {}

    def record(server: str, client: str, scenario: str, place: str, replayed: str = "") -> Recording:
        """Play a scenario.

        Args:
            server: The server.
            client: The client.
            scenario: The scenario.
            place: The native client on whose machine it is to be played.
            replayed: A recording to be answered from.
        """
        in_root = place == pairings.ROOT_CLIENT
        name = server, client, scenario, in_root, replayed
        if name not in found:
            folder = tmp_path_factory.mktemp("played")
            path = folder / "0" / "upcalls.jsonl"
            runner = Jobs(folder, in_root)
            engine = "python" if server == "python-server" else "native"
            given = {} if engine == "python" else pairings.client_environment(server)
            children = repr(pairings.client_environment(client))
            command = [sys.executable, str(PLAYER), engine, scenario, str(path), children, replayed]
            given["PYTHONPATH"] = str(machine.TESTS)
            # libpmix keeps the shared memory of a job in which somebody was killed.
            leaves = bool(SCENARIOS[scenario].deadly)
            job = runner.begin(command, environment=given, limit=LIMIT, leaves_files=leaves).wait()
            runner.end()
            assert job.exit_code == 0 and not job.hung, job.report()
            found[name] = read(path)
        return found[name]

    return record


def asked(recording: Recording, client: Proc | None) -> tuple[str, ...]:
    """Return what was asked for one client between its start and its end, or for no single one."""
    entries = [entry for entry in recording.entries if isinstance(entry.op, COLLECTIVES) == (client is None)]
    # What nobody is interested in any more is not of one client.
    mine = [entry for entry in entries if client is None or entry.requestor in (client, None)]
    return tuple([entry.op.name for entry in mine if entry.op.name not in FIRST | LAST])


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_the_python_server_asks_what_the_standard_says(recordings, scenario):
    played = SCENARIOS[scenario]
    found = recordings("python-server", "python-client", scenario, "python-client")
    assert asked(found, Proc("the-tool", 0) if played.tool else Proc("demo", 0)) == played.asks
    together = asked(found, None)
    if not set(played.together) & REGISTRATIONS:
        # How many messages it takes to watch who ends in a group is the client's affair.
        together = tuple([name for name in together if name not in REGISTRATIONS])
    assert together == played.together
    names = [(entry.op.name, entry.requestor) for entry in found.entries]
    for rank in () if played.tool else (0, 1):
        others = REGISTRATIONS.union(played.together)
        mine = [name for name, requestor in names if requestor == Proc("demo", rank) and name not in others]
        lost = rank == 0 and played.deadly
        assert (mine[0], mine[-1]) == ("client_connected", "client_lost" if lost else "client_finalized")
    assert all(len(entry.answers) == 1 for entry in found.entries)


@pytest.mark.parametrize("scenario", sorted({*SCENARIOS} - {"spawning"}))
def test_a_recording_takes_the_place_of_the_host(recordings, scenario):
    """All but a spawn, for which a host registers what nobody records."""
    first = recordings("python-server", "python-client", scenario, "python-client")
    again = recordings("python-server", "python-client", scenario, "python-client", first.path)
    assert compare(first, again, NORMAL) == ()


@pytest.mark.parametrize(("native", "client"), PAIRS, ids=lambda name: name)
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_both_servers_ask_the_same(recordings, scenario, native, client):
    pairings.require_client(native)
    theirs = recordings(native, client, scenario, native)
    ours = recordings("python-server", client, scenario, native)
    release = native.removeprefix("native-")
    rows = [row for row in DIFFERENCES if row.applies(scenario, release, client)]
    known = {(row.op, row.where) for row in rows}
    found = compare(theirs, ours, NORMAL)
    surprises = [str(difference) for difference in found if (difference.op, difference.where) not in known]
    assert not surprises, "libpmix | pypmix:\n" + "\n".join(surprises)
    seen = Counter((difference.op, difference.where) for difference in found)
    unseen = [row for row in rows if row.always and (row.op, row.where) not in seen]
    assert not unseen, f"declared, and not seen: {unseen}"


def test_every_row_of_the_table_is_about_something():
    for row in DIFFERENCES:
        assert any(
            row.applies(scenario, native.removeprefix("native-"), client)
            for scenario in SCENARIOS
            for native, client in PAIRS
        ), row
