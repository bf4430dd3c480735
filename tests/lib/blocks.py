"""The fenced blocks of README and the documentation: what each page shows, and which test runs it.

A block is run by `tests/pages` unless `tests/pages/blocks.toml` says that other tests run it, or why nothing does. That
file also divides long pages into parts, whose blocks run together.
A block of `console` is a script: lines after a prompt (`$ `, or `n1$ ` for a node) are commands, the others are all
lines that they print, in any order and with any numbers.

The programs of `tests/pages/programs` use it to run the Python blocks of a page among names that the page supposes, so
it imports the standard library only.
"""

from __future__ import annotations

import functools
import inspect
import re
import socket
import textwrap
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LISTED = ROOT / "tests" / "pages" / "blocks.toml"
PROGRAM = re.compile(r"^ *<!-- program: .*? -->\n *```.*?^ *```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of a page: its part of the page, its language, its first line and text."""

    page: str
    part: str
    kind: str
    line: int
    text: str

    @property
    def first(self) -> str:
        """The first line, by which `blocks.toml` names the block."""
        return self.text.splitlines()[0]

    @property
    def scripts(self) -> dict[str, list[str]]:
        """The commands of each node; those without the name of one are of the first."""
        found: dict[str, list[str]] = {}
        node = "n1"
        continued = False
        for line in self.text.splitlines():
            prompt = re.match(r"(n\d)?\$ (.*)", line)
            if prompt:
                node = prompt[1] or "n1"
                found.setdefault(node, []).append(prompt[2])
            elif continued:
                found[node].append(line)
            continued = line.endswith("\\") and (continued or prompt is not None)
        return found

    @property
    def script(self) -> str:
        return "\n".join(command for script in self.scripts.values() for command in script)

    @property
    def printed(self) -> list[str]:
        """The lines that the commands print."""
        commands = {command for script in self.scripts.values() for command in script}
        return [x for x in self.text.splitlines() if not re.match(r"(n\d)?\$ ", x) and x not in commands]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return the paths of README and of all pages."""
    docs = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
    return ["README.md", *(str(path.relative_to(ROOT)) for path in docs)]


@functools.cache
def of_page(page: str) -> tuple[Block, ...]:
    """Return the blocks of a page, but for directives and programs that other tests run (`docs/_ext/programs.py`)."""
    text = PROGRAM.sub(lambda match: "\n" * match[0].count("\n"), (ROOT / page).read_text())
    part = (ROOT / page).stem
    headings = listed()["parts"].get(page, {})
    begins = [(text.index(f"\n## {heading}\n"), name) for heading, name in headings.items()]
    found = []
    for match in re.finditer(r"^( *)```([a-z]+)\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
        kind = match[2]
        line = text[: match.start()].count("\n") + 2
        name = max([each for each in begins if each[0] < match.start()], default=(0, part))[1]
        found.append(Block(page, name, kind, line, textwrap.dedent(match[3])))
    return tuple(found)


def first_program() -> str:
    """Return the first program of README and of the front page, which a reader saves as `endpoints.py`."""
    return (ROOT / "docs" / "examples" / "endpoints.py").read_text()


@functools.cache
def listed() -> dict[str, dict[str, dict[str, str]]]:
    """Return what `blocks.toml` says: the `parts` of pages, and for `nodes`, `elsewhere` and `left` blocks by part."""
    return tomllib.loads(LISTED.read_text())


def said(block: Block) -> tuple[str, str] | None:
    """Return the part of `blocks.toml` that lists a block, and what is said there; None where `tests/pages` runs it."""
    for where in ("nodes", "elsewhere", "left"):
        for beginning, text in listed()[where].get(block.part, {}).items():
            if block.first.startswith(beginning):
                return where, text
    return None


def to_run(kind: str) -> list[Block]:
    """Return the blocks of a language that `tests/pages` runs."""
    return [block for page in pages() for block in of_page(page) if block.kind == kind and said(block) is None]


def on_nodes() -> list[Block]:
    """Return the blocks that `tests/nodes` runs on the nodes n1, n2 and n3."""
    found = [(block, said(block)) for page in pages() for block in of_page(page)]
    return [block for block, where in found if where is not None and where[0] == "nodes"]


def masked(line: str, host: str) -> str:
    """Return a line without what varies from run to run, and from machine to machine.

    These are numbers with their units, bars, the names of jobs, the machine, its processor and its Python, and the
    order of the items of a list, which may go by such numbers.
    """
    line = line.replace(host, "n0")
    line = re.sub(r"\S+/bin/python[\d.]*", "PYTHON", line)
    line = re.sub(r"pypmix-\d+-[0-9a-z]{8}(?=@)", "JOB", line)
    line = re.sub(r"^.*, (?=\d+ cores, Python )", "PROCESSOR, ", line)
    line = re.sub(r"\d[\d,]*(\.\d+)*( (s|ms|µs)\b)?", lambda found: "TIME" if found[2] else "0", line)
    # Which of a rank's calls take the most time differs.
    line = re.sub(r"\b[a-z]+ TIME(, [a-z]+ TIME)+", "CALLS", line)
    line = re.sub("█+", "█", line)
    cells = [", ".join(sorted(cell.split(", "))) for cell in re.split(r"\s{2,}", line.strip())]
    return " ".join(cells)


def compare(block: Block, output: str, host: str = "") -> None:
    """Fail if the commands of a block have printed other lines than its page has, in whatever order.

    Args:
        block: The block.
        output: All that its commands have printed.
        host: The name of the machine that ran them; this one's if not given.
    """
    host = host or socket.gethostname()
    seen = {masked(line, host): line for line in output.splitlines() if line.strip()}
    shown = {masked(line, host): line for line in block.printed if line.strip()}
    counts = Counter(masked(line, host) for line in output.splitlines() if line.strip())
    counts.subtract(masked(line, host) for line in block.printed if line.strip())
    problems = [f"{block} does not print: {shown[line]}" for line, count in counts.items() if count < 0]
    problems += [f"{block} also prints: {seen[line]}" for line, count in counts.items() if count > 0]
    assert not problems, "\n".join([*problems, output])


class Session:
    """The Python blocks of a part of a page, run one after the other among the names of a program.

    Args:
        part: The name of the part.
        names: The program's global names.
    """

    def __init__(self, part: str, names: dict[str, Any]) -> None:
        self._blocks = [block for block in to_run("python") if block.part == part]
        self._names = names

    def _compiled(self, number: int, text: str, begin: int) -> Any:
        block = self._blocks[number]
        # so that a traceback names the page and its line
        return compile("\n" * (block.line - begin) + text, str(ROOT / block.page), "exec")

    def run(self, number: int) -> None:
        """Run the block with this number among those of the part that are run."""
        exec(self._compiled(number, self._blocks[number].text, 1), self._names)
        print("ran block", number, flush=True)

    async def run_async(self, number: int) -> Any:
        """Run a block with `await` or `return` in it as the body of a coroutine function, and return what that does."""
        body = textwrap.indent(self._blocks[number].text, "    ")
        exec(self._compiled(number, f"async def block():\n{body}", 2), self._names)
        made = self._names["block"]()
        assert inspect.iscoroutine(made)
        returned = await made
        print("ran block", number, flush=True)
        return returned
