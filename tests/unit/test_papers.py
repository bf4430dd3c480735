"""The papers of the repository agree with each other: addresses, releases of tools, names of news; forms parse."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
KINDS = {each["directory"] for each in PROJECT["tool"]["towncrier"]["type"]}
FORMS = sorted(
    [
        *(ROOT / ".github").rglob("*.yml"),
        ROOT / ".readthedocs.yaml",
        ROOT / ".pre-commit-config.yaml",
        ROOT / "CITATION.cff",
    ]
)
PAPERS = [
    *sorted(ROOT.glob("*.md")),
    *FORMS,
    *sorted((ROOT / ".github").rglob("*.md")),
    *[page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts],
    ROOT / "docs" / "conf.py",
    *[path for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file()],
]
PLACEHOLDER = re.compile(r"[\w.@/:-]*pypmix\.example[\w/.-]*")


def addresses() -> list[str]:
    """Return the addresses that pyproject.toml gives: what a maintainer fills in."""
    return [*PROJECT["project"]["urls"].values(), *[each["email"] for each in PROJECT["project"]["maintainers"]]]


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_placeholders_are_those_of_the_project(path: Path) -> None:
    known = addresses()
    found = [each.rstrip(".") for each in PLACEHOLDER.findall(path.read_text())]
    strange = [each for each in found if not any(each.startswith(address.rstrip("/")) for address in known)]
    assert not strange, "pyproject.toml has other addresses: write those here"


@pytest.mark.parametrize("name", ["SECURITY.md", "CITATION.cff"])
def test_papers_name_an_address_of_the_project(name: str) -> None:
    text = (ROOT / name).read_text()
    assert any(address.rstrip("/") in text for address in addresses())


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_forms_parse(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_the_forge_runs_what_ci_runs() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["everything"]["steps"]
    assert steps[-1]["run"] == ".ci/run"


def test_citation() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= found.keys()
    assert found["license"] == PROJECT["project"]["license"]


def test_hooks_use_the_tools_that_tox_uses() -> None:
    pinned = set(re.findall(r"^\s+([\w-]+==\S+)$", (ROOT / "tox.ini").read_text(), re.MULTILINE))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    used = {each for hook in hooks for each in hook.get("additional_dependencies", ())}
    assert used and used <= pinned


def test_news_have_a_kind_and_a_sentence() -> None:
    for path in (ROOT / "changes").iterdir():
        if path.name != "README.md":
            assert re.fullmatch(rf"(\d+|\+[\w-]+)\.({'|'.join(KINDS)})(\.\d+)?\.md", path.name), path.name
            assert path.read_text().strip().endswith((".", "```")), path.name


def test_the_list_of_changes_has_a_place_for_them() -> None:
    assert PROJECT["tool"]["towncrier"]["start_string"] in (ROOT / "CHANGELOG.md").read_text()
