"""The Python blocks of all pages run as they stand, those of a part of a page in one job.

What a part supposes, such as `me` and the procs that it speaks of, comes from a program of `programs/`, named after the
part. Its first line says by which command it is run, if not by Python alone.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lib import blocks
from lib.page_console import LIMIT, printed

PARTS = sorted({block.part for block in blocks.to_run("python")})


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("part", PARTS)
def test_blocks_run_as_they_stand(part: str, folder: Path, environment: dict[str, str]) -> None:
    first = (folder / "blocks.py").read_text().partition("\n")[0]
    command = shlex.split(first.removeprefix("#")) if first.startswith("#") else []
    path = [str(blocks.ROOT / "tests"), *filter(None, [environment.get("PYTHONPATH", "")])]
    environment["PYTHONPATH"] = ":".join(path)
    said, code = printed([*command, "python", "blocks.py"], folder, environment)
    assert code == 0, said
    ran = {int(number) for number in re.findall(r"^ran block (\d+)$", said, re.MULTILINE)}
    wanted = [block for block in blocks.to_run("python") if block.part == part]
    assert ran == set(range(len(wanted))), said
