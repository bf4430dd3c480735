"""`pypmix doctor`: shows a diagnosis as text or as JSON."""

from __future__ import annotations

import json
import platform
import sys
from typing import TextIO

from pypmix._version import __version__
from pypmix.cli.diagnosis import Diagnosis
from pypmix.cli.options import parse
from pypmix.cli.run import is_local_run
from pypmix.cli.show import grid
from pypmix.standard.releases import release_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pypmix.cli.examination import Examined

GROUPS_NOTE = (
    "group operations of native libraries work only among one generation (4.2; 5.0; 6.1 and 7), so `auto` takes "
    "the native engine only where a library of the server's own generation is found"
)


def look(words: Sequence[str], env: Mapping[str, str], pairs: bool = False) -> Examined | None:
    """Examine the nodes that options of `pypmix run` or the environment name; None if they name none.

    Args:
        words: The options.
        env: The environment.
        pairs: Whether to try each pair of nodes.

    Raises:
        UsageError: The options cannot be carried out.
    """
    where = parse([*words, "true"], env).selection
    if is_local_run(where, env):
        return None
    from pypmix.cli.examination import examine

    return examine(where, env, pairs)


def as_json(diagnosis: Diagnosis, nodes: Examined | None = None) -> str:
    """Return the diagnosis as one JSON object."""
    choice = diagnosis.report.choice
    library = choice.native.library if choice is not None and choice.native is not None else None
    return (
        json.dumps(
            {
                "usable": diagnosis.usable and (nodes is None or nodes.usable),
                "pypmix": __version__,
                "python": {"version": platform.python_version(), "executable": sys.executable},
                "engines": [
                    {"name": "python", "usable": True, "reason": _python_reason()},
                    {
                        "name": "native",
                        "usable": diagnosis.report.native.usable,
                        "reason": _native_reason(diagnosis),
                    },
                ],
                "libraries": _libraries(diagnosis),
                "refused": [
                    {"path": each.path, "origin": each.origin, "reason": each.reason}
                    for each in diagnosis.report.native.refused
                ],
                "kernel": {"tells_owners": not diagnosis.trouble, "reason": diagnosis.trouble},
                "settings": diagnosis.settings,
                "launcher": _launcher(diagnosis),
                "verdict": {
                    "engine": choice.engine if choice is not None else None,
                    "reason": choice.reason if choice is not None else diagnosis.report.trouble,
                    "library": library.path if library is not None and choice and choice.engine == "native" else None,
                    "note": GROUPS_NOTE,
                },
                "metadata": [
                    {"name": each.name, "version": each.version, "path": each.path, "own": each.own}
                    for each in diagnosis.metadata
                ],
                "warnings": diagnosis.warnings,
                "fixes": diagnosis.fixes,
                "next": next_step(diagnosis, nodes),
                **({} if nodes is None else {"nodes": _nodes(nodes)}),
            },
            indent=2,
        )
        + "\n"
    )


def _libraries(diagnosis: Diagnosis) -> list[dict[str, object]]:
    return [
        {
            "path": each.path,
            "origin": each.origin,
            "version": each.version,
            "release": release_text(each.release),
            "generation": each.generation,
        }
        for each in diagnosis.report.native.libraries
    ]


def next_step(diagnosis: Diagnosis, nodes: Examined | None = None) -> str:
    """Return the first thing to do so that jobs and clients run here; empty if they do."""
    if not diagnosis.usable or diagnosis.serverless:
        return next(iter(diagnosis.fixes), "")
    for each in () if nodes is None else nodes.findings:
        if each.severe:
            return f"{each.node}: {each.fix}" if each.node else each.fix
    return ""


def _nodes(nodes: Examined) -> dict[str, object]:
    shown = ("hostname", "pypmix", "python", "executable", "cpus", "tmpdir", "ahead", "listens")
    return {
        "reason": nodes.reason,
        "usable": nodes.usable,
        "found": [
            {"name": name, "answers": bool(facts), **{key: facts[key] for key in shown if key in facts}}
            for name, facts in nodes.nodes.items()
        ],
        "findings": [
            {"node": each.node, "check": each.check, "severe": each.severe, "text": each.text, "fix": each.fix}
            for each in nodes.findings
        ],
    }


def _launcher(diagnosis: Diagnosis) -> dict[str, object] | None:
    here = diagnosis.report.launcher
    if not here.nspace and not here.uris:
        return None
    return {
        "nspace": here.nspace,
        "rank": here.rank,
        "server": here.server,
        "release": here.release,
        "pypmix": here.pypmix or None,
        "generation": diagnosis.generation or None,
        "gds": here.gds,
        "psec": here.psec,
        "buffer_type": here.buffer_type,
        "uris": dict(here.uris),
        "lacks": diagnosis.missing_features,
    }


def _python_reason() -> str:
    return "needs no library; speaks OpenPMIx's own protocol, releases 4.2 to 7"


def _native_reason(diagnosis: Diagnosis) -> str:
    if not diagnosis.report.missing:
        return diagnosis.report.native.reason
    if "compiler" in diagnosis.report.missing:
        return f"native engine not built: {diagnosis.report.missing}; install a C compiler and reinstall"
    return f"native engine not usable: {diagnosis.report.missing}"


def as_text(diagnosis: Diagnosis, nodes: Examined | None, out: TextIO, problem: str = "") -> str:
    """Return the diagnosis as text for `out`: fitted to a terminal, unwrapped for anything else.

    Args:
        diagnosis: The findings here.
        nodes: The findings on the nodes; None if none are named.
        out: The stream.
        problem: Why the nodes could not be examined; empty if they could.
    """
    lines = _lines(diagnosis) + ([] if nodes is None else _node_lines(nodes))
    step = problem or next_step(diagnosis, nodes)
    lines.append(("to do", step, "bad") if step else ("ready", "jobs and clients run here", "good"))
    return grid([(label, line) for label, line, _style in lines], [style for _label, _line, style in lines], out)


def _lines(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Return label, text and style of each line."""
    good, bad, odd, plain = "good", "bad", "odd", ""
    lines = [
        ("pypmix", f"{__version__}, Python {platform.python_version()} ({sys.executable})", plain),
        ("python engine", f"usable: {_python_reason()}", good),
        (
            "native engine",
            f"usable: {_native_reason(diagnosis)}" if diagnosis.report.native.usable else _native_reason(diagnosis),
            good if diagnosis.report.native.usable else odd,
        ),
    ]
    label = "libraries"
    for library in diagnosis.report.native.libraries:
        lines.append((label, f"{library.path}  {library.version}, found by {library.origin}", plain))
        label = ""
    for refusal in diagnosis.report.native.refused:
        lines.append((label, f"{refusal.path}  refused: {refusal.reason} (found by {refusal.origin})", odd))
        label = ""
    if label:
        lines.append((label, "no libpmix.so.2 was found", plain))
    lines.append(
        ("kernel", f"does not tell whose a TCP connection is: {diagnosis.trouble}", odd)
        if diagnosis.trouble
        else ("kernel", "tells whose a connection is (sock_diag)", plain)
    )
    lines += [("environment", f"{name}={value}", plain) for name, value in diagnosis.settings.items()]
    lines += _launcher_lines(diagnosis)
    if diagnosis.report.choice is not None:
        lines.append(
            (
                "verdict",
                f"a client here runs on the {diagnosis.report.choice.engine} engine: {diagnosis.report.choice.reason}",
                good,
            )
        )
    else:
        lines.append(("verdict", f"a client here cannot run: {diagnosis.report.trouble}", bad))
    if diagnosis.generation:
        lines.append(("", GROUPS_NOTE, "dim"))
    lines += [("WARNING", text, odd) for text in diagnosis.warnings]
    lines += [("fix", text, "bold") for text in diagnosis.fixes]
    return lines


def _node_lines(nodes: Examined) -> list[tuple[str, str, str]]:
    lines = [("nodes", nodes.reason, "")] if nodes.reason else []
    for name, facts in nodes.nodes.items():
        if not facts:
            lines.append(("", f"{name}: does not answer", "bad"))
            continue
        listens = f", at {facts['listens'][0]}" if "listens" in facts else ""
        clock = f", clock {facts['ahead']:+.1f} s" if facts.get("ahead") else ""
        python = f"Python {facts['python']} ({facts['executable']})"
        text = f"{name}: pypmix {facts.get('pypmix', 'missing')}, {python}, {facts['cpus']} CPUs{listens}{clock}"
        lines.append(("", text, "" if facts.get("pypmix") else "bad"))
    for each in nodes.findings:
        where = f"{each.node}: " if each.node else ""
        lines.append(("TROUBLE" if each.severe else "WARNING", where + each.text, "bad" if each.severe else "odd"))
        lines.append(("fix", where + each.fix, "bold"))
    verdict = "jobs run on all of these nodes" if nodes.usable else "jobs do not run on all of these nodes"
    return [*lines, ("verdict", verdict, "good" if nodes.usable else "bad")]


def _launcher_lines(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    here = diagnosis.report.launcher
    if not here.nspace and not here.uris:
        return [("launcher", "none: this process was not started by a PMIx server; a client is a singleton", "")]
    server = (
        f"pypmix {here.pypmix}" if here.pypmix else f"release {here.release or 'not told (PMIX_VERSION is not set)'}"
    )
    if diagnosis.generation:
        server += f", generation {diagnosis.generation}"
    lines = [
        (
            "launcher",
            f"{here.nspace}:{here.rank}, served by {here.server or 'no server: no PMIX_SERVER_URI* is set'}",
            "",
        ),
        ("", f"server {server}", ""),
        ("", f"gds={here.gds or '-'} psec={here.psec or '-'} buffers={here.buffer_type or '-'}", ""),
    ]
    names: dict[str, list[str]] = {}
    for name, uri in here.uris:
        names.setdefault(uri, []).append(name)
    lines += [("", f"{uri} in {', '.join(same)}", "") for uri, same in names.items()]
    return lines + [("", text, "odd") for text in diagnosis.missing_features]
