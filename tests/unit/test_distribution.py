"""The distribution has one name wherever it is named, and recipes of other package managers ask for the same."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from pypmix._version import __version__
from pypmix.cli.diagnosis import NAME, OFFICIAL

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

OTHER = re.compile(rf"pip install (?:-\S+ )*['\"]?{OFFICIAL}(?![\w.-])|\b{OFFICIAL}\[[a-z]")
"""An installation, or an extra, of the distribution that is the official binding's."""


def test_the_name_is_the_one_that_doctor_knows() -> None:
    assert PROJECT["name"] == NAME != OFFICIAL
    assert PROJECT["scripts"] == {"pypmix": "pypmix.cli.main:main"}


def test_nothing_tells_to_install_another_distribution() -> None:
    places = [
        "pypmix",
        "docs",
        "deploy",
        "native",
        "tests/frameworks",
        "README.md",
        "CONTRIBUTING.md",
        "pyproject.toml",
    ]
    files = [
        each for place in places for each in ((ROOT / place).rglob("*") if (ROOT / place).is_dir() else [ROOT / place])
    ]
    said = {
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in files
        if path.suffix in (".py", ".md", ".toml", ".yaml", "") and path.is_file()
        for found in OTHER.finditer(path.read_text(errors="replace"))
    }
    assert said == {"docs/learn/install.md: pip install pypmix"}


def wanted(lines: list[str]) -> dict[str, str]:
    """Return the lowest releases that requirements ask for, by distribution."""
    found = (re.match(r"(?:py-)?([\w-]+?) ?(?:>=|@)([\d.]+)", line) for line in lines)
    return {match[1]: match[2].rstrip(".") for match in found if match}


@pytest.fixture(scope="module")
def ours() -> dict[str, str]:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return wanted([*PROJECT["dependencies"], *build, f"python{PROJECT['requires-python']}"])


def test_the_recipe_for_conda_asks_for_the_same(ours: dict[str, str]) -> None:
    recipe = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == __version__ and recipe["package"]["name"] == NAME
    needs = recipe["requirements"]
    assert wanted([each for part in ("host", "run") for each in needs[part] if each.isprintable()]) == ours
    assert recipe["about"]["license"] == PROJECT["license"]


def test_the_recipe_for_spack_asks_for_the_same(ours: dict[str, str]) -> None:
    text = (ROOT / "deploy/spack/package.py").read_text()
    tree = ast.parse(text)
    (recipe,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    calls = [node.value for node in recipe.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    said = [(call.func.id, call.args[0].value) for call in calls if isinstance(call.func, ast.Name)]  # type: ignore[attr-defined]
    assert ("version", __version__) in said
    found = wanted([text for what, text in said if what == "depends_on"])
    assert found.pop("pmix") == "4.2"
    assert found == ours


def image(name: str) -> list[tuple[str, str]]:
    """Return the instructions of an image file, with their words; raise an error for what is not one."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    found = [line.partition(" ") for line in text.splitlines() if line.strip() and not line.startswith("#")]
    known = {"FROM", "RUN", "COPY", "LABEL", "USER", "WORKDIR", "ENTRYPOINT"}
    assert {word for word, _, _ in found} <= known and found[0][0] == "FROM"
    return [(word, rest.strip()) for word, _, rest in found]


@pytest.mark.parametrize("name", ["deploy/oci/Containerfile", "deploy/kubernetes/Dockerfile"])
def test_images_have_a_python_that_is_supported_and_run_the_command(name: str) -> None:
    steps = image(name)
    bases = [re.match(r"docker\.io/library/python:([\d.]+)-slim\b", rest) for word, rest in steps if word == "FROM"]
    supported = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)}
    assert bases and all(base is not None and base[1] in supported for base in bases)
    assert steps[-1][0] == "ENTRYPOINT" and json.loads(steps[-1][1])[0] in PROJECT["scripts"]


def test_the_image_of_the_source_names_the_project() -> None:
    (labels,) = [shlex.split(rest) for word, rest in image("deploy/oci/Containerfile") if word == "LABEL"]
    named = {key.rpartition(".")[2]: text for key, _, text in (each.partition("=") for each in labels)}
    assert named == {
        "title": NAME,
        "version": __version__,
        "licenses": PROJECT["license"],
        "source": PROJECT["urls"]["Source"],
        "documentation": PROJECT["urls"]["Documentation"],
    }


def test_recipes_have_the_addresses_of_the_project() -> None:
    about = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text())["about"]
    assert (about["homepage"], about["documentation"]) == (PROJECT["urls"]["Documentation"],) * 2
    assert about["repository"] == PROJECT["urls"]["Source"]
    homepage = re.search(r'homepage = "(.*)"', (ROOT / "deploy/spack/package.py").read_text())
    assert homepage is not None and homepage[1] == PROJECT["urls"]["Documentation"]


def test_the_source_that_is_published_has_the_recipes() -> None:
    assert '"deploy"' in (ROOT / "native/backend.py").read_text().partition("SHIPPED_FILES")[0]
