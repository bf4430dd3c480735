"""Write the tables of the page "Changes of names" from `pypmix.renames`.

    python docs/_ext/names.py [--check]

With `--check` nothing is written, and a page that differs is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS.parent))

from pypmix.renames import ARGUMENTS, CLIENT, show  # noqa: E402

PAGE = "reference/names.md"
MEMBERS = "| Former name | Write |\n| --- | --- |\n"
OPTIONS = "| Method | Former argument | Write |\n| --- | --- | --- |\n"


def members() -> str:
    """Return the rows of former members."""
    return "".join([f"| `me.{row.old}` | {show(row)} |\n" for row in CLIENT])


def options() -> str:
    """Return the rows of former arguments."""
    return "".join(
        [
            f"| {', '.join(f'`{each}`' for each in row.methods.split())} | `{row.old}=` | `{row.new}=` |\n"
            for row in ARGUMENTS
        ]
    )


def fill(text: str) -> str:
    """Return the page with the present rows."""
    for head, rows in ((MEMBERS, members()), (OPTIONS, options())):
        before, found, after = text.partition(head)
        assert found, f"{PAGE} has no table that begins with {head!r}"
        rest = after.partition("\n\n")[2]
        text = f"{before}{head}{rows}\n{rest}" if rest else f"{before}{head}{rows}"
    return text


def main(arguments: list[str]) -> int:
    page = DOCS / PAGE
    text = page.read_text()
    if fill(text) == text:
        return 0
    if arguments == ["--check"]:
        print(f"{page} is not what docs/_ext/names.py writes", file=sys.stderr)
        return 1
    page.write_text(fill(text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
