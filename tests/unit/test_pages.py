"""The pages say what is so: error texts are those of the source, and links between files lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TROUBLES = ROOT / "docs" / "operate" / "troubleshooting.md"
PAPERS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def texts() -> str:
    """Return the source of the package, in which a literal of several pieces is one."""
    source = "\n".join(path.read_text() for path in (ROOT / "pypmix").rglob("*.py"))
    return re.sub(r'"\s*\n\s*f?"', "", source)


def errors() -> list[str]:
    """Return what the page on troubles has before each definition, without what a program fills in."""
    terms = re.findall(r"^(`.*`.*)\n: ", TROUBLES.read_text(), re.MULTILINE)
    return [text for term in terms for text in re.findall(r"`([^`]+)`", term)]


def test_error_texts_are_those_of_the_source() -> None:
    source = texts()
    system = {"Permission denied"}
    missing = [text for text in errors() if text.removesuffix("hello.py") not in source and text not in system]
    assert len(errors()) > 20
    assert not missing, "docs/operate/troubleshooting.md has texts that no program prints"


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path: Path) -> None:
    text = re.sub(r"^(`{3,}|:{3,}).*?^\1", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]+`", "", text)
    links = re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", text)
    # a name without a dot is a label of a page
    dead = [link for link in links if "." in link and not (path.parent / link).exists()]
    assert not dead


def test_readme_has_words_for_its_links_and_pictures() -> None:
    assert not re.search(r"\[\]\(", (ROOT / "README.md").read_text())
