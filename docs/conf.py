"""Sphinx's configuration of the documentation."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent / "_ext")]

from pypmix._version import __version__  # noqa: E402

project = "pypmix"
author = "The pypmix developers"
copyright = f"2026, {author}"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "differences",
    "promises",
    "states",
    "upcalls",
    "vocabulary",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"pypmix {release}"

graphviz_output_format = "svg"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False

nitpick_ignore_regex = [
    # Names of the standard library, which has its own documentation.
    ("py:.*", r"(collections\.abc|typing|types|asyncio)\..*"),
    ("py:(class|exc|obj)", r"(TypeError|ValueError|OverflowError|LookupError|TimeoutError|ConnectionError|IndexError)"),
    ("py:(class|exc|obj)", r"(NotImplementedError|PermissionError|ImportError|Exception|BaseException|TracebackType)"),
    ("py:(class|obj)", r"(int|str|bool|float|bytes|tuple|dict|list|object|None|Self|Any|Iterable|Iterator|Mapping)"),
    # Type variables and aliases that signatures show.
    ("py:(class|obj)", r"(T|R|F|Key|Infos|Feature|Procs|Target|Release|EngineInfo|ClientSession|The caller|optional)"),
    ("py:(class|obj)", r"(Apps|Asks|Channel|Ends|GroupState|Port|Normal|Notification|OnUpcall|Path|Word|os\.PathLike)"),
    ("py:(class|obj)", r"pypmix\.(handlers\.F|operations\.(base\.Asks|spawning\.Ends|streams\.T))"),
    ("py:class", r"pypmix\.aio\.operations\.psets\.PsetStream"),
    ("py:(class|obj)", r"(Given|Later|Reply|H|P|Connected|Described|Exchange|Pending|Handler|JobInfo|Output|Upcall)"),
    ("py:(class|obj)", r"(Launch|Desk|Start|Done|ServerSession|Codec|Among)"),
    ("py:(class|obj)", r"(GroupConstruct|GroupInvite|aio\.Group|Elect|AsyncLeadership|BlockingLeadership)"),
    # mpi4py has its own documentation.
    ("py:.*", r"MPI\..*"),
    # Parts of the package that are not public.
    ("py:.*", r"pypmix\.host\.(output|job\.Slot|callbacks\.(processes|desk|watching|requests\.(R|Later)$)).*"),
    ("py:class", r"pypmix\.standard\.jobinfo\.JobInfo"),
    ("py:.*", r"pypmix\.(engine|requests|wire|standard\.ops)\..*"),
]
