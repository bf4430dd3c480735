"""A rank that runs one test, forked from the template."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
from pathlib import Path

from pypmix.testing import template

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_folder = ""
_size = 0


def number() -> int:
    """Return the rank of this process."""
    return int(os.environ["PMIX_RANK"])


def size() -> int:
    """Return the number of ranks of the test."""
    return _size


def shared() -> Path:
    """Return the folder that all ranks of the test share."""
    path = Path(_folder) / "shared"
    path.mkdir(exist_ok=True)
    return path


def main(words: Sequence[str]) -> int:
    """Run the test of the words PLACE FOLDER RANKS ENGINE; return 0 if it has passed on this rank."""
    global _folder, _size
    place, _folder, ranks, engine = words
    _size = int(ranks)
    if engine:
        os.environ["PYPMIX_ENGINE"] = engine
    if template.TEMPLATE is None:
        raise SystemExit("a rank of a test is forked from a pytest, not started")
    base = os.path.join(_folder, f"rank.{number()}")
    # A rank that is asked to exit writes its stacks, even during a call of C.
    with open(f"{base}.stacks", "w") as stacks:
        faulthandler.register(signal.SIGTERM, stacks, all_threads=True, chain=True)
        faulthandler.enable(stacks)
        passed = _run(template.TEMPLATE, place, base)
        faulthandler.unregister(signal.SIGTERM)
        faulthandler.disable()
    return 0 if passed else 1


def _run(made: template.Template, place: str, base: str) -> bool:
    config = made.config
    item = made.items.get(place)
    if item is None:
        raise SystemExit(f"{place} was not collected again: do its name or parameters differ each time?")
    factory: Any = getattr(config, "_tmp_path_factory", None)
    if factory is not None:
        # Like --basetemp, but for each rank.
        vars(factory).update(_given_basetemp=Path(f"{base}.tmp"), _basetemp=None)
    if made.capture is not None:
        made.capture.start_global_capturing()
    try:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
    finally:
        if made.capture is not None:
            made.capture.stop_global_capturing()
    with open(f"{base}.new", "w") as file:
        # Properties that a test records may have any type.
        json.dump({"reports": made.reporter.reports, "warnings": made.reporter.warnings}, file, default=repr)
    os.rename(f"{base}.new", f"{base}.json")
    return not any(report["outcome"] == "failed" for report in made.reporter.reports)
