"""Make the pictures of commands that pages show: `docs/pictures/trace.png` and `docs/pictures/top.svg`.

Usage: python tests/site/pictures.py, after the page of `pypmix trace` or what `pypmix top` prints has changed.

It runs the jobs that it shows, and looks at the page in Chromium (see `browser.py`).
"""

from __future__ import annotations

import html
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from browser import NAMES, Browser

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
PYPMIX = [sys.executable, "-m", "pypmix"]
LIMIT = 60.0

WAITS = """
import time
import pypmix
with pypmix.Client() as me:
    if me.rank == 2:
        print("there", flush=True)
        time.sleep(60)
    me.fence()
"""


def shoot_trace(folder: Path, browser: str) -> None:
    """Run the job of the page, and take a picture of its trace."""
    example = ROOT / "docs" / "examples" / "tools" / "late.py"
    job = ["run", "--nspace", "demo", "--nodes", "2", "-n", "4", "--trace", "run.json"]
    subprocess.run([*PYPMIX, *job, sys.executable, example], cwd=folder, check=True, timeout=LIMIT)
    subprocess.run([*PYPMIX, "trace", "run.json", "--html", "run.html"], cwd=folder, check=True, timeout=LIMIT)
    started = Browser(browser)
    try:
        started.show(folder / "run.html", "wide", "light")
        size = {"width": 1000, "height": 640, "deviceScaleFactor": 1, "mobile": False}
        started.ask("Emulation.setDeviceMetricsOverride", **size)
        # From the first request on, of which there are none while the ranks start.
        first = "Math.min(...data.tracks.map(track => track.events[0][0]))"
        started.ask("Runtime.evaluate", expression=f"show({first} - length * 0.02, length * 1.01)")
        started.shoot(PICTURES / "trace.png")
    finally:
        started.close()


def terminal(command: list[str], folder: Path, columns: int) -> str:
    """Return what a command writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, env=environment)
    os.close(theirs)
    text = b""
    try:
        while piece := os.read(ours, 1 << 16):
            text += piece
    except OSError:
        # It has ended, and so has the terminal.
        pass
    os.close(ours)
    process.wait(LIMIT)
    return text.decode().replace("\r\n", "\n")


def draw_top(folder: Path) -> None:
    """Have a job wait for a rank, and draw what `pypmix top` shows of it."""
    job = [*PYPMIX, "run", "--nspace", "demo", "-n", "4", sys.executable, "-c", WAITS]
    process = subprocess.Popen(job, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None and process.stdout.readline()
        until = time.monotonic() + LIMIT
        text = ""
        while "3 of 4 procs" not in text and time.monotonic() < until:
            time.sleep(1.0)
            text = terminal([*PYPMIX, "top", "--once", "--pid", str(process.pid)], folder, 100)
    finally:
        process.terminate()
        process.wait(LIMIT)
    text = text.replace(sys.executable, "/usr/bin/python3")
    (PICTURES / "top.svg").write_text(svg(["$ pypmix top", *text.rstrip("\n").split("\n")]))


def svg(lines: list[str]) -> str:
    """Return the lines of a terminal as a picture."""
    plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines]
    width, height = max(map(len, plain)) * 8 + 32, len(lines) * 20 + 28
    rows = []
    for number, (line, text) in enumerate(zip(lines, plain, strict=True)):
        bold = ' font-weight="bold"' if line.startswith("\x1b[1m") else ""
        rows.append(f'<text x="16" y="{number * 20 + 28}"{bold} xml:space="preserve">{html.escape(text)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#1d2127"/>\n'
        '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13" fill="#e6e7e9">\n'
        + "\n".join(rows)
        + "\n</g>\n</svg>\n"
    )


def main() -> None:
    program = os.environ.get("PYPMIX_TEST_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        sys.exit("there is no browser; apt-get install chromium-headless-shell, or set PYPMIX_TEST_BROWSER")
    with tempfile.TemporaryDirectory(prefix="pypmix-pictures-") as folder:
        shoot_trace(Path(folder), program)
        draw_top(Path(folder))


if __name__ == "__main__":
    main()
