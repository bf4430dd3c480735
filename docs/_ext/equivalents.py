"""Writes the table of a page about options of other launchers, from the table that `pypmix run` reads.

    python docs/_ext/equivalents.py [--check]

With `--check` nothing is written, and a page that differs is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS.parent))

from pypmix.cli.equivalents import EQUIVALENTS  # noqa: E402

PAGE = "commands.md"
START = "| Option | Launchers | With `pypmix run` |\n| --- | --- | --- |\n"


def dashed(name: str) -> str:
    return f"`{'-' if len(name) == 1 else '--'}{name}`"


def shown(text: str) -> str:
    return text.replace("{0}", "N").replace("|", "\\|")


def shown_words(words: tuple[str, ...]) -> str:
    return f"`{' '.join(words)}`" if words else "no change"


def rows() -> str:
    """Return the rows of the table."""
    lines = []
    for each in EQUIVALENTS:
        if each.advice:
            ours = shown(each.advice)
        elif each.ours:
            values = ("A", "B") if each.values == 2 else ("A",)
            ours = (
                f"understood: `{' '.join(each.ours).format(*values)}`{' for all applications' if each.common else ''}"
            )
        else:
            ours = "understood; it changes nothing"
        if understood := [f"`{value}`: {shown_words(words)}" for value, words in each.choices]:
            ours = f"understood with {', '.join(understood)}; otherwise {ours.removeprefix('understood; ')}"
        lines.append(f"| {', '.join(map(dashed, each.names))} | {each.launchers} | {ours} |\n")
    return "".join(lines)


def main() -> int:
    """Write the table, or compare it."""
    (page,) = DOCS.rglob(PAGE)
    before, start, rest = page.read_text().partition(START)
    _, gap, after = rest.partition("\n\n")
    text = before + start + rows() + gap[1:] + after
    if text == page.read_text():
        return 0
    if "--check" in sys.argv:
        print(f"{page} is not what pypmix/cli/equivalents.py says: run python docs/_ext/equivalents.py")
        return 1
    page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
