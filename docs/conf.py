"""Sphinx's configuration of the documentation."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent / "_ext")]

from pypmix._version import __version__  # noqa: E402

project = "pypmix"
author = "The pypmix developers"
copyright = f"2026, {author}"
version = release = __version__
with (ROOT / "pyproject.toml").open("rb") as _file:
    _project = tomllib.load(_file)["project"]
description = _project["description"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "contents",
    "counterparts",
    "differences",
    "drawings",
    "names",
    "other_docs",
    "promises",
    "old_links",
    "site_files",
    "standard_links",
    "upcalls",
    "vocabulary",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"pypmix {release}"
html_baseurl = _project["urls"]["Documentation"]
html_static_path = ["_static"]
html_css_files = ["pypmix.css"]
html_search_scorer = str(ROOT / "docs" / "_ext" / "scorer.js")

# What is copied are commands, without their prompts and without what they print.
copybutton_prompt_text = r"(n\d)?\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Straight dashes: `--option` in prose stays what is typed.
smartquotes_action = "qe"

default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False

nitpick_ignore_regex = [
    # Type variables and aliases that signatures show.
    ("py:(class|obj)", r"(D|T|R|F|EngineInfo|ClientSession|The caller|optional)"),
    ("py:(class|obj)", r"(Asks|Channel|JobEnds|GroupState|Port|Normal|Notification|OnUpcall)"),
    ("py:(class|obj)", r"pypmix\.(aio\.)?(handlers\.F|operations\.(base\.Asks|spawning\.JobEnds|streams\.T))"),
    ("py:class", r"(Machine|DeviceType|GroupAnswer|Delivery)"),
    ("py:(class|obj)", r"(Given|Later|H|P|Connected|JobDescription|Pending|Handler|JobInfo|Output|Upcall)"),
    ("py:(class|obj)", r"(Launch|OpenRequests|Start|Done|ServerSession|Codec|Participants|Values)"),
    ("py:(class|obj)", r"(GroupConstruct|GroupInvite|Elect|AsyncLeadership|BlockingLeadership)"),
    ("py:class", r"pypmix\.host\.exchange\.participant\.LocalContribution"),
    # Protocols and machines that a carrier, an exchange or a crossing is given by servers.
    (
        "py:(class|obj)",
        r"(Address|Call|Alarm|News|Timer|ServerLike|Exchange|Op|NodeSession|ForkServers)",
    ),
    ("py:(class|obj)", r"(Trace|TraceFile|Hop|Fault|Variables)"),
    # Parts of the package that are not public.
    ("py:.*", r"pypmix\.host\.(output|job\.Slot|callbacks\.(processes|dispatcher|watching|base)).*"),
    ("py:class", r"pypmix\.standard\.jobinfo\.(JobInfo|JobDescription)"),
    ("py:.*", r"pypmix\.(engine|requests|wire|standard\.ops)\..*"),
]

# `sphinx-build -b linkcheck`: needs the network, so that no test does it. The project's own addresses are placeholders.
linkcheck_ignore = [r"https://pypmix\.example/.*"]
linkcheck_anchors_ignore_for_url = [r"https://pmix\.org/.*\.pdf"]
linkcheck_timeout = 20
linkcheck_retries = 2

# `sphinx-build -b man`: the page of the command line is the manual page.
man_pages = [("reference/commands", "pypmix", "run and look at PMIx jobs", [author], 1)]
