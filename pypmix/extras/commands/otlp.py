"""A trace as OpenTelemetry spans, sent to a collector by OTLP over HTTP, as JSON."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from pypmix._version import __version__
from pypmix.extras.tracing.calls import Call
from pypmix.extras.tracing.read import Trace

MOST = 2000
"""Spans of one request: collectors accept 4 MB at a time by default."""

LIMIT = 30.0
"""Seconds that a collector has for an answer."""

SERVER, INTERNAL, FAILED = 2, 1, 2
"""Kinds of spans, and the code of a status, as OTLP numbers them."""


def send(run_trace: Trace, url: str) -> int:
    """Send a trace to a collector, and return the number of spans.

    Args:
        run_trace: The trace.
        url: The collector's address, such as `http://localhost:4318`; `/v1/traces` is added if it has no path. The
            headers of `OTEL_EXPORTER_OTLP_HEADERS` are sent with it.

    Raises:
        OSError: It is not reached, or refuses the spans.
        ValueError: It is not an address.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"a collector has an address such as http://localhost:4318, not {url!r:.200}")
    address = url if parts.path.strip("/") else urllib.parse.urljoin(url, "/v1/traces")
    given = [pair.partition("=") for pair in os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",") if "=" in pair]
    headers = {name.strip(): urllib.parse.unquote(value.strip()) for name, _, value in given}
    count = 0
    for node, spans in _batches(run_trace):
        attributes = {"service.name": "pypmix", "service.version": __version__, "host.name": node}
        scope = {"scope": {"name": "pypmix", "version": __version__}, "spans": spans}
        body = {"resourceSpans": [{"resource": {"attributes": _attributes(attributes)}, "scopeSpans": [scope]}]}
        data = json.dumps(body, separators=(",", ":")).encode()
        request = urllib.request.Request(address, data, {"Content-Type": "application/json", **headers})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT):
                count += len(spans)
        except http.client.HTTPException as error:
            raise OSError(f"{url!r:.200} is not a collector: {type(error).__name__}: {error}") from None
    return count


def _batches(run_trace: Trace) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the spans of a node, a part of them at a time."""
    by_node: dict[str, list[dict[str, Any]]] = {node: [] for node in run_trace.nodes}
    for node, span in _spans(run_trace):
        spans = by_node.setdefault(node, [])
        spans.append(span)
        if len(spans) == MOST:
            yield node, spans
            by_node[node] = []
    yield from [(node, spans) for node, spans in by_node.items() if spans]


def _spans(run_trace: Trace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each span with its node: the run, its collectives with their calls, all other requests, and upcalls."""
    trace = hashlib.sha256(f"{run_trace.began} {sorted(run_trace.jobs)}".encode()).hexdigest()[:32]
    began = round(run_trace.began * 1e9)
    number = 0

    def span(
        name: str, begin: float, end: float, parent: str, kind: int, status: str, **more: object
    ) -> dict[str, Any]:
        nonlocal number
        number += 1
        times = [str(began + round(at * 1000)) for at in (begin, end)]
        known = {f"pmix.{key}": value for key, value in more.items() if value not in ("", ())}
        made = {
            "traceId": trace,
            "spanId": f"{number:016x}",
            "name": name,
            "kind": kind,
            "startTimeUnixNano": times[0],
            "endTimeUnixNano": times[1],
            "attributes": _attributes(known),
        }
        return (
            made
            | ({"parentSpanId": parent} if parent else {})
            | ({"status": {"code": FAILED, "message": status}} if status else {})
        )

    def call_span(call: Call, parent: str) -> tuple[str, dict[str, Any]]:
        more = {"proc": call.proc, "procs": call.procs, "subject": call.more}
        return call.node, span(call.name, call.begin, call.end, parent, SERVER, call.status, **more)

    first = run_trace.nodes[0] if run_trace.nodes else ""
    run = span("run", 0.0, run_trace.length, "", INTERNAL, "", jobs=" ".join(run_trace.jobs))
    yield first, run
    together = run_trace.collectives()
    for each in together:
        more = {"subject": each.subject, "last": each.last.proc, "late_ms": each.lateness / 1000}
        missing = " ".join(each.missing)
        whole = span(each.name, each.begin, each.end, run["spanId"], INTERNAL, each.status, missing=missing, **more)
        yield each.calls[0].node, whole
        for call in each.calls:
            yield call_span(call, whole["spanId"])
    shown = {call for each in together for call in each.calls}
    for call in (*run_trace.calls, *run_trace.upcalls):
        if call not in shown:
            yield call_span(call, run["spanId"])


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}}
        for key, value in values.items()
    ]
