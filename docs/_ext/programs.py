"""Keep the programs that pages show equal to the files that the tests run.

A page shows a program as an ordinary block of code, so that it can be read anywhere. A comment above the block names
the file, relative to the page, and the part of it:

    <!-- program: ../examples/hello.py, from "import json", before "# end", object main, lines 3-9, dedent 4 -->

Usage: python docs/_ext/programs.py [--check]

Without `--check` the blocks are written again from the files; with it, nothing is written, and the exit code is 1 if a
block differs from its file, or a link of a page has no text.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
BLOCK = re.compile(
    r"(?P<head>^(?P<indent> *)<!-- program: (?P<path>[^\s,]+)(?P<part>.*?) -->\n)"
    r" *```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
EMPTY_LINK = re.compile(r"(?<!!)\[\]\([^)]*\)")


class Part(NamedTuple):
    """The part of a file that a page shows; all of it by default.

    Attributes:
        first: The beginning of the first line shown, blanks before it apart.
        after: The beginning of the line before the first one shown.
        before: The beginning of the line after the last one shown.
        object: The qualified name of a function or class.
        lines: The numbers of the first and last line, as in `3-9` or `3-`.
        dedent: How many blanks are removed from each line.
    """

    first: str = ""
    after: str = ""
    before: str = ""
    object: str = ""
    lines: str = ""
    dedent: int = 0


def read_part(text: str) -> Part:
    """Return the part that the comment above a block names."""
    found = dict(re.findall(r', (from|after|before) "([^"]*)"', text))
    words = dict(re.findall(r", (object|lines|dedent) (\S+?)(?=,|$)", text))
    return Part(
        first=found.get("from", ""),
        after=found.get("after", ""),
        before=found.get("before", ""),
        object=words.get("object", ""),
        lines=words.get("lines", ""),
        dedent=int(words.get("dedent", 0)),
    )


def find_object(tree: ast.AST, name: str) -> ast.stmt:
    """Return the definition of a function or class by its qualified name."""
    for part in name.split("."):
        tree = next(
            node
            for node in ast.iter_child_nodes(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == part
        )
    assert isinstance(tree, ast.stmt)
    return tree


def cut(text: str, part: Part) -> str:
    """Return a part of a file's text.

    Raises:
        LookupError: The file has no such line or object.
    """
    lines = text.splitlines()
    if part.object:
        try:
            node = find_object(ast.parse(text), part.object)
        except StopIteration:
            raise LookupError(f"there is no {part.object}") from None
        decorators = getattr(node, "decorator_list", [])
        begin = min([node.lineno, *(each.lineno for each in decorators)])
        lines = lines[begin - 1 : node.end_lineno]
    if part.lines:
        begin, _, end = part.lines.partition("-")
        lines = lines[int(begin) - 1 : int(end) if end else None]
    if part.first:
        lines = lines[find_line(lines, part.first) :]
    if part.after:
        lines = lines[find_line(lines, part.after) + 1 :]
    if part.before:
        lines = lines[: find_line(lines, part.before)]
    cut_lines = [line[part.dedent :] if not line[: part.dedent].strip() else line for line in lines]
    shown = "\n".join(cut_lines).strip("\n") + "\n"
    # Methods that are shown as functions are as far apart as functions.
    return re.sub(r"\n\n(?=(async )?def |@)", "\n\n\n", shown) if part.dedent else shown


def find_line(lines: list[str], beginning: str) -> int:
    """Return the index of the first line with this beginning, blanks before it apart."""
    for index, line in enumerate(lines):
        if line.strip().startswith(beginning.strip()):
            return index
    raise LookupError(f"no line begins with {beginning!r}")


def renew(page: Path) -> str:
    """Return the text of a page with its programs as they are in the files.

    Raises:
        LookupError: A program, or the part of it that the page shows, does not exist.
    """

    def write_block(match: re.Match[str]) -> str:
        path = (page.parent / match["path"]).resolve()
        try:
            text = cut(path.read_text(), read_part(match["part"]))
        except (OSError, LookupError) as error:
            raise LookupError(f"{page.relative_to(ROOT)}: {match['path']}: {error}") from error
        indent = match["indent"]
        body = textwrap.indent(text, indent)
        return f"{match['head']}{indent}```{match['language']}\n{body}{indent}```"

    return BLOCK.sub(write_block, page.read_text())


def list_pages() -> list[Path]:
    """Return README and all pages."""
    found = (path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
    return [ROOT / "README.md", *sorted(found)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if something differs")
    check = parser.parse_args().check
    problems = []
    for page in list_pages():
        name = page.relative_to(ROOT)
        try:
            text = renew(page)
        except LookupError as error:
            problems.append(str(error))
            continue
        if text != page.read_text():
            if check:
                problems.append(f"{name}: a program differs from its file; run `python docs/_ext/programs.py`")
            else:
                page.write_text(text)
        problems += [f"{name}: a link without text: {link}" for link in EMPTY_LINK.findall(text)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
