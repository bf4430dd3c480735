"""Links to the documentation of Python, NumPy, mpi4py and PyTorch, by `sphinx.ext.intersphinx` and without the network.

Intersphinx reads which names another documentation has from a file of that site. Here the names are those of
`other_docs.tsv`, with the names by which signatures call them, so a build needs no other site and never changes with
one.
`sphinx-build -b linkcheck` asks the sites whether the addresses exist.
"""

from __future__ import annotations

import csv
import zlib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

NAMES = Path(__file__).with_suffix(".tsv")
SITES = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "mpi4py": "https://mpi4py.readthedocs.io/en/stable/",
    "torch": "https://docs.pytorch.org/docs/stable/",
}
HEAD = """# Sphinx inventory version 2
# Project: {}
# Version:
# The remainder of this file is compressed using zlib.
"""


def inventory(project: str) -> bytes:
    """Return the names of a project in the form that intersphinx reads."""
    with NAMES.open(newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["project"] == project]
    lines = "".join(f"{row['name']} {row['kind']} 1 {row['address']} -\n" for row in rows)
    return HEAD.format(project).encode() + zlib.compress(lines.encode())


def add_sites(app: Sphinx, config: Config) -> None:
    folder = Path(app.doctreedir) / "other_docs"
    folder.mkdir(parents=True, exist_ok=True)
    for project, address in SITES.items():
        path = folder / f"{project}.inv"
        path.write_bytes(inventory(project))
        config.intersphinx_mapping[project] = (address, str(path))


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.intersphinx")
    # Before intersphinx reads its configuration.
    app.connect("config-inited", add_sites, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
