"""`pypmix run --trace` writes what the ranks of a job ask, `pypmix trace` tells it, and its page shows it."""

from __future__ import annotations

import http.server
import importlib.util
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lib import machine
from lib.command import Command
from pypmix.extras.tracing.read import Trace, read

ROOT = Path(__file__).parents[2]

WATCH = """
import signal
import time
import pypmix
from pypmix.host import pending

def others_wait(me):
    # Return when the servers have the calls of all others.
    while not any(
        entry.operation == "fence" and len(entry.arrived) == me.job.size - 1
        for entry in pending.unpack(me.query(pending.KEY, default=()))
    ):
        time.sleep(0.001)
"""

LATE = f"""{WATCH}
with pypmix.Client() as me:
    me.put("key", me.rank)
    if me.rank == 2:
        others_wait(me)
    me.fence()
    me.get("key", me.job.procs[(me.rank + 1) % me.job.size])
    me.group("ring", me.job.procs).construct()
    me.publish({{f"acme.{{me.rank}}": 1}})
"""

KILLED = """
import os, signal
import pypmix
with pypmix.Client() as me:
    me.fence()
    if me.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    me.fence()
"""

WAITING = f"""{WATCH}
with pypmix.Client() as me:
    me.fence()
    if me.rank == 1:
        # The last to end: its loss would answer the others.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        others_wait(me)
        open("there.1", "w").write("\\n")
        time.sleep(60)
    me.fence()
"""


def traced(command: Command, *words: object, code: int = 0, n: int = 3, name: str = "run.json") -> Trace:
    """Run a Python program with a trace, and return that."""
    path = command.folder / name
    *options, program = words
    ended = command("run", "-n", n, *options, "--trace", path, sys.executable, "-c", program)
    assert ended.code == code, ended
    return read(str(path))


def check(found: Trace, nodes: tuple[str, ...]) -> None:
    """Check the trace of LATE."""
    assert (found.nodes, list(found.jobs.values()), found.left_out) == (nodes, [3], 0)
    together = {each.name: each for each in found.collectives()}
    for name, subject in (("fence", "*"), ("group_construct", "ring")):
        each = together[name]
        assert each.subject.endswith(subject)
        assert sorted([call.proc[-1] for call in each.calls]) == ["0", "1", "2"]
        assert (each.status, each.missing) == ("", ())
        assert each.begin <= each.last.begin <= min([call.end for call in each.calls])
    assert together["fence"].last.proc.endswith(":2")
    for rank in range(3):
        mine = [call for call in found.calls if call.proc.endswith(f":{rank}")]
        assert (mine[0].name, mine[-1].name) == ("job_info", "finalize")
        assert {call.node for call in mine} == {nodes[-1] if rank == 2 else nodes[0]}
        assert any(call.name == "get" and call.more == "key" for call in mine)
        assert sum([call.name == "publish" for call in found.upcalls if call.proc.endswith(f":{rank}")]) == 1
        assert found.ends[mine[0].proc][1] == "exit code 0"
    assert not [call for call in found.calls if call.status]


def test_one_node(command: Command) -> None:
    found = traced(command, LATE)
    check(found, found.nodes)
    assert len(found.nodes) == 1


def test_two_nodes_that_are_simulated(command: Command) -> None:
    check(traced(command, "--nodes", 2, LATE), ("node0", "node1"))


def test_nodes_with_daemons(command: Command) -> None:
    check(traced(command, "--host", "n1:2,n2", "--launch-agent", "sh -c {command}", LATE), ("n1", "n2"))


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_rank_that_is_killed(command: Command, nodes: int) -> None:
    found = traced(command, "--nodes", nodes, "--keep-going", KILLED, code=128 + signal.SIGKILL)
    first, second = found.collectives()
    assert (len(first.calls), first.status) == (3, "")
    assert (second.status, [proc[-1] for proc in second.missing]) == ("ERR_PARTIAL_SUCCESS", ["1"])
    assert sorted([call.proc[-1] for call in second.calls]) == ["0", "2"]
    assert {proc[-1]: how for proc, (_, how) in found.ends.items()}["1"] == "ended by signal 9 (SIGKILL)"


def test_a_job_that_is_ended(command: Command) -> None:
    """The ranks that wait then are in the trace, unanswered."""
    path = command.folder / "run.json"
    process = command.start("run", "-n", 3, "--trace", path, sys.executable, "-c", WAITING)
    command.wait_for("there")
    process.send_signal(signal.SIGTERM)
    assert command.end(process).code == 128 + signal.SIGTERM
    last = read(str(path)).collectives()[-1]
    assert {call.proc[-1] for call in last.calls} == {"0", "2"}
    assert [proc[-1] for proc in last.missing] == ["1"]
    # One of them is the first to be lost, which may answer the other, but not by itself.
    assert "unanswered" in [call.status for call in last.calls]


def test_a_launcher_that_is_killed_leaves_a_whole_file(command: Command) -> None:
    path = command.folder / "run.json"
    process = command.start("run", "-n", 3, "--grace", 0.5, "--trace", path, sys.executable, "-c", WAITING)
    command.wait_for("there")
    deadline = time.monotonic() + 20
    while not read(str(path)).collectives():
        assert time.monotonic() < deadline, "the fence is not traced"
        time.sleep(0.02)
    process.kill()
    command.end(process)
    (fence,) = read(str(path)).collectives()
    assert (len(fence.calls), fence.status) == (3, "")


@pytest.mark.parametrize("path", ["none/such", "."])
def test_a_file_that_cannot_be_made(command: Command, path: str) -> None:
    ended = command("run", "--trace", command.folder / path, sys.executable, "-c", "print('started')")
    assert (ended.code, ended.lines) == (1, [])
    assert ended.message.startswith("pypmix run: cannot write --trace ")
    assert str(command.folder) in ended.message


def test_the_summary_and_the_page(command: Command) -> None:
    found = traced(command, LATE)
    page = command.folder / "page.html"
    path = command.folder / "run.json"
    ended = command("trace", path, "--html", page)
    assert ended.code == 0, ended
    text = ended.out.decode()
    assert re.match(rf"{re.escape(str(path))}: 3 procs on 1 node, .*; \d+ requests, 2 collectives, \d+ upcalls\n", text)
    assert re.search(r"\nfence +all ranks +\S+ s +\S+ \S+ +rank 2 +\S+ \S+\n", text)
    assert re.search(r"\nrank 0 +\S+ +\d+ +\S+ \S+ +\d+% +\w", text)
    told = json.loads(command("trace", path, "--json").out)
    assert told["requests"] == len(found.calls) and len(told["ranks"]) == 3
    assert "://" not in page.read_text().replace("<!doctype html>", "")
    assert page.stat().st_mode & 0o777 == 0o600


def test_a_native_server_tells_of_upcalls(command: Command) -> None:
    if not machine.libraries() or not machine.extension():
        machine.lacking("a libpmix")
    found = traced(command, "--server-engine", "native", "import pypmix; pypmix.Client().open().close()", n=1)
    assert (found.calls, found.upcalls[0].name, list(found.jobs.values())) == ((), "client_connected", [1])
    assert b"a native server tells of upcalls only" in command("trace", command.folder / "run.json").out


@pytest.mark.parametrize("words", [["none.json"], ["run.py"], ["run.py", "--html", "none/such.html"]])
def test_a_summary_of_what_is_no_trace(command: Command, words: list[str]) -> None:
    (command.folder / "run.py").write_text(LATE)
    ended = command("trace", *words)
    assert (ended.code, ended.out) == (1, b"")
    assert ended.err.startswith(b"pypmix trace: ") and words[0].encode() in ended.err


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, Any, Any]]]]:
    """The address of a server that takes spans, and what it was sent: path, headers and body."""
    taken: list[tuple[str, Any, Any]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            taken.append((self.path, self.headers, body))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", taken
        server.shutdown()
        thread.join()


def test_spans_for_a_collector(command: Command, collector: tuple[str, list[tuple[str, Any, Any]]]) -> None:
    url, taken = collector
    found = traced(command, "--nodes", 2, LATE)
    path = command.folder / "run.json"
    process = command.start("trace", path, "--otlp", url, env={"OTEL_EXPORTER_OTLP_HEADERS": "X-Site=a%20b"})
    ended = command.end(process)
    assert ended.code == 0, ended
    together = found.collectives()
    count = 1 + len(together) + len(found.calls) + len(found.upcalls)
    assert f"{count} spans sent to {url}" in ended.err.decode()
    assert {(way, headers["X-Site"], headers["Content-Type"]) for way, headers, _ in taken} == {
        ("/v1/traces", "a b", "application/json")
    }
    resources = [each for _, _, body in taken for each in body["resourceSpans"]]
    names = [attribute["value"]["stringValue"] for each in resources for attribute in each["resource"]["attributes"]]
    assert {"pypmix", "node0", "node1"} <= set(names)
    spans = [span for each in resources for span in each["scopeSpans"][0]["spans"]]
    by_id = {span["spanId"]: span for span in spans}
    assert len(by_id) == count and len({span["traceId"] for span in spans}) == 1
    assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in spans)
    (run,) = [span for span in spans if "parentSpanId" not in span]
    fences = [span for span in spans if span["name"] == "fence" and span["kind"] == 2]
    ranks = [span for span in fences if by_id[span["parentSpanId"]]["name"] == "fence"]
    assert len(ranks) == 3
    (whole,) = {span["parentSpanId"] for span in ranks}
    assert by_id[whole]["parentSpanId"] == run["spanId"]
    for span in ranks:
        inside = [by_id[whole]["startTimeUnixNano"], span["startTimeUnixNano"], span["endTimeUnixNano"]]
        assert [*inside, by_id[whole]["endTimeUnixNano"]] == sorted([*inside, by_id[whole]["endTimeUnixNano"]])


@pytest.mark.parametrize(("url", "said"), [
    ("localhost:4318", "a collector has an address such as http://localhost:4318"),
    ("{url}/elsewhere", "404"),
])  # fmt: skip
def test_a_collector_that_does_not_take_it(
    command: Command, collector: tuple[str, list[tuple[str, Any, Any]]], url: str, said: str
) -> None:
    traced(command, "pass")
    ended = command("trace", command.folder / "run.json", "--otlp", url.format(url=collector[0]))
    assert (ended.code, ended.out) == (1, b"")
    assert said in ended.err.decode()


@pytest.fixture
def browser() -> Iterator[Any]:
    """The browser that looks at the documentation, too."""
    spec = importlib.util.spec_from_file_location("site_browser", ROOT / "tests" / "site" / "browser.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program = os.environ.get("PYPMIX_TEST_BROWSER") or next(filter(None, map(shutil.which, module.NAMES)), None)
    if program is None:
        machine.lacking("Chromium")
    started = module.Browser(program)
    yield started
    started.close()


ERRORS = "window.errors = []; addEventListener('error', event => window.errors.push(event.message));"


def test_the_page_in_a_browser(command: Command, browser: Any) -> None:
    traced(command, "--nodes", 2, LATE)
    page = command.folder / "page.html"
    assert command("trace", command.folder / "run.json", "--html", page).code == 0

    def evaluate(expression: str) -> Any:
        answer = browser.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    browser.ask("Page.addScriptToEvaluateOnNewDocument", source=ERRORS)
    for color in ("light", "dark"):
        assert browser.show(page, "wide", color) == []
        assert evaluate("window.errors") == []
        labels = evaluate("[...document.querySelectorAll('#labels div')].map(e => e.textContent).filter(t => t)")
        assert labels == ["node0", "server", "rank 0", "rank 1", "node1", "server", "rank 2"]
        # Two calls of a fence and two of a construct are released by others.
        assert evaluate("document.documentElement.dataset.arrows") == "4"
        assert int(evaluate("document.documentElement.dataset.drawn")) > 10
        colors = (
            "new Set(new Uint32Array(document.querySelector('canvas').getContext('2d')"
            ".getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"
        )
        assert evaluate(colors) > 5
    rows = evaluate("[...document.querySelectorAll('#collectives tr')].map(row => row.textContent)")
    assert len(rows) == 3 and any("fenceall ranks" in row and "rank 2" in row for row in rows)
    # A click on a collective zooms to it, and pointing at something tells of it.
    before = evaluate("document.querySelector('#range').textContent")
    fence = "[...document.querySelectorAll('#collectives tr')].find(row => row.textContent.includes('fence'))"
    evaluate(f"{fence}.click()")
    assert evaluate("document.querySelector('#range').textContent") != before
    # Right before its begin there is a commit.
    spot = "(call => x((call[1] + call[2]) / 2))(data.collectives.find(each => each.name === 'fence').calls[0])"
    row = "data.collectives.find(each => each.name === 'fence').calls[0][0]"
    point = f"{{offsetX: {spot}, offsetY: middle({row}), clientX: 300, clientY: 200}}"
    evaluate(f"canvas.onpointermove({point})")
    tip = evaluate("document.querySelector('#tip').textContent")
    assert tip.startswith("fence of all ranks\n") and "last: rank 2, " in tip
    evaluate("document.querySelector('#all').click()")
    assert evaluate("window.errors") == []
